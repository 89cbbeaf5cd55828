/* test_small.c - smaller representations: a value that is stored in fewer bytes, or not at all,
 * gives the same bits as a value that is stored in full. */
#include "base/dtype.h"
#include "plimsoll_ops.h"
#include "rt/process_budget.h"
#include "rt/rt_int.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

typedef pl_graph *graph_fn(pl_store *store, pl_dtype d);

/* ---- running ---------------------------------------------------------------------------- */
typedef struct result {
    char *bytes; /* outputs of all steps, then all slots */
    size_t n;
} result;

static void keep(result *r, const void *from, size_t n)
{
    r->bytes = realloc(r->bytes, r->n + n + 1);
    memcpy(r->bytes + r->n, from, n);
    r->n += n;
}

static void fill(void *to, const pl_type *t, uint64_t seed)
{
    for (int64_t i = 0; i < pl_type_elems(t); i++)
        pl_elem_set(t->dtype, to, i,
                    t->dtype == PL_BOOL ? pl_test_noise(&seed) > 0 : pl_test_noise(&seed));
}

static pl_status run(pl_store *store, pl_program *p, result *out)
{
    pl_session *s;
    *out = (result){0};
    PL_TRY(pl_session_new(store, 1, &p, &s));
    pl_session_init(s, 7);
    pl_status rc = PL_OK;
    for (int step = 0; step < 3 && rc == PL_OK; step++) {
        for (int i = 0; i < pl_program_input_count(p); i++) {
            pl_type t;
            void *x = pl_session_input(s, p, pl_program_input_name(p, i), &t);
            fill(x, &t, (uint64_t)(step * 10 + i + 1));
        }
        rc = pl_session_run(s, p);
        for (int i = 0; i < pl_program_output_count(p) && rc == PL_OK; i++) {
            pl_type t;
            const void *y = pl_session_output(s, p, pl_program_output_name(p, i), &t);
            keep(out, y, pl_type_bytes(&t));
        }
    }
    for (int i = 0; i < pl_store_count(store); i++)
        keep(out, pl_session_slot(s, i), pl_type_bytes(&pl_store_slot(store, i)->type));
    pl_session_free(s);
    return rc;
}

/* Runs the graph with small representations: fused and not, with poisoned memory, and with
 * recompute. All equal full storage. *small is the keep-all program; the caller frees it. */
static void compare(graph_fn *make, pl_dtype d, pl_store *store, pl_program **small)
{
    pl_compile_opts plain = PL_COMPILE_INIT;
    plain.no_small = true;
    pl_program *p;
    result want, got;
    *small = NULL;
    CHECK_OK(pl_compile(make(store, d), &plain, &p));
    CHECK_OK(run(store, p, &want));
    uint64_t plain_bytes = pl_program_plan(p)->arena_bytes, least = 0;
    pl_program_free(p);
    for (int way = 0; way < (d == PL_F32 ? 4 : 2); way++) {
        pl_compile_opts o = PL_COMPILE_INIT;
        o.poison = way == 1;
        o.no_fuse = way == 2;
        o.arena_budget = way == 3 ? least : 0;
        CHECK_OK(pl_compile(make(store, d), &o, &p));
        CHECK_MSG(way || pl_program_plan(p)->arena_bytes <= plain_bytes,
                  "%s: %llu bytes, %llu plain", pl_dtype_name(d),
                  (unsigned long long)pl_program_plan(p)->arena_bytes,
                  (unsigned long long)plain_bytes);
        if (way == 0 && d == PL_F32) CHECK_OK(pl_program_minimum(p, 0, &least));
        CHECK_OK(run(store, p, &got));
        CHECK_MSG(want.n == got.n && !memcmp(want.bytes, got.bytes, want.n), "way %d, %s", way,
                  pl_dtype_name(d));
        free(got.bytes);
        if (way == 0)
            *small = p;
        else
            pl_program_free(p);
    }
    free(want.bytes);
}

/* Counts the buffers of the plan whose first value this op computes. */
static int stored(const pl_program *p, const char *op)
{
    int n = 0;
    for (uint32_t i = 0; i < p->plan->n_buffers; i++) {
        uint32_t v = p->plan->buffers[i].value;
        n += v && !strcmp(pl_node_get(p->g, pl_producer(p->g, v))->op->name, op);
    }
    return n;
}

