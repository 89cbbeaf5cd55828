/* test_labels.c - classes by name: kept with the model, matched in evaluations, never guessed. */
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/data/classes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* n pictures of one colour, as FOLDER/NAME/k.png below the test's folder. */
static bool colour_class(const char *folder, const char *name, int n, const uint8_t rgb[3])
{
    enum { SIDE = 16 };
    uint8_t px[SIDE * SIDE * 3], *bytes;
    char path[700];
    size_t len;
    bool ok = cli_run("mkdir -p '%s/%s/%s'", pl_test_dir(), folder, name).code == 0;
    for (int k = 0; k < n && ok; k++) {
        for (int i = 0; i < SIDE * SIDE * 3; i++) px[i] = (uint8_t)(rgb[i % 3] + (i + k) % 7);
        image_png(px, SIDE, SIDE, 2, 8, SIDE, SIDE, &bytes, &len);
        snprintf(path, sizeof path, "%s/%s/%s/%d.png", pl_test_dir(), folder, name, k);
        ok = image_write(path, bytes, len);
        free(bytes);
    }
    return ok;
}

static const uint8_t red[3] = {230, 20, 20}, green[3] = {20, 230, 20}, blue[3] = {20, 20, 230};

/* A model of the colours apple (red), fern (green), sea (blue), in RUN "run"; data in "set". */
static bool colours_learned(void)
{
    bool ok = cli_run("${CC:-cc} -shared -fPIC -O1 -I include -o %s/photo.so "
                      "tests/data/photo/photo.c",
                      pl_test_dir())
                  .code == 0;
    ok = ok && colour_class("set", "apple", 9, red) && colour_class("set", "fern", 9, green) &&
         colour_class("set", "sea", 9, blue);
    cli_result r = cli_run("cd %s && $P train ./photo.so data.path=set classes=3 batch=6 "
                           "train.steps=60 optim.lr=0.05 data.eval_share=0.2 --out run --quiet",
                           pl_test_dir());
    return ok && r.code == 0;
}

/* Whether `eval --json` reports this many samples, all of them classified correctly. */
static bool all_right(const char *json, int samples)
{
    char text[32];
    const char *accuracy = strstr(json, "\"accuracy\":");
    snprintf(text, sizeof text, "\"samples\":%d,", samples);
    return strstr(json, text) && accuracy && strtod(accuracy + 11, NULL) > 0.999999;
}

#define EVAL "cd %s && $P eval run eval.batches=100 --json --quiet "

TEST(labels_are_matched_by_the_names_that_the_model_file_keeps)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    CHECK(colours_learned());
    char path[600];
    pl_classes *c = NULL;
    snprintf(path, sizeof path, "%s/run/model.safetensors", pl_test_dir());
    CHECK_OK(pl_model_classes(path, &c));
    CHECK_INT(pl_classes_count(c), 3);
    CHECK(pl_classes_find(c, "apple") == 0 && pl_classes_find(c, "sea") == 2 &&
          pl_classes_find(c, "ap") == -1);
    pl_classes_free(c);
    /* Fewer classes, so that the folders would get other numbers. */
    CHECK(colour_class("two", "fern", 5, green) && colour_class("two", "sea", 5, blue));

    cli_result r = cli_run(EVAL "data.path=two", pl_test_dir());
    CHECK_MSG(r.code == 0 && all_right(r.out, 10), "%s%s", r.out, r.err);
    CHECK(colour_class("new", "sea", 2, blue) && colour_class("new", "zebra", 2, red));

    r = cli_run(EVAL "data.path=new", pl_test_dir());
    CHECK_INT(r.code, 5);
    CHECK_MSG(strstr(r.err, "\"zebra\"") && strstr(r.err, "apple, fern, sea") && !r.out[0], "%s%s",
              r.out, r.err);

    /* A run that resumes, or that starts from the model, has the model's classes too. */
    r = cli_run("cd %s && $P train ./photo.so data.path=new classes=3 train.steps=2 "
                "init_from=run/model.safetensors --quiet",
                pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "data.classes=data"), "%s", r.err);

    r = cli_run("cd %s && $P train ./photo.so data.path=new classes=3 train.steps=2 "
                "init_from=run/model.safetensors data.classes=data --out again --quiet && "
                "$P inspect again/model.safetensors | grep -a plimsoll.classes",
                pl_test_dir());
    CHECK_MSG(r.code == 0 && strstr(r.out, "[\"sea\",\"zebra\"]"), "%s%s", r.out, r.err);
}

