/* test_session.c - state and sessions: slots are exactly what assign writes, several programs
 * share them, a run allocates nothing, and programs of other sessions are refused. */
#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "plimsoll_unstable.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- state ------------------------------------------------------------------------------ */
static int float_slot(pl_store *s, const char *name, int64_t n, double value)
{
    return pl_store_add(
        s, &(pl_slot){.name = name, .type = PL_TYPE(PL_F32, n), .init = {PL_INIT_CONST, value, 0}});
}

typedef struct rig {
    pl_store *store;
    pl_program *p;
    pl_session *s;
} rig;

static pl_status rig_up(rig *r, pl_graph *g, bool poison)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    o.poison = poison;
    PL_FAIL_IF(!r->store, PL_ERR_ARG, "no store");
    pl_status rc = pl_compile(g, &o, &r->p);
    if (rc == PL_OK) rc = pl_session_new(r->store, 1, &r->p, &r->s);
    if (rc == PL_OK) pl_session_init(r->s, 1);
    return rc;
}

static void rig_down(rig *r)
{
    pl_session_free(r->s);
    pl_program_free(r->p);
    pl_store_free(r->store);
}

static float first(rig *r, int slot)
{
    return *(const float *)pl_session_slot(r->s, slot);
}

TEST(run_rotates_slots)
{
    for (int poison = 0; poison < 2; poison++) {
        rig r = {.store = pl_store_new()};
        int a = float_slot(r.store, "a", 5, 1), b = float_slot(r.store, "b", 5, 2);
        int c = float_slot(r.store, "c", 5, 3), d = float_slot(r.store, "d", 5, 4);
        pl_graph *g = pl_graph_new(r.store);
        pl_val va = pl_state(g, a), vb = pl_state(g, b), vc = pl_state(g, c);
        pl_output(g, "old_c", vc);
        pl_assign(g, a, vb); /* a, b, c rotate; d keeps its own value */
        pl_assign(g, b, vc);
        pl_assign(g, c, va);
        pl_assign(g, d, pl_state(g, d));
        CHECK_OK(rig_up(&r, g, poison));
        CHECK_OK(pl_session_run(r.s, r.p));
        CHECK(first(&r, a) == 2 && first(&r, b) == 3 && first(&r, c) == 1 && first(&r, d) == 4);
        CHECK(*(const float *)pl_session_output(r.s, r.p, "old_c", NULL) == 3);
        CHECK_OK(pl_session_run(r.s, r.p));
        CHECK(first(&r, a) == 3 && first(&r, b) == 1 && first(&r, c) == 2);
        rig_down(&r);
    }
}

TEST(run_updates_two_slots_that_read_each_other)
{
    /* each new value needs the old value of the other: one of the two cannot be made in place */
    rig r = {.store = pl_store_new()};
    int a = float_slot(r.store, "a", 5, 1), b = float_slot(r.store, "b", 5, 2);
    pl_graph *g = pl_graph_new(r.store);
    pl_val va = pl_state(g, a), vb = pl_state(g, b);
    pl_assign(g, a, pl_add(g, va, vb));
    pl_assign(g, b, pl_sub(g, va, vb));
    CHECK_OK(rig_up(&r, g, true));
    CHECK_OK(pl_session_run(r.s, r.p));
    CHECK(first(&r, a) == 3 && first(&r, b) == -1);
    rig_down(&r);
}

