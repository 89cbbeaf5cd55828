/* yaml.h - a YAML 1.2 (or JSON) document as a small tree with source locations.
 *
 * Meant for configurations: one document, UTF-8, at most 1 MiB, 20,000 nodes, 32 levels, 100
 * aliases, and 200 blank lines or 500 spaces in a row; keys are plain or quoted text; a key twice
 * in a mapping is an error; tags and merge keys (<<) are refused. Scalars stay text here: what
 * `012` or `yes` means is the reader's business (config.c, by YAML's core schema). Errors are
 * PL_ERR_CONFIG and read "name:line:column: what".
 */
#ifndef PL_IO_YAML_H
#define PL_IO_YAML_H

#include "base/arena.h"

typedef enum pl_yaml_kind { PL_YAML_SCALAR, PL_YAML_SEQUENCE, PL_YAML_MAPPING } pl_yaml_kind;

typedef struct pl_yaml pl_yaml;
struct pl_yaml {
    pl_yaml_kind kind;
    bool plain;       /* scalar without quotes: may be a number, bool or null */
    int line, column; /* from 1 */
    const char *text; /* scalar: NUL-terminated, no NUL inside */
    int n_items;
    pl_yaml *first, *next; /* items of a sequence or values of a mapping, in order */
    pl_yaml *key;          /* of a value in a mapping: its key, a scalar */
};

enum { PL_YAML_MAX_BYTES = 1 << 20 };

/* The tree lives in the arena. *out is NULL for an empty document. An alias becomes a copy of its
 * anchor, with the location of the alias. */
pl_status pl_yaml_parse(const char *text, size_t len, const char *name, pl_arena *arena,
                        const pl_yaml **out) PL_MUST_USE;
/* Returns the value of `key` in a mapping; NULL if there is none or node is not a mapping. */
const pl_yaml *pl_yaml_get(const pl_yaml *node, const char *key);
/* Returns "a mapping", "a list", "text", ... for messages. */
const char *pl_yaml_kind_text(const pl_yaml *node);

#endif
