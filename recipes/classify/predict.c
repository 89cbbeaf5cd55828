/* predict.c - classes of new pictures: a CSV file with the likeliest classes of each picture, or an
 * .npy array with the probabilities of all classes.
 */
#include "classify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_status build(pl_builder *b)
{
    classify_net n;
    pl_status rc = classify_net_of(pl_builder_config(b), &n);
    if (rc == PL_OK) rc = classify_classes(b, &n.classes);
    if (rc != PL_OK) return rc;
    classify_state_facts(b);
    pl_nn *m = pl_builder_predict(b, NULL);
    pl_val logits = classify_network(m, &n, classify_image(b, m));
    pl_output(m->g, "probability", pl_softmax(m->g, pl_cast(m->g, logits, PL_F32), -1));
    return PL_OK;
}

/* A class and its probability, for sorting. */
typedef struct choice {
    float p;
    int index;
} choice;

static int by_probability(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->index - y->index;
}

typedef struct job {
    pl_prediction *p;
    choice *list; /* room for all classes */
    bool array;   /* --out is an .npy file */
    int64_t top;
} job;

static pl_status print_header(const job *j)
{
    pl_status rc = pl_predict_print(j->p, NULL, "path");
    for (int64_t k = 1; k <= j->top && rc == PL_OK; k++)
        rc = k == 1 ? pl_predict_print(j->p, NULL, ",class,probability")
                    : pl_predict_print(j->p, NULL, ",class%lld,probability%lld", (long long)k,
                                       (long long)k);
    return rc == PL_OK ? pl_predict_write(j->p, NULL, "\n", 1) : rc;
}

static pl_status print_row(const job *j, const char *path, const float *p, int64_t classes)
{
    for (int64_t k = 0; k < classes; k++) j->list[k] = (choice){p[k], (int)k};
    qsort(j->list, (size_t)classes, sizeof *j->list, by_probability);
    pl_status rc = pl_predict_field(j->p, NULL, path);
    for (int64_t k = 0; k < j->top && rc == PL_OK; k++) {
        char number[24];
        const char *name = pl_predict_class(j->p, j->list[k].index);
        snprintf(number, sizeof number, "%d", j->list[k].index);
        rc = pl_predict_write(j->p, NULL, ",", 1);
        if (rc == PL_OK) rc = pl_predict_field(j->p, NULL, name ? name : number);
        if (rc == PL_OK) rc = pl_predict_print(j->p, NULL, ",%.6f", (double)j->list[k].p);
    }
    return rc == PL_OK ? pl_predict_write(j->p, NULL, "\n", 1) : rc;
}

/* A row of the array; of a picture that could not be read (p is NULL) NaN. */
static pl_status write_row(const job *j, const float *p, int64_t classes)
{
    pl_status rc = PL_OK;
    for (int64_t k = 0; k < classes && rc == PL_OK; k++) {
        float x = p ? p[k] : NAN;
        rc = pl_predict_write(j->p, NULL, &x, sizeof x);
    }
    return rc;
}

static pl_status write_rows(const job *j, int64_t first, int rows, const bool *ok)
{
    pl_type t;
    const float *all = pl_predict_get(j->p, NULL, "probability", &t);
    for (int i = 0; i < rows; i++) {
        const char *path;
        const float *p = all + i * t.dim[1];
        if (!ok[i] && !j->array) continue;
        if (ok[i] && !isfinite(p[0]))
            return pl_fail(PL_ERR_NUMERIC, "the network's outputs are not finite: its weights are "
                                           "damaged, or its training diverged");
        pl_status rc = pl_predict_picture(j->p, first + i, &path, NULL, NULL);
        if (rc == PL_OK)
            rc = j->array ? write_row(j, ok[i] ? p : NULL, t.dim[1])
                          : print_row(j, path, p, t.dim[1]);
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

static pl_status predict_all(const job *j, int64_t batch, int64_t pictures, bool *ok)
{
    for (int64_t at = 0; at < pictures; at += batch) {
        int rows = (int)(pictures - at < batch ? pictures - at : batch);
        pl_status rc = pl_predict_read(j->p, at, rows, ok);
        if (rc == PL_OK) rc = pl_predict_run(j->p, NULL);
        if (rc == PL_OK) rc = write_rows(j, at, rows, ok);
        if (rc == PL_OK) rc = pl_predict_progress(j->p, at + rows, pictures);
        if (rc != PL_OK) return rc;
    }
    return PL_OK;
}

static pl_status run(pl_prediction *p)
{
    pl_type t;
    int64_t pictures;
    const char *out = pl_predict_out(p);
    size_t n = strlen(out);
    job j = {.p = p, .array = n > 4 && strcmp(out + n - 4, ".npy") == 0};
    pl_status rc = pl_predict_pictures(p, &pictures);
    if (rc != PL_OK) return rc;
    pl_predict_type(p, NULL, "probability", &t);
    j.top = pl_config_int(pl_predict_config(p), "predict.top");
    if (j.top > t.dim[1]) j.top = t.dim[1];
    j.list = malloc((size_t)t.dim[1] * sizeof *j.list);
    bool *ok = malloc((size_t)t.dim[0] * sizeof *ok);
    if (!j.list || !ok) rc = PL_ERR_MEMORY;
    if (rc == PL_OK && j.array)
        rc = pl_predict_npy(p, NULL, PL_TYPE(PL_F32, pictures, t.dim[1]));
    else if (rc == PL_OK)
        rc = print_header(&j);
    if (rc == PL_OK) rc = predict_all(&j, t.dim[0], pictures, ok);
    free(j.list);
    free(ok);
    return rc;
}

const pl_predict classify_predict = {
    .input = "a picture or a folder of pictures",
    .out = "a CSV file, or an .npy array of the probabilities of all classes",
    .build = build,
    .run = run,
};
