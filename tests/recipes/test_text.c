/* test_text.c - the text recipe: its size, that it learns, texts and vocabularies of the user, and
 * generated text through the command line. */
#include "plimsoll_train.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SMALL "text/tiny batch=8 context=32 model.width=32 model.layers=1 data.samples=2048 "

TEST(text_has_the_parameters_of_gpt2)
{
    static const char *const keys[] = {"device=cpu", "memory=null", "precision=fp32", "batch=1",
                                       "data.vocabulary=tests/data/tokens"};
    enum { W = 768, L = 12, T = 1024, V = 330 };
    pl_run *run;
    CHECK_OK(pl_run_open("text/card24", keys, 5, &run));
    CHECK_OK(pl_run_build(run));
    int64_t layer = 4 * W + (W + 1) * 3 * W + (W + 1) * W + (W + 1) * 4 * W + (4 * W + 1) * W;

    CHECK_INT(pl_run_parameters(run, true), V * W + T * W + L * layer + 2 * W);
    pl_run_free(run);
}

TEST(text_learns_the_generated_sums)
{
    enum { STEPS = 80 };
    static const char *const keys[] = {"batch=8",          "context=32",
                                       "model.width=32",   "model.layers=1",
                                       "data.samples=512", "schedule.name=constant"};
    double loss[STEPS];
    CHECK_OK(small_run_losses("text/tiny", keys, 6, loss, STEPS));

    CHECK_MSG(loss[0] > 5 && loss[STEPS - 1] < 0.45 * loss[0], "loss %g to %g", loss[0],
              loss[STEPS - 1]);
}

/* Writes a text of one sentence, repeated. */
static void write_book(const char *name, const char *sentence, int times)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), name);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < times; i++) fputs(sentence, f);
    if (f) fclose(f);
}

/* A text that repeats itself is memorised: the likeliest continuation is the text. */
TEST(text_continues_a_text_that_it_was_trained_on)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    write_book("book.txt", "the quick brown fox jumps over the lazy dog. ", 60);

    CHECK_RUN(cli_run("cd %s && $P train " SMALL "data.text=book.txt train.steps=120 eval.every=0 "
                      "optim.lr=1e-2 --out run --quiet && $P predict run --prompt 'the quick' "
                      "--out said.txt predict.tokens=30 predict.temperature=0 --quiet",
                      d),
              0, "");

    char path[600];
    snprintf(path, sizeof path, "%s/said.txt", d);
    CHECK_MSG(strcmp(cli_read(path), "the quick brown fox jumps over the lazy\n") == 0, "%s",
              cli_read(path));
}

/* The same seed gives the same text, also within a budget; another seed gives another text. */
TEST(text_predictions_depend_on_the_seed_alone)
{
    const char *d = pl_test_dir();
    WANT_BIN();
    CHECK_RUN(cli_run("cd %s && $P train " SMALL "train.steps=2 eval.every=0 --out run --quiet", d),
              0, "");
    CHECK_RUN(cli_run("cd %s && P2=\"$P predict run --prompt one --quiet predict.tokens=20\" && "
                      "$P2 --seed 5 --out a && $P2 --seed 5 --out b --memory 60MB && "
                      "$P2 --seed 6 --out deep/folder/c",
                      d),
              0, "");
    CHECK(cli_same("a", "b"));
    CHECK(!cli_same("a", "deep/folder/c"));
}

TEST(text_takes_a_vocabulary_file)
{
    char here[4096];
    WANT_BIN();
    CHECK(realpath("tests/data/tokens", here));

    write_book("book.txt", "the cat sat on the mat and the dog sat on the log. ", 40);
    cli_result r =
        cli_run("cd %s && $P train " SMALL
                "data.text=book.txt data.vocabulary=%s train.steps=60 eval.every=0 "
                "optim.lr=1e-2 --out run --quiet && $P predict run --prompt 'the cat sat' "
                "--out said.txt predict.tokens=4 predict.top_k=1 --quiet && cat said.txt",
                pl_test_dir(), here);
    CHECK_MSG(r.code == 0 && strstr(r.out, "the cat sat on the"), "%s%s", r.out, r.err);
}

