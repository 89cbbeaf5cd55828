/* test_shape_ops.c - constructors that move, select, reduce and draw: values known by hand,
 * corner cases that random numbers miss (ties, NaN, indices outside), and messages for mistakes.
 * Checks for every op are in test_ops.c. */
#include "base/dtype.h"
#include "base/sys.h"
#include "ir/graph.h"
#include "ir/index_range.h"
#include "plimsoll_ops.h"
#include "tests/lib/ref_eval.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rig {
    pl_store *store;
    pl_graph *g;
    ref_eval *e;
} rig;

static rig rig_new(void)
{
    rig r = {pl_store_new(), NULL, NULL};
    r.g = pl_graph_new(r.store);
    return r;
}

static void rig_free(rig *r)
{
    ref_eval_free(r->e);
    pl_graph_free(r->g);
    pl_store_free(r->store);
}

/* 0, 1, 2, ... in row-major order. */
static pl_val count_up(pl_graph *g, pl_type t)
{
    pl_type flat = pl_type_make(t.dtype, 1, (const int64_t[]){pl_type_elems(&t)});
    return pl_reshape(g, pl_iota(g, flat, 0), t.rank, t.dim);
}

/* Evaluates v and compares all elements with the list. */
static bool holds(rig *r, pl_val v, int n, const double *want)
{
    if (pl_graph_status(r->g) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "%s", pl_graph_error(r->g));
        return false;
    }
    if (!r->e) {
        r->e = ref_eval_new(r->g);
        if (!r->e || ref_eval_run(r->e) != PL_OK) {
            pl_test_fail(__FILE__, __LINE__, "%s", pl_error_text());
            return false;
        }
    }
    pl_type t = pl_val_type(r->g, v);
    bool ok = pl_type_elems(&t) == n;
    for (int i = 0; ok && i < n; i++) {
        double x = pl_elem_get(t.dtype, ref_eval_get(r->e, v), i);
        ok = (isnan(x) && isnan(want[i])) || x == want[i] ||
             fabs(x - want[i]) <= 1e-6 * (1 + fabs(want[i]));
    }
    char text[96];
    if (!ok) {
        printf("    %s =", pl_type_text(&t, text, sizeof text));
        for (int i = 0; i < pl_type_elems(&t) && i < 16; i++)
            printf(" %g", pl_elem_get(t.dtype, ref_eval_get(r->e, v), i));
        printf("\n");
    }
    return ok;
}
#define LIST(...)                                                                                  \
 (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)), (const double[])                   \
 {                                                                                                 \
  __VA_ARGS__                                                                                      \
 }

/* A constant vector, element by element. */
static pl_val vec(pl_graph *g, pl_dtype d, int n, const double *v)
{
    pl_val part[16];
    for (int i = 0; i < n; i++) part[i] = pl_fill(g, PL_TYPE(d, 1), v[i]);
    return pl_concat(g, n, part, 0);
}

static bool has_dims(const pl_graph *g, pl_val v, int rank, const int64_t *dim)
{
    pl_type t = pl_val_type(g, v), want = pl_type_make(t.dtype, rank, dim);
    return pl_val_ok(v) && pl_type_equal(&t, &want);
}

