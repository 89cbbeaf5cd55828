/* cmd_bench.c - `plimsoll bench`: measures step time and memory, and compares them with the plan.
 *
 * The steps are training steps with the data of the configuration; nothing is evaluated or saved.
 * Warm-up steps are not measured, because caches are cold and GPU clocks low. The time of a step
 * includes waiting for data. The range is the fastest and the slowest measured step. After them
 * some steps are timed kernel by kernel: a kernel that is far from its prediction is named, and the
 * next plan uses the measured times.
 */
#include "cli/plan/plan_view.h"
#include "cli/ui.h"
#include "plimsoll_json.h"

#include <stdlib.h>
#include <string.h>

typedef struct times {
    double *step, *data, *device; /* milliseconds, of each step */
    int n;
} times;

typedef struct benchmark {
    double plan_s, first_s; /* seconds from the start to the plan, to the end of step 1 */
    double step, least, most, data, device; /* milliseconds: medians; least and most: range */
    double samples;                         /* per second */
    uint64_t peak;                          /* bytes that the process used at most */
    int steps, warmup;
    char *off;     /* kernels whose prediction is far off, a line each; NULL: none */
    double waited; /* share of the time in which other programs held the cores */
} benchmark;

#define FAR_OFF 2.0 /* measured / predicted, or the inverse */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values and returns the median. */
static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static pl_status take_steps(pl_run *run, double began, times *t, benchmark *b,
                            cli_progress *progress)
{
    for (int i = -b->warmup; i < b->steps; i++) {
        pl_step_info info;
        pl_status rc = pl_run_step(run, &info);
        if (rc != PL_OK) return rc;
        if (i == -b->warmup) b->first_s = cli_seconds() - began;
        cli_show_progress(progress, PL_SUBSET_TRAIN, i + b->warmup + 1, b->steps + b->warmup);
        if (i < 0) continue;
        t->step[t->n] = info.step_ms;
        t->data[t->n] = info.data_ms;
        t->device[t->n++] = info.device_ms;
    }
    return PL_OK;
}

static pl_status measure(pl_run *run, double began, benchmark *b, cli_progress *progress)
{
    double *room = calloc((size_t)b->steps, 3 * sizeof *room);
    if (!room) return PL_ERR_MEMORY;
    times t = {.step = room, .data = room + b->steps, .device = room + 2 * b->steps};
    pl_status rc = take_steps(run, began, &t, b, progress);
    if (rc == PL_OK) {
        b->step = median(t.step, t.n);
        b->least = t.step[0];
        b->most = t.step[t.n - 1];
        b->data = median(t.data, t.n);
        b->device = median(t.device, t.n);
        b->samples = 1e3 * (double)pl_run_split_get(run).effective / b->step;
    }
    free(room);
    return rc;
}

static void print(pl_run *run, const char *name, const benchmark *b)
{
    pl_run_memory m = pl_run_memory_get(run);
    double predicted = pl_run_predicted_ms(run);
    printf("%s on %s: %d measured steps after %d warm-up steps\n", name,
           pl_config_text(pl_run_config(run), "device"), b->steps, b->warmup);
    printf("  %sstep time    %s%s  (%s to %s), %.4g samples per second\n", cli_bold(stdout),
           cli_ms(b->step), cli_plain(stdout), cli_ms(b->least), cli_ms(b->most), b->samples);
    printf("  predicted    %s, %+.0f %%\n", cli_ms(predicted), 100 * (predicted / b->step - 1));
    if (b->device > 0) printf("  on the GPU   %s\n", cli_ms(b->device));
    printf("  data wait    %s, %.0f %% of the step\n", cli_ms(b->data), 100 * b->data / b->step);
    printf("  first step   %.3g s after the start, %.3g s of that planning\n", b->first_s,
           b->plan_s);
    printf("  memory       planned %s, measured peak %s\n", cli_bytes(m.total), cli_bytes(b->peak));
    if (!b->off) return;
    printf("  predictions  off by more than %g x for the kernels below; ", FAR_OFF);
    if (b->waited > PL_TIMES_BUSY)
        printf("other programs held the cores for %.0f %% of the time, so the times are not kept\n",
               100 * b->waited);
    else
        puts("the next plan uses the measured times");
    for (const char *line = b->off; *line; line += strcspn(line, "\n") + 1)
        printf("               %.*s\n", (int)strcspn(line, "\n"), line);
}

