/* test_device.c - training where the host cannot read the device's memory.
 *
 * The device is "apart" (rt/guarded), which every machine has, or the device of PL_TEST_DEVICE:
 * `make test-cuda` runs these tests on a GPU. Results that are equal to the bit on the CPU are
 * equal to the bit there; between the two devices results are close, and equal for "apart", which
 * computes on the CPU. */
#include "base/dtype.h"
#include "base/sys.h"
#include "plimsoll_ops.h"
#include "plimsoll_train.h"
#include "plimsoll_unstable.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 4 };

static const char *other(void)
{
    const char *given = getenv("PL_TEST_DEVICE");
    return given ? given : "apart";
}

static bool is_card(void)
{
    return strcmp(other(), "apart") != 0;
}

/* ---- runs of a small network ------------------------------------------------------------ */
static const char *const small[] = {"batch=4",
                                    "height=16",
                                    "width=16",
                                    "model.channels=[4, 6, 8]",
                                    "model.dense=[12, 8]",
                                    "model.film_hidden=8",
                                    "eval.batches=2",
                                    "data.samples=40",
                                    "data.eval_samples=8",
                                    "clip.norm=5",
                                    "accumulate_coupled=true"};
enum { N_SMALL = sizeof small / sizeof *small };

typedef struct trace {
    double loss[STEPS], metric[PL_MAX_METRICS];
    unsigned char *model; /* the saved file */
    size_t model_bytes;
} trace;

static pl_status open_small(const char *device, const char *extra, pl_run **run)
{
    const char *overrides[N_SMALL + 2];
    char text[64];
    snprintf(text, sizeof text, "device=%s", device);
    memcpy(overrides, small, sizeof small);
    overrides[N_SMALL] = text;
    overrides[N_SMALL + 1] = extra;
    return pl_run_open("cloud/tiny", overrides, N_SMALL + 1 + (extra != NULL), run);
}

static pl_status follow(pl_run *run, trace *t)
{
    char path[512], *text;
    snprintf(path, sizeof path, "%s/model.safetensors", pl_test_dir());
    PL_TRY(pl_run_build(run));
    PL_TRY(pl_run_start(run));
    for (int i = 0; i < STEPS; i++) {
        pl_step_info info;
        pl_eval_info e;
        PL_TRY(pl_run_step(run, &info));
        t->loss[i] = info.loss;
        if (i != 1) continue; /* in the middle: it must not disturb the prefetched batch */
        PL_TRY(pl_run_eval(run, &e));
        memcpy(t->metric, e.value, sizeof e.value);
    }
    PL_TRY(pl_run_save_model(run, path));
    PL_TRY(pl_sys_read_file(path, 64 << 20, &text, &t->model_bytes));
    t->model = (unsigned char *)text;
    return PL_OK;
}

static pl_status trace_of(const char *device, const char *extra, const pl_compile_opts *o, trace *t)
{
    pl_run *run;
    memset(t, 0, sizeof *t);
    PL_TRY(open_small(device, extra, &run));
    if (o) pl_run_set_compile(run, o);
    pl_status rc = follow(run, t);
    pl_run_free(run);
    return rc;
}

static bool same_bits(const trace *a, const trace *b)
{
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->metric, b->metric, sizeof a->metric) == 0 &&
           a->model_bytes == b->model_bytes && memcmp(a->model, b->model, a->model_bytes) == 0;
}

static void drop(trace *t)
{
    pl_sys_free(t->model);
    t->model = NULL;
}

TEST(device_trains_like_the_cpu)
{
    trace cpu, a, b;
    static const char *const extra[] = {NULL, "accumulate=2", "compile.mode=eager"};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(trace_of("cpu", i == 1 ? "accumulate=2" : NULL, NULL, &cpu));
        CHECK_OK(trace_of(other(), extra[i], NULL, &a));
        CHECK_OK(trace_of(other(), extra[i], NULL, &b));
        CHECK_MSG(same_bits(&a, &b), "two runs on %s differ: loss %.9g and %.9g", other(),
                  a.loss[STEPS - 1], b.loss[STEPS - 1]);
        CHECK_MSG(is_card() || same_bits(&cpu, &a), "loss %.9g, on the CPU %.9g", a.loss[STEPS - 1],
                  cpu.loss[STEPS - 1]);
        for (int k = 0; k < STEPS; k++)
            CHECK_NEAR(a.loss[k], cpu.loss[k], 1e-4 * fabs(cpu.loss[k]));
        drop(&cpu), drop(&a), drop(&b);
    }
}

