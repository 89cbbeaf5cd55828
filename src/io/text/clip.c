/* clip.c - CLIP's tokenizer: lower case, words cut by kind of character, byte pairs merged within a
 * word, with "</w>" at the end of the last part.
 *
 *     words   's 't 're 've 'm 'll 'd | letters | one digit | other characters, no spaces
 *
 * Text is first composed (NFC). Files of the transformers library name every token; the list of
 * merges alone (bpe_simple_vocab_16e6.txt, as OpenAI and OpenCLIP have it) implies the numbers: 256
 * bytes, 256 bytes that end a word, the results of the merges, start token, end token.
 */
#include "base/str.h"
#include "base/sys.h"
#include "io/text/tokenizer.h"
#include "io/text/unicode.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define START       "<|startoftext|>"
#define END         "<|endoftext|>"
#define END_OF_WORD "</w>"

/* MOST_MERGES: a list of merges has more lines than the vocabulary of 49,408 tokens uses. */
enum { MOST_MERGES = 49152 - 256 - 2, MAX_WORD = 1 << 13, MAX_PAIR = 1024 };

/* ---- vocabularies ------------------------------------------------------------------------- */
/* Writes the character of a byte in a vocabulary file. */
static size_t write_byte(int byte, char *to)
{
    uint32_t c = (uint32_t)byte;
    for (uint32_t k = 0; pl_bpe_byte_of(c) != byte; k++) c = 0x100 + k;
    return (size_t)pl_char_write((int32_t)c, to);
}

/* The tokens of single bytes; the numbers of others are -1. */
static void find_bytes(pl_tokenizer *t)
{
    char text[16];
    for (int ends = 0; ends < 2; ends++)
        for (int b = 0; b < 256; b++) {
            size_t n = write_byte(b, text);
            if (ends) memcpy(text + n, END_OF_WORD, 4), n += 4;
            t->byte[ends][b] = pl_vocab_find(&t->vocab, text, n);
        }
}

static pl_status add_merge(pl_tokenizer *t, const char *a, size_t n, const char *b, size_t m,
                           int32_t rank, bool makes, const char *path)
{
    char joined[MAX_PAIR];
    PL_FAIL_IF(n + m > sizeof joined, PL_ERR_DATA, "%s: merge %d has more than %d bytes", path,
               rank + 1, MAX_PAIR);
    memcpy(joined, a, n);
    memcpy(joined + n, b, m);
    if (makes) PL_TRY(pl_vocab_add(&t->vocab, joined, n + m, 512 + rank));
    int32_t first = pl_vocab_find(&t->vocab, a, n), second = pl_vocab_find(&t->vocab, b, m),
            both = pl_vocab_find(&t->vocab, joined, n + m);
    PL_FAIL_IF(
        first < 0 || second < 0 || both < 0, PL_ERR_DATA,
        "%s: merge %d, \"%.*s %.*s\": the vocabulary has no token for a part or for the result",
        path, rank + 1, (int)n, a, (int)m, b);
    pl_bpe_add(&t->bpe, first, second, rank, both);
    return PL_OK;
}

static pl_status add_line(pl_tokenizer *t, const char *line, size_t n, int32_t rank, bool makes,
                          const char *path)
{
    const char *space = memchr(line, ' ', n);
    size_t first = space ? (size_t)(space - line) : 0, second = space ? n - first - 1 : 0;
    PL_FAIL_IF(!first || !second || memchr(space + 1, ' ', second), PL_ERR_DATA,
               "%s: merge %d, \"%.*s\", is not two tokens with a space between them", path,
               rank + 1, n > 60 ? 60 : (int)n, line);
    return add_merge(t, line, first, space + 1, second, rank, makes, path);
}

/* The lines of a file of merges. makes: the results of merges get their numbers here. */
static pl_status read_lines(pl_tokenizer *t, const char *text, size_t len, bool makes,
                            const char *path)
{
    int32_t rank = 0;
    for (size_t at = 0; at < len && (!makes || rank < MOST_MERGES);) {
        const char *stop = memchr(text + at, '\n', len - at);
        size_t end = stop ? (size_t)(stop - text) : len, n = end - at;
        n -= n && text[at + n - 1] == '\r';
        bool head =
            at == 0 && (memmem(text, n, "#version", 8) || memmem(text, n, "bpe_simple", 10));
        if (n && !head) PL_TRY(add_line(t, text + at, n, rank++, makes, path));
        at = end + 1;
    }
    PL_FAIL_IF(rank == 0, PL_ERR_DATA, "%s has no merges", path);
    return PL_OK;
}

