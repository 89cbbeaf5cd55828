/* test_encoders.c - `plimsoll embed`: text encoders against the numbers of transformers and
 * open_clip (tests/data/encoders, written by tools/oracle/encoder_numbers.py), the recipes that
 * read their results, and bad input. */
#include "base/sys.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "plimsoll_tensors.h"
#include "plimsoll_tokens.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/small_run.h"
#include "tests/lib/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Absolute path of tests/data/encoders: commands run in the test's folder. */
static const char *data(void)
{
    static char path[PATH_MAX];
    if (!path[0] && !realpath("tests/data/encoders", path)) path[0] = 0;
    return path;
}

#define WANT(kind)                                                                                 \
 WANT_BIN();                                                                                       \
 if (pl_tokenizer_missing(kind)) SKIP(pl_tokenizer_missing(kind))

/* `embed` of the shared prompts; D is the folder of the data. */
#define EMBED "cd %s && D=%s && $P embed --quiet --text $D/prompts.txt "
#define UMT5  "--encoder umt5 --weights $D/umt5 --tokenizer $D/umt5 --length 24 "
#define BERT  "--encoder distilbert --weights $D/distilbert --tokenizer $D/distilbert "
#define CLIP  "--encoder openclip --weights $D/clip --tokenizer $D/clip "
#define OPEN                                                                                       \
 "--encoder openclip --weights $D/openclip/model.safetensors --tokenizer "                         \
 "$D/openclip/bpe_simple_vocab.txt heads=2 "

/* The tensor of a safetensors file as f32; NULL: there is none. The caller frees it. */
static float *tensor(const char *path, const char *name, pl_type *type)
{
    pl_st_reader *f;
    if (pl_st_open(path, &f) != PL_OK) return NULL;
    const pl_st_tensor *t = pl_st_find(f, name);
    float *x = t && t->type.dtype == PL_F32 ? malloc((size_t)(t->end - t->begin)) : NULL;
    if (x && pl_st_read(f, t, x, (size_t)(t->end - t->begin)) != PL_OK) {
        free(x);
        x = NULL;
    }
    if (x) *type = t->type;
    pl_st_close(f);
    return x;
}

/* The result OUT of the test's folder equals a tensor of the reference to 1e-5 of its largest
 * value. */
static void agrees(const char *out, const char *name, const char *encoder, const char *reference)
{
    char path[1024];
    pl_type want_type, type;
    float *got;
    snprintf(path, sizeof path, "%s/%s/reference.safetensors", data(), encoder);
    float *want = tensor(path, reference, &want_type);
    CHECK(want != NULL);
    if (!name) {
        pl_npy *a;
        CHECK_OK(pl_npy_open(pl_test_path(out), &a));
        type = pl_npy_type(a);
        got = malloc(pl_type_bytes(&type));
        CHECK_OK(pl_npy_read(a, 0, type.dim[0], got));
        pl_npy_close(a);
    } else {
        got = tensor(pl_test_path(out), name, &type);
    }
    char a[96], b[96];
    CHECK_MSG(got && pl_type_equal(&type, &want_type), "%s: %s, wanted %s", out,
              pl_type_text(&type, a, sizeof a), pl_type_text(&want_type, b, sizeof b));
    double most = 0, off = 0;
    for (int64_t i = 0; i < pl_type_elems(&type); i++) {
        most = fmax(most, fabs((double)want[i]));
        off = fmax(off, fabs((double)got[i] - (double)want[i]));
    }
    CHECK_MSG(off <= 1e-5 * most, "%s and %s of %s: %g of %g", out, reference, encoder, off, most);
    free(want);
    free(got);
}

/* ---- numbers ------------------------------------------------------------------------------ */
TEST(embed_umt5_gives_the_numbers_of_transformers)
{
    WANT(PL_TOKENIZER_SENTENCEPIECE);
    CHECK_RUN(cli_run(EMBED UMT5 "--out a.npy", pl_test_dir(), data()), 0, "are cut");

    agrees("a.npy", NULL, "umt5", "out");
    /* Wan's own names, and a file with the lengths */
    CHECK_RUN(
        cli_run(EMBED UMT5 "--weights $D/umt5-wan --out b.safetensors", pl_test_dir(), data()), 0,
        "");

    agrees("b.safetensors", "text", "umt5", "out");
    pl_st_reader *f;
    int64_t length[20];
    CHECK_OK(pl_st_open(pl_test_path("b.safetensors"), &f));
    const pl_st_tensor *t = pl_st_find(f, "lengths");
    CHECK(t && t->end - t->begin == sizeof length);

    CHECK_OK(pl_st_read(f, t, length, sizeof length));
    CHECK(length[0] == 14 && length[1] == 1 && length[19] == 24);
    pl_st_close(f);
}

