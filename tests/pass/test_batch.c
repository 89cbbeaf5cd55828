/* test_batch.c - the batch analysis: models with independent samples are proven independent;
 * other models get the name of the op that couples samples; and the proofs hold in numbers. */
#include "base/dtype.h"
#include "base/err.h"
#include "ir/text.h"
#include "pass/batch.h"
#include "plimsoll_optim.h"
#include "plimsoll_recipe.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"
#include "tests/workloads/workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef pl_val (*model_fn)(pl_nn *m, int64_t batch); /* returns the loss */

/* One build of a model with its gradients. */
typedef struct built {
    pl_store *store;
    pl_graph *g;
    pl_nn *m;
    pl_val *goals;
    int n;
} built;

static pl_status build(model_fn model, int64_t batch, built *b)
{
    memset(b, 0, sizeof *b);
    b->store = pl_store_new();
    b->g = pl_graph_new(b->store);
    b->m = pl_nn_new(b->g, true);
    pl_optim o = PL_OPTIM_INIT;
    pl_grads grads;
    memset(&grads, 0, sizeof grads);
    pl_val loss = model(b->m, batch);
    pl_optim_gradients(b->m, loss, &o, &grads);
    PL_TRY(pl_nn_finish(b->m));
    b->goals = pl_arena_new(&b->g->arena, pl_val, (size_t)grads.n + 1);
    for (int i = 0; i < grads.n; i++) b->goals[b->n++] = grads.grad[i];
    b->goals[b->n++] = loss;
    return PL_OK;
}

static void release(built *b)
{
    pl_nn_free(b->m);
    pl_graph_free(b->g);
    pl_store_free(b->store);
}

static pl_status analyse(model_fn model, int64_t batch, int64_t parts, pl_batch_report *r)
{
    built a, b;
    pl_status rc = build(model, batch, &a);
    if (rc == PL_OK) {
        rc = build(model, batch / parts, &b);
        if (rc == PL_OK) rc = pl_batch_analyse(a.g, b.g, batch, parts, false, a.goals, a.n, r);
        release(&b);
    }
    release(&a);
    return rc;
}

static bool proven(model_fn model, char *text, size_t cap)
{
    static const int sizes[][2] = {{8, 2}, {8, 4}, {12, 3}};
    for (int i = 0; i < 3; i++) {
        pl_batch_report r;
        pl_status rc = analyse(model, sizes[i][0], sizes[i][1], &r);
        if (rc != PL_OK) snprintf(text, cap, "%s: %s", pl_status_name(rc), pl_error_text());
        if (rc != PL_OK) return false;
        pl_batch_text(&r, text, cap);
        if (!r.proven) return false;
    }
    return true;
}