/* ---- shapes ----------------------------------------------------------------------------- */
TEST(shape_shorthands_give_the_expected_dims)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = count_up(g, PL_TYPE(PL_F32, 2, 3));

    CHECK(has_dims(g, pl_flatten(g, x, 0, -1), PL_DIMS(6)));
    CHECK(has_dims(g, pl_unsqueeze(g, x, -1), PL_DIMS(2, 3, 1)));
    CHECK(has_dims(g, pl_squeeze(g, pl_unsqueeze(g, x, 1), 1), PL_DIMS(2, 3)));
    CHECK(has_dims(g, pl_reshape(g, x, PL_DIMS(3, -1)), PL_DIMS(3, 2)));

    pl_val t = pl_transpose(g, x, 0, -1), f = pl_flip(g, x, PL_AXIS(-1));
    pl_val stacked = pl_stack(g, 2, (pl_val[]){x, x}, -1), part[3];
    pl_split(g, x, 1, 3, part);
    pl_val padded = pl_pad(g, pl_slice(g, x, 1, 1, -1, 1), 1, 1, 0, 0, 9);
    CHECK(has_dims(g, stacked, PL_DIMS(2, 3, 2)));
    CHECK(holds(&r, t, LIST(0, 3, 1, 4, 2, 5)));
    CHECK(holds(&r, f, LIST(2, 1, 0, 5, 4, 3)));
    CHECK(holds(&r, stacked, LIST(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5)));
    CHECK(holds(&r, part[2], LIST(2, 5)));
    CHECK(holds(&r, padded, LIST(9, 1, 9, 4)));
    rig_free(&r);
}

/* Returns how often an op occurs among the nodes that v needs. */
static int count_ops(const pl_graph *g, pl_val v, const char *op)
{
    bool *needed = calloc(g->n_nodes, 1);
    int n = 0;
    needed[pl_producer(g, v.id)] = true;
    for (uint32_t i = g->n_nodes - 1; i >= 1; i--) {
        if (!needed[i]) continue;
        n += strcmp(g->nodes[i].op->name, op) == 0;
        for (uint32_t k = 0; k < g->nodes[i].n_in; k++)
            needed[pl_producer(g, pl_node_in(g, i)[k])] = true;
    }
    free(needed);
    return n;
}

/* Slices of q, k and v of one product: their gradients are written side by side. */
TEST(gradients_of_slices_that_cover_a_tensor_are_one_concat)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = pl_cast(g, count_up(g, PL_TYPE(PL_I32, 2, 6)), PL_F32), part[3], dx, loss;
    pl_split(g, x, 1, 3, part);
    loss = pl_sum(g, pl_mul(g, pl_square(g, part[0]), pl_scale(g, part[2], 10)), 3, false);
    loss = pl_add(g, loss, pl_sum(g, pl_scale(g, part[1], 7), 3, false));
    pl_grad(g, loss, &x, 1, &dx);
    CHECK_INT(count_ops(g, dx, "concat"), 1);
    CHECK_INT(count_ops(g, dx, "pad"), 0);
    /* 20 x0 x4, 10 x0^2 */
    CHECK(holds(&r, dx, LIST(0, 100, 7, 7, 0, 10, 1200, 1540, 7, 7, 360, 490)));
    rig_free(&r);
}

/* A gap keeps its zeros, an overlap its sum, another value its place. */
TEST(sums_of_pads_join_only_where_elements_are_adjacent)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val a = pl_cast(g, count_up(g, PL_TYPE(PL_I32, 2)), PL_F32), b = pl_shift(g, a, 5);
    pl_val near = pl_add(g, pl_pad(g, b, 0, 3, 1, 0, 0), pl_pad(g, a, 0, 1, 3, 0, 0));
    pl_val far = pl_add(g, pl_pad(g, a, 0, 0, 3, 0, 0), pl_pad(g, b, 0, 3, 0, 0, 0));
    pl_val over = pl_add(g, pl_pad(g, a, 0, 0, 1, 0, 0), pl_pad(g, b, 0, 1, 0, 0, 0));
    pl_val ones = pl_add(g, pl_pad(g, a, 0, 0, 2, 0, 1), pl_pad(g, b, 0, 2, 0, 0, 1));
    pl_val apart = pl_add(g, pl_pad(g, a, 0, 0, 1, 1, 0), pl_pad(g, b, 0, 1, 0, 1, 0));
    CHECK_INT(count_ops(g, near, "pad"), 1);
    CHECK(holds(&r, near, LIST(0, 0, 1, 5, 6, 0)));
    CHECK(holds(&r, far, LIST(0, 1, 0, 5, 6)));
    CHECK(holds(&r, over, LIST(0, 6, 6)));
    CHECK(holds(&r, ones, LIST(1, 2, 6, 7)));
    CHECK(holds(&r, apart, LIST(0, 5, 1, 6)));
    rig_free(&r);
}

