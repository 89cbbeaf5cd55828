/* weight_source.h - a set of weight files, matched with the slots of a run: which naming, which
 * prefix, which tensor of the files for which slot. */
#ifndef PL_TRAIN_WEIGHT_SOURCE_H
#define PL_TRAIN_WEIGHT_SOURCE_H

#include "io/st_set.h"
#include "train/files/naming.h"
#include "train/run/run.h"

typedef struct pl_weight_source {
    pl_run *r;
    const char *key, *path; /* configuration key, and its value */
    const char *slots;      /* pattern of the slots that the files hold */
    const pl_naming *namings;
    const char *wanted_prefix; /* NULL: it is searched for */
    pl_st_set *set;
    /* ---- from here on: set by pl__source_open ---- */
    const pl_naming *naming;
    const char *prefix;        /* before every published name in the files; "": none */
    const char *ema;           /* prefix of averaged weights in the files; NULL: none */
    bool flat_ema;             /* names of averaged weights are pl__flat_average's */
    const pl_published **from; /* by slot: its tensor; NULL: the slot is not of these files */
    pl_arena mem;
} pl_weight_source;

/* Opens the files, chooses the naming and the prefix that find most slots, and looks up the
 * tensors. The engine's own names without a prefix win a tie. */
pl_status pl__source_open(pl_weight_source *s) PL_MUST_USE;
void pl__source_close(pl_weight_source *s);
bool pl__source_wants(const pl_weight_source *s, int slot);
/* The tensor of a slot that has one in `from`; NULL: the files do not have it. */
const pl_st_tensor *pl__source_find(const pl_weight_source *s, int slot, int *file);
/* Whether a tensor of the files belongs to a slot, follows from the configuration, or may be left
 * over by the naming. */
bool pl__source_uses(const pl_weight_source *s, const char *tensor);
/* Writes the name that Lightning's LitEma gives the average of a tensor of its module `model`:
 * "x.model.a.b.weight" becomes "x.model_ema.abweight". false: the tensor is not of that module. */
bool pl__flat_average(const char *tensor, char *out, size_t cap);
/* Metadata under this key in the first file that has it; NULL: none has. */
const char *pl__source_meta(const pl_weight_source *s, const char *key);
/* model_file.c: fails at a NaN, and where a finite number of tensor t became infinite in `type`. An
 * infinity of the file is kept: masks have such. values: elements [at, at + n) of the tensor; raw:
 * the same in t's type. */
pl_status pl__weights_check(const pl_st_reader *f, const pl_st_tensor *t, const void *raw,
                            pl_dtype type, const void *values, int64_t at, int64_t n) PL_MUST_USE;

#endif