#define CHECK_PROVEN(model)                                                                        \
 do {                                                                                              \
  char text_[2048] = "";                                                                           \
  CHECK_MSG(proven(model, text_, sizeof text_), "%s: %s", #model, text_);                          \
 } while (0)

#define CHECK_COUPLED(model, op, reason)                                                           \
 do {                                                                                              \
  char text_[2048];                                                                                \
  pl_batch_report r_;                                                                              \
  CHECK_OK(analyse(model, 8, 2, &r_));                                                             \
  pl_batch_text(&r_, text_, sizeof text_);                                                         \
  CHECK_MSG(!r_.proven, "%s counts as uncoupled", #model);                                         \
  CHECK_MSG(strstr(text_, op) && strstr(text_, reason), "%s: %s", #model, text_);                  \
 } while (0)

/* ---- models ----------------------------------------------------------------------------- */
static pl_val image(pl_nn *m, int64_t batch)
{
    return pl_input(m->g, "x", PL_TYPE(PL_F32, batch, 8, 8, 3));
}

static pl_val target(pl_nn *m, int64_t batch)
{
    return pl_input(m->g, "y", PL_TYPE(PL_F32, batch, 4));
}

static pl_val mlp(pl_nn *m, int64_t batch)
{
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, batch, 5));
    x = pl_gelu(m->g, pl_nn_linear(m, x, "a", 6, (pl_nn_lin){0}));
    return pl_loss_mse(m->g, pl_nn_linear(m, x, "b", 4, (pl_nn_lin){0}), target(m, batch));
}

static pl_val convolutions(pl_nn *m, int64_t batch)
{
    pl_graph *g = m->g;
    pl_val x = pl_relu(g, pl_nn_conv2d(m, image(m, batch), "c1", 8, work_conv3()));
    x = pl_nn_group_norm(m, x, "n1", 2, (pl_nn_norm){0});
    pl_val skip = x;
    x = pl_max_pool(g, x, &(pl_pool_opts){.kernel = {2, 2}});
    x = pl_nn_conv2d(m, x, "c2", 8, work_conv3());
    x = pl_nn_upsample_nearest(g, pl_leaky_relu(g, x, 0.1), 2);
    x = pl_concat(g, 2, (pl_val[]){x, skip}, 3);
    x = pl_nn_dropout(m, pl_nn_conv2d(m, x, "c3", 4, work_conv3_down()), 0.3);
    return pl_loss_mse(g, pl_nn_global_average(g, x), target(m, batch));
}

static pl_val transformer(pl_nn *m, int64_t batch)
{
    pl_graph *g = m->g;
    pl_val ids = pl_input(g, "ids", PL_TYPE(PL_I64, batch, 6));
    pl_val x = pl_nn_embedding(m, ids, "e", 11, 8);
    pl_val position = pl_nn_param(m, "p", 2, (int64_t[]){6, 8}, pl_nn_normal(0, 1));
    x = pl_add(g, x, position);
    pl_val h = pl_nn_layer_norm(m, x, "n1", (pl_nn_norm){0});
    x = pl_add(g, x, pl_nn_multi_head_attention(m, h, h, "att", 2));
    h = pl_nn_rms_norm(m, x, "n2", (pl_nn_norm){0});
    x = pl_add(g, x, pl_nn_geglu(m, h, "ff", 8));
    pl_val logits = pl_nn_linear(m, x, "out", 11, (pl_nn_lin){0});
    pl_val labels = pl_input(g, "labels", PL_TYPE(PL_I64, batch, 6));
    return pl_loss_cross_entropy(g, logits, labels);
}

/* A penalty on weights beside the mean: it does not depend on the batch. */
static pl_val penalised(pl_nn *m, int64_t batch)
{
    pl_val loss = mlp(m, batch);
    pl_val w = pl_nn_param(m, "w", 1, (int64_t[]){3}, pl_nn_normal(0, 1));
    return pl_add(m->g, loss, pl_sum(m->g, pl_square(m->g, w), PL_AXES_ALL, false));
}

/* Two batches concatenated, one network, split again: a discriminator's step. */
static pl_val joined(pl_nn *m, int64_t batch)
{
    pl_graph *g = m->g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, batch, 5));
    pl_val z = pl_input(g, "z", PL_TYPE(PL_F32, batch, 5)), out[2];
    pl_val h =
        pl_tanh(g, pl_nn_linear(m, pl_concat(g, 2, (pl_val[]){x, z}, 0), "a", 4, (pl_nn_lin){0}));
    pl_split(g, h, 0, 2, out);
    return pl_loss_mse(g, out[0], out[1]);
}

static pl_val normalised(pl_nn *m, int64_t batch)
{
    pl_val x = pl_nn_conv2d(m, image(m, batch), "c1", 4, work_conv3());
    x = pl_nn_batch_norm(m, x, "norm", (pl_nn_norm){0});
    return pl_loss_mse(m->g, pl_nn_global_average(m->g, x), target(m, batch));
}

static pl_val error_rows(pl_nn *m, int64_t batch)
{
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, batch, 5));
    x = pl_nn_linear(m, x, "b", 4, (pl_nn_lin){0});
    return pl_mean(m->g, pl_loss_huber(m->g, x, target(m, batch), 1), PL_AXIS(1), false);
}

static pl_val mined(pl_nn *m, int64_t batch)
{
    return pl_loss_hard_mining(m->g, error_rows(m, batch), 0.5, 2);
}

static pl_val summed(pl_nn *m, int64_t batch)
{
    return pl_sum(m->g, error_rows(m, batch), PL_AXES_ALL, false);
}

static pl_val rooted(pl_nn *m, int64_t batch)
{
    return pl_sqrt(m->g, pl_mean(m->g, error_rows(m, batch), PL_AXES_ALL, false));
}

static pl_val worst(pl_nn *m, int64_t batch)
{
    return pl_max_over(m->g, error_rows(m, batch), PL_AXES_ALL, false);
}

