/* predict.c - outputs of a trained model for pictures or arrays of the user.
 *
 * Pictures go through the reader that evaluations use, into input "image" of the main program.
 * Arrays go to the program "arrays", whose inputs are those of the model. Results are the model's
 * outputs as .npy files, or, if the model predicts classes, a CSV file with their names.
 */
#include "onnx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_OUTPUTS = sizeof((onnx_part *)0)->out / sizeof(pl_onnx_value) };

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

/* ---- programs ------------------------------------------------------------------------------- */
/* The output whose softmax are probabilities of classes: [N,K], compared by cross_entropy; NULL:
 * there is none. */
static const char *class_output(const onnx_part *p, const onnx_terms *losses)
{
    for (int i = 0; i < losses->n; i++) {
        const onnx_term *t = &losses->term[i];
        const char *name = t->output[0] ? t->output : pl_onnx_output(p->model, 0)->name;
        pl_val x = onnx_value_of(p, name);
        if (strcmp(t->kind, "cross_entropy") == 0 && pl_val_ok(x) &&
            pl_val_type(p->m->g, x).rank == 2)
            return name;
    }
    return NULL;
}

/* What build works with: too large for the stack. */
typedef struct work {
    onnx_part part;
    onnx_terms losses;
} work;

/* One program with all outputs of the model. */
static pl_status add_program(pl_builder *b, pl_onnx *model, const char *name, onnx_feed feed,
                             work *w)
{
    onnx_part *p = &w->part;
    memset(p, 0, sizeof *p);
    p->b = b;
    p->m = pl_builder_predict(b, name);
    p->model = model;
    p->feed = feed;
    p->own_batch = true;
    pl_status rc = PL_OK;
    for (int i = 0; i < pl_onnx_output_count(model) && i < MOST_OUTPUTS && rc == PL_OK; i++)
        rc = onnx_need(p, pl_onnx_output(model, i)->name);
    if (rc == PL_OK) rc = onnx_add(p);
    for (int i = 0; i < p->n_out && rc == PL_OK; i++) {
        pl_val x = p->out[i].value; /* .npy has no bf16 */
        bool wide = pl_val_type(p->m->g, x).dtype == PL_BF16;
        pl_output(p->m->g, p->out[i].name, wide ? pl_cast(p->m->g, x, PL_F32) : x);
    }
    const char *classes = rc == PL_OK ? class_output(p, &w->losses) : NULL;
    if (classes) {
        pl_val x = pl_cast(p->m->g, onnx_value_of(p, classes), PL_F32);
        pl_output(p->m->g, "plimsoll.probability", pl_softmax(p->m->g, x, 1));
    }
    return rc;
}

static pl_status build_parts(pl_builder *b, pl_onnx *model, work *w)
{
    bool pictures = onnx_picture_port(model) != NULL;
    pl_status rc = onnx_losses(pl_builder_config(b), model, &w->losses);
    if (rc == PL_OK) rc = add_program(b, model, NULL, pictures ? ONNX_PICTURES : ONNX_ARRAYS, w);
    if (rc == PL_OK && pictures) rc = add_program(b, model, "arrays", ONNX_ARRAYS, w);
    return rc;
}

static pl_status build(pl_builder *b)
{
    const pl_classes *names;
    pl_status rc = onnx_class_names(b, pl_builder_own(b));
    if (rc == PL_OK)
        rc = pl_builder_classes(b, &names); /* of the model file, or of the ONNX file */
    work *w = calloc(1, sizeof *w);
    if (rc == PL_OK) rc = w ? build_parts(b, pl_builder_own(b), w) : PL_ERR_MEMORY;
    free(w);
    return rc;
}

/* ---- running -------------------------------------------------------------------------------- */
typedef struct job {
    pl_prediction *p;
    pl_onnx *model;
    const char *program; /* that reads --input; NULL: the main one */
    bool pictures;
    int64_t rows, batch;
    int array[64]; /* by input of the model: number for pl_predict_row; -1: the input is fixed */
    bool table;    /* --out is a CSV file of classes */
    bool single;   /* --out is one array, the first output; else a folder with one per output */
    float *sorted; /* room for the classes of a row: number, probability */
    int64_t top;
    bool *ok;
} job;

