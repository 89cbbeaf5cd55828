/* test_chunk.c - products with very large results in chunks of rows: no value of that size is left,
 * and results are those of the whole product. */
#include "pass/pass.h"
#include "plimsoll.h"
#include "plimsoll_nn.h"
#include "tests/lib/graph_eval.h"
#include "tests/lib/test.h"

#include <math.h>
#include <string.h>

typedef struct head_net {
    pl_store *s;
    pl_graph *g;
} head_net;

/* Which variation of the network: rows, what else reads the logits. */
typedef struct head_opts {
    int64_t batch, tokens, classes, width;
    bool argmax, cap, logits, coupled;
    double smoothing;
} head_opts;

/* A last layer with bias, its loss and its gradients; rows are batch * tokens. */
static head_net head_new(const head_opts *o)
{
    head_net h = {.s = pl_store_new()};
    pl_graph *g = h.g = pl_graph_new(h.s);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, o->batch, o->tokens, o->width));
    pl_val labels = pl_input(g, "labels", PL_TYPE(PL_I32, o->batch, o->tokens));
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, o->classes, o->width));
    pl_val b = pl_input(g, "b", PL_TYPE(PL_F32, o->classes)), grad[3], in[3] = {x, w, b};
    pl_val logits = pl_linear(g, x, w, b);
    if (o->cap) { /* a map of the rows themselves */
        logits = pl_tanh(g, pl_reshape(g, logits, PL_DIMS(-1, o->classes)));
        labels = pl_reshape(g, labels, PL_DIMS(-1));
    }
    pl_val loss = pl_loss_cross_entropy_with(
        g, logits, labels, (pl_cross_entropy){.smoothing = o->smoothing, .ignore = -1});
    pl_val minimised = o->coupled ? pl_square(g, loss) : loss;
    pl_grad(g, minimised, in, 3, grad);
    pl_output(g, "loss", loss);
    for (int i = 0; i < 3; i++) pl_output(g, ((const char *[]){"dx", "dw", "db"})[i], grad[i]);
    if (o->argmax) pl_output(g, "best", pl_argmax(g, logits, -1));
    if (o->logits) pl_output(g, "logits", logits);
    return h;
}

static void head_free(head_net *h)
{
    pl_graph_free(h->g);
    pl_store_free(h->s);
}

/* Largest value of the graph, in elements, constants aside: kernels hold them as numbers. */
static int64_t largest(const pl_graph *g)
{
    int64_t most = 0;
    for (uint32_t v = 1; v < g->n_vals; v++) {
        int64_t n = pl_type_elems(pl_type_of(g, v));
        if (pl_node_get(g, pl_producer(g, v))->op->flags & PL_OP_FILL) continue;
        most = n > most ? n : most;
    }
    return most;
}

static bool passes(head_net *h, int64_t chunk_bytes)
{
    pl_pass_opts o = {.low = PL_F32, .chunk_bytes = chunk_bytes};
    return pl_passes_run(&h->g, &o) == PL_OK;
}

/* Runs the graph on waves; labels are i mod classes, and -1 in row 3. */
static graph_eval *run(const pl_graph *g, int64_t classes)
{
    graph_eval *e = graph_eval_new(g, true);
    static const char *const names[] = {"x", "w", "b", "labels"};
    for (int i = 0; i < 4; i++)
        for (uint32_t n = 1; n < g->n_nodes; n++) {
            pl_val v = {g->nodes[n].out};
            if (!(g->nodes[n].op->flags & PL_OP_SOURCE)) continue;
            if (strcmp(*(const char *const *)g->nodes[n].attr, names[i]) != 0) continue;
            if (i < 3) graph_eval_wave(e, v, 0.37 + 0.1 * i);
            pl_type t = pl_val_type(g, v);
            for (int64_t k = 0; i == 3 && k < pl_type_elems(&t); k++)
                ((int32_t *)graph_eval_at(e, v))[k] = k == 3 ? -1 : (int32_t)(k % classes);
        }
    if (graph_eval_run(e) == PL_OK) return e;
    graph_eval_free(e);
    return NULL;
}

/* The value that output number k of the graph reads. */
static pl_val output_at(const pl_graph *g, int k)
{
    for (uint32_t n = 1; n < g->n_nodes; n++)
        if (g->nodes[n].op->flags & PL_OP_EFFECT && k-- == 0) return (pl_val){pl_node_in(g, n)[0]};
    return PL_NO_VAL;
}

static void check_same(const head_opts *o, int64_t chunk_bytes)
{
    head_net a = head_new(o), b = head_new(o);
    CHECK(passes(&a, (int64_t)1 << 40) && passes(&b, chunk_bytes));
    CHECK(largest(a.g) == o->batch * o->tokens * o->classes);
    CHECK_MSG(largest(b.g) < largest(a.g), "%lld elements", (long long)largest(b.g));
    graph_eval *ea = run(a.g, o->classes), *eb = run(b.g, o->classes);
    CHECK(ea && eb);
    for (int k = 0; k < 4 + o->argmax; k++) {
        pl_val va = output_at(a.g, k), vb = output_at(b.g, k);
        pl_type t = pl_val_type(a.g, va);
        for (int64_t i = 0; i < pl_type_elems(&t); i++)
            if (t.dtype == PL_I32)
                CHECK_INT(((int32_t *)graph_eval_at(ea, va))[i],
                          ((int32_t *)graph_eval_at(eb, vb))[i]);
            else
                CHECK_NEAR(((float *)graph_eval_at(ea, va))[i], ((float *)graph_eval_at(eb, vb))[i],
                           1e-6);
    }
    graph_eval_free(ea);
    graph_eval_free(eb);
    head_free(&a);
    head_free(&b);
}

TEST(chunks_of_rows_give_the_loss_and_gradients_of_the_whole)
{
    const head_opts plain = {.batch = 3, .tokens = 37, .classes = 200, .width = 5};
    head_opts more = {.batch = 5, .tokens = 16, .classes = 90, .width = 2, .argmax = true};
    check_same(&plain, 4000);
    check_same(&more, 4000);
    more.cap = true;
    more.smoothing = 0.1;
    check_same(&more, 8000);
}

/* A reader that needs all logits, and a gradient that needs the loss of all rows, keep the product
 * whole. */
TEST(chunks_are_not_made_where_something_needs_the_whole)
{
    head_opts o = {.batch = 3, .tokens = 37, .classes = 200, .width = 5, .logits = true};
    for (int i = 0; i < 2; i++) {
        head_net h = head_new(&o);
        CHECK(passes(&h, 4000));
        CHECK_INT(largest(h.g), 3 * 37 * 200);
        head_free(&h);
        o.logits = false;
        o.coupled = true;
    }
}

/* A vocabulary of 50257 and 16 x 1024 tokens: no value comes near 3 GiB of logits, and adding up
 * gradients of a wide layer does not cost more than it saves. */
TEST(chunks_follow_from_sizes_alone)
{
    const head_opts gpt = {.batch = 16, .tokens = 1024, .classes = 50257, .width = 768};
    const head_opts wide = {.batch = 2, .tokens = 1024, .classes = 128256, .width = 4096};
    head_net h = head_new(&gpt), w = head_new(&wide);
    CHECK(passes(&h, 0) && passes(&w, 0));
    CHECK(largest(h.g) <= 2048 * (int64_t)50257);
    CHECK_INT(largest(w.g), 128256 * (int64_t)4096);
    head_free(&h);
    head_free(&w);
}
