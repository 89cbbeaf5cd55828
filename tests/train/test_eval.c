/* test_eval.c - `plimsoll eval`: the scores and pictures of training, with the memory of a
 * forward pass. */
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define IN "cd %s && "

static json_t *object_of(const char *text)
{
    return json_loads(text, JSON_ALLOW_NUL, NULL);
}

static double number(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

/* The last event of a kind in a run's log. The caller releases the event. */
static json_t *last_event(const char *run, const char *kind)
{
    char path[512];
    json_t *found = NULL;
    snprintf(path, sizeof path, "%s/%s/log.jsonl", pl_test_dir(), run);
    for (const char *p = cli_read(path); p && *p;) {
        const char *end = strchr(p, '\n');
        json_t *j = end ? json_loadb(p, (size_t)(end - p), 0, NULL) : NULL;
        const char *event = json_string_value(json_object_get(j, "event"));
        if (event && strcmp(event, kind) == 0) {
            json_decref(found);
            found = json_incref(j);
        }
        json_decref(j);
        p = end ? end + 1 : NULL;
    }
    return found;
}

/* For every recipe: exactly the numbers of the evaluation at the end of training, from the
 * weights that training wrote, with less state and no larger arena. */
static void check_scores(const char *recipe)
{
    cli_result r = cli_run(IN "$P train %s/tiny train.steps=3 --out %s --quiet", pl_test_dir(),
                           recipe, recipe);
    CHECK_MSG(r.code == 0, "%s: %s", recipe, r.err);
    r = cli_run(IN "$P eval %s --json", pl_test_dir(), recipe);
    CHECK_MSG(r.code == 0, "%s: %s", recipe, r.err);
    json_t *j = object_of(r.out), *was = last_event(recipe, "eval"),
           *metrics = json_object_get(j, "metrics"), *value;
    const char *name;
    CHECK_MSG(j && was && json_object_size(metrics) > 0, "%s: %s", recipe, r.out);
    json_object_foreach(metrics, name, value)
        CHECK_MSG(json_number_value(value) == number(was, name), "%s: %s is %.17g, was %.17g",
                  recipe, name, json_number_value(value), number(was, name));
    json_t *plan = last_event(recipe, "plan");
    CHECK_MSG(number(j, "state_bytes") < 0.7 * number(plan, "state_bytes"),
              "%s: %.0f bytes of state, training has %.0f", recipe, number(j, "state_bytes"),
              number(plan, "state_bytes"));
    CHECK_MSG(number(j, "arena_bytes") <= number(plan, "arena_bytes"), "%s: an arena of %.0f",
              recipe, number(j, "arena_bytes"));
    json_decref(plan), json_decref(j), json_decref(was);
}

TEST(eval_scores_what_training_scored)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    for (int i = 0; i < pl_recipe_count(); i++) check_scores(pl_recipe_at(i)->name);
}

/* Pictures and arrays equal those of the last step; averaged weights give others; a budget is
 * kept or refused. */
TEST(eval_writes_the_samples_that_training_wrote)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();

    CHECK_RUN(
        cli_run(
            IN
            "$P train fluxflow/tiny train.steps=3 sample.every=3 sample.count=5 ema.decay=0.5 --out a --quiet",
            d),
        0, "");
    CHECK_RUN(cli_run(IN "$P eval a --out raw --quiet", d), 0, "");
    CHECK(cli_same("raw/reconstructed.png", "a/samples/00000003-reconstructed.png"));
    CHECK(cli_same("raw/samples.safetensors", "a/samples/00000003.safetensors"));
    CHECK_RUN(cli_run(IN "$P eval a --ema --out averaged --quiet", d), 0, "");
    CHECK(!cli_same("averaged/reconstructed.png", "raw/reconstructed.png"));
    CHECK(cli_same("averaged/real.png", "raw/real.png"));

    cli_result r = cli_run(IN "$P eval a --json", d);
    json_t *j = object_of(r.out);
    double total = number(j, "peak_used_bytes"), budget = total + 0x1p20 * 24;
    CHECK_MSG(j && json_array_size(json_object_get(j, "files")) == 0, "%s", r.out);
    json_decref(j);
    r = cli_run(IN "$P eval a --json --out b --memory %.0f", d, budget);
    j = object_of(r.out);
    CHECK_MSG(r.code == 0 && number(j, "peak_used_bytes") <= budget, "%s%s", r.out, r.err);
    CHECK_INT(json_array_size(json_object_get(j, "files")), 3);
    json_decref(j);
    r = cli_run(IN "$P eval a --memory 9MB", d);
    CHECK_MSG(r.code == 3 && strstr(r.err, "evaluation needs") &&
                  strstr(r.err, "the smallest budget is"),
              "%d: %s", r.code, r.err);
}