TEST(labels_an_evaluation_reads_all_of_other_data)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    CHECK(colours_learned());
    CHECK(colour_class("val/eval", "sea", 30, blue) && colour_class("val/eval", "apple", 11, red));
    cli_result r = cli_run(EVAL "data.path=val", pl_test_dir());
    CHECK_MSG(r.code == 0 && all_right(r.out, 41), "%s%s", r.out, r.err);

    r = cli_run("cd %s && mv val/eval plain && " EVAL "data.path=plain", pl_test_dir(),
                pl_test_dir());
    CHECK_MSG(r.code == 0 && all_right(r.out, 41), "%s%s", r.out, r.err);

    /* On the data of the run: only the part that training held out, however the folder is
     * written. */
    r = cli_run(EVAL "data.path=./set/../set", pl_test_dir());
    CHECK_MSG(r.code == 0 && !strstr(r.out, "\"samples\":27,"), "%s%s", r.out, r.err);
    /* Folders named eval beside a class are classes like any other. */
    CHECK(colour_class("odd", "sea", 2, blue) && colour_class("odd", "test", 2, red));

    r = cli_run(EVAL "data.path=odd", pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "\"test\""), "%s%s", r.out, r.err);
}

TEST(labels_that_are_missing_or_too_many_stop)
{
    if (!cli_bin()) SKIP("PL_BIN is not built");

    CHECK(colours_learned());
    cli_result r =
        cli_run("cd %s && $P train ./photo.so data.path=set classes=2 --quiet", pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "3 classes") && strstr(r.err, "set classes=3"), "%s",
              r.err);
    CHECK(colour_class("", "flat", 6, red));

    r = cli_run("cd %s && $P train ./photo.so data.path=flat --quiet", pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "flat has no labels"), "%s", r.err);
    r = cli_run("cd %s && cp flat/0.png set/ && $P train ./photo.so data.path=set --quiet",
                pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "1 of its 28 images have no label, e.g. 0.png"), "%s",
              r.err);

    /* A score that is not a number is an error; an infinite weight makes one. Byte 35 begins the
     * name of the checksum, xxh64: a file without one is read as it is. */
    r = cli_run(
        "cd %s && rm set/0.png run/finished.json && n=$(wc -c < run/model.safetensors) && "
        "printf '\\000\\000\\200\\177' | dd of=run/model.safetensors bs=1 seek=$((n - 4)) "
        "conv=notrunc 2>/dev/null && printf other | dd of=run/model.safetensors bs=1 seek=35 "
        "conv=notrunc 2>/dev/null && " EVAL,
        pl_test_dir(), pl_test_dir());
    CHECK_MSG(r.code == 7 && strstr(r.err, "not a number") && !strstr(r.out, "nan"), "%d %s%s",
              r.code, r.out, r.err);
}

TEST(labels_in_metadata_are_names_or_numbers)
{
    char path[600];
    pl_items *s;

    CHECK(colour_class("", "set", 4, red));
    snprintf(path, sizeof path, "%s/set", pl_test_dir());
    pl_items_opts o = {.path = path};
    static const struct {
        const char *label[4];
        const char *classes, *problem;
        int label_of_last;
    } cases[] = {
        {{"\"sea\"", "\"ant\"", "\"sea\"", "\"bee\""}, "ant bee sea", NULL, 1},
        {{"2", "0", "2", "1"}, "0 1 2", NULL, 1},
        {{"\"sea\"", "\"ant\"", "\"sea\"", "1"}, "ant sea", "all as numbers", 1},
        {{"\"sea\"", "\"ant\"", "\"sea\"", NULL}, "ant sea", "1 of its 4 images have no label", 0},
        {{NULL, NULL, NULL, NULL}, "", "has no labels", 0},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char meta[1024] = "", names[256] = "", file[640];
        for (int i = 0; i < 4; i++)
            if (cases[k].label[i])
                sprintf(meta + strlen(meta), "{\"file_name\": \"%d.png\", \"label\": %s}\n", i,
                        cases[k].label[i]);
            else
                sprintf(meta + strlen(meta), "{\"file_name\": \"%d.png\"}\n", i);
        snprintf(file, sizeof file, "%s/metadata.jsonl", path);
        CHECK(image_write(file, (const uint8_t *)meta, strlen(meta)));
        CHECK_OK(pl_items_open(&o, &s));
        for (int i = 0; i < s->n_classes; i++)
            sprintf(names + strlen(names), "%s%s", i ? " " : "", s->classes[i]);
        CHECK_MSG(strcmp(names, cases[k].classes) == 0, "case %zu: %s", k, names);
        CHECK_MSG(cases[k].problem ? s->unlabelled && strstr(s->unlabelled, cases[k].problem)
                                   : !s->unlabelled,
                  "case %zu: %s", k, s->unlabelled ? s->unlabelled : "none");
        CHECK_INT(s->item[3].label, cases[k].label_of_last);
        pl_items_close(s);
    }
    snprintf(path, sizeof path, "%s/set/metadata.jsonl", pl_test_dir());

    CHECK(image_write(path, (const uint8_t *)"{\"file_name\": \"0.png\", \"label\": 1.5}\n", 37));
    CHECK_INT(pl_items_open(&o, &s), PL_ERR_DATA);
}