/* ---- draws ------------------------------------------------------------------------------ */
static pl_val weight(pl_graph *g, const char *name, pl_type t)
{
    int slot = pl_store_find(g->store, name);
    if (slot < 0)
        slot = pl_store_add(g->store, &(pl_slot){.name = name,
                                                 .type = t,
                                                 .init = {PL_INIT_UNIFORM, -0.06, 0.06},
                                                 .trainable = true});
    return pl_state(g, slot);
}

static void train(pl_graph *g, pl_val loss, const pl_val *w, const char *const *name, int n)
{
    pl_val d[4];
    pl_output(g, "loss", loss);
    pl_grad(g, loss, w, n, d);
    for (int i = 0; i < n; i++)
        pl_assign(g, pl_store_find(g->store, name[i]), pl_sub(g, w[i], pl_scale(g, d[i], 0.1)));
}

/* Dropout of elements and of channels; noise that is read whole, in part and broadcast. */
static pl_graph *drawing_graph(pl_store *store, pl_dtype d)
{
    pl_graph *g = pl_graph_new(store);
    pl_val key = pl_rng_key(g);
    pl_val x = pl_input(g, "x", PL_TYPE(d, 8, 35, 9, 44));
    pl_val w = weight(g, "w", PL_TYPE(d, 44, 44)), h = x;
    pl_val w1 = pl_slice(g, w, 0, 3, 4, 1); /* (1,44): products are slow in f64 */
    for (int i = 0; i < 2; i++) {
        h = d == PL_F32 ? pl_matmul(g, h, w, false, false) : pl_mul(g, h, w1);
        h = pl_leaky_relu(g, h, 0.01);
        h = i ? pl_dropout(g, h, key, 0.3) : pl_dropout_channels(g, h, key, 0.4);
    }
    pl_val noise = pl_random_normal(g, key, PL_TYPE(d, 8, 35, 18, 44));
    h = pl_add(g, h, pl_scale(g, pl_slice(g, noise, 2, 5, 14, 1), 0.1));
    h = pl_mul(g, h, pl_slice(g, noise, 2, 0, 18, 2));
    pl_val mean = pl_mean(g, noise, PL_AXES_ALL, false);
    pl_val t = pl_random_uniform(g, key, PL_TYPE(d, 8, 1, 1, 1));
    h = pl_add(g, pl_mul(g, h, t), pl_mul(g, mean, t));
    train(g, pl_mean(g, pl_square(g, h), PL_AXES_ALL, false), &w, (const char *[]){"w"}, 1);
    pl_assign(g, pl_store_find(store, "rng"), pl_add(g, key, pl_iota(g, pl_val_type(g, key), 0)));
    return g;
}

TEST(small_draws_are_made_where_they_are_read)
{
    static const pl_dtype dtypes[] = {PL_F32, PL_BF16, PL_F16, PL_F64};
    for (int i = 0; i < 4; i++) {
        pl_store *store = pl_store_new();
        pl_program *p;
        compare(drawing_graph, dtypes[i], store, &p);
        if (!p) return;
        CHECK_INT(stored(p, "random_uniform") + stored(p, "random_normal"), 0);
        pl_program_free(p);
        pl_store_free(store);
    }
}

/* A draw that a kernel or the caller reads is stored; fused groups still draw where they read. */
static pl_graph *given_graph(pl_store *store, pl_dtype d)
{
    pl_graph *g = pl_graph_new(store);
    pl_val key = pl_rng_key(g), u = pl_random_uniform(g, key, PL_TYPE(d, 64, 40));
    pl_val n = pl_random_normal(g, key, PL_TYPE(d, 40, 64));
    pl_output(g, "u", u);
    pl_output(g, "y", pl_matmul(g, n, u, false, false));
    pl_output(g, "z", pl_sum(g, pl_mul(g, u, pl_square(g, u)), PL_AXES_ALL, false));
    return g;
}

TEST(small_draws_that_kernels_read_are_stored)
{
    pl_store *store = pl_store_new();
    pl_program *p;
    compare(given_graph, PL_F32, store, &p);
    if (!p) return;
    CHECK_INT(stored(p, "random_uniform"), 1);
    CHECK_INT(stored(p, "random_normal"), 1);
    pl_program_free(p);
    pl_store_free(store);
}

