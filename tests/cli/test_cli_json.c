/* test_cli_json.c - output for other programs: JSON of every command, CSV, and the timeline. */
#include "plimsoll.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <string.h>
#include <unistd.h>

/* ---- JSON ------------------------------------------------------------------------------- */
static const char *first_missing(const json_t *j, const char *const *names)
{
    for (; *names; names++)
        if (!json_object_get(j, *names)) return *names;
    return NULL;
}

static const char *const plan_names[] = {
    "fits",           "budget_bytes",  "arena_bytes",      "state_bytes",     "overhead_bytes",
    "keep_all_bytes", "minimum_bytes", "live_bound_bytes", "recompute_ratio", "predicted_step_ms",
    "micro_batch",    "accumulate",    "effective_batch",  "parameters",      "trainable",
    "nodes",          "plan_ms",       "components",       "peak_node",       NULL};

TEST(cli_plan_json_has_every_member)
{
    WANT_BIN();
    static const char *const parts[] = {"weights",   "gradients", "optimizer", "activations",
                                        "workspace", "inputs",    NULL};

    cli_result r = cli_run("$P plan cloud/full --json");
    CHECK_INT(r.code, 0);
    json_t *j = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
    CHECK(j);

    const char *missing = first_missing(j, plan_names);
    CHECK_MSG(!missing, "%s is missing", missing);
    missing = first_missing(json_object_get(j, "components"), parts);
    CHECK_MSG(!missing, "components.%s is missing", missing);
    CHECK_INT(cli_member(j, "parameters"), 536846);
    CHECK(cli_member(j, "minimum_bytes") < cli_member(j, "arena_bytes"));
    CHECK(cli_member(j, "minimum_bytes") >
          cli_member(j, "state_bytes") + cli_member(j, "overhead_bytes"));
    CHECK((double)cli_member(j, "arena_bytes") <= 1.01 * (double)cli_member(j, "live_bound_bytes"));
    json_decref(j);
    r = cli_run("$P plan cloud/memory_optimized --json");
    j = json_loads(r.out, JSON_REJECT_DUPLICATES, NULL);
    CHECK_INT(cli_member(j, "parameters"), 143886);
    json_decref(j);
}

TEST(cli_train_json_reports_the_planned_arena)
{
    WANT_BIN();
    static const char *const steps[] = {"event",      "step",    "epoch",        "loss",
                                        "lr",         "step_ms", "data_wait_ms", "arena_bytes",
                                        "used_bytes", NULL};
    static const char *const ends[] = {"event", "steps", "wall_s", "peak_used_bytes", NULL};

    cli_result r = cli_run("$P plan " CLI_SMALL "--json");
    json_t *plan = json_loads(r.out, 0, NULL);
    CHECK(plan);
    json_int_t arena = cli_member(plan, "arena_bytes");
    json_decref(plan);
    r = cli_run("$P train " CLI_SMALL "train.steps=4 --json --out %s", pl_test_path("run/deep"));
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_MSG(!r.err[0], "stderr is not empty: %s", r.err);

    plan = cli_event(r.out, "plan", 0);
    CHECK(plan && !first_missing(plan, plan_names));
    json_decref(plan);
    for (int i = 0; i < 4; i++) {
        json_t *s = cli_event(r.out, "step", i);
        CHECK(s && !first_missing(s, steps));
        CHECK_INT(cli_member(s, "arena_bytes"), arena);
        CHECK_INT(cli_member(s, "step"), i + 1);
        json_decref(s);
    }
    json_t *eval = cli_event(r.out, "eval", 1), *end = cli_event(r.out, "end", 0);
    CHECK(eval && json_is_number(json_object_get(eval, "mae_km")) && cli_member(eval, "step") == 4);
    CHECK(end && !first_missing(end, ends) && cli_member(end, "steps") == 4);
    json_decref(eval);
    json_decref(end);
    end = cli_event(cli_read(pl_test_path("run/deep/log.jsonl")), "end", 0);
    CHECK(end);
    json_decref(end);
    CHECK(strstr(cli_read(pl_test_path("run/deep/config.yaml")), "steps: 4"));
    CHECK_RUN(cli_run("$P inspect %s", pl_test_path("run/deep/model.safetensors")), 0, "");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=4 --out %s", pl_test_path("run/deep")), 0,
              "finished");
    CHECK_RUN(cli_run("$P train " CLI_SMALL "train.steps=1 --fresh --quiet --out %s",
                      pl_test_path("run/deep")),
              0, "");
}

