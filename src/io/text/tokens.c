/* tokens.c - GPT-2's byte-level BPE; see plimsoll_tokens.h. Merges and the table of bytes are in
 * bpe.h. */
#include "plimsoll_tokens.h"

#include "base/sys.h"
#include "io/text/bpe.h"
#include "io/text/vocab.h"

#include <jansson.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <wctype.h>

enum { MAX_WORD = 1 << 16 };

typedef struct token_text {
    const char *at;
    uint32_t n;
} token_text;

struct pl_tokens {
    pl_arena mem;
    int32_t count;
    token_text *text;  /* by token; NULL: tokens are bytes */
    int32_t byte[256]; /* token of each byte */
    pl_bpe bpe;
    locale_t utf8;
    char bytes[256]; /* every byte once, for byte tokens */
};

/* ---- characters --------------------------------------------------------------------------- */
typedef enum kind { SPACE, LETTER, DIGIT, OTHER } kind;

static kind kind_of(const pl_tokens *t, uint32_t c)
{
    if (c < 128) {
        if ((c >= 9 && c <= 13) || c == ' ') return SPACE;
        if ((c | 32) >= 'a' && (c | 32) <= 'z') return LETTER;
        return c >= '0' && c <= '9' ? DIGIT : OTHER;
    }
    bool no_break = c == 0x85 || c == 0xA0 || c == 0x2007 || c == 0x202F;
    if (no_break || iswspace_l((wint_t)c, t->utf8)) return SPACE;
    /* superscripts, fractions and circled numbers; Roman numerals */
    bool number = c == 0xB2 || c == 0xB3 || c == 0xB9 || (c >= 0xBC && c <= 0xBE) ||
                  (c >= 0x2070 && c <= 0x2089) || (c >= 0x2150 && c <= 0x2189) ||
                  (c >= 0x2460 && c <= 0x249B);
    if (number) return DIGIT;
    return iswalpha_l((wint_t)c, t->utf8) ? LETTER : OTHER;
}

/* Length of a run of characters of one kind that begins at `at`. */
static size_t run_of(const pl_tokens *t, const char *text, size_t n, size_t at, kind k)
{
    size_t from = at, len;
    while (at < n && kind_of(t, pl_char_at(text + at, n - at, &len)) == k) at += len;
    return at - from;
}

static size_t contraction(const char *s, size_t n)
{
    static const char *const tails[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        size_t m = strlen(tails[i]);
        if (n >= m && memcmp(s, tails[i], m) == 0) return m;
    }
    return 0;
}

/* Length of the next word: GPT-2's 's|'t|'re|'ve|'m|'ll|'d| ?letters| ?digits| ?others|spaces that
 * are not followed by anything else|spaces. */
static size_t next_word(const pl_tokens *t, const char *s, size_t n)
{
    size_t len, space = contraction(s, n);
    if (space) return space;
    kind k = kind_of(t, pl_char_at(s, n, &len));
    if (k != SPACE) return run_of(t, s, n, 0, k);
    if (s[0] == ' ' && n > 1) {
        k = kind_of(t, pl_char_at(s + 1, n - 1, &len));
        if (k != SPACE) return 1 + run_of(t, s, n, 1, k);
    }
    space = run_of(t, s, n, 0, SPACE);
    if (space == n) return space;
    size_t last = 0; /* the last space belongs to the next word */
    for (size_t at = 0; at < space; at += len) {
        last = at;
        pl_char_at(s + at, n - at, &len);
    }
    return last ? last : space;
}

/* ---- tokens of a text --------------------------------------------------------------------- */
pl_status pl_tokens_encode(const pl_tokens *t, const char *text, size_t n, int32_t *out,
                           int64_t *count)
{
    int64_t done = 0;
    for (size_t at = 0; at < n;) {
        size_t len = t->text ? next_word(t, text + at, n - at) : n - at;
        if (t->text && len > MAX_WORD) len = MAX_WORD; /* keeps the cost linear in the text */
        for (size_t i = 0; i < len; i++) out[done + (int64_t)i] = t->byte[(uint8_t)text[at + i]];
        done += t->text ? pl_bpe_merge(&t->bpe, out + done, (int64_t)len) : (int64_t)len;
        at += len;
    }
    *count = done;
    return PL_OK;
}

int32_t pl_tokens_count(const pl_tokens *t)
{
    return t->count;
}