/* ---- masks ------------------------------------------------------------------------------ */
/* A mask of odd sizes that is read whole, in part, transposed, broadcast; a clamp; a maximum of
 * two. */
static pl_graph *masking_graph(pl_store *store, pl_dtype d)
{
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(d, 137, 253)), b = pl_input(g, "b", PL_TYPE(d, 253, 137));
    pl_val few = pl_input(g, "few", PL_TYPE(d, 137, 1)), w = weight(g, "w", PL_TYPE(d, 253, 253));
    pl_val v = weight(g, "v", PL_TYPE(d, 137, 253));
    pl_val h = pl_matmul(g, x, w, false, false), zero = pl_full_like(g, h, 0);
    pl_val mask = pl_gt(g, h, pl_scale(g, x, 0.5));
    h = pl_matmul(g, pl_select(g, mask, h, pl_scale(g, h, 0.2)), w, false, false);
    h = pl_max(g, h, pl_neg(g, v)); /* keeps two masks */
    h = pl_matmul(g, pl_leaky_relu(g, h, 0.1), w, false, true);
    h = pl_select(g, pl_lt(g, h, zero), pl_mul(g, h, v), h);
    /* a kernel transposes this mask, so it is stored as bytes */
    pl_val turned = pl_permute(g, pl_gt(g, x, v), (const int[]){1, 0});
    pl_val t = pl_sum(g, pl_select(g, turned, b, pl_scale(g, b, 2)), PL_AXIS(0), false);
    pl_val part = pl_slice(g, mask, 1, 5, 245, 3);
    pl_val cut = pl_slice(g, h, 1, 0, 80, 1);
    cut = pl_select(g, part, cut, pl_square(g, cut));
    pl_val row =
        pl_broadcast(g, pl_gt(g, few, pl_full_like(g, few, 0)), 2, (const int64_t[]){137, 253});
    h = pl_matmul(g, pl_select(g, row, h, pl_square(g, h)), w, false, false);
    pl_val loss = pl_add(g, pl_mean(g, pl_square(g, h), PL_AXES_ALL, false),
                         pl_mean(g, cut, PL_AXES_ALL, false));
    pl_output(g, "t", t);
    train(g, loss, (pl_val[]){w, v}, (const char *[]){"w", "v"}, 2);
    return g;
}

TEST(small_masks_are_bits)
{
    pl_store *store = pl_store_new();
    pl_program *p;

    compare(masking_graph, PL_F32, store, &p);
    if (!p) return;
    int masks = 0, bytes = 0;
    for (uint32_t i = 0; i < p->plan->n_buffers; i++) {
        const pl_placed_buffer *b = &p->plan->buffers[i];
        if (!b->value || pl_type_of(p->g, b->value)->dtype != PL_BOOL) continue;
        masks += b->bytes == (137 * 253 / 8 + 63) / 64 * 64;
        bytes += b->bytes == (137 * 253 + 63) / 64 * 64;
    }

    CHECK_MSG(masks >= 3 && bytes == 2, "%d masks of bits, %d of bytes", masks, bytes);
    pl_program_free(p);
    pl_store_free(store);
}

/* A mask that the caller reads is stored as bytes, whoever else reads it. */
static pl_graph *given_mask_graph(pl_store *store, pl_dtype d)
{
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(d, 64, 40)), w = weight(g, "w", PL_TYPE(d, 40, 40));
    pl_val h = pl_matmul(g, x, w, false, false), mask = pl_gt(g, h, x);
    pl_val other = pl_lt(g, h, pl_neg(g, x));
    pl_output(g, "mask", mask);
    pl_output(g, "flat", pl_reshape(g, other, 1, (const int64_t[]){-1}));
    h = pl_matmul(g, pl_select(g, pl_or(g, mask, other), h, x), w, false, false);
    h = pl_select(g, mask, pl_square(g, h), pl_neg(g, h));
    train(g, pl_mean(g, h, PL_AXES_ALL, false), &w, (const char *[]){"w"}, 1);
    return g;
}

TEST(small_masks_that_are_outputs_are_bytes)
{
    pl_store *store = pl_store_new();
    pl_program *p;
    compare(given_mask_graph, PL_F32, store, &p);
    pl_program_free(p);
    pl_store_free(store);
}

/* The checker refuses bits that a kernel reads or writes, that leave the program, or that a unit
 * does not know of; and bytes where the plan reserved bits. */
