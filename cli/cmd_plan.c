/* cmd_plan.c - `plimsoll plan`: the memory of a training run, before it runs. */
#include "plimsoll_json.h"
#include "plimsoll_unstable.h"
#include "ui.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const component_names[PL_N_COMPONENTS] = {
    "weights", "gradients", "optimizer", "activations", "workspace", "inputs"};

/* The program with the larger arena decides the arena. */
static const pl_plan_info *largest_plan(const pl_run *run, const pl_program **program)
{
    const pl_program *t = pl_run_train_program(run), *e = pl_run_eval_program(run);
    *program = t;
    if (e && pl_program_plan(e)->arena_bytes > pl_program_plan(t)->arena_bytes) *program = e;
    return pl_program_plan(*program);
}

void plan_json(const pl_run *run, pl_json *j)
{
    const pl_plan_info *p = pl_program_plan(pl_run_train_program(run));
    pl_run_memory m = pl_run_memory_get(run);
    pl_run_split split = pl_run_split_get(run);
    pl_json_bool(j, "fits", m.fits);
    if (m.budget)
        pl_json_uint(j, "budget_bytes", m.budget);
    else
        pl_json_null(j, "budget_bytes");
    pl_json_uint(j, "arena_bytes", m.arena);
    pl_json_uint(j, "state_bytes", m.state);
    pl_json_uint(j, "overhead_bytes", m.overhead);
    pl_json_uint(j, "keep_all_bytes", p->keep_all_bytes);
    pl_json_uint(j, "minimum_bytes", m.minimum);
    pl_json_uint(j, "live_bound_bytes", p->live_bound_bytes);
    pl_json_uint(j, "no_reuse_bytes", p->no_reuse_bytes);
    pl_json_float(j, "recompute_ratio", p->recompute_ratio);
    pl_json_float(j, "predicted_step_ms", pl_run_predicted_ms(run));
    pl_json_int(j, "micro_batch", split.micro);
    pl_json_int(j, "accumulate", split.accumulate);
    pl_json_int(j, "effective_batch", split.effective);
    pl_json_int(j, "parameters", pl_run_parameters(run, false));
    pl_json_int(j, "trainable", pl_run_parameters(run, true));
    pl_json_int(j, "nodes", p->nodes);
    pl_json_int(j, "units", p->units);
    pl_json_float(j, "plan_ms", p->plan_ms);
    pl_json_object(j, "components");
    for (int i = 0; i < PL_N_COMPONENTS; i++)
        pl_json_uint(j, component_names[i], p->components[i]);
    pl_json_end(j);
    pl_json_string(j, "peak_node", p->peak_node);
    pl_json_string(j, "device", pl_config_text(pl_run_config(run), "device"));
    times_json(p, j);
}

static void print_components(const pl_plan_info *p, const pl_run_memory *m, FILE *out)
{
    uint64_t planned = m->arena + m->state;
    fprintf(out, "  %-14s %12s\n", "at the peak", "bytes");
    for (int i = 0; i < PL_N_COMPONENTS; i++)
        fprintf(out, "  %-14s %12s  %s\n", component_names[i], cli_bytes(p->components[i]),
                cli_bar(planned ? (double)p->components[i] / (double)planned : 0, 30));
    fprintf(out, "  %-14s %12s  arena %s (%llu bytes) + state %s (%llu bytes)\n", "planned",
            cli_bytes(planned), cli_bytes(m->arena), (unsigned long long)m->arena,
            cli_bytes(m->state), (unsigned long long)m->state);
    fprintf(out, "  %-14s %12s  program, libraries, stacks (measured, with a margin)\n", "overhead",
            cli_bytes(m->overhead));
    fprintf(out, "  %s%-14s %12s%s", cli_bold(out), "process", cli_bytes(m->total),
            cli_plain(out));
    if (m->budget)
        fprintf(out, "  %s the budget of %s", m->fits ? "fits" : "does NOT fit",
                cli_bytes(m->budget));
    fprintf(out, "\n");
    fprintf(out, "  %-14s %12s  smallest budget found (recomputing); arena %s when all is kept",
            "minimum", cli_bytes(m->minimum), cli_bytes(p->keep_all_bytes));
    if (p->recompute_ratio > 0)
        fprintf(out, ", %s as planned: %.1f %% of the step is computed again",
                cli_bytes(p->arena_bytes), 100 * p->recompute_ratio);
    fprintf(out, "\n");
}

static int by_size(const void *a, const void *b)
{
    const pl_plan_buffer *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : (x->offset > y->offset) - (x->offset < y->offset);
}

/* The largest buffers alive at the peak. */
static void print_peak(const pl_program *program, const pl_plan_info *p, FILE *out)
{
    fprintf(out, "\nPeak at step %d of %d: %s%s%s. Largest alive there:\n", p->peak_step + 1,
            p->units, cli_bold(out), p->peak_node, cli_plain(out));
    pl_plan_buffer *alive = calloc((size_t)p->buffers + 1, sizeof *alive);
    if (!alive) return;
    size_t n = 0;
    for (int i = 0; i < p->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(program, i);
        if (b.first <= p->peak_step && p->peak_step < b.last) alive[n++] = b;
    }
    qsort(alive, n, sizeof *alive, by_size);
    for (size_t i = 0; i < n && i < 6; i++) {
        char type[96];
        fprintf(out, "  %12s  %-11s %-28s %s\n", cli_bytes(alive[i].bytes),
                component_names[alive[i].component],
                alive[i].component == PL_COMP_WORKSPACE ? ""
                                                        : pl_type_text(&alive[i].type, type, sizeof type),
                alive[i].label);
    }
    free(alive);
}

