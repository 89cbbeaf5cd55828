/* test_tokenizers.c - the tokenizers of text encoders, against the numbers of the tokenizers,
 * transformers and sentencepiece libraries (tests/data/encoders, written by
 * tools/oracle/encoder_numbers.py). */
#include "base/sys.h"
#include "io/safetensors.h"
#include "plimsoll_tokens.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LENGTH = 64 };

static const struct {
    const char *path;
    pl_tokenizer_kind kind;
    const char *reference;
} cases[] = {
    {"distilbert", PL_TOKENIZER_WORDPIECE, "distilbert"},
    {"distilbert/vocab.txt", PL_TOKENIZER_WORDPIECE, "distilbert"},
    {"distilbert-json", PL_TOKENIZER_WORDPIECE, "distilbert"},
    {"clip", PL_TOKENIZER_CLIP, "clip"},
    {"clip/vocab.json", PL_TOKENIZER_CLIP, "clip"},
    {"openclip/bpe_simple_vocab.txt", PL_TOKENIZER_CLIP, "openclip"},
    {"umt5", PL_TOKENIZER_SENTENCEPIECE, "umt5"},
    {"umt5/spiece.model", PL_TOKENIZER_SENTENCEPIECE, "umt5"},
};

static const char *data(const char *name)
{
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "tests/data/encoders/%s", name);
    return path[turn];
}

static void compare(const pl_tokenizer *t, const char *name, const char *reference)
{
    char file[256], *text;
    size_t len;
    pl_st_reader *f;
    snprintf(file, sizeof file, "tests/data/encoders/%s/reference.safetensors", reference);
    CHECK_OK(pl_st_open(file, &f));
    const pl_st_tensor *ids = pl_st_find(f, "ids"), *lengths = pl_st_find(f, "lengths");
    CHECK(ids && lengths && ids->dim[1] <= LENGTH);
    int64_t rows = ids->dim[0], n = ids->dim[1], count = 0;
    int32_t *want = malloc((size_t)(rows * n) * 4), *many = malloc((size_t)rows * 4), got[LENGTH];
    CHECK_OK(pl_st_read(f, ids, want, (size_t)(rows * n) * 4));
    CHECK_OK(pl_st_read(f, lengths, many, (size_t)rows * 4));
    CHECK_OK(pl_sys_read_file(data("prompts.txt"), 1 << 20, &text, &len));
    const char *at = text;
    for (int64_t r = 0; r < rows; r++) {
        const char *stop = strchr(at, '\n');
        CHECK_OK(pl_tokenizer_encode(t, at, (size_t)(stop - at), got, n, &count));
        CHECK_MSG(count == many[r], "%s, line %d: %d tokens, wanted %d", name, (int)r + 1,
                  (int)count, many[r]);
        for (int64_t k = 0; k < n; k++)
            CHECK_MSG(got[k] == want[r * n + k], "%s, line %d, token %d: %d, wanted %d", name,
                      (int)r + 1, (int)k, got[k], want[r * n + k]);
        at = stop + 1;
    }
    pl_st_close(f);
    pl_sys_free(text);
    free(want);
    free(many);
}

static void compare_kind(pl_tokenizer_kind kind)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_tokenizer *t;
        if (cases[i].kind != kind) continue;
        CHECK_OK(pl_tokenizer_open(data(cases[i].path), kind, &t));
        compare(t, cases[i].path, cases[i].reference);
        pl_tokenizer_close(t);
    }
}

#define WANT_TOKENIZER(kind)                                                                       \
 if (pl_tokenizer_missing(kind)) SKIP(pl_tokenizer_missing(kind))

TEST(tokenizer_wordpiece_gives_the_tokens_of_the_tokenizers_library)
{
    WANT_TOKENIZER(PL_TOKENIZER_WORDPIECE);
    compare_kind(PL_TOKENIZER_WORDPIECE);
}

TEST(tokenizer_clip_gives_the_tokens_of_the_transformers_library)
{
    WANT_TOKENIZER(PL_TOKENIZER_CLIP);
    compare_kind(PL_TOKENIZER_CLIP);
}

