/* device_test.c - trains a small network on a device and checks every promise there.
 *
 * Four short runs of one network with one seed: without a budget; with the minimum as budget, so
 * that much is recomputed; a repetition of the first; and on the CPU. The network has convolutions,
 * matrix products, normalisations and an optimiser, so equal losses after several steps mean that
 * kernels and gradients of the device are right.
 *
 * The saving of the smaller plan must be larger than the noise of the overhead: on a GPU the
 * overhead is hundreds of megabytes and varies from process to process. So the batch grows until
 * the saving is at least an eighth of the overhead.
 */
#include "device_test.h"

#include "cli/plan/plan_view.h"
#include "cli/ui.h"
#include "plimsoll_json.h"

#include <malloc.h>
#include <math.h>
#include <string.h>

enum { STEPS = 12, WARM = 3, BATCH = 64, SAMPLES = 512, LARGEST_BATCH = 16384, STANDS_OUT = 8 };
static const char network[] = "cloud/tiny";

typedef struct trial {
    double loss[STEPS];
    uint64_t planned, mapped; /* arena */
    uint64_t warm, end, most; /* bytes of the process: after WARM steps, after all, most */
    uint64_t heap_warm, heap_end;
    pl_run_memory memory;
    double recompute; /* share of the step time */
    double step_ms;
} trial;

typedef struct tester {
    const char *device;
    pl_json *json;
    int failed;
} tester;

/* ---- lines ------------------------------------------------------------------------------ */
static void print_check(tester *t, const char *promise, bool ok, const char *what)
{
    if (!ok) t->failed++;
    if (t->json) {
        pl_json_object(t->json, NULL);
        pl_json_string(t->json, "promise", promise);
        pl_json_bool(t->json, "ok", ok);
        pl_json_string(t->json, "detail", what);
        pl_json_end(t->json);
        return;
    }
    printf("  %s%-5s%s %-46s %s\n", ok ? "" : cli_red(stdout), ok ? "ok" : "FAIL",
           ok ? "" : cli_plain(stdout), promise, what);
    fflush(stdout);
}

/* Returns the bytes that malloc has given out. Before glibc 2.33 the figure is an int, which is
 * enough to see growth. */
static uint64_t heap_bytes(void)
{
#if __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return (unsigned)mallinfo().uordblks;
#endif
}

/* ---- runs ------------------------------------------------------------------------------- */
static pl_status steps_of(pl_run *run, trial *out)
{
    for (int i = 0; i < STEPS; i++) {
        pl_step_info s;
        pl_status rc = pl_run_step(run, &s);
        if (rc != PL_OK) return rc;
        out->loss[i] = s.loss;
        out->step_ms = s.step_ms;
        if (i + 1 == WARM) {
            out->warm = pl_run_used_bytes(run);
            out->heap_warm = heap_bytes();
        }
    }
    out->heap_end = heap_bytes();
    out->end = pl_run_used_bytes(run);
    out->most = pl_run_peak_used_bytes(run);
    return PL_OK;
}

/* Trains a few steps. memory NULL: no budget. find: only finds the minimum. */
static pl_status trial_run(const char *device, int batch, const char *memory, bool find, trial *out)
{
    char where[64], budget[64], size[32], samples[32];
    const char *keys[] = {where, "seed=1", "eval.every=0", size, samples, budget};
    pl_run *run = NULL;
    *out = (trial){0};
    snprintf(where, sizeof where, "device=%s", device);
    snprintf(size, sizeof size, "batch=%d", batch);
    snprintf(samples, sizeof samples, "data.samples=%d", batch > SAMPLES ? batch : SAMPLES);
    if (memory) snprintf(budget, sizeof budget, "memory=%s", memory);
    pl_status rc = pl_run_open(network, keys, memory ? 6 : 5, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK && find) rc = pl_run_find_minimum(run);
    if (rc == PL_OK) out->memory = pl_run_memory_get(run);
    if (rc == PL_OK && !find) {
        out->planned = out->memory.arena;
        out->recompute = plan_recompute_share(run);
        rc = pl_run_start(run);
        if (rc == PL_OK) out->mapped = pl_session_arena_bytes(pl_run_session(run));
        if (rc == PL_OK) rc = steps_of(run, out);
    }
    pl_run_free(run);
    return rc;
}

/* Returns the largest relative difference of the losses. */
static double difference(const trial *a, const trial *b)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++) {
        double by = fabs(a->loss[i] - b->loss[i]) / fmax(fabs(b->loss[i]), 1e-12);
        if (!(by <= most)) most = by; /* NaN counts */
    }
    return most;
}

