/* test_fuse_product.c - products that begin a group (pass/fuse/fuse_product.c): which do, what the
 * units look like, and on a GPU the numbers and bits of the joined kernels. */
#include "base/dtype.h"
#include "cuda/codegen/codegen.h"
#include "ir/group/product.h"
#include "pass/fuse/fuse.h"
#include "plimsoll_ops.h"
#include "rt/rt_int.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- graphs ----------------------------------------------------------------------------- */
typedef struct shape {
    int64_t side, n, k; /* 2 x side x side rows */
    pl_dtype dtype;
} shape;

static pl_val wide(pl_graph *g, pl_val v)
{
    return pl_cast(g, v, PL_F32);
}

static pl_val image(pl_graph *g, const char *name, const shape *s, int64_t channels)
{
    return pl_input(g, name, PL_TYPE(s->dtype, 2, s->side, s->side, channels));
}

/* A convolution over single pixels and the mean and variance of its channels. */
static void statistics(pl_graph *g, const shape *s)
{
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->n, 1, 1, s->k)), mean, var;
    pl_val y = pl_conv(g, image(g, "x", s, s->k), w, PL_NO_VAL, NULL);
    pl_moments(g, wide(g, y), PL_AXIS(0) | PL_AXIS(1) | PL_AXIS(2), false, &mean, &var);
    pl_output(g, "y", y);
    pl_output(g, "mean", mean);
    pl_output(g, "var", var);
}

/* The gradient of an activation behind a product, with the gradients of a bias and of a scale. */
static void slopes(pl_graph *g, const shape *s)
{
    int64_t rows = 2 * s->side * s->side;
    pl_val x = pl_input(g, "x", PL_TYPE(s->dtype, rows, s->k));
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->k, s->n));
    pl_val r = pl_input(g, "r", PL_TYPE(s->dtype, rows, s->n));
    pl_val z = pl_input(g, "z", PL_TYPE(s->dtype, rows, s->n));
    pl_val d = pl_add(g, wide(g, pl_matmul(g, x, w, false, false)), wide(g, r));
    pl_val zero = pl_fill(g, PL_TYPE(PL_F32, rows, s->n), 0);
    pl_val v = pl_select(g, pl_gt(g, wide(g, z), zero), d, zero);
    pl_output(g, "g", pl_cast(g, v, s->dtype));
    pl_output(g, "bias", pl_sum(g, v, PL_AXIS(0), false));
    pl_output(g, "scale", pl_sum(g, pl_mul(g, v, wide(g, z)), PL_AXIS(0), false));
}

static void sums_of_rows(pl_graph *g, const shape *s)
{
    int64_t rows = 2 * s->side * s->side;
    pl_val x = pl_input(g, "x", PL_TYPE(s->dtype, rows, s->k));
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->k, s->n));
    pl_output(g, "out",
              pl_sum(g, pl_exp(g, wide(g, pl_matmul(g, x, w, false, false))), PL_AXIS(1), false));
}

static void maps_alone(pl_graph *g, const shape *s)
{
    int64_t rows = 2 * s->side * s->side;
    pl_val x = pl_input(g, "x", PL_TYPE(s->dtype, rows, s->k));
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->k, s->n));
    pl_output(g, "out", pl_exp(g, wide(g, pl_matmul(g, x, w, false, false))));
}

/* The left operand is a view that begins in the middle of 16 bytes. */
static void shifted(pl_graph *g, const shape *s)
{
    int64_t rows = 2 * s->side * s->side;
    pl_val x = pl_input(g, "x", PL_TYPE(s->dtype, rows * s->k + 4));
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->k, s->n));
    x = pl_slice(g, x, 0, 4, rows * s->k + 4, 1);
    x = pl_reshape(g, x, 2, (const int64_t[]){rows, s->k});
    pl_output(g, "out", pl_sum(g, wide(g, pl_matmul(g, x, w, false, false)), PL_AXIS(0), false));
}