static pl_status open_arrays(job *j)
{
    const char *path = pl_predict_input(j->p);
    int opened = 0;
    for (int i = 0; i < pl_onnx_input_count(j->model) && i < 64; i++) {
        const char *name = pl_onnx_input(j->model, i)->name;
        pl_type t;
        int64_t n;
        j->array[i] = -1;
        if (!pl_predict_set(j->p, j->program, name, &t)) continue;
        pl_type row = pl_type_make(t.dtype, t.rank - 1, t.dim + 1);
        char file[4096];
        struct stat st;
        bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        if (snprintf(file, sizeof file, folder ? "%s/%s.npy" : "%s", path, name) < 0)
            return PL_ERR_ARG;
        if (opened && !folder && ends_with(path, ".npy"))
            return pl_fail(PL_ERR_CONFIG,
                           "%s has one array, the model has several inputs: --input is an .npz, "
                           ".safetensors or .h5 file, or a folder with INPUT.npy",
                           path);
        pl_status rc = pl_predict_rows(j->p, file, name, &row, &j->array[i], &n);
        if (rc != PL_OK) return rc;
        if (opened++ && n != j->rows)
            return pl_fail(PL_ERR_DATA, "%s: input %s has %lld rows, others have %lld", path, name,
                           (long long)n, (long long)j->rows);
        j->rows = n;
        j->batch = t.dim[0];
    }
    return opened ? PL_OK : pl_fail(PL_ERR_CONFIG, "the model has no input that data fill");
}