/* A mean over the rows that count; the batch decides their number. */
static pl_val masked_mean(pl_nn *m, int64_t batch)
{
    pl_val w = pl_input(m->g, "w", PL_TYPE(PL_F32, batch));
    pl_val e = pl_sum(m->g, pl_mul(m->g, error_rows(m, batch), w), PL_AXES_ALL, false);
    return pl_div(m->g, e, pl_sum(m->g, w, PL_AXES_ALL, false));
}

/* Every sample against its neighbour in the batch. */
static pl_val neighbours(pl_nn *m, int64_t batch)
{
    pl_val e = error_rows(m, batch);
    pl_val f = pl_flip(m->g, e, PL_AXIS(0));
    return pl_mean(m->g, pl_mul(m->g, e, f), PL_AXES_ALL, false);
}

/* Similarities of all pairs: a contrastive loss. */
static pl_val contrastive(pl_nn *m, int64_t batch)
{
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, batch, 5));
    x = pl_nn_linear(m, x, "b", 4, (pl_nn_lin){0});
    pl_val s = pl_matmul(m->g, x, x, false, true);
    return pl_mean(m->g, pl_log_softmax(m->g, s, 1), PL_AXES_ALL, false);
}

static pl_val one_draw(pl_nn *m, int64_t batch)
{
    pl_val u = pl_random_uniform(m->g, pl_nn_key(m), PL_TYPE(PL_F32, 5));
    pl_val x = pl_input(m->g, "x", PL_TYPE(PL_F32, batch, 5));
    x = pl_nn_linear(m, pl_add(m->g, x, u), "b", 4, (pl_nn_lin){0});
    return pl_loss_mse(m->g, x, target(m, batch));
}

static pl_val numbered(pl_nn *m, int64_t batch)
{
    pl_val e = error_rows(m, batch);
    pl_val i = pl_iota(m->g, pl_val_type(m->g, e), 0);
    return pl_mean(m->g, pl_mul(m->g, e, i), PL_AXES_ALL, false);
}

/* A constant that is correct for one batch size only. */
static pl_val tempered(pl_nn *m, int64_t batch)
{
    pl_val e = pl_exp(m->g, pl_scale(m->g, error_rows(m, batch), (double)batch));
    return pl_mean(m->g, e, PL_AXES_ALL, false);
}

static pl_val lgt_model(pl_nn *m, int64_t batch)
{
    lgt_config c = lgt_tiny;
    pl_graph *g = m->g;
    pl_type type = PL_TYPE(PL_F32, batch, c.latent.rows, c.latent.columns, 4);
    pl_val x = pl_input(g, "x", type), y = pl_input(g, "target", type);
    pl_val t = pl_input(g, "t", PL_TYPE(PL_F32, batch));
    pl_val style = pl_input(g, "style", PL_TYPE(PL_I64, batch));
    pl_val uncond = pl_input(g, "uncond", PL_TYPE(PL_BOOL, batch, 1));
    c.batch = batch;
    lgt_style s = {.ids = style, .uncond = uncond, .first = PL_NO_VAL, .noise = PL_NO_VAL};
    return pl_loss_mse(g, lgt_unet(m, &c, x, t, &s), y);
}

static pl_val wan_model(pl_nn *m, int64_t batch)
{
    wan_config c = wan_tiny;
    pl_graph *g = m->g;
    c.batch = batch;
    pl_val x = pl_input(g, "latents", PL_TYPE(PL_F32, batch, c.latent, c.latent, 4));
    pl_val t = pl_input(g, "t", PL_TYPE(PL_I64, batch));
    pl_val text = pl_input(g, "text", PL_TYPE(PL_F32, batch, c.text_tokens, c.text_dim));
    pl_val lifted = pl_nn_conv3d(m, pl_unsqueeze(g, x, 1), "lift", 16, (pl_nn_conv){.kernel = 1});
    pl_val goal = pl_squeeze(g, wan_teacher(m, &c, lifted, t, text), 1);
    pl_val out = work_conv1(m, wan_student(m, &c, x, t, text), "project", 16);
    return pl_loss_mse(g, out, pl_stop_gradient(g, goal));
}

/* ---- labels, held against numbers ------------------------------------------------------- */
/* One case of an op, run with its reference kernel. */
typedef struct trial {
    const pl_op *op;
    const pl_case *cs;
    pl_store *store;
    pl_graph *g;
    graph_eval *e;
    pl_val in[PL_CASE_IN], out[PL_MAX_OUT];
    int n_in;
    pl_type in_type[PL_CASE_IN], out_type[PL_MAX_OUT];
    pl_labels labels;
    uint64_t noise;
} trial;

