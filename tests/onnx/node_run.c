/* node_run.c - see node_run.h.
 *
 * Inputs are inputs of the program. Where the model cannot be built so, because a shape depends on
 * an input, whole numbers, truth values and scalars are fixed at import instead. Numbers agree
 * within 1e-3 relative and 1e-6 absolute (the standard's own test program: 1e-3 and 1e-7); f16 and
 * bf16 within their precision. Whole models, whose errors add up, agree within 1e-4. */
#include "tests/onnx/node_run.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "onnx/onnx.h"
#include "plimsoll_optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PORTS = 64 };

typedef struct node_case {
    pl_arena mem;
    pl_onnx *model;
    pl_type type[MAX_PORTS]; /* of inputs */
    void *data[MAX_PORTS];
    pl_type result[MAX_PORTS]; /* types of outputs */
    pl_onnx_constant constant[MAX_PORTS + 1];
    pl_store *store;
    pl_nn *nn;
    pl_program *program;
    pl_session *session;
    char *why;
    size_t cap;
} node_case;

static node_result say(node_case *t, node_result r, const char *text)
{
    snprintf(t->why, t->cap, "%s", text);
    return r;
}

/* Reads a TensorProto file as a value of the engine. */
static pl_status read_tensor(node_case *t, const char *folder, const char *file, pl_type *type,
                             void **data)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    pl_file f = PL_FILE_NONE;
    pl_ox_tensor *tensor;
    pl_ox_host host;
    pl_onnx owner = {.path = path, .folder = path, .file = PL_FILE_NONE};
    PL_TRY(pl_file_open(path, PL_ERR_FILE, &f));
    pl_status rc = pl_ox_parse_tensor(&f, &t->mem, &tensor);
    owner.file = f;
    if (rc == PL_OK) rc = pl_ox_tensor_type_of(&owner, tensor, type);
    if (rc == PL_OK) rc = pl_ox_tensor_read(&owner, tensor, &t->mem, &host);
    pl_file_close(&f);
    if (rc != PL_OK) return rc;
    *data = pl_arena_alloc(&t->mem, pl_type_bytes(type) + 8);
    for (int64_t i = 0; i < host.n; i++) {
        if (type->dtype == PL_I64)
            ((int64_t *)*data)[i] = host.i[i];
        else
            pl_elem_set(type->dtype, *data, i, host.i ? (double)host.i[i] : host.d[i]);
    }
    return PL_OK;
}

static void drop(node_case *t)
{
    pl_session_free(t->session);
    pl_program_free(t->program);
    pl_nn_free(t->nn);
    pl_store_free(t->store);
    t->session = NULL;
    t->program = NULL;
    t->nn = NULL;
    t->store = NULL;
}

static pl_status build(node_case *t, bool training, bool fixed)
{
    pl_onnx_value out[MAX_PORTS] = {{0}};
    pl_onnx_opts o = {.constants = t->constant};
    int n = 0;
    for (int i = 0; i < pl_onnx_input_count(t->model); i++) {
        bool small =
            t->type[i].rank == 0 || !pl_dtype_is_float(t->type[i].dtype) || (fixed && i > 0);
        if (fixed && small)
            t->constant[n++] =
                (pl_onnx_constant){pl_onnx_input(t->model, i)->name, t->type[i], t->data[i]};
    }
    t->constant[n] = (pl_onnx_constant){0};
    t->store = pl_store_new();
    pl_graph *g = pl_graph_new(t->store);
    t->nn = pl_nn_new(g, training);
    int n_out = pl_onnx_output_count(t->model);
    for (int i = 0; i < n_out; i++) out[i].name = pl_onnx_output(t->model, i)->name;
    /* inputs have the types of the data: the model may leave sizes open */
    pl_onnx_value in[MAX_PORTS];
    int n_in = 0;
    for (int i = 0; i < pl_onnx_input_count(t->model); i++) {
        const char *name = pl_onnx_input(t->model, i)->name;
        bool constant = false;
        for (int k = 0; k < n; k++) constant |= strcmp(t->constant[k].name, name) == 0;
        if (!constant)
            in[n_in++] = (pl_onnx_value){.name = name, .value = pl_input(g, name, t->type[i])};
    }
    pl_status rc = pl_onnx_build(t->model, t->nn, &o, n_in, in, n_out, out);
    for (int i = 0; i < n_out && rc == PL_OK; i++) {
        t->result[i] = pl_val_type(g, out[i].value);
        pl_output(g, out[i].name, out[i].value);
    }
    if (rc == PL_OK) rc = pl_nn_finish(t->nn);
    if (rc != PL_OK) {
        pl_graph_free(g);
        return rc;
    }
    pl_compile_opts c = PL_COMPILE_INIT;
    PL_TRY(pl_compile(g, &c, &t->program));
    return pl_session_new(t->store, 1, &t->program, &t->session);
}