const char *pl_tokens_text(const pl_tokens *t, int32_t token, size_t *n)
{
    bool known = token >= 0 && token < t->count;
    *n = !known ? 0 : t->text ? t->text[token].n : 1;
    return !known ? "" : t->text ? t->text[token].at : &t->bytes[token];
}

/* ---- vocabularies ------------------------------------------------------------------------- */
/* The bytes of a token as a file writes it; a token with other characters is its own text. */
static pl_status text_of(pl_tokens *t, const char *written, token_text *out)
{
    size_t n = strlen(written), len;
    char *bytes = pl_arena_alloc(&t->mem, n + 1);
    if (!bytes) return PL_ERR_MEMORY;
    out->n = 0;
    for (size_t at = 0; at < n; at += len) {
        int b = pl_bpe_byte_of(pl_char_at(written + at, n - at, &len));
        if (b < 0) {
            memcpy(bytes, written, n);
            out->n = (uint32_t)n;
            break;
        }
        bytes[out->n++] = (char)b;
    }
    out->at = bytes;
    return PL_OK;
}

static pl_status read_vocabulary(pl_tokens *t, json_t *vocab, const char *path)
{
    const char *key;
    json_t *value;
    json_int_t most = -1;
    PL_FAIL_IF(!json_is_object(vocab) || json_object_size(vocab) == 0, PL_ERR_DATA,
               "%s is not a vocabulary: expected {\"token\": number, ...}", path);
    json_object_foreach(vocab, key, value)
    {
        json_int_t id = json_integer_value(value);
        PL_FAIL_IF(!json_is_integer(value) || id < 0 || id >= PL_MAX_TOKENS, PL_ERR_DATA,
                   "%s: token \"%.60s\" has no number from 0 to %d", path, key, PL_MAX_TOKENS - 1);
        if (id > most) most = id;
    }
    t->count = (int32_t)most + 1;
    t->text = pl_arena_new(&t->mem, token_text, t->count);
    if (!t->text) return PL_ERR_MEMORY;
    for (int b = 0; b < 256; b++) t->byte[b] = -1;
    json_object_foreach(vocab, key, value)
    {
        token_text *to = &t->text[json_integer_value(value)];
        PL_TRY(text_of(t, key, to));
        if (to->n == 1) t->byte[(uint8_t)to->at[0]] = (int32_t)json_integer_value(value);
    }
    for (int b = 0; b < 256; b++)
        PL_FAIL_IF(t->byte[b] < 0, PL_ERR_DATA,
                   "%s: byte %d has no token: this is not a byte-level vocabulary", path, b);
    return PL_OK;
}

static pl_status add_merge(pl_tokens *t, json_t *vocab, const char *a, const char *b, int32_t rank,
                           const char *path)
{
    char joined[1024];
    int n = snprintf(joined, sizeof joined, "%s%s", a, b);
    const json_t *first = json_object_get(vocab, a), *second = json_object_get(vocab, b);
    const json_t *both = n > 0 && (size_t)n < sizeof joined ? json_object_get(vocab, joined) : NULL;
    PL_FAIL_IF(
        !first || !second || !both, PL_ERR_DATA,
        "%s: merge %d, \"%.60s %.60s\": the vocabulary has no token for a part or for the result",
        path, rank + 1, a, b);
    pl_bpe_add(&t->bpe, (int32_t)json_integer_value(first), (int32_t)json_integer_value(second),
               rank, (int32_t)json_integer_value(both));
    return PL_OK;
}

/* "a b": splits the text at its space. */
static pl_status add_line(pl_tokens *t, json_t *vocab, char *line, int32_t rank, const char *path)
{
    char *space = strchr(line, ' ');
    PL_FAIL_IF(!space || space == line || !space[1], PL_ERR_DATA,
               "%s: merge %d, \"%.60s\", is not two tokens with a space between them", path,
               rank + 1, line);
    *space = 0;
    return add_merge(t, vocab, line, space + 1, rank, path);
}

static pl_status read_merges(pl_tokens *t, json_t *vocab, const char *path)
{
    char *text;
    size_t len, lines = 0;
    PL_TRY(pl_sys_read_file(path, PL_MAX_VOCAB_FILE, &text, &len));
    for (size_t i = 0; i < len; i++) lines += text[i] == '\n';
    pl_status rc = pl_bpe_init(&t->bpe, &t->mem, lines + 1);
    int32_t rank = 0;
    char *save = NULL;
    for (char *l = strtok_r(text, "\n", &save); l && rc == PL_OK; l = strtok_r(NULL, "\n", &save)) {
        l[strcspn(l, "\r")] = 0;
        if (strncmp(l, "#version", 8) == 0 || !*l) continue;
        rc = add_line(t, vocab, l, rank++, path);
    }
    pl_sys_free(text);
    return rc;
}

