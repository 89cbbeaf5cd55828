/* test_pad.c - rows of products padded to whole units of tensor cores: every product has whole
 * rows, nothing between a product, its loss and its gradients is copied, results keep their bits.
 */
#include "pass/pass.h"
#include "plimsoll.h"
#include "plimsoll_nn.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"

#include <string.h>

typedef struct net {
    pl_store *s;
    pl_graph *g;
} net;

typedef struct net_opts {
    int64_t batch, tokens, width, hidden, classes;
    double smoothing;
    bool weight_across; /* the last weight is [hidden, classes] */
    bool no_bias;       /* the last layer has none */
    bool sliced;        /* x and w1 are the first columns of wider inputs */
} net_opts;

/* A hidden layer, a last layer, the loss and the gradients. */
static net net_new(const net_opts *o)
{
    net h = {.s = pl_store_new()};
    pl_graph *g = h.g = pl_graph_new(h.s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, o->batch, o->tokens, o->width + 2 * o->sliced));
    if (o->sliced) x = pl_slice(g, x, -1, 0, o->width, 1);
    pl_val labels = pl_input(g, "labels", PL_TYPE(PL_I32, o->batch, o->tokens));
    pl_val w1 = pl_input(g, "w1", PL_TYPE(PL_F32, o->hidden, o->width + 2 * o->sliced));
    if (o->sliced) w1 = pl_slice(g, w1, -1, 0, o->width, 1);
    pl_val b1 = pl_input(g, "b1", PL_TYPE(PL_F32, o->hidden));
    int64_t last[2] = {o->weight_across ? o->hidden : o->classes,
                       o->weight_across ? o->classes : o->hidden};
    pl_val w2 = pl_input(g, "w2", PL_TYPE(PL_F32, last[0], last[1]));
    pl_val b2 = pl_input(g, "b2", PL_TYPE(PL_F32, o->classes));
    pl_val y = pl_silu(g, pl_linear(g, x, w1, b1)), in[5] = {x, w1, b1, w2, b2}, grad[5];
    pl_val logits = o->weight_across ? pl_add(g, pl_matmul(g, y, w2, false, false), b2)
                                     : pl_linear(g, y, w2, o->no_bias ? PL_NO_VAL : b2);
    pl_val loss = pl_loss_cross_entropy_with(
        g, logits, labels, (pl_cross_entropy){.smoothing = o->smoothing, .ignore = -1});
    pl_grad(g, loss, in, 5 - o->no_bias, grad);
    pl_output(g, "loss", loss);
    for (int i = 0; i < 5 - o->no_bias; i++)
        pl_output(g, ((const char *[]){"dx", "dw1", "db1", "dw2", "db2"})[i], grad[i]);
    return h;
}

static void net_free(net *h)
{
    pl_graph_free(h->g);
    pl_store_free(h->s);
}

static bool is_op(const pl_graph *g, uint32_t n, const char *name)
{
    return strcmp(pl_node_get(g, n)->op->name, name) == 0;
}

static int count(const pl_graph *g, const char *name)
{
    int n = 0;
    for (uint32_t i = 1; i < g->n_nodes; i++) n += is_op(g, i, name);
    return n;
}

/* Number of products of which a row is not a multiple of `unit` elements. */
static int odd_products(const pl_graph *g, int64_t unit)
{
    int odd = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        if (!is_op(g, n, "matmul")) continue;
        const pl_node_rec *r = pl_node_get(g, n);
        const uint32_t vals[3] = {pl_node_in(g, n)[0], pl_node_in(g, n)[1], r->out};
        bool whole = true;
        for (int i = 0; i < 3; i++) {
            const pl_type *t = pl_type_of(g, vals[i]);
            whole &= t->dim[t->rank - 1] % unit == 0;
        }
        odd += !whole;
    }
    return odd;
}

/* Most elements of a result of this op. */
static int64_t largest(const pl_graph *g, const char *name)
{
    int64_t most = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        int64_t elems = pl_type_elems(pl_type_of(g, pl_node_get(g, n)->out));
        if (is_op(g, n, name) && elems > most) most = elems;
    }
    return most;
}