TEST(shape_no_ops_make_no_nodes)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 1, 3));

    CHECK(pl_reshape(g, x, PL_DIMS(2, 1, 3)).id == x.id);
    CHECK(pl_slice(g, x, 0, 0, 2, 1).id == x.id);
    CHECK(pl_pad(g, x, 0, 0, 0, 0, 1).id == x.id);
    CHECK(pl_sum(g, x, 0, true).id == x.id);
    CHECK(pl_flip(g, x, 0).id == x.id);
    CHECK(pl_concat(g, 1, &x, 0).id == x.id);
    CHECK(pl_dropout(g, x, pl_rng_key(g), 0).id == x.id);

    /* Only a dimension of size 1 moves: the bytes keep their order, so it is a view. */
    pl_val v = pl_permute(g, x, (const int[]){1, 0, 2});
    CHECK(strcmp(g->nodes[pl_producer(g, v.id)].op->name, "reshape") == 0);
    rig_free(&r);
}

TEST(slice_of_rows_is_a_view_and_of_columns_is_not)
{
    rig r = rig_new();
    pl_val x = pl_input(r.g, "x", PL_TYPE(PL_F32, 4, 3));
    pl_val rows = pl_slice(r.g, x, 0, 1, 3, 1), cols = pl_slice(r.g, x, 1, 1, 3, 1);
    pl_type in[1], out[1];
    pl_call c;
    int64_t at = -1;
    uint32_t n = pl_producer(r.g, rows.id);

    pl_node_call(r.g, n, in, out, &c);
    CHECK(r.g->nodes[n].op->view(&c, &at));
    CHECK_INT(at, 12);
    n = pl_producer(r.g, cols.id);
    pl_node_call(r.g, n, in, out, &c);

    CHECK(!r.g->nodes[n].op->view(&c, &at));
    rig_free(&r);
}

/* ---- reductions ------------------------------------------------------------------------- */
TEST(reductions_have_the_values_known_by_hand)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = count_up(g, PL_TYPE(PL_F32, 2, 3)), mean, var;

    pl_moments(g, x, PL_AXIS(-1), false, &mean, &var);
    pl_val all = pl_sum(g, x, PL_AXES_ALL, false), m = pl_mean(g, x, PL_AXIS(0), true);
    pl_val none = pl_sum(g, pl_fill(g, PL_TYPE(PL_F32, 0, 2), 1), PL_AXIS(0), false);
    pl_val top = pl_max_over(g, x, PL_AXIS(0) | PL_AXIS(-1), false);

    CHECK(has_dims(g, m, PL_DIMS(1, 3)));
    CHECK(holds(&r, all, LIST(15)));
    CHECK(holds(&r, m, LIST(1.5, 2.5, 3.5)));
    CHECK(holds(&r, none, LIST(0, 0)));
    CHECK(holds(&r, top, LIST(5)));
    CHECK(holds(&r, mean, LIST(1, 4)));
    CHECK(holds(&r, var, LIST(2.0 / 3, 2.0 / 3)));
    rig_free(&r);
}

TEST(reduce_half_types_add_up_in_f32)
{
    rig r = rig_new();
    pl_val x = pl_fill(r.g, PL_TYPE(PL_BF16, 1000), 1), mean, var;
    pl_moments(r.g, x, PL_AXES_ALL, false, &mean, &var);
    CHECK_INT(pl_val_type(r.g, mean).dtype, PL_F32);
    pl_val s = pl_sum(r.g, x, PL_AXES_ALL, false);
    pl_val m = pl_mean(r.g, pl_fill(r.g, PL_TYPE(PL_F16, 1000), 1000), PL_AXES_ALL, false);
    CHECK_INT(pl_val_type(r.g, m).dtype, PL_F16);
    CHECK(holds(&r, s, LIST(1000))); /* in bf16 the sum would stop at 256 */
    CHECK(holds(&r, m, LIST(1000))); /* in f16 a partial sum would be infinite */
    rig_free(&r);
}

