/* wordpiece.c - BERT's tokenizer: the text is cleaned and cut at spaces and punctuation; every word
 * is taken apart into the longest tokens of the vocabulary, from the left.
 *
 * Cleaning drops control characters and makes every space a blank; each Chinese character is a
 * word; lower case drops accents (the characters of NFD that take no space). A word of which a part
 * is not in the vocabulary is one unknown token. The order of these steps, and the characters that
 * count as space or punctuation, follow the tokenizers library, which writes these files.
 */
#include "base/str.h"
#include "base/sys.h"
#include "io/json.h"
#include "io/text/tokenizer.h"
#include "io/text/unicode.h"

#include <jansson.h>
#include <string.h>

enum { LONGEST_WORD = 100 };

/* ---- reading ------------------------------------------------------------------------------ */
/* A flag of a tokenizer's settings; null and absent: the fallback. */
static bool flag(const json_t *object, const char *key, bool fallback)
{
    const json_t *v = json_object_get(object, key);
    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

static pl_status read_lines(pl_tokenizer *t, const char *path)
{
    char *text;
    size_t len, lines = 1;
    pl_status rc = pl_sys_read_file(path, PL_MAX_VOCAB_FILE, &text, &len);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    PL_TRY(rc);
    for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
    if (lines > PL_MAX_TOKENS)
        rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "%s has more than %d lines", path,
                      PL_MAX_TOKENS);
    if (rc == PL_OK) rc = pl_vocab_init(&t->vocab, &t->mem, lines);
    int32_t id = 0;
    for (size_t at = 0; at < len && rc == PL_OK; id++) {
        const char *stop = memchr(text + at, '\n', len - at);
        size_t end = stop ? (size_t)(stop - text) : len, n = end - at;
        n -= n && text[at + n - 1] == '\r';
        if (memchr(text + at, 0, n) || !pl_utf8_valid(text + at, n)) {
            rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__,
                          "%s: line %d is not text in UTF-8: the file is damaged", path, id + 1);
            break;
        }
        rc = pl_vocab_add(&t->vocab, text + at, n, id);
        at = end + 1;
    }
    pl_sys_free(text);
    return rc;
}

static pl_status read_tokenizer(pl_tokenizer *t, const json_t *root, const char *path)
{
    const json_t *model = json_object_get(root, "model"),
                 *rules = json_object_get(root, "normalizer");
    const char *type = json_string_value(json_object_get(model, "type")),
               *form = json_string_value(json_object_get(rules, "type")),
               *cut = json_string_value(
                   json_object_get(json_object_get(root, "pre_tokenizer"), "type")),
               *more = json_string_value(json_object_get(model, "continuing_subword_prefix"));
    PL_FAIL_IF(!type || strcmp(type, "WordPiece") != 0, PL_ERR_DATA,
               "%s: its model is %s; WordPiece is needed", path, type ? type : "unknown");
    PL_FAIL_IF(!form || strcmp(form, "BertNormalizer") != 0 || !cut ||
                   strcmp(cut, "BertPreTokenizer") != 0,
               PL_ERR_DATA,
               "%s: its normalizer is %s and its pre_tokenizer %s; BertNormalizer and "
               "BertPreTokenizer are read",
               path, form ? form : "missing", cut ? cut : "missing");
    t->lower = flag(rules, "lowercase", true);
    t->strip_accents = flag(rules, "strip_accents", t->lower);
    t->clean = flag(rules, "clean_text", true);
    t->spread_cjk = flag(rules, "handle_chinese_chars", true);
    const json_t *longest = json_object_get(model, "max_input_chars_per_word");
    if (json_is_integer(longest)) t->longest = (int64_t)json_integer_value(longest);
    if (more && !(t->more = pl_arena_strdup(&t->mem, more))) return PL_ERR_MEMORY;
    return pl_vocab_from_json(&t->vocab, &t->mem, json_object_get(model, "vocab"), path);
}

static pl_status read_vocabulary(pl_tokenizer *t, const char *file)
{
    size_t n = strlen(file);
    json_t *root = NULL, *settings = NULL;
    if (n > 5 && strcmp(file + n - 5, ".json") == 0) {
        PL_TRY(pl_vocab_read_json(file, false, &root));
        pl_status rc = read_tokenizer(t, root, file);
        json_decref(root);
        return rc;
    }
    PL_TRY(pl_tokenizer_read_beside(t, file, "tokenizer_config.json", &settings));
    t->lower = flag(settings, "do_lower_case", true);
    t->strip_accents = flag(settings, "strip_accents", t->lower);
    t->spread_cjk = flag(settings, "tokenize_chinese_chars", true);
    json_decref(settings);
    return read_lines(t, file);
}