/* A kernel reads the product before the sums exist. */
static void read_before(pl_graph *g, const shape *s)
{
    int64_t rows = 2 * s->side * s->side;
    pl_val x = pl_input(g, "x", PL_TYPE(s->dtype, rows, s->k));
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->k, s->n));
    pl_val y = pl_matmul(g, x, w, false, false);
    pl_output(g, "square", pl_matmul(g, y, y, true, false));
    pl_output(g, "out", pl_sum(g, wide(g, y), PL_AXIS(0), false));
}

static void windows(pl_graph *g, const shape *s)
{
    pl_conv_opts o = {.pad_lo = {1, 1}, .pad_hi = {1, 1}};
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->n, 3, 3, s->k)), mean, var;
    pl_val y = pl_conv(g, image(g, "x", s, s->k), w, PL_NO_VAL, &o);
    pl_moments(g, wide(g, y), PL_AXIS(0) | PL_AXIS(1) | PL_AXIS(2), false, &mean, &var);
    pl_output(g, "y", y);
    pl_output(g, "mean", mean);
    pl_output(g, "var", var);
}

/* The gradient of a convolution's input, behind it the gradient of an activation. Padding differs
 * at the two ends, and the taps are not neighbours. */
static void window_slopes(pl_graph *g, const shape *s)
{
    pl_conv_opts o = {.pad_lo = {2, 1}, .pad_hi = {0, 3}, .dilation = {1, 2}};
    pl_val w = pl_input(g, "w", PL_TYPE(s->dtype, s->k, 3, 3, s->n));
    pl_val x = image(g, "x", s, s->k), z = image(g, "z", s, s->n);
    pl_val d = wide(g, pl_conv_transpose(g, x, w, PL_NO_VAL, &o, NULL));
    pl_val zero = pl_fill(g, PL_TYPE(PL_F32, 2, s->side, s->side, s->n), 0);
    pl_val v = pl_select(g, pl_gt(g, wide(g, z), zero), d, zero);
    pl_output(g, "g", pl_cast(g, v, s->dtype));
    pl_output(g, "bias", pl_sum(g, v, PL_AXIS(0) | PL_AXIS(1) | PL_AXIS(2), false));
}

/* ---- which ------------------------------------------------------------------------------ */
static void units_of(void (*make)(pl_graph *, const shape *), const shape *s, int64_t product_bytes,
                     pl_store **store, pl_graph **g, pl_units **us)
{
    pl_fuse_opts o = PL_FUSE_OPTS_CUDA(NULL);
    o.product_bytes = product_bytes;
    *store = pl_store_new();
    *g = pl_graph_new(*store);
    make(*g, s);
    CHECK_OK(pl_graph_status(*g));
    CHECK_OK(pl_fuse(*g, &o, us));
}

static const pl_unit *joined_unit(const pl_graph *g, const pl_units *us)
{
    for (uint32_t i = 0; i < us->n; i++)
        if (pl_group_product(g, &us->unit[i])) return &us->unit[i];
    return NULL;
}