TEST(reduce_max_shares_gradients_of_ties_and_passes_on_nan)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = vec(g, PL_F32, LIST(1, 3, 3, 2)), gx;
    pl_grad(g, pl_max_over(g, x, PL_AXES_ALL, false), &x, 1, &gx);
    pl_val y = pl_max_over(g, vec(g, PL_F32, LIST(1, (double)NAN, 3)), PL_AXES_ALL, false);
    pl_val at = pl_argmax(g, vec(g, PL_F32, LIST(1, 5, (double)NAN, (double)NAN, 9)), 0);
    pl_val first = pl_argmax(g, vec(g, PL_F32, LIST(1, 7, 7)), 0);
    CHECK(holds(&r, gx, LIST(0, 0.5, 0.5, 0)));
    CHECK(holds(&r, y, LIST((double)NAN)));
    CHECK(holds(&r, at, LIST(2)));
    CHECK(holds(&r, first, LIST(1)));
    rig_free(&r);
}

TEST(softmax_of_large_numbers_is_finite)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = vec(g, PL_F32, LIST(1000, 1000, -1000));
    pl_val y = pl_softmax(g, x, 0), l = pl_log_softmax(g, x, -1);
    pl_val h = pl_softmax(g, pl_cast(g, x, PL_BF16), 0);
    CHECK_INT(pl_val_type(g, h).dtype, PL_BF16);
    CHECK(holds(&r, y, LIST(0.5, 0.5, 0)));
    CHECK(holds(&r, l, LIST(-log(2), -log(2), -2000 - log(2))));
    CHECK(holds(&r, h, LIST(0.5, 0.5, 0)));
    rig_free(&r);
}

/* d softmax_i/dx_j = y_i (i == j) - y_i y_j, at (log 1, log 3): y = (1/4, 3/4). */
TEST(softmax_gradient_has_the_value_known_by_hand)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = vec(g, PL_F64, LIST(0, log(3))), gx;
    pl_val first = pl_slice(g, pl_softmax(g, x, 0), 0, 0, 1, 1);
    pl_grad(g, first, &x, 1, &gx);
    CHECK(holds(&r, gx, LIST(3.0 / 16, -3.0 / 16)));
    rig_free(&r);
}

/* ---- sorting and indexing --------------------------------------------------------------- */
/* Runs every kernel of v's node on its evaluated inputs; all agree bit for bit. */
static bool kernels_agree(rig *r, pl_val v)
{
    uint32_t node = pl_producer(r->g, v.id);
    const pl_node_rec *n = pl_node_get(r->g, node);
    pl_type in_type[8], out_type[PL_MAX_OUT];
    const void *in[8];
    void *out[PL_MAX_OUT];
    pl_call c;
    bool ok = true;
    pl_node_call(r->g, node, in_type, out_type, &c);
    for (int i = 0; i < c.n_in; i++)
        in[i] = ref_eval_get(r->e, (pl_val){pl_node_in(r->g, node)[i]});
    c.in = in;
    c.out = out;
    for (const pl_kernel *k = n->op->cpu; k->run; k++) {
        if (k->accepts && !k->accepts(&c)) continue;
        size_t work = 0;
        if (k->prepare && k->prepare(&c, &c.prep, &work) != PL_OK) return false;
        c.work = pl_sys_alloc(work + 1);
        for (int o = 0; o < c.n_out; o++) out[o] = pl_sys_alloc(pl_type_bytes(&out_type[o]) + 1);
        ok &= k->run(&c) == PL_OK;
        for (int o = 0; o < c.n_out; o++) {
            const void *want = ref_eval_get(r->e, (pl_val){n->out + (uint32_t)o});
            ok &= memcmp(out[o], want, pl_type_bytes(&out_type[o])) == 0;
            pl_sys_free(out[o]);
        }
        pl_sys_free(c.work);
        if (k->release) k->release(c.prep);
    }
    return ok;
}

