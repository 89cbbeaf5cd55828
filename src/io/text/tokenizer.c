/* tokenizer.c - opens the tokenizers of text encoders, and lays their tokens out in a row of fixed
 * length; see plimsoll_tokens.h and tokenizer.h. */
#include "io/text/tokenizer.h"

#include "base/sys.h"
#include "io/json.h"
#include "io/text/unicode.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    pl_status (*read)(pl_tokenizer *t, const char *path);
    pl_status (*split)(const pl_tokenizer *t, const char *text, size_t n, pl_token_sink *out);
    const char *(*missing)(void);
} kinds[] = {
    [PL_TOKENIZER_WORDPIECE] = {pl_wordpiece_read, pl_wordpiece_split, pl_unicode_missing},
    [PL_TOKENIZER_CLIP] = {pl_clip_read, pl_clip_split, pl_unicode_missing},
    [PL_TOKENIZER_SENTENCEPIECE] = {pl_sentencepiece_read, pl_sentencepiece_split,
                                    pl_sentencepiece_missing},
};

const char *pl_tokenizer_missing(pl_tokenizer_kind kind)
{
    return kinds[kind].missing();
}

/* ---- files -------------------------------------------------------------------------------- */
pl_status pl_tokenizer_find(pl_tokenizer *t, const char *path, const char *const *names,
                            const char **out)
{
    struct stat st;
    char list[256] = "";
    PL_FAIL_IF(stat(path, &st) != 0, PL_ERR_DATA, "%s: no such file or folder", path);
    *out = S_ISDIR(st.st_mode) ? NULL : path;
    for (int i = 0; !*out && names[i]; i++) {
        const char *file = pl_arena_printf(&t->mem, "%s/%s", path, names[i]);
        if (!file) return PL_ERR_MEMORY;
        if (stat(file, &st) == 0) *out = file;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    PL_FAIL_IF(!*out, PL_ERR_DATA, "%s: the folder has no tokenizer: %s", path, list);
    return PL_OK;
}

pl_status pl_tokenizer_beside(pl_tokenizer *t, const char *file, const char *name, const char **out)
{
    const char *slash = strrchr(file, '/');
    *out = pl_arena_printf(&t->mem, "%.*s%s", slash ? (int)(slash - file) + 1 : 0, file, name);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl_tokenizer_read_beside(pl_tokenizer *t, const char *file, const char *name,
                                   json_t **out)
{
    const char *path;
    *out = NULL;
    PL_TRY(pl_tokenizer_beside(t, file, name, &path));
    /* model_max_length of such files is 1e30, written as a whole number */
    return access(path, F_OK) == 0 ? pl_vocab_read_json(path, true, out) : PL_OK;
}

int32_t pl_tokenizer_special(pl_tokenizer *t, const char *text)
{
    int32_t id = pl_vocab_find(&t->vocab, text, strlen(text));
    if (id < 0 || t->n_special == PL_MAX_SPECIALS) return id;
    t->special[t->n_special].text = text;
    t->special[t->n_special++].id = id;
    return id;
}

pl_status pl_tokenizer_open(const char *path, pl_tokenizer_kind kind, pl_tokenizer **out)
{
    const char *missing = pl_tokenizer_missing(kind);
    PL_FAIL_IF(missing, PL_ERR_UNSUPPORTED, "%s: %s", path, missing);
    pl_tokenizer *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    t->kind = kind;
    t->start = -1;
    pl_status rc = kinds[kind].read(t, path);
    if (rc == PL_OK)
        *out = t;
    else
        pl_tokenizer_close(t);
    return rc;
}

void pl_tokenizer_close(pl_tokenizer *t)
{
    if (!t) return;
    pl_sentencepiece_close(t);
    pl_arena_release(&t->mem);
    pl_sys_free(t);
}

int32_t pl_tokenizer_count(const pl_tokenizer *t)
{
    return t->count;
}

/* ---- a text ------------------------------------------------------------------------------- */
/* Returns the place of the next special token in the text and sets *which; n: there is none. */
static size_t next_special(const pl_tokenizer *t, const char *text, size_t n, int *which)
{
    size_t best = n;
    for (int i = 0; i < t->n_special; i++) {
        const char *special = t->special[i].text;
        const char *at = memmem(text, best, special, strlen(special));
        if (at) best = (size_t)(at - text), *which = i;
    }
    return best;
}

pl_status pl_tokenizer_encode(const pl_tokenizer *t, const char *text, size_t n, int32_t *ids,
                              int64_t length, int64_t *count)
{
    pl_token_sink out = {.to = ids, .cap = length};
    PL_FAIL_IF(length < 2, PL_ERR_ARG, "a row of %lld tokens has no room for a text",
               (long long)length);
    PL_FAIL_IF(!pl_utf8_valid(text, n), PL_ERR_DATA, "the text is not UTF-8");
    if (t->start >= 0) pl_token_put(&out, t->start);
    for (size_t at = 0; at < n;) {
        int which = 0;
        size_t stop = at + next_special(t, text + at, n - at, &which);
        if (stop > at) PL_TRY(kinds[t->kind].split(t, text + at, stop - at, &out));
        at = stop;
        if (at == n) break;
        pl_token_put(&out, t->special[which].id);
        at += strlen(t->special[which].text);
    }
    pl_token_put(&out, t->end);
    if (out.n > length) ids[length - 1] = t->end;
    for (int64_t i = out.n; i < length; i++) ids[i] = t->pad;
    *count = out.n;
    return PL_OK;
}
