/* vocab.c - see vocab.h. */
#include "io/text/vocab.h"

#include "base/sys.h"

#include <jansson.h>
#include <string.h>
#include <xxhash.h>

struct pl_vocab_row {
    const char *text; /* NULL: an empty place */
    size_t n;
    int32_t id;
};

pl_status pl_vocab_init(pl_vocab *v, pl_arena *mem, size_t n)
{
    uint64_t size = 16;
    while (size < 2 * n) size *= 2;
    *v = (pl_vocab){.mem = mem, .mask = size - 1};
    v->rows = pl_arena_new(mem, pl_vocab_row, size);
    return v->rows ? PL_OK : PL_ERR_MEMORY;
}

/* The row of the text, or the empty place where it belongs. */
static pl_vocab_row *place(const pl_vocab *v, const char *text, size_t n)
{
    uint64_t i = XXH64(text, n, 0) & v->mask;
    while (v->rows[i].text && (v->rows[i].n != n || memcmp(v->rows[i].text, text, n) != 0))
        i = (i + 1) & v->mask;
    return &v->rows[i];
}

pl_status pl_vocab_add(pl_vocab *v, const char *text, size_t n, int32_t id)
{
    pl_vocab_row *row = place(v, text, n);
    if (!row->text && !(row->text = pl_arena_strndup(v->mem, text, n))) return PL_ERR_MEMORY;
    row->n = n;
    row->id = id;
    if (id >= v->count) v->count = id + 1;
    return PL_OK;
}

int32_t pl_vocab_find(const pl_vocab *v, const char *text, size_t n)
{
    const pl_vocab_row *row = place(v, text, n);
    return row->text ? row->id : -1;
}

pl_status pl_vocab_from_json(pl_vocab *v, pl_arena *mem, const json_t *object, const char *path)
{
    const char *key;
    json_t *value, *rows = (json_t *)(uintptr_t)object; /* jansson's loop takes no const */
    PL_FAIL_IF(!json_is_object(object) || json_object_size(object) == 0, PL_ERR_DATA,
               "%s is not a vocabulary: expected {\"token\": number, ...}", path);
    PL_TRY(pl_vocab_init(v, mem, json_object_size(object)));
    json_object_foreach(rows, key, value)
    {
        json_int_t id = json_integer_value(value);
        PL_FAIL_IF(!json_is_integer(value) || id < 0 || id >= PL_MAX_TOKENS, PL_ERR_DATA,
                   "%s: token \"%.60s\" has no number from 0 to %d", path, key, PL_MAX_TOKENS - 1);
        PL_TRY(pl_vocab_add(v, key, strlen(key), (int32_t)id));
    }
    return PL_OK;
}

pl_status pl_vocab_read_json(const char *path, bool reals, json_t **out)
{
    char *text;
    size_t len;
    json_error_t error;
    pl_status rc = pl_sys_read_file(path, PL_MAX_VOCAB_FILE, &text, &len);
    if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    PL_TRY(rc);
    *out = json_loadb(text, len, reals ? JSON_DECODE_INT_AS_REAL : 0, &error);
    pl_sys_free(text);
    PL_FAIL_IF(!*out, PL_ERR_DATA, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    return PL_OK;
}
