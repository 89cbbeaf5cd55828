/* st_int.h - the reader of safetensors.h from inside, for the formats that fill it. */
#ifndef PL_IO_ST_INT_H
#define PL_IO_ST_INT_H

#include "base/arena.h"
#include "io/file.h"
#include "io/safetensors.h"

typedef struct pl_st_pair {
    const char *key, *value;
} pl_st_pair;

struct pl_st_reader {
    pl_arena arena;
    pl_file file;
    uint64_t data_begin;  /* file offset of the data section */
    pl_st_tensor *tensor; /* in file order */
    pl_st_tensor **by_name;
    int n_tensors, cap_tensors;
    pl_st_pair *meta; /* by key */
    int n_meta;
    bool has_meta;
    bool zip; /* a file of PyTorch */
};

/* Makes room for one more tensor. */
pl_status pl__st_grow(pl_st_reader *r) PL_MUST_USE;
/* Sets loadable and type, from dtype and dimensions. */
void pl__st_set_type(pl_st_tensor *t);
/* Sorts the names; PL_ERR_FILE when one is there twice. */
pl_status pl__st_index(pl_st_reader *r) PL_MUST_USE;
void pl__st_sort_meta(pl_st_reader *r);

/* ---- pt.c ---- */
/* Whether the first 9 bytes are those of a zip or a pickle: a file of PyTorch. */
bool pl__pt_is(const uint8_t first[9]);
/* Fills the reader from the file of PyTorch that it has opened. */
pl_status pl__pt_load(pl_st_reader *r) PL_MUST_USE;
/* Compares the CRC-32 of every member; *any: one has a CRC-32. */
pl_status pl__pt_verify(const pl_st_reader *r, bool *any) PL_MUST_USE;

#endif