/* A vocabulary that is implied by its merges. */
static pl_status make_vocabulary(pl_tokenizer *t, const char *text, size_t len, const char *path)
{
    char token[16];
    int32_t id = 0;
    PL_TRY(pl_vocab_init(&t->vocab, &t->mem, MOST_MERGES + 514));
    PL_TRY(pl_bpe_init(&t->bpe, &t->mem, MOST_MERGES));
    for (int ends = 0; ends < 2; ends++)
        for (int k = 0; k < 256; k++, id++) { /* printable bytes come first, as in GPT-2's table */
            int b = k < 94 ? '!' + k : k < 106 ? 0xA1 + k - 94 : k < 188 ? 0xAE + k - 106 : -1;
            size_t n =
                b >= 0 ? write_byte(b, token) : (size_t)pl_char_write(0x100 + k - 188, token);
            if (ends) memcpy(token + n, END_OF_WORD, 4), n += 4;
            PL_TRY(pl_vocab_add(&t->vocab, token, n, id));
        }
    PL_TRY(read_lines(t, text, len, true, path));
    id = t->vocab.count;
    PL_TRY(pl_vocab_add(&t->vocab, START, strlen(START), id));
    return pl_vocab_add(&t->vocab, END, strlen(END), id + 1);
}

static pl_status read_merges(pl_tokenizer *t, const char *path, bool makes)
{
    char *text;
    size_t len, lines = 1;
    pl_status rc = pl_sys_read_file(path, PL_MAX_VOCAB_FILE, &text, &len);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    PL_TRY(rc);
    for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
    if (len > 1 && text[0] == '\x1f' && text[1] == '\x8b')
        rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "%s is compressed: gunzip it first", path);
    else if (makes)
        rc = make_vocabulary(t, text, len, path);
    else if ((rc = pl_bpe_init(&t->bpe, &t->mem, lines)) == PL_OK)
        rc = read_lines(t, text, len, false, path);
    pl_sys_free(text);
    return rc;
}

/* model.merges of a tokenizer.json: "a b" or ["a", "b"]. */
static pl_status read_merge_list(pl_tokenizer *t, const json_t *list, const char *path)
{
    PL_FAIL_IF(!json_is_array(list), PL_ERR_DATA, "%s: model.merges is missing", path);
    PL_TRY(pl_bpe_init(&t->bpe, &t->mem, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        const char *a = json_string_value(json_array_get(m, 0)),
                   *b = json_string_value(json_array_get(m, 1)), *line = json_string_value(m);
        PL_FAIL_IF(!line && (!a || !b), PL_ERR_DATA, "%s: merge %zu is not two tokens", path,
                   i + 1);
        PL_TRY(line ? add_line(t, line, strlen(line), (int32_t)i, false, path)
                    : add_merge(t, a, strlen(a), b, strlen(b), (int32_t)i, false, path));
    }
    return PL_OK;
}

static pl_status read_tokenizer(pl_tokenizer *t, const json_t *root, const char *path)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type")),
               *tail = json_string_value(json_object_get(model, "end_of_word_suffix"));
    PL_FAIL_IF((type && strcmp(type, "BPE") != 0) || !tail || strcmp(tail, END_OF_WORD) != 0,
               PL_ERR_DATA,
               "%s: this is not CLIP's tokenizer: its model is %s, words end with \"%s\"", path,
               type ? type : "unknown", tail ? tail : "");
    PL_TRY(pl_vocab_from_json(&t->vocab, &t->mem, json_object_get(model, "vocab"), path));
    return read_merge_list(t, json_object_get(model, "merges"), path);
}

/* ---- files -------------------------------------------------------------------------------- */
static pl_status read_json(pl_tokenizer *t, const char *file)
{
    json_t *root = NULL;
    const char *merges;
    PL_TRY(pl_vocab_read_json(file, false, &root));
    pl_status rc = PL_OK;
    bool all = json_is_object(json_object_get(root, "model"));
    if (all)
        rc = read_tokenizer(t, root, file);
    else
        rc = pl_vocab_from_json(&t->vocab, &t->mem, root, file);
    json_decref(root);
    PL_TRY(rc);
    if (all) return PL_OK;
    PL_TRY(pl_tokenizer_beside(t, file, "merges.txt", &merges));
    return read_merges(t, merges, false);
}

/* The padding token that the settings beside the vocabulary name; without settings, the end token,
 * as the transformers library has it. That library takes such a token out of texts too, so that "!"
 * of Stable Diffusion's settings is token 0 there. */
static pl_status read_padding(pl_tokenizer *t, const char *file)
{
    static const char *const names[] = {"special_tokens_map.json", "tokenizer_config.json"};
    t->pad = t->end;
    for (int i = 0; i < 2; i++) {
        json_t *root;
        PL_TRY(pl_tokenizer_read_beside(t, file, names[i], &root));
        const json_t *pad = json_object_get(root, "pad_token");
        const char *text =
            json_string_value(json_is_object(pad) ? json_object_get(pad, "content") : pad);
        const char *own = text ? pl_arena_strdup(&t->mem, text) : NULL;
        bool lost = text && !own;
        int32_t id = own ? pl_vocab_find(&t->vocab, own, strlen(own)) : -1;
        json_decref(root);
        if (lost) return PL_ERR_MEMORY;
        if (id < 0) continue;
        t->pad = id;
        if (id != t->start && id != t->end) pl_tokenizer_special(t, own);
        return PL_OK;
    }
    return PL_OK;
}