TEST(device_plans_do_not_change_bits)
{
    trace plain, t;

    CHECK_OK(trace_of(other(), NULL, NULL, &plain));
    pl_run *run;
    CHECK_OK(open_small(other(), NULL, &run));
    CHECK_OK(pl_run_build(run));
    uint64_t arena = pl_program_plan(pl_run_train_program(run))->arena_bytes;
    pl_run_free(run);
    for (int i = 0; i < 5; i++) {
        pl_compile_opts o = PL_COMPILE_INIT;
        o.device = other();
        if (i == 0) o.poison = true;
        if (i == 1) o.no_reuse = true;
        if (i == 2) o.no_fuse = true;
        if (i == 3) o.arena_budget = arena / 10 * 8; /* recomputes part of it */
        if (i == 4) o.mode = PL_MODE_EAGER;
        CHECK_OK(trace_of(other(), NULL, &o, &t));
        CHECK_MSG(same_bits(&plain, &t), "variant %d: loss %.9g, was %.9g", i, t.loss[STEPS - 1],
                  plain.loss[STEPS - 1]);
        drop(&t);
    }
    drop(&plain);
}

TEST(device_replay_agrees_with_pytorch)
{
    char text[64];
    snprintf(text, sizeof text, "device=%s", other());
    const char *overrides[] = {text};
    pl_replay_opts o = {.overrides = overrides, .n_overrides = 1, .loss_tol = 1e-4};
    pl_replay_report r;
    CHECK_OK(pl_replay("tests/data/peers/cloud", &o, &r));
    CHECK_MSG(r.agree, "loss %g (%s), gradient %g (%s), weights %g (%s)", r.worst_loss,
              r.worst_loss_name, r.worst_grad, r.worst_grad_name, r.worst_final,
              r.worst_final_name);
}

/* Loading and saving go through the bounce block. */
TEST(device_model_file_reads_back_the_same)
{
    char path[512], override[600];

    snprintf(path, sizeof path, "%s/model.safetensors", pl_test_dir());
    snprintf(override, sizeof override, "init_from=%s", path);
    trace t;
    pl_run *a, *b;
    CHECK_OK(open_small("cpu", "seed=3", &a));
    CHECK_OK(follow(a, &t));
    CHECK_OK(open_small(other(), override, &b));
    CHECK_OK(pl_run_build(b));
    CHECK_OK(pl_run_start(b));
    char again[512], *text;
    size_t bytes;
    snprintf(again, sizeof again, "%s/again.safetensors", pl_test_dir());
    CHECK_OK(pl_run_save_model(b, again));
    CHECK_OK(pl_sys_read_file(again, 64 << 20, &text, &bytes));
    CHECK(bytes == t.model_bytes && memcmp(text, t.model, bytes) == 0);
    pl_sys_free(text);
    drop(&t);
    pl_run_free(a);
    pl_run_free(b);
}

/* ---- sessions --------------------------------------------------------------------------- */
typedef struct rig {
    pl_store *store;
    pl_program *p[2];
    pl_session *s;
    int slot;
} rig;

enum { WIDE = 3 << 20 }; /* a slot that takes several trips through the bounce block */

/* Program 0: w += x (and 1 if it is to be added later), output y = w + x (large) and sum(x);
 * program 1: output z = w at 3. */
static pl_status rig_on(rig *r, const char *device, bool both)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    o.device = device;
    *r = (rig){.store = pl_store_new()};
    pl_type wide = PL_TYPE(PL_F32, WIDE);
    r->slot = pl_store_add(r->store,
                           &(pl_slot){.name = "w", .type = wide, .init = {PL_INIT_UNIFORM, -1, 1}});
    pl_graph *g = pl_graph_new(r->store);
    pl_val x = pl_input(g, "x", wide), w = pl_state(g, r->slot), y = pl_add(g, w, x);
    if (!both) y = pl_shift(g, y, 1);
    pl_assign(g, r->slot, y);
    pl_output(g, "y", y);
    pl_output(g, "sum", pl_sum(g, x, 1, false));
    PL_TRY(pl_compile(g, &o, &r->p[0]));
    g = pl_graph_new(r->store);
    pl_output(g, "z", pl_slice(g, pl_state(g, r->slot), 0, 3, 4, 1));
    PL_TRY(pl_compile(g, &o, &r->p[1]));
    PL_TRY(pl_session_new(r->store, both ? 2 : 1, both ? r->p : r->p + 1, &r->s));
    return pl_session_init(r->s, 7);
}

