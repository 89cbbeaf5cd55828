/* latent_file.c - one tensor [C,H,W] in a file of torch.save: the authors keep a latent in each. */
#include "lgt.h"

#include <inttypes.h>
#include <plimsoll_tensors.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *shape_text(const pl_tensor_info *t, char *to, size_t cap)
{
    size_t at = 0;
    to[0] = 0;
    for (int i = 0; i < t->rank && at < cap; i++)
        at += (size_t)snprintf(to + at, cap - at, "%s%" PRId64, i ? "," : "", t->dim[i]);
    return to;
}

/* [C,H,W] or [1,C,H,W]. */
static bool shape_fits(const pl_tensor_info *t, lgt_shape s)
{
    int first = t->rank == 4 && t->dim[0] == 1 ? 1 : 0;
    return t->rank - first == 3 && t->dim[first] == s.channels && t->dim[first + 1] == s.rows &&
           t->dim[first + 2] == s.columns;
}

static pl_status check(const char *path, const pl_tensors *f, lgt_shape s)
{
    long long channels = s.channels, rows = s.rows, columns = s.columns;
    char shape[160];
    pl_tensor_info t = pl_tensors_at(f, 0);
    if (pl_tensors_count(f) != 1 || strcmp(t.name, "tensor") != 0)
        return pl_fail(PL_ERR_DATA, "%s: needs one tensor [%lld,%lld,%lld] and nothing else in it",
                       path, channels, rows, columns);
    if (!strchr(t.dtype, 'F') || strncmp(t.dtype, "F8", 2) == 0)
        return pl_fail(PL_ERR_DATA, "%s: numbers of type %s (F16, BF16, F32 and F64 are read)",
                       path, t.dtype);
    if (!shape_fits(&t, s))
        return pl_fail(
            PL_ERR_DATA,
            "%s: its tensor is [%s], wanted is [%lld,%lld,%lld] (model.channels, latent, "
            "latent_columns)",
            path, shape_text(&t, shape, sizeof shape), channels, rows, columns);
    return PL_OK;
}

pl_status lgt_pt_read(const char *path, lgt_shape shape, float *out)
{
    pl_tensors *f = NULL;
    size_t size = (size_t)(shape.rows * shape.columns), n = (size_t)shape.channels;
    float *planes = malloc(n * size * sizeof *planes);
    pl_status rc = planes ? pl_tensors_open(path, &f) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = check(path, f, shape);
    if (rc == PL_OK) rc = pl_tensors_read(f, 0, PL_F32, planes, n * size * sizeof *planes);
    for (size_t i = 0; rc == PL_OK && i < size; i++)
        for (size_t c = 0; c < n; c++) out[n * i + c] = planes[c * size + i];
    pl_tensors_close(f);
    free(planes);
    if (rc == PL_ERR_FILE || rc == PL_ERR_IO) { /* a sample that cannot be read */
        char why[512];
        snprintf(why, sizeof why, "%s", pl_error_text());
        return pl_fail(PL_ERR_DATA, "%s", why);
    }
    return rc;
}

pl_status lgt_pt_write(const char *path, lgt_shape shape, const float *x)
{
    size_t size = (size_t)(shape.rows * shape.columns), n = (size_t)shape.channels;
    float *planes = malloc(n * size * sizeof *planes);
    if (!planes) return PL_ERR_MEMORY;
    for (size_t i = 0; i < size; i++)
        for (size_t c = 0; c < n; c++) planes[c * size + i] = x[n * i + c];
    pl_tensor_data t = {NULL, PL_TYPE(PL_F32, shape.channels, shape.rows, shape.columns), planes};
    pl_status rc = pl_tensors_save(path, &t, 1);
    free(planes);
    return rc;
}