TEST(sort_is_stable_and_puts_nan_last)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    double nan = (double)NAN, inf = (double)INFINITY;
    pl_val x = vec(g, PL_F32, LIST(2, nan, -0.0, 0, -inf, 2, inf)), up, up_at, down, down_at, top,
           top_at;

    pl_sort(g, x, 0, false, &up, &up_at);
    pl_sort(g, x, 0, true, &down, &down_at);
    pl_topk(g, x, 3, -1, &top, &top_at);

    CHECK(holds(&r, up, LIST(-inf, 0, 0, 2, 2, inf, nan)));
    CHECK(holds(&r, up_at, LIST(4, 2, 3, 0, 5, 6, 1)));
    CHECK(holds(&r, down_at, LIST(6, 0, 5, 2, 3, 4, 1)));
    CHECK(holds(&r, top_at, LIST(6, 0, 5)));
    CHECK(kernels_agree(&r, up) && kernels_agree(&r, down) && kernels_agree(&r, top));
    rig_free(&r);
}

TEST(topk_gradient_goes_back_where_it_came_from)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val x = vec(g, PL_F32, LIST(1, 4, 2, 3)), top, gx;
    pl_topk(g, x, 2, 0, &top, NULL);
    pl_grad(g, pl_sum(g, pl_square(g, top), PL_AXES_ALL, false), &x, 1, &gx);
    CHECK(holds(&r, gx, LIST(0, 8, 0, 6)));
    rig_free(&r);
}

/* PyTorch's results where the formulas have 0 times infinity, at the bounds of a clamp, and for
 * a remainder. */
TEST(gradients_at_corners_agree_with_pytorch)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val base = vec(g, PL_F32, LIST(0, 0, 2, 3, 0)), power = vec(g, PL_F32, LIST(2, 0, 0, 2, 1)),
           by[2], on, both[2];
    pl_val pair[2] = {base, power};

    pl_grad(g, pl_sum(g, pl_pow(g, base, power), PL_AXES_ALL, false), pair, 2, by);
    CHECK(holds(&r, by[0], LIST(0, 0, 0, 6, 1)));
    rig_free(&r);
    r = rig_new();
    g = r.g;
    pair[0] = vec(g, PL_F32, LIST(0, 0, 1, 0)), pair[1] = vec(g, PL_F32, LIST(2, 0, 3, 1));
    pl_grad(g, pl_sum(g, pl_pow(g, pair[0], pair[1]), PL_AXES_ALL, false), pair, 2, by);
    CHECK(holds(&r, by[1], LIST(0, 0, 0, 0)));
    rig_free(&r);
    r = rig_new();
    g = r.g;
    pl_val x = vec(g, PL_F32, LIST(-1, 0, 0.5, 1, 2));
    pl_grad(g, pl_sum(g, pl_clamp(g, x, 0, 1), PL_AXES_ALL, false), &x, 1, &on);
    CHECK(holds(&r, on, LIST(0, 1, 1, 1, 0)));
    rig_free(&r);
    r = rig_new();
    g = r.g;
    pair[0] = vec(g, PL_F32, LIST(7, -7, 7, 1)), pair[1] = vec(g, PL_F32, LIST(2, 2, -2, 4));
    pl_val rest = pl_mod(g, pair[0], pair[1]);
    pl_grad(g, pl_sum(g, rest, PL_AXES_ALL, false), pair, 2, both);

    CHECK(holds(&r, rest, LIST(1, 1, -1, 1)));
    CHECK(holds(&r, both[0], LIST(1, 1, 1, 1)));
    CHECK(holds(&r, both[1], LIST(-3, 4, 4, 0)));
    rig_free(&r);
}