pl_status pl_wordpiece_read(pl_tokenizer *t, const char *path)
{
    static const char *const names[] = {"vocab.txt", "tokenizer.json", NULL};
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    const char *file;
    int32_t id[5];
    t->clean = true;
    t->longest = LONGEST_WORD;
    t->more = "##";
    PL_TRY(pl_tokenizer_find(t, path, names, &file));
    PL_TRY(read_vocabulary(t, file));
    for (int i = 0; i < 5; i++) {
        id[i] = pl_tokenizer_special(t, special[i]);
        PL_FAIL_IF(i < 4 && id[i] < 0, PL_ERR_DATA,
                   "%s: the vocabulary has no token %s: is this BERT's vocab.txt?", file,
                   special[i]);
    }
    t->pad = id[0];
    t->unknown = id[1];
    t->start = id[2];
    t->end = id[3];
    t->count = t->vocab.count;
    return PL_OK;
}

/* ---- words -------------------------------------------------------------------------------- */
static bool is_chinese(int32_t c)
{
    static const int32_t range[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                       {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                       {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1]) return true;
    return false;
}

/* Whether cleaning drops the character. */
static bool is_dropped(int32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r') return false;
    return c == 0 || c == 0xFFFD || c < 32 || c == 0x85 || pl_char_kind_of(c) == PL_CHAR_CONTROL;
}

static bool is_punctuation(int32_t c)
{
    if (c < 128)
        return c > 32 && c < 127 && !((c | 32) >= 'a' && (c | 32) <= 'z') &&
               !(c >= '0' && c <= '9');
    return pl_char_kind_of(c) == PL_CHAR_PUNCT;
}

/* Appends the text, cleaned and spread, as UTF-8: the parts of the normal form. */
static void clean(const pl_tokenizer *t, const int32_t *c, size_t n, pl_str *out)
{
    char bytes[4];
    for (size_t i = 0; i < n; i++) {
        if (t->clean && is_dropped(c[i])) continue;
        bool blank = t->clean && pl_char_kind_of(c[i]) == PL_CHAR_SPACE;
        bool apart = t->spread_cjk && is_chinese(c[i]);
        if (apart) pl_str_addn(out, " ", 1);
        pl_str_addn(out, blank ? " " : bytes, blank ? 1 : (size_t)pl_char_write(c[i], bytes));
        if (apart) pl_str_addn(out, " ", 1);
    }
}

/* Appends the tokens of a word, which is UTF-8. */
static void split_word(const pl_tokenizer *t, const char *word, size_t n, pl_str *scratch,
                       pl_token_sink *out)
{
    int64_t first = out->n, chars = 0;
    size_t more = strlen(t->more);
    for (size_t i = 0; i < n; i++) chars += ((uint8_t)word[i] & 0xC0) != 0x80;
    for (size_t at = 0; at < n && chars <= t->longest;) {
        int32_t id = -1;
        size_t end = n;
        scratch->len = 0;
        if (at) pl_str_addn(scratch, t->more, more);
        size_t lead = scratch->len;
        pl_str_addn(scratch, word + at, n - at);
        if (scratch->failed) return;
        for (; end > at; end--) {
            if (end < n && ((uint8_t)word[end] & 0xC0) == 0x80) continue; /* inside a character */
            if ((id = pl_vocab_find(&t->vocab, scratch->text, lead + end - at)) >= 0) break;
        }
        if (id < 0) {
            out->n = first;
            chars = t->longest + 1;
            break;
        }
        pl_token_put(out, id);
        at = end;
    }
    if (chars > t->longest) pl_token_put(out, t->unknown);
}

pl_status pl_wordpiece_split(const pl_tokenizer *t, const char *text, size_t n, pl_token_sink *out)
{
    int32_t *c = NULL;
    size_t count = 0;
    pl_str clear = PL_STR_INIT, word = PL_STR_INIT, scratch = PL_STR_INIT;
    PL_TRY(pl_unicode_read(text, n, PL_FORM_SAME, &c, &count));
    clean(t, c, count, &clear);
    pl_sys_free(c);
    c = NULL;
    count = 0;
    pl_status rc = clear.failed ? PL_ERR_MEMORY : PL_OK;
    if (rc == PL_OK && clear.len)
        rc = pl_unicode_read(clear.text, clear.len,
                             t->strip_accents ? PL_FORM_DECOMPOSED : PL_FORM_SAME, &c, &count);
    for (size_t i = 0; rc == PL_OK && i <= count; i++) {
        bool end = i == count || pl_char_kind_of(c[i]) == PL_CHAR_SPACE;
        bool mark = !end && is_punctuation(c[i]);
        char bytes[4];
        if ((end || mark) && word.len) {
            split_word(t, word.text, word.len, &scratch, out);
            word.len = 0;
        }
        if (end || (t->strip_accents && pl_char_kind_of(c[i]) == PL_CHAR_ACCENT)) continue;
        int len = pl_char_write(t->lower ? pl_char_lower(c[i]) : c[i], bytes);
        if (mark)
            split_word(t, bytes, (size_t)len, &scratch, out);
        else
            pl_str_addn(&word, bytes, (size_t)len);
        if (word.failed || scratch.failed) rc = PL_ERR_MEMORY;
    }
    pl_sys_free(c);
    pl_str_release(&clear);
    pl_str_release(&word);
    pl_str_release(&scratch);
    return rc;
}