/* eval.ema: evaluations and pictures use the averaged weights, before the first step the initial
 * weights, and training has the same bits; `eval` uses the weights that the run was evaluated
 * with. */
static void check_averaged(const char *keys)
{
    const char *d = pl_test_dir();
    CHECK_RUN(
        cli_run(
            IN
            "rm -rf a b raw averaged again; $P train fluxflow/tiny train.steps=3 eval.every=1 sample.every=3 ema.decay=0.5 %s "
            "--out a --quiet && $P train fluxflow/tiny train.steps=3 eval.every=1 sample.every=3 ema.decay=0.5 eval.ema=true %s "
            "--out b --quiet",
            d, keys, keys),
        0, "");
    CHECK(cli_same("a/model.safetensors", "b/model.safetensors"));
    CHECK(cli_same("a/model_ema.safetensors", "b/model_ema.safetensors"));
    CHECK_INT(
        cli_run(
            IN
            "head -2 a/eval.csv > x && head -2 b/eval.csv | cmp - x && ! cmp -s a/eval.csv b/eval.csv",
            d)
            .code,
        0);
    CHECK_RUN(
        cli_run(
            IN
            "$P eval a --ema --out averaged --quiet && $P eval b --out again --quiet && $P eval b eval.ema=false --out raw "
            "--quiet",
            d),
        0, "");
    CHECK(cli_same("averaged/reconstructed.png", "b/samples/00000003-reconstructed.png"));
    CHECK(cli_same("averaged/reconstructed.png", "again/reconstructed.png"));
    CHECK(cli_same("raw/reconstructed.png", "a/samples/00000003-reconstructed.png"));
    CHECK(!cli_same("raw/reconstructed.png", "again/reconstructed.png"));
    cli_result r = cli_run(IN "$P eval b --json", d);
    json_t *j = object_of(r.out), *was = last_event("b", "eval");
    double now = number(json_object_get(j, "metrics"), "loss");
    CHECK_MSG(now == number(was, "loss"), "%s%s: %.17g", r.out, r.err, number(was, "loss"));
    json_decref(j), json_decref(was);
}

TEST(eval_scores_averaged_weights)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    check_averaged("");
    if (pl_test_long()) check_averaged("device=apart");
    CHECK_RUN(cli_run("$P train cloud/tiny eval.ema=true train.steps=1 --quiet"), 2,
              "eval.ema needs averaged weights");
    CHECK_RUN(cli_run(IN "rm b/model_ema.safetensors && $P eval b", pl_test_dir()), 2,
              "there is no b/model_ema.safetensors");
}

/* Evaluation uses the micro-batches of the training plan, so a budget that suffices for training
 * suffices for evaluation. */
TEST(eval_splits_batches_as_the_plan_of_training_does)
{
    if (!pl_test_long()) SKIP("long");
    WANT_PLAIN();
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();

    CHECK_RUN(
        cli_run(
            IN
            "$P train wandistill/tiny batch=512 accumulate=auto train.steps=1 data.eval_samples=512 --memory 80MB --out a --quiet && "
            "$P eval a --json > scores",
            d),
        0, "");
    char path[512];
    snprintf(path, sizeof path, "%s/scores", d);
    json_t *j = object_of(cli_read(path)), *was = last_event("a", "eval");
    double now = number(json_object_get(j, "metrics"), "loss");

    CHECK_MSG(now > 0 && now == number(was, "loss"), "%.17g, was %.17g", now, number(was, "loss"));
    json_decref(j), json_decref(was);
}