void plan_print(const pl_run *run, const char *name, FILE *out)
{
    const pl_program *program;
    const pl_plan_info *p = largest_plan(run, &program);
    pl_run_memory m = pl_run_memory_get(run);
    pl_run_split split = pl_run_split_get(run);
    fprintf(out, "%s%s%s: %s parameters, batch %lld (micro %lld x accumulate %lld)\n\n", cli_bold(out),
            name, cli_plain(out), cli_count(pl_run_parameters(run, false)),
            (long long)split.effective, (long long)split.micro, (long long)split.accumulate);
    if (split.coupled)
        fprintf(out, "accumulate: auto does not split the batch, its samples couple: %s\n\n",
                split.coupled);
    print_components(p, &m, out);
    print_peak(program, p, out);
    fprintf(out,
            "\nArena %.3f x the most bytes alive at once; without sharing of bytes it would be %s.\n"
            "%d nodes in %d units, planned in %.0f ms; a step is predicted to take %s.\n",
            p->live_bound_bytes ? (double)p->arena_bytes / (double)p->live_bound_bytes : 1.0,
            cli_bytes(p->no_reuse_bytes), p->nodes, p->units, p->plan_ms,
            cli_ms(pl_run_predicted_ms(run)));
    times_print(p, out);
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
    return pl_run_open(a->positional[0], overrides, n, out);
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

int cmd_plan(int argc, char **argv)
{
    bool json = false, print_config = false, largest = false, measure = false;
    const char *memory = NULL, *timeline = NULL, *csv = NULL, *out = NULL, *capacity = NULL;
    char device_key[96];
    const char *device = NULL, *snapshot = NULL, *sweep = NULL, *trace = NULL, *budget = NULL, *seconds = NULL;
    cli_args a;
    const cli_option options[] = {
        {"--memory", "SIZE", &memory, "budget of the whole process, e.g. 2GiB (= memory=SIZE)"},
        {"--device", "NAME", &device, "plan for a card that is not here: t4, rtx4090, h100, ... (= device=NAME)"},
        {"--measure", NULL, &measure, "first time this network's kernels here, in a few steps"},
        {"--json", NULL, &json, "one JSON object"},
        {"--timeline", "FILE.svg", &timeline, "draw the bytes alive over the steps of the plan"},
        {"--sweep", "SIZES", &sweep, "a row for each budget: 6GB,8GB,12GB,16GB,24GB"},
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
    cli_parse(argc, argv, options,
              "plimsoll plan CONFIG [key=value ...]\nplimsoll plan --csv IN.csv [--out OUT.csv]\n\nSays how much memory training takes, exactly, "
              "and where the peak is.\nCONFIG is a preset (plimsoll recipes lists them), a YAML file "
              "or a compiled recipe (my-net.so).",
              "  plimsoll plan cloud/full\n"
              "  plimsoll plan cloud/full batch=8 --memory 15GB\n"
              "  plimsoll plan my.yaml --json\n"
              "  plimsoll plan cloud/full --timeline memory.svg\n"
              "  plimsoll plan cloud/full --sweep 6GB,8GB,12GB,16GB,24GB\n"
              "  plimsoll plan cloud/full --largest-batch --memory 16GB\n"
              "  plimsoll plan cloud/full --device t4\n"
              "  plimsoll plan cloud/demo --measure\n"
              "  plimsoll plan --csv buffers.csv --out offsets.csv\n", &a);
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
    if (measure) {
        int code = times_measure(&a, memory);
        if (code) return code;
    }
    if (largest) return plan_largest(&a, memory, json);
    if (sweep) return plan_sweep(&a, sweep, json);
    pl_run *run = NULL;
    pl_status rc = plan_open(&a, memory, &run);
    if (rc != PL_OK) return cli_fail(rc);
    if (print_config) return plan_print_config(run);
    rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_find_minimum(run);
    bool fits = true;
    if (rc == PL_OK) {
        fits = pl_run_memory_get(run).fits;
        if (json) {
            pl_json *j = pl_json_new(stdout);
            pl_json_object(j, NULL);
            plan_json(run, j);
            pl_json_end(j);
            rc = pl_json_finish(j);
            pl_json_free(j);
        } else {
            plan_print(run, a.positional[0], stdout);
        }
    }
    if (rc == PL_OK && timeline && timeline_write(run, a.positional[0], timeline) != 0) {
        pl_run_free(run);
        return 1;
    }
    if (rc == PL_OK && snapshot && !plan_snapshot(run, snapshot)) {
        cli_error("cannot write %s", snapshot);
        pl_run_free(run);
        return 1;
    }
    if (rc == PL_OK && !fits) {
        pl_run_memory m = pl_run_memory_get(run);
        cli_error("does not fit %s: the smallest budget is %llu bytes (%s)", cli_bytes(m.budget),
                  (unsigned long long)m.minimum, cli_bytes(m.minimum));
    }
    pl_run_free(run);
    return rc != PL_OK ? cli_fail(rc) : fits ? 0 : 3;
}