TEST(run_assigns_values_of_every_kind_to_slots)
{
    /* one value to two slots and an output, an input, a window of another slot, a constant */
    rig r = {.store = pl_store_new()};
    int a = float_slot(r.store, "a", 4, 1), b = float_slot(r.store, "b", 4, 2);
    int c = float_slot(r.store, "c", 4, 3), d = float_slot(r.store, "d", 8, 4);
    int e = float_slot(r.store, "e", 4, 5), f = float_slot(r.store, "f", 8, 6);
    pl_graph *g = pl_graph_new(r.store);
    pl_val sum = pl_add(g, pl_state(g, a), pl_state(g, b));
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4));

    pl_assign(g, a, sum);
    pl_assign(g, b, sum);
    pl_output(g, "sum", sum);
    pl_assign(g, c, x);
    pl_assign(g, d, pl_fill(g, PL_TYPE(PL_F32, 8), 9));
    pl_assign(g, e, pl_slice(g, pl_state(g, d), 0, 4, 8, 1));
    pl_assign(g, f,
              pl_reshape(g, pl_neg(g, pl_reshape(g, pl_state(g, d), PL_DIMS(2, 4))), PL_DIMS(8)));
    CHECK_OK(rig_up(&r, g, true));
    float *to = pl_session_input(r.s, r.p, "x", NULL);
    for (int i = 0; i < 4; i++) to[i] = 7;
    CHECK_OK(pl_session_run(r.s, r.p));
    CHECK(first(&r, a) == 3 && first(&r, b) == 3 && first(&r, c) == 7 && first(&r, d) == 9);
    CHECK(first(&r, e) == 4 && first(&r, f) == -4);
    CHECK(*(const float *)pl_session_output(r.s, r.p, "sum", NULL) == 3);

    rig_down(&r);
}

TEST(run_updates_in_place)
{
    /* w - g: computed in the slot, so the arena holds neither a new w nor a copy */
    rig r = {.store = pl_store_new()};
    int w = float_slot(r.store, "w", 1000, 1);
    pl_graph *g = pl_graph_new(r.store);
    pl_assign(g, w, pl_relu(g, pl_state(g, w)));
    CHECK_OK(rig_up(&r, g, false));
    for (int i = 0; i < pl_program_plan(r.p)->buffers; i++)
        CHECK_INT(pl_program_buffer(r.p, i).component, PL_COMP_WORKSPACE);
    CHECK_OK(pl_session_run(r.s, r.p));
    CHECK(first(&r, w) == 1);
    rig_down(&r);
}

TEST(run_counts_in_a_slot)
{
    rig r = {.store = pl_store_new()};
    int n = pl_store_add(r.store, &(pl_slot){.name = "step", .type = PL_RANK0(PL_I64)});
    pl_graph *g = pl_graph_new(r.store);
    pl_val step = pl_state(g, n);
    pl_output(g, "step", step);
    pl_assign(g, n, pl_shift(g, step, 1));
    CHECK_OK(rig_up(&r, g, true));
    for (int64_t i = 0; i < 5; i++) {
        CHECK_OK(pl_session_run(r.s, r.p));
        CHECK_INT(*(const int64_t *)pl_session_output(r.s, r.p, "step", NULL), i);
        CHECK_INT(*(const int64_t *)pl_session_slot(r.s, n), i + 1);
    }
    rig_down(&r);
}

/* After a poisoned run, every byte holds NaN that is in no buffer alive at the last position. */
TEST(run_poison_reaches_dead_bytes)
{
    rig r = {.store = pl_store_new()};

    CHECK_OK(rig_up(&r, training_graph(r.store, 8, 128, 128), true));
    const pl_plan_info *info = pl_program_plan(r.p);
    char *base = pl_session_input(r.s, r.p, "x", NULL), *dead = calloc(1, info->arena_bytes);
    int32_t end = 0;
    for (int i = 0; i < info->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(r.p, i);
        if (b.component == PL_COMP_INPUTS) base -= b.offset;
        if (b.last > end) end = b.last;
    }
    memset(base, 0, info->arena_bytes);
    CHECK_OK(pl_session_run(r.s, r.p));
    memset(dead, 1, info->arena_bytes);
    for (int i = 0; i < info->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(r.p, i);
        if (b.last == end) memset(dead + b.offset, 0, b.bytes);
    }
    size_t n = 0, wrong = 0;
    for (size_t i = 0; i < info->arena_bytes; i++) {
        n += dead[i] != 0;
        wrong += dead[i] && base[i] != (char)0xff;
    }
    free(dead);
    CHECK_MSG(n > info->arena_bytes / 2, "only %zu bytes are dead", n);
    CHECK_MSG(wrong == 0, "%zu dead bytes are not poisoned", wrong);

    rig_down(&r);
}

