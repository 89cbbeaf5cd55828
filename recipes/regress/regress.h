/* regress.h - what the files of the regress recipe share. */
#ifndef RECIPES_REGRESS_H
#define RECIPES_REGRESS_H

#include <plimsoll_recipe.h>

/* One of the two arrays of a data set, `input` and `target`: one row per sample. */
typedef struct regress_array {
    const char *name;
    pl_dtype dtype; /* f32, or f64 where the file has f64; the network computes in f32 */
    int64_t width;  /* numbers per sample */
    bool flat;      /* shape [N] instead of [N, 1] */
} regress_array;

/* Returns the array's type: from the header of data.path/train/NAME.npy, or from the configuration
 * key `key`. `generated` is the width of generated data where the key is null. */
pl_status regress_array_find(const pl_config *c, const char *name, const char *key,
                             int64_t generated, regress_array *a);
/* pl_recipe.data_read of generated samples. */
pl_status regress_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch);

extern const pl_preset regress_presets[];

#endif
