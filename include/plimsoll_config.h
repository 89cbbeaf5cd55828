/* plimsoll_config.h - configurations: a schema, and values that were checked against it.
 *
 * A schema is one or more const tables of entries: the engine has one, each recipe adds one. A
 * configuration holds a value for every entry. Values come from the entry's default, then from
 * presets and files (the file that a file `extends` is read first), then from key=value overrides;
 * a later source overrides an earlier source. Files are YAML 1.2 (JSON is a subset). Every problem
 * in a file is PL_ERR_CONFIG. The message names the place ("my.yaml:3:10"), the given value, the
 * expected value and the nearest known key.
 *
 *     static const pl_config_entry entries[] = {
 *         {"train.steps", PL_CONFIG_INT, "1000", .min = 1, .max = 1e9, .doc = "Optimiser steps."},
 *         {"optim.name", PL_CONFIG_CHOICE, "adamw", .choices = "sgd|adamw", .doc = "Optimiser."},
 *         {"data.path", PL_CONFIG_TEXT, NULL, .doc = "Folder with the images."}, // required
 *         {0}};
 */
#ifndef PLIMSOLL_CONFIG_H
#define PLIMSOLL_CONFIG_H

#include "plimsoll.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pl_config_type {
    PL_CONFIG_BOOL,     /* true, false */
    PL_CONFIG_INT,      /* 12, 0x10, 1e6 */
    PL_CONFIG_FLOAT,    /* 1e-4, 3, .inf */
    PL_CONFIG_TEXT,     /* anything that is one value */
    PL_CONFIG_CHOICE,   /* one of the words in `choices` */
    PL_CONFIG_SIZE,     /* bytes: 7.5GiB, 20GB, 512M, 1048576 */
    PL_CONFIG_DURATION, /* seconds: 500ms, 30s, 10min, 1.5h, 2d, 30 */
    PL_CONFIG_INTS,     /* [1, 2] */
    PL_CONFIG_FLOATS,   /* [0.9, 0.999] */
    PL_CONFIG_TEXTS,    /* [a, b] */
    /* a list or a mapping of anything, stored unchanged; `key.path=value` changes a part */
    PL_CONFIG_TREE
} pl_config_type;

/* No limit: min 1, max PL_CONFIG_NO_LIMIT is "at least 1"; a min of -PL_CONFIG_NO_LIMIT is no lower
 * limit. */
#define PL_CONFIG_NO_LIMIT HUGE_VAL

/* May a key differ from the checkpoint's value when a run resumes? */
typedef enum pl_config_resume {
    PL_RESUME_SAME,   /* no: the state would not belong to the configuration */
    PL_RESUME_FREE,   /* yes: it changes no result */
    PL_RESUME_ONWARD, /* yes: it changes training from the resumed step on */
    PL_RESUME_ROUND,  /* yes: it changes results by rounding only */
    PL_RESUME_SPLIT   /* as PL_RESUME_ROUND, but not while accumulate_coupled is true */
} pl_config_resume;

/* Does a key change what the recipe's frozen encoder reads or computes? A cache of its outputs
 * (data.cache) is stale when the stamped part of such a key differs. */
typedef enum pl_config_cache {
    PL_CACHE_NO,      /* no */
    PL_CACHE_VALUE,   /* yes: its value is stamped */
    PL_CACHE_FILE,    /* yes: its value, and the contents of the file that it names */
    PL_CACHE_WEIGHTS, /* as PL_CACHE_FILE; the file has the encoder's weights */
    PL_CACHE_SEED     /* as PL_CACHE_VALUE, unless a PL_CACHE_WEIGHTS key names a file */
} pl_config_cache;

/* One row of a schema: everything about one key. A row with key NULL ends the table. The config
 * borrows its tables. Members that a row leaves out mean: no limits, no choices, no special
 * rules. */
typedef struct pl_config_entry {
    const char *key; /* dotted path: "train.steps" */
    pl_config_type type;
    const char *fallback; /* default, as YAML. NULL: required. "null": may stay without a value */
    double min, max;      /* inclusive, of the value or each item; both 0: no limits */
    const char *choices;  /* PL_CONFIG_CHOICE: "a|b|c" */
    const char *doc;      /* help, one line: what the key sets, its unit, special values */
    pl_config_resume resume;
    pl_config_cache cache;
} pl_config_entry;

typedef struct pl_config pl_config;

/* Returns the index of the word nearest to `word` by edits, for "did you mean"; -1: none is near.
 */
PL_API int pl_text_nearest(const char *word, const char *const *words, int n);

/* Returns the text of a built-in preset, or NULL if no preset has that name. */
typedef const char *(*pl_config_find_fn)(void *ctx, const char *name);

/* Creates a configuration in which every key has its default. PL_ERR_ARG: the schema contradicts
 * itself. */
PL_API pl_status pl_config_new(const pl_config_entry *const *tables, int n_tables,
                               pl_config **out) PL_MUST_USE;
PL_API void pl_config_free(pl_config *c);
PL_API void pl_config_set_presets(pl_config *c, pl_config_find_fn find, void *ctx);
/* Keys of another program, asked by pl_config_hint beside its own table; same contract. */
typedef bool (*pl_config_hint_fn)(void *ctx, const char *key, const char **ours, const char **note);
PL_API void pl_config_set_hints(pl_config *c, pl_config_hint_fn ask, void *ctx);