TEST(tokenizer_sentencepiece_gives_the_tokens_of_its_library)
{
    WANT_TOKENIZER(PL_TOKENIZER_SENTENCEPIECE);
    compare_kind(PL_TOKENIZER_SENTENCEPIECE);
}

/* ---- bad files and texts ------------------------------------------------------------------ */
static bool put(const char *name, const char *text, size_t n)
{
    FILE *f = fopen(pl_test_path(name), "wb");
    bool ok = f && fwrite(text, 1, n, f) == n;
    return f && fclose(f) == 0 && ok;
}

/* Whether the file is refused as bad data, with these words in the message. */
static void refuses(pl_tokenizer_kind kind, const char *name, const char *text, const char *words)
{
    pl_tokenizer *t;
    CHECK(put(name, text, strlen(text)));
    pl_status rc = pl_tokenizer_open(pl_test_path(name), kind, &t);
    CHECK_MSG(rc == PL_ERR_DATA && strstr(pl_error_text(), words) && strstr(pl_error_text(), name),
              "%s: %s: %s", text, pl_status_name(rc), pl_error_text());
}

TEST(tokenizer_files_that_are_damaged_or_of_another_kind_are_refused)
{
    WANT_TOKENIZER(PL_TOKENIZER_WORDPIECE);
    pl_tokenizer_kind piece = PL_TOKENIZER_WORDPIECE, clip = PL_TOKENIZER_CLIP;
    refuses(piece, "vocab.txt", "a\nb\n[CLS]\n", "[PAD]");
    refuses(piece, "vocab.txt", "", "[PAD]");
    refuses(piece, "vocab.txt", "[PAD]\n[UNK]\na\xff\n", "line 3 is not text in UTF-8");
    refuses(piece, "t.json", "{\"model\": {\"type\": \"BPE\"}}", "WordPiece is needed");
    refuses(piece, "t.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}",
            "BertNormalizer");
    refuses(piece, "t.json", "{\"model\": {\"type\": \"Wor", "t.json:1:");
    refuses(clip, "v.json", "{\"a\": -1}", "no number");
    refuses(clip, "v.json", "{\"a\": \"b\"}", "no number");
    refuses(clip, "t.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}",
            "not CLIP's");
    refuses(clip, "t.json",
            "{\"model\": {\"type\": \"BPE\", \"end_of_word_suffix\": \"</w>\", \"vocab\": {\"a\": "
            "0}, \"merges\": [\"a b\"]}}",
            "no token for a part");
    refuses(clip, "merges.txt", "#version\nabc\n", "two tokens");
    refuses(clip, "merges.txt", "#version\n", "no merges");
    refuses(clip, "merges.txt", "\x1f\x8b\x08", "gunzip");
    pl_tokenizer *t;

    CHECK(pl_tokenizer_open("no/such", piece, &t) == PL_ERR_DATA);
    CHECK(pl_tokenizer_open(pl_test_dir(), PL_TOKENIZER_CLIP, &t) == PL_ERR_DATA &&
          strstr(pl_error_text(), "vocab.json"));
}

/* Settings as the transformers library writes them: a number that no integer holds, and cased
 * text. */
TEST(tokenizer_settings_beside_a_vocabulary_are_read)
{
    WANT_TOKENIZER(PL_TOKENIZER_WORDPIECE);
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nfox\nFox\n";
    static const char settings[] =
        "{\"do_lower_case\": false, \"model_max_length\": 1000000000000000019884624838656}";
    pl_tokenizer *t;
    int32_t ids[4];
    int64_t n;

    CHECK(put("vocab.txt", vocab, strlen(vocab)));
    for (int cased = 0; cased < 2; cased++) {
        if (cased) CHECK(put("tokenizer_config.json", settings, strlen(settings)));
        CHECK_OK(pl_tokenizer_open(pl_test_dir(), PL_TOKENIZER_WORDPIECE, &t));
        CHECK_OK(pl_tokenizer_encode(t, "Fox", 3, ids, 4, &n));
        CHECK_INT(ids[1], cased ? 5 : 4);
        pl_tokenizer_close(t);
    }
}

/* Without settings CLIP's padding is the end token, as in the transformers library; a list of
 * merges is OpenCLIP's, whose padding is token 0. */