static void draw(trial *t, int i, int64_t at)
{
    double lo = t->cs->range[i].lo, hi = t->cs->range[i].hi,
           u = 0.5 + 0.5 * pl_test_noise(&t->noise);
    bool is_float = pl_dtype_is_float(t->in_type[i].dtype);
    if (lo == 0 && hi == 0) lo = is_float ? -1 : 0, hi = 1;
    double v = lo + u * (hi - lo);
    if (!is_float) v = floor(lo + u * (hi - lo + 1));
    if (!is_float && v > hi) v = hi;
    pl_elem_set(t->in_type[i].dtype, graph_eval_at(t->e, t->in[i]), at, v);
}

static bool trial_new(trial *t, const pl_op *op, const pl_case *cs)
{
    memset(t, 0, sizeof *t);
    t->op = op;
    t->cs = cs;
    t->noise = 7;
    t->store = pl_store_new();
    t->g = pl_graph_new(t->store);
    for (; t->n_in < PL_CASE_IN && cs->in[t->n_in]; t->n_in++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", t->n_in);
        const char *text = cs->in[t->n_in];
        if (pl_type_parse(text, strlen(text), &t->in_type[t->n_in]) != PL_OK) return false;
        t->in[t->n_in] = pl_input(t->g, name, t->in_type[t->n_in]);
    }
    void *attr = pl_arena_alloc(&t->g->arena, op->attr_bytes + 1);
    if (pl_attr_parse(op, cs->attr, strlen(cs->attr), t->g, attr) != PL_OK) return false;
    pl_node n = pl_build(t->g, op, attr, t->n_in, t->in, t->out);
    if (!n.id) return false;
    pl_call c;
    pl_node_call(t->g, n.id, t->in_type, t->out_type, &c);
    op->labels(&c, &t->labels);
    t->e = graph_eval_new(t->g, true);
    for (int i = 0; i < t->n_in; i++)
        for (int64_t k = 0; k < pl_type_elems(&t->in_type[i]); k++) draw(t, i, k);
    return t->e && graph_eval_run(t->e) == PL_OK;
}

static void trial_free(trial *t)
{
    graph_eval_free(t->e);
    pl_graph_free(t->g);
    pl_store_free(t->store);
}

/* Coordinate of element `at` along the dimension with the label; -1 if there is none. */
static int64_t place(const pl_type *t, const int8_t *row, int label, int64_t at)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        int64_t c = at % t->dim[d];
        if (row[d] == label) return c;
        at /= t->dim[d];
    }
    return -1;
}

static const int8_t *row_of(const trial *t, int i)
{
    return t->labels.in[i < PL_LABEL_IN ? i : PL_LABEL_IN - 1];
}

/* New values at index 0 of a label must not change the outputs at other indices. */
static bool stays_apart(trial *t, int label)
{
    double *before[PL_MAX_OUT];
    bool same = true;
    for (int k = 0; k < t->op->n_out; k++) {
        int64_t n = pl_type_elems(&t->out_type[k]);
        before[k] = calloc((size_t)n + 1, sizeof(double));
        for (int64_t i = 0; i < n; i++)
            before[k][i] = pl_elem_get(t->out_type[k].dtype, graph_eval_at(t->e, t->out[k]), i);
    }
    for (int i = 0; i < t->n_in; i++)
        for (int64_t k = 0; k < pl_type_elems(&t->in_type[i]); k++)
            if (place(&t->in_type[i], row_of(t, i), label, k) == 0) draw(t, i, k);
    same = graph_eval_run(t->e) == PL_OK;
    for (int k = 0; k < t->op->n_out; k++) {
        for (int64_t i = 0; i < pl_type_elems(&t->out_type[k]); i++) {
            double now = pl_elem_get(t->out_type[k].dtype, graph_eval_at(t->e, t->out[k]), i);
            if (place(&t->out_type[k], t->labels.out[k], label, i) > 0) same &= now == before[k][i];
        }
        free(before[k]);
    }
    return same;
}