TEST(embed_umt5_without_its_library_names_the_package)
{
    WANT_BIN();
    cli_result r = cli_run("cd %s && D=%s && PLIMSOLL_SENTENCEPIECE=/no/such $P embed --quiet " UMT5
                           "--prompt a --out a.npy",
                           pl_test_dir(), data());
    CHECK_MSG(r.code == 1 && strstr(r.err, "apt-get install libsentencepiece-dev"), "%d %s", r.code,
              r.err);
    CHECK(access(pl_test_path("a.npy"), F_OK) != 0);
}

TEST(embed_distilbert_gives_the_numbers_of_transformers)
{
    WANT(PL_TOKENIZER_WORDPIECE);
    CHECK_RUN(cli_run(EMBED BERT "--out a.npy", pl_test_dir(), data()), 0, "");

    agrees("a.npy", NULL, "distilbert", "out");
    CHECK_RUN(cli_run(EMBED BERT "--pool mean --out b.npy", pl_test_dir(), data()), 0, "");

    agrees("b.npy", NULL, "distilbert", "mean");
    /* FluxFlow's text encoder: a prefix, and a head after the mean */
    CHECK_RUN(cli_run(EMBED BERT "--weights $D/fluxflow --out c.npy", pl_test_dir(), data()), 0,
              "");

    agrees("c.npy", NULL, "distilbert", "vector");
    CHECK_RUN(
        cli_run(EMBED BERT "--weights $D/fluxflow --pool none --out d.npy", pl_test_dir(), data()),
        0, "");
    agrees("d.npy", NULL, "distilbert", "out");
}

TEST(embed_openclip_gives_the_numbers_of_transformers_and_open_clip)
{
    WANT(PL_TOKENIZER_CLIP);
    CHECK_RUN(cli_run(EMBED CLIP "--out a.npy", pl_test_dir(), data()), 0, "");

    agrees("a.npy", NULL, "clip", "out");
    CHECK_RUN(cli_run(EMBED CLIP "--layer penultimate --out b.npy", pl_test_dir(), data()), 0, "");

    agrees("b.npy", NULL, "clip", "penultimate");
    CHECK_RUN(cli_run(EMBED OPEN "--out c.safetensors", pl_test_dir(), data()), 0, "");

    agrees("c.safetensors", "context", "openclip", "out");
    CHECK_RUN(
        cli_run(EMBED OPEN "--layer last --tensor x --out d.safetensors", pl_test_dir(), data()), 0,
        "");
    agrees("d.safetensors", "x", "openclip", "last");
}

/* Heads in text_config, as models of text and images have them, and in OpenCLIP's own file. */
TEST(embed_finds_heads_in_the_files_beside_the_weights)
{
    WANT(PL_TOKENIZER_CLIP);
    cli_result r =
        cli_run("cd %s && D=%s && cp $D/clip/model.safetensors . && $P embed --quiet " CLIP
                "--weights model.safetensors --prompt a --out a.npy",
                pl_test_dir(), data());

    CHECK_MSG(r.code == 2 && strstr(r.err, "heads=N"), "%s", r.err);
    CHECK(cli_write(pl_test_path("config.json"),
                    "{\"text_config\": {\"num_attention_heads\": 4, \"hidden_act\": null}}"));
    CHECK_RUN(cli_run(EMBED CLIP "--weights model.safetensors --out a.npy", pl_test_dir(), data()),
              0, "");

    agrees("a.npy", NULL, "clip", "out");
    CHECK(cli_write(pl_test_path("open_clip_config.json"),
                    "{\"model_cfg\": {\"text_cfg\": {\"heads\": 2}}}"));
    CHECK_RUN(cli_run("cd %s && D=%s && cp $D/openclip/model.safetensors . && $P embed --quiet "
                      "--text $D/prompts.txt " OPEN
                      "--weights model.safetensors heads=0 --out b.npy",
                      pl_test_dir(), data()),
              0, "");
    agrees("b.npy", NULL, "openclip", "out");
}

