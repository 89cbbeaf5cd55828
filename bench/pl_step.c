/* pl_step.c - measures training steps on inputs that are made once: the time of the device, without
 * reading a data set.
 *
 *     pl_step CONFIG [STEPS] [key=value ...]
 *
 * Floats of the inputs are random; whole numbers are random in [0, INTS), a variable of the
 * environment, else zero. A GPU at its power limit runs zeros faster than data.
 *
 * A step runs all its programs, in the steps in which they are due (discriminator, penalty). Prints
 * one JSON line:
 *   first_s            from the start of the program to the end of the first step
 *   plan_s, start_s    planning; memory, kernels and initial values
 *   ready_s            from the start of the program to the start of the first step
 *   plan, start        their stages in ms; stages of plan belong to the training program, "rest" is
 *                      everything else: networks, gradients, other programs, waiting for the
 *                      compiler
 *   device_ms          a step by the clock of the device (CPU: of the host), median and extremes
 *   wall_ms            a step of STEPS that are started one after the other and waited for once;
 *                      each uploads its inputs
 *   sum                hash of all weights and states at the end
 *   built_bytes, ready_bytes, used_early_bytes, used_bytes
 *                      device memory of the process: before the session allocates, before the
 *                      first step, after three steps, at the end
 *   predicted_ms       predicted by the plan
 */
#include "lib/step.h"
#include "plimsoll_config.h"
#include "plimsoll_unstable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_STEPS = 20000, MAX_INPUTS = 32, MAX_FED = 64, CHUNK = 1 << 20 };

typedef struct fed {
    const pl_program *program;
    void *last[MAX_INPUTS]; /* where its inputs were in the run before */
    int times;
} fed;

typedef struct bench {
    pl_run *run;
    pl_session *session;
    int64_t step; /* the next one */
    double card_ms;
    fed fed[MAX_FED];
    int n_fed;
} bench;

static double now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return 1e3 * (double)ts.tv_sec + 1e-6 * (double)ts.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint32_t next_random(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* Floats in [0, 1) and whole numbers in [0, INTS), the same at every filling; other types are
 * zero. */
static void fill(void *p, pl_type t)
{
    size_t bytes = pl_type_bytes(&t), n = bytes / 4;
    const char *text = getenv("INTS");
    uint32_t s = 12345, ints = text ? (uint32_t)atoi(text) : 0;
    memset(p, 0, bytes);
    if (t.dtype == PL_F32)
        for (float *x = p; n--; x++) *x = (float)next_random(&s) * 0x1p-24f;
    else if (t.dtype == PL_I32 && ints)
        for (int32_t *x = p; n--; x++) *x = (int32_t)(next_random(&s) % ints);
    else if (t.dtype == PL_I64 && ints)
        for (int64_t *x = p, *end = x + n / 2; x < end; x++) *x = next_random(&s) % ints;
}

/* A device that takes inputs from two blocks in turn does not change them: they are written
 * twice. */
static void write_inputs(bench *b, pl_program *p)
{
    fed *f = b->fed;
    while (f < b->fed + b->n_fed && f->program != p) f++;
    if (f == b->fed + b->n_fed) {
        b->n_fed++;
        f->program = p;
    }
    int n = pl_program_input_count(p);
    for (int i = 0; i < n && i < MAX_INPUTS; i++) {
        pl_type t;
        void *at = pl_session_input(b->session, p, pl_program_input_name(p, i), &t);
        if (at && (f->times < 2 || at == f->last[i])) fill(at, t);
        f->last[i] = at;
    }
    f->times++;
}

static pl_status begin_run(void *ctx, pl_program *p)
{
    bench *b = ctx;
    write_inputs(b, p);
    return pl_session_run(b->session, p);
}

/* Runs a program to its end and adds the device's time for it. */
static pl_status time_run(void *ctx, pl_program *p)
{
    bench *b = ctx;
    pl_status rc = begin_run(b, p);
    if (rc == PL_OK) rc = pl_session_wait(b->session);
    if (rc == PL_OK) b->card_ms += pl_session_device_ms(b->session, p, 0);
    return rc;
}

/* The device's time for the next step; the host's where the device has no clock. */
static pl_status time_step(bench *b, double *ms)
{
    double begin = now_ms();
    b->card_ms = 0;
    pl_status rc = each_run(b->run, b->step++, time_run, b);
    *ms = b->card_ms > 0 ? b->card_ms : now_ms() - begin;
    return rc;
}

/* Slots are padded with zeros to whole words. */
static pl_status sum_state(bench *b, uint64_t *out)
{
    static uint64_t part[CHUNK / 8];
    pl_store *store = pl_run_store(b->run);
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < pl_store_count(store); i++) {
        uint64_t bytes = pl_type_bytes(&pl_store_slot(store, i)->type);
        for (uint64_t at = 0; at < bytes; at += CHUNK) {
            size_t n = bytes - at < CHUNK ? (size_t)(bytes - at) : CHUNK;
            pl_status rc = pl_session_read_slot(b->session, i, at, part, n);
            if (rc != PL_OK) return rc;
            memset((char *)part + n, 0, (8 - n % 8) % 8);
            for (size_t k = 0; k < (n + 7) / 8; k++) h = (h ^ part[k]) * 1099511628211u;
        }
    }
    *out = h;
    return PL_OK;
}

