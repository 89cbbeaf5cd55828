/* test_onnx_graph.c - graphs of the engine as ONNX files: every op, and whole recipes.
 *
 * Each case of each op (pl_op.cases) is written, read again by the importer, run, and compared with
 * the reference kernel. The long test runs the same files with ONNX Runtime. */
#include "base/dtype.h"
#include "base/sys.h"
#include "io/safetensors.h"
#include "onnx/write/write_graph.h"
#include "ops/core/attr.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"
#include "tests/onnx/model_run.h"
#include "tests/ops/op_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pl_type slot_type(void *ctx, int slot)
{
    return pl_store_slot(ctx, slot)->type;
}

/* The value of a slot is what its initial value says. */
static pl_status slot_read(void *ctx, int slot, void *to)
{
    const pl_slot *s = pl_store_slot(ctx, slot);
    memcpy(to, s->init.data, pl_type_bytes(&s->type));
    return PL_OK;
}

/* A draw is an input of the file, and results of the second kind serve gradients. */
static bool is_left_out(const pl_op *op)
{
    return is_exempt(op) || op->flags & PL_OP_DRAW || pl_ow_lacks(op->name) ||
           strcmp(op->name, "random_permutation") == 0 || op->flags & PL_OP_RANKS;
}

/* The importer refuses tensors without elements. */
static bool is_empty(const inst *t)
{
    bool empty = false;
    for (int i = 0; i < t->n_in; i++) empty |= pl_type_elems(&t->in_type[i]) == 0;
    for (int k = 0; k < t->call.n_out; k++) empty |= pl_type_elems(&t->out_type[k]) == 0;
    return empty;
}

static int results(const inst *t)
{
    return strcmp(t->op->name, "max_pool") == 0 ? 1 : t->call.n_out;
}

/* Whole numbers that ONNX accepts as an index: those of the engine may be out of range. */
static void clamp_indices(const inst *t, int input, void *data)
{
    static const char *const by_index[] = {"take", "scatter_add", "take_along", "put_along_add",
                                           "cross_entropy"};
    bool index = false;
    const pl_type *x = &t->in_type[input];
    for (int i = 0; i < 5; i++) index |= strcmp(t->op->name, by_index[i]) == 0;
    if (!index || pl_dtype_is_float(x->dtype)) return;
    const pl_type *from = &t->in_type[0], *to = &t->out_type[0];
    int64_t size = from->dim[0];
    if (strcmp(t->op->name, "scatter_add") == 0) size = to->dim[0];
    if (strcmp(t->op->name, "take_along") == 0)
        size = from->dim[((const pl_along_attr *)t->call.attr)->axis];
    if (strcmp(t->op->name, "put_along_add") == 0)
        size = to->dim[((const pl_put_attr *)t->call.attr)->axis];
    if (strcmp(t->op->name, "cross_entropy") == 0) size = from->dim[from->rank - 1];
    for (int64_t i = 0; i < pl_type_elems(x); i++) {
        double v = pl_elem_get(x->dtype, data, i);
        pl_elem_set(x->dtype, data, i, v < 0 || v >= (double)size ? 0 : v);
    }
}

/* Writes the case to path and computes what it has to give. */
static graph_eval *write_case(inst *t, const char *path)
{
    pl_ow_info info;
    pl_ow_source source = {.ctx = t->store, .type = slot_type, .read = slot_read};
    for (int k = 0; k < results(t); k++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", k);
        pl_output(t->g, name, t->out[k]);
    }
    if (pl_ow_graph(t->g, &source, path, 0, &info) != PL_OK) {
        inst_fail(t, "not written: %s", pl_error_text());
        return NULL;
    }
    graph_eval *e = graph_eval_new(t->g, true);
    for (int i = 0; i < t->n_in; i++) {
        draw(t, i, graph_eval_at(e, t->in[i]));
        clamp_indices(t, i, graph_eval_at(e, t->in[i]));
    }
    if (graph_eval_run(e) != PL_OK) inst_fail(t, "%s", pl_error_text());
    return e;
}