TEST(text_bad_texts_and_options_are_refused)
{
    const char *d = pl_test_dir();
    WANT_BIN();

    write_book("short.txt", "too short", 1);
    CHECK_RUN(cli_run("cd %s && $P train text/tiny data.text=short.txt", d), 5,
              "the text has 9 tokens; training and evaluation need 130");
    CHECK_RUN(cli_run("cd %s && $P train text/tiny data.text=none.txt", d), 5, "none.txt");
    CHECK_RUN(cli_run("cd %s && $P train text/tiny data.text=.", d), 5, "is not a file");
    CHECK_RUN(cli_run("cd %s && $P plan text/tiny data.vocabulary=none", d), 5,
              "data.vocabulary: none");
    CHECK_RUN(cli_run("cd %s && $P plan text/tiny model.heads=3", d), 2,
              "model.width (64) is not a multiple of model.heads (3)");
    CHECK_RUN(cli_run("cd %s && $P train " SMALL "train.steps=1 --out run --quiet", d), 0, "");
    CHECK_RUN(cli_run("cd %s && $P predict run --input short.txt --out x", d), 2,
              "--input: recipe text takes none");
    CHECK_RUN(cli_run("cd %s && $P predict run", d), 2, "--out is missing: a text file");
    CHECK_RUN(cli_run("cd %s && $P predict run --out run", d), 1, "--out run is a folder");
    CHECK_RUN(cli_run("cd %s && $P predict text/tiny --out x", d), 2, "no weights given");
    CHECK_RUN(cli_run("cd %s && $P predict text/tiny --model run/model.safetensors --out x", d), 6,
              "12 tensors are missing: h.1.ln_1.weight");
    CHECK_RUN(cli_run("cd %s && test ! -e x", d), 0, "");
}

/* ---- files of token numbers ----------------------------------------------------------------- */
/* Writes a sentence, repeated, as token numbers of so many bytes; magic 0: no header. */
static const char *write_tokens(const char *name, const char *sentence, int times, int bytes,
                                uint32_t magic)
{
    static char path[600];
    uint32_t n = (uint32_t)(strlen(sentence) * (size_t)times), head[256] = {magic, 1, n};
    snprintf(path, sizeof path, "%s/%s", pl_test_dir(), name);
    FILE *f = fopen(path, "wb");
    if (f && magic) fwrite(head, sizeof head, 1, f);
    for (uint32_t i = 0; f && i < n; i++) {
        uint32_t v = (unsigned char)sentence[i % strlen(sentence)];
        fwrite(&v, (size_t)bytes, 1, f); /* little-endian, as the tests' machines are */
    }
    if (f) fclose(f);
    return path;
}

/* Losses on the bytes of a text, and on a file of the same numbers in every form. */
TEST(text_trains_on_token_files_as_on_their_text)
{
    enum { STEPS = 3 };
    static const struct {
        int bytes;
        uint32_t magic;
        const char *width;
    } forms[] = {{2, 0, "2"}, {4, 0, "4"}, {2, 20240520, "4"}, {4, 20240801, "2"}};
    static const char sentence[] = "the quick brown fox jumps over the lazy dog. ";
    char text[640], tokens[640], width[64];
    double want[STEPS], got[STEPS];
    write_book("book.txt", sentence, 60);
    snprintf(text, sizeof text, "data.text=%s/book.txt", pl_test_dir());
    const char *plain[] = {"batch=4", "context=32", "model.width=32", "model.layers=1", text};
    CHECK_OK(small_run_losses("text/tiny", plain, 5, want, STEPS));

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(tokens, sizeof tokens, "data.tokens=%s",
                 write_tokens("tokens.bin", sentence, 60, forms[i].bytes, forms[i].magic));
        snprintf(width, sizeof width, "data.token_bytes=%s", forms[i].width);
        const char *keys[] = {"batch=4", "context=32", "model.width=32",      "model.layers=1",
                              tokens,    width,        "model.vocabulary=256"};
        CHECK_OK(small_run_losses("text/tiny", keys, 7, got, STEPS));
        for (int k = 0; k < STEPS; k++) CHECK_NEAR(got[k], want[k], 0);
    }
}

