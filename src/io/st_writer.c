/* st_writer.c - writes safetensors and PyTorch's files; the contract is in safetensors.h.
 *
 * safetensors: tensors are ordered by descending alignment of their dtype, then by name, so each
 * begins at a multiple of its element's size. The header is padded with spaces until the data begin
 * at a page boundary; every reader accepts that, and large tensors can then be read with direct I/O
 * or mapped.
 *
 * PyTorch: tensor k, in the order of declaration, is the zip member data/k. Metadata are entries
 * beside the dictionary of tensors; a file whose tensors are the outermost dictionary has none.
 */
#include "base/arena.h"
#include "base/sys.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/tensors/pt_writer.h"
#include "io/tensors/zip.h"

#include <stdlib.h>
#include <string.h>

#define DATA_ALIGN 4096u
#define MAX_HEADER 100000000u
#define SUM_AT     (9 + sizeof "\"__metadata__\":{\"" PL_SUM_KEY "\":\"" - 1) /* in the file */
#define MAX_BYTES  ((uint64_t)1 << 48)

typedef struct entry {
    const char *name;
    pl_type type;
    pl_st_dtype dtype;
    int index; /* order of declaration */
    uint64_t bytes;
} entry;

typedef struct pair {
    const char *key, *value;
} pair;

struct pl_st_writer {
    pl_arena arena;
    const char *path;
    entry *entry; /* by declaration, then, after begin, by place in the file */
    pair *meta;
    int n_entries, cap_entries, n_meta, cap_meta;
    pl_file_writer *file; /* NULL before begin */
    int current;          /* place of the tensor being written */
    uint64_t written;     /* bytes of it */
    bool failed, finished;
    /* PyTorch */
    bool pt, alone; /* alone: the file is one tensor, not a dictionary */
    pl_zip_writer *zip;
    const char *under; /* entry that holds the tensors; NULL: they are the outermost dictionary */
    pair *extra;       /* further entries: key, JSON */
    int n_extra, cap_extra;
};

pl_status pl_st_writer_new(const char *path, pl_st_writer **out)
{
    pl_st_writer *w = pl_sys_alloc(sizeof *w);
    if (!w) return PL_ERR_MEMORY;
    w->path = pl_arena_strdup(&w->arena, path);
    w->pt = pl_pt_named(path);
    if (!w->path) {
        pl_st_writer_free(w);
        return PL_ERR_MEMORY;
    }
    *out = w;
    return PL_OK;
}

void pl_st_writer_free(pl_st_writer *w)
{
    if (!w) return;
    pl_zip_writer_free(w->zip);
    pl_file_writer_free(w->file);
    pl_sys_free(w->entry);
    pl_sys_free(w->extra);
    pl_sys_free(w->meta);
    pl_arena_release(&w->arena);
    pl_sys_free(w);
}

/* Makes room for one more of n items of `size` bytes. */
static pl_status grow(void **items, int n, int *cap, size_t size)
{
    if (n < *cap) return PL_OK;
    int more = *cap ? *cap * 2 : 32;
    void *p = pl_sys_realloc(*items, (size_t)*cap * size, (size_t)more * size);
    if (!p) return PL_ERR_MEMORY;
    *items = p;
    *cap = more;
    return PL_OK;
}

static pl_st_dtype dtype_of(pl_dtype d)
{
    static const int map[] = {
#define ROW(name, bits, dtype) dtype,
        PL_ST_DTYPE_LIST(ROW)
#undef ROW
    };
    int i = 0;
    while (i < PL_ST_N_DTYPES && map[i] != (int)d) i++;
    if (i == PL_ST_N_DTYPES) PL_BUG("dtype %d has no safetensors form", (int)d);
    return (pl_st_dtype)i;
}