/* Loads a preset, by name, or a file, by path. A failed load changes nothing. */
PL_API pl_status pl_config_load(pl_config *c, const char *name_or_path) PL_MUST_USE;
/* Loads text from memory. Messages and `extends` use `name` as its path. */
PL_API pl_status pl_config_load_text(pl_config *c, const char *name, const char *text,
                                     size_t len) PL_MUST_USE;
/* Sets keys: "train.steps=500", "model.channels=[32, 64]", "train={steps: 5, lr: 1e-3}". */
PL_API pl_status pl_config_override(pl_config *c, const char *assignment) PL_MUST_USE;
/* Fails and names the key when a required key has no value. Call it after the last load. */
PL_API pl_status pl_config_check(const pl_config *c) PL_MUST_USE;

/* Sets *text to the value of a key ("recipe", or "model.width" in a mapping) of a preset or file,
 * or of a file that it extends. Needs no schema: it finds `recipe:` before the recipe's table is
 * known. *text is NULL if the key is absent; the caller frees it with pl_text_free. */
PL_API pl_status pl_config_peek(const char *name_or_path, const char *key, pl_config_find_fn find,
                                void *ctx, char **text) PL_MUST_USE;

/* Values. A key that is not in the schema, or has another type, is a bug of the caller: it ends the
 * call of pl_config_guard that is under way on the thread, else it aborts.
 * A null value reads as 0, "" or an empty list. Pointers are borrowed until the config is changed
 * or freed. */
/* Returns call(ctx); PL_ERR_CONFIG when the call reads a key that the schema lacks or has with
 * another type. The engine guards the functions of a recipe: build, data_open, data_read. */
PL_API pl_status pl_config_guard(pl_status (*call)(void *ctx), void *ctx) PL_MUST_USE;
PL_API bool pl_config_has(const pl_config *c, const char *key); /* is it in the schema */
PL_API const pl_config_entry *pl_config_row(const pl_config *c, const char *key); /* NULL: none */
/* Writes the known key or section nearest to `key`: few edits away, else one with the same last
 * part. False: none is near. */
PL_API bool pl_config_nearest(const pl_config *c, const char *key, char *buf, size_t cap);
/* Sets *ours to the key that sets what `key` sets in other programs (PyTorch, Lightning,
 * Accelerate), and *note to how the values differ, or NULL. *ours NULL: no key is needed, and *note
 * says why. False: the table has no such key. */
PL_API bool pl_config_hint(const pl_config *c, const char *key, const char **ours,
                           const char **note);
/* Row i of that table: a key of another program, and *ours; NULL past the end. */
PL_API const char *pl_config_hint_at(int i, const char **ours);
PL_API bool pl_config_is_null(const pl_config *c, const char *key); /* null, or not set */
PL_API bool pl_config_bool(const pl_config *c, const char *key);
PL_API int64_t pl_config_int(const pl_config *c, const char *key);
PL_API double pl_config_float(const pl_config *c, const char *key);
PL_API const char *pl_config_text(const pl_config *c, const char *key); /* TEXT and CHOICE */
PL_API int64_t pl_config_size(const pl_config *c, const char *key);     /* bytes */
PL_API double pl_config_duration(const pl_config *c, const char *key);  /* seconds */
PL_API const int64_t *pl_config_ints(const pl_config *c, const char *key, int *n);
PL_API const double *pl_config_floats(const pl_config *c, const char *key, int *n);
PL_API const char *const *pl_config_texts(const pl_config *c, const char *key, int *n);
/* Entry i of a key of type PL_CONFIG_TREE that is a mapping of single values ("dims: {seq: 128}"):
 * its name, and *value as text. NULL: there is no entry i. PL_CONFIG_TREE otherwise stays inside
 * the library: check the mapping first with pl_config_pairs_check. */
PL_API const char *pl_config_pair(const pl_config *c, const char *key, int i, const char **value);
/* PL_ERR_CONFIG, with file and line, unless the value is null or a mapping of single values;
 * numbers: whose values are numbers, too. */
PL_API pl_status pl_config_pairs_check(const pl_config *c, const char *key,
                                       bool numbers) PL_MUST_USE;
/* Returns the source of the value: "default", "my.yaml:3:10" or "command line". */
PL_API const char *pl_config_where(const pl_config *c, const char *key);

/* Sets *text to the resolved configuration as commented YAML, which loads back to the same values.
 * The caller frees it with pl_text_free. */
PL_API pl_status pl_config_print(const pl_config *c, char **text) PL_MUST_USE;
/* Returns a hash of keys and values only: the order of tables, comments and the sources of values
 * do not change it. */
PL_API uint64_t pl_config_hash(const pl_config *c);
/* Calls each(ctx, key, old, new) for every key whose value differs, in the order of keys; old or
 * new is NULL where the schema lacks the key. */
PL_API pl_status pl_config_diff(const pl_config *a, const pl_config *b,
                                void (*each)(void *ctx, const char *key, const char *old_value,
                                             const char *new_value),
                                void *ctx) PL_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
