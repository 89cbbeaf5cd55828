/* cmd_plan.c - `plimsoll plan`: the memory of a training run, before it runs. */
#include "cli/train/cli_phases.h"
#include "plimsoll_unstable.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pl_status enter(pl_run *run, const char *phase)
{
    int i = pl_run_phase_find(run, phase), n = pl_run_phase_count(run);
    if (i >= 0) return pl_run_enter(run, i, 0);
    cli_error(n ? "there is no phase \"%s\"; there are:"
                : "--phase %s: the configuration has no phases",
              phase);
    for (i = 0; i < n; i++) cli_error("  %s", pl_run_phase_at(run, i)->name);
    pl_run_free(run);
    exit(2);
}

pl_status plan_open(const cli_args *a, const char *memory, pl_run **out)
{
    char budget[128];
    const char *overrides[CLI_MAX_ARGS + 1];
    int n = a->n_overrides;
    memcpy(overrides, a->overrides, sizeof a->overrides);
    if (memory) {
        snprintf(budget, sizeof budget, "memory=%s", memory);
        overrides[n++] = budget;
    }
    pl_run *run = NULL;
    pl_status rc = pl_run_open(a->positional[0], overrides, n, &run);
    if (rc == PL_OK && a->phase) rc = enter(run, a->phase);
    if (rc == PL_OK)
        *out = run;
    else
        pl_run_free(run);
    return rc;
}

