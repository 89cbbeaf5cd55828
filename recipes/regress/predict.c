/* predict.c - numbers for new rows: from a CSV table with the columns of the training table, or
 * from an .npy array with the inputs of the training arrays; to a CSV file or an .npy array.
 */
#include "regress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pl_status build(pl_builder *b)
{
    regress_array input, target;
    pl_status rc = regress_arrays(pl_builder_config(b), &input, &target, NULL);
    if (rc != PL_OK) return rc;
    pl_nn *m = pl_builder_predict(b, NULL);
    input.flat = false; /* rows are written here, in f32 */
    input.dtype = PL_F32;
    pl_output(m->g, "prediction",
              pl_cast(m->g, regress_predict(b, m, &input, target.width), PL_F32));
    return PL_OK;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

typedef struct job {
    pl_prediction *p;
    regress_table *table; /* NULL: the model was trained on arrays */
    pl_table *file;       /* NULL: --input is an array */
    pl_type array;        /* of the input */
    char *row;            /* one row of it */
    int64_t rows;
    bool to_array;
} job;

/* Writes row i of the input to x [inputs]. */
static pl_status read_row(const job *j, int64_t i, float *x, int64_t inputs)
{
    if (j->file) return regress_table_row(j->table, j->file, i, false, x);
    pl_status rc = pl_predict_array_rows(j->p, i, 1, j->row);
    for (int64_t k = 0; k < inputs && rc == PL_OK; k++) {
        x[k] = j->array.dtype == PL_F64 ? (float)((const double *)(const void *)j->row)[k]
                                        : ((const float *)(const void *)j->row)[k];
        if (!isfinite(x[k]))
            rc = pl_fail(PL_ERR_DATA, "%s: number %lld of row %lld is not finite",
                         pl_predict_input(j->p), (long long)k, (long long)i);
    }
    return rc;
}

static pl_status print_header(const job *j, int64_t targets)
{
    pl_status rc = pl_predict_print(j->p, NULL, "row");
    if (!j->table)
        for (int64_t k = 0; k < targets && rc == PL_OK; k++)
            rc = pl_predict_print(j->p, NULL, ",target%lld", (long long)k);
    for (int i = 0; j->table && i < j->table->n && rc == PL_OK; i++)
        if (j->table->column[i].target) {
            rc = pl_predict_write(j->p, NULL, ",", 1);
            if (rc == PL_OK) rc = pl_predict_field(j->p, NULL, j->table->column[i].name);
        }
    return rc == PL_OK ? pl_predict_write(j->p, NULL, "\n", 1) : rc;
}

/* Target k of a prediction in the unit of the table. */
static double unscaled(const job *j, int64_t k, float y)
{
    for (int i = 0; j->table && i < j->table->n; i++)
        if (j->table->column[i].target && k-- == 0)
            return (double)y * j->table->column[i].std + j->table->column[i].mean;
    return (double)y;
}

static pl_status write_rows(const job *j, int64_t first, int64_t n)
{
    pl_type t;
    const float *y = pl_predict_get(j->p, NULL, "prediction", &t);
    for (int64_t i = 0; i < n; i++) {
        pl_status rc =
            j->to_array ? PL_OK : pl_predict_print(j->p, NULL, "%lld", (long long)(first + i));
        for (int64_t k = 0; k < t.dim[1] && rc == PL_OK; k++) {
            double v = unscaled(j, k, y[i * t.dim[1] + k]);
            float f = (float)v;
            if (!isfinite(v))
                return pl_fail(PL_ERR_NUMERIC, "the network's outputs are not finite: its weights "
                                               "are damaged, or its training diverged");
            rc = j->to_array ? pl_predict_write(j->p, NULL, &f, sizeof f)
                             : pl_predict_print(j->p, NULL, ",%.9g", v);
        }
        if (rc == PL_OK && !j->to_array) rc = pl_predict_write(j->p, NULL, "\n", 1);
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

static pl_status open_input(job *j, int64_t inputs)
{
    const char *path = pl_predict_input(j->p);
    if (!ends_with(path, ".npy")) {
        if (!j->table)
            return pl_fail(PL_ERR_CONFIG,
                           "%s: the model was trained on arrays; --input is an .npy array", path);
        pl_status rc = pl_table_open(path, &j->file);
        if (rc == PL_OK) j->rows = pl_table_rows(j->file);
        return rc;
    }
    if (j->table)
        return pl_fail(PL_ERR_CONFIG,
                       "%s: the model was trained on a table; --input is a CSV file "
                       "with its columns",
                       path);
    pl_status rc = pl_predict_array(j->p, &j->array);
    if (rc != PL_OK) return rc;
    int64_t width = j->array.rank == 2 ? j->array.dim[1] : j->array.rank == 1 ? 1 : 0;
    if (width != inputs || (j->array.dtype != PL_F32 && j->array.dtype != PL_F64))
        return pl_fail(PL_ERR_DATA, "%s: the model needs f32 or f64 of shape [N, %lld]", path,
                       (long long)inputs);
    j->rows = j->array.dim[0];
    j->row = malloc((size_t)inputs * 8);
    return j->row ? PL_OK : PL_ERR_MEMORY;
}

static pl_status predict_all(job *j)
{
    pl_type in, out;
    float *x = pl_predict_set(j->p, NULL, "input", &in);
    pl_status rc = x ? open_input(j, in.dim[1]) : PL_ERR_ARG;
    if (rc != PL_OK) return rc;
    pl_predict_type(j->p, NULL, "prediction", &out);
    j->to_array = ends_with(pl_predict_out(j->p), ".npy");
    rc = j->to_array ? pl_predict_npy(j->p, NULL, PL_TYPE(PL_F32, j->rows, out.dim[1]))
                     : print_header(j, out.dim[1]);
    for (int64_t at = 0; at < j->rows && rc == PL_OK; at += in.dim[0]) {
        int64_t n = j->rows - at < in.dim[0] ? j->rows - at : in.dim[0];
        x = pl_predict_set(j->p, NULL, "input", NULL);
        memset(x, 0, pl_type_bytes(&in));
        for (int64_t i = 0; i < n && rc == PL_OK; i++)
            rc = read_row(j, at + i, x + i * in.dim[1], in.dim[1]);
        if (rc == PL_OK) rc = pl_predict_run(j->p, NULL);
        if (rc == PL_OK) rc = write_rows(j, at, n);
        if (rc == PL_OK) rc = pl_predict_progress(j->p, at + n, j->rows);
    }
    return rc;
}

static pl_status run(pl_prediction *p)
{
    job j = {.p = p};
    pl_status rc = regress_table_find(pl_predict_config(p), &j.table);
    if (rc == PL_OK) rc = predict_all(&j);
    pl_table_close(j.file);
    regress_table_free(j.table);
    free(j.row);
    return rc;
}

const pl_predict regress_predict_rows = {
    .input = "a CSV table, or an .npy array",
    .out = "a CSV file or an .npy array",
    .build = build,
    .run = run,
};