TEST(indices_outside_give_nan_or_zero_and_write_nothing)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    double nan = (double)NAN;
    pl_val table = count_up(g, PL_TYPE(PL_F32, 2, 2)), whole = count_up(g, PL_TYPE(PL_I32, 2));
    pl_val at = vec(g, PL_I32, LIST(1, -1, 2)), ones = pl_fill(g, PL_TYPE(PL_F32, 3, 2), 1);
    pl_val taken = pl_take(g, table, at), ints = pl_take(g, whole, at);
    pl_val added = pl_scatter_add(g, ones, at, 2);
    pl_val line = pl_take_along(g, count_up(g, PL_TYPE(PL_F32, 2)), at, 0);
    pl_val put = pl_put_along_add(g, pl_fill(g, PL_TYPE(PL_F32, 3), 1), at, 0, 2);

    CHECK(holds(&r, taken, LIST(2, 3, nan, nan, nan, nan)));
    CHECK(holds(&r, ints, LIST(1, 0, 0)));
    CHECK(holds(&r, added, LIST(0, 0, 1, 1)));
    CHECK(holds(&r, line, LIST(1, nan, nan)));
    CHECK(holds(&r, put, LIST(0, 1)));
    CHECK(kernels_agree(&r, taken) && kernels_agree(&r, ints) && kernels_agree(&r, added));
    CHECK(kernels_agree(&r, line) && kernels_agree(&r, put));
    rig_free(&r);
}

TEST(take_gradient_adds_up_repeated_rows)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val table = count_up(g, PL_TYPE(PL_F32, 3, 1)), gx;
    pl_val y = pl_take(g, table, vec(g, PL_I64, LIST(2, 0, 2)));
    pl_grad(g, pl_sum(g, y, PL_AXES_ALL, false), &table, 1, &gx);
    CHECK(holds(&r, gx, LIST(1, 0, 2)));
    rig_free(&r);
}

/* ---- draws ------------------------------------------------------------------------------ */
static bool moments_near(const rig *r, pl_val v, double mean, double std, double below)
{
    pl_type t = pl_val_type(r->g, v);
    int64_t n = pl_type_elems(&t);
    double s = 0, q = 0;
    bool inside = true;
    for (int64_t i = 0; i < n; i++) {
        double x = pl_elem_get(t.dtype, ref_eval_get(r->e, v), i);
        inside &= x < below;
        s += x;
        q += x * x;
    }
    s /= (double)n;
    return inside && fabs(s - mean) < 4 * std / sqrt((double)n) + 4e-3 &&
           fabs(sqrt(q / (double)n - s * s) - std) < 0.02;
}

TEST(random_draws_have_their_moments_and_follow_the_key)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val key = pl_rng_key(g), again = pl_rng_key(g), other = vec(g, PL_I64, LIST(0, 1));

    CHECK_INT(pl_store_count(r.store), 1);
    CHECK_INT(pl_store_slot(r.store, 0)->kind, PL_SLOT_COUNTER);
    pl_val u[3], n = pl_random_normal(g, key, PL_TYPE(PL_F32, 20000));
    static const pl_dtype d[3] = {PL_F32, PL_BF16, PL_F16};
    for (int i = 0; i < 3; i++) u[i] = pl_random_uniform(g, again, PL_TYPE(d[i], 20000));
    pl_val p = pl_random_permutation(g, key, 1000), sorted;
    pl_sort(g, p, 0, false, &sorted, NULL);
    pl_val next = pl_random_uniform(g, other, PL_TYPE(PL_F32, 20000));
    r.e = ref_eval_new(g);
    CHECK_OK(ref_eval_run(r.e));
    for (int i = 0; i < 3; i++) CHECK(moments_near(&r, u[i], 0.5, sqrt(1.0 / 12), 1));
    CHECK(moments_near(&r, n, 0, 1, 9));
    CHECK(kernels_agree(&r, u[0]) && kernels_agree(&r, n));
    CHECK(memcmp(ref_eval_get(r.e, u[0]), ref_eval_get(r.e, next), 80000) != 0);

    const int32_t *order = ref_eval_get(r.e, sorted), *raw = ref_eval_get(r.e, p);
    int fixed = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK_INT(order[i], i);
        fixed += raw[i] == i;
    }
    CHECK(fixed < 12);
    rig_free(&r);
}