static const struct {
    const char *name;
    void (*make)(pl_graph *g, const shape *s);
    shape s;
    int64_t bytes;
    bool joins, stored;
} graphs[] = {
    {"statistics", statistics, {12, 128, 64, PL_BF16}, 1, true, true},
    {"statistics f16", statistics, {12, 64, 24, PL_F16}, 1, true, true},
    {"slopes", slopes, {12, 192, 64, PL_BF16}, 1, true, false},
    {"f32", statistics, {12, 128, 64, PL_F32}, 1, false, false},
    {"few bytes", statistics, {12, 128, 64, PL_BF16}, 1 << 20, false, false},
    {"not on this device", statistics, {12, 128, 64, PL_BF16}, 0, false, false},
    {"odd columns", statistics, {12, 100, 64, PL_BF16}, 1, false, false},
    {"few columns", statistics, {12, 32, 64, PL_BF16}, 1, false, false},
    {"odd terms", statistics, {12, 128, 60, PL_BF16}, 1, false, false},
    {"many terms", statistics, {4, 128, 2048, PL_BF16}, 1, false, false},
    {"sums of rows", sums_of_rows, {12, 128, 64, PL_BF16}, 1, false, false},
    {"maps alone", maps_alone, {12, 128, 64, PL_BF16}, 1, false, false},
    {"read before", read_before, {12, 128, 64, PL_BF16}, 1, false, false},
    {"shifted", shifted, {12, 128, 64, PL_BF16}, 1, false, false},
    {"windows", windows, {12, 128, 64, PL_BF16}, 1, true, true},
    {"windows of odd channels", windows, {12, 128, 72, PL_BF16}, 1, false, false},
    {"many windows", windows, {4, 128, 320, PL_BF16}, 1, false, false},
    {"windows of a gradient", window_slopes, {12, 128, 64, PL_BF16}, 1, true, false},
};

/* The unit computes and stores what its parts do; its product's operands come first. */
static void check_unit(const pl_graph *g, const pl_units *us, const pl_unit *u, bool stored)
{
    uint32_t product = pl_group_product(g, u), y = pl_node_get(g, product)->out;
    pl_arena a = PL_ARENA_INIT;
    pl_unit behind;
    pl_code code;
    pl_code_tiles tiles;
    CHECK(u->in[0] == pl_node_in(g, product)[0] && u->in[1] == pl_node_in(g, product)[1]);
    CHECK((u->out[u->n_out - 1] == y) == stored);
    CHECK((us->unit_of[y] != 0) == stored);
    CHECK_OK(pl_group_behind(g, u, &a, &behind));
    CHECK(behind.n_nodes + 1 == u->n_nodes && behind.in[u->n_in] == y);
    CHECK_OK(pl_code_make_product(g, u, &a, &code, &tiles));
    CHECK(code.n_kernels == 2 && code.kernel[0].wgmma && strstr(code.kernel[0].text, "p_product"));
    for (uint32_t k = 0; k < u->n_out; k++)
        CHECK(!code.inplace[k * u->n_in] && !code.inplace[k * u->n_in + 1]);
    pl_arena_release(&a);
}

TEST(fuse_moves_products_into_groups_with_sums)
{
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        pl_store *store;
        pl_graph *g;
        pl_units *us = NULL;
        units_of(graphs[i].make, &graphs[i].s, graphs[i].bytes, &store, &g, &us);
        if (!us) return;
        const pl_unit *u = joined_unit(g, us);
        CHECK_MSG((u != NULL) == graphs[i].joins, "%s", graphs[i].name);
        if (u) check_unit(g, us, u, graphs[i].stored);
        pl_units_free(us);
        pl_graph_free(g);
        pl_store_free(store);
    }
}

/* ---- on a GPU --------------------------------------------------------------------------- */
typedef struct result {
    float *value;
    int64_t n;
    bool joined; /* one kernel computes product and sums */
} result;

