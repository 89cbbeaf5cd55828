/* test_prompts.c - prompts as samples, and the arrays of their embeddings. */
#include "base/dtype.h"
#include "data/sets/array.h"
#include "data/sets/items.h"
#include "data/sets/prompts.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "train/data/prefetch.h"
#include "train/data/source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(prompts_are_the_lines_of_a_text)
{
    pl_prompts *p;
    static const char text[] = "a cat\nb dog\r\n\na cat\nlast";
    CHECK(pl_prompts_parse(text, sizeof text - 1, "x.txt", &p) == PL_OK);
    CHECK_INT(pl_prompts_count(p), 5);
    CHECK(strcmp(pl_prompts_at(p, 1), "b dog") == 0 && pl_prompts_at(p, 2)[0] == 0);
    CHECK_INT(pl_prompts_find(p, "a cat"), 0); /* the first of equals */
    CHECK_INT(pl_prompts_find(p, "last"), 4);
    CHECK_INT(pl_prompts_find(p, ""), 2);
    CHECK_INT(pl_prompts_find(p, "b do"), -1);
    CHECK_INT(pl_prompts_find(p, "zebra"), -1);
    pl_prompts_close(p);
    CHECK(pl_prompts_parse("x\n", 2, "x.txt", &p) == PL_OK);
    CHECK_INT(pl_prompts_count(p), 1);
    pl_prompts_close(p);
    CHECK(pl_prompts_parse("", 0, "x.txt", &p) == PL_ERR_DATA);
    CHECK(pl_prompts_parse("a\0b", 3, "x.txt", &p) == PL_ERR_DATA &&
          strstr(pl_error_text(), "line 1"));
    CHECK(pl_prompts_open("/nowhere/x.txt", &p) == PL_ERR_DATA);
}

static pl_status write_tensor(const char *path, const char *name, pl_type type, const void *data)
{
    pl_st_writer *w = NULL;
    pl_status rc = pl_st_writer_new(path, &w);
    if (rc == PL_OK) rc = pl_st_writer_add(w, name, &type);
    if (rc == PL_OK) rc = pl_st_writer_begin(w);
    if (rc == PL_OK) rc = pl_st_writer_write(w, 0, data, pl_type_bytes(&type));
    if (rc == PL_OK) rc = pl_st_writer_finish(w);
    pl_st_writer_free(w);
    return rc;
}

/* 16-bit rows become f32, whatever the file; the widening works in place for any length of a row.
 */
TEST(data_16_bit_arrays_become_f32)
{
    char path[512];
    for (int n = 1; n < 9; n++) {
        uint16_t bf[16], half[16];
        for (int i = 0; i < 2 * n; i++) {
            bf[i] = pl_f32_to_bf16((float)i - 1.5f);
            half[i] = pl_f32_to_f16((float)i - 1.5f);
        }
        pl_type row = PL_TYPE(PL_F32, n);
        for (int k = 0; k < 3; k++) {
            pl_array *a = NULL;
            const char *paths[1] = {path};
            snprintf(path, sizeof path, "%s/x%d%s", pl_test_dir(), k,
                     k < 2 ? ".safetensors" : ".npy");
            pl_type t = k == 0 ? PL_TYPE(PL_BF16, 2, n) : PL_TYPE(PL_F16, 2, n);
            if (k < 2) {
                CHECK(write_tensor(path, "x", t, k ? half : bf) == PL_OK);
            } else {
                pl_npy_writer *w;
                CHECK(pl_npy_writer_new(path, &t, &w) == PL_OK);
                CHECK(pl_npy_writer_write(w, half, pl_type_bytes(&t)) == PL_OK);
                CHECK(pl_npy_writer_finish(w) == PL_OK);
                pl_npy_writer_free(w);
            }
            CHECK(pl_array_open(paths, 1, "x", "x", NULL, &row, &a) == PL_OK);
            float got[16] = {0};
            for (int r = 0; r < 2; r++) {
                CHECK(pl_array_read(a, r, got) == PL_OK);
                for (int i = 0; i < n; i++) CHECK(got[i] == (float)(r * n + i) - 1.5f);
            }
            pl_array_close(a);
        }
    }
    pl_type wide = PL_TYPE(PL_I64, 8);
    const char *paths[1] = {path};
    pl_array *a = NULL;

    CHECK(pl_array_open(paths, 1, "x", "x", NULL, &wide, &a) ==
          PL_ERR_DATA); /* no other conversion */
}

