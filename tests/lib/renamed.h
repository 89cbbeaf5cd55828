/* renamed.h - writes a model file in the form of another program: other names, other types, split
 * into several files. */
#ifndef PL_TESTS_RENAMED_H
#define PL_TESTS_RENAMED_H

#include "plimsoll.h"

/* Writes the other program's name of a tensor to out. */
typedef void (*renamed_fn)(const char *ours, char *out, size_t cap);

typedef struct renamed_file {
    const char *of;      /* tensors whose names begin so */
    const char *without; /* except names with one of these parts, ".spade.,unet.inp."; NULL: none */
    renamed_fn name;
    int part, parts;             /* every parts-th tensor, starting with number `part` */
    bool bf16, flat;             /* flat: drops dimensions of size 1 after the second */
    const char *leave_out, *add; /* tensors by their name in the file */
} renamed_file;
pl_status renamed_write(const char *model, const char *path, renamed_file o) PL_MUST_USE;

/* Compares the f32 tensors of two models. off: number of tensors whose names begin with `of` and
 * that differ (rounded: by more than rounding to bf16). others_same: number of other tensors that
 * are equal. */
pl_status renamed_compare(const char *a, const char *b, const char *of, bool rounded, int *off,
                          int *others_same) PL_MUST_USE;

#endif