TEST(embed_length_type_and_one_prompt_are_chosen)
{
    WANT(PL_TOKENIZER_WORDPIECE);
    pl_npy *a;
    CHECK_RUN(cli_run(EMBED BERT "--length 8 --dtype f16 --out a.npy", pl_test_dir(), data()), 0,
              "");

    CHECK_OK(pl_npy_open(pl_test_path("a.npy"), &a));
    pl_type type = pl_npy_type(a), want = PL_TYPE(PL_F16, 20, 8, 20);
    CHECK(pl_type_equal(&type, &want));
    pl_npy_close(a);

    cli_result r = cli_run("cd %s && D=%s && $P embed --json " BERT
                           "--prompt 'a photo of a red fox' --out new/b.npy",
                           pl_test_dir(), data());
    CHECK_MSG(r.code == 0 && strstr(r.out, "\"prompts\":1,") && strstr(r.out, "\"batch\":1,"),
              "%s%s", r.out, r.err);

    CHECK_OK(pl_npy_open(pl_test_path("new/b.npy"), &a));
    CHECK_INT(pl_npy_rows(a), 1);
    pl_npy_close(a);
}

/* Fewer prompts at a time, the same numbers, and the process stays within its budget. */
TEST(embed_stays_within_a_budget)
{
    WANT(PL_TOKENIZER_WORDPIECE);
    CHECK_RUN(cli_run(EMBED BERT "--out a.npy --memory 5MB", pl_test_dir(), data()), 3,
              "smallest budget is");
    CHECK(access(pl_test_path("a.npy"), F_OK) != 0);
    CHECK_RUN(cli_run(EMBED BERT "--out a.npy", pl_test_dir(), data()), 0, "");

    cli_result r = cli_run(EMBED BERT "--out b.npy --memory 40MB --json", pl_test_dir(), data());
    CHECK_MSG(r.code == 0, "%s", r.err);

    json_t *j = json_loads(r.out, 0, NULL);
    CHECK(j && cli_member(j, "peak_used_bytes") > 0 &&
          cli_member(j, "peak_used_bytes") <= 40000000);
    json_decref(j);
    CHECK(cli_same("a.npy", "b.npy"));
}

/* The same weights in a file of PyTorch, and FluxFlow's head in a file of its own. */
TEST(embed_reads_pytorch_files_and_several_files)
{
    WANT(PL_TOKENIZER_WORDPIECE);
    enum { MOST = 64 };
    char path[1024];
    pl_tensors *t;
    static pl_tensor_data part[2][MOST];
    int n[2] = {0, 0};
    snprintf(path, sizeof path, "%s/fluxflow/text_encoder.safetensors", data());
    CHECK_OK(pl_tensors_open(path, &t));

    CHECK(pl_tensors_count(t) <= MOST);
    for (int i = 0; i < pl_tensors_count(t); i++) {
        pl_tensor_info info = pl_tensors_at(t, i);
        int which = strncmp(info.name, "language_model.", 15) != 0;
        float *x = malloc(info.bytes);
        CHECK_OK(pl_tensors_read(t, i, PL_F32, x, info.bytes));
        part[which][n[which]++] = (pl_tensor_data){info.name + (which ? 0 : 15),
                                                   pl_type_make(PL_F32, info.rank, info.dim), x};
    }
    CHECK_OK(pl_tensors_save(pl_test_path("bert.pt"), part[0], n[0]));
    CHECK_OK(pl_tensors_save(pl_test_path("head.safetensors"), part[1], n[1]));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n[k]; i++) free((void *)(uintptr_t)part[k][i].data);
    pl_tensors_close(t);
    CHECK_RUN(cli_run(EMBED BERT "--weights bert.pt --out a.npy heads=4", pl_test_dir(), data()), 0,
              "");

    agrees("a.npy", NULL, "distilbert", "out");
    CHECK_RUN(cli_run(EMBED BERT "--weights head.safetensors,bert.pt --out b.npy heads=4",
                      pl_test_dir(), data()),
              0, "");
    agrees("b.npy", NULL, "distilbert", "vector");
}