/* ---- runs -------------------------------------------------------------------------------------
 */
enum { LINES = 40, DIM = 8 };

static void line_text(int i, char text[32])
{
    snprintf(text, 32, "%02d%.*s", i, i % 9, " pictures");
}

static bool words_made(void)
{
    char path[512], text[32];
    snprintf(path, sizeof path, "%s/p.txt", pl_test_dir());
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < LINES; i++) {
        line_text(i, text);
        fprintf(f, "%s\n", text);
    }
    if (f) fclose(f);
    return f &&
           cli_run(
               "${CC:-cc} -shared -fPIC -O1 -I include -o %s/words.so tests/data/words/words.c && "
               "${CC:-cc} -shared -fPIC -O1 -DNO_ENCODE -I include -o %s/mute.so tests/data/words/words.c",
               pl_test_dir(), pl_test_dir())
                   .code == 0;
}

/* The output of the recipe's own encode, as a file. */
static pl_status embeddings_made(const char *path, int64_t rows)
{
    float x[64][DIM];
    char text[32];
    for (int i = 0; i < rows; i++) {
        line_text(i, text);
        size_t n = strlen(text);
        for (size_t k = 0; k < DIM; k++)
            x[i][k] = 0.01f * (float)(n + (k < n ? (size_t)text[k] : 0));
    }
    return write_tensor(path, "text", PL_TYPE(PL_F32, rows, DIM), x);
}

/* Every training prompt appears once per pass, with its row and the recipe's target; prompts
 * that the hash holds out never appear. */
TEST(prompts_of_training_come_once_an_epoch_with_their_rows)
{
    char so[512], path[512];
    if (!words_made()) SKIP("no compiler");
    snprintf(so, sizeof so, "%s/words.so", pl_test_dir());
    snprintf(path, sizeof path, "data.prompts=%s/p.txt", pl_test_dir());
    const char *overrides[] = {path, "data.eval_share=0.25", "batch=1"};
    pl_run *r = NULL;

    CHECK(pl_run_open(so, overrides, 3, &r) == PL_OK && pl_run_build(r) == PL_OK);
    pl_status rc = pl_run_start(r);
    CHECK_MSG(rc == PL_OK, "%s", pl_error_text());

    int64_t n = pl_source_size(r, PL_SUBSET_TRAIN), m = pl_source_size(r, PL_SUBSET_EVAL);
    CHECK(n + m == LINES && m > 4 && m < 17);

    int seen[LINES] = {0};
    for (int64_t s = 0; s < 2 * n; s++) {
        CHECK(pl_prefetch_read(r, pl__train(r), s) == PL_OK);
        const float *x = pl_session_input(r->session, pl__train(r), "text", NULL);
        const float *goal = pl_session_input(r->session, pl__train(r), "goal", NULL);
        int found = -1;
        for (int i = 0; i < LINES; i++) {
            char text[32];
            line_text(i, text);
            float len = (float)strlen(text);
            if (fabsf(x[0] - 0.01f * (len + (float)text[0])) < 1e-4f &&
                fabsf(x[1] - 0.01f * (len + (float)text[1])) < 1e-4f && i % 9 == (int)len - 2 &&
                fabsf(x[7] - 0.01f * (len + (float)(len > 7 ? text[7] : 0))) < 1e-4f)
                found = i;
        }
        CHECK(found >= 0);
        if (found >= 0) seen[found]++;
        CHECK(goal[0] != 0 && fabsf(goal[0]) < 3.5f);
    }
    for (int i = 0; i < LINES; i++) {
        char text[32];
        line_text(i, text);
        CHECK_INT(seen[i], pl_name_in_share(text, 0.25) ? 0 : 2);
    }
    pl_run_free(r);
}

