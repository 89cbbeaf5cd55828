/* sums.c - the checksums that ONNX files of ours carry (io/file.h), and the comparison.
 *
 * They are the first two entries of metadata_props, before all other fields of the model:
 *
 *     plimsoll.xxh64        16 digits: the file, with these digits as '0'
 *     plimsoll.data.xxh64   16 digits, a space, a name: the file beside it that has the tensors;
 *                           only where there is one
 *
 * Every reader takes the fields of a message in any order. A program that
 * loads the model and saves it keeps the entries, but writes them after the graph: there they are
 * not compared.
 */
#include "onnx/onnx.h"

#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN      "plimsoll."
#define DATA_KEY OWN "data.xxh64"
enum { ENTRY_BYTES = 512, BLOCK = 1 << 18, TAG = 14 << 3 | 2, KEY_TAG = 1 << 3 | 2 };

static void put_bytes(pl_str *s, int tag, const char *data, size_t n)
{
    char head[3] = {(char)tag, (char)(n & 127), 0};
    size_t m = 2;
    if (n > 127) {
        head[1] = (char)(head[1] | 128);
        head[m++] = (char)(n >> 7); /* names have fewer than 2^14 bytes */
    }
    pl_str_addn(s, head, m);
    pl_str_addn(s, data, n);
}

static void put_entry(pl_str *s, const char *key, const char *value)
{
    pl_str m = PL_STR_INIT;
    put_bytes(&m, KEY_TAG, key, strlen(key));
    put_bytes(&m, 2 << 3 | 2, value, strlen(value));
    if (!m.failed) put_bytes(s, TAG, m.text, m.len);
    s->failed |= m.failed;
    pl_str_release(&m);
}

void pl_ox_put_sums(pl_str *s, const char *data, uint64_t data_sum)
{
    char value[320];
    put_entry(s, PL_SUM_KEY, PL_SUM_ZEROS);
    if (!data) return;
    snprintf(value, sizeof value, "%016llx %s", (unsigned long long)data_sum, data);
    put_entry(s, DATA_KEY, value);
}

/* Whether the entry that begins at `at` has this key; *value: the offset behind the key. */
static bool has_key(const pl_file *f, uint64_t at, uint64_t end, const char *key, uint64_t *value)
{
    char text[64];
    size_t n = strlen(key);
    if (end - at < n + 2 || pl_file_read(f, at, n + 2, text) != PL_OK) return false;
    *value = at + n + 2;
    return text[0] == KEY_TAG && (size_t)text[1] == n && memcmp(text + 2, key, n) == 0;
}

bool pl_ox_is_own(const pl_file *f, uint64_t body, uint64_t end)
{
    char text[2 + sizeof OWN - 1];
    return end - body >= sizeof text && pl_file_read(f, body, sizeof text, text) == PL_OK &&
           text[0] == KEY_TAG && memcmp(text + 2, OWN, sizeof OWN - 1) == 0;
}

/* Reads the value of the second entry; value[0] is 0 when there is none. */
static pl_status data_entry(const pl_file *f, char value[ENTRY_BYTES])
{
    uint8_t head[3];
    uint64_t at = PL_OX_SUM_AT + PL_SUM_DIGITS, from;
    value[0] = 0;
    if (f->size < at + ENTRY_BYTES) return PL_OK;
    PL_TRY(pl_file_read(f, at, sizeof head, head));
    uint64_t n = (uint64_t)(head[1] & 127) | (head[1] > 127 ? (uint64_t)head[2] << 7 : 0);
    at += head[1] > 127 ? 3 : 2;
    if (head[0] != TAG || n > ENTRY_BYTES - 1 || !has_key(f, at, at + n, DATA_KEY, &from))
        return PL_OK;
    PL_TRY(pl_file_read(f, from, (size_t)(at + n - from), value));
    size_t skip = (uint8_t)value[1] > 127 ? 3 : 2, rest = (size_t)(at + n - from);
    if (rest < skip) rest = skip;
    memmove(value, value + skip, rest - skip);
    value[rest - skip] = 0;
    return PL_OK;
}

static pl_status verify_data(const pl_onnx *o, const char *name, uint64_t stored)
{
    char path[4096];
    pl_file f = PL_FILE_NONE;
    uint64_t hash = 0, own;
    bool has_sum;
    PL_FAIL_IF(!name[0] || strchr(name, '/'), PL_ERR_FILE,
               "%s is damaged: its tensors are in '%s', outside the folder of the model", o->path,
               name);
    int n = snprintf(path, sizeof path, "%s/%s", o->folder, name);
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof path, PL_ERR_FILE, "%s: the path is too long", o->path);
    pl_status rc = pl_file_open(path, PL_ERR_FILE, &f);
    PL_FAIL_IF(rc == PL_ERR_IO, PL_ERR_FILE, "%s: its tensors are missing: %s", o->path,
               pl_error_text());
    PL_TRY(rc);
    if (!pl_file_is_verified(&f)) {
        void *block = pl_sys_alloc(BLOCK);
        rc = block ? pl_file_sum(&f, block, BLOCK, &hash, &has_sum, &own) : PL_ERR_MEMORY;
        pl_sys_free(block);
        if (rc == PL_OK && hash != stored) rc = pl_file_damaged(path, "XXH64", hash, stored);
        if (rc == PL_OK) pl_file_set_verified(&f);
    }
    pl_file_close(&f);
    return rc;
}

pl_status pl_ox_verify(const pl_onnx *o)
{
    char value[ENTRY_BYTES], *end;
    bool has_sum;
    PL_TRY(pl_file_verify(&o->file, &has_sum));
    if (!has_sum) return PL_OK;
    PL_TRY(data_entry(&o->file, value));
    if (!value[0]) return PL_OK;
    uint64_t stored = strtoull(value, &end, 16);
    return verify_data(o, end[0] == ' ' ? end + 1 : "", stored);
}