/* Pictures have the size of the first bucket, whichever bucket is the widest. */
TEST(eval_samples_have_the_size_of_the_first_bucket)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    static const char *const sizes[] = {"[32x32, 48x48]", "[48x48, 32x32]"};
    const char *d = pl_test_dir();

    CHECK_RUN(
        cli_run(IN
                "$P generate fluxflow/tiny --raw --out photos --samples 8 --eval-samples 4 --quiet",
                d),
        0, "");
    for (int i = 0; i < 2; i++) {
        CHECK_RUN(
            cli_run(
                IN
                "$P train fluxflow/tiny lpips.on=false data.path=photos data.buckets='%s' train.steps=2 sample.every=2 sample.count=3 "
                "--out b --fresh --quiet && $P eval b --out again --quiet",
                d, sizes[i]),
            0, "");
        CHECK(cli_same("again/reconstructed.png", "b/samples/00000002-reconstructed.png"));
    }
}

/* Arrays without a training part, and all images of a folder. */
TEST(eval_runs_on_other_data_than_training)
{
    if (!pl_test_long()) SKIP("long");
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();

    CHECK_RUN(
        cli_run(
            IN
            "$P train cloud/tiny train.steps=2 --out c --quiet && $P generate cloud/tiny --out set --samples 8 "
            "--eval-samples 12 --quiet && rm -r set/train",
            d),
        0, "");
    cli_result r = cli_run(IN "$P eval c data.path=set --json", d);
    json_t *j = object_of(r.out);
    CHECK_MSG(r.code == 0 && number(j, "samples") == 12, "%d: %s%s", r.code, r.out, r.err);
    json_decref(j);
    CHECK_RUN(cli_run(IN "rm -r set/eval && $P eval c data.path=set", d), 5, "");
    CHECK_RUN(
        cli_run(
            IN
            "$P train fluxflow/tiny train.steps=2 --out f --quiet && $P generate fluxflow/tiny --raw --out photos "
            "--samples 7 --eval-samples 2 --quiet && rm -r photos/eval",
            d),
        0, "");
    r = cli_run(IN "$P eval f data.path=photos data.eval_share=1 --json", d);
    j = object_of(r.out);
    CHECK_MSG(r.code == 0 && number(j, "samples") == 7, "%d: %s%s", r.code, r.out, r.err);
    json_decref(j);
    CHECK_RUN(
        cli_run(
            IN
            "$P train fluxflow/tiny lpips.on=false data.path=photos data.eval_share=1 train.steps=1 --quiet",
            d),
        5, "left for training");
}

TEST(eval_refuses_mistakes_with_a_reason)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    const char *d = pl_test_dir();

    CHECK_RUN(cli_run(IN "$P train wandistill/tiny train.steps=2 --out w --quiet", d), 0, "");
    CHECK_RUN(cli_run("$P eval cloud/tiny"), 2, "no weights given");
    CHECK_RUN(cli_run(IN "$P eval w --model ''", d), 2,
              "--model needs FILE, and an empty text was given");
    CHECK_RUN(cli_run(IN "$P eval w --ema", d), 2, "only a finished run with ema.decay has it");
    CHECK_RUN(cli_run(IN "$P eval w --ema --model w/model.safetensors", d), 2,
              "--ema and --model exclude each other");
    CHECK_RUN(cli_run(IN "$P eval cloud/tiny --model w/model.safetensors", d), 6,
              "seems to hold another network");
    CHECK_RUN(cli_run(IN "$P eval w --model nothing.safetensors", d), 6, "nothing.safetensors");
    CHECK_RUN(cli_run(IN "$P eval w --model w/checkpoints/step-00000002/model.safetensors", d), 6,
              "leaves frozen weights out");
    CHECK_RUN(cli_run(IN "$P eval w --out pictures", d), 2, "makes no pictures");
    CHECK_RUN(cli_run(IN "$P train lgt/tiny train.steps=1 --out l --quiet && "
                         "$P eval l --out w/config.yaml",
                      d),
              1, "w/config.yaml exists and is not a folder");
    CHECK_RUN(cli_run(IN "rm w/model.safetensors && $P eval w", d), 2, "the run is not finished");
    pl_run *run;
    pl_step_info info;
    CHECK_OK(pl_run_open("cloud/tiny", NULL, 0, &run));
    CHECK_OK(pl_run_eval_only(run, 0));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));

    CHECK_INT(pl_run_step(run, &info), PL_ERR_ARG);
    pl_run_free(run);
}