/* ---- sessions --------------------------------------------------------------------------- */
TEST(run_shares_one_arena_between_programs)
{
    pl_store *store = pl_store_new();
    pl_program *p[2] = {NULL, NULL};
    int w = float_slot(store, "w", 3, 1);

    for (int i = 0; i < 2; i++) {
        pl_graph *g = pl_graph_new(store);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, i ? 30 : 3));
        pl_val v = i ? pl_slice(g, pl_tanh(g, pl_scale(g, x, 0)), 0, 0, 3, 1) : x;
        pl_assign(g, w, pl_add(g, pl_state(g, w), v));
        CHECK_OK(pl_compile(g, NULL, &p[i]));
    }
    pl_session *s;
    CHECK_OK(pl_session_new(store, 2, p, &s));
    pl_session_init(s, 1);
    uint64_t a = pl_program_plan(p[0])->arena_bytes, b = pl_program_plan(p[1])->arena_bytes;
    CHECK_INT(pl_session_arena_bytes(s), a > b ? a : b);

    for (int turn = 0; turn < 6; turn++) {
        pl_type t;
        float *x = pl_session_input(s, p[turn % 2], "x", &t);
        for (int64_t i = 0; i < pl_type_elems(&t); i++) x[i] = 10;
        CHECK_OK(pl_session_run(s, p[turn % 2]));
    }
    CHECK(*(float *)pl_session_slot(s, w) == 31);
    CHECK(!pl_session_input(s, p[0], "nobody", NULL) && !pl_session_slot(s, 7));
    pl_session_free(s);
    for (int i = 0; i < 2; i++) pl_program_free(p[i]);
    pl_store_free(store);
}

TEST(run_refuses_programs_of_another_store)
{
    pl_store *store = pl_store_new(), *other = pl_store_new();
    pl_graph *g = pl_graph_new(store);

    pl_output(g, "y", pl_fill(g, PL_TYPE(PL_F32, 2), 1));
    pl_program *p;
    CHECK_OK(pl_compile(g, NULL, &p));
    pl_session *s;
    CHECK_INT(pl_session_new(other, 1, &p, &s), PL_ERR_ARG);
    CHECK_OK(pl_session_new(store, 0, NULL, &s));
    CHECK_INT(pl_session_run(s, p), PL_ERR_ARG);
    pl_session_free(s);
    pl_program_free(p);
    pl_compile_opts o = PL_COMPILE_INIT;
    o.device = "abacus";
    CHECK_INT(pl_compile(pl_graph_new(store), &o, &p), PL_ERR_DEVICE);

    g = pl_graph_new(store);
    pl_add(g, pl_input(g, "a", PL_TYPE(PL_F32, 2)), pl_input(g, "b", PL_TYPE(PL_F32, 3)));
    CHECK_INT(pl_compile(g, NULL, &p), PL_ERR_SHAPE);
    pl_store_free(store);
    pl_store_free(other);
}