/* ---- promises --------------------------------------------------------------------------- */
static void check_plain(tester *t, const trial *a)
{
    char what[160];
    snprintf(what, sizeof what, "planned %s bytes, mapped %s", cli_count((int64_t)a->planned),
             cli_count((int64_t)a->mapped));
    print_check(t, "the arena has the planned size", a->planned == a->mapped, what);
    snprintf(what, sizeof what, "after step %d: %s, after step %d: %s", WARM, cli_bytes(a->warm),
             STEPS, cli_bytes(a->end));
    print_check(t, "memory does not grow", a->end <= a->warm + (1u << 20), what);
    snprintf(what, sizeof what, "heap after step %d and %d: %s and %s bytes", WARM, STEPS,
             cli_count((int64_t)a->heap_warm), cli_count((int64_t)a->heap_end));
    print_check(t, "a step allocates nothing", a->heap_end <= a->heap_warm, what);
    bool falls = a->loss[STEPS - 1] < a->loss[0] && isfinite(a->loss[STEPS - 1]);
    snprintf(what, sizeof what, "loss %.4f at step 1, %.4f at step %d, %s per step", a->loss[0],
             a->loss[STEPS - 1], STEPS, cli_ms(a->step_ms));
    print_check(t, "the loss falls", falls, what);
}

/* Finds the smallest batch whose plan at the minimum saves enough to be measured. */
static pl_status find_batch(const char *device, int *batch, trial *least)
{
    for (*batch = BATCH;; *batch *= 4) {
        pl_status rc = trial_run(device, *batch, NULL, true, least);
        if (rc != PL_OK) return rc;
        uint64_t saved = least->memory.total - least->memory.minimum;
        if (saved >= least->memory.overhead / STANDS_OUT || *batch >= LARGEST_BATCH) return PL_OK;
    }
}

/* Trains within the minimum plus 1 MiB, because the overhead of a GPU is measured in every run. If
 * the process has grown since the minimum was found, tries again with the minimum of this run. */
static pl_status run_minimum(const char *device, int batch, const trial *least, uint64_t *budget,
                             trial *out)
{
    char size[32];
    uint64_t minimum = least->memory.minimum;
    for (int attempt = 0;; attempt++) {
        *budget = minimum + (1u << 20);
        snprintf(size, sizeof size, "%llu", (unsigned long long)*budget);
        pl_status rc = trial_run(device, batch, size, false, out);
        if (rc != PL_ERR_FIT || attempt) return rc;
        minimum = out->memory.minimum;
    }
}

static pl_status check_budget(tester *t, const trial *a)
{
    char what[160];
    trial least, small, whole = *a;
    int batch;
    uint64_t budget;
    pl_status rc = find_batch(t->device, &batch, &least);
    if (rc == PL_OK && batch != BATCH) rc = trial_run(t->device, batch, NULL, false, &whole);
    if (rc == PL_OK) rc = run_minimum(t->device, batch, &least, &budget, &small);
    if (rc != PL_OK) return rc;
    bool gpu = strcmp(t->device, "cpu") != 0, same = difference(&small, &whole) == 0;
    uint64_t most = gpu ? small.most : small.end;
    snprintf(what, sizeof what, "batch %d, budget %s, held %s", batch, cli_bytes(budget),
             cli_bytes(most));
    print_check(t, "the budget is kept", most <= budget, what);
    snprintf(what, sizeof what, "arena %s instead of %s, %.0f %% recompute, losses %s",
             cli_bytes(small.planned), cli_bytes(whole.planned), 100 * small.recompute,
             same ? "equal to the bit" : "different");
    print_check(t, "a smaller plan gives the same numbers", same && small.planned < whole.planned,
                what);
    return PL_OK;
}

static pl_status check_numbers(tester *t, const trial *a)
{
    char what[160];
    trial second, cpu;
    pl_status rc = trial_run(t->device, BATCH, NULL, false, &second);
    if (rc != PL_OK) return rc;
    snprintf(what, sizeof what, "%d losses of a second run: %s", STEPS,
             difference(&second, a) == 0 ? "equal to the bit" : "different");
    print_check(t, "a run can be repeated", difference(&second, a) == 0, what);
    if (strcmp(t->device, "cpu") == 0) return PL_OK;
    if ((rc = trial_run("cpu", BATCH, NULL, false, &cpu)) != PL_OK) return rc;
    snprintf(what, sizeof what, "losses of %d steps within %.1e of the losses on the CPU", STEPS,
             difference(a, &cpu));
    print_check(t, "the results agree with the CPU", difference(a, &cpu) < 1e-3, what);
    return PL_OK;
}

int device_test(const char *device, bool json)
{
    tester t = {.device = device, .json = json ? pl_json_new(stdout) : NULL};
    trial a;
    if (!json) printf("%s: %d steps of %s\n", device, STEPS, network);
    if (json) pl_json_array(t.json, NULL);
    pl_status rc = trial_run(device, BATCH, NULL, false, &a);
    if (rc == PL_OK) {
        check_plain(&t, &a);
        rc = check_budget(&t, &a);
    }
    if (rc == PL_OK) rc = check_numbers(&t, &a);
    if (rc == PL_OK && json) {
        pl_json_end(t.json);
        rc = pl_json_finish(t.json);
    }
    pl_json_free(t.json);
    if (rc != PL_OK) return cli_fail(rc);
    if (!json && t.failed) printf("%d of these checks failed on %s\n", t.failed, device);
    return t.failed ? 1 : 0;
}
