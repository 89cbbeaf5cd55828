/* test_onnx_recipe.c - an ONNX file in the place of a configuration: plan, train, predict.
 *
 * The models are small and of our own (tools/oracle/onnx_recipe_models.py).
 */
#include "io/npy.h"
#include "plimsoll_onnx.h"
#include "plimsoll_tensors.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/onnx/proto_write.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define IN "cd %s && "
#define WANT_ONNX()                                                                                \
 WANT_BIN();                                                                                       \
 if (pl_onnx_missing()) SKIP("libprotobuf-c is not installed")

/* Copies the models and writes a table in which the class follows from the numbers. */
static bool set_made(void)
{
    char path[512];
    cli_result r = cli_run("cp tests/data/onnx/*.onnx %s", pl_test_dir());
    snprintf(path, sizeof path, "%s/rows.csv", pl_test_dir());
    FILE *f = fopen(path, "w");
    if (!f || r.code) return false;
    fprintf(f, "a,b,c,d,label\n");
    for (int i = 0; i < 120; i++) {
        double x = (i * 37 % 100) / 50.0 - 1, y = (i * 59 % 100) / 50.0 - 1;
        fprintf(f, "%g,%g,%g,%g,%d\n", x, y, x * y, -x, x > 0.3 ? 2 : y > 0 ? 1 : 0);
    }
    return fclose(f) == 0;
}

#define TABLE "table.onnx loss=cross_entropy data.path=rows.csv batch=20 optim.lr=0.02 "

TEST(onnx_a_model_and_a_table_train_without_code)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    CHECK_RUN(
        cli_run(IN "$P train " TABLE "data.eval_share=0.2 train.steps=150 --quiet --out run", d), 0,
        "");
    cli_result r = cli_run(IN "cat run/eval.csv", d);
    double step, loss, accuracy;
    const char *last = r.out;
    for (const char *at = r.out; (at = strchr(at, '\n')) && at[1]; at++) last = at + 1;
    CHECK_MSG(sscanf(last, "%lf,%lf,%lf", &step, &loss, &accuracy) == 3, "%s", r.out);
    CHECK_MSG(accuracy > 0.85, "%s", r.out);
    CHECK_RUN(cli_run(IN "$P predict run --input rows.csv --out p.csv && head -1 p.csv | grep -q "
                         "'row,class,probability' && wc -l < p.csv | grep -q 121",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input rows.csv --out all && test -s all/logits.npy", d),
              0, "");
}

/* logits = image w, with rows of numbers: the name of the input does not make it a picture. */
static bool write_named_image(const char *path, float last)
{
    pl_str graph = {0}, node = {0}, w = {0};
    const float number[12] = {1, 0, -1, 0, 1, 0, 2, -1, 0, 0, 0, last};
    put_text(&node, 1, "image");
    put_text(&node, 1, "head.weight");
    put_text(&node, 2, "logits");
    put_text(&node, 4, "MatMul");
    put_message(&graph, 1, &node);
    put_text(&graph, 2, "g");
    put_number(&w, 1, 4);
    put_number(&w, 1, 3);
    put_number(&w, 2, 1); /* float */
    put_text(&w, 8, "head.weight");
    put_bytes(&w, 9, number, sizeof number);
    put_message(&graph, 5, &w);
    put_floats(&graph, 11, "image", 2, (int64_t[]){20, 4});
    put_floats(&graph, 12, "logits", 2, (int64_t[]){20, 3});
    pl_str model = model_of(&graph);
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(model.text, 1, model.len, f) == model.len;
    if (f) ok = fclose(f) == 0 && ok;
    pl_str_release(&model);
    return ok;
}

