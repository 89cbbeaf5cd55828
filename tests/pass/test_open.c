/* test_open.c - pools decomposed into elementwise ops: the same bits, also with ties and NaN,
 * and no pool left where windows are adjacent. */
#include "pass/pass.h"
#include "plimsoll.h"
#include "plimsoll_ops.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct pool_case {
    int64_t h, w, c;
    int kernel, stride, pad;
    bool opened; /* what is expected */
} pool_case;

/* y = pool(leaky(s*x + b)) with its gradients for x and s, and a second reader of the map. */
static pl_graph *build(pl_store *store, const pool_case *k, bool second_reader)
{
    pl_graph *g = pl_graph_new(store);
    pl_type t = PL_TYPE(PL_F32, 2, k->h, k->w, k->c);
    pl_val x = pl_input(g, "x", t), s = pl_input(g, "s", PL_TYPE(PL_F32, k->c));
    pl_val sb = pl_broadcast(g, s, t.rank, t.dim);
    pl_val a = pl_leaky_relu(g, pl_add(g, pl_mul(g, x, sb), pl_full_like(g, x, 0.125)), 0.25);
    pl_pool_opts o = {.kernel = {k->kernel, k->kernel},
                      .stride = {k->stride, k->stride},
                      .pad_lo = {k->pad, k->pad},
                      .pad_hi = {k->pad, k->pad}};
    pl_val y = pl_max_pool(g, a, &o), in[2] = {x, s}, grad[2];
    pl_val loss = pl_sum(g, pl_mul(g, y, pl_square(g, y)), 0xf, false);
    if (second_reader) loss = pl_add(g, loss, pl_sum(g, pl_square(g, a), 0xf, false));
    pl_grad(g, loss, in, 2, grad);
    pl_output(g, "y", y);
    pl_output(g, "dx", grad[0]);
    pl_output(g, "ds", grad[1]);
    return g;
}

static void fill(float *x, int64_t n, bool nan)
{
    uint64_t state = 7;
    for (int64_t i = 0; i < n; i++) x[i] = (float)floor(4 * pl_test_noise(&state)) / 4; /* ties */
    x[n / 2] = INFINITY;
    if (!nan) return; /* oneDNN's pools lose it */
    x[5] = NAN;
    x[n - 2] = -NAN;
}

/* All NaN count as equal. */
static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void check_case(const pool_case *k, bool second_reader)
{
    static const char *const names[] = {"y", "dx", "ds"};
    pl_store *store = pl_store_new();
    pl_program *p[2] = {NULL, NULL};
    pl_session *s[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        pl_compile_opts o = PL_COMPILE_INIT;
        o.reference = i == 0; /* pools stay as they are */
        CHECK_OK(pl_compile(build(store, k, second_reader), &o, &p[i]));
        CHECK_OK(pl_session_new(store, 1, &p[i], &s[i]));
        char *text;
        CHECK_OK(pl_program_print(p[i], &text));
        bool has = strstr(text, "max_pool") != NULL;
        pl_text_free(text);
        CHECK_INT(has, i == 0 || !k->opened);
        pl_type t;
        float *x = pl_session_input(s[i], p[i], "x", &t);
        fill(x, pl_type_elems(&t), k->opened);
        float *scale = pl_session_input(s[i], p[i], "s", &t);
        for (int64_t c = 0; c < k->c; c++) scale[c] = c % 2 ? -1.5f : 0.75f;
        CHECK_OK(pl_session_run(s[i], p[i]));
    }
    for (int n = 0; n < 3; n++) {
        pl_type t;
        const float *a = pl_session_output(s[0], p[0], names[n], &t);
        const float *b = pl_session_output(s[1], p[1], names[n], &t);
        for (int64_t i = 0; i < pl_type_elems(&t); i++)
            CHECK_MSG(same(a[i], b[i]), "%s[%lld]: %a and %a", names[n], (long long)i, (double)a[i],
                      (double)b[i]);
    }
    for (int i = 0; i < 2; i++) {
        pl_session_free(s[i]);
        pl_program_free(p[i]);
    }
    pl_store_free(store);
}

TEST(open_pools_keep_every_bit)
{
    static const pool_case cases[] = {
        {8, 12, 5, 2, 2, 0, true},   {9, 6, 16, 3, 3, 0, true}, {8, 8, 1, 2, 2, 0, true},
        {9, 12, 4, 2, 2, 0, false},  {8, 8, 4, 3, 2, 1, false}, {8, 8, 3, 2, 1, 0, false},
        {16, 16, 2, 4, 4, 0, false}, /* sixteen taps: forward stays a pool */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_case(&cases[i], false);
        check_case(&cases[i], true);
    }
}

/* ---- what sinks ------------------------------------------------------------------------- */
/* Number of elements of exp in the graph after the passes, which consume g; -1 on failure. */
static int64_t exp_elems(pl_graph *g)
{
    char *text = NULL;
    int64_t elems = -1;
    if (pl_passes_run(&g, &(pl_pass_opts){.open = true}) == PL_OK &&
        pl_graph_print(g, &text) == PL_OK) {
        elems = 0;
        for (const char *at = strstr(text, "= exp"); at; at = strstr(at + 1, "= exp")) {
            const char *dim = at;
            while (dim > text && *dim != '[') dim--;
            elems += atoll(dim + 1);
        }
    }
    pl_text_free(text);
    pl_graph_free(g);
    return elems;
}

/* exp(x) of 64 elements, its slices, and optionally a reader of the whole. */
static int64_t computed(int slices, int64_t each, bool whole, bool after)
{
    static const char *const names[] = {"a", "b", "c"};
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 64)), y = pl_exp(g, x), d;
    for (int i = 0; i < slices; i++)
        pl_output(g, names[i], pl_square(g, pl_slice(g, y, 0, i * 16, i * 16 + each, 1)));
    if (whole) pl_output(g, "whole", pl_sum(g, y, PL_AXES_ALL, false));
    if (after) {
        pl_val loss = pl_sum(g, pl_square(g, pl_slice(g, y, 0, 0, each, 1)), PL_AXES_ALL, false);
        pl_grad(g, loss, &x, 1, &d);
        pl_output(g, "d", d);
    }
    int64_t n = exp_elems(g);
    pl_store_free(store);
    return n;
}

TEST(open_groups_compute_nothing_twice)
{
    CHECK_INT(computed(2, 16, false, false), 32);     /* only the elements that are read */
    CHECK_INT(computed(3, 32, false, false), 64);     /* overlapping slices: 96 is more */
    CHECK_INT(computed(2, 16, true, false), 64);      /* the whole is needed anyway */
    CHECK_INT(computed(0, 16, false, true), 16 + 64); /* backward has a separate copy */
}