static pl_status print_json(pl_run *run, const char *name, const benchmark *b)
{
    pl_run_memory m = pl_run_memory_get(run);
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_string(j, "config", name);
    pl_json_string(j, "device", pl_config_text(pl_run_config(run), "device"));
    pl_json_int(j, "steps", b->steps);
    pl_json_float(j, "step_ms", b->step);
    pl_json_float(j, "step_ms_min", b->least);
    pl_json_float(j, "step_ms_max", b->most);
    pl_json_float(j, "device_ms", b->device);
    pl_json_float(j, "data_wait_ms", b->data);
    pl_json_float(j, "predicted_step_ms", pl_run_predicted_ms(run));
    pl_json_float(j, "samples_per_s", b->samples);
    pl_json_float(j, "plan_s", b->plan_s);
    pl_json_float(j, "first_step_s", b->first_s);
    pl_json_uint(j, "arena_bytes", m.arena);
    pl_json_uint(j, "state_bytes", m.state);
    pl_json_uint(j, "total_bytes", m.total);
    pl_json_uint(j, "peak_used_bytes", b->peak);
    plan_levels_json(run, j);
    pl_json_string(j, "mispredicted", b->off ? b->off : "");
    pl_json_float(j, "waited_share", b->waited);
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

typedef struct bench_options {
    const char *steps, *warmup, *memory, *device;
    bool json, quiet;
} bench_options;

const cli_help cli_help_bench = {
    .usage = "plimsoll bench CONFIG [key=value ...]",
    .about = "Trains a few steps, saves nothing, and prints step time with its range, predicted "
             "step time,\ntime to the first step, and memory.",
    .examples = "  plimsoll bench cloud/demo\n  plimsoll bench my.yaml --memory 6GB --steps 100\n"
                "  plimsoll bench lgt/full --device cuda precision=bf16\n",
    .options =
        (const cli_option[]){
            {"--steps", "N", offsetof(bench_options, steps), "measured steps", "20"},
            {"--warmup", "N", offsetof(bench_options, warmup), "warm-up steps before them", "3"},
            {"--memory", "SIZE", offsetof(bench_options, memory),
             "memory budget of the whole process (same as memory=SIZE)"},
            {"--device", "DEVICE", offsetof(bench_options, device),
             "device to train on (same as device=DEVICE)"},
            {"--json", NULL, offsetof(bench_options, json), "print one JSON object"},
            {"--quiet", NULL, offsetof(bench_options, quiet), "no progress bar"},
            {NULL},
        },
};

int cmd_bench(int argc, char **argv)
{
    enum { STEPS = 20, WARM_UP = 3, MOST = 1000000, SECONDS = 1 };
    static char device_key[96], random_key[32];
    bench_options o = {.json = false};
    cli_progress shown = {.percent = -1};
    cli_args a;
    cli_parse(argc, argv, &cli_help_bench, &o, &a);
    cli_want(&a, 1, 1, "bench", "one configuration");
    double began = cli_seconds();
    benchmark b = {.steps = (int)cli_number("--steps", "steps", o.steps, STEPS, MOST),
                   .warmup = (int)cli_number("--warmup", "steps", o.warmup, WARM_UP, MOST)};
    if (b.steps < 0 || b.warmup < 0) return 2;
    cli_override(&a, "device", o.device, device_key, sizeof device_key);
    cli_override(&a, "allow_random_frozen", "true", random_key, sizeof random_key);
    shown.bar = cli_terminal(stderr);
    shown.quiet = o.quiet || o.json;
    pl_run *run = NULL;
    pl_status rc = cli_open_run(&a, o.memory, &run);
    if (rc == PL_OK && pl_config_int(pl_run_config(run), "ranks") > 1) {
        cli_error(
            "bench measures one process: set ranks=1; plimsoll train --ranks N prints the times of N ranks");
        pl_run_free(run);
        return 2;
    }
    if (!shown.quiet) cli_busy("planning and starting %s", a.positional[0]);
    if (rc == PL_OK) rc = pl_run_build(run);
    b.plan_s = cli_seconds() - began;
    if (rc == PL_OK) rc = pl_run_start(run);
    cli_idle();
    if (rc == PL_OK) rc = measure(run, began, &b, &shown);
    if (rc == PL_OK) b.peak = pl_run_peak_used_bytes(run);
    if (rc == PL_OK) rc = pl_run_check_times(run, SECONDS, FAR_OFF, &b.waited, &b.off);
    if (rc == PL_OK && o.json)
        rc = print_json(run, a.positional[0], &b);
    else if (rc == PL_OK)
        print(run, a.positional[0], &b);
    pl_run_free(run);
    pl_text_free(b.off);
    return rc == PL_OK ? 0 : cli_fail(rc);
}