/* Reads the file, runs it, compares its outputs with those of e. */
static void read_back(const inst *t, graph_eval *e, const char *path)
{
    pl_onnx *o;
    if (pl_onnx_open(path, &o) != PL_OK) {
        inst_fail(t, "not read: %s", pl_error_text());
        return;
    }
    model_run r = model_run_new(o, false);
    pl_onnx_value out[PL_MAX_OUT] = {{0}};
    char name[PL_MAX_OUT][16], why[256];
    for (int k = 0; k < results(t); k++) {
        snprintf(name[k], sizeof name[k], "y%d", k);
        out[k].name = name[k];
    }
    pl_status rc = pl_onnx_build(o, r.nn, NULL, 0, NULL, results(t), out);
    for (int k = 0; k < results(t) && rc == PL_OK; k++) pl_output(r.nn->g, name[k], out[k].value);
    rc = model_run_start(&r, rc);
    for (int i = 0; i < t->n_in && rc == PL_OK; i++) {
        pl_type type;
        snprintf(why, sizeof why, "x%d", i);
        void *to = pl_session_input(r.session, r.program, why, &type);
        for (int64_t j = 0; to && j < pl_type_elems(&type); j++)
            pl_elem_set(type.dtype, to, j,
                        pl_elem_get(t->in_type[i].dtype, graph_eval_at(e, t->in[i]), j));
    }
    if (rc == PL_OK) rc = pl_session_run(r.session, r.program);
    if (rc != PL_OK) inst_fail(t, "read again: %s", pl_error_text());
    for (int k = 0; k < results(t) && rc == PL_OK; k++) {
        pl_type type;
        const void *got = pl_session_output(r.session, r.program, name[k], &type);
        const pl_type *want = &t->out_type[k];
        bool same =
            got && type.rank == want->rank && memcmp(type.dim, want->dim, sizeof type.dim) == 0;
        if (!same)
            inst_fail(t, "output %d has another shape", k);
        else if (disagreement(&type, got, want, graph_eval_at(e, t->out[k]), why, sizeof why) > 1)
            inst_fail(t, "output %d read again: %s", k, why);
    }
    model_run_free(&r);
}

TEST(onnx_every_op_is_written_and_read_again)
{
    int written = 0;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        const char *path = pl_test_path("case.onnx");
        for (int c = 0; !is_left_out(op) && !last_case(&op->cases[c]); c++) {
            inst t;
            if (!inst_new(&t, op, &op->cases[c], c, PL_F32)) inst_fail(&t, "%s", pl_error_text());
            graph_eval *e = write_case(&t, path);
            if (e && !is_empty(&t)) read_back(&t, e, path);
            graph_eval_free(e);
            inst_free(&t);
            written++;
        }
    }
    CHECK(written > 150);
}

/* An op without a row in writers.def would be found by a user. */
TEST(onnx_every_op_has_a_row_that_writes_it_or_says_why_not)
{
    for (int i = 0; i < pl_op_count(); i++) {
        const char *why = pl_ow_lacks(pl_op_at(i)->name);
        if (why && strstr(why, "no row"))
            pl_test_fail(__FILE__, __LINE__, "%s: %s", pl_op_at(i)->name, why);
    }
}

/* ---- ONNX Runtime ---------------------------------------------------------------------- */
static void save_tensors(const inst *t, graph_eval *e, const char *path)
{
    pl_st_writer *w;
    int n = t->n_in + results(t);
    CHECK_OK(pl_st_writer_new(path, &w));
    for (int i = 0; i < n; i++) {
        char name[16];
        bool in = i < t->n_in;
        snprintf(name, sizeof name, "%c%d", in ? 'x' : 'y', in ? i : i - t->n_in);
        CHECK_OK(pl_st_writer_add(w, name, in ? &t->in_type[i] : &t->out_type[i - t->n_in]));
    }
    CHECK_OK(pl_st_writer_begin(w));
    for (int k = 0; k < n; k++) {
        int i = pl_st_writer_order(w, k);
        bool in = i < t->n_in;
        const pl_type *type = in ? &t->in_type[i] : &t->out_type[i - t->n_in];
        pl_val v = in ? t->in[i] : t->out[i - t->n_in];
        CHECK_OK(pl_st_writer_write(w, i, graph_eval_at(e, v), pl_type_bytes(type)));
    }
    CHECK_OK(pl_st_writer_finish(w));
    pl_st_writer_free(w);
}

TEST(onnx_runtime_computes_every_op_as_the_reference_does)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    if (!pl_test_long()) SKIP("a long test");
    WANT_PYTHON(python, "onnxruntime");
    const char *dir = pl_test_dir();
    char path[1200], command[2600];
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        for (int c = 0; !is_left_out(op) && !last_case(&op->cases[c]); c++) {
            inst t;
            CHECK(inst_new(&t, op, &op->cases[c], c, PL_F32));
            snprintf(path, sizeof path, "%s/%s-%d.onnx", dir, op->name, c);
            graph_eval *e = write_case(&t, path);
            CHECK(e != NULL);
            snprintf(path, sizeof path, "%s/%s-%d.safetensors", dir, op->name, c);
            save_tensors(&t, e, path);
            graph_eval_free(e);
            inst_free(&t);
        }
    }
    snprintf(command, sizeof command, "%s tools/oracle/onnx_runtime.py %s > %s/log 2>&1", python,
             dir, dir);
    int rc = system(command);
    snprintf(command, sizeof command, "grep -v '^ok' %s/log", dir);
    if (rc) CHECK_INT(system(command), 0);
    CHECK_INT(rc, 0);
}

/* ---- files ----------------------------------------------------------------------------- */
typedef struct two_layers {
    pl_store *store;
    pl_graph *g;
} two_layers;