/* Most elements of a slice that is not a view. */
static int64_t largest_copy(const pl_graph *g)
{
    int64_t most = 0, at;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        pl_type in[8], out[PL_MAX_OUT];
        pl_call c;
        if (!is_op(g, n, "slice")) continue;
        pl_node_call(g, n, in, out, &c);
        if (!pl_node_get(g, n)->op->view(&c, &at) && pl_type_elems(&out[0]) > most)
            most = pl_type_elems(&out[0]);
    }
    return most;
}

/* Runs the graph on waves; labels are i mod classes, and -1 in row 3. */
static graph_eval *run(const pl_graph *g, int64_t classes)
{
    graph_eval *e = graph_eval_new(g, true);
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        pl_val v = {g->nodes[n].out};
        if (!(g->nodes[n].op->flags & PL_OP_SOURCE)) continue;
        const char *name = *(const char *const *)g->nodes[n].attr;
        pl_type t = pl_val_type(g, v);
        if (t.dtype == PL_F32) graph_eval_wave(e, v, 0.37 + 0.1 * name[strlen(name) - 1]);
        for (int64_t k = 0; t.dtype == PL_I32 && k < pl_type_elems(&t); k++)
            ((int32_t *)graph_eval_at(e, v))[k] = k == 3 ? -1 : (int32_t)(k % classes);
    }
    if (graph_eval_run(e) == PL_OK) return e;
    graph_eval_free(e);
    return NULL;
}

static pl_val output_at(const pl_graph *g, int k)
{
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if (g->nodes[n].op->flags & PL_OP_EFFECT && k-- == 0) return (pl_val){pl_node_in(g, n)[0]};
    return PL_NO_VAL;
}

static void check_same(const net_opts *o)
{
    net a = net_new(o), b = net_new(o);
    pl_pass_opts opts = {.low = PL_F32, .tf32 = true, .pads_all = true};
    CHECK(pl_passes_run(&a.g, &opts) == PL_OK);
    opts.pads = true;
    CHECK(pl_passes_run(&b.g, &opts) == PL_OK);
    CHECK(odd_products(a.g, 4) > 0);
    CHECK_INT(odd_products(b.g, 4), 0);
    CHECK_INT(count(a.g, "matmul"), count(b.g, "matmul"));
    graph_eval *ea = run(a.g, o->classes), *eb = run(b.g, o->classes);
    CHECK(ea && eb);
    for (int k = 0; ea && eb && k < 6; k++) {
        pl_val va = output_at(a.g, k), vb = output_at(b.g, k);
        pl_type t = pl_val_type(a.g, va);
        CHECK(memcmp(graph_eval_at(ea, va), graph_eval_at(eb, vb), pl_type_bytes(&t)) == 0);
    }
    graph_eval_free(ea);
    graph_eval_free(eb);
    net_free(&a);
    net_free(&b);
}

TEST(padded_products_keep_their_bits)
{
    net_opts o = {.batch = 2, .tokens = 5, .width = 10, .hidden = 14, .classes = 13};
    check_same(&o);
    o.sliced = true; /* of 12 columns, whose last two are not zero */
    o.hidden = 16;
    check_same(&o);
    o.sliced = false;
    o.hidden = 14;
    o.weight_across = true;
    o.smoothing = 0.1;
    check_same(&o);
    o.width = 12;
    o.classes = 4099; /* rows that are padded to whole lines */
    check_same(&o);
}

/* Logits, their loss and its gradient share one padded row: besides the weight and its gradient
 * nothing is padded or sliced. Chunks of rows share one padded weight. */
TEST(padded_logits_are_never_copied)
{
    const net_opts o = {
        .batch = 4, .tokens = 1024, .width = 64, .hidden = 256, .classes = 50257, .no_bias = true};
    for (int i = 0; i < 2; i++) {
        net h = net_new(&o);
        pl_pass_opts opts = {.low = PL_F32, .tf32 = true, .pads = true};
        opts.chunk_bytes = i == 0 ? (int64_t)1 << 40 : 0;
        CHECK(pl_passes_run(&h.g, &opts) == PL_OK);
        CHECK_INT(odd_products(h.g, 64), 0);
        CHECK_INT(count(h.g, "pad"), 1);
        CHECK_INT(largest(h.g, "pad"), 50304 * (int64_t)256);
        CHECK_INT(largest_copy(h.g), 0);
        net_free(&h);
    }
}