TEST(dropout_keeps_its_share_and_scales_it)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val key = pl_rng_key(g), x = pl_fill(g, PL_TYPE(PL_F32, 4, 9, 9, 50), 3), gx;
    pl_val y = pl_dropout(g, x, key, 0.25), ch = pl_dropout_channels(g, x, key, 0.5);

    pl_grad(g, y, &x, 1, &gx);
    pl_val gone = pl_dropout(g, x, key, 1);
    r.e = ref_eval_new(g);
    CHECK_OK(ref_eval_run(r.e));
    const float *a = ref_eval_get(r.e, y), *b = ref_eval_get(r.e, gx), *c = ref_eval_get(r.e, ch);
    int zeros = 0, zero_channels = 0;
    for (int i = 0; i < 16200; i++) {
        zeros += a[i] == 0;
        CHECK(a[i] == 0 || fabsf(a[i] - 4) < 1e-5f);
        CHECK((a[i] == 0) == (b[i] == 0));
        int image = i / (81 * 50), channel = i % 50;
        CHECK(c[i] == c[image * 81 * 50 + channel]);
        zero_channels += i / 50 % 81 == 0 && c[i] == 0;
    }

    CHECK(abs(zeros - 4050) < 250);
    CHECK(abs(zero_channels - 100) < 30);
    CHECK(((const float *)ref_eval_get(r.e, gone))[7] == 0);
    rig_free(&r);
}

/* ---- mistakes --------------------------------------------------------------------------- */
/* The graph failed with this code, and its message contains this text. */
static void expect(rig *r, pl_status code, const char *text)
{
    if (r->g->status != code || !strstr(pl_graph_error(r->g), text))
        pl_test_fail(__FILE__, __LINE__, "wanted %s \"%s\", got %s \"%s\"", pl_status_name(code),
                     text, pl_status_name(r->g->status), pl_graph_error(r->g));
    rig_free(r);
    *r = rig_new();
}

TEST(shape_mistakes_name_the_numbers)
{
    rig r = rig_new();
#define X pl_input(r.g, "x", PL_TYPE(PL_F32, 2, 3))

    pl_reshape(r.g, X, PL_DIMS(4, 2));
    expect(&r, PL_ERR_SHAPE, "reshape: f32[2,3] has 6 elements, but the shape f32[4,2] needs 8");
    pl_reshape(r.g, X, PL_DIMS(-1, -1));
    expect(&r, PL_ERR_ARG, "two sizes are -1 in the reshape of f32[-1,-1]");
    pl_permute(r.g, X, (const int[]){0, 0});
    expect(&r, PL_ERR_ARG, "dimension 0 of f32[2,3] is given twice");
    pl_slice(r.g, X, 1, 0, 4, 1);
    expect(&r, PL_ERR_SHAPE, "start 0, stop 4 and step 1 are not a range of axis 1 of f32[2,3]");
    pl_slice(r.g, X, 2, 0, 1, 1);
    expect(&r, PL_ERR_ARG, "axis 2 of f32[2,3]");
    pl_pad(r.g, X, 0, -1, 0, 0, 0);
    expect(&r, PL_ERR_SHAPE, "-1 before");
    pl_concat(r.g, 2, (pl_val[]){X, pl_fill(r.g, PL_TYPE(PL_F32, 2, 4), 0)}, 0);
    expect(&r, PL_ERR_SHAPE,
           "input 0, f32[2,3], and input 1, f32[2,4], may differ only along axis 0");
    pl_squeeze(r.g, X, 0);
    expect(&r, PL_ERR_SHAPE, "axis 0 of f32[2,3] is not 1");
    pl_val part[2];
    pl_split(r.g, X, 1, 2, part);
    expect(&r, PL_ERR_SHAPE, "f32[2,3] into 2 equal parts");
    pl_sum(r.g, X, PL_AXIS(3), false);
    expect(&r, PL_ERR_ARG, "axis 3 of f32[2,3]");
    pl_max_over(r.g, pl_fill(r.g, PL_TYPE(PL_F32, 0), 0), PL_AXES_ALL, false);
    expect(&r, PL_ERR_SHAPE, "f32[0] has size 0 along the reduced axes");
    pl_softmax(r.g, X, 2);
    expect(&r, PL_ERR_ARG, "axis 2 of rank 2");
    pl_val y = X;
    pl_take(r.g, y, y);
    expect(&r, PL_ERR_SHAPE, "indices must be i32 or i64, got f32[2,3]");
    pl_topk(r.g, X, 4, 1, part, NULL);
    expect(&r, PL_ERR_SHAPE, "count is 4, more than axis 1");
    pl_dropout(r.g, X, pl_rng_key(r.g), 1.5);
    expect(&r, PL_ERR_ARG, "probability 1.5");
    y = X;
    pl_random_uniform(r.g, y, PL_TYPE(PL_F32, 2));
    expect(&r, PL_ERR_SHAPE, "the key must be i64[2]");
    rig_free(&r);
}