static pl_status run(void (*make)(pl_graph *, const shape *), const shape *s, const char *device,
                     bool fuse, uint64_t arena, result *out)
{
    static const char *const names[] = {"y", "mean", "var", "g", "bias", "scale"};
    static const char *const inputs[] = {"x", "w", "r", "z"};
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_program *p = NULL;
    pl_session *session = NULL;
    memset(out, 0, sizeof *out);
    o.device = device;
    o.no_fuse = !fuse;
    o.arena_budget = arena;
    make(g, s);
    pl_status rc = pl_compile(g, &o, &p);
    if (rc == PL_OK) rc = pl_session_new(store, 1, &p, &session);
    for (int i = 0; rc == PL_OK && i < 4; i++) {
        pl_type t;
        void *to = pl_session_input(session, p, inputs[i], &t);
        for (int64_t e = 0; to && e < pl_type_elems(&t); e++)
            pl_elem_set(t.dtype, to, e, sin((double)(e + 1) * (1.37 + i)) + (i == 1 ? 0.1 : 0));
    }
    if (rc == PL_OK) rc = pl_session_run(session, p);
    if (rc == PL_OK) rc = pl_session_wait(session);
    for (uint32_t i = 0; rc == PL_OK && i < p->base_units->n; i++)
        out->joined |= p->exec[i].kernel && strcmp(p->exec[i].kernel->name, "wgmma") == 0;
    for (int i = 0; rc == PL_OK && i < 6; i++) {
        pl_type t;
        const void *from = pl_session_output(session, p, names[i], &t);
        if (!from) continue;
        int64_t more = pl_type_elems(&t);
        out->value = realloc(out->value, (size_t)(out->n + more) * sizeof *out->value);
        for (int64_t e = 0; e < more; e++)
            out->value[out->n++] = (float)pl_elem_get(t.dtype, from, e);
    }
    pl_session_free(session);
    pl_program_free(p);
    pl_store_free(store);
    return rc;
}

/* Every number is as near to the kernels apart as rounding allows, and twice the same. */
static void check_numbers(void (*make)(pl_graph *, const shape *), const shape *s, bool *joined)
{
    result one, again, apart;
    double far = 0, most = 0;
    CHECK_OK(run(make, s, "cuda", true, 0, &one));
    CHECK_OK(run(make, s, "cuda", true, 0, &again));
    CHECK_OK(run(make, s, "cuda", false, 0, &apart));
    CHECK(one.n > 0 && one.n == again.n && one.n == apart.n);
    CHECK(memcmp(one.value, again.value, (size_t)one.n * sizeof *one.value) == 0);
    for (int64_t e = 0; e < one.n; e++) {
        double a = (double)one.value[e], b = (double)apart.value[e];
        if (!(fabs(a - b) <= 0.02 * fabs(b) + 0.02)) far++;
        most = fmax(most, fabs(a - b));
    }
    CHECK_MSG(far == 0, "%g of %lld numbers differ, by up to %g", far, (long long)one.n, most);
    *joined = one.joined;
    free(one.value);
    free(again.value);
    free(apart.value);
}

TEST(device_products_with_sums_match_kernels_apart)
{
    static const shape shapes[] = {{160, 256, 64, PL_BF16},  {160, 256, 64, PL_F16},
                                   {151, 200, 72, PL_BF16},  {200, 64, 256, PL_BF16},
                                   {131, 136, 1000, PL_F16}, {97, 1024, 128, PL_BF16}};
    const char *device = getenv("PL_TEST_DEVICE");
    int joined = 0;
    if (!device || strcmp(device, "cuda") != 0) SKIP("needs a GPU");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bool a = false, b = false;
        check_numbers(statistics, &shapes[i], &a);
        check_numbers(slopes, &shapes[i], &b);
        joined += a + b;
    }
    printf("%d of 12 products are one kernel with their sums\n", joined);
    CHECK(joined > 0);
}

TEST(device_convolutions_with_sums_match_kernels_apart)
{
    static const shape shapes[] = {{160, 64, 64, PL_BF16},  {160, 128, 128, PL_F16},
                                   {151, 200, 64, PL_BF16}, {131, 136, 192, PL_F16},
                                   {240, 64, 64, PL_BF16},  {97, 256, 128, PL_BF16}};
    const char *device = getenv("PL_TEST_DEVICE");
    int joined = 0;
    if (!device || strcmp(device, "cuda") != 0) SKIP("needs a GPU");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bool a = false, b = false;
        check_numbers(windows, &shapes[i], &a);
        check_numbers(window_slopes, &shapes[i], &b);
        joined += a + b;
    }
    printf("%d of 12 convolutions are one kernel with their sums\n", joined);
    CHECK(joined > 0);
}