/* Twice the inputs of the mask must give twice the first output. */
static bool scales(trial *t, uint32_t mask)
{
    const pl_type *y = &t->out_type[0];
    if (!pl_dtype_is_float(y->dtype)) return true; /* small integers overflow */
    int64_t n = pl_type_elems(y);
    double *before = calloc((size_t)n + 1, sizeof *before), off = 0;
    for (int64_t i = 0; i < n; i++)
        before[i] = pl_elem_get(y->dtype, graph_eval_at(t->e, t->out[0]), i);
    for (int i = 0; i < t->n_in; i++) {
        if (!(mask >> i & 1)) continue;
        void *x = graph_eval_at(t->e, t->in[i]);
        for (int64_t k = 0; k < pl_type_elems(&t->in_type[i]); k++)
            pl_elem_set(t->in_type[i].dtype, x, k, 2 * pl_elem_get(t->in_type[i].dtype, x, k));
    }
    bool ok = graph_eval_run(t->e) == PL_OK;
    for (int64_t i = 0; i < n; i++) {
        double now = pl_elem_get(y->dtype, graph_eval_at(t->e, t->out[0]), i);
        double d = fabs(now - 2 * before[i]) / (1 + fabs(now));
        if (d > off) off = d;
    }
    free(before);
    return ok && off < 1e-4;
}

static uint32_t present(const trial *t, uint32_t mask)
{
    return mask & (((uint32_t)1 << t->n_in) - 1);
}

static void check_labels(const pl_op *op, int index)
{
    trial t;
    if (trial_new(&t, op, &op->cases[index])) {
        for (int label = 1; label < 32; label++)
            if (!stays_apart(&t, label))
                pl_test_fail(__FILE__, __LINE__, "%s case %d mixes label %d", op->name, index,
                             label);
        uint32_t times = present(&t, t.labels.times), plus = present(&t, t.labels.plus);
        for (int i = 0; i < t.n_in; i++)
            if ((times >> i & 1) && !scales(&t, (uint32_t)1 << i | plus))
                pl_test_fail(__FILE__, __LINE__, "%s case %d: not linear in %d", op->name, index,
                             i);
        if (!times && plus && !scales(&t, plus))
            pl_test_fail(__FILE__, __LINE__, "%s case %d: not linear in the sum", op->name, index);
    } else {
        pl_test_fail(__FILE__, __LINE__, "%s case %d: %s", op->name, index, pl_error_text());
    }
    trial_free(&t);
}

TEST(batch_labels_are_true)
{
    int n = 0;
    for (int i = 0; i < pl_op_count(); i++) {
        const pl_op *op = pl_op_at(i);
        if (!op->labels) continue;
        n++;
        for (int c = 0; op->cases[c].attr; c++) check_labels(op, c);
    }

    CHECK(n >= 20);
}

/* ---- tests ------------------------------------------------------------------------------ */
TEST(batch_analysis_accepts_layers_without_coupling)
{
    CHECK_PROVEN(mlp);
    CHECK_PROVEN(convolutions);
    CHECK_PROVEN(transformer);
    CHECK_PROVEN(penalised);
    CHECK_PROVEN(joined);
}

TEST(batch_analysis_accepts_workloads_without_coupling)
{
    CHECK_PROVEN(lgt_model);
    CHECK_PROVEN(wan_model);
}

TEST(batch_analysis_names_what_couples_samples)
{
    CHECK_COUPLED(normalised, "norm: moments", "mean and variance");
    CHECK_COUPLED(normalised, "norm: broadcast", "flows back");
    CHECK_COUPLED(mined, "sort", "mixes");
    CHECK_COUPLED(rooted, "sqrt", "nonlinear");
    CHECK_COUPLED(worst, "max_over", "compares");
    CHECK_COUPLED(masked_mean, "div", "nonlinear");
    CHECK_COUPLED(neighbours, "flip", "reorders");
    CHECK_COUPLED(contrastive, "matmul", "mixes");
    CHECK_COUPLED(one_draw, "random_uniform", "once");
    CHECK_COUPLED(numbered, "iota", "numbers");
    CHECK_COUPLED(tempered, "exp", "follows");
    CHECK_COUPLED(summed, "", "not a mean");
}

TEST(batch_analysis_refuses_two_different_graphs)
{
    built a, b;
    pl_batch_report r;
    CHECK_OK(build(mlp, 8, &a));
    CHECK_OK(build(convolutions, 4, &b));
    pl_status other = pl_batch_analyse(a.g, b.g, 8, 2, false, a.goals, a.n, &r);
    pl_status odd = pl_batch_analyse(a.g, a.g, 8, 3, false, a.goals, a.n, &r);
    release(&a);
    release(&b);

    CHECK_INT(other, PL_ERR_GRAPH);
    CHECK_INT(odd, PL_ERR_ARG);
}