/* Initial values of all slots. */
static pl_status fill(node_case *t)
{
    PL_TRY(pl_session_init(t->session, 1));
    for (int i = 0; i < pl_store_count(t->store); i++) {
        bool known;
        PL_TRY(pl_onnx_slot_read(t->model, pl_store_slot(t->store, i),
                                 pl_session_slot(t->session, i), &known));
    }
    return PL_OK;
}

static pl_status run(node_case *t)
{
    for (int i = 0; i < pl_onnx_input_count(t->model); i++) {
        pl_type type;
        void *to =
            pl_session_input(t->session, t->program, pl_onnx_input(t->model, i)->name, &type);
        if (to) memcpy(to, t->data[i], pl_type_bytes(&t->type[i]));
    }
    PL_TRY(pl_session_run(t->session, t->program));
    return pl_session_wait(t->session);
}

static bool near(double a, double b, pl_dtype d, bool whole)
{
    double rel = d == PL_F16 ? 4e-3 : d == PL_BF16 ? 3e-2 : 1e-3;
    double abs = d == PL_F16 ? 2e-3 : d == PL_BF16 ? 2e-2 : whole ? 1e-4 : 1e-6;
    if (whole) rel = 1e-4;
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= abs + rel * fabs(b);
}

static node_result compare(node_case *t, const char *folder)
{
    char target[1100];
    snprintf(target, sizeof target, "%s/target.pb", folder);
    bool whole = access(target, R_OK) == 0; /* a model, not a node */
    for (int i = 0; i < pl_onnx_output_count(t->model); i++) {
        const char *name = pl_onnx_output(t->model, i)->name;
        char file[64], text[400], a[96], b[96];
        pl_type want, have;
        void *expected;
        snprintf(file, sizeof file, "output_%d.pb", i);
        if (read_tensor(t, folder, file, &want, &expected) != PL_OK)
            return say(t, NODE_REFUSED, pl_error_text());
        const void *got = pl_session_output(t->session, t->program, name, &have);
        if (pl_type_elems(&want) == 0) have = t->result[i]; /* no bytes, so no pointer */
        if (!got && pl_type_elems(&want)) return say(t, NODE_FAILED, "an output is missing");
        if (!pl_type_equal(&want, &have)) {
            snprintf(text, sizeof text, "output %s is %s, wanted %s", name,
                     pl_type_text(&have, a, sizeof a), pl_type_text(&want, b, sizeof b));
            return say(t, NODE_WRONG, text);
        }
        for (int64_t k = 0; k < pl_type_elems(&want); k++) {
            double x = pl_elem_get(have.dtype, got, k), y = pl_elem_get(want.dtype, expected, k);
            if (near(x, y, want.dtype, whole)) continue;
            snprintf(text, sizeof text, "output %s element %lld is %.9g, wanted %.9g", name,
                     (long long)k, x, y);
            return say(t, NODE_WRONG, text);
        }
    }
    return NODE_PASSED;
}

static node_result read_inputs(node_case *t, const char *folder)
{
    for (int i = 0; i < pl_onnx_input_count(t->model); i++) {
        char file[64];
        snprintf(file, sizeof file, "input_%d.pb", i);
        if (i >= MAX_PORTS || read_tensor(t, folder, file, &t->type[i], &t->data[i]) != PL_OK)
            return say(t, NODE_REFUSED, pl_error_text());
    }
    return NODE_PASSED;
}

static node_result run_set(node_case *t, const char *folder, bool training)
{
    node_result r = read_inputs(t, folder);
    if (r != NODE_PASSED) return r;
    pl_status rc = build(t, training, false);
    if (rc != PL_OK && pl_onnx_input_count(t->model) > 0) {
        drop(t);
        rc = build(t, training, true);
    }
    if (rc != PL_OK) return say(t, NODE_REFUSED, pl_error_text());
    if (fill(t) != PL_OK || run(t) != PL_OK) return say(t, NODE_FAILED, pl_error_text());
    return compare(t, folder);
}

static node_case *case_new(const char *folder, char *why, size_t cap, node_result *r)
{
    char path[1024];
    node_case *t = pl_sys_alloc(sizeof *t);
    t->why = why;
    t->cap = cap;
    why[0] = 0;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    *r = pl_onnx_open(path, &t->model) == PL_OK ? NODE_PASSED
                                                : say(t, NODE_REFUSED, pl_error_text());
    return t;
}

