/* cmd_train.c - `plimsoll train`: options, ranks, opening the run. trainer.h does the rest.
 *
 * On a terminal one line is rewritten in place and log lines scroll above it; elsewhere a plain
 * key=value line appears every train.log_every steps; with --json every event is one object per
 * line on stdout. --out RUN is the run folder (run_folder.h); an existing run in the folder is
 * resumed.
 */
#include "cli/plan/plan_view.h"
#include "cli/train/cli_ranks.h"
#include "cli/train/signals.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The options as given; NULL or false: not given. */
typedef struct train_options {
    const char *out, *memory, *host_memory, *disk, *device, *ranks;
    bool fresh, json, quiet, trace_nan, print_config;
} train_options;

const cli_help cli_help_train = {
    .usage = "plimsoll train CONFIG [key=value ...]",
    .about =
        "Plans, then trains inside the planned memory. CONFIG is a preset, a YAML file or a\n"
        "compiled recipe (my-net.so), or an ONNX model (docs/TRAIN_ONNX.md). Ctrl-C finishes the step and saves a checkpoint; the "
        "same\ncommand then resumes.",
    .examples = "  plimsoll train cloud/demo --out runs/first\n"
                "  plimsoll train cloud/demo train.steps=100 optim.lr=1e-3\n"
                "  plimsoll train my.yaml --memory 6GB\n",
#define AT(member) offsetof(train_options, member)
    .options =
        (const cli_option[]){
            {"--out", "RUN", AT(out), "run folder; an existing run in the folder is resumed"},
            {"--memory", "SIZE", AT(memory),
             "memory budget of the whole process, e.g. 2GiB (same as memory=SIZE)"},
            {"--host-memory", "SIZE", AT(host_memory),
             "let tensors that do not fit on the GPU use this much host memory (same as "
             "host_memory=SIZE)"},
            {"--disk", "SIZE:FOLDER", AT(disk),
             "let tensors that fit no memory budget use a file of this size (same as "
             "disk=SIZE:FOLDER)"},
            {"--device", "DEVICE", AT(device), "device to train on (same as device=DEVICE)"},
            {"--ranks", "N", AT(ranks),
             "start N ranks on this machine with mpirun (same as ranks=N)"},
            {"--fresh", NULL, AT(fresh), "start over: delete the run in the folder"},
            {"--json", NULL, AT(json), "print one JSON object per line on stdout"},
            {"--quiet", NULL, AT(quiet), "print errors only"},
            {"--trace-nan", NULL, AT(trace_nan), "find the first tensor that is not finite (slow)"},
            {"--print-config", NULL, AT(print_config), "print the resolved configuration and stop"},
            {NULL},
        },
#undef AT
};

/* Refuses a device that is only a profile, before planning takes time. */
static bool is_profile(const pl_run *run)
{
    pl_device_info info;
    const char *device = pl_config_text(pl_run_config(run), "device");
    const pl_config *c = pl_run_config(run);
    if (!times_is_profile(device, &info)) return false;
    if (!pl_config_is_null(c, "card") && strcmp(pl_config_text(c, "card"), device) == 0)
        cli_error("this configuration is for a GPU, and no GPU of this machine can be used "
                  "(plimsoll devices says why): plimsoll plan plans for a %s, device=cpu trains "
                  "on the CPU",
                  device);
    else
        cli_error(
            "%s is %s: plimsoll plan can use it, plimsoll devices lists what this machine can train on",
            device, info.why_not);
    return true;
}

/* Sets the key `ranks` from the launcher, or from --ranks. */
static pl_status override_ranks(cli_args *a, const char *asked, char *text, size_t cap,
                                int *launched)
{
    pl_status rc = pl_world_launched(launched);
    if (rc != PL_OK) return rc;
    if (*launched == 1) {
        cli_override(a, "ranks", asked, text, cap);
    } else {
        snprintf(text, cap, "ranks=%d", *launched);
        a->overrides[a->n_overrides++] = text;
    }
    return PL_OK;
}

/* Starts the ranks and waits for them, if this process should; returns the exit code. Otherwise
 * returns -1. */
static int start_ranks(const char *text, char **argv)
{
    enum { MOST = 65536 }; /* of key ranks */
    int code;
    char *end = NULL;
    long ranks = text ? strtol(text, &end, 10) : 1;
    if (text && (end == text || *end || ranks < 1 || ranks > MOST)) {
        cli_error("--ranks takes a number of processes, 1 to %d, not \"%s\"", MOST, text);
        return 2;
    }
    /* Blocked until the handlers of the launcher are installed: none of them is lost in between. */
    sigset_t own, before;
    sigemptyset(&own);
#define SIGNAL(number, handler, what) sigaddset(&own, number);
#include "cli/train/signals.def"
#undef SIGNAL
    sigprocmask(SIG_BLOCK, &own, &before);
    pl_status rc = PL_OK;
    code = signals.stop ? 128 + signals.stop : -1;
    if (!signals.stop) /* of main: the program's name comes before the command's */
        rc = pl_ranks_start((int)ranks, argv - 1, &code);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc == PL_OK ? code : cli_fail(rc);
}

