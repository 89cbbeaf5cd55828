/* test_cache.c - outputs of a frozen encoder, kept on disk: the same training without the
 * encoder, and stale stamps. */
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool made(void)
{
    char set[512];
    snprintf(set, sizeof set, "%s/set", pl_test_dir());
    return image_folder(set, 30, 2, 48, 40, 0) &&
           cli_run("${CC:-cc} -shared -fPIC -O1 -I include -o %s/photo.so tests/data/photo/photo.c",
                   pl_test_dir())
                   .code == 0;
}

#define WITH                                                                                       \
 "./photo.so data.path=set classes=2 encode=true data.eval_share=0.3 allow_random_frozen=true "
#define RUN    "cd %s && $P train " WITH "train.steps=6 eval.every=3 --quiet "
#define CACHED "data.cache=c "
#define CACHE  "cd %s && $P cache " WITH CACHED

/* Training from cached files gives the same bits, and the plan has no encoder. */
TEST(cache_trains_to_the_same_bits_without_the_encoder)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!made()) SKIP("libturbojpeg is not installed");

    cli_result r = cli_run(CACHE "batch=7", pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.out, "in 4 files"), "%s%s", r.out, r.err);
    r = cli_run(RUN "--out plain", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run(RUN CACHED "--out cached data.workers=2", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    static char plain[4096], cached[4096];
    cli_losses("plain", plain, sizeof plain);
    cli_losses("cached", cached, sizeof cached);
    CHECK_MSG(strlen(plain) > 100 && strcmp(plain, cached) == 0, "%s\n%s", plain, cached);

    r = cli_run("cd %s && $P inspect cached/model.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.out, "out.weight") && !strstr(r.out, "encoder"), "%s", r.out);
    r = cli_run("cd %s && $P inspect c/train/latent/00000.safetensors", pl_test_dir());
    CHECK_MSG(strstr(r.out, "F32") && strstr(r.out, "weights_xxh64"), "%s", r.out);

    r = cli_run("cd %s && cp -r c other && $P cache " WITH CACHED
                "device=apart --force && diff -r c/train other/train && "
                "diff -r c/eval other/eval",
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);

    /* 16 bits in the files: close, not equal. */
    r = cli_run(CACHE "data.cache_dtype=bf16", pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.err, "data.cache_dtype was f32, is bf16"), "%s%s", r.out,
              r.err);

    r = cli_run("cd %s && $P inspect c/eval/latent/00000.safetensors", pl_test_dir());
    CHECK_MSG(strstr(r.out, "BF16"), "%s", r.out);
    r = cli_run(RUN CACHED "data.cache_dtype=bf16 --out short", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    cli_losses("short", cached, sizeof cached);
    double a = atof(plain + 7), b = atof(cached + 7);
    CHECK_MSG(a != b && a - b < 0.02 && b - a < 0.02, "%g and %g", a, b);
}

/* Changes each thing that a cache depends on, one after the other: the change is named and refused
 * with exit code 5. */
TEST(cache_that_is_stale_is_refused_with_the_changed_key)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!made()) SKIP("libturbojpeg is not installed");

    cli_result r = cli_run(RUN CACHED, pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "there is no c/cache.json"), "%d %s", r.code, r.err);
    CHECK_INT(cli_run(CACHE, pl_test_dir()).code, 0);
    r = cli_run(CACHE, pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.out, "up to date"), "%s", r.out);

    static const char *const changed[][2] = {
        {"scale=2", "scale was 1, is 2"},
        {"height=36", "height was 32, is 36"},
        {"seed=4", "seed was 0, is 4"},
        {"data.crop=stretch", "data.crop was center, is stretch"},
        {"precision=bf16", "precision was fp32"},
        {"data.eval_share=0.2", "data.eval_share was 0.3"}};
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        r = cli_run(RUN CACHED "%s", pl_test_dir(), changed[i][0]);
        CHECK_MSG(r.code == 5 && strstr(r.err, changed[i][1]), "%s: %d %s", changed[i][0], r.code,
                  r.err);
    }
    /* keys that the encoder does not depend on */
    r = cli_run(RUN CACHED "convs=2 optim.lr=1e-2", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run("cd %s && cp set/class0/0000.jpg set/class1/9999.jpg && " RUN CACHED, pl_test_dir(),
                pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "files of set have changed"), "%d %s", r.code, r.err);

    r = cli_run(
        "cd %s && cp c/train/latent/00000.safetensors c/train/latent/00001.safetensors && " CACHE,
        pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.err, "files of set have changed"), "%d %s", r.code, r.err);

    r = cli_run(RUN CACHED, pl_test_dir()); /* files of an older cache are removed */
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
    r = cli_run("cd %s && touch -d 2020-01-01 set/class0/0000.jpg && " RUN CACHED, pl_test_dir(),
                pl_test_dir());
    CHECK_INT(r.code, 5);
    CHECK_INT(cli_run(CACHE, pl_test_dir()).code, 0);

    r = cli_run(
        "cd %s && sed -i 's/\"finished\": true/\"finished\": false/' c/cache.json && " RUN CACHED,
        pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "not finished"), "%d %s", r.code, r.err);
    CHECK_INT(cli_run(CACHE, pl_test_dir()).code, 0);

    r = cli_run("cd %s && cp c/train/latent/00000.safetensors whole && printf x | dd "
                "of=c/train/latent/00000.safetensors bs=1 seek=4200 conv=notrunc && " RUN CACHED,
                pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "00000.safetensors is damaged: its checksum"), "%d %s",
              r.code, r.err);
    r = cli_run("cd %s && cp whole c/train/latent/00000.safetensors && " RUN CACHED, pl_test_dir(),
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);

    r = cli_run("cd %s && truncate -s -4 c/train/latent/00000.safetensors && " RUN CACHED,
                pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "00000.safetensors is missing or has changed"), "%d %s",
              r.code, r.err);
}