static void case_free(node_case *t)
{
    drop(t);
    pl_onnx_free(t->model);
    pl_arena_release(&t->mem);
    pl_sys_free(t);
}

node_result node_run(const char *folder, char *why, size_t cap)
{
    char path[1024];
    node_result r;
    node_case *t = case_new(folder, why, cap, &r);
    bool training = strstr(folder, "batchnorm") && strstr(folder, "training_mode");
    for (int k = 0; r == NODE_PASSED; k++) {
        snprintf(path, sizeof path, "%s/test_data_set_%d", folder, k);
        if (access(path, R_OK) != 0) break;
        r = run_set(t, path, training);
        drop(t);
    }
    case_free(t);
    return r;
}

/* ---- training -------------------------------------------------------------------------------- */
static pl_status build_training(node_case *t, const pl_type *target, const char *frozen, bool plain,
                                double rate)
{
    pl_onnx_opts o = {.plain = plain, .frozen = frozen};
    pl_onnx_value out = {.name = pl_onnx_output(t->model, 0)->name};
    t->store = pl_store_new();
    pl_graph *g = pl_graph_new(t->store);
    t->nn = pl_nn_new(g, true);
    pl_status rc = pl_onnx_build(t->model, t->nn, &o, 0, NULL, 1, &out);
    if (rc == PL_OK) {
        pl_val loss = pl_loss_mse(g, out.value, pl_input(g, "target", *target));
        pl_optim optim = PL_OPTIM_INIT;
        optim.lr.lr = rate;
        pl_optim_apply(t->nn, loss, &optim, NULL);
        pl_output(g, "loss", loss);
        rc = pl_nn_finish(t->nn);
    }
    if (rc != PL_OK) {
        pl_graph_free(g);
        return rc;
    }
    pl_compile_opts c = PL_COMPILE_INIT;
    PL_TRY(pl_compile(g, &c, &t->program));
    return pl_session_new(t->store, 1, &t->program, &t->session);
}

static node_result train(node_case *t, const char *folder, bool plain, double tolerance)
{
    char path[1024], text[200], *frozen = NULL;
    size_t len;
    pl_type type;
    void *target;
    double want, rate = 0;
    snprintf(path, sizeof path, "%s/test_data_set_0", folder);
    node_result r = read_inputs(t, path);
    if (r != NODE_PASSED) return r;
    pl_status rc = read_tensor(t, path, "target.pb", &type, &target);
    snprintf(path, sizeof path, "%s/frozen.txt", folder); /* names, separated by commas */
    if (rc == PL_OK && access(path, R_OK) == 0) rc = pl_sys_read_file(path, 1 << 20, &frozen, &len);
    snprintf(path, sizeof path, "%s/losses.txt", folder);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%lf", &rate) != 1) rc = pl_fail(PL_ERR_IO, "there is no losses.txt");
    if (rc == PL_OK)
        rc = build_training(t, &type, frozen && frozen[0] ? frozen : NULL, plain, rate);
    pl_sys_free(frozen);
    if (rc != PL_OK) r = say(t, NODE_REFUSED, pl_error_text());
    if (rc == PL_OK && fill(t) != PL_OK) r = say(t, NODE_FAILED, pl_error_text());
    for (int step = 0; r == NODE_PASSED && fscanf(f, "%lf", &want) == 1; step++) {
        pl_type have_type;
        memcpy(pl_session_input(t->session, t->program, "target", &have_type), target,
               pl_type_bytes(&type));
        rc = run(t);
        const void *loss = pl_session_output(t->session, t->program, "loss", &have_type);
        double have = rc == PL_OK && loss ? pl_elem_get(have_type.dtype, loss, 0) : HUGE_VAL;
        if (getenv("PL_ONNX_LOSSES")) printf("  step %d: %.12g, PyTorch %.12g\n", step, have, want);
        if (fabs(have - want) <= tolerance * fmax(1, fabs(want))) continue;
        snprintf(text, sizeof text, "loss of step %d is %.9g, wanted %.9g", step, have, want);
        r = say(t, NODE_WRONG, text);
    }
    if (f) fclose(f);
    return r;
}

node_result node_train(const char *folder, bool plain, double tolerance, char *why, size_t cap)
{
    node_result r;
    node_case *t = case_new(folder, why, cap, &r);
    if (r == NODE_PASSED) r = train(t, folder, plain, tolerance);
    case_free(t);
    return r;
}
