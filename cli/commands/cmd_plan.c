/* cmd_plan.c - `plimsoll plan`: the memory of a training run, before it runs. */
#include "cli/train/cli_phases.h"

#include <stdlib.h>
#include <string.h>

/* The options as given; NULL or false: not given. */
typedef struct plan_options {
    const char *memory, *host_memory, *disk, *device, *ranks, *link, *phase;
    const char *timeline, *snapshot, *sweep;
    const char *csv, *out, *capacity;     /* standalone_pack */
    const char *trace, *budget, *seconds; /* standalone_recompute */
    bool json, explain, compare, largest, measure, print_config;
} plan_options;

const cli_help cli_help_plan = {
    .usage = "plimsoll plan CONFIG [key=value ...]\n"
             "plimsoll plan --csv IN.csv [--out OUT.csv]\n"
             "plimsoll plan --trace IN.txt --budget SHARE [--out PLAN]",
    .about =
        "Plans the memory of a training run without starting it: exact bytes, where the peak is, the\n"
        "predicted time of a step. With --memory the plan recomputes tensors until it fits the budget.\n"
        "CONFIG is a preset (plimsoll recipes lists them), a YAML file, a compiled recipe (my-net.so)\n"
        "or an ONNX model (model.onnx).\n"
        "SIZE: 1GB is 10^9 bytes, 1GiB is 2^30 bytes. Exit code 3: it does not fit.",
    .examples = "  plimsoll plan cloud/full\n"
                "  plimsoll plan cloud/full batch=8 --memory 15GB\n"
                "  plimsoll plan my.yaml --json\n"
                "  plimsoll plan cloud/full --timeline memory.html\n"
                "  plimsoll plan cloud/full --sweep 6GB,8GB,12GB,16GB,24GB\n"
                "  plimsoll plan cloud/full --compare\n"
                "  plimsoll plan cloud/full --largest-batch --memory 16GB\n"
                "  plimsoll plan cloud/full --device t4\n"
                "  plimsoll plan wandistill/full batch=64 --ranks 64 --device h100 --link "
                "nvlink/8+ib shard=weights\n"
                "  plimsoll plan cloud/demo --measure\n"
                "  plimsoll plan --csv buffers.csv --out offsets.csv\n",
#define AT(member) offsetof(plan_options, member)
    .options =
        (const cli_option[]){
            {"--memory", "SIZE", AT(memory),
             "memory budget of the whole process (same as memory=SIZE)"},
            {"--host-memory", "SIZE", AT(host_memory),
             "let tensors that do not fit on the GPU use this much host memory (same as "
             "host_memory=SIZE)"},
            {"--disk", "SIZE:FOLDER", AT(disk),
             "let tensors that fit no memory budget use a file of this size (same as "
             "disk=SIZE:FOLDER)"},
            {"--device", "DEVICE", AT(device),
             "plan for a GPU, present or not: t4, rtx4090, h100, ... (same as device=DEVICE)"},
            {"--ranks", "N", AT(ranks),
             "plan one of N ranks that share the batch (same as ranks=N)"},
            {"--link", "NAME", AT(link),
             "link between ranks: nvlink, pcie4, ib, eth, nvlink/8+ib (same as link=NAME)"},
            {"--measure", NULL, AT(measure),
             "first measure this network's kernels here, in a few steps"},
            {"--json", NULL, AT(json), "print one JSON object"},
            {"--explain", NULL, AT(explain),
             "also show what kernel fusion and gradient accumulation save (slower)"},
            {"--phase", "NAME", AT(phase), "plan this phase", "the phase that needs most memory"},
            {"--timeline", "FILE.svg|.html", AT(timeline), "draw memory over one training step"},
            {"--sweep", "SIZES", AT(sweep), "plan each of these budgets: 6GB,8GB,12GB,16GB,24GB"},
            {"--compare", NULL, AT(compare),
             "compare with block checkpointing: recompute the blocks that the recipe marks"},
            {"--largest-batch", NULL, AT(largest), "find the largest batch that fits --memory"},
            {"--snapshot", "FILE.pickle", AT(snapshot),
             "write the plan for PyTorch's memory viewer"},
            {"--print-config", NULL, AT(print_config), "print the resolved configuration and stop"},
            {"--csv", "FILE.csv", AT(csv),
             "place the buffers of a file: columns id,lower,upper,size"},
            {"--out", "FILE", AT(out),
             "with --csv: write the offsets here; with --trace: the plan"},
            {"--capacity", "BYTES", AT(capacity),
             "with --csv: stop at an arena this small; exit code 3 above it"},
            {"--trace", "FILE.txt", AT(trace), "plan recompute for a trace of operations"},
            {"--budget", "SHARE", AT(budget),
             "with --trace: share of the keep-all peak, above 0, at most 1"},
            {"--search", "SECONDS", AT(seconds), "with --trace: search longer for a cheaper plan"},
            {NULL},
        },
#undef AT
};