TEST(onnx_an_input_named_image_may_have_numbers)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    char path[512];
    snprintf(path, sizeof path, "%s/named.onnx", d);
    CHECK(write_named_image(path, 1));
    CHECK_RUN(cli_run(IN "$P train named.onnx loss=cross_entropy data.path=rows.csv batch=20 "
                         "train.steps=2 --quiet --out run && $P predict run --input rows.csv "
                         "--out p.csv && wc -l < p.csv | grep -q 121",
                      d),
              0, "");
}

/* A file of 20 samples trains in micro-batches of 20, and predicts any number of rows. */
TEST(onnx_a_file_of_one_batch_trains_in_micro_batches)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    char path[512];
    snprintf(path, sizeof path, "%s/named.onnx", d);
    CHECK(write_named_image(path, 1));
#define FIXED "$P train named.onnx loss=cross_entropy data.path=rows.csv train.steps=2 --quiet "
    CHECK_RUN(cli_run(IN FIXED "batch=40 --out no", d), 2, "or accumulate=2 (micro-batches of 20)");
    CHECK_RUN(cli_run(IN FIXED "batch=40 accumulate=4 --out no", d), 2, "accumulate=2");
    CHECK_RUN(cli_run(IN FIXED "batch=40 accumulate=2 --out run", d), 0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input rows.csv --out p.csv && wc -l < p.csv | grep -q "
                         "121 && $P predict named.onnx --input rows.csv --out p.csv && wc -l < "
                         "p.csv | grep -q 121",
                      d),
              0, "");
}

/* A NaN of the file looks like a diverged training in every number that comes from it. */
TEST(onnx_a_weight_that_is_nan_in_the_file_is_named)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    const char says[] = "the weight head.weight holds NaN (element 11 of 12)";
    char path[512];
    snprintf(path, sizeof path, "%s/nan.onnx", d);
    CHECK(write_named_image(path, NAN));
#define NUMBERS "nan.onnx loss=cross_entropy data.path=rows.csv batch=20 --quiet "
    CHECK_RUN(cli_run(IN "$P train " NUMBERS "train.steps=2 --out run", d), 7, says);
    CHECK_RUN(cli_run(IN "$P eval " NUMBERS, d), 7, says);
    CHECK_RUN(cli_run(IN "$P predict nan.onnx batch=20 --input rows.csv --out p.csv", d), 7, says);
    /* weights that replace the file's */
    CHECK_RUN(cli_run(IN "$P train " NUMBERS "init=pytorch train.steps=2 --out fresh", d), 0, "");
    CHECK_RUN(cli_run(IN "$P train " NUMBERS "init_from=fresh/model.safetensors train.steps=2 "
                         "--out from",
                      d),
              0, "");
}

/* With a weight of 0 the third class is never learnt; the weights are not in the model file. */
TEST(onnx_classes_have_weights)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    CHECK_RUN(
        cli_run(IN "$P train " TABLE "class_weights=[1,3,0] train.steps=150 --quiet --out run", d),
        0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input rows.csv --out p.csv && "
                         "test \"$(tail -n +2 p.csv | cut -d, -f2 | sort -u | xargs)\" = '0 1' && "
                         "! grep -q class_weights run/model.safetensors",
                      d),
              0, "");
}

/* Each term is an output with a name of its own, also of two losses of one output. */
TEST(onnx_several_losses_of_one_output_have_names)
{
    WANT_ONNX();
    CHECK(set_made());
    cli_result r = cli_run(
        IN "$P train table.onnx 'loss=cross_entropy(logits, label) + 0.5 * dice(logits, label) + "
           "dice(logits, label)' data.path=rows.csv batch=20 train.steps=1 --out run",
        pl_test_dir());
    CHECK_RUN(r, 0, "loss.logits.cross_entropy=");
    CHECK_MSG(strstr(r.err, " loss.logits.dice.2=") && strstr(r.err, " loss.logits.dice.3="), "%s",
              r.err);
}