pl_status pl_clip_read(pl_tokenizer *t, const char *path)
{
    static const char *const names[] = {"vocab.json", "tokenizer.json", "bpe_simple_vocab_16e6.txt",
                                        NULL};
    const char *file;
    PL_TRY(pl_tokenizer_find(t, path, names, &file));
    size_t n = strlen(file);
    bool json = n > 5 && strcmp(file + n - 5, ".json") == 0;
    PL_TRY(json ? read_json(t, file) : read_merges(t, file, true));
    t->start = pl_tokenizer_special(t, START);
    t->end = pl_tokenizer_special(t, END);
    PL_FAIL_IF(t->start < 0 || t->end < 0, PL_ERR_DATA,
               "%s: the vocabulary has no token %s: is this CLIP's?", file,
               t->start < 0 ? START : END);
    t->unknown = t->end;
    t->count = t->vocab.count;
    find_bytes(t);
    return json ? read_padding(t, file) : PL_OK;
}

/* ---- words -------------------------------------------------------------------------------- */
/* Characters of the contraction at c: 's 't 're 've 'm 'll 'd; 0: none. */
static size_t contraction(const int32_t *c, size_t n)
{
    static const char *const tails[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (c[0] != '\'') return 0;
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t m = strlen(tails[i]);
        if (n > m && c[1] == tails[i][0] && (m == 1 || c[2] == tails[i][1])) return m + 1;
    }
    return 0;
}

/* Letters, digits, or everything else but spaces. */
static pl_char_kind class_of(int32_t c)
{
    pl_char_kind k = pl_char_kind_of(c);
    return k == PL_CHAR_LETTER || k == PL_CHAR_NUMBER || k == PL_CHAR_SPACE ? k : PL_CHAR_OTHER;
}

static size_t next_word(const int32_t *c, size_t n)
{
    size_t m = contraction(c, n);
    pl_char_kind k = class_of(c[0]);
    if (m || k == PL_CHAR_NUMBER || k == PL_CHAR_SPACE) return m ? m : 1;
    for (m = 1; m < n && class_of(c[m]) == k;) m++;
    return m;
}

/* Merges the bytes of a word and appends its tokens. word has room for MAX_WORD. */
static void merge_word(const pl_tokenizer *t, const char *bytes, size_t n, int32_t *word,
                       pl_token_sink *out)
{
    for (size_t i = 0; i < n; i++) word[i] = t->byte[i + 1 == n][(uint8_t)bytes[i]];
    int64_t left = pl_bpe_merge(&t->bpe, word, (int64_t)n);
    for (int64_t i = 0; i < left; i++) pl_token_put(out, word[i] < 0 ? t->unknown : word[i]);
}

/* The lower case of a character as UTF-8; one letter becomes two. */
static void add_lower(pl_str *s, int32_t c)
{
    char bytes[4];
    if (c == 0x130)
        pl_str_add(s, "i\xCC\x87");
    else
        pl_str_addn(s, bytes, (size_t)pl_char_write(pl_char_lower(c), bytes));
}

pl_status pl_clip_split(const pl_tokenizer *t, const char *text, size_t n, pl_token_sink *out)
{
    int32_t *c = NULL, *lower = NULL, *merged = NULL;
    size_t count = 0;
    pl_str all = PL_STR_INIT;
    PL_TRY(pl_unicode_read(text, n, PL_FORM_COMPOSED, &c, &count));
    for (size_t i = 0; i < count; i++) add_lower(&all, c[i]);
    pl_sys_free(c);
    pl_status rc = all.failed ? PL_ERR_MEMORY : PL_OK;
    if (rc == PL_OK) rc = pl_unicode_read(all.text, all.len, PL_FORM_SAME, &lower, &count);
    if (rc == PL_OK && !(merged = pl_sys_alloc(MAX_WORD * sizeof *merged))) rc = PL_ERR_MEMORY;
    const char *at = all.text;
    for (size_t i = 0; rc == PL_OK && i < count;) {
        size_t chars = next_word(lower + i, count - i), bytes = 0;
        bool space = chars == 1 && pl_char_kind_of(lower[i]) == PL_CHAR_SPACE;
        for (size_t k = 0; k < chars; k++) {
            char utf8[4];
            bytes += (size_t)pl_char_write(lower[i + k], utf8);
        }
        /* a word of more bytes is merged in parts, so that the cost stays linear in the text */
        for (size_t done = 0; !space && done < bytes; done += MAX_WORD)
            merge_word(t, at + done, bytes - done < MAX_WORD ? bytes - done : MAX_WORD, merged,
                       out);
        at += bytes;
        i += chars;
    }
    pl_sys_free(lower);
    pl_sys_free(merged);
    pl_str_release(&all);
    return rc;
}