TEST(small_masks_of_bits_are_rejected_where_bytes_are_needed)
{
    pl_store *store = pl_store_new();
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_program *p;

    CHECK_OK(pl_compile(given_mask_graph(store, PL_F32), &o, &p));
    bool *bits = p->base_units->bits;
    CHECK_OK(pl_plan_check(p->base_graph, p->base_units, &p->plan_opts, p->keep_all));
    int refused = 0, made = 0;
    for (uint32_t v = 1; v < p->base_graph->n_vals; v++) {
        uint32_t unit = p->base_units->unit_of[v];
        bool group = unit && p->base_units->unit[unit - 1].kind == PL_UNIT_GROUP;
        bool mask = pl_type_of(p->base_graph, v)->dtype == PL_BOOL;
        if (!unit || !(bits[v] || !group || mask)) continue;
        made++;
        bits[v] = !bits[v];
        refused +=
            pl_plan_check(p->base_graph, p->base_units, &p->plan_opts, p->keep_all) == PL_ERR_PLAN;
        bits[v] = !bits[v];
    }
    CHECK_MSG(made > 4 && refused == made, "%d of %d damages noticed", refused, made);

    p->base_units->unit[0].bits = NULL;
    CHECK(pl_plan_check(p->base_graph, p->base_units, &p->plan_opts, p->keep_all) == PL_ERR_PLAN);
    pl_program_free(p);
    pl_store_free(store);
}

/* ---- concat ----------------------------------------------------------------------------- */
/* Concatenations of two networks' inputs, real and generated; one part is used alone too. Also
 * nested concatenations, a part that appears twice, a part that is an input, a part of odd size,
 * results that are outputs. */
static pl_graph *joining_graph(pl_store *store, pl_dtype d)
{
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(d, 48, 64)), w = weight(g, "w", PL_TYPE(d, 64, 64));
    pl_val a = pl_tanh(g, pl_matmul(g, x, w, false, false));
    pl_val b = pl_matmul(g, a, w, false, false);
    pl_val both = pl_concat(g, 2, (pl_val[]){a, b}, 0);
    pl_val h = pl_sigmoid(g, pl_matmul(g, both, w, false, true));
    pl_val s[3] = {pl_slice(g, h, 0, 0, 48, 1), pl_matmul(g, b, w, false, true), pl_tanh(g, b)};
    s[1] = pl_concat(g, 2, (pl_val[]){s[1], pl_slice(g, h, 0, 0, 1, 1)}, 0); /* (49,64) */
    pl_val again = pl_concat(g, 3, (pl_val[]){s[2], s[2], x}, 0);
    pl_val stack = pl_stack(g, 2, (pl_val[]){pl_square(g, s[0]), s[2]}, 0);
    pl_val deep = pl_stack(g, 2, (pl_val[]){stack, pl_neg(g, stack)}, 0);
    pl_output(g, "stack", stack);
    pl_output(g, "part", s[2]);
    pl_val loss = pl_mean(g, pl_square(g, s[1]), PL_AXES_ALL, false);
    loss = pl_add(g, loss, pl_mean(g, pl_mul(g, again, pl_tanh(g, again)), PL_AXES_ALL, false));
    loss = pl_add(
        g, loss, pl_mean(g, pl_matmul(g, pl_square(g, deep), w, false, false), PL_AXES_ALL, false));
    train(g, pl_add(g, loss, pl_mean(g, h, PL_AXES_ALL, false)), &w, (const char *[]){"w"}, 1);
    return g;
}

/* Counts inputs of concats that lie in their part of the result. */
static int in_place(const pl_program *p)
{
    int n = 0;
    for (uint32_t i = 0; i < p->units->n; i++) {
        const pl_unit *u = &p->units->unit[i];
        uint32_t node = u->nodes[0];
        if (strcmp(pl_node_get(p->g, node)->op->name, "concat") != 0) continue;
        uint64_t at = p->plan->place[u->out[0]].offset;
        for (uint32_t k = 0; k < pl_node_get(p->g, node)->n_in; k++) {
            uint32_t v = pl_node_in(p->g, node)[k];
            n += p->plan->place[v].space == PL_SPACE_ARENA && p->plan->place[v].offset == at;
            at += pl_type_bytes(pl_type_of(p->g, v));
        }
    }
    return n;
}