/* A table with columns in the wrong order, or pictures in 0 to 255, show in the first lines. */
TEST(onnx_the_first_batch_is_described)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();

    cli_result r = cli_run(IN "$P train " TABLE "train.steps=2 --out run", d);

    CHECK_INT(r.code, 0);
    const char *at = strstr(r.err, "first batch: label i");
    double lo, hi, mean, std;
    CHECK_MSG(at && strstr(r.err, "first batch: "), "%s", r.err);
    CHECK_MSG(sscanf(strchr(at, ']'), "], %lf to %lf, mean %lf, std %lf", &lo, &hi, &mean, &std) ==
                  4,
              "%s", at);
    CHECK(lo == 0 && hi >= 1 && mean > lo && mean < hi && std > 0);
    CHECK_RUN(cli_run(IN "grep -c '\"event\":\"batch\",\"inputs\":\\[{' run/log.jsonl", d), 0, "");
    CHECK_RUN(
        cli_run(
            IN
            "$P train regress/tiny data.source=synthetic train.steps=1 2>&1 | grep -c 'first batch' | grep -q 0",
            d),
        0, "");
}

TEST(onnx_weights_keep_the_names_of_the_state_dict)
{
    WANT_ONNX();
    CHECK(set_made());
    char path[512];
    pl_tensors *t;
    CHECK_RUN(cli_run(IN "$P train " TABLE "train.steps=2 --quiet --out run", pl_test_dir()), 0,
              "");
    snprintf(path, sizeof path, "%s/run/model.safetensors", pl_test_dir());
    CHECK(pl_tensors_open(path, &t) == PL_OK);
    int n = pl_tensors_count(t), w = pl_tensors_find(t, "0.weight");
    bool right = n == 4 && w >= 0 && pl_tensors_find(t, "2.bias") >= 0 &&
                 pl_tensors_at(t, w).dim[0] == 16 && pl_tensors_at(t, w).dim[1] == 4;
    pl_tensors_close(t);
    CHECK(right);
}

TEST(onnx_pictures_get_the_names_of_their_folders)
{
    WANT_ONNX();
    CHECK(set_made());
    CHECK_RUN(cli_run(IN
                      "$P generate classify/tiny --raw --out pics side=16 data.samples=12 "
                      "data.eval_samples=6 && $P train photo.onnx data.path=pics batch=4 "
                      "train.steps=2 --quiet --out run && $P predict run --input pics/eval --out "
                      "p.csv && grep -q red-square p.csv && grep -q red-square run/classes.txt",
                      pl_test_dir()),
              0, "");
}

/* The exported file alone predicts and scores as the run does: it has the names of the classes and
 * the normalisation of the pictures. */
TEST(onnx_an_exported_file_knows_its_classes_and_colours)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "$P generate classify/tiny --raw --out pics side=16 data.samples=12 "
                         "data.eval_samples=6 && $P train photo.onnx data.path=pics batch=4 "
                         "'data.mean=[0.1,0.2,0.3]' 'data.std=[0.5,0.6,0.7]' train.steps=2 --quiet "
                         "--out run && $P export run --as onnx --out alone.onnx",
                      d),
              0, "");
    CHECK_RUN(cli_run(IN "$P predict run --input pics/eval --out a.csv && $P predict alone.onnx "
                         "batch=4 --input pics/eval --out b.csv && cmp a.csv b.csv && grep -q "
                         "red-square b.csv",
                      d),
              0, "");
    /* without one of the folders the numbers of the others stay */
    CHECK_RUN(cli_run(IN "rm -r pics/eval/blue-disc pics/train/blue-disc && $P eval run "
                         "data.path=pics --json | grep -o '\"loss\":[0-9.]*' > a && $P eval "
                         "alone.onnx batch=4 data.path=pics --json | grep -o '\"loss\":[0-9.]*' "
                         "> b && test -s a && cmp a b",
                      d),
              0, "");
}

