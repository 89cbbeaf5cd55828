/* test_classify.c - the classify recipe on folders of pictures through the command line: training,
 * evaluation, predictions, labels in a table, weights of other programs. */
#include "io/npy.h"
#include "plimsoll_events.h"
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define IN   "cd %s && "
#define TINY "classify/tiny eval.every=0 --quiet "
#define MAKE                                                                                       \
 "$P generate classify/tiny side=16 --raw --out set --samples 120 --eval-samples 24 --quiet "

static double member(const char *text, const char *name)
{
    json_t *j = json_loads(text, 0, NULL);
    double x = json_number_value(json_object_get(json_object_get(j, "metrics"), name));
    json_decref(j);
    return x;
}

TEST(classify_networks_have_the_parameters_of_torchvision_and_timm)
{
    static const struct {
        const char *network;
        int64_t parameters;
    } known[] = {{"network=resnet18", 11689512},
                 {"network=resnet50", 25557032},
                 {"network=convnext_tiny", 28589128},
                 {"network=vit_small", 22050664}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *keys[] = {known[i].network,     "side=224",         "batch=1",
                              "model.classes=1000", "model.width=null", "model.depths=null"};
        pl_run *run;
        CHECK_OK(pl_run_open("classify/tiny", keys, 6, &run));
        CHECK_OK(pl_run_build(run));
        CHECK_INT(pl_run_parameters(run, true), known[i].parameters);
        pl_run_free(run);
    }
}

/* Trains, scores and predicts on a folder of class folders. The first class in the CSV file is
 * right as often as the evaluation says, also within a budget and with other batches. */
TEST(classify_learns_a_folder_and_predicts_what_it_scores)
{
    const char *d = pl_test_dir();
    char path[700];
    WANT_BIN();
    WANT_PLAIN();

    CHECK_RUN(cli_run(IN MAKE "&& $P train " TINY
                              "side=16 data.path=set data.crop=center --out run train.steps=100",
                      d),
              0, "");
    cli_result r = cli_run(IN "$P eval run --json", d);
    double accuracy = member(r.out, "accuracy");
    CHECK_MSG(r.code == 0 && accuracy > 0.5, "%s%s", r.out, r.err);
    CHECK_RUN(cli_run(IN
                      "$P predict run --input set/eval --out new/a.csv --quiet && "
                      "$P predict run --input set/eval --out b.csv --quiet --memory 60MB batch=5",
                      d),
              0, "");
    CHECK(cli_same("new/a.csv", "b.csv"));

    snprintf(path, sizeof path, "%s/b.csv", d);
    const char *line = cli_read(path);
    CHECK(strncmp(line, "path,class,probability,class2,", 30) == 0);

    int rows = 0, right = 0;
    while ((line = strchr(line, '\n')) && *++line) {
        const char *comma = strchr(line, ','), *slash = strchr(line, '/');
        size_t n = (size_t)(slash - line);
        right += comma && strncmp(comma + 1, line, n) == 0 && comma[1 + n] == ',';
        rows++;
    }
    CHECK_INT(rows, 24);
    CHECK_NEAR((double)right / rows, accuracy, 1e-6);
}

/* Labels in labels.csv: the classes are the names in the table. */
TEST(classify_reads_labels_of_a_table)
{
    const char *d = pl_test_dir();
    char path[700];
    WANT_BIN();

    snprintf(path, sizeof path, "%s/flat", d);
    CHECK_RUN(
        cli_run(IN "mkdir -p flat/pictures && " MAKE "&& echo 'what;file' > flat/labels.csv && "
                   "for f in set/train/*/*.png; do b=$(basename $f); cp $f flat/pictures/$b; "
                   "c=$(basename $(dirname $f)); echo \"$c;pictures/$b\" >> flat/labels.csv; done",
                d),
        0, "");
    pl_classes *c;
    CHECK_OK(pl_data_classes(path, &c));
    CHECK_INT(pl_classes_count(c), 6);
    CHECK(strcmp(pl_classes_name(c, 0), "blue-disc") == 0);
    pl_classes_free(c);
    CHECK_RUN(cli_run(IN "$P train " TINY "side=16 data.path=flat --out run train.steps=2", d), 0,
              "");
    CHECK_RUN(cli_run(IN "$P inspect run/model.safetensors | grep -q red-triangle", d), 0, "");
    CHECK_RUN(cli_run(IN "$P export run --as onnx --out run.onnx && grep -aq red-triangle run.onnx "
                         "&& $P export run.onnx batch=32 --model "
                         "run/model.safetensors --as onnx --out again.onnx && "
                         "test $(grep -ao red-triangle again.onnx | wc -l) = 1",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "printf 'file,label\\npictures/000000.png,\\n' > flat/labels.csv; "
                         "$P train " TINY "side=16 data.path=flat train.steps=1",
                      d),
              5, "labels.csv:2: \"pictures/000000.png\" has no label");
}

