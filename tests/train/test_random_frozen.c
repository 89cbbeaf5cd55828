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