static pl_status rig_up(rig *r)
{
    return rig_on(r, other(), true);
}

static void rig_down(rig *r)
{
    pl_session_free(r->s);
    pl_program_free(r->p[0]);
    pl_program_free(r->p[1]);
    pl_store_free(r->store);
}

TEST(device_session_moves_inputs_outputs_and_slots)
{
    rig r;
    float *mine = calloc(WIDE, sizeof *mine), got;

    CHECK_OK(rig_up(&r));
    CHECK(!pl_session_slot(r.s, r.slot));
    CHECK_OK(pl_session_read_slot(r.s, r.slot, 0, mine, WIDE * sizeof *mine));
    CHECK(mine[0] != mine[WIDE - 1] && fabsf(mine[WIDE - 1]) <= 1);

    float w3 = mine[3];
    for (int turn = 0; turn < 5; turn++) {
        float *x = pl_session_input(r.s, r.p[0], "x", NULL);
        for (int i = 0; i < WIDE; i++) x[i] = 0;
        x[3] = (float)(1 << turn);
        w3 += x[3];
        CHECK_OK(pl_session_run(r.s, r.p[0]));
        /* The next batch is elsewhere: writing it must not disturb the run. */
        CHECK(pl_session_input(r.s, r.p[0], "x", NULL) != (void *)x);
        memset(pl_session_input(r.s, r.p[0], "x", NULL), 0x7f, WIDE * sizeof *x);
        CHECK(*(const float *)pl_session_output(r.s, r.p[0], "sum", NULL) == (float)(1 << turn));
        const float *y = pl_session_output(r.s, r.p[0], "y", NULL);
        CHECK(y[3] == w3 && y[WIDE - 1] == mine[WIDE - 1]);
        CHECK_OK(pl_session_run(r.s, r.p[1]));
        CHECK(*(const float *)pl_session_output(r.s, r.p[1], "z", NULL) == w3);
    }
    got = -5;
    CHECK_OK(pl_session_write_slot(r.s, r.slot, 12, &got, sizeof got));
    CHECK_OK(pl_session_run(r.s, r.p[1]));
    CHECK_OK(pl_session_wait(r.s));
    CHECK(*(const float *)pl_session_output(r.s, r.p[1], "z", NULL) == -5);
    CHECK_OK(pl_session_read_slot(r.s, r.slot, 12, &got, sizeof got));
    CHECK(got == -5);
    CHECK(pl_session_read_slot(r.s, r.slot, WIDE * 4 - 2, &got, 4) == PL_ERR_ARG);
    CHECK(pl_session_read_slot(r.s, 9, 0, &got, 4) == PL_ERR_ARG);
    free(mine);
    rig_down(&r);
}

/* ---- groups ------------------------------------------------------------------------------ */

/* A norm over rows of n and its gradients; the weights' gradients are sums of columns, computed
 * together with the rows. */
static void rows_back(pl_graph *g, pl_dtype d, int64_t rows, int64_t n)
{
    pl_val x = pl_input(g, "x", PL_TYPE(d, 2, rows, n)),
           dy = pl_input(g, "dy", PL_TYPE(d, 2, rows, n)), mean, var, grad[3];
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, n)), b = pl_input(g, "b", PL_TYPE(PL_F32, n));
    pl_moments(g, x, PL_AXIS(-1), true, &mean, &var);
    pl_val z =
        pl_mul(g, pl_sub(g, pl_cast(g, x, PL_F32), mean), pl_rsqrt(g, pl_shift(g, var, 1e-5)));
    z = pl_add(g, pl_mul(g, z, w), b);
    pl_grad(g, pl_sum(g, pl_mul(g, z, pl_cast(g, dy, PL_F32)), PL_AXES_ALL, false),
            (pl_val[]){x, w, b}, 3, grad);
    pl_output(g, "dx", grad[0]);
    pl_output(g, "dw", grad[1]);
    pl_output(g, "db", grad[2]);
    pl_val wide = pl_cast(g, grad[0], PL_F32);
    pl_output(g, "each", pl_sum(g, wide, PL_AXIS(1), false));
    pl_output(g, "all", pl_sum(g, pl_reshape(g, wide, PL_DIMS(2 * rows, n)), PL_AXIS(0), false));
}