TEST(onnx_pictures_of_one_class_are_told)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "$P generate classify/tiny --raw --out pics side=16 data.samples=12 "
                         "data.eval_samples=6 && mkdir -p one/pics && cp pics/train/red-square/* "
                         "pics/train/blue-disc/* one/pics",
                      d),
              0, "");
#define PHOTO "$P train photo.onnx loss=cross_entropy batch=2 train.steps=1 "
    CHECK_RUN(cli_run(IN PHOTO "data.path=one --out one.run", d), 0,
              "warning: all images of one have one class, \"pics\"");
    cli_result r = cli_run(IN PHOTO "data.path=pics --out pics.run", d);
    CHECK_RUN(r, 0, "");
    CHECK_MSG(!strstr(r.err, "warning"), "%s", r.err);
}

TEST(onnx_a_file_that_a_yaml_names_is_found_beside_it)
{
    WANT_ONNX();
    CHECK(set_made());
    CHECK_RUN(cli_run(IN
                      "printf 'recipe: ./photo.onnx\\nbatch: 3\\nloss: cross_entropy\\n' > w.yaml "
                      "&& cd / && $P plan %s/w.yaml",
                      pl_test_dir(), pl_test_dir()),
              0, "");
}

/* The tokens count from 0 to 10 again and again, so that the next token is certain. */
TEST(onnx_a_file_of_tokens_trains_a_language_model)
{
    WANT_ONNX();
    CHECK(set_made());
    char path[512];
    snprintf(path, sizeof path, "%s/text.bin", pl_test_dir());
    FILE *f = fopen(path, "wb");
    for (int i = 0; f && i < 2000; i++) {
        const unsigned char token[2] = {(unsigned char)(i % 11), 0};
        fwrite(token, 1, 2, f);
    }
    CHECK(f && fclose(f) == 0);
    CHECK_RUN(cli_run(IN "$P train words.onnx data.path=text.bin dims.seq=9 batch=8 train.steps=80 "
                         "optim.lr=0.05 --quiet --out run && tail -1 run/eval.csv | awk -F, "
                         "'{exit !($2 < 0.1)}'",
                      pl_test_dir()),
              0, "");
    CHECK_RUN(cli_run(IN
                      "$P train words.onnx data.path=text.bin dims.seq=5000 batch=8 --quiet --out "
                      "r",
                      pl_test_dir()),
              5, "has 2000 tokens");
}

TEST(onnx_an_input_can_be_the_target)
{
    WANT_ONNX();
    CHECK(set_made());
    CHECK_RUN(cli_run(IN "$P plan photo.onnx 'loss=mse(input, input) + cross_entropy' && $P plan "
                         "table.onnx 'loss=0.5 * mse(x, x) + cross_entropy(logits, label)'",
                      pl_test_dir()),
              0, "");
}

/* Writes rows.npy, n rows of 4 numbers, and ones.npy of whole numbers. */
static bool arrays_made(int n)
{
    char path[512];
    const float x[16] = {1, -2, 0.5f, 3, 0, 1, 1, -1, 2, 0, -1, 0.25f, 1, 1, 1, 1};
    const int64_t whole[4] = {1, 1, 1, 1};
    pl_type table = PL_TYPE(PL_F32, n, 4), row = PL_TYPE(PL_I64, 4);
    snprintf(path, sizeof path, "%s/rows.npy", pl_test_dir());
    if (pl_npy_write(path, &table, x) != PL_OK) return false;
    snprintf(path, sizeof path, "%s/ones.npy", pl_test_dir());
    return pl_npy_write(path, &row, whole) == PL_OK;
}

/* shared.onnx has a scalar and a table beside its samples. The array is found beside the model from
 * any folder, gives the dynamic dimension its size, and changes the result. */