/* ---- who reads them ----------------------------------------------------------------------- */
TEST(embed_feeds_wandistill)
{
    WANT(PL_TOKENIZER_SENTENCEPIECE);
    double loss[2], other[2];
    char path[2][1024];

    CHECK_RUN(cli_run(EMBED UMT5 "--length 6 --out text.npy", pl_test_dir(), data()), 0, "");
    snprintf(path[0], sizeof path[0], "data.prompts=%s/prompts.txt", data());
    snprintf(path[1], sizeof path[1], "data.embeddings=%s", pl_test_path("text.npy"));
    const char *keys[] = {path[0], path[1], "data.eval_share=0", "allow_random_frozen=true"};
    CHECK_OK(small_run_losses("wandistill/tiny", keys, 4, loss, 2));
    CHECK_OK(small_run_losses("wandistill/tiny", NULL, 0, other, 2));
    CHECK(isfinite(loss[1]) && loss[0] != other[0]);
}

TEST(embed_feeds_fluxflow)
{
    WANT(PL_TOKENIZER_WORDPIECE);
    double loss[1];
    char path[3][1024];
    cli_result r =
        cli_run("cd %s && D=%s && $P generate fluxflow/flow-tiny --raw --out set "
                "data.samples=4 data.eval_samples=1 >/dev/null && "
                "for f in set/*/*.txt; do cat $f; echo; done >captions.txt && "
                "$P embed --quiet " BERT "--weights $D/fluxflow --text captions.txt --out "
                "text.npy",
                pl_test_dir(), data());

    CHECK_MSG(r.code == 0, "%s", r.err);
    snprintf(path[0], sizeof path[0], "data.path=%s", pl_test_path("set"));
    snprintf(path[1], sizeof path[1], "data.prompts=%s", pl_test_path("captions.txt"));
    snprintf(path[2], sizeof path[2], "data.embeddings=%s", pl_test_path("text.npy"));
    const char *keys[] = {path[0], path[1], path[2], "flow.text=8", "allow_random_frozen=true"};
    CHECK_OK(small_run_losses("fluxflow/flow-tiny", keys, 5, loss, 1));
    CHECK(isfinite(loss[0]));
}

TEST(embed_feeds_stablesr_with_the_empty_prompt)
{
    WANT(PL_TOKENIZER_CLIP);
    char path[1024];
    pl_run *run;
    pl_type type;
    cli_result r =
        cli_run("cd %s && D=%s && $P embed --quiet " OPEN "--prompt '' --out empty.safetensors",
                pl_test_dir(), data());

    CHECK_MSG(r.code == 0, "%s", r.err);
    snprintf(path, sizeof path, "context_from=%s", pl_test_path("empty.safetensors"));
    const char *keys[] = {path, "model.context=[20, 32]", "batch=1", "data.samples=2"};
    CHECK_OK(pl_run_open("stablesr/pictures", keys, 4, &run));
    CHECK_OK(pl_run_build(run));
    CHECK_OK(pl_run_start(run));
    float *want = tensor(pl_test_path("empty.safetensors"), "context", &type), got[20 * 32];
    int slot = pl_store_find(pl_run_store(run), "context");
    CHECK(want && slot >= 0 && pl_type_elems(&type) == 20 * 32);

    CHECK_OK(pl_session_read_slot(pl_run_session(run), slot, 0, got, sizeof got));
    CHECK(memcmp(got, want, sizeof got) == 0);
    free(want);
    pl_run_free(run);
}

/* ---- bad input ---------------------------------------------------------------------------- */
/* The exit code, words of the message, and no result. */
static void refuses(int code, const char *words, const char *options)
{
    cli_result r = cli_run("cd %s && D=%s && $P embed --quiet %s --out bad.npy", pl_test_dir(),
                           data(), options);
    CHECK_MSG(r.code == code && strstr(r.err, words),
              "%s: exit code %d, wanted %d; wanted \"%s\": %s", options, r.code, code, words,
              r.err);
    CHECK_MSG(access(pl_test_path("bad.npy"), F_OK) != 0, "%s: a result is left", options);
}