/* A pool after a norm of channels, and the gradients of its scale and shift. */
static void pool_back(pl_graph *g, pl_dtype d, int64_t side, int64_t c)
{
    pl_val x = pl_input(g, "x", PL_TYPE(d, 2, side, side, c)),
           dy = pl_input(g, "dy", PL_TYPE(d, 2, side / 2, side / 2, c));
    pl_val w = pl_input(g, "w", PL_TYPE(PL_F32, c)), b = pl_input(g, "b", PL_TYPE(PL_F32, c)),
           grad[3];
    pl_val y = pl_leaky_relu(g, pl_add(g, pl_mul(g, pl_cast(g, x, PL_F32), w), b), 0.1);
    pl_pool_opts two = {.kernel = {2, 2}};
    pl_val p = pl_max_pool(g, pl_cast(g, y, d), &two);
    pl_val loss =
        pl_sum(g, pl_mul(g, pl_cast(g, p, PL_F32), pl_cast(g, dy, PL_F32)), PL_AXES_ALL, false);
    pl_grad(g, loss, (pl_val[]){x, w, b}, 3, grad);
    pl_output(g, "dw", grad[1]);
    pl_output(g, "db", grad[2]);
    pl_output(g, "dx", grad[0]);
}

static const struct {
    void (*make)(pl_graph *g, pl_dtype d, int64_t a, int64_t b);
    pl_dtype dtype;
    int64_t a, b;
} group_cases[] = {{rows_back, PL_F32, 300, 768},
                   {rows_back, PL_F16, 300, 768},
                   {rows_back, PL_BF16, 700, 1024},
                   {rows_back, PL_F16, 61, 1000},
                   {rows_back, PL_F32, 40, 2048},
                   {rows_back, PL_BF16, 9, 20000},
                   {pool_back, PL_F16, 64, 64},
                   {pool_back, PL_F32, 96, 12},
                   {pool_back, PL_BF16, 32, 256},
                   {rows_back, PL_BF16, 333, 192},
                   {rows_back, PL_F16, 50, 320},
                   {rows_back, PL_F16, 4000, 96},
                   {rows_back, PL_F32, 5001, 36},
                   /* long rows that also sum many columns: on a GPU only */
                   {rows_back, PL_F16, 8500, 1152},
                   {rows_back, PL_BF16, 8460, 1408},
                   {rows_back, PL_F32, 8450, 2048},
                   {rows_back, PL_F16, 8449, 5000}};
enum { N_GROUPS = sizeof group_cases / sizeof *group_cases, N_LARGE_GROUPS = 4 };

/* All outputs of a case one after the other, as f32 and as they are stored. */
static pl_status group_run(int at, const char *device, bool fuse, float **value, int64_t *n)
{
    static const char *const names[] = {"dx", "dw", "db", "each", "all"};
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_program *p = NULL;
    pl_session *s = NULL;
    o.device = device;
    o.no_fuse = !fuse;
    group_cases[at].make(g, group_cases[at].dtype, group_cases[at].a, group_cases[at].b);
    pl_status rc = pl_compile(g, &o, &p);
    if (rc == PL_OK) rc = pl_session_new(store, 1, &p, &s);
    if (rc == PL_OK) rc = pl_session_init(s, 7);
    static const char *const inputs[] = {"x", "dy", "w", "b"};
    for (int i = 0; rc == PL_OK && i < 4; i++) {
        pl_type t;
        void *to = pl_session_input(s, p, inputs[i], &t);
        for (int64_t e = 0; to && e < pl_type_elems(&t); e++) /* the loss does not need all */
            pl_elem_set(t.dtype, to, e, sin((double)(e + 1) * (1.37 + i)) + (i == 2));
    }
    if (rc == PL_OK) rc = pl_session_run(s, p);
    if (rc == PL_OK) rc = pl_session_wait(s);
    *n = 0;
    *value = NULL;
    for (int i = 0; rc == PL_OK && i < 5; i++) {
        pl_type t;
        const void *from = pl_session_output(s, p, names[i], &t);
        if (!from) continue;
        int64_t more = pl_type_elems(&t);
        *value = pl_sys_realloc(*value, (size_t)*n * sizeof **value,
                                (size_t)(*n + more) * sizeof **value);
        for (int64_t e = 0; e < more; e++) (*value)[(*n)++] = (float)pl_elem_get(t.dtype, from, e);
    }
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(store);
    return rc;
}

