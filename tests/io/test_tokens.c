/* test_tokens.c - text to tokens and back: bytes, and byte-level BPE against the numbers of the
 * tokenizers library (tests/data/tokens, written by tools/oracle/token_numbers.py). */
#include "plimsoll_tokens.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

/* Encodes the text and decodes the tokens; returns whether the same bytes come back. */
static bool comes_back(const pl_tokens *t, const char *text, size_t n, int32_t *tokens,
                       int64_t *count)
{
    char back[512];
    size_t at = 0, len;
    if (pl_tokens_encode(t, text, n, tokens, count) != PL_OK) return false;
    for (int64_t i = 0; i < *count; i++) {
        const char *part = pl_tokens_text(t, tokens[i], &len);
        if (at + len > sizeof back) return false;
        memcpy(back + at, part, len);
        at += len;
    }
    return at == n && memcmp(back, text, n) == 0;
}

TEST(tokens_without_a_vocabulary_are_bytes)
{
    pl_tokens *t;
    int32_t out[8];
    int64_t n;
    CHECK_OK(pl_tokens_open(NULL, &t));

    CHECK_INT(pl_tokens_count(t), 256);
    CHECK(comes_back(t, "a\xc3\xa9\0z", 5, out, &n));
    CHECK_INT(n, 5);
    CHECK(out[0] == 'a' && out[1] == 0xc3 && out[3] == 0 && out[4] == 'z');
    pl_tokens_close(t);
}

static void compare_with_library(const char *path)
{
    json_t *rows = json_load_file("tests/data/tokens/texts.json", 0, NULL), *row;
    pl_tokens *t;
    size_t i;
    CHECK(rows && json_array_size(rows) > 5);
    CHECK_OK(pl_tokens_open(path, &t));
    json_array_foreach(rows, i, row)
    {
        const char *text = json_string_value(json_object_get(row, "text"));
        const json_t *want = json_object_get(row, "tokens");
        int32_t got[256];
        int64_t n;
        CHECK_MSG(comes_back(t, text, strlen(text), got, &n), "\"%s\" does not come back", text);
        bool same = n == (int64_t)json_array_size(want);
        for (int64_t k = 0; same && k < n; k++)
            same = got[k] == json_integer_value(json_array_get(want, (size_t)k));
        CHECK_MSG(same, "%s: \"%s\" has other tokens", path, text);
    }
    json_decref(rows);
    pl_tokens_close(t);
}

TEST(tokens_of_a_vocabulary_agree_with_the_tokenizers_library)
{
    compare_with_library("tests/data/tokens");
    compare_with_library("tests/data/tokens/vocab.json");
    compare_with_library("tests/data/tokens/tokenizer.json");
}

/* Bytes that are not UTF-8, and every byte alone, are text too. */
TEST(tokens_take_any_bytes)
{
    pl_tokens *t;
    int32_t out[256];
    int64_t n;
    char all[256];
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    CHECK_OK(pl_tokens_open("tests/data/tokens", &t));

    CHECK(comes_back(t, all, 256, out, &n));
    CHECK(comes_back(t, "\xff\xfe the \xc3", 8, out, &n));
    CHECK(comes_back(t, "\xf0\x9f", 2, out, &n));
    pl_tokens_close(t);
}

TEST(tokens_bad_vocabularies_are_refused)
{
    static const struct {
        const char *vocab, *merges, *says;
    } bad[] = {
        {"{\"a\": 0", "", "vocab.json:1"},
        {"{}", "", "is not a vocabulary"},
        {"[1]", "", "is not a vocabulary"},
        {"{\"a\": \"x\"}", "", "has no number"},
        {"{\"a\": -1}", "", "has no number"},
        {"{\"a\": 0}", "", "has no token: this is not a byte-level vocabulary"},
        {"{\"model\": {\"type\": \"Unigram\"}}", "", "only byte-level BPE"},
    };
    char path[600];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pl_tokens *t = NULL;
        snprintf(path, sizeof path, "%s/vocab.json", pl_test_dir());
        CHECK(cli_write(path, bad[i].vocab));
        snprintf(path, sizeof path, "%s/merges.txt", pl_test_dir());
        CHECK(cli_write(path, bad[i].merges));
        CHECK_INT(pl_tokens_open(pl_test_dir(), &t), PL_ERR_DATA);
        CHECK_MSG(strstr(pl_error_text(), bad[i].says), "%s: %s", bad[i].vocab, pl_error_text());
    }
    pl_tokens *t = NULL;

    CHECK_INT(pl_tokens_open("/nowhere/at/all", &t), PL_ERR_DATA);
}
