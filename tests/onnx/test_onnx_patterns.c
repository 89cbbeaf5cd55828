/* test_onnx_patterns.c - every pattern of patterns.def is recognised in the graph it describes. Its
 * op computes what the graph computes, forward and backward, on random numbers. */
#include "base/sys.h"
#include "onnx/recognise.h"
#include "plimsoll_ops.h"
#include "tests/lib/test.h"
#include "tests/onnx/model_run.h"
#include "tests/onnx/proto_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 8, MAX_OUT = 4096 };

/* The value of a name in the example, "x=3,4 #e=0.1"; NULL: there is none. */
static const char *value_of(const char *example, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = example; p && *p; p = strchr(p, ' '), p = p ? p + 1 : NULL)
        if (strncmp(p, name, n) == 0 && p[n] == '=') return p + n + 1;
    return NULL;
}

static int numbers(const char *p, double *out)
{
    int n = 0;
    for (char *end; p && *p && *p != ' ' && n < PL_MAX_RANK; p = *end == ',' ? end + 1 : end)
        out[n++] = strtod(p, &end);
    return n;
}

/* The names of exporters for constants; other names would be parameters, which train. */
static void constant_name(const char *name, char out[16])
{
    bool constant = name[0] == '#' || name[0] == '@' || strcmp(name, "m") == 0;
    snprintf(out, 16, "%s%.8s", constant ? "val_" : "", name + (constant && name[0] != 'm'));
}

static void put_tensor(pl_str *graph, const char *name, const char *value)
{
    double x[PL_MAX_RANK];
    int n = numbers(value, x);
    pl_str t = PL_STR_INIT;
    bool whole = name[0] == '@';
    if (whole) put_number(&t, 1, (uint64_t)n);
    char text[16];
    put_number(&t, 2, whole ? PL_OX_INT64 : PL_OX_FLOAT);
    constant_name(name, text);
    put_text(&t, 8, text);
    int64_t wholes[PL_MAX_RANK];
    float real = (float)x[0];
    for (int i = 0; i < n; i++) wholes[i] = (int64_t)x[i];
    put_bytes(&t, 9, whole ? (void *)wholes : (void *)&real, whole ? 8 * (size_t)n : 4);
    put_message(graph, 5, &t);
}

typedef struct maker {
    pl_str graph;
    const char *example;
    char seen[16][8];
    int n_seen, n_node;
} maker;

static void put_name(maker *m, const char *name)
{
    for (int i = 0; i < m->n_seen; i++)
        if (strcmp(m->seen[i], name) == 0) return;
    snprintf(m->seen[m->n_seen++], 8, "%s", name);
    const char *value = value_of(m->example, name);
    if (name[0] == '#' || name[0] == '@') {
        put_tensor(&m->graph, name, value);
        return;
    }
    double x[PL_MAX_RANK];
    int64_t dim[PL_MAX_RANK];
    int n = numbers(value, x);
    for (int i = 0; i < n; i++) dim[i] = (int64_t)x[i];
    if (strcmp(name, "m") != 0) {
        put_floats(&m->graph, 11, name, n, dim);
        return;
    }
    pl_str t = PL_STR_INIT; /* a causal mask */
    float mask[256];
    for (int i = 0; i < n; i++) put_number(&t, 1, (uint64_t)dim[i]);
    for (int64_t i = 0; i < dim[0] * dim[1]; i++) mask[i] = i % dim[1] <= i / dim[1] ? 0 : -1e30f;
    put_number(&t, 2, PL_OX_FLOAT);
    put_text(&t, 8, "val_m");
    put_bytes(&t, 9, mask, sizeof(float) * (size_t)(dim[0] * dim[1]));
    put_message(&m->graph, 5, &t);
}

/* Writes the nodes of the pattern at *p; out gets the name of its value. */
static void put_pattern(maker *m, const char **p, char out[16])
{
    size_t n = strcspn(*p, "(,)");
    char word[64] = "";
    memcpy(word, *p, n);
    *p += n;
    if (**p != '(') {
        constant_name(word, out);
        put_name(m, word);
        return;
    }
    pl_str node = PL_STR_INIT;
    do {
        char in[16];
        (*p)++;
        put_pattern(m, p, in);
        put_text(&node, 1, in);
    } while (**p == ',');
    (*p)++;
    snprintf(out, 16, "t%d", m->n_node++);
    put_text(&node, 2, **p ? out : "y");
    put_text(&node, 4, word);
    if (strcmp(word, "ReduceMean") == 0) {
        pl_str a = PL_STR_INIT;
        put_text(&a, 1, "axes");
        put_number(&a, 8, (uint64_t)-1);
        put_message(&node, 5, &a);
    }
    if (strcmp(word, "Transpose") == 0) { /* the last two of three */
        pl_str a = PL_STR_INIT;
        put_text(&a, 1, "perm");
        put_number(&a, 8, 0);
        put_number(&a, 8, 2);
        put_number(&a, 8, 1);
        put_message(&node, 5, &a);
    }
    put_message(&m->graph, 1, &node);
}

