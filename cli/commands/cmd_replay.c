/* cmd_replay.c - `plimsoll replay`: compares training with a PyTorch program. */
#include "cli/ui.h"
#include "plimsoll_json.h"

#include <string.h>

static void print_report(const pl_replay_report *r)
{
    printf("%s against recipe %s: %d steps\n", r->workload, r->recipe, r->steps);
    printf("  %-10s %4d compared, worst %.3g  %s\n", "losses", r->losses, r->worst_loss,
           r->worst_loss_name);
    printf("  %-10s %4d compared, worst %.3g  %s\n", "gradients", r->gradients, r->worst_grad,
           r->worst_grad_name);
    printf("  %-10s %4d compared, worst %.3g  %s\n", "final", r->tensors, r->worst_final,
           r->worst_final_name);
    if (r->noise)
        printf(
            "  %d final tensors have gradients that are zero up to rounding; they are not compared\n",
            r->noise);
    if (r->nudged)
        printf(
            "  beyond the tolerances, but explained by rounding: %d (%d run%s from weights moved by "
            "one unit in\n  the last place differ%s as much%s%s)\n",
            r->rounding, r->nudged, r->nudged == 1 ? "" : "s", r->nudged == 1 ? "s" : "",
            r->rounding_name[0] ? "; largest: " : "", r->rounding_name);
    printf("%s\n", r->agree ? "they agree" : "they do NOT agree");
    if (!r->agree && r->rounding)
        printf("Rounding decides much here; f64 is a stricter comparison: bench.py with\n"
               "--double-of DUMPS --dump DOUBLES, then plimsoll replay DOUBLES/%s\n",
               r->workload);
}

static pl_status print_json(const pl_replay_report *r)
{
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_bool(j, "agree", r->agree);
    pl_json_string(j, "workload", r->workload);
    pl_json_string(j, "recipe", r->recipe);
    pl_json_int(j, "steps", r->steps);
    pl_json_float(j, "worst_loss", r->worst_loss);
    pl_json_float(j, "worst_gradient", r->worst_grad);
    pl_json_float(j, "worst_final", r->worst_final);
    pl_json_int(j, "losses", r->losses);
    pl_json_int(j, "gradients", r->gradients);
    pl_json_int(j, "tensors", r->tensors);
    pl_json_int(j, "noise_tensors", r->noise);
    pl_json_int(j, "rounding", r->rounding);
    pl_json_int(j, "nudged_runs", r->nudged);
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

typedef struct replay_options {
    bool json;
} replay_options;

const cli_help cli_help_replay = {
    .usage = "plimsoll replay [CONFIG] DIR [key=value ...]",
    .about = "Trains from the weights, inputs and random draws that a PyTorch program wrote\n"
             "(bench/peers/bench.py --dump) and compares losses (1e-5), gradients (1e-4) and "
             "final weights.\nExit code 0 only if all agree.",
    .examples = "  plimsoll replay dumps/cloud\n",
    .options =
        (const cli_option[]){
            {"--json", NULL, offsetof(replay_options, json), "print one JSON object"},
            {NULL},
        },
};

int cmd_replay(int argc, char **argv)
{
    replay_options given = {.json = false};
    cli_args a;
    cli_parse(argc, argv, &cli_help_replay, &given, &a);
    cli_want(&a, 1, 2, "replay", "a dump folder");
    pl_replay_opts o = {.config = a.n_positional == 2 ? a.positional[0] : NULL,
                        .overrides = a.overrides,
                        .n_overrides = a.n_overrides};
    pl_replay_report r;
    pl_status rc = pl_replay(a.positional[a.n_positional - 1], &o, &r);
    if (rc != PL_OK) return cli_fail(rc);
    if (!given.json)
        print_report(&r);
    else if ((rc = print_json(&r)) != PL_OK)
        return cli_fail(rc);
    return r.agree ? 0 : 1;
}