/* Whole rows, and products too small to gain, stay as they are. */
TEST(padding_leaves_other_products_alone)
{
    net_opts o = {.batch = 2, .tokens = 64, .width = 64, .hidden = 128, .classes = 4000};
    for (int i = 0; i < 2; i++) {
        net a = net_new(&o), b = net_new(&o);
        pl_pass_opts opts = {.low = PL_F32, .tf32 = true};
        CHECK(pl_passes_run(&a.g, &opts) == PL_OK);
        opts.pads = true;
        CHECK(pl_passes_run(&b.g, &opts) == PL_OK);
        CHECK_INT(pl_graph_nodes(a.g), pl_graph_nodes(b.g));
        CHECK_INT(count(b.g, "pad"), 0);
        net_free(&a);
        net_free(&b);
        o.classes = 13;
    }
}

/* Attention over heads of an odd size, and its gradients: of rows of a product, or (masked) with a
 * mask. */
static net attention_net(bool masked, int64_t d)
{
    enum { B = 2, N = 6, H = 3 };
    net h = {.s = pl_store_new()};
    pl_graph *g = h.g = pl_graph_new(h.s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_BF16, B, N, 3 * H * d)), part[3], dx[1];
    for (int i = 0; i < 3; i++)
        part[i] =
            pl_reshape(g, pl_slice(g, x, 2, i * H * d, (i + 1) * H * d, 1), PL_DIMS(B, N, H, d));
    pl_val mask = masked ? pl_input(g, "mask", PL_TYPE(PL_BF16, 1, H, N, N)) : PL_NO_VAL;
    pl_val o = masked ? pl_attention_masked(g, part[0], part[1], part[2], mask, 0, false)
                      : pl_attention(g, part[0], part[1], part[2], 0, true);
    pl_grad(g, pl_sum(g, pl_square(g, pl_cast(g, o, PL_F32)), PL_AXES_ALL, false), &x, 1, dx);
    pl_output(g, "o", o);
    pl_output(g, "dx", dx[0]);
    return h;
}

static void wave_all(graph_eval *e)
{
    for (uint32_t n = 1; n < e->g->n_nodes; n++)
        if (e->g->nodes[n].op->flags & PL_OP_SOURCE)
            graph_eval_wave(e, (pl_val){e->g->nodes[n].out}, 0.37);
}

static int64_t head_of(const pl_graph *g, const char *name)
{
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if (is_op(g, n, name)) return pl_type_of(g, pl_node_in(g, n)[0])->dim[3];
    return 0;
}

TEST(padded_heads_keep_their_bits)
{
    for (int masked = 0; masked < 2; masked++) {
        net a = attention_net(masked, 10), b = attention_net(masked, 10);
        pl_pass_opts opts = {.low = PL_F32, .pads_all = true};
        CHECK(pl_passes_run(&a.g, &opts) == PL_OK);
        opts.pads = true;
        CHECK(pl_passes_run(&b.g, &opts) == PL_OK);
        CHECK_INT(head_of(b.g, masked ? "attention_masked" : "attention"), 16);
        CHECK_INT(head_of(b.g, masked ? "attention_masked_bwd" : "attention_bwd"), 16);
        graph_eval *ea = graph_eval_new(a.g, true), *eb = graph_eval_new(b.g, true);
        wave_all(ea);
        wave_all(eb);
        CHECK(graph_eval_run(ea) == PL_OK && graph_eval_run(eb) == PL_OK);
        for (int k = 0; k < 2; k++) {
            pl_val va = output_at(a.g, k), vb = output_at(b.g, k);
            pl_type t = pl_val_type(a.g, va);
            CHECK(memcmp(graph_eval_at(ea, va), graph_eval_at(eb, vb), pl_type_bytes(&t)) == 0);
        }
        graph_eval_free(ea);
        graph_eval_free(eb);
        net_free(&a);
        net_free(&b);
    }
}