TEST(run_accepts_empty_programs_and_empty_values)
{
    /* nothing at all */
    rig r = {.store = pl_store_new()};

    CHECK_OK(rig_up(&r, pl_graph_new(r.store), true));
    CHECK_OK(pl_session_run(r.s, r.p));
    CHECK_INT(pl_session_arena_bytes(r.s), 0);
    rig_down(&r);
    /* an input and a slot passed through, an empty value computed and assigned */
    r = (rig){.store = pl_store_new()};
    int w = float_slot(r.store, "w", 3, 8), none = float_slot(r.store, "none", 0, 1);
    pl_graph *g = pl_graph_new(r.store);
    pl_output(g, "x", pl_input(g, "x", PL_TYPE(PL_F32, 2)));
    pl_output(g, "again", pl_state(g, w));
    pl_val empty = pl_tanh(g, pl_state(g, none));
    pl_output(g, "empty", empty);
    pl_assign(g, none, pl_neg(g, empty));
    CHECK_OK(rig_up(&r, g, true));
    float *x = pl_session_input(r.s, r.p, "x", NULL);
    x[0] = 5, x[1] = 6;
    CHECK_OK(pl_session_run(r.s, r.p));
    const float *y = pl_session_output(r.s, r.p, "x", NULL);
    CHECK(y[0] == 5 && y[1] == 6);
    CHECK(*(const float *)pl_session_output(r.s, r.p, "again", NULL) == 8);
    CHECK(pl_session_output(r.s, r.p, "nobody", NULL) == NULL);

    rig_down(&r);
}

TEST(run_allocates_nothing)
{
    pl_threads_set(2);
    rig r = {.store = pl_store_new()};
    CHECK_OK(rig_up(&r, training_graph(r.store, 6, 16, 24), false));
    CHECK_INT(pl_session_arena_bytes(r.s), pl_program_plan(r.p)->arena_bytes);
    CHECK_INT(pl_session_state_bytes(r.s), pl_program_plan(r.p)->state_bytes);

    pl_sys_counts before = {0}, after;
    float loss[40];
    for (int i = 0; i < 40; i++) {
        if (i == 2) before = pl_sys_counts_get();
        pl_type t;
        float *x = pl_session_input(r.s, r.p, "x", &t);
        fill_input(3, "x", &t, x);
        CHECK_OK(pl_session_run(r.s, r.p));
        loss[i] = *(const float *)pl_session_output(r.s, r.p, "loss", NULL);
    }
    after = pl_sys_counts_get();
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK_MSG(loss[39] < 0.1f * loss[0], "loss %g became %g", (double)loss[0], (double)loss[39]);

    rig_down(&r);
}

TEST(run_initial_draws_have_their_moments)
{
    pl_store *store = pl_store_new();
    enum { N = 100000 };
    int u = pl_store_add(
        store,
        &(pl_slot){.name = "u", .type = PL_TYPE(PL_F32, N), .init = {PL_INIT_UNIFORM, -0.5, 0.25}});
    int z = pl_store_add(
        store, &(pl_slot){.name = "z", .type = PL_TYPE(PL_F32, N), .init = {PL_INIT_NORMAL, 3, 2}});
    int h = pl_store_add(
        store,
        &(pl_slot){.name = "h", .type = PL_TYPE(PL_BF16, N), .init = {PL_INIT_UNIFORM, 0, 1}});
    int c = float_slot(store, "c", 3, 1.5);
    pl_session *s, *again;

    CHECK_OK(pl_session_new(store, 0, NULL, &s));
    pl_session_init(s, 42);
    double sum = 0, mean = 0, square = 0;
    for (int i = 0; i < N; i++) {
        float x = ((float *)pl_session_slot(s, u))[i], y = ((float *)pl_session_slot(s, z))[i];
        CHECK(x >= -0.5f && x < 0.25f);
        CHECK(pl_elem_get(PL_BF16, pl_session_slot(s, h), i) < 1);
        sum += (double)x;
        mean += (double)y;
        square += (double)y * (double)y;
    }
    CHECK_NEAR(sum / N, -0.125, 0.003);
    CHECK_NEAR(mean / N, 3, 0.03);
    CHECK_NEAR(sqrt(square / N - mean / N * mean / N), 2, 0.03);
    CHECK(((float *)pl_session_slot(s, c))[2] == 1.5f);

    /* a slot's numbers depend on seed and name only */
    pl_store *small = pl_store_new();
    int z2 = pl_store_add(
        small, &(pl_slot){.name = "z", .type = PL_TYPE(PL_F32, N), .init = {PL_INIT_NORMAL, 3, 2}});
    CHECK_OK(pl_session_new(small, 0, NULL, &again));
    pl_session_init(again, 42);
    CHECK(memcmp(pl_session_slot(s, z), pl_session_slot(again, z2), N * 4) == 0);

    pl_session_init(again, 43);
    CHECK(memcmp(pl_session_slot(s, z), pl_session_slot(again, z2), N * 4) != 0);
    pl_session_free(s);
    pl_session_free(again);
    pl_store_free(store);
    pl_store_free(small);
}