/* Which numbers an input may hold is found through slices, reshapes, casts and the rule that
 * numbers below 0 count from the end; not through arithmetic. */
TEST(shape_ops_tell_the_range_of_an_input_of_indices)
{
    rig r = rig_new();
    pl_graph *g = r.g;
    pl_val plain = pl_input(g, "plain", PL_TYPE(PL_I32, 4, 9)),
           wrapped = pl_input(g, "wrapped", PL_TYPE(PL_I64, 5)),
           moved = pl_input(g, "moved", PL_TYPE(PL_I64, 5)),
           table = pl_input(g, "table", PL_TYPE(PL_F32, 7, 2)),
           small = pl_input(g, "small", PL_TYPE(PL_F32, 6, 2));
    pl_val part = pl_reshape(g, pl_slice(g, plain, 1, 0, 8, 1), PL_DIMS(32));
    pl_take(g, table, part);
    pl_take(g, small, pl_cast(g, part, PL_I64));
    pl_val low = pl_lt(g, wrapped, pl_full_like(g, wrapped, 0));
    pl_take(g, table, pl_select(g, low, pl_shift(g, wrapped, 7), wrapped));
    pl_take(g, table, pl_shift(g, moved, 1));

    pl_index_range a = pl_index_range_of(g, plain.id), b = pl_index_range_of(g, wrapped.id),
                   c = pl_index_range_of(g, moved.id), d = pl_index_range_of(g, table.id);
    CHECK(a.low == 0 && a.high == 6);
    CHECK(b.low == -7 && b.high == 7);
    CHECK(c.high == 0 && d.high == 0);
    CHECK(!a.classes && !a.skips);

    pl_val label = pl_input(g, "label", PL_TYPE(PL_I64, 3, 2)),
           both = pl_input(g, "both", PL_TYPE(PL_I64, 5)),
           logits = pl_input(g, "logits", PL_TYPE(PL_F32, 6, 4)),
           five = pl_input(g, "five", PL_TYPE(PL_F32, 5, 4));
    pl_val rows = pl_cast(g, pl_reshape(g, label, PL_DIMS(6)), PL_I32);
    pl_cross_entropy_rows(g, logits, rows, (pl_cross_entropy){.ignore = 255}, NULL);
    pl_take(g, table, both);
    pl_cross_entropy_rows(g, five, both, (pl_cross_entropy){.ignore = -100}, NULL);
    a = pl_index_range_of(g, label.id);
    b = pl_index_range_of(g, both.id);
    CHECK(a.low == 0 && a.high == 4 && a.classes && a.skips && a.skip == 255);
    CHECK(b.low == 0 && b.high == 4 && !b.classes && !b.skips);
    rig_free(&r);
}
