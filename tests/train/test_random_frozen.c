/* test_random_frozen.c - frozen networks without weights: real data stop the run, generated data
 * and allow_random_frozen warn. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <string.h>

#define WAN  "wandistill/tiny train.steps=1 eval.every=0 eval.batches=1 "
#define REAL "data.prompts=p/prompts.txt data.embeddings=p/embeddings.npy "

static bool make_prompts(void)
{
    return cli_run("cd %s && { test -d p || $P generate wandistill/tiny --raw data.samples=4 "
                   "data.eval_samples=1 --out p; }",
                   pl_test_dir())
               .code == 0;
}

TEST(random_frozen_networks_stop_a_run_on_real_data)
{
    WANT_BIN();
    CHECK(make_prompts());
    cli_result r = cli_run("cd %s && $P train " WAN REAL "--out stopped/here", pl_test_dir());
    CHECK_INT(r.code, 2);
    CHECK_MSG(strstr(r.err, "set teacher.weights (57 tensors, teacher."), "%s", r.err);
    CHECK(strstr(r.err, "data.prompts") && strstr(r.err, "allow_random_frozen=true"));
    /* a fixed projection that is random by design has no key */
    CHECK_MSG(!strstr(r.err, "lift"), "%s", r.err);
    /* before planning, and without a trace */
    CHECK_MSG(!strstr(r.err, "at the peak"), "%s", r.err);
    r = cli_run("cd %s && test -e stopped", pl_test_dir());
    CHECK(r.code != 0);
    /* a plan needs no weights */
    r = cli_run("cd %s && $P plan " WAN REAL, pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
}

TEST(random_frozen_networks_warn_when_they_are_allowed_or_data_are_generated)
{
    WANT_BIN();
    static const char *const real[] = {REAL "allow_random_frozen=true", "",
                                       REAL "data.source=synthetic"};

    CHECK(make_prompts());
    for (int i = 0; i < 3; i++) {
        cli_result r = cli_run("cd %s && $P train " WAN "%s", pl_test_dir(), real[i]);
        CHECK_MSG(r.code == 0 && strstr(r.err, "warning: frozen weights are random") &&
                      strstr(r.err, "teacher.weights"),
                  "%s", r.err);
    }
    cli_result r = cli_run("$P train " WAN "--quiet");
    CHECK_MSG(r.code == 0 && !r.err[0], "%s", r.err);

    r = cli_run("cd %s && $P bench " WAN REAL "--steps 1 --warmup 1 --quiet", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
}

/* A model file notes that its teacher was random: saved, it is as random as before. A run that
 * resumes is judged as when it began. */
TEST(random_frozen_networks_are_those_that_no_file_filled)
{
    WANT_BIN();

    CHECK(make_prompts());
    cli_result r = cli_run("cd %s && $P train " WAN "checkpoint.frozen=true --quiet --out made && "
                           "$P train " WAN REAL "init_from=made/model.safetensors --out again",
                           pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "set teacher.weights"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && $P eval made", pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.err, "warning: frozen"), "%d %s", r.code, r.err);

    r = cli_run("cd %s && $P train " WAN REAL "allow_random_frozen=true --quiet --out more && "
                "$P train " WAN REAL "train.steps=2 --out more",
                pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "set teacher.weights"), "%d %s", r.code, r.err);
}

#define STOPS(r, what) CHECK_MSG((r).code == 2 && strstr((r).err, what), "%d %s", (r).code, (r).err)

/* A phase takes over the random teacher of the phase before; a file that the phase names wins. */
TEST(random_frozen_networks_stay_random_in_the_next_phase)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    CHECK(make_prompts());
    CHECK(cli_write(pl_test_path("two.yaml"),
                    "extends: wandistill/tiny\neval: {every: 0, batches: 1}\n"
                    "phases:\n  - {name: made, until: {steps: 1}}\n"
                    "  - {name: real, until: {steps: 1}, set: {data.prompts: p/prompts.txt, "
                    "data.embeddings: p/embeddings.npy}}\n"));
    cli_result r = cli_run("cd %s && $P train two.yaml --out two", d);
    STOPS(r, "set teacher.weights (57 tensors, teacher.");
    CHECK_MSG(strstr(r.err, "random in the model that this run starts from"), "%s", r.err);
    /* without metadata a file tells nothing: these weights count as known */
    r = cli_run("cd %s && $P train " WAN "seed=7 checkpoint.frozen=true --quiet --out other && "
                "$P export other --frozen --out all.pt --quiet && "
                "$P train two.yaml phases.real.set.init_from=all.pt --out two",
                d);
    CHECK_MSG(r.code == 0 && strstr(r.err, "38 of 107 tensors start from phase made"), "%d %s",
              r.code, r.err);
}

/* A checkpoint that has the frozen networks does not make them known. */
TEST(random_frozen_networks_stay_random_in_a_run_that_resumes)
{
    WANT_BIN();
    CHECK(make_prompts());
    cli_result r = cli_run("cd %s && $P train " WAN REAL "checkpoint.frozen=true "
                           "allow_random_frozen=true --quiet --out kept && $P train " WAN REAL
                           "checkpoint.frozen=true train.steps=2 --out kept",
                           pl_test_dir());
    STOPS(r, "set teacher.weights (57 tensors, teacher.");
}