TEST(small_concats_are_written_in_place)
{
    pl_store *store = pl_store_new();
    pl_program *p;

    compare(joining_graph, PL_F32, store, &p);
    if (!p) return;
    /* how many pay depends on workspaces of products: 5 with oneDNN 2.6 and 3.1, 3 with 2.2 */
    CHECK_MSG(in_place(p) >= 3, "%d parts", in_place(p));

    /* after a shift by one line a part no longer equals the input of the concat */
    pl_plan *plan = p->keep_all;
    int noticed = 0, parts = 0;
    for (uint32_t v = 1; v < plan->n_vals; v++) {
        bool alone = false;
        for (uint32_t i = 0; i < plan->n_buffers; i++)
            alone |= plan->buffers[i].offset == plan->place[v].offset;
        uint32_t unit = p->units->unit_of[v];
        if (alone || !unit || plan->place[v].space != PL_SPACE_ARENA ||
            p->units->unit[unit - 1].kind == PL_UNIT_VIEW)
            continue;
        parts++;
        plan->place[v].offset -= 64;
        noticed += pl_plan_check(p->g, p->units, &p->plan_opts, plan) == PL_ERR_PLAN;
        plan->place[v].offset += 64;
    }
    CHECK_MSG(parts > 0 && noticed == parts, "%d of %d noticed", noticed, parts);
    CHECK_OK(pl_plan_check(p->g, p->units, &p->plan_opts, plan));
    pl_program_free(p);
    pl_store_free(store);
}

/* ---- pools ------------------------------------------------------------------------------ */
/* A maximum over windows keeps one byte per output element for the backward pass, for any rank
 * of the window and up to the 256 taps that a byte can index. */
TEST(small_pool_indices_are_bytes)
{
    static const struct {
        int rank;
        int64_t x[5], y[5];
        int kernel[3];
    } cases[] = {{3, {2, 512, 4}, {2, 2, 4}, {256}},
                 {4, {2, 32, 48, 5}, {2, 2, 3, 5}, {16, 16}},
                 {5, {2, 8, 16, 24, 3}, {2, 2, 2, 3, 3}, {4, 8, 8}},
                 {5, {1, 6, 6, 6, 8}, {1, 3, 3, 3, 8}, {2, 2, 2}}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        result r[2];
        for (int reference = 0; reference < 2; reference++) {
            pl_store *store = pl_store_new();
            pl_graph *g = pl_graph_new(store);
            pl_pool_opts o = {0};
            memcpy(o.kernel, cases[i].kernel, sizeof o.kernel);
            pl_val x = pl_input(g, "x", pl_type_make(PL_F32, cases[i].rank, cases[i].x)), gx;
            pl_val c = pl_input(g, "c", pl_type_make(PL_F32, cases[i].rank, cases[i].y));
            pl_val y = pl_max_pool(g, x, &o);
            pl_output(g, "y", y);
            pl_grad(g, pl_sum(g, pl_mul(g, y, c), PL_AXES_ALL, false), &x, 1, &gx);
            pl_output(g, "gx", gx);
            pl_compile_opts how = PL_COMPILE_INIT;
            how.reference = reference;
            pl_program *p;
            CHECK_OK(pl_compile(g, &how, &p));
            int n = 0;
            for (int b = 0; b < pl_program_plan(p)->buffers; b++) {
                pl_plan_buffer at = pl_program_buffer(p, b);
                if (at.type.dtype != PL_U8 || at.component == PL_COMP_WORKSPACE) continue;
                CHECK_INT(at.bytes, (pl_type_elems(&at.type) + 63) / 64 * 64);
                n++;
            }
            CHECK_INT(n, 1);
            CHECK_OK(run(store, p, &r[reference]));
            pl_program_free(p);
            pl_store_free(store);
        }
        CHECK_MSG(r[0].n == r[1].n && !memcmp(r[0].bytes, r[1].bytes, r[0].n), "case %d", (int)i);
        free(r[0].bytes);
        free(r[1].bytes);
    }
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_max_pool(g, pl_input(g, "x", PL_TYPE(PL_F32, 1, 300, 2)), &(pl_pool_opts){.kernel = {257}});

    CHECK(strstr(pl_graph_error(g), "the window has 257 elements; at most 256"));
    pl_graph_free(g);
    pl_store_free(store);
}