/* model.merges of a tokenizer.json: "a b" or ["a", "b"]. */
static pl_status read_merge_list(pl_tokens *t, json_t *vocab, const json_t *list, const char *path)
{
    char line[1024];
    PL_TRY(pl_bpe_init(&t->bpe, &t->mem, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        const char *a = json_string_value(json_array_get(m, 0)),
                   *b = json_string_value(json_array_get(m, 1));
        if (json_is_string(m)) {
            snprintf(line, sizeof line, "%s", json_string_value(m));
            PL_TRY(add_line(t, vocab, line, (int32_t)i, path));
        } else {
            PL_FAIL_IF(!a || !b, PL_ERR_DATA, "%s: merge %zu is not two tokens", path, i + 1);
            PL_TRY(add_merge(t, vocab, a, b, (int32_t)i, path));
        }
    }
    return PL_OK;
}

/* Whether words are cut as GPT-2 cuts them; a "Sequence" of cutters is another scheme. */
static bool is_byte_level(const json_t *root)
{
    const json_t *cut = json_object_get(root, "pre_tokenizer");
    const char *type = json_string_value(json_object_get(cut, "type"));
    return type && strcmp(type, "ByteLevel") == 0 &&
           !json_is_false(json_object_get(cut, "use_regex"));
}

static pl_status read_tokenizer(pl_tokens *t, const json_t *root, const char *path)
{
    const json_t *model = json_object_get(root, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    PL_FAIL_IF((type && strcmp(type, "BPE") != 0) || !is_byte_level(root), PL_ERR_DATA,
               "%s: only byte-level BPE (GPT-2's scheme) is read; its model is %s", path,
               type ? type : "unknown");
    json_t *vocab = json_object_get(model, "vocab");
    PL_TRY(read_vocabulary(t, vocab, path));
    return read_merge_list(t, vocab, json_object_get(model, "merges"), path);
}

static pl_status read_files(pl_tokens *t, const char *path)
{
    char vocab_path[4096];
    struct stat st;
    json_t *root = NULL;
    PL_FAIL_IF(stat(path, &st) != 0, PL_ERR_DATA, "%s: no such file or folder", path);
    bool folder = S_ISDIR(st.st_mode);
    snprintf(vocab_path, sizeof vocab_path, "%s%s", path, folder ? "/vocab.json" : "");
    if (folder && stat(vocab_path, &st) != 0)
        snprintf(vocab_path, sizeof vocab_path, "%s/tokenizer.json", path);
    pl_status rc = pl_vocab_read_json(vocab_path, false, &root);
    if (rc == PL_OK && json_object_get(root, "model")) {
        rc = read_tokenizer(t, root, vocab_path);
    } else if (rc == PL_OK) {
        rc = read_vocabulary(t, root, vocab_path);
        char *slash = strrchr(vocab_path, '/'), *name = slash ? slash + 1 : vocab_path;
        size_t room = sizeof vocab_path - (size_t)(name - vocab_path);
        if (rc == PL_OK && snprintf(name, room, "merges.txt") >= (int)room) name[0] = 0;
        if (rc == PL_OK) rc = read_merges(t, root, vocab_path);
    }
    json_decref(root);
    return rc == PL_ERR_IO ? PL_ERR_DATA : rc;
}

pl_status pl_tokens_open(const char *path, pl_tokens **out)
{
    pl_tokens *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    t->count = 256;
    t->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    for (int b = 0; b < 256; b++) t->byte[b] = b, t->bytes[b] = (char)b;
    pl_status rc = t->utf8 ? PL_OK
                           : pl__fail(PL_ERR_UNSUPPORTED, __FILE__, __LINE__,
                                      "the C library has no locale C.UTF-8");
    if (rc == PL_OK && path) rc = read_files(t, path);
    if (rc != PL_OK) {
        pl_tokens_close(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

void pl_tokens_close(pl_tokens *t)
{
    if (!t) return;
    if (t->utf8) freelocale(t->utf8);
    pl_arena_release(&t->mem);
    pl_sys_free(t);
}
