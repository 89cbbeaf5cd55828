/* renamed.h - a model file written again as someone else would: other names, other types, in parts.
 */
#ifndef PL_TESTS_RENAMED_H
#define PL_TESTS_RENAMED_H

#include "plimsoll.h"

/* Their name of a tensor of ours, into out. */
typedef void (*renamed_fn)(const char *ours, char *out, size_t cap);

typedef struct renamed_file {
    const char *of;      /* tensors whose names begin so */
    const char *without; /* but for those that hold one of these texts: ".spade.,unet.inp."; NULL */
    renamed_fn name;
    int part, parts;             /* every parts-th of them, from part on */
    bool bf16, flat;             /* flat: without dimensions of 1 behind the second */
    const char *leave_out, *add; /* tensors by their name in the file */
} renamed_file;
pl_status renamed_write(const char *model, const char *path, renamed_file o) PL_MUST_USE;

/* Tensors of two models, f32: how many whose names begin with `of` differ (rounded: but for
 * rounding to bf16), and how many other weights are the same. */
pl_status renamed_compare(const char *a, const char *b, const char *of, bool rounded, int *off,
                          int *others_same) PL_MUST_USE;

#endif