TEST(tokenizer_clip_pads_as_the_library_of_its_files)
{
    static const char *const path[] = {"tests/data/encoders/clip",
                                       "tests/data/encoders/openclip/bpe_simple_vocab.txt"};
    static const char *const files[] = {"vocab.json", "merges.txt"};
    pl_tokenizer *t;
    int32_t ids[4];
    int64_t n;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(pl_tokenizer_open(path[i], PL_TOKENIZER_CLIP, &t)); /* "!" of the settings is 0 */
        CHECK_OK(pl_tokenizer_encode(t, "", 0, ids, 4, &n));
        CHECK(n == 2 && ids[2] == 0 && ids[3] == 0);
        pl_tokenizer_close(t);
    }
    for (int i = 0; i < 2; i++) {
        char from[200], *text;
        size_t len;
        snprintf(from, sizeof from, "%s/%s", path[0], files[i]);
        CHECK_OK(pl_sys_read_file(from, 1 << 20, &text, &len));
        CHECK(put(files[i], text, len));
        pl_sys_free(text);
    }
    CHECK_OK(pl_tokenizer_open(pl_test_dir(), PL_TOKENIZER_CLIP, &t));
    CHECK_OK(pl_tokenizer_encode(t, "", 0, ids, 4, &n));
    CHECK(n == 2 && ids[2] == ids[1] && ids[3] == ids[1]);
    pl_tokenizer_close(t);
}

/* Every prefix of a vocabulary is refused or opens; no prefix of a tokenizer.json opens. */
TEST(tokenizer_files_that_end_early_are_refused)
{
    WANT_TOKENIZER(PL_TOKENIZER_WORDPIECE);
    static const char *const file[] = {"distilbert-json/tokenizer.json",
                                       "clip-json/tokenizer.json"};
    for (int k = 0; k < 2; k++) {
        char *text;
        size_t len;
        pl_tokenizer *t;
        CHECK_OK(pl_sys_read_file(data(file[k]), 1 << 20, &text, &len));
        for (size_t n = 0; n + 2 < len; n += len / 23) {
            CHECK(put("tokenizer.json", text, n));
            CHECK_INT(pl_tokenizer_open(pl_test_path("tokenizer.json"), (pl_tokenizer_kind)k, &t),
                      PL_ERR_DATA);
        }
        pl_sys_free(text);
    }
}

TEST(tokenizer_sentencepiece_models_that_are_damaged_are_refused)
{
    WANT_TOKENIZER(PL_TOKENIZER_SENTENCEPIECE);
    char *text;
    size_t len;
    pl_tokenizer *t;
    CHECK_OK(pl_sys_read_file(data("umt5/spiece.model"), 1 << 20, &text, &len));
    for (size_t n = 0; n < len; n += len / 7 + 1) {
        CHECK(put("spiece.model", text, n));
        pl_status rc =
            pl_tokenizer_open(pl_test_path("spiece.model"), PL_TOKENIZER_SENTENCEPIECE, &t);
        CHECK_MSG(rc == PL_ERR_DATA, "%zu bytes: %s", n, pl_status_name(rc));
    }
    pl_sys_free(text);
}

TEST(tokenizer_texts_that_are_not_utf8_are_refused)
{
    for (int k = 0; k < 3; k++) {
        static const char *const path[] = {"distilbert", "clip", "umt5"};
        pl_tokenizer *t;
        int32_t ids[8];
        int64_t n;
        if (pl_tokenizer_missing((pl_tokenizer_kind)k)) continue;
        CHECK_OK(pl_tokenizer_open(data(path[k]), (pl_tokenizer_kind)k, &t));
        CHECK_INT(pl_tokenizer_encode(t, "caf\xe9", 4, ids, 8, &n), PL_ERR_DATA);
        CHECK_INT(pl_tokenizer_encode(t, "\xf0\x9f", 2, ids, 8, &n), PL_ERR_DATA);
        CHECK_INT(pl_tokenizer_encode(t, "a", 1, ids, 1, &n), PL_ERR_ARG);
        CHECK_OK(pl_tokenizer_encode(t, "a fox", 5, ids, 2, &n));
        CHECK(n > 2);
        pl_tokenizer_close(t);
    }
}
