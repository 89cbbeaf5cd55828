/* data.c - the sizes of a user's arrays, the rows of a table, and generated samples.
 *
 * Shapes are static, so the network needs the widths of the arrays before the engine opens them.
 * They are in the first bytes of an .npy file, as text: {'descr': '<f4', ..., 'shape': (1000, 8),
 * }. Only these two entries are read here; the engine checks the whole file when it opens the data
 * set.
 */
#include "regress.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Reads dtype and width from the header of an .npy file. *found: whether there is such a file. */
static pl_status read_header(const char *path, regress_array *a, bool *found)
{
    char head[1024];
    long long rows, width, deeper;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe does not wait for a writer */
    FILE *f = fd < 0 ? NULL : fdopen(fd, "rb");
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

/* The array's type: from the header of data.path/train/NAME.npy, or from the configuration key
 * `key`. `generated` is the width of generated data where the key is null. */
static pl_status array_find(const pl_config *c, const char *name, const char *key,
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
    struct stat st;
    if (own && !found && stat(dir, &st) == 0 && S_ISREG(st.st_mode))
        return pl_fail(PL_ERR_CONFIG,
                       "data.path takes a folder and %s is a file: did you mean data.table=%s?",
                       dir, dir);
    if (own && !found && !set)
        return pl_fail(PL_ERR_CONFIG,
                       "no file %s/train/%s.npy; set data.path, or %s for arrays in other files",
                       dir, name, key);
    return PL_OK;
}

pl_status regress_arrays(const pl_config *c, regress_array *input, regress_array *target,
                         regress_table **table)
{
    regress_table *t;
    if (!pl_config_is_null(c, "data.table") && !pl_config_is_null(c, "data.path"))
        return pl_fail(PL_ERR_CONFIG,
                       "data.table (%s) and data.path (%s) are both set: set only one of them",
                       pl_config_text(c, "data.table"), pl_config_text(c, "data.path"));
    pl_status rc = regress_table_find(c, &t);
    if (rc != PL_OK) return rc;
    if (t) {
        *input = (regress_array){"input", PL_F32, regress_table_width(t, false), false};
        *target = (regress_array){"target", PL_F32, regress_table_width(t, true), false};
    } else {
        rc = array_find(c, "input", "inputs", 4, input);
        if (rc == PL_OK) rc = array_find(c, "target", "targets", 1, target);
    }
    if (table && rc == PL_OK)
        *table = t;
    else
        regress_table_free(t);
    return rc;
}

/* ---- rows of a table ------------------------------------------------------------------------ */
typedef struct samples {
    const pl_config *c;
    int64_t width[2], n[2]; /* of inputs and targets; training and evaluation rows */
    float *input, *target;  /* all rows, scaled; NULL: generated data */
    int64_t *row[2];        /* of each subset */
} samples;

static pl_status read_table(samples *s, const regress_table *t, const pl_table *file)
{
    int64_t rows = pl_table_rows(file);
    s->width[0] = regress_table_width(t, false);
    s->width[1] = regress_table_width(t, true);
    s->input = malloc((size_t)(rows * s->width[0] + 1) * sizeof(float));
    s->target = malloc((size_t)(rows * s->width[1] + 1) * sizeof(float));
    for (int k = 0; k < 2; k++) s->row[k] = malloc((size_t)(rows + 1) * sizeof(int64_t));
    if (!s->input || !s->target || !s->row[0] || !s->row[1]) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < rows; i++) {
        pl_status rc = regress_table_row(t, file, i, false, s->input + i * s->width[0]);
        if (rc == PL_OK) rc = regress_table_row(t, file, i, true, s->target + i * s->width[1]);
        if (rc != PL_OK) return rc;
        int k = regress_in_eval(s->c, i);
        s->row[k][s->n[k]++] = i;
    }
    if (s->n[0] && s->n[1]) return PL_OK;
    return pl_fail(PL_ERR_DATA,
                   "of %lld rows, data.eval_share=%g leaves %lld for training and %lld for "
                   "evaluation: use more rows or another share",
                   (long long)rows, pl_config_float(s->c, "data.eval_share"), (long long)s->n[0],
                   (long long)s->n[1]);
}

void regress_close(void *data)
{
    samples *s = data;
    free(s->input);
    free(s->target);
    free(s->row[0]);
    free(s->row[1]);
    free(s);
}

pl_status regress_open(const pl_config *c, void **data)
{
    regress_table *t = NULL;
    pl_table *file = NULL;
    samples *s = calloc(1, sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    s->c = c;
    pl_status rc = PL_OK;
    if (!pl_config_is_null(c, "data.table")) {
        const char *path = pl_config_text(c, "data.table");
        char why[512];
        rc = regress_table_find(c, &t);
        if (rc == PL_OK) rc = pl_table_open(path, &file);
        if (rc == PL_OK && (rc = read_table(s, t, file)) != PL_OK && rc != PL_ERR_MEMORY) {
            snprintf(why, sizeof why, "%s", pl_error_text());
            rc = pl_fail(rc, "data.table %s: %s", path, why);
        }
    }
    pl_table_close(file);
    regress_table_free(t);
    if (rc == PL_OK)
        *data = s;
    else
        regress_close(s);
    return rc;
}

int64_t regress_size(void *data, pl_subset subset)
{
    const samples *s = data;
    if (s->input) return s->n[subset == PL_SUBSET_EVAL];
    return pl_config_int(s->c, subset == PL_SUBSET_EVAL ? "data.eval_samples" : "data.samples");
}

/* The table as a text with its fields, and the numbers. */
uint64_t regress_bytes(const pl_config *c)
{
    struct stat st;
    bool table = !pl_config_is_null(c, "data.table");
    return table && stat(pl_config_text(c, "data.table"), &st) == 0 ? 6 * (uint64_t)st.st_size : 0;
}

static void copy_rows(const samples *s, pl_subset subset, const int64_t *sample, int n,
                      pl_batch *batch)
{
    pl_type t;
    for (int part = 0; part < 2; part++) {
        float *to = pl_batch_input(batch, part ? "target" : "input", &t);
        const float *from = part ? s->target : s->input;
        size_t w = (size_t)s->width[part];
        for (int k = 0; to && k < n; k++)
            memcpy(to + (size_t)k * w,
                   from + (size_t)s->row[subset == PL_SUBSET_EVAL][sample[k]] * w, w * sizeof *to);
    }
}

/* ---- generated samples ---------------------------------------------------------------------- */
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
    const samples *s = data;
    const pl_config *c = s->c;
    if (s->input) {
        copy_rows(s, subset, sample, n, batch);
        return PL_OK;
    }
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