/* Weights from a file: the bytes of the file decide, not its time stamp or the seed. */
TEST(cache_depends_on_the_bytes_of_its_model_file)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!made()) SKIP("libturbojpeg is not installed");
#define MODEL "data.cache_model=m.safetensors "

    CHECK_INT(cli_run(RUN "--out a seed=5", pl_test_dir()).code, 0);
    CHECK_INT(cli_run(RUN "--out b seed=6", pl_test_dir()).code, 0);
    cli_result r = cli_run("cd %s && cp a/model.safetensors m.safetensors && " CACHE MODEL,
                           pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    CHECK_INT(cli_run(RUN CACHED MODEL "seed=9", pl_test_dir()).code, 0);

    r = cli_run("cd %s && touch -d 2021-01-01 m.safetensors && " RUN CACHED MODEL, pl_test_dir(),
                pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);

    r = cli_run("cd %s && cp b/model.safetensors m.safetensors && " RUN CACHED MODEL, pl_test_dir(),
                pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "data.cache_model m.safetensors has changed"), "%d %s",
              r.code, r.err);

    r = cli_run(RUN CACHED, pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "data.cache_model was m.safetensors"), "%d %s", r.code,
              r.err);

    r = cli_run(CACHE "data.cache_model=set/class0/0000.jpg", pl_test_dir());
    CHECK_MSG(r.code == 6, "%d %s", r.code, r.err);
}

TEST(cache_refuses_what_cannot_be_cached)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!made()) SKIP("libturbojpeg is not installed");
    static const char *const refused[][2] = {{"data.flip=0.5", "data.flip"},
                                             {"data.crop=random", "data.crop=random"},
                                             {"'data.jitter=[0.1, 0, 0, 0]'", "data.jitter"},
                                             {"'data.buckets=[32x32, 24x40]'", "data.buckets"},
                                             {"encode=false", "training reads \"image\""}};

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cli_result r = cli_run(CACHE "%s", pl_test_dir(), refused[i][0]);
        CHECK_MSG(r.code == 2 && strstr(r.err, refused[i][1]), "%s: %d %s", refused[i][0], r.code,
                  r.err);
    }
    cli_result r = cli_run("cd %s && $P cache " WITH, pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "set data.cache to the folder"), "%s", r.err);

    r = cli_run("cd %s && $P cache " WITH "data.cache=set", pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "has other files in it"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && ls set/class0 | wc -l", pl_test_dir());
    CHECK_INT(atoi(r.out), 15);

    r = cli_run("cd %s && $P cache " CLI_SMALL "data.cache=d", pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "has no encoder"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && truncate -s 100 set/class0/0004.jpg && " CACHE, pl_test_dir(),
                pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "0004.jpg"), "%d %s", r.code, r.err);

    r = cli_run(RUN CACHED, pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "not finished"), "%d %s", r.code, r.err);
    r = cli_run(CACHE "memory=3M", pl_test_dir());
    CHECK_MSG(r.code == 3, "%d %s", r.code, r.err);
}