static bool is_array_file(const char *path)
{
    static const char *const tails[] = {".npy", ".npz", ".safetensors", ".h5", ".hdf5", ".csv"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (ends_with(path, tails[i])) return true;
    return false;
}

static bool folder_has_inputs(const job *j)
{
    char file[4096];
    struct stat st;
    for (int i = 0; i < pl_onnx_input_count(j->model); i++) {
        snprintf(file, sizeof file, "%s/%s.npy", pl_predict_input(j->p),
                 pl_onnx_input(j->model, i)->name);
        if (stat(file, &st) == 0) return true;
    }
    return false;
}

static pl_status open_input(job *j)
{
    pl_type t;
    bool can = onnx_picture_port(j->model) && pl_predict_set(j->p, NULL, "image", &t);
    j->pictures = can && !is_array_file(pl_predict_input(j->p)) && !folder_has_inputs(j);
    j->program = can && !j->pictures ? "arrays" : NULL;
    if (!j->pictures) return open_arrays(j);
    j->batch = t.dim[0];
    return pl_predict_pictures(j->p, &j->rows);
}

/* Fills rows [0, n) of the inputs with samples from `at` on; rows behind repeat nothing. */
static pl_status read_rows(job *j, int64_t at, int n)
{
    if (j->pictures) return pl_predict_read(j->p, at, n, j->ok);
    for (int i = 0; i < pl_onnx_input_count(j->model) && i < 64; i++) {
        pl_type t;
        if (j->array[i] < 0) continue;
        char *to = pl_predict_set(j->p, j->program, pl_onnx_input(j->model, i)->name, &t);
        size_t bytes = pl_type_bytes(&t) / (size_t)t.dim[0];
        memset(to, 0, pl_type_bytes(&t));
        for (int k = 0; k < n; k++) {
            pl_status rc = pl_predict_row(j->p, j->array[i], at + k, to + (size_t)k * bytes);
            if (rc != PL_OK) return rc;
        }
    }
    for (int k = 0; k < n; k++) j->ok[k] = true;
    return PL_OK;
}

/* ---- arrays --------------------------------------------------------------------------------- */
/* The type of a result of all rows; false: its first dimension is not the batch. */
static bool result_type(const job *j, const char *name, pl_type *t)
{
    if (!pl_predict_type(j->p, j->program, name, t)) return false;
    bool rows = t->rank > 0 && t->dim[0] == j->batch;
    if (rows) t->dim[0] = j->rows;
    return rows;
}

/* A file's name cannot have the slashes of output names. */
static const char *file_of(const job *j, const char *output, char *buf, size_t cap)
{
    if (j->single) return NULL;
    snprintf(buf, cap, "%s.npy", output);
    for (char *c = buf; *c; c++)
        if (*c == '/' || *c == ':') *c = '_';
    return buf;
}

static int results(const job *j)
{
    int n = pl_onnx_output_count(j->model);
    return j->single ? 1 : n < MOST_OUTPUTS ? n : MOST_OUTPUTS;
}

/* Whether an output before number n has the same file; its name is in *other then. */
static bool shares_file(const job *j, int n, const char *file, const char **other)
{
    char name[ONNX_NAME + 8];
    pl_type t;
    for (int i = 0; i < n; i++) {
        *other = pl_onnx_output(j->model, i)->name;
        if (result_type(j, *other, &t) && strcmp(file_of(j, *other, name, sizeof name), file) == 0)
            return true;
    }
    return false;
}

static pl_status begin_arrays(const job *j)
{
    char name[ONNX_NAME + 8];
    int begun = 0;
    for (int i = 0; i < results(j); i++) {
        const char *output = pl_onnx_output(j->model, i)->name, *other;
        pl_type t;
        if (!result_type(j, output, &t)) continue; /* a loss beside the results, for example */
        const char *file = file_of(j, output, name, sizeof name);
        if (file && shares_file(j, i, file, &other))
            return pl_fail(PL_ERR_UNSUPPORTED,
                           "outputs %s and %s would both be the file %s: --out FILE.npy writes the "
                           "first output alone",
                           other, output, file);
        pl_status rc = pl_predict_npy(j->p, file, t);
        if (rc != PL_OK) return rc;
        begun++;
    }
    if (begun) return PL_OK;
    return pl_fail(
        PL_ERR_UNSUPPORTED,
        "output %s does not begin with the batch: predictions cannot be split into samples%s",
        pl_onnx_output(j->model, 0)->name,
        j->single && pl_onnx_output_count(j->model) > 1 ? "; --out FOLDER writes the other outputs"
                                                        : "");
}

static bool is_finite(const pl_type *t, const float *x, int64_t n)
{
    for (int64_t i = 0; t->dtype == PL_F32 && i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Rows of pictures that could not be read are zero bytes. */
static pl_status write_arrays(const job *j, int n)
{
    char name[ONNX_NAME + 8];
    for (int i = 0; i < results(j); i++) {
        const char *output = pl_onnx_output(j->model, i)->name;
        pl_type t;
        if (!result_type(j, output, &t)) continue;
        const char *x = pl_predict_get(j->p, j->program, output, &t);
        size_t bytes = pl_type_bytes(&t) / (size_t)t.dim[0];
        if (!is_finite(&t, (const void *)x, pl_type_elems(&t) / t.dim[0] * n))
            return pl_fail(PL_ERR_NUMERIC,
                           "output %s is not finite: the weights are damaged, or "
                           "training diverged",
                           output);
        pl_status rc =
            pl_predict_write(j->p, file_of(j, output, name, sizeof name), x, bytes * (size_t)n);
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

/* ---- classes -------------------------------------------------------------------------------- */
static int by_probability(const void *a, const void *b)
{
    const float *x = a, *y = b;
    if (x[1] != y[1]) return x[1] < y[1] ? 1 : -1;
    return x[0] < y[0] ? -1 : 1;
}

static pl_status print_header(const job *j)
{
    pl_status rc = pl_predict_print(j->p, NULL, j->pictures ? "path" : "row");
    for (int64_t k = 1; k <= j->top && rc == PL_OK; k++)
        rc = k == 1 ? pl_predict_print(j->p, NULL, ",class,probability")
                    : pl_predict_print(j->p, NULL, ",class%lld,probability%lld", (long long)k,
                                       (long long)k);
    return rc == PL_OK ? pl_predict_write(j->p, NULL, "\n", 1) : rc;
}

static pl_status print_row(const job *j, int64_t sample, const float *p, int64_t classes)
{
    const char *path = NULL;
    pl_status rc = j->pictures ? pl_predict_picture(j->p, sample, &path, NULL, NULL) : PL_OK;
    for (int64_t k = 0; k < classes; k++) {
        j->sorted[2 * k] = (float)k;
        j->sorted[2 * k + 1] = p[k];
    }
    qsort(j->sorted, (size_t)classes, 2 * sizeof(float), by_probability);
    if (rc == PL_OK)
        rc = path ? pl_predict_field(j->p, NULL, path)
                  : pl_predict_print(j->p, NULL, "%lld", (long long)sample);
    for (int64_t k = 0; k < j->top && rc == PL_OK; k++) {
        const char *name = pl_predict_class(j->p, (int)j->sorted[2 * k]);
        char number[24];
        snprintf(number, sizeof number, "%d", (int)j->sorted[2 * k]);
        rc = pl_predict_write(j->p, NULL, ",", 1);
        if (rc == PL_OK) rc = pl_predict_field(j->p, NULL, name ? name : number);
        if (rc == PL_OK) rc = pl_predict_print(j->p, NULL, ",%.6f", (double)j->sorted[2 * k + 1]);
    }
    return rc == PL_OK ? pl_predict_write(j->p, NULL, "\n", 1) : rc;
}

static pl_status print_rows(const job *j, int64_t at, int n)
{
    pl_type t;
    const float *p = pl_predict_get(j->p, j->program, "plimsoll.probability", &t);
    for (int i = 0; i < n; i++) {
        const float *row = p + i * t.dim[1];
        if (!j->ok[i]) continue;
        if (!isfinite(row[0]))
            return pl_fail(PL_ERR_NUMERIC, "the network's outputs are not finite: its weights are "
                                           "damaged, or its training diverged");
        pl_status rc = print_row(j, at + i, row, t.dim[1]);
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

/* ---- all ------------------------------------------------------------------------------------ */
static pl_status begin_output(job *j)
{
    pl_type t;
    const char *out = pl_predict_out(j->p);
    bool classes = pl_predict_type(j->p, j->program, "plimsoll.probability", &t);
    j->table = ends_with(out, ".csv");
    j->single = ends_with(out, ".npy");
    if (j->table && !classes)
        return pl_fail(
            PL_ERR_CONFIG,
            "%s: the model predicts no classes (its loss is not cross_entropy of [N, K]); --out is "
            "an .npy file or a folder",
            out);
    if (!j->table) return begin_arrays(j);
    j->top = pl_config_int(pl_predict_config(j->p), "predict.top");
    if (j->top > t.dim[1]) j->top = t.dim[1];
    j->sorted = malloc((size_t)t.dim[1] * 2 * sizeof(float));
    return j->sorted ? print_header(j) : PL_ERR_MEMORY;
}

static pl_status predict_all(job *j)
{
    pl_status rc = open_input(j);
    if (rc == PL_OK && !(j->ok = malloc((size_t)j->batch * sizeof *j->ok))) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) rc = begin_output(j);
    for (int64_t at = 0; at < j->rows && rc == PL_OK; at += j->batch) {
        int n = (int)(j->rows - at < j->batch ? j->rows - at : j->batch);
        rc = read_rows(j, at, n);
        if (rc == PL_OK) rc = pl_predict_run(j->p, j->program);
        if (rc == PL_OK) rc = j->table ? print_rows(j, at, n) : write_arrays(j, n);
        if (rc == PL_OK) rc = pl_predict_progress(j->p, at + n, j->rows);
    }
    free(j->sorted);
    free(j->ok);
    return rc;
}

static pl_status run(pl_prediction *p)
{
    job *j = calloc(1, sizeof *j);
    if (!j) return PL_ERR_MEMORY;
    j->p = p;
    j->model = pl_predict_own(p);
    pl_status rc = predict_all(j);
    free(j);
    return rc;
}

const pl_predict onnx_predict = {
    .input = "a picture, a folder of pictures, or arrays: .npy, .npz, .safetensors, .h5, .csv",
    .out = "a CSV file of classes, an .npy file (the first output), or a folder (all outputs)",
    .build = build,
    .run = run,
};