static void print_phases(const bench *b, double open_ms, double plan_ms, double start_ms)
{
    pl_program_times p = pl_program_times_get(pl_run_train_program(b->run));
    pl_session_times s = pl_session_times_get(b->session);
    double known = p.device + p.passes + p.groups + p.kernels + p.costs + p.plan + p.fit;
    double started = s.memory + s.ready + s.bind + s.host + s.record + s.init;
    printf(
        "\"plan\": {\"open\": %.0f, \"rest\": %.0f, \"device\": %.0f, \"passes\": %.0f, \"groups\": %.0f, \"kernels\": %.0f,"
        " \"costs\": %.0f, \"plan\": %.0f, \"fit\": %.0f}, ",
        open_ms, plan_ms - known, p.device, p.passes, p.groups, p.kernels, p.costs, p.plan, p.fit);
    printf(
        "\"start\": {\"memory\": %.0f, \"ready\": %.0f, \"bind\": %.0f, \"host\": %.0f, \"record\": %.0f, \"init\": %.0f,"
        " \"other\": %.0f}, ",
        s.memory, s.ready, s.bind, s.host, s.record, s.init, start_ms - started);
}

/* Time to compile each program; for a GPU they are compiled in parallel. */
static void print_programs(const bench *b)
{
    printf("\"programs\": {");
    for (int i = 0; i <= pl_run_step_program_count(b->run); i++) {
        bool turn = i < pl_run_step_program_count(b->run);
        const pl_program *p =
            turn ? pl_run_step_program_at(b->run, i).run : pl_run_eval_program(b->run);
        if (!p) continue;
        pl_program_times t = pl_program_times_get(p);
        printf("%s\"%s\": [%.0f, %.0f, %.0f]", i ? ", " : "",
               turn ? pl_run_step_program_at(b->run, i).name : "eval",
               t.device + t.passes + t.groups, t.kernels, t.costs + t.plan + t.fit);
    }
    printf("}, ");
}

static pl_status measure(bench *b, int steps, double begin)
{
    static double ms[MAX_STEPS];
    double ignored, first, planned, started;
    uint64_t sum = 0, early = 0, built = 0, ready = 0;
    double opened = now_ms();
    pl_status rc = pl_run_build(b->run);
    planned = now_ms();
    if (rc == PL_OK) built = pl_run_used_bytes(b->run);
    if (rc == PL_OK) rc = pl_run_start(b->run);
    started = now_ms();
    if (rc != PL_OK) return rc;
    ready = pl_run_peak_used_bytes(b->run);
    double asked = now_ms() - started;
    b->session = pl_run_session(b->run);
    rc = time_step(b, &ignored);
    first = now_ms() - asked;
    for (int i = 0; rc == PL_OK && i < 2; i++) rc = time_step(b, &ignored);
    early = pl_run_used_bytes(b->run);
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = time_step(b, &ms[i]);
    double loop = now_ms();
    for (int i = 0; rc == PL_OK && i < steps; i++) rc = each_run(b->run, b->step++, begin_run, b);
    if (rc == PL_OK) rc = pl_session_wait(b->session);
    double wall = (now_ms() - loop) / steps;
    if (rc == PL_OK) rc = sum_state(b, &sum);
    if (rc != PL_OK) return rc;
    qsort(ms, (size_t)steps, sizeof ms[0], ascending);
    pl_run_memory m = pl_run_memory_get(b->run);
    printf(
        "{\"steps\": %d, \"device_ms\": %.4f, \"device_min\": %.4f, \"device_max\": %.4f, \"wall_ms\": %.4f,"
        " \"first_s\": %.3f, \"ready_s\": %.3f, \"plan_s\": %.3f, \"start_s\": %.3f, ",
        steps, ms[steps / 2], ms[0], ms[steps - 1], wall, 1e-3 * (first - begin),
        1e-3 * (started - begin), 1e-3 * (planned - begin), 1e-3 * (started - planned));
    print_phases(b, opened - begin, planned - opened, started - planned);
    print_programs(b);
    printf(
        "\"arena_bytes\": %llu, \"mapped_bytes\": %llu, \"state_bytes\": %llu, \"built_bytes\": %llu, \"predicted_ms\": %.3f,"
        " \"ready_bytes\": %llu, \"used_early_bytes\": %llu, \"used_bytes\": %llu, \"sum\": \"%016llx\"}\n",
        (unsigned long long)m.arena, (unsigned long long)pl_session_arena_bytes(b->session),
        (unsigned long long)m.state, (unsigned long long)built, pl_run_predicted_ms(b->run),
        (unsigned long long)ready, (unsigned long long)early,
        (unsigned long long)pl_run_used_bytes(b->run), (unsigned long long)sum);
    return PL_OK;
}

int main(int argc, char **argv)
{
    double begin = now_ms();
    int from = 2, steps = 20;
    static bench b;
    if (argc > 2 && !strchr(argv[2], '=')) {
        steps = atoi(argv[2]);
        from = 3;
    }
    if (argc < 2 || steps < 1 || steps > MAX_STEPS) {
        fprintf(stderr, "usage: pl_step CONFIG [STEPS, to %d] [key=value ...]\n", MAX_STEPS);
        return 2;
    }
    int n = argc > from ? argc - from : 0;
    pl_status rc = pl_run_open(argv[1], (const char *const *)argv + from, n, &b.run);
    if (rc == PL_OK) rc = measure(&b, steps, begin);
    if (rc != PL_OK) fprintf(stderr, "pl_step: %s\n", pl_error_text());
    pl_run_free(b.run);
    return pl_status_exit_code(rc);
}
