/* data.c - the sizes of a user's arrays, and generated samples.
 *
 * Shapes are static, so the network needs the widths of the arrays before the engine opens them.
 * They are in the first bytes of an .npy file, as text: {'descr': '<f4', ..., 'shape': (1000, 8),
 * }. Only these two entries are read here; the engine checks the whole file when it opens the data
 * set.
 */
#include "regress.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Reads dtype and width from the header of an .npy file. *found: whether there is such a file. */
static pl_status read_header(const char *path, regress_array *a, bool *found)
{
    char head[1024];
    long long rows, width, deeper;
    FILE *f = fopen(path, "rb");
    *found = f != NULL;
    if (!f) return PL_OK;
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    head[n] = 0;
    const char *text = memchr(head, '{', n); /* after the magic number and the header's length */
    const char *shape = text ? strstr(text, "'shape': (") : NULL;
    int rank = !shape ? 0 : sscanf(shape, "'shape': (%lld, %lld, %lld", &rows, &width, &deeper);
    if ((rank != 1 && rank != 2) || (rank == 2 && width < 1))
        return pl_fail(PL_ERR_DATA, "%s: regress reads .npy arrays of shape [N] or [N, K]", path);
    a->flat = rank == 1;
    a->width = a->flat ? 1 : width;
    a->dtype = strstr(text, "'<f8'") ? PL_F64 : PL_F32;
    return PL_OK;
}

pl_status regress_array_find(const pl_config *c, const char *name, const char *key,
                             int64_t generated, regress_array *a)
{
    static const char *const parts[] = {"train", "eval"};
    const char *dir = pl_config_text(c, "data.path"); /* "" where it is null */
    char path[4096];
    bool found = false, set = !pl_config_is_null(c, key);
    bool own = *dir && strcmp(pl_config_text(c, "data.source"), "synthetic") != 0;
    int64_t wanted = set ? pl_config_int(c, key) : generated;
    *a = (regress_array){.name = name, .dtype = PL_F32, .width = wanted};
    for (int i = 0; i < 2 && own && !found; i++) {
        snprintf(path, sizeof path, "%s/%s/%s.npy", dir, parts[i], name);
        pl_status rc = read_header(path, a, &found);
        if (rc != PL_OK) return rc;
    }
    if (found && set && a->width != wanted)
        return pl_fail(PL_ERR_CONFIG, "%s is %lld, but %s has %lld numbers per row", key,
                       (long long)wanted, path, (long long)a->width);
    if (own && !found && !set)
        return pl_fail(PL_ERR_CONFIG,
                       "no file %s/train/%s.npy; set data.path, or %s for arrays in other files",
                       dir, name, key);
    return PL_OK;
}

/* The smooth function that generated data follow: number j of the target for the inputs x[0..n). */
static double truth(const float *x, int64_t n, int64_t j)
{
    double y = 0;
    for (int64_t i = 0; i < n; i++)
        y += sin(2 * (double)x[i] + (double)j) + (double)x[i] * (double)x[(i + 1) % n];
    return y / sqrt((double)n);
}

/* Inputs are uniform in [-1, 1); a target is the truth plus normal noise. */
pl_status regress_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    const pl_config *c = data;
    double noise = pl_config_float(c, "data.noise");
    uint64_t world = 0x4E605 + (uint64_t)pl_config_int(c, "seed");
    pl_type in, out;
    float *input = pl_batch_input(batch, "input", &in);
    float *target = pl_batch_input(batch, "target", &out);
    for (int k = 0; k < n; k++) {
        uint64_t seed = pl_sample_seed(world, subset, sample[k]);
        float *x = input + k * in.dim[1];
        for (int64_t i = 0; i < in.dim[1]; i++)
            x[i] = (float)(2 * pl_sample_uniform(seed, (uint64_t)i) - 1);
        for (int64_t j = 0; target && j < out.dim[1]; j++) {
            double by = noise * pl_sample_normal(seed, (uint64_t)(in.dim[1] + j));
            target[k * out.dim[1] + j] = (float)(truth(x, in.dim[1], j) + by);
        }
    }
    return PL_OK;
}