int plan_print_config(pl_run *run)
{
    char *text;
    pl_status rc = pl_config_print(pl_run_config(run), &text);
    if (rc == PL_OK) {
        fputs(text, stdout);
        pl_text_free(text);
    }
    pl_run_free(run);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

/* The recompute planner alone. */
static int plan_trace(const char *path, const char *budget, const char *seconds, bool json)
{
    char *end = NULL;
    double share = budget ? strtod(budget, &end) : 0, search = seconds ? strtod(seconds, NULL) : 0;
    if (!budget || *end || !(share > 0 && share <= 1)) {
        cli_error("--trace wants --budget SHARE, above 0 and at most 1, e.g. --budget 0.5");
        return 2;
    }
    pl_trace_report r;
    pl_status rc = pl_plan_trace(path, share, search, &r);
    if (rc != PL_OK) return cli_fail(rc);
    if (!json) {
        printf("compute %.4f x, peak %s of the %s allowed, planned in %.0f ms\n", r.overhead,
               cli_bytes(r.peak_bytes), cli_bytes(r.budget_bytes), r.plan_ms);
        return 0;
    }
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_float(j, "overhead", r.overhead);
    pl_json_uint(j, "peak_bytes", r.peak_bytes);
    pl_json_uint(j, "budget_bytes", r.budget_bytes);
    pl_json_float(j, "plan_ms", r.plan_ms);
    pl_json_end(j);
    rc = pl_json_finish(j);
    pl_json_free(j);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

/* ---- what each of the planner's means is worth ------------------------------------------- */
/* The arena without sharing and the step's time of a run whose nodes are not fused, with what the
 * plan has taken. */
static pl_status plan_unfused(const cli_args *a, const pl_run *planned, const char *split,
                              plan_mean *out)
{
    const pl_tradeoff *t;
    cli_args b = *a;
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_run *run = NULL;
    o.no_fuse = true;
    cli_busy("planning %s node by node, %s", a->positional[0], split);
    if (b.n_overrides < CLI_MAX_ARGS) b.overrides[b.n_overrides++] = split;
    for (int i = 0; b.n_overrides < CLI_MAX_ARGS && (t = pl_run_tradeoff_at(planned, i, NULL)); i++)
        b.overrides[b.n_overrides++] = t->setting;
    pl_status rc = plan_open(&b, "null", &run);
    if (rc == PL_OK) {
        pl_run_set_compile(run, &o);
        rc = pl_run_build(run);
    }
    if (rc == PL_OK) {
        plan_mean mean[PLAN_MEANS];
        plan_means(run, mean);
        out->bytes = mean[0].bytes;
        out->ms = plan_keep_all_ms(run);
    }
    pl_run_free(run);
    return rc;
}

/* Rows above those of plan_means, from plans of their own: the batch as a whole, nodes one by one.
 */
static pl_status explain(const cli_args *a, const pl_run *run, plan_mean *mean, int *n)
{
    pl_run_split split = pl_run_split_get(run);
    char parts[64];
    int k = 0;
    if (split.accumulate > 1) {
        mean[k] = (plan_mean){"whole_batch", "the batch at once, node by node", 0, 0};
        pl_status rc = plan_unfused(a, run, "accumulate=1", &mean[k++]);
        if (rc != PL_OK) return rc;
    }
    snprintf(parts, sizeof parts, "accumulate=%lld", (long long)split.accumulate);
    mean[k] = (plan_mean){"micro_batches",
                          k ? "micro-batches" : "every node's result in its own bytes", 0, 0};
    pl_status rc = plan_unfused(a, run, parts, &mean[k++]);
    *n = k + plan_means(run, mean + k);
    mean[k].name = "fusion";
    mean[k].what = "fused groups keep theirs in registers";
    return rc;
}

/* Rows of all phases; n is 0 when there are none or one was asked for. */
typedef struct phases {
    phase_row *row;
    int n;
    char largest[16]; /* number */
} phases;

/* A run with phases is shown by its largest one. */
static pl_status plan_phases(cli_args *a, const char *memory, phases *all)
{
    pl_run *run = NULL;
    if (a->phase) return PL_OK;
    pl_status rc = plan_open(a, memory, &run);
    if (rc != PL_OK) cli_fail(rc);
    int n = rc == PL_OK ? pl_run_phase_count(run) : 0;
    pl_run_free(run);
    if (rc != PL_OK || n == 0) return rc;
    cli_busy("planning the phases of %s", a->positional[0]);
    rc = phases_plan(a, memory, 0, &all->row, &all->n);
    if (rc != PL_OK) return rc;
    snprintf(all->largest, sizeof all->largest, "%d", phases_largest(all->row, all->n)->number);
    a->phase = all->largest;
    return rc;
}

/* The plan and, when it does not fit, what would. The run is freed before those are looked for: its
 * memory would be counted to them. */
static pl_status show(const cli_args *a, const char *memory, pl_run *run, const phases *all,
                      bool explained, bool json)
{
    plan_mean mean[PLAN_MEANS];
    plan_edit edit[PLAN_EDITS];
    int n = 0, n_edits = 0;
    pl_run_memory m = pl_run_memory_get(run);
    pl_status rc = explained ? explain(a, run, mean, &n) : PL_OK;
    if (!explained) n = plan_means(run, mean);
    cli_idle();
    pl_json *j = json ? pl_json_new(stdout) : NULL;
    if (json) {
        pl_json_object(j, NULL);
        plan_json(run, j);
        plan_means_json(mean, n, j);
        if (all->n) phases_json(all->row, all->n, j);
    } else if (rc == PL_OK) {
        if (all->n) phases_print(all->row, all->n, stdout);
        plan_print(run, a->positional[0], mean, n, stdout);
    }
    pl_run_free(run);
    if (rc == PL_OK && !m.fits) n_edits = plan_edits(a, memory, &m, edit);
    if (json) {
        plan_edits_json(edit, n_edits, j);
        pl_json_end(j);
        pl_status written = pl_json_finish(j);
        pl_json_free(j);
        return rc != PL_OK ? rc : written;
    }
    plan_edits_print(edit, n_edits, stdout);
    return rc;
}

/* The files that were asked for. */
static bool write_files(const cli_args *a, const pl_run *run, const char *timeline,
                        const char *snapshot)
{
    if (timeline && timeline_write(run, a->positional[0], timeline) != 0) return false;
    if (!snapshot || plan_snapshot(run, snapshot)) return true;
    cli_error("cannot write %s", snapshot);
    return false;
}

int cmd_plan(int argc, char **argv)
{
    bool json = false, print_config = false, largest = false, explained = false, compare = false;
    bool measure = false;
    const char *memory = NULL, *timeline = NULL, *csv = NULL, *out = NULL, *capacity = NULL;
    char ranks_key[32], link_key[96];
    const char *ranks = NULL, *link = NULL;
    char device_key[96];
    const char *phase = NULL, *device = NULL, *snapshot = NULL, *sweep = NULL, *trace = NULL,
               *budget = NULL, *seconds = NULL;
    cli_args a;
    const cli_option options[] = {
        {"--memory", "SIZE", &memory, "budget of the whole process, e.g. 2GiB (= memory=SIZE)"},
        {"--device", "NAME", &device,
         "plan for a card that is not here: t4, rtx4090, h100, ... (= device=NAME)"},
        {"--ranks", "N", &ranks, "plan for one of N processes that share the batch (= ranks=N)"},
        {"--link", "NAME", &link,
         "what joins them: nvlink, pcie4, ib, eth, nvlink/8+ib (= link=NAME)"},
        {"--measure", NULL, &measure, "first time this network's kernels here, in a few steps"},
        {"--json", NULL, &json, "one JSON object"},
        {"--explain", NULL, &explained, "what fusion and micro-batches save, too (further plans)"},
        {"--phase", "NAME", &phase, "one phase of a run that has several (the largest by default)"},
        {"--timeline", "FILE.svg|.html", &timeline, "draw the memory over the steps of the plan"},
        {"--sweep", "SIZES", &sweep, "a row for each budget: 6GB,8GB,12GB,16GB,24GB"},
        {"--compare", NULL, &compare, "the model's own segments beside the planner"},
        {"--largest-batch", NULL, &largest, "the largest batch that --memory allows"},
        {"--snapshot", "FILE.pickle", &snapshot, "the plan for PyTorch's memory viewer"},
        {"--print-config", NULL, &print_config, "print the resolved configuration and stop"},
        {"--csv", "IN.csv", &csv, "the offset planner alone: columns id,lower,upper,size"},
        {"--out", "FILE.csv", &out, "with --csv: where the offsets go"},
        {"--capacity", "BYTES", &capacity, "with --csv: good enough; exit code 3 above it"},
        {"--trace", "IN.txt", &trace, "the recompute planner alone, on an op-level trace"},
        {"--budget", "SHARE", &budget, "with --trace: of the peak without recomputation, 0 to 1"},
        {"--search", "SECONDS", &seconds, "with --trace: further search for a cheaper plan"},
        {NULL, NULL, NULL, NULL},
    };
    cli_parse(
        argc, argv, options,
        "plimsoll plan CONFIG [key=value ...]\nplimsoll plan --csv IN.csv [--out OUT.csv]\n\nSays how much memory training takes, exactly, "
        "and where the peak is.\nCONFIG is a preset (plimsoll recipes lists them), a YAML file "
        "or a compiled recipe (my-net.so).",
        "  plimsoll plan cloud/full\n"
        "  plimsoll plan cloud/full batch=8 --memory 15GB\n"
        "  plimsoll plan my.yaml --json\n"
        "  plimsoll plan cloud/full --timeline memory.html\n"
        "  plimsoll plan cloud/full --sweep 6GB,8GB,12GB,16GB,24GB\n"
        "  plimsoll plan cloud/full --compare\n"
        "  plimsoll plan cloud/full --largest-batch --memory 16GB\n"
        "  plimsoll plan cloud/full --device t4\n"
        "  plimsoll plan wandistill/full batch=64 --ranks 64 --device h100 --link nvlink/8+ib shard=weights\n"
        "  plimsoll plan cloud/demo --measure\n"
        "  plimsoll plan --csv buffers.csv --out offsets.csv\n",
        &a);
    if (csv) {
        cli_want(&a, 0, 0, "plan --csv", "no configuration");
        return plan_csv(csv, out, capacity, json);
    }
    if (trace) {
        cli_want(&a, 0, 0, "plan --trace", "no configuration");
        return plan_trace(trace, budget, seconds, json);
    }
    if (budget || seconds) {
        cli_error("--budget and --search of plan go with --trace; a network's budget is --memory");
        return 2;
    }
    if (out || capacity) {
        cli_error("--out and --capacity of plan go with --csv");
        return 2;
    }
    cli_want(&a, 1, 1, "plan", "one configuration");
    cli_override(&a, "device", device, device_key, sizeof device_key);
    cli_override(&a, "ranks", ranks, ranks_key, sizeof ranks_key);
    cli_override(&a, "link", link, link_key, sizeof link_key);
    a.argv = argv - 1; /* main's own: the program's name stands before the command's */
    phases_answer(&a, memory);
    if (measure) {
        int code = times_measure(&a, memory);
        if (code) return code;
    }
    a.phase = phase;
    phases all = {0};
    pl_run *run = NULL;
    if (print_config) {
        pl_status opened = plan_open(&a, memory, &run);
        return opened == PL_OK ? plan_print_config(run) : cli_fail(opened);
    }
    pl_status rc = plan_phases(&a, memory, &all);
    if (rc != PL_OK) return pl_status_exit_code(rc);
    if (largest) return plan_largest(&a, memory, json);
    if (compare) return plan_compare(&a, json);
    if (sweep) return plan_sweep(&a, sweep, json);
    rc = plan_open(&a, memory, &run);
    if (rc != PL_OK) return cli_fail(rc);
    cli_busy("planning %s", a.positional[0]);
    rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_find_minimum(run);
    if (rc != PL_OK || !write_files(&a, run, timeline, snapshot)) {
        pl_run_free(run);
        return rc != PL_OK ? cli_fail(rc) : 1;
    }
    pl_run_memory m = pl_run_memory_get(run);
    rc = show(&a, memory, run, &all, explained, json);
    if (rc != PL_OK) return cli_fail(rc);
    if (all.n) {
        rc = phases_check(all.row, all.n);
        free(all.row);
        return rc == PL_OK ? 0 : pl_status_exit_code(rc);
    }
    if (!m.fits)
        cli_error("does not fit %s: the smallest budget is %llu bytes (%s)", cli_bytes(m.budget),
                  (unsigned long long)m.minimum, cli_bytes(m.minimum));
    return m.fits ? 0 : 3;
}