TEST(run_profile_and_report_name_kernels)
{
    rig r = {.store = pl_store_new()};

    CHECK_OK(rig_up(&r, training_graph(r.store, 3, 16, 24), false));
    char *text;
    CHECK_INT(pl_session_profile_text(r.s, r.p, 5, &text), PL_ERR_ARG);
    CHECK_OK(pl_session_profile(r.s, true));
    for (int i = 0; i < 3; i++) CHECK_OK(pl_session_run(r.s, r.p));
    CHECK_OK(pl_session_profile_text(r.s, r.p, 5, &text));
    CHECK_MSG(strstr(text, "mean of 3") && strstr(text, "matmul") && strstr(text, " more"), "%s",
              text);
    pl_text_free(text);
    CHECK_OK(pl_program_report(r.p, 0, &text));
    CHECK_MSG(strstr(text, "peak at position") && strstr(text, "activation"), "%s", text);
    pl_text_free(text);
    CHECK_OK(pl_session_profile(r.s, false));
    CHECK_OK(pl_session_run(r.s, r.p));
    rig_down(&r);
}

TEST_ALONE(run_compiles_large_graphs_fast)
{
    pl_store *store = pl_store_new();
    uint64_t t0 = used_ns();
    pl_graph *g = training_graph(store, 152, 32, 32);
    int nodes = pl_graph_nodes(g);
    pl_program *p;

    CHECK_OK(pl_compile(g, NULL, &p));
    const pl_plan_info *i = pl_program_plan(p);
    double ms = (double)(used_ns() - t0) / 1e6;
    printf("    %d nodes built, differentiated and compiled to %d units in %.0f ms\n", nodes,
           i->units, ms);

    CHECK_MSG(nodes >= 5000 && ms < 2000 * PATIENCE, "%d nodes took %.0f ms", nodes, ms);
    CHECK((double)i->arena_bytes <= 1.01 * (double)i->live_bound_bytes);
    pl_program_free(p);
    pl_store_free(store);
}

/* Every allocation of compiling and binding fails once: no crash, the right status, no leak (the
 * address sanitizer's build checks for leaks). */
TEST(run_survives_failing_allocations)
{
    bool hit = true;
    uint64_t n = 1;
    /* Measured times would be used where there is memory for their curves, estimates elsewhere. */
    char *cache = strdup(getenv("PLIMSOLL_CACHE"));
    setenv("PLIMSOLL_CACHE", pl_test_dir(), 1);

    for (; hit; n++) {
        CHECK_MSG(n < 5000, "failed allocation %d was not met", (int)n);
        pl_store *store = pl_store_new();
        pl_graph *g = random_graph(store, 11, 40);
        pl_program *p = NULL;
        pl_session *s = NULL;
        pl_sys_fail_nth(n);
        pl_status rc = pl_compile(g, NULL, &p);
        if (rc == PL_OK) rc = pl_session_new(store, 1, &p, &s);
        hit = pl_sys_fail_hit();
        pl_sys_fail_nth(0);
        CHECK_MSG(rc == (hit ? PL_ERR_MEMORY : PL_OK), "allocation %d: %s", (int)n,
                  pl_status_name(rc));
        pl_session_free(s);
        pl_program_free(p);
        pl_store_free(store);
    }
    setenv("PLIMSOLL_CACHE", cache, 1);
    free(cache);
    CHECK_MSG(n > 40, "only %d allocations", (int)n);
}