/* ---- --explain --------------------------------------------------------------------------- */
/* Plans the run without kernel fusion and memory reuse, with the trade-offs of `planned`. Sets the
 * bytes and the step time of a row. */
static pl_status plan_unfused(const cli_args *a, const pl_run *planned, const char *accumulate,
                              plan_optimisation *out)
{
    const pl_tradeoff *t;
    cli_args b = *a;
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_run *run = NULL;
    o.no_fuse = true;
    cli_busy("planning %s without fusion, %s", a->positional[0], accumulate);
    if (b.n_overrides < CLI_MAX_ARGS) b.overrides[b.n_overrides++] = accumulate;
    for (int i = 0; b.n_overrides < CLI_MAX_ARGS && (t = pl_run_tradeoff_at(planned, i, NULL)); i++)
        b.overrides[b.n_overrides++] = t->setting;
    pl_status rc = cli_open_run(&b, "null", &run);
    if (rc == PL_OK) {
        pl_run_set_compile(run, &o);
        rc = pl_run_build(run);
    }
    if (rc == PL_OK) {
        plan_optimisation rows[PLAN_OPTIMISATIONS];
        plan_optimisations(run, rows);
        out->bytes = rows[0].bytes;
        out->ms = plan_keep_all_ms(run);
    }
    pl_run_free(run);
    return rc;
}

/* Puts rows for gradient accumulation and kernel fusion above the rows of plan_optimisations. */
static pl_status explain(const cli_args *a, const pl_run *run, plan_optimisation *row, int *n)
{
    pl_run_split split = pl_run_split_get(run);
    char accumulate[64];
    int k = 0;
    if (split.accumulate > 1) {
        row[k] = (plan_optimisation){.name = "whole_batch", .title = "no reuse, no fusion"};
        pl_status rc = plan_unfused(a, run, "accumulate=1", &row[k++]);
        if (rc != PL_OK) return rc;
    }
    snprintf(accumulate, sizeof accumulate, "accumulate=%lld", (long long)split.accumulate);
    row[k] = (plan_optimisation){.name = "micro_batches",
                                 .title = k ? "gradient accumulation" : "no reuse, no fusion"};
    pl_status rc = plan_unfused(a, run, accumulate, &row[k++]);
    *n = k + plan_optimisations(run, row + k);
    row[k].name = "fusion";
    row[k].title = "fused kernels";
    return rc;
}

/* ---- phases ------------------------------------------------------------------------------ */
/* One row for each phase; n is 0 without phases and when the user named one. */
typedef struct phases {
    phase_row *row;
    int n;
    char largest[16]; /* number of the phase that needs most memory */
} phases;