pl_status pl_st_writer_add(pl_st_writer *w, const char *name, const pl_type *type)
{
    PL_FAIL_IF(w->file, PL_ERR_ARG, "%.200s: tensor \"%.80s\" declared after begin", w->path, name);
    PL_FAIL_IF(!pl_utf8_valid(name, strlen(name)) || strcmp(name, "__metadata__") == 0, PL_ERR_ARG,
               "%.200s: \"%.80s\" cannot be the name of a tensor", w->path, name);
    uint64_t bytes = pl_dtype_bytes(type->dtype);
    for (int i = 0; i < type->rank; i++)
        PL_FAIL_IF(
            type->dim[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)type->dim[i], &bytes) ||
                bytes >= MAX_BYTES || (uint64_t)type->dim[i] >= MAX_BYTES,
            PL_ERR_ARG, "%.200s: tensor \"%.80s\": dimension %d is %lld, more than a file holds",
            w->path, name, i, (long long)type->dim[i]);
    void *items = w->entry;
    PL_TRY(grow(&items, w->n_entries, &w->cap_entries, sizeof *w->entry));
    w->entry = items;
    const char *copy = pl_arena_strdup(&w->arena, name);
    if (!copy) return PL_ERR_MEMORY;
    w->entry[w->n_entries] = (entry){copy, *type, dtype_of(type->dtype), w->n_entries, bytes};
    w->n_entries++;
    return PL_OK;
}

pl_status pl_st_writer_meta(pl_st_writer *w, const char *key, const char *value)
{
    PL_FAIL_IF(w->file, PL_ERR_ARG, "%.200s: metadata \"%.80s\" given after begin", w->path, key);
    PL_FAIL_IF(!pl_utf8_valid(key, strlen(key)) || !pl_utf8_valid(value, strlen(value)), PL_ERR_ARG,
               "%.200s: metadata \"%.80s\" is not UTF-8", w->path, key);
    if (strcmp(key, PL_SUM_KEY) == 0) return PL_OK; /* of the file that metadata are copied from */
    for (int i = 0; i < w->n_meta; i++)
        PL_FAIL_IF(strcmp(w->meta[i].key, key) == 0, PL_ERR_ARG,
                   "%.200s: metadata \"%.80s\" given twice", w->path, key);
    void *items = w->meta;
    PL_TRY(grow(&items, w->n_meta, &w->cap_meta, sizeof *w->meta));
    w->meta = items;
    pair p = {pl_arena_strdup(&w->arena, key), pl_arena_strdup(&w->arena, value)};
    if (!p.key || !p.value) return PL_ERR_MEMORY;
    w->meta[w->n_meta++] = p;
    return PL_OK;
}