/* PL_DEVICE_GROUPS="FIRST STEP": a share of the cases (tools/gpu/sanitize). */
TEST(device_groups_do_not_change_bits)
{
    int first = 0, step = 1, last = N_GROUPS - (is_card() ? 0 : N_LARGE_GROUPS);
    const char *share = getenv("PL_DEVICE_GROUPS");

    if (share) CHECK(sscanf(share, "%d %d", &first, &step) == 2 && first >= 0 && step > 0);
    if (first >= last) printf("no case is this share's\n");
    for (int i = first; i < last; i += step) {
        float *fused, *single, *cpu;
        int64_t n[3], off = 0, far = 0;
        CHECK_OK(group_run(i, other(), true, &fused, &n[0]));
        CHECK_OK(group_run(i, other(), false, &single, &n[1]));
        CHECK_OK(group_run(i, "cpu", true, &cpu, &n[2]));
        CHECK(n[0] > 0 && n[0] == n[1] && n[0] == n[2]);
        double most = 0;
        for (int64_t e = 0; e < n[0]; e++) most = fmax(most, fabs((double)cpu[e]));
        for (int64_t e = 0; e < n[0]; e++) {
            off += memcmp(&fused[e], &single[e], sizeof *fused) != 0;
            far += !(fabs((double)fused[e] - (double)cpu[e]) <= 0.01 * most);
        }
        CHECK_MSG(off == 0, "case %d: %lld of %lld differ from single ops'", i, (long long)off,
                  (long long)n[0]);
        CHECK_MSG(far == 0, "case %d: %lld of %lld are far from the CPU's", i, (long long)far,
                  (long long)n[0]);
        pl_sys_free(fused), pl_sys_free(single), pl_sys_free(cpu);
    }
}

/* A small program first, then one with a larger arena and the first inputs. */
static void check_growth(const char *device)
{
    rig r;
    float *before = calloc(WIDE, sizeof *before), *after = calloc(WIDE, sizeof *after);
    CHECK_OK(rig_on(&r, device, false));
    uint64_t first = pl_session_arena_bytes(r.s);
    CHECK_OK(pl_session_run(r.s, r.p[1]));
    CHECK_OK(pl_session_read_slot(r.s, r.slot, 0, before, WIDE * sizeof *before));
    CHECK(*(const float *)pl_session_output(r.s, r.p[1], "z", NULL) == before[3]);
    CHECK_OK(pl_session_add(r.s, r.p[0]));
    CHECK(pl_session_add(r.s, r.p[0]) == PL_ERR_ARG);
    CHECK_MSG(pl_session_arena_bytes(r.s) == pl_program_plan(r.p[0])->arena_bytes &&
                  pl_session_arena_bytes(r.s) > first,
              "%s: arena %llu, then %llu", device, (unsigned long long)first,
              (unsigned long long)pl_session_arena_bytes(r.s));
    CHECK_OK(pl_session_read_slot(r.s, r.slot, 0, after, WIDE * sizeof *after));
    CHECK(memcmp(before, after, WIDE * sizeof *after) == 0);
    for (int turn = 0; turn < 3; turn++) {
        float *x = pl_session_input(r.s, r.p[0], "x", NULL);
        for (int i = 0; i < WIDE; i++) x[i] = 1;
        CHECK_OK(pl_session_run(r.s, r.p[0]));
        before[3] = before[3] + 1 + 1;
        before[WIDE - 1] = before[WIDE - 1] + 1 + 1;
        const float *y = pl_session_output(r.s, r.p[0], "y", NULL);
        CHECK(y && y[3] == before[3] && y[WIDE - 1] == before[WIDE - 1]);
        CHECK(*(const float *)pl_session_output(r.s, r.p[0], "sum", NULL) == (float)WIDE);
        CHECK_OK(pl_session_run(r.s, r.p[1]));
        CHECK(*(const float *)pl_session_output(r.s, r.p[1], "z", NULL) == before[3]);
    }
    free(before);
    free(after);
    rig_down(&r);
}

