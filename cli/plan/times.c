/* times.c - says where predicted times come from: measured, calibrated or estimated. */
#include "cli/ui.h"
#include "plimsoll_json.h"
#include "plimsoll_levels.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[PL_N_TIME_SOURCES] = {"measured", "calibrated", "estimated"};

bool times_is_profile(const char *device, pl_device_info *info)
{
    int n, at = 0;
    pl_device_info *all = cli_devices(true, &n);
    while (at < n && strcmp(all[at].name, device) != 0) at++;
    if (at < n && info) *info = all[at];
    free(all);
    return at < n;
}

/* Returns the source of the largest share of the step. */
static int main_source(const pl_plan_info *p)
{
    int most = 0;
    for (int i = 1; i < PL_N_TIME_SOURCES; i++)
        if (p->time_share[i] > p->time_share[most]) most = i;
    return most;
}

/* Returns a precision that is predicted to be at least 20 % faster, and its step time; NULL: none.
 * GPUs without bf16 tensor cores multiply bf16 as slowly as f32. */
static const char *faster_precision(const pl_run *run, const pl_plan_info *p, double *ms)
{
    const double WORTH = 0.8;
    const char *precision = pl_config_text(pl_run_config(run), "precision");
    *ms = p->swapped_ratio * pl_run_predicted_ms(run);
    if (p->swapped_ratio > WORTH) return NULL;
    return strcmp(precision, "bf16") == 0 ? "fp16" : strcmp(precision, "fp16") == 0 ? "bf16" : NULL;
}

void times_json(const pl_run *run, const pl_plan_info *p, pl_json *j)
{
    double ms;
    pl_json_string(j, "cost_source", names[main_source(p)]);
    pl_json_object(j, "cost_shares");
    for (int i = 0; i < PL_N_TIME_SOURCES; i++) pl_json_float(j, names[i], p->time_share[i]);
    pl_json_end(j);
    const char *faster = faster_precision(run, p, &ms);
    pl_json_string(j, "faster_precision", faster);
    if (faster) pl_json_float(j, "faster_step_ms", ms);
}

void times_print(const pl_run *run, const pl_plan_info *p, FILE *out)
{
    static const char *const hint[PL_N_TIME_SOURCES] = {
        "", "; --measure measures the kernels of this network",
        "; --measure or plimsoll devices --calibrate replaces estimates by measurements"};
    bool here = !times_is_profile(pl_config_text(pl_run_config(run), "device"), NULL);
    const char *between = "";
    fprintf(out, "Predicted times are ");
    for (int i = 0; i < PL_N_TIME_SOURCES; i++) {
        if (p->time_share[i] < 0.005) continue;
        fprintf(out, "%s%.0f %% %s", between, 100 * p->time_share[i], names[i]);
        between = ", ";
    }
    fprintf(out, "%s.\n", here ? hint[main_source(p)] : " from the published figures of the GPU");
    double ms;
    const char *faster = faster_precision(run, p, &ms);
    if (faster)
        fprintf(out, "%s is slow on this GPU: precision=%s is predicted to take %s a step.\n",
                pl_config_text(pl_run_config(run), "precision"), faster, cli_ms(ms));
    if (!here)
        fprintf(
            out,
            "On the GPU itself the plan is computed anew: workspace and overhead may differ from "
            "these figures.\n");
}

int times_measure(const cli_args *a, const char *memory)
{
    enum { SECONDS = 5 };
    pl_run *run = NULL;
    int steps = 0, units = 0;
    double waited = 0;
    char random_key[32];
    cli_args b = *a;
    cli_override(&b, "allow_random_frozen", "true", random_key, sizeof random_key);
    cli_busy("measuring the kernels of %s", a->positional[0]);
    pl_status rc = cli_open_run(&b, memory, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK) rc = pl_run_measure(run, SECONDS, &steps, &units, &waited);
    cli_idle();
    if (rc == PL_OK) fprintf(stderr, "measured %d kernels in %d steps\n", units, steps);
    if (rc == PL_OK && waited > PL_TIMES_BUSY)
        fprintf(stderr,
                "other programs held the cores for %.0f %% of the time: the measured times are too "
                "long; repeat this when the machine is idle\n",
                100 * waited);
    pl_run_free(run);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

static void show_progress(void *ctx, int done, int total)
{
    (void)ctx;
    if (cli_terminal(stderr))
        fprintf(stderr, "\r\033[Kcalibrating %s %d/%d", cli_bar((double)done / total, 30), done,
                total);
}

/* Measures one link and prints its rates. */
static pl_status calibrate_link(const char *device, const char *folder)
{
    double up, down;
    pl_status rc = pl_calibrate_link(device, folder, &up, &down);
    if (rc != PL_OK) return rc;
    printf("%s: %.1f GB/s %s, %.1f GB/s %s\n", folder ? folder : device, up / 1e9,
           folder ? "read" : "from host memory", down / 1e9, folder ? "written" : "to host memory");
    return PL_OK;
}

/* Measures the link of the first GPU that can be used: a process drives one. GPUs of one model have
 * the same rates. */
static pl_status calibrate_links(void)
{
    int n;
    pl_device_info *d = cli_devices(false, &n);
    pl_status rc = d ? PL_OK : PL_ERR_MEMORY;
    bool done = false;
    for (int i = 0; i < n && rc == PL_OK && !done; i++) {
        if (!d[i].usable || strcmp(d[i].name, "cpu") == 0) continue;
        rc = calibrate_link(d[i].name, NULL);
        done = true;
    }
    free(d);
    return rc;
}

int times_calibrate(const char *disk)
{
    int units = 0;
    pl_status rc = pl_calibrate(show_progress, NULL, &units);
    if (cli_terminal(stderr)) fprintf(stderr, "\r\033[K");
    if (rc == PL_OK) printf("measured %d kernels; plans now use these times\n", units);
    if (rc == PL_OK) rc = calibrate_links();
    if (rc == PL_OK && disk) rc = calibrate_link("cpu", disk);
    return rc == PL_OK ? 0 : cli_fail(rc);
}