TEST(embed_refuses_bad_options_weights_tokenizers_and_prompts)
{
    WANT(PL_TOKENIZER_WORDPIECE);
    refuses(2, "needs --encoder", "--weights x");
    refuses(2, "needs --text", "--encoder umt5 --weights x --tokenizer x");
    refuses(2, "give one of them", BERT "--text x --prompt y");
    refuses(2, "encoder", BERT "--encoder bert --prompt a");
    refuses(2, "positions", BERT "--length 33 --prompt a");
    refuses(2, "heads", BERT "--prompt a heads=3");
    refuses(2, "key", BERT "--prompt a hedas=3");
    refuses(6, "no/such", BERT "--weights no/such --prompt a");
    refuses(6, "is not DistilBERT", BERT "--weights $D/clip --prompt a");
    refuses(6, "is not an umT5", UMT5 "--weights $D/clip --prompt a");
    refuses(6, "is not a text encoder of CLIP", CLIP "--weights $D/distilbert --prompt a");
    refuses(5, "no tokenizer", BERT "--tokenizer $D/umt5-wan --prompt a");

    CHECK_INT(cli_run("cd %s && (cat %s/distilbert/vocab.txt; echo more) >vocab.txt", pl_test_dir(),
                      data())
                  .code,
              0);

    refuses(5, "belong to another model", BERT "--tokenizer vocab.txt --prompt a");
    CHECK_INT(cli_run("cd %s && head -c 700 %s/distilbert/vocab.txt >vocab.txt && "
                      "head -c 700 %s/openclip/bpe_simple_vocab.txt >merges.txt",
                      pl_test_dir(), data(), data())
                  .code,
              0);

    refuses(5, "cut short", BERT "--tokenizer vocab.txt --prompt a");
    refuses(5, "cut short", CLIP "--tokenizer merges.txt --prompt a");
    refuses(5, "no/such", BERT "--text no/such");
    CHECK(cli_write(pl_test_path("latin1.txt"), "a fox\ncaf\xe9\n"));
    refuses(5, "line 2: the text is not UTF-8", BERT "--text latin1.txt");
    CHECK(cli_write(pl_test_path("none.txt"), ""));
    refuses(5, "no prompt", BERT "--text none.txt");
    CHECK_RUN(cli_run("cd %s && D=%s && $P embed " BERT "--prompt a --out bad.txt", pl_test_dir(),
                      data()),
              2, "must end in .npy or .safetensors");
    CHECK(access(pl_test_path("bad.txt"), F_OK) != 0);
}

/* Copies the DistilBERT file to `name` with one tensor renamed, given another type or cut short. */
static bool spoil(const char *name, const char *from, const char *to)
{
    char path[1024], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/distilbert/model.safetensors", data());
    if (pl_sys_read_file(path, 1 << 20, &text, &n) != PL_OK) return false;
    char *at = memmem(text, n, from, strlen(from));
    if (at) memcpy(at, to, strlen(to));
    bool ok = at && pl_sys_write_file(pl_test_path(name), text, n) == PL_OK;
    pl_sys_free(text);
    return ok;
}

TEST(embed_refuses_weights_with_missing_tensors_or_other_types)
{
    WANT(PL_TOKENIZER_WORDPIECE);
    CHECK(spoil("a.safetensors", "transformer.layer.1.ffn.lin2.bias",
                "transformer.layer.1.ffn.lin2.bear"));

    refuses(6, "layer.1.ffn.lin2.bias", BERT "--weights a.safetensors --prompt a heads=4");
    CHECK(spoil("a.safetensors", "\"dtype\":\"F32\",\"shape\":[20,20]",
                "\"dtype\":\"I32\",\"shape\":[20,20]"));

    refuses(6, "i32[20,20]", BERT "--weights a.safetensors --prompt a heads=4");
    CHECK(spoil("a.safetensors", "\"shape\":[20,20]", "\"shape\":[40,10]"));

    refuses(6, "[40,10]", BERT "--weights a.safetensors --prompt a heads=4");
    CHECK_INT(cli_run("cd %s && head -c 3000 %s/distilbert/model.safetensors >a.safetensors",
                      pl_test_dir(), data())
                  .code,
              0);

    refuses(6, "a.safetensors", BERT "--weights a.safetensors --prompt a heads=4");
    CHECK(cli_write(pl_test_path("config.json"), "{\"n_heads\": \"many\"}"));
    CHECK(spoil("a.safetensors", "transformer", "transformer"));

    refuses(6, "n_heads", BERT "--weights a.safetensors --prompt a");
    CHECK(cli_write(pl_test_path("config.json"), "{\"activation\": \"swish\", \"n_heads\": 4}"));
    refuses(6, "swish", BERT "--weights a.safetensors --prompt a");
    CHECK(cli_write(pl_test_path("config.json"), "{\"n_heads\": "));
    refuses(6, "config.json", BERT "--weights a.safetensors --prompt a");
}
