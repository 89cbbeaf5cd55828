/* help.h - the help of all commands, as text, man pages and completions.
 *
 * Everything is made from the tables in cli/commands (cli_help) and the rows of commands.def, so an
 * option is described once.
 */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "cli/ui.h"

/* What --help prints of one command. */
void help_command(const cli_help *help, FILE *out);
/* What plimsoll --help prints: every command and the exit codes. */
void help_all(FILE *out);
/* What plimsoll alone prints: the commands a beginner needs, with one example each. */
void help_beginner(FILE *out);
/* `plimsoll help ...`, with argv[0] "help"; returns the exit code. */
int help_run(int argc, char **argv);

/* The exit codes, one per call, until NULL. */
typedef struct help_code {
    int code;
    const char *means;
} help_code;
extern const help_code help_codes[]; /* ends with means NULL */

/* man.c: the man page of a command; NULL: plimsoll(1). */
void man_page(const cli_command *c, FILE *out);
/* complete.c: the completions for a shell, "bash", "zsh" or "fish"; false: unknown shell. */
bool complete_shell(const char *shell, FILE *out);
/* complete.c: prints what can follow `word` as a setting of the configuration: keys, or the values
 * of the key in `word`. Returns the exit code. */
int complete_keys(const char *config, const char *word, FILE *out);

#endif