/* Weights without a key of their own are noted by name, and those that were trained are not. */
TEST(random_frozen_weights_stay_random_by_init_from_and_export)
{
    WANT_BIN();
#define FROZEN "classify/tiny train.steps=1 eval.every=0 optim.frozen='layer1.*' "
    const char *d = pl_test_dir();
    cli_result r = cli_run("cd %s && $P generate classify/tiny --raw data.samples=8 "
                           "data.eval_samples=2 --out set && $P train " FROZEN
                           "checkpoint.frozen=true --quiet --out made && "
                           "$P export made --frozen --out made/all.safetensors",
                           d);
    CHECK_MSG(r.code == 0 && strstr(r.err, "tensors are random, frozen networks without weights "
                                           "(layer1."),
              "%d %s", r.code, r.err);
    static const char *const files[] = {"model", "all"};
    for (int i = 0; i < 2; i++) {
        r = cli_run("cd %s && $P train " FROZEN "data.path=set init_from=made/%s.safetensors", d,
                    files[i]);
        STOPS(r, "tensors, layer1.0.conv1.weight, ...; random in the model that this run starts");
        r = cli_run("cd %s && $P inspect made/%s.safetensors", d, files[i]);
        CHECK_MSG(strstr(r.out, "plimsoll.random = layer1.0.conv1.*,layer1.0.conv2.*\n"), "%s",
                  r.out);
    }
    /* once they are trained, they are known */
    r = cli_run("cd %s && $P train classify/tiny train.steps=1 data.path=set --quiet --out next "
                "init_from=made/model.safetensors && $P train " FROZEN
                "data.path=set init_from=next/model.safetensors",
                d);
    CHECK_MSG(r.code == 0 && !strstr(r.err, "are random"), "%d %s", r.code, r.err);
#undef FROZEN
}

/* The flow stage needs the compressor that another run trained. */
TEST(random_frozen_networks_of_a_stage_want_the_model_before)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && $P generate fluxflow/flow-tiny --raw data.samples=2 "
                           "data.eval_samples=1 --out pictures && "
                           "$P train fluxflow/flow-tiny data.path=pictures",
                           pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "set init_from (24 tensors, compressor."), "%d %s",
              r.code, r.err);
}

/* Text vectors without a file are random directions of words; every program of a step counts. */
TEST(random_text_vectors_stop_a_run_on_real_captions)
{
    WANT_BIN();
    const char *d = pl_test_dir();
    static const char *const stages[] = {"vae.on=false gan.on=false", "vae.on=true"};
    CHECK(cli_run("cd %s && $P generate fluxflow/flow-tiny --raw data.samples=2 "
                  "data.eval_samples=1 --out pictures",
                  d)
              .code == 0);
    for (int i = 0; i < 2; i++) {
        cli_result r =
            cli_run("cd %s && $P train fluxflow/flow-tiny data.path=pictures lpips.on=false "
                    "train.steps=1 %s --out out%d",
                    d, stages[i], i);
        CHECK_MSG(r.code == 2 && strstr(r.err, "data.embeddings (text vectors of the captions"),
                  "%d %s", r.code, r.err);
    }
    cli_result r = cli_run("cd %s && $P train fluxflow/flow-tiny data.path=pictures train.steps=1 "
                           "allow_random_frozen=true --out allowed",
                           d);
    CHECK_MSG(r.code == 0 && strstr(r.err, "warning: ") && strstr(r.err, "data.embeddings"), "%s",
              r.err);
    /* a stage without a flow reads no text */
    r = cli_run("cd %s && $P train fluxflow/tiny data.path=pictures lpips.on=false train.steps=1",
                d);
    CHECK_MSG(r.code == 0 && !strstr(r.err, "warning: "), "%d %s", r.code, r.err);
}

/* What the user froze has a key too: the model that the run starts from. */
TEST(random_weights_that_the_user_froze_stop_a_run_on_real_data)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && $P generate classify/tiny --raw data.samples=8 "
                           "data.eval_samples=2 --out set && $P train classify/tiny data.path=set "
                           "train.steps=1 optim.frozen='conv1*'",
                           pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "set init_from (1 tensor, conv1.weight)"), "%d %s",
              r.code, r.err);
}

/* A cache keeps what an encoder without weights computed; other weights make it stale. */
TEST(random_encoders_of_a_cache_stop_a_run_on_real_data)
{
    WANT_BIN();
#define SR "stablesr/pictures data.path=set data.cache=latents data.flip=0 data.crop=center "
    const char *d = pl_test_dir();
    cli_result r =
        cli_run("cd %s && $P generate stablesr/pictures --raw data.samples=2 "
                "data.eval_samples=1 --out set && $P cache " SR "allow_random_frozen=true",
                d);
    CHECK_MSG(r.code == 0 && strstr(r.err, "warning: "), "%d %s", r.code, r.err);
    r = cli_run("cd %s && $P train " SR "train.steps=1", d);
    CHECK_MSG(r.code == 2 && strstr(r.err, "vae.weights (of the encoder that filled data.cache)"),
              "%d %s", r.code, r.err);
    r = cli_run("cd %s && : > other.safetensors && $P train " SR
                "allow_random_frozen=true vae.weights=other.safetensors train.steps=1",
                d);
    CHECK_MSG(r.code == 5 && strstr(r.err, "vae.weights was null, is other.safetensors"), "%d %s",
              r.code, r.err);
#undef SR
}