TEST(onnx_inputs_without_a_batch_have_fixed_values)
{
    WANT_ONNX();
    CHECK(set_made());
    CHECK(arrays_made(3));
    const char *d = pl_test_dir();
#define SHARED "shared.onnx loss=cross_entropy data.path=%s/rows.csv batch=20 "
#define VALUES "inputs.scale=0.5 inputs.rows=rows.npy "
    CHECK_RUN(cli_run(IN "$P plan " SHARED VALUES "--memory 64MB", d, d), 0, "");
    CHECK_RUN(cli_run(IN "$P train " SHARED VALUES
                         "train.steps=20 optim.lr=0.01 --quiet --out run && "
                         "head -1 run/eval.csv | grep -q accuracy && cd / && $P eval %s/run && "
                         "$P predict %s/run --input %s/rows.csv --out %s/a.npy && "
                         "$P export %s/run --as onnx --out %s/new.onnx",
                      d, d, d, d, d, d, d, d),
              0, "");
    /* the exported file computes the same with the same values, and something else with others */
    CHECK_RUN(
        cli_run(IN "for s in 0.5 0.25; do $P train new.onnx data.path=rows.csv train.steps=1 "
                   "batch=20 optim.lr=0 inputs.scale=$s inputs.rows=rows.npy --quiet --out r$s && "
                   "$P predict r$s --input rows.csv --out $s.npy || exit 1; done; "
                   "cmp a.npy 0.5.npy && ! cmp -s a.npy 0.25.npy",
                d),
        0, "");
}

TEST(onnx_inputs_without_a_batch_are_asked_for_by_their_key)
{
    WANT_ONNX();
    CHECK(set_made());
    CHECK(arrays_made(3));
    const char *d = pl_test_dir();
#define PLAN IN "$P plan shared.onnx batch=20 "
    CHECK_RUN(cli_run(PLAN "inputs.rows=rows.npy", d), 2, "inputs.scale=NUMBER");
    CHECK_RUN(cli_run(PLAN "inputs.scale=1 dims.count=3", d), 2, "inputs.rows=FILE.npy");
    CHECK_RUN(cli_run(PLAN "inputs.scale=1 inputs.row=1", d), 2,
              "inputs.row: the model has no input row (its inputs: x, rows, scale)");
    CHECK_RUN(cli_run(PLAN "inputs.scale=1 inputs.rows=gone.npy", d), 2,
              "inputs.rows: \"gone.npy\" is not a number");
    CHECK_RUN(cli_run(PLAN "inputs.scale=1 inputs.rows=rows.npy dims.count=4", d), 2,
              "is f32[3,4], the input needs f32[4,4]");
    CHECK_RUN(cli_run(PLAN "inputs.scale=rows.npy inputs.rows=rows.npy", d), 2, "inputs.scale: ");
    CHECK_RUN(cli_run(PLAN "inputs.scale=1 inputs.rows=ones.npy dims.count=3", d), 0, "");
    CHECK_RUN(cli_run(PLAN "inputs.scale=1 inputs.rows=0.5 dims.count=6", d), 0, "");
    CHECK_RUN(cli_run(IN "$P plan words.onnx batch=4 dims.seq=4 inputs.ids=1.5", d), 2,
              "inputs.ids: 1.5 is not a whole number");
    CHECK_RUN(cli_run(IN "$P plan words.onnx batch=3 dims.seq=4 inputs.ids=rows.npy", d), 5,
              "save it as int64");
    CHECK_RUN(cli_run(IN "$P plan words.onnx batch=4 dims.seq=4 inputs.ids=ones.npy", d), 0, "");
}

/* Names and sizes that keys need are listed before anything is bound. */
TEST(onnx_inspect_lists_inputs_and_outputs_of_any_file)
{
    WANT_ONNX();
    CHECK(set_made());
    cli_result r =
        cli_run(IN "$P inspect shared.onnx && $P inspect shared.onnx batch=3", pl_test_dir());
    CHECK_INT(r.code, 2); /* the second needs inputs.scale */
    CHECK_MSG(strstr(r.out, "float[batch,4]\n") && strstr(r.out, "float[count,4]\n"), "%s", r.out);
    CHECK_MSG(strstr(r.out, "output    logits") && strstr(r.out, "4 weights with 131 par"), "%s",
              r.out);
}