/* Plans all phases of a run, and makes the largest one the phase that is shown. */
static pl_status plan_phases(cli_args *a, const char *memory, phases *all)
{
    pl_run *run = NULL;
    if (a->phase) return PL_OK;
    pl_status rc = cli_open_run(a, memory, &run);
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

/* ---- the plan ---------------------------------------------------------------------------- */
/* Prints the plan and, when it does not fit, changes that fit. Frees the run before it looks for
 * those changes, because its memory would count against them. */
static pl_status show(const cli_args *a, const plan_options *o, pl_run *run, const phases *all)
{
    plan_optimisation row[PLAN_OPTIMISATIONS];
    plan_edit edit[PLAN_EDITS];
    plan_refusal refused;
    int n = 0, n_edits = 0;
    pl_run_memory m = pl_run_memory_get(run);
    pl_status rc = o->explain ? explain(a, run, row, &n) : PL_OK;
    if (!o->explain) n = plan_optimisations(run, row);
    cli_idle();
    pl_json *j = o->json ? pl_json_new(stdout) : NULL;
    if (o->json) {
        pl_json_object(j, NULL);
        plan_json(run, j);
        plan_optimisations_json(row, n, j);
        if (all->n) phases_json(all->row, all->n, j);
    } else if (rc == PL_OK) {
        if (all->n) phases_print(all->row, all->n, stdout);
        plan_print(run, a->positional[0], row, n, stdout);
    }
    bool offers = rc == PL_OK && !m.fits;
    if (offers) refused = plan_refused(run);
    pl_run_free(run);
    if (offers) n_edits = plan_edits(a, o->memory, &refused, edit);
    if (o->json) {
        plan_edits_json(edit, n_edits, j);
        pl_json_end(j);
        pl_status written = pl_json_finish(j);
        pl_json_free(j);
        return rc != PL_OK ? rc : written;
    }
    plan_edits_print(edit, n_edits, stdout);
    return rc;
}

/* Writes the files that --timeline and --snapshot name; false: said why not. */
static bool write_files(const cli_args *a, const plan_options *o, const pl_run *run)
{
    if (o->timeline && timeline_write(run, a->positional[0], o->timeline) != 0) return false;
    if (!o->snapshot || plan_snapshot(run, o->snapshot)) return true;
    cli_error("cannot write %s", o->snapshot);
    return false;
}

/* Whether to search for the minimum. In a large network that takes several times as long as the
 * plan itself, and without a budget the user does not need it. */
static bool wants_minimum(const pl_run *run)
{
    enum { MANY_NODES = 20000 };
    const pl_plan_info *p = pl_program_plan(plan_largest_program(run, true).program);
    return pl_run_memory_get(run).budget || p->nodes <= MANY_NODES;
}

/* Plans, prints, and returns the exit code. */
static int plan_once(const cli_args *a, const plan_options *o, const phases *all)
{
    pl_run *run = NULL;
    pl_status rc = cli_open_run(a, o->memory, &run);
    if (rc != PL_OK) return cli_fail(rc);
    cli_busy("planning %s", a->positional[0]);
    rc = pl_run_build(run);
    if (rc == PL_OK && wants_minimum(run)) rc = pl_run_find_minimum(run);
    if (rc != PL_OK || !write_files(a, o, run)) {
        pl_run_free(run);
        return rc != PL_OK ? cli_fail(rc) : 1;
    }
    pl_run_memory m = pl_run_memory_get(run);
    rc = show(a, o, run, all);
    if (rc != PL_OK) return cli_fail(rc);
    if (all->n) {
        rc = phases_check(all->row, all->n);
        free(all->row);
        return rc == PL_OK ? 0 : pl_status_exit_code(rc);
    }
    if (!m.fits) plan_unfit_print(&m);
    if (!m.minimum_found && !o->json)
        cli_error("the minimum of this large network was not searched for; --memory SIZE does so");
    return m.fits ? 0 : 3;
}

static int print_config(const cli_args *a, const char *memory)
{
    pl_run *run = NULL;
    pl_status rc = cli_open_run(a, memory, &run);
    return rc == PL_OK ? cli_print_config(run) : cli_fail(rc);
}

int cmd_plan(int argc, char **argv)
{
    plan_options o = {.json = false};
    char device[96], ranks[32], link[96], host[64], disk[4200];
    cli_args a;
    cli_parse(argc, argv, &cli_help_plan, &o, &a);
    if (o.csv || o.trace) cli_want(&a, 0, 0, o.csv ? "plan --csv" : "plan --trace", "no CONFIG");
    if (o.csv) return standalone_pack(o.csv, o.out, o.capacity, o.json);
    if (o.trace) return standalone_recompute(o.trace, o.budget, o.seconds, o.out, o.json);
    if (o.budget || o.seconds) {
        cli_error("--budget and --search need --trace; the budget of a network is --memory");
        return 2;
    }
    if (o.out || o.capacity) {
        cli_error(o.out ? "--out needs --csv or --trace" : "--capacity needs --csv");
        return 2;
    }
    cli_want(&a, 1, 1, "plan", "one configuration");
    cli_override(&a, "host_memory", o.host_memory, host, sizeof host);
    cli_override(&a, "disk", o.disk, disk, sizeof disk);
    cli_override(&a, "device", o.device, device, sizeof device);
    cli_override(&a, "ranks", o.ranks, ranks, sizeof ranks);
    cli_override(&a, "link", o.link, link, sizeof link);
    a.argv = argv - 1; /* of main: the program's name comes before the command's */
    phases_answer(&a, o.memory);
    int code = o.measure ? times_measure(&a, o.memory) : 0;
    if (code) return code;
    a.phase = o.phase;
    if (o.print_config) return print_config(&a, o.memory);
    phases all = {0};
    pl_status rc = plan_phases(&a, o.memory, &all);
    if (rc != PL_OK) return pl_status_exit_code(rc);
    if (o.largest) return plan_largest(&a, o.memory, o.json);
    if (o.compare) return plan_compare(&a, o.json);
    if (o.sweep) return plan_sweep(&a, o.sweep, o.json);
    return plan_once(&a, &o, &all);
}