TEST(prompts_train_a_network)
{
    char path[512];
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!words_made()) SKIP("no compiler");
    snprintf(path, sizeof path, "%s/e.safetensors", pl_test_dir());
    CHECK(embeddings_made(path, LINES) == PL_OK);
    snprintf(path, sizeof path, "%s/short.safetensors", pl_test_dir());
    CHECK(embeddings_made(path, LINES - 1) == PL_OK);
#define WORDS "cd %s && $P train ./%s data.prompts=p.txt data.eval_share=0.25 --quiet "
    cli_result r = cli_run(WORDS "--out a", pl_test_dir(), "words.so");
    CHECK_MSG(r.code == 0, "%s", r.err);
    r = cli_run(WORDS "--out b data.embeddings=e.safetensors data.workers=2", pl_test_dir(),
                "mute.so");
    CHECK_MSG(r.code == 0, "%s", r.err);
    r = cli_run("cd %s && cmp a/model.safetensors b/model.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 0, "%s%s", r.out, r.err);
    r = cli_run(WORDS "data.embeddings=short.safetensors", pl_test_dir(), "words.so");
    CHECK_MSG(r.code == 5 && strstr(r.err, "39 rows") && strstr(r.err, "40 lines"), "%d %s", r.code,
              r.err);
    r = cli_run(WORDS "", pl_test_dir(), "mute.so");
    CHECK_MSG(r.code == 2 && strstr(r.err, "data.embeddings"), "%d %s", r.code, r.err);
    r = cli_run(WORDS "data.embeddings=e.safetensors dim=9", pl_test_dir(), "words.so");
    CHECK_MSG(r.code == 5 && strstr(r.err, "f32[9]"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && $P train ./words.so data.embeddings=e.safetensors", pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "needs data.prompts"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && $P train " CLI_SMALL "data.prompts=p.txt", pl_test_dir());
    CHECK_MSG(r.code == 2 && strstr(r.err, "takes no text"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && $P train ./words.so data.prompts=none.txt", pl_test_dir());
    CHECK_MSG(r.code == 5 && strstr(r.err, "none.txt"), "%d %s", r.code, r.err);
    r = cli_run("cd %s && head -c 100 e.safetensors > cut.safetensors", pl_test_dir());
    r = cli_run(WORDS "data.embeddings=cut.safetensors", pl_test_dir(), "words.so");
    CHECK_MSG(r.code == 5 && strstr(r.err, "cut.safetensors"), "%d %s", r.code, r.err);
}

/* data.fields names the array of embeddings too. */
TEST(prompts_fields_name_the_embeddings_too)
{
    char path[512];
    float x[LINES][DIM] = {{0}};
    if (!cli_bin()) SKIP("PL_BIN is not built");
    if (!words_made()) SKIP("no compiler");
    snprintf(path, sizeof path, "%s/other.safetensors", pl_test_dir());
    CHECK(write_tensor(path, "emb", PL_TYPE(PL_F32, LINES, DIM), x) == PL_OK);
    cli_result r = cli_run(WORDS "data.embeddings=other.safetensors", pl_test_dir(), "words.so");

    CHECK_MSG(r.code == 5 && strstr(r.err, "data.fields"), "%d %s", r.code, r.err);
    r = cli_run(WORDS "data.embeddings=other.safetensors data.fields=text=emb", pl_test_dir(),
                "words.so");
    CHECK_MSG(r.code == 0, "%d %s", r.code, r.err);
}