TEST(onnx_mistakes_are_answered_with_the_key_to_set)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    CHECK_RUN(cli_run(IN "$P plan words.onnx", d), 2, "dims");
    CHECK_RUN(cli_run(IN "$P plan words.onnx dims.seq=many", d), 2, "dims.seq: a number");
    CHECK_RUN(cli_run(IN "$P plan table.onnx loss=crossentropy", d), 2, "cross_entropy|mse");
    CHECK_RUN(cli_run(IN "$P plan table.onnx los=mse", d), 2, "did you mean loss?");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'loss=mse(logits'", d), 2, "closing bracket");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'loss=mse(nothing)'", d), 2, "'nothing' (logits)");
    CHECK_RUN(cli_run(IN "$P plan table.onnx dims.seq=4", d), 2, "dynamic dimension seq (batch)");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'frozen=5.*'", d), 2, "matches \"5.*\" (weights: 0.w");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'trainable=0.*,x*'", d), 2, "matches \"x*\"");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'frozen=0.*, 2.bais'", d), 2, "matches \"2.bais\"");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'frozen=0.* , 2.bias'", d), 0, "");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'dropout={\"*Tanh*\":0.1}'", d), 2, "*Tanh*");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'dropout={\"*Relu*\":0.1}'", d), 0, "");
    CHECK_RUN(cli_run(IN "$P plan table.onnx 'loss=mse(logits, x)'", d), 2,
              "compares output logits");
    CHECK_RUN(cli_run(IN "$P plan table.onnx metrics=[psnr] loss=cross_entropy", d), 2, "psnr");
    CHECK_RUN(cli_run(IN "$P plan table.onnx loss=cross_entropy class_weights=[1,2]", d), 2,
              "class_weights has 2 numbers, output logits has 3 classes");
    CHECK_RUN(cli_run(IN "$P train table.onnx --quiet --out r", d), 2, "data.path is not set");
    CHECK_RUN(cli_run(IN "$P plan gone.onnx", d), 2, "gone.onnx");
    CHECK_RUN(
        cli_run(IN "$P train table.onnx data.path=rows.csv batch=20 memory=1MB --quiet --out r", d),
        3, "smallest budget");
}

TEST(onnx_mistakes_in_data_are_told_before_the_first_step)
{
    WANT_ONNX();
    CHECK(set_made());
    const char *d = pl_test_dir();
    char path[512];
    const pl_type whole = pl_type_make(PL_I64, 2, (int64_t[]){8, 4});
    snprintf(path, sizeof path, "%s/numbers", d);
    CHECK_RUN(cli_run("mkdir %s", path), 0, "");
    snprintf(path, sizeof path, "%s/numbers/x.npy", d);
    CHECK_OK(pl_npy_write(path, &whole, (int64_t[32]){0}));
    CHECK_RUN(cli_run(IN "sed '91s/,[^,]*,/,,/' rows.csv >hole.csv && sed '92s/[0-9]$/three/' "
                         "rows.csv >word.csv && sed '93s/[0-9]$/3/' rows.csv >four.csv && "
                         "cut -d, -f1,5 rows.csv | sed 1s/a/x/ >narrow.csv",
                      d),
              0, "");
#define TRAIN(set)                                                                                 \
 cli_run(IN "$P train table.onnx loss=cross_entropy data.path=" set                                \
            " batch=20 train.steps=1 data.eval_share=0.5 --quiet --out " set ".run",               \
         d)
    CHECK_RUN(TRAIN("hole.csv"), 5, "hole.csv:91: column b is \"\": a number is expected; fill in");
    CHECK_RUN(TRAIN("word.csv"), 5,
              "word.csv:92: column label is \"three\": a number is expected; w");
    CHECK_RUN(TRAIN("narrow.csv"), 5,
              "narrow.csv has 1 column for \"x\", the input has 4 numbers: n");
    CHECK_RUN(TRAIN("numbers"), 5,
              "x.npy is i64[8,4]; input \"x\" needs samples of f32[4] in its "
              "rows: save it with astype(\"float32\")");
    cli_result r = cli_run(IN "$P train table.onnx loss=cross_entropy data.path=four.csv batch=20 "
                              "train.steps=6 data.eval_share=0 --quiet --out four",
                           d);
    CHECK_RUN(
        r, 5,
        "element 0 of \"label\" is 3, and the network has the classes 0 to 2 (-100 is ignored): correct "
        "the data, or build the network with more outputs");
    CHECK_RUN(cli_run(IN "$P train " TABLE "data.fields=x=a+b+c+d,lable=label --quiet --out f", d),
              2, "data.fields: data fill no input \"lable\" (x, label)");
    CHECK_RUN(cli_run(IN "$P plan words.onnx dims.seq=0", d), 2,
              "dims.seq: 0 is not a whole number");
    CHECK_RUN(cli_run(IN "$P plan words.onnx dims.seq=8.5", d), 2, "dims.seq: 8.5 is not a whole");
}