pl_status pl_st_writer_under(pl_st_writer *w, const char *key)
{
    w->under = pl_arena_strdup(&w->arena, key);
    return w->under ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl_st_writer_entry(pl_st_writer *w, const char *key, const char *json)
{
    void *items = w->extra;
    PL_TRY(grow(&items, w->n_extra, &w->cap_extra, sizeof *w->extra));
    w->extra = items;
    pair p = {pl_arena_strdup(&w->arena, key), pl_arena_strdup(&w->arena, json)};
    if (!p.key || !p.value) return PL_ERR_MEMORY;
    w->extra[w->n_extra++] = p;
    return PL_OK;
}

void pl_st_writer_alone(pl_st_writer *w)
{
    w->alone = w->pt;
}

static int by_place(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int bits = pl_st_dtype_bits(y->dtype) - pl_st_dtype_bits(x->dtype);
    return bits ? bits : strcmp(x->name, y->name);
}

static int by_index(const void *a, const void *b)
{
    return ((const entry *)a)->index - ((const entry *)b)->index;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static pl_status sort_entries(pl_st_writer *w)
{
    if (w->n_entries == 0) return PL_OK;
    qsort(w->entry, (size_t)w->n_entries, sizeof *w->entry, by_name);
    for (int i = 1; i < w->n_entries; i++)
        PL_FAIL_IF(by_name(&w->entry[i - 1], &w->entry[i]) == 0, PL_ERR_ARG,
                   "%.200s: tensor \"%.80s\" declared twice", w->path, w->entry[i].name);
    qsort(w->entry, (size_t)w->n_entries, sizeof *w->entry, w->pt ? by_index : by_place);
    return PL_OK;
}

/* The checksum comes first, at the place that file_sum.c knows; commit writes its digits. */
static void header_meta(const pl_st_writer *w, pl_str *h)
{
    pl_str_add(h, "\"__metadata__\":{\"" PL_SUM_KEY "\":\"" PL_SUM_ZEROS "\"");
    for (int i = 0; i < w->n_meta; i++) {
        pl_str_add(h, ",");
        pl_json_quote(h, w->meta[i].key, strlen(w->meta[i].key));
        pl_str_add(h, ":");
        pl_json_quote(h, w->meta[i].value, strlen(w->meta[i].value));
    }
    pl_str_add(h, "}");
}

static void header_tensor(const entry *e, uint64_t begin, pl_str *h)
{
    pl_json_quote(h, e->name, strlen(e->name));
    pl_str_addf(h, ":{\"dtype\":\"%s\",\"shape\":[", pl_st_dtype_name(e->dtype));
    for (int i = 0; i < e->type.rank; i++)
        pl_str_addf(h, "%s%lld", i ? "," : "", (long long)e->type.dim[i]);
    pl_str_addf(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                (unsigned long long)(begin + e->bytes));
}

/* The whole header with its length word and padding. */
static pl_status make_header(const pl_st_writer *w, pl_str *h)
{
    uint64_t at = 0;
    pl_str_addn(h, "\0\0\0\0\0\0\0\0{", 9);
    header_meta(w, h);
    for (int i = 0; i < w->n_entries; i++) {
        pl_str_add(h, ",");
        header_tensor(&w->entry[i], at, h);
        at += w->entry[i].bytes; /* fewer than 2^31 entries below 2^48: no wrap */
        PL_FAIL_IF(at >= MAX_BYTES, PL_ERR_ARG, "%.200s: the tensors take 2^48 bytes or more",
                   w->path);
    }
    pl_str_add(h, "}");
    while (!h->failed && h->len % DATA_ALIGN != 0) pl_str_add(h, " ");
    PL_FAIL_IF(h->failed, PL_ERR_MEMORY, "out of memory for the header of %.200s", w->path);
    PL_FAIL_IF(h->len - 8 > MAX_HEADER, PL_ERR_ARG,
               "%.200s: a header of %zu bytes, at most %u are allowed", w->path, h->len - 8,
               MAX_HEADER);
    uint64_t n = h->len - 8;
    for (int i = 0; i < 8; i++) h->text[i] = (char)(n >> (8 * i) & 0xFF);
    return PL_OK;
}

/* ---- PyTorch ---------------------------------------------------------------------------- */
static void pickle_tensors(const pl_st_writer *w, pl_str *p)
{
    if (w->alone && w->n_entries == 1) {
        pl_pt_tensor(p, &w->entry[0].type, 0);
        return;
    }
    pl_pt_open(p, true);
    for (int i = 0; i < w->n_entries; i++) {
        pl_pt_key(p, w->entry[i].name);
        pl_pt_tensor(p, &w->entry[i].type, i);
    }
    pl_pt_close(p);
}

static pl_status make_pickle(const pl_st_writer *w, pl_str *p)
{
    pl_pt_begin(p);
    if (w->under) {
        pl_pt_open(p, false);
        for (int i = 0; i < w->n_extra; i++) {
            pl_pt_key(p, w->extra[i].key);
            PL_TRY(pl_pt_json(p, w->extra[i].value));
        }
        pl_pt_key(p, w->under);
    }
    pickle_tensors(w, p);
    for (int i = 0; w->under && i < w->n_meta; i++) {
        pl_pt_key(p, w->meta[i].key);
        pl_pt_text(p, w->meta[i].value);
    }
    if (w->under) pl_pt_close(p);
    pl_pt_end(p);
    PL_FAIL_IF(p->failed, PL_ERR_MEMORY, "out of memory for the list of tensors of %.200s",
               w->path);
    return PL_OK;
}

static pl_status write_member(pl_st_writer *w, const char *name, const void *data, size_t bytes)
{
    PL_TRY(pl_zip_writer_begin(w->zip, name, bytes));
    return pl_zip_writer_write(w->zip, data, bytes);
}

static pl_status begin_zip(pl_st_writer *w, const pl_str *pickle)
{
    PL_TRY(pl_zip_writer_new(w->file, &w->zip));
    PL_TRY(write_member(w, "archive/data.pkl", pickle->text, pickle->len));
    PL_TRY(write_member(w, "archive/byteorder", "little", 6));
    return write_member(w, "archive/version", "3\n", 2);
}

/* Begins the zip member of the current tensor, if there is one. */
static pl_status begin_tensor(pl_st_writer *w)
{
    char name[40];
    if (!w->zip || w->current >= w->n_entries) return PL_OK;
    snprintf(name, sizeof name, "archive/data/%d", w->current);
    return pl_zip_writer_begin(w->zip, name, w->entry[w->current].bytes);
}

/* ---- either ----------------------------------------------------------------------------- */
/* Moves past tensors that are complete; those without bytes are as soon as they are reached. */
static pl_status skip_complete(pl_st_writer *w)
{
    while (w->current < w->n_entries && w->written == w->entry[w->current].bytes) {
        w->current++;
        w->written = 0;
        PL_TRY(begin_tensor(w));
    }
    return PL_OK;
}

pl_status pl_st_writer_begin(pl_st_writer *w)
{
    PL_FAIL_IF(w->file || w->finished, PL_ERR_ARG, "%.200s: begin was called twice", w->path);
    PL_TRY(sort_entries(w));
    pl_str h = PL_STR_INIT;
    pl_status rc = w->pt ? make_pickle(w, &h) : make_header(w, &h);
    if (rc == PL_OK) rc = pl_file_writer_new(w->path, &w->file);
    if (rc == PL_OK) rc = w->pt ? begin_zip(w, &h) : pl_file_writer_write(w->file, h.text, h.len);
    pl_str_release(&h);
    if (rc == PL_OK) rc = begin_tensor(w);
    if (rc == PL_OK) rc = skip_complete(w);
    w->failed = rc != PL_OK;
    return rc;
}

int pl_st_writer_order(const pl_st_writer *w, int position)
{
    return w->entry[position].index;
}

pl_status pl_st_writer_write(pl_st_writer *w, int index, const void *data, size_t bytes)
{
    PL_FAIL_IF(!w->file || w->failed, PL_ERR_ARG,
               "%.200s: the file was not begun, or an earlier write failed", w->path);
    if (bytes == 0) return PL_OK;
    PL_FAIL_IF(w->current >= w->n_entries || w->entry[w->current].index != index, PL_ERR_ARG,
               "%.200s: the bytes of tensor %d were given out of order", w->path, index);
    const entry *e = &w->entry[w->current];
    PL_FAIL_IF(bytes > e->bytes - w->written, PL_ERR_ARG,
               "%.200s: tensor \"%.80s\" has %llu bytes, %llu+%zu were given", w->path, e->name,
               (unsigned long long)e->bytes, (unsigned long long)w->written, bytes);
    pl_status rc = w->zip ? pl_zip_writer_write(w->zip, data, bytes)
                          : pl_file_writer_write(w->file, data, bytes);
    w->written += bytes;
    if (rc == PL_OK) rc = skip_complete(w);
    w->failed = rc != PL_OK;
    return rc;
}

pl_status pl_st_writer_finish(pl_st_writer *w)
{
    PL_FAIL_IF(!w->file || w->failed || w->finished, PL_ERR_ARG,
               "%.200s: the file was not begun, an earlier write failed, or it is finished",
               w->path);
    PL_FAIL_IF(w->current < w->n_entries, PL_ERR_ARG,
               "%.200s: tensor \"%.80s\" has %llu bytes, %llu were given", w->path,
               w->entry[w->current].name, (unsigned long long)w->entry[w->current].bytes,
               (unsigned long long)w->written);
    w->finished = true;
    if (w->zip)
        PL_TRY(pl_zip_writer_finish(w->zip));
    else
        pl_file_writer_sum_at(w->file, SUM_AT);
    return pl_file_writer_commit(w->file);
}

void pl_st_writer_sum(const pl_st_writer *w, uint64_t *bytes, uint64_t *hash)
{
    *bytes = pl_file_writer_bytes(w->file);
    *hash = pl_file_writer_hash(w->file);
}
