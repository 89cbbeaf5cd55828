/* config_int.h - shared by the files of the configuration; the contract is plimsoll_config.h. */
#ifndef PL_IO_CONFIG_INT_H
#define PL_IO_CONFIG_INT_H

#include "base/arena.h"
#include "base/str.h"
#include "io/yaml.h"
#include "plimsoll_config.h"

typedef struct config_value {
    bool set; /* false: required and not given yet */
    bool null;
    int n; /* items of a list */
    union {
        bool b;
        int64_t i;     /* INT, SIZE */
        double f;      /* FLOAT, DURATION */
        const char *s; /* TEXT, CHOICE */
        int64_t *ints;
        double *floats;
        const char **texts;
        const pl_yaml *tree;
    };
    const char *file;  /* TREE: file of its nodes; NULL: the default */
    const char *where; /* NULL: the default */
    int line, column;
    int load; /* number of the document that set it */
} config_value;

struct pl_config {
    pl_arena arena;                /* everything below */
    const pl_config_entry **entry; /* all tables, in their order */
    config_value *value;           /* of entry i */
    int *by_key;                   /* entries sorted by key */
    int n, n_loads;
    pl_config_find_fn find;
    void *find_ctx;
    pl_config_hint_fn hint; /* NULL: none */
    void *hint_ctx;
};

/* The source of a node, for messages. */
typedef struct config_source {
    const char *file;     /* kept by the config's arena */
    const char *override; /* the whole "key=value", or NULL */
} config_source;

/* PL_ERR_CONFIG with the location first. node may be NULL. */
pl_status pl__config_fail(const config_source *s, const pl_yaml *node, const char *fmt, ...)
    PL_PRINTF(3, 4);
bool pl__yaml_is_null(const pl_yaml *node);
/* "a whole number": what a type is, for messages. */
const char *pl__config_expected(pl_config_type type);
/* Parses node as a value of entry e; memory from the arena. */
pl_status pl__config_parse(pl_arena *a, const pl_config_entry *e, const config_source *s,
                           const pl_yaml *node, config_value *out) PL_MUST_USE;
/* Returns the value of a choice that has another name in other programs (config_hints.c); NULL:
 * none. */
const char *pl__config_value_hint(const char *key, const char *text);
/* ---- config_tree.c: values that are trees ---- */
/* Copies a tree into the arena; NULL when out of memory. Nodes of an override lose their location:
 * line 0. */
pl_yaml *pl__tree_copy(pl_arena *a, const pl_yaml *node, bool placed);
/* Returns the entry of type TREE that `path` lies below, and the rest of the path; -1: none. */
int pl__tree_entry(const pl_config *c, const char *path, const char **rest);
/* Stores node at `path` in the tree of entry i. */
pl_status pl__tree_set(pl_config *c, const config_source *s, int i, const char *path,
                       const pl_yaml *node) PL_MUST_USE;
/* Formats a tree on one line, so that it parses back to the same tree. */
void pl__tree_format(const pl_yaml *node, pl_str *out);
/* Formats text as a scalar that every reader reads as text. */
void pl__text_format(const char *text, pl_str *out);
int pl__config_find(const pl_config *c, const char *key); /* -1 if none */
/* Ends the call of pl_config_guard that is under way on the thread with PL_ERR_CONFIG and this
 * message, for a mistake in a recipe's code; aborts without such a call. */
_Noreturn void pl__config_misused(const char *text);

/* Adds the value as YAML that parses back to it. */
void pl__config_format(const pl_config_entry *e, const config_value *v, pl_str *out);

#endif