TEST(onnx_an_exported_model_predicts_as_the_run)
{
    WANT_ONNX();
    CHECK(set_made());
    CHECK_RUN(cli_run(IN
                      "$P train " TABLE "train.steps=20 --quiet --out run && $P predict run "
                      "--input rows.csv --out a.npy && $P export run --as onnx --out new.onnx && "
                      "$P train new.onnx data.path=rows.csv train.steps=1 batch=20 optim.lr=0 "
                      "--quiet --out again && $P predict again --input rows.csv --out b.npy && "
                      "cmp a.npy b.npy",
                      pl_test_dir()),
              0, "");
}

/* plan, train, predict and weights back in a module, with torch. */
TEST(onnx_the_python_package_passes_its_tests)
{
    WANT_ONNX();
    if (!pl_test_long()) SKIP("long");
    WANT_PYTHON(python, "torch");
    CHECK_RUN(cli_run("PLIMSOLL=$P %s -W ignore -m unittest discover -s python/tests", python), 0,
              "OK");
}

/* The commands and the module of the README's first screen, as they are written; a wrapper shortens
 * the training to 12 of 150 steps. */
TEST(onnx_the_first_screen_of_the_readme_runs_as_written)
{
    WANT_ONNX();
    if (!pl_test_long()) SKIP("long");
    WANT_PYTHON(python, "torchvision");
    cli_result r = cli_run(
        "here=$PWD; cd %s && mkdir bin && "
        "printf '#!/bin/sh\\ncase $1 in train) exec %%s \"$@\" train.steps=12 ;; esac\\nexec %%s "
        "\"$@\"\\n' $P $P > bin/plimsoll && printf '#!/bin/sh\\nexec %s -W ignore \"$@\"\\n' > "
        "bin/python3 && chmod +x bin/* && "
        "awk '/^## /{on=/the model you have/} on&&/^```python/{p=1;next} /^```/{p=0} p' "
        "$here/README.md > export.py && "
        "awk '/^## /{on=/the model you have/} on&&/^```/{p=!q&&!p&&$0==\"```\";q=!q&&!p&&$0!=\"```\";"
        "next} on&&p' $here/README.md | "
        "sed 's/ *#.*//' > commands.sh && test $(wc -l < commands.sh) = 4 && "
        "$P generate classify/tiny side=64 data.samples=60 --raw --out shapes > made.txt && "
        "mkdir new-pictures && find shapes -name '*.png' | head -5 | "
        "xargs -I F cp F new-pictures && "
        "PATH=$PWD/bin:$PATH sh -e commands.sh && wc -l < classes.csv",
        pl_test_dir(), python);
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);
}