TEST(cli_json_tells_what_was_read_from_weight_files)
{
    const char *file = pl_test_path("run/model.safetensors");
    WANT_BIN();
    cli_result r = cli_run("$P train " CLI_SMALL "train.steps=1 eval.every=0 --quiet --out %s && "
                           "$P train " CLI_SMALL "train.steps=1 init_from=%s --json",
                           pl_test_path("run"), file);
    json_t *event = cli_event(r.out, "weights", 0),
           *read = json_array_get(json_object_get(event, "weights"), 0);
    CHECK_MSG(read, "%s%s", r.out, r.err);
    CHECK(cli_member(read, "loaded") > 20 && cli_member(read, "averages") == 0);
    CHECK_INT(cli_member(json_object_get(read, "missing"), "count"), 0);
    CHECK_INT(cli_member(json_object_get(read, "left_over"), "count"), 0);
    json_decref(event);
    r = cli_run("$P eval " CLI_SMALL "--model %s --json", file);
    CHECK_MSG(r.code == 0 && strstr(r.out, "\"weights\":[{\"key\":\"init_from\""), "%s%s", r.out,
              r.err);
}

TEST(cli_version_names_the_parts_that_are_found)
{
    WANT_BIN();

    cli_result r = cli_run("touch %s/mpi && PLIMSOLL_PLUGIN=%s/absent PLIMSOLL_MPI=%s/mpi "
                           "$P version --json",
                           pl_test_dir(), pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    json_t *j = json_loads(r.out, 0, NULL);
    CHECK(json_is_string(json_object_get(j, "compiler")));
    CHECK(json_is_string(json_object_get(j, "onednn")));
    CHECK(strcmp(json_string_value(json_object_get(j, "version")), PL_VERSION_STRING) == 0);
    CHECK(strlen(json_string_value(json_object_get(j, "instruction_set"))) >= 4);
    CHECK(json_is_null(json_object_get(j, "cuda_plugin")));
    CHECK(strcmp(json_string_value(json_object_get(j, "mpi_plugin")), pl_test_path("mpi")) == 0);
    CHECK(json_array_size(json_object_get(j, "formats")) >= 4);
    json_decref(j);
    CHECK_RUN(cli_run("$P version extra"), 2, "no arguments");
    r = cli_run("PLIMSOLL_PLUGIN=/absent $P version");
    CHECK_MSG(r.code == 0 && strstr(r.out, "plimsoll " PL_VERSION_STRING "\n") &&
                  strstr(r.out, "CUDA plug-in     not found"),
              "%s", r.out);
}

TEST(cli_every_command_prints_valid_json)
{
    WANT_BIN();

    json_t *j = json_loads(cli_run("$P devices --json").out, 0, NULL);
    CHECK(json_array_size(j) >= 1);
    CHECK(strcmp(json_string_value(json_object_get(json_array_get(j, 0), "name")), "cpu") == 0);
    json_decref(j);
    j = json_loads(cli_run("$P recipes --json").out, 0, NULL);
    const json_t *cloud = json_array_get(j, 0);
    CHECK(cloud && json_object_get(cloud, "about") && json_object_get(cloud, "presets"));
    CHECK(strcmp(json_string_value(json_array_get(json_object_get(cloud, "presets"), 1)),
                 "cloud/tiny") == 0);
    json_decref(j);
    cli_result r = cli_run("$P replay tests/data/peers/cloud --json");
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);

    j = json_loads(r.out, 0, NULL);
    CHECK(json_is_true(json_object_get(j, "agree")) && cli_member(j, "steps") == 5);
    CHECK(json_real_value(json_object_get(j, "worst_loss")) < 1e-5);
    CHECK(json_real_value(json_object_get(j, "worst_gradient")) < 1e-4);
    json_decref(j);
    r = cli_run("$P replay tests/data/peers/cloud optim.lr=0.002 threads=1");
    CHECK_MSG(r.code == 1 && strstr(r.out, "NOT agree"), "%s", r.out);

    for (const char *const *c = (const char *const[]){"", "--graph", "--buffers",
                                                      "--program evaluation --graph", NULL};
         *c; c++) {
        r = cli_run("$P inspect cloud/tiny %s", *c);
        CHECK_MSG(r.code == 0 && strlen(r.out) > 100, "inspect %s: %s", *c, r.err);
    }
    r = cli_run("$P inspect cloud/tiny --json");
    j = json_loads(r.out, 0, NULL);
    const json_t *first = json_array_get(json_object_get(j, "tensors"), 0);
    CHECK_MSG(first && strcmp(json_string_value(json_object_get(first, "kind")), "input") == 0 &&
                  cli_member(j, "parameters") > 0,
              "%.200s", r.out);
    json_decref(j);
    CHECK_RUN(cli_run("$P inspect cloud/tiny --graph --json"), 2, "--json is for the tensors");
    CHECK_RUN(cli_run("$P inspect tests --json"), 2, "--json is for the tensors");
    CHECK_RUN(cli_run("$P inspect tests --graph"), 2, "are for configurations, not for tests");
    /* an output that only this case has */
    static const char *const of[][2] = {{"train", "beta"}, {"disc", "r1"}, {"evaluation", "mse"}};
    for (int i = 0; i < 3; i++) {
        r = cli_run("$P inspect fluxflow/tiny --graph --program %s > %s/graph", of[i][0],
                    pl_test_dir());
        CHECK_MSG(r.code == 0, "%s: %s", of[i][0], r.err);
        for (int k = 0; k < 3; k++) {
            r = cli_run("grep -c 'output.*\"%s\"' %s/graph", of[k][1], pl_test_dir());
            CHECK_MSG(atoi(r.out) == (k == i), "%s, output %s: %s", of[i][0], of[k][1], r.out);
        }
    }
    CHECK_RUN(cli_run("$P inspect fluxflow/tiny --program nothing"), 2,
              "the programs are: disc, disc_r1, train, evaluation");
}

