/* parts.h - the optional parts of this program: which of them work on this machine, and why not.
 *
 * `doctor` and `version` print the same list. tools/deps has the libraries of the build; a test
 * compares the two lists. The CUDA and MPI plug-ins are not in the list.
 */
#ifndef CLI_PARTS_H
#define CLI_PARTS_H

#include <stdbool.h>

typedef struct cli_part {
    const char *name;  /* "JPEG", "watch" */
    const char *works; /* what to print when the part works: "can be read" */
    bool format;       /* a format of data files */
    bool missing;
    char why_not[160]; /* if missing; ends in "(apt-get install NAME ...)" where a package helps */
} cli_part;

enum { CLI_PARTS_MAX = 16 };

/* Writes at most CLI_PARTS_MAX parts and returns their number. */
int cli_parts(cli_part *out);

#endif