/* Opens the run on this rank. Starts the ranks instead if the configuration asks for several and
 * none have been launched; *code is then the exit code. *code -1: the run is open. */
static pl_status open_run(trainer *t, const train_options *o, cli_args *a, char **argv,
                          int launched, int *code)
{
    *code = -1;
    pl_status rc = cli_open_run(a, t->memory, &t->list);
    int64_t ranks = rc == PL_OK ? pl_config_int(pl_run_config(t->list), "ranks") : 1;
    if (launched == 1 && !o->print_config && ranks > 1) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)ranks);
        pl_run_free(t->list);
        *code = start_ranks(text, argv);
        return PL_OK;
    }
    if (rc == PL_OK) rc = pl_run_join(t->list, t->world);
    if (rc != PL_OK) pl_world_fail(t->world, pl_status_exit_code(rc), pl_error_text());
    if (rc != PL_OK) return rc;
    pl_world_set_limit(t->world, pl_config_duration(pl_run_config(t->list), "rank_timeout"));
    t->run = t->list;
    return PL_OK;
}

/* Trains with an open run, then closes everything; returns the exit code. */
static int train(trainer *t)
{
    t->bar = !t->json && !t->quiet && cli_terminal(stderr);
    t->folder.quiet = t->json || t->quiet;
    t->started = t->began = cli_seconds();
    if (t->json) t->events = pl_json_new(stdout);
    if (t->world && !t->quiet && !t->json) ranks_table(t);
    if (pl_threads() > pl_cores() && !t->quiet)
        cli_error("note: %d threads on %d core%s wait for each other; threads=%d is faster",
                  pl_threads(), pl_cores(), pl_cores() == 1 ? "" : "s", pl_cores());
    t->hooks.path = t->folder.path;
    pl_status rc = hooks_open(&t->hooks, t->list, t->world);
    if (rc != PL_OK) pl_world_fail(t->world, pl_status_exit_code(rc), cli_last_error());
    int code = rc == PL_OK ? trainer_run(t) : pl_status_exit_code(rc);
    if (t->run && rc == PL_OK) t->hooks.step = pl_run_steps_done(t->run);
    char message[1024] = "stopped by a signal";
    if (code == 0)
        snprintf(message, sizeof message, "%lld steps done", (long long)t->hooks.step);
    else if (!signals.stop)
        snprintf(message, sizeof message, "%s", cli_last_error());
    if (code != 0 && !signals.stop) emit_error(t, code, message);
    pl_json_free(t->events);
    free(t->peaks);
    monitor_close(&t->monitor);
    folder_close(&t->folder);
    if (t->run != t->list) pl_run_free(t->run);
    pl_run_free(t->list);
    pl_world_close(t->world, code);
    if (!t->idle && rc == PL_OK) hooks_run(&t->hooks, code, message);
    hooks_close(&t->hooks);
    return code;
}

/* Opens the run and trains; returns the exit code. */
static int open_and_train(trainer *t, const train_options *o, cli_args *a, char **argv)
{
    int launched = 1, code;
    char ranks[32];
    pl_status rc = override_ranks(a, o->ranks, ranks, sizeof ranks, &launched);
    if (rc != PL_OK) return cli_fail(rc);
    phases_answer(a, t->memory);
    code = o->print_config ? -1 : start_ranks(o->ranks, argv);
    if (code >= 0) return code;
    if (!o->print_config) signals_listen(launched > 1);
    if (!o->print_config) rc = pl_world_open(&t->world);
    if (rc != PL_OK) return cli_fail(rc);
    if (pl_world_rank(t->world) > 0) {
        t->quiet = true;
        t->json = false;
        t->folder.path = NULL;
    }
    t->args = a;
    t->name = a->positional[0];
    rc = open_run(t, o, a, argv, launched, &code);
    if (rc != PL_OK) return cli_fail(rc);
    if (code >= 0) return code;
    if (o->print_config) return cli_print_config(t->list);
    if (is_profile(t->list)) {
        pl_run_free(t->list);
        pl_world_close(t->world, 4);
        return 4;
    }
    return train(t);
}

int cmd_train(int argc, char **argv)
{
    train_options o = {.ranks = NULL};
    char device[96], host[64], disk[4200];
    cli_args a;
    cli_parse(argc, argv, &cli_help_train, &o, &a);
    cli_want(&a, 1, 1, "train", "one configuration");
    /* as a rank until it is known: a rank that gets a second signal informs the other ranks */
    signals_listen(true);
    trainer *t = cli_new(sizeof *t);
    t->largest = -1;
    t->first = -1;
    t->folder.path = o.out;
    t->memory = o.memory;
    t->fresh = o.fresh;
    t->json = o.json;
    t->quiet = o.quiet;
    t->trace_nan = o.trace_nan;
    cli_override(&a, "host_memory", o.host_memory, host, sizeof host);
    cli_override(&a, "disk", o.disk, disk, sizeof disk);
    cli_override(&a, "device", o.device, device, sizeof device);
    a.argv = argv - 1; /* of main: the program's name comes before the command's */
    int code = open_and_train(t, &o, &a, argv);
    free(t);
    return code;
}