TEST(cli_plan_writes_csv_and_timeline)
{
    WANT_BIN();
    cli_result r =
        cli_run("$P plan --csv tests/data/plan/A.1048576.csv --out %s --capacity 1048576 "
                "--json",
                pl_test_path("s.csv"));

    CHECK_MSG(r.code == 0, "%s", r.err);
    json_t *j = json_loads(r.out, 0, NULL);
    CHECK(cli_member(j, "height_bytes") >= cli_member(j, "bound_bytes") &&
          cli_member(j, "bound_bytes") > 0);
    CHECK_INT(cli_member(j, "height_bytes"), 1048576);
    json_decref(j);
    CHECK(strncmp(cli_read(pl_test_path("s.csv")), "id,lower,upper,size,offset\n", 27) == 0);
    CHECK_RUN(cli_run("$P plan --csv tests/data/plan/A.1048576.csv --capacity 5"), 3, "capacity");
    CHECK_RUN(cli_run("$P plan --csv tests/data/plan/README.md"), 5, "line");
    CHECK_RUN(cli_run("$P plan --csv tests/data/plan/A.1048576.csv --capacity -5"), 2, "-5");
    CHECK_INT(
        cli_run("$P plan " CLI_SMALL "--memory 1GiB --timeline %s", pl_test_path("t.svg")).code, 0);

    const char *svg = cli_read(pl_test_path("t.svg"));
    CHECK(strstr(svg, "<svg ") && strstr(svg, "peak ") && strstr(svg, "</svg>"));
    CHECK_RUN(cli_run("$P plan " CLI_SMALL "--timeline /proc/none/t.svg"), 1, "/proc/none/t.svg");
    j = json_loads(cli_run("$P plan " CLI_SMALL "--sweep 1MiB,4GiB --json").out, 0, NULL);
    CHECK_INT(json_array_size(j), 2);
    CHECK(json_is_false(json_object_get(json_array_get(j, 0), "fits")));
    CHECK(json_is_true(json_object_get(json_array_get(j, 1), "fits")));
    json_decref(j);
    CHECK_INT(cli_run("$P plan " CLI_SMALL "--snapshot %s", pl_test_path("s.pickle")).code, 0);
    CHECK(access(pl_test_path("s.pickle"), R_OK) == 0);
}