static void check_refused(const char *const *keys, int n, const char *says)
{
    double loss[1];
    CHECK(small_run_losses("text/tiny", keys, n, loss, 1) != PL_OK);
    CHECK_MSG(strstr(pl_error_text(), says), "%s", pl_error_text());
}

TEST(text_names_what_is_wrong_with_a_token_file)
{
    char tokens[640];
    snprintf(tokens, sizeof tokens, "data.tokens=%s",
             write_tokens("tokens.bin", "zebra. ", 301, 2, 0));
    const char *small[] = {"batch=4", "context=32", tokens, "model.vocabulary=100"};
    const char *none[] = {"batch=4", "context=32", tokens};
    const char *both[] = {"batch=4", tokens, "model.vocabulary=256", "data.text=book.txt"};
    const char *odd[] = {"batch=4", tokens, "model.vocabulary=256", "data.token_bytes=4"};
    check_refused(small, 4, "but the vocabulary has 100 tokens");
    check_refused(none, 3, "set data.vocabulary, or model.vocabulary");
    check_refused(both, 4, "data.tokens and data.text are both set");
    check_refused(odd, 4, "not a whole number of tokens of 4 bytes; data.token_bytes is 4");

    FILE *f = fopen(write_tokens("tokens.bin", "zebra. ", 301, 2, 20240520), "r+b");
    CHECK(f && fseek(f, 8, SEEK_SET) == 0 && fputc(0xff, f) != EOF && fputc(0xff, f) != EOF);
    fclose(f);
    const char *cut[] = {"batch=4", "context=32", tokens, "model.vocabulary=256"};
    check_refused(cut, 4, "it is cut off");
}

/* A folder with tokens that the network has no rows for is bad data, before a loss is NaN. */
TEST(text_refuses_tokens_of_a_folder_that_the_network_does_not_have)
{
    char folder[640], path[700];
    snprintf(folder, sizeof folder, "data.path=%s/tokens", pl_test_dir());
    CHECK(mkdir(folder + strlen("data.path="), 0777) == 0);
    snprintf(path, sizeof path, "tokens/train.bin");
    CHECK(write_tokens(path, "zebra. ", 601, 2, 0));
    const char *good[] = {"batch=4", "context=32", folder};
    double loss[1];
    CHECK_OK(small_run_losses("text/tiny", good, 3, loss, 1));

    snprintf(path, sizeof path, "%s/train.bin", folder + strlen("data.path="));
    FILE *f = fopen(path, "r+b");
    for (int i = 0; f && i < 4207; i++) fputc(1, f), fputc(1, f); /* 257 */
    CHECK(f && fclose(f) == 0);
    CHECK_INT(small_run_losses("text/tiny", good, 3, loss, 1), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "is 257") && strstr(pl_error_text(), "rows for 0 to 255"),
              "%s", pl_error_text());
}

/* A file where a folder belongs is answered with the key that takes it. */
TEST(text_and_tables_given_as_data_path_are_answered_with_their_key)
{
    WANT_BIN();
    CHECK_RUN(
        cli_run("cd %s && echo a,b > t.csv && $P train text/tiny data.path=t.csv train.steps=1",
                pl_test_dir()),
        2, "did you mean data.text=t.csv?");
    CHECK_RUN(
        cli_run("cd %s && $P train regress/tiny data.path=t.csv train.steps=1", pl_test_dir()), 2,
        "did you mean data.table=t.csv?");
}