/* A convolution and a draw, so that slots, orders and inputs of all kinds are in the file. */
static two_layers small_graph(void)
{
    static float weight[2 * 3 * 3 * 4];
    uint64_t s = 5;
    for (int i = 0; i < 72; i++) weight[i] = (float)pl_test_noise(&s);
    two_layers n = {.store = pl_store_new()};
    pl_slot slot = {.name = "conv.weight",
                    .type = PL_TYPE(PL_F32, 2, 3, 3, 4),
                    .kind = PL_SLOT_PARAM,
                    .init = {.kind = PL_INIT_DATA, .data = weight}};
    int k = pl_store_add(n.store, &slot);
    n.g = pl_graph_new(n.store);
    pl_val x = pl_input(n.g, "image", PL_TYPE(PL_F32, 1, 5, 5, 4));
    pl_val y = pl_conv(n.g, x, pl_state(n.g, k), PL_NO_VAL, &(pl_conv_opts){.pad_lo = {1, 1}});
    pl_val noise = pl_random_normal(n.g, pl_rng_key(n.g), pl_val_type(n.g, y));
    pl_output(n.g, "image", pl_add(n.g, pl_relu(n.g, y), noise));
    return n;
}

/* The output has the name of an input, which ONNX does not allow; the draw is an input. */
TEST(onnx_a_written_graph_has_its_inputs_draws_and_weights)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    two_layers n = small_graph();
    pl_ow_source source = {.ctx = n.store, .type = slot_type, .read = slot_read};
    pl_ow_info info;
    pl_onnx *o;
    CHECK_OK(pl_graph_status(n.g));

    CHECK_OK(pl_ow_graph(n.g, &source, pl_test_path("small.onnx"), 0, &info));

    CHECK_INT(info.tensors, 1);
    CHECK_INT(info.draws, 1);
    CHECK_OK(pl_onnx_open(pl_test_path("small.onnx"), &o));
    CHECK_INT(pl_onnx_input_count(o), 2);
    CHECK(strcmp(pl_onnx_input(o, 0)->name, "image") == 0);
    CHECK(strcmp(pl_onnx_input(o, 1)->name, "draw.0") == 0);
    CHECK(strcmp(pl_onnx_output(o, 0)->name, "out.image") == 0);
    CHECK_INT(pl_onnx_output(o, 0)->dim[3], 2);
    const pl_ox_init *w = pl_ox_map_get(o->inits, "conv.weight");
    CHECK(w && w->about.weight);
    pl_onnx_free(o);
    pl_graph_free(n.g);
    pl_store_free(n.store);
}

/* Beyond a number of bytes the tensors lie beside the model, and are read from there. */
TEST(onnx_large_tensors_are_written_beside_the_model)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    two_layers n = small_graph();
    pl_ow_source source = {.ctx = n.store, .type = slot_type, .read = slot_read};
    pl_ow_info info;
    pl_onnx *o;
    pl_ox_host host;

    CHECK_OK(pl_ow_graph(n.g, &source, pl_test_path("big.onnx"), 4096, &info));

    CHECK(info.external);
    CHECK_OK(pl_onnx_open(pl_test_path("big.onnx"), &o));
    CHECK_OK(pl_ox_init_read(o, pl_ox_map_get(o->inits, "conv.weight"), &o->mem, &host));
    const float *weight = pl_store_slot(n.store, 0)->init.data;
    for (int i = 0; i < 72; i++) CHECK(host.d[i] == (double)weight[i]);
    pl_onnx_free(o);

    char *data;
    size_t bytes;
    CHECK_OK(pl_sys_read_file(pl_test_path("big.onnx.data"), 1 << 20, &data, &bytes));
    data[bytes / 2] ^= 1; /* the model has the checksum of its data */
    CHECK_OK(pl_sys_write_file(pl_test_path("big.onnx.data"), data, bytes));
    pl_sys_free(data);
    CHECK_INT(pl_onnx_open(pl_test_path("big.onnx"), &o), PL_ERR_FILE);
    CHECK_MSG(strstr(pl_error_text(), "big.onnx.data is damaged"), "%s", pl_error_text());
    CHECK_INT(unlink(pl_test_path("big.onnx.data")), 0);
    CHECK_INT(pl_onnx_open(pl_test_path("big.onnx"), &o), PL_ERR_FILE);
    pl_graph_free(n.g);
    pl_store_free(n.store);
}

/* Nothing is left of a file that cannot be written. */
TEST(onnx_an_op_without_onnx_form_is_named)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 1, 4, 4, 2)), grad;
    pl_scope_push(g, "pool");
    pl_val y = pl_max_pool(g, x, &(pl_pool_opts){.kernel = {2, 2}});
    pl_scope_pop(g);
    pl_grad(g, pl_sum(g, y, PL_AXES_ALL, false), &x, 1, &grad);
    pl_output(g, "slope", grad);
    pl_ow_source source = {.ctx = store, .type = slot_type, .read = slot_read};
    pl_ow_info info;

    CHECK_INT(pl_ow_graph(g, &source, pl_test_path("none.onnx"), 0, &info), PL_ERR_UNSUPPORTED);

    CHECK(strstr(pl_error_text(), "max_pool"));
    CHECK(strstr(pl_error_text(), "pool"));
    CHECK(access(pl_test_path("none.onnx"), F_OK) != 0);
    pl_graph_free(g);
    pl_store_free(store);
}