TEST(device_arena_grows_and_keeps_slots)
{
    check_growth(other());
    check_growth("cpu");
}

TEST(device_profile_counts_its_runs)
{
    rig r;
    char *text = NULL;
    CHECK_OK(rig_up(&r));
    CHECK_OK(pl_session_profile(r.s, true));
    memset(pl_session_input(r.s, r.p[0], "x", NULL), 0, WIDE * sizeof(float));
    CHECK_OK(pl_session_run(r.s, r.p[0]));
    CHECK(*(const float *)pl_session_output(r.s, r.p[0], "sum", NULL) == 0);
    CHECK_OK(pl_session_profile_text(r.s, r.p[0], 10, &text));
    CHECK(strstr(text, "mean of 1"));
    pl_text_free(text);
    rig_down(&r);
}

/* ---- memory ----------------------------------------------------------------------------- */
/* Ten budgets (three in the short form) from the minimum to keep-all: the memory of the process,
 * as the device reports it, stays within each budget and does not change from step to step. */
TEST(device_memory_stays_within_budgets)
{
    pl_run *run;
    CHECK_OK(open_small(other(), NULL, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_find_minimum(run));
    pl_run_memory m = pl_run_memory_get(run);
    uint64_t least = m.minimum, most = m.total;
    pl_run_free(run);
    CHECK(least < most);

    int budgets = is_card() || pl_test_long() ? 10 : 3;
    for (int i = 0; i < budgets; i++) {
        char text[64];
        uint64_t budget = least + (most - least) * (uint64_t)i / (uint64_t)(budgets - 1);
        uint64_t used[STEPS];
        snprintf(text, sizeof text, "memory=%llu", (unsigned long long)budget);
        CHECK_OK(open_small(other(), text, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_OK(pl_run_start(run));
        CHECK_INT(pl_session_arena_bytes(pl_run_session(run)), pl_run_memory_get(run).arena);
        for (int k = 0; k < STEPS; k++) {
            pl_step_info info;
            CHECK_OK(pl_run_step(run, &info));
            used[k] = pl_session_used_bytes(pl_run_session(run));
            CHECK_MSG(used[k] <= budget && used[k] == used[0], "budget %llu: step %d holds %llu",
                      (unsigned long long)budget, k, (unsigned long long)used[k]);
        }
        CHECK(pl_run_peak_used_bytes(run) <= budget);
        pl_run_free(run);
    }
}

/* ---- why not ---------------------------------------------------------------------------- */
TEST(device_that_cannot_be_used_says_why)
{
    pl_device_info d[4];
    int n = pl_device_list(d, 4);

    CHECK(n >= 2 && d[0].usable && strcmp(d[0].name, "cpu") == 0);
    CHECK(d[1].usable || d[1].why_not[0]);
    pl_run *run;
    CHECK_OK(open_small("gpu", NULL, &run));
    CHECK_INT(pl_run_build(run), PL_ERR_DEVICE);
    CHECK(strstr(pl_error_text(), "\"cpu\" and \"cuda\""));
    pl_run_free(run);
    if (d[1].usable) return;
    CHECK_OK(open_small("cuda", NULL, &run));

    CHECK_INT(pl_run_build(run), PL_ERR_DEVICE);
    CHECK(strstr(pl_error_text(), "device cuda cannot be used: "));
    pl_run_free(run);
}

/* A run checks the machine's memory every few seconds, between steps. */
TEST(device_memory_of_the_host_is_looked_up_without_allocating)
{
    uint64_t total = 0, left = 0;
    CHECK(pl_device_memory("cpu", &total, &left) && left > 0 && left < total);
    CHECK(total > (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 10 * 9);
    if (!pl_test_allocs_counted()) SKIP("a sanitizer owns malloc");
    int next = dup(0);
    close(next);
    uint64_t before = pl_test_allocs();
    for (int i = 0; i < 10; i++) CHECK(pl_device_memory("cpu", &total, &left));
    CHECK_INT(pl_test_allocs() - before, 0);
    int after = dup(0);
    close(after);
    CHECK_INT(after, next);
}