/* The file has another number of classes: all weights except the last layer come from the file. */
TEST(classify_starts_from_weights_with_another_number_of_classes)
{
    const char *d = pl_test_dir();
    WANT_BIN();

    CHECK_RUN(cli_run(IN "$P train " TINY "side=16 train.steps=1 model.classes=9 --out first", d),
              0, "");
    CHECK_RUN(cli_run(IN "$P train classify/tiny eval.every=0 side=16 train.steps=1 "
                         "init_from=first/model.safetensors",
                      d),
              0, "shape differs       2   fc.weight: f32[9,");
    CHECK_RUN(cli_run(IN "$P train " TINY "side=16 train.steps=1 network=resnet50 "
                         "init_from=first/model.safetensors",
                      d),
              6, "are missing");
    CHECK_RUN(cli_run(IN "$P predict classify/tiny side=16 --model first/model.safetensors --input "
                         "first --out x.csv",
                      d),
              6, "2 tensors have other shapes: fc.weight");
}

TEST(classify_reports_bad_pictures_and_options)
{
    const char *d = pl_test_dir();
    char path[700];
    WANT_BIN();

    CHECK_RUN(
        cli_run(IN MAKE "&& $P train " TINY "side=16 data.path=set --out run train.steps=1", d), 0,
        "");
    snprintf(path, sizeof path, "%s/set/eval/bad.png", d);
    CHECK(cli_write(path, "no picture"));
    CHECK_RUN(cli_run(IN "$P predict run --input set/eval --out x.csv", d), 5,
              "bad.png: 10 bytes: too short for an image; data.on_bad=skip");
    CHECK_RUN(cli_run(IN "test ! -e x.csv && $P predict run --input set/eval --out x.csv "
                         "data.on_bad=skip --quiet && test $(wc -l < x.csv) = 25",
                      d),
              0, "1 picture could not be read and was left out: bad.png");
    CHECK_RUN(cli_run(IN "rm set/eval/bad.png; $P predict run --out x.csv", d), 2,
              "--input is missing: a picture or");
    CHECK_RUN(cli_run(IN "$P predict run --input none --out x.csv", d), 5, "none");
    CHECK_RUN(cli_run(IN "$P train " TINY "side=16 data.path=set model.classes=3", d), 2,
              "model.classes is 3, but there are 6 classes");
    CHECK_RUN(
        cli_run(
            IN
            "$P plan classify/tiny network=vit_small model.patch=5 model.depths=null model.heads=2",
            d),
        2, "side (32) is not a multiple of model.patch (5)");
    CHECK_RUN(cli_run(IN "$P plan classify/tiny 'model.depths=[1, 2]'", d), 2,
              "model.depths has 2 numbers; resnet18 needs 4");
}

/* ---- against the unmodified networks of torchvision and timm --------------------------------- */
/* Compares probabilities of networks of published size with random weights, and the same after
 * one training step in both programs. */
TEST(classify_predicts_as_torchvision_and_timm_do)
{
    static const char *const networks[] = {"resnet18", "resnet50", "convnext_tiny", "vit_small",
                                           "timm_convnext_tiny"};
    const char *d = pl_test_dir();
    static char here[4096], path[5000];
    if (!pl_test_long()) SKIP("long");
    WANT_BIN();
    WANT_PYTHON(python, "timm");

    CHECK(realpath(".", here));
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        const char *ours = strncmp(networks[i], "timm_", 5) == 0 ? networks[i] + 5 : networks[i];
        int side = strcmp(ours, "vit_small") == 0 ? 224 : 64;
        CHECK_RUN(cli_run(IN "%s %s/tools/oracle/classify_oracle.py %s %d made", d, python, here,
                          networks[i], side),
                  0, "");
        CHECK_RUN(
            cli_run(IN "$P predict classify/tiny network=%s side=%d model.width=null "
                       "model.depths=null model.classes=7 batch=2 --model made/model.safetensors "
                       "--input made/pictures --out got.npy --quiet",
                    d, ours, side),
            0, "");
        float want[3 * 7], got[3 * 7];
        for (int k = 0; k < 2; k++) {
            pl_npy *a;
            snprintf(path, sizeof path, "%s/%s", d, k ? "got.npy" : "made/probability.npy");
            CHECK_OK(pl_npy_open(path, &a));
            CHECK_INT(pl_npy_rows(a), 3);
            CHECK_OK(pl_npy_read(a, 0, 3, k ? got : want));
            pl_npy_close(a);
        }
        double off = 0;
        for (int k = 0; k < 21; k++) off = fmax(off, fabs((double)want[k] - (double)got[k]));
        CHECK_MSG(off < 1e-4, "%s: a probability is off by %g", networks[i], off);
        printf("    %s: probabilities within %.1e\n", networks[i], off);
    }
}