/* Builds the model, with the gradient of the sum of squares for the first input, and runs it. */
static pl_status run(const pl_str *model, bool plain, float *y, int *n, int *found)
{
    pl_onnx *o;
    PL_TRY(pl_ox_open_memory(model->text, model->len, ".", &o));
    model_run r = model_run_new(o, true);
    pl_graph *g = r.nn->g;
    pl_type t;
    int n_in = pl_onnx_input_count(o);
    pl_onnx_value in[MAX_INPUTS], out = {.name = "y"};
    for (int i = 0; i < n_in; i++) {
        const char *name = pl_onnx_input(o, i)->name;
        pl_status known = pl_onnx_input_type(o, name, &(pl_onnx_opts){0}, &t);
        in[i] = (pl_onnx_value){.name = name, .value = pl_input(g, name, t)};
        if (known != PL_OK) return known;
    }
    pl_onnx_opts opts = {.plain = plain};
    pl_status rc = pl_onnx_build(o, r.nn, &opts, n_in, in, 1, &out);
    *found = o->recognised;
    if (rc == PL_OK) {
        pl_val grad, loss = pl_sum(g, pl_square(g, out.value), PL_AXES_ALL, false);
        pl_grad(g, loss, &in[0].value, 1, &grad);
        pl_output(g, "y", out.value);
        pl_output(g, "dx", grad);
    }
    rc = model_run_start(&r, rc);
    uint64_t state = 7;
    for (int i = 0; i < n_in && rc == PL_OK; i++) {
        float *x = pl_session_input(r.session, r.program, in[i].name, &t);
        for (int64_t k = 0; x && k < pl_type_elems(&t); k++) x[k] = (float)pl_test_noise(&state);
    }
    if (rc == PL_OK) rc = pl_session_run(r.session, r.program);
    *n = 0;
    for (int k = 0; k < 2 && rc == PL_OK; k++) {
        const float *x = pl_session_output(r.session, r.program, k ? "dx" : "y", &t);
        for (int64_t i = 0; x && i < pl_type_elems(&t) && *n < MAX_OUT; i++) y[(*n)++] = x[i];
    }
    model_run_free(&r);
    return rc;
}

TEST(onnx_patterns_compute_what_their_graphs_compute)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    static float a[MAX_OUT], b[MAX_OUT];
    const char *graph, *example;
    for (int i = 0; pl_ox_pattern_get(i, &graph, &example); i++) {
        maker m = {.example = example};
        const char *p = graph;
        char out[16];
        int n, again, found, none;
        put_pattern(&m, &p, out);
        put_floats(&m.graph, 12, "y", 0, NULL);
        pl_str model = model_of(&m.graph);
        pl_status rc = run(&model, false, a, &n, &found);
        if (rc == PL_OK) rc = run(&model, true, b, &again, &none);
        pl_str_release(&model);
        CHECK_MSG(rc == PL_OK, "%s: %s", graph, pl_error_text());
        CHECK_MSG(found == 1 && none == 0, "%s: recognised %d times", graph, found);
        CHECK_INT(n, again);
        CHECK(n > 0);
        for (int k = 0; k < n; k++)
            CHECK_MSG(fabsf(a[k] - b[k]) <= 2e-5f + 2e-4f * fabsf(b[k]), "%s: %g and %g", graph,
                      (double)a[k], (double)b[k]);
    }
}

/* The mask has 4.7 million elements, more than are computed at import, and is equal for all
 * samples. */
TEST(onnx_a_mask_that_repeats_for_every_sample_is_recognised)
{
    pl_onnx *o;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    CHECK_OK(pl_onnx_open("tests/data/onnx/mask.onnx", &o));
    model_run r = model_run_new(o, false);
    pl_onnx_opts opts = {.batch = 8};
    pl_onnx_value y = {.name = "y"};
    CHECK_OK(pl_onnx_build(o, r.nn, &opts, 0, NULL, 1, &y));
    CHECK_INT(o->recognised, 1);
    pl_graph_free(r.nn->g);
    model_run_free(&r);
}
