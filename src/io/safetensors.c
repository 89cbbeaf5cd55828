/* safetensors.c - the reader; the writer is st_writer.c. The rules S1..S7 are in safetensors.h.
 * Files of PyTorch are recognised by their first bytes; tensors/pt.c reads them.
 *
 * A header may have 100 MB and a million entries, and a JSON tree of it would take ten times that.
 * So a small scanner that knows only strings and brackets splits the header into the members of its
 * outer object, and jansson parses one member at a time: memory beyond the header's own bytes stays
 * proportional to the number of tensors, and depth and counts are known before any tree is built.
 * What the scanner wrongly accepts, jansson refuses, because each piece must be complete JSON by
 * itself; the scanner fully checks what is between the pieces (only white space, colons and
 * commas).
 *
 * Names are then sorted to find duplicates and for look-ups, offsets are sorted to prove S7.
 */
#include "io/safetensors.h"

#include "base/arena.h"
#include "base/sys.h"
#include "io/tensors/st_int.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HEADER  100000000u
#define MAX_TENSORS 1000000
#define MAX_META    100000
#define MAX_DEPTH   4
#define MAX_DIMS    64
#define MAX_SIZE    ((int64_t)1 << 48) /* dimensions and offsets stay below */
#define NAME_SHOWN  80                 /* characters of a tensor's name in a message */

static const struct dtype_row {
    const char *name;
    int bits, dtype;
} dtype_rows[] = {
#define ROW(name, bits, dtype) {#name, bits, dtype},
    PL_ST_DTYPE_LIST(ROW)
#undef ROW
};

const char *pl_st_dtype_name(pl_st_dtype d)
{
    return dtype_rows[d].name;
}

int pl_st_dtype_bits(pl_st_dtype d)
{
    return dtype_rows[d].bits;
}

/* ---- cutting the header into members ---------------------------------------------------- */

typedef struct scan {
    const char *p, *end;
    const char *file; /* for messages */
} scan;

static void skip_space(scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

/* Moves past a string whose opening quote is at p; jansson checks the escapes inside. */
static pl_status skip_string(scan *s)
{
    for (s->p++; s->p < s->end && *s->p != '"'; s->p++)
        if (*s->p == '\\' && s->p + 1 < s->end) s->p++;
    PL_FAIL_IF(s->p >= s->end, PL_ERR_FILE, "%.200s: a string in the header does not end", s->file);
    s->p++;
    return PL_OK;
}

/* Moves past one value, counting levels (the outer object is level 1) and items, so that the
 * tree jansson builds of it is bounded. */
static pl_status skip_value(scan *s)
{
    int depth = 1, items = 0;
    const char *start = s->p;
    while (s->p < s->end) {
        char c = *s->p;
        if (depth == 1 && s->p > start && (c == ',' || c == '}')) return PL_OK;
        if (c == '"') {
            PL_TRY(skip_string(s));
            continue;
        }
        if (c == '{' || c == '[') {
            PL_FAIL_IF(++depth > MAX_DEPTH, PL_ERR_FILE,
                       "%.200s: the header is nested deeper than %d levels", s->file, MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            if (--depth < 1) break;
        } else if (c == ',') {
            PL_FAIL_IF(++items >= MAX_META, PL_ERR_FILE,
                       "%.200s: an entry of the header has more than %d items", s->file, MAX_META);
        }
        s->p++;
    }
    PL_FAIL(PL_ERR_FILE, "%.200s: the header's JSON ends too early or its brackets do not match",
            s->file);
}

static pl_status expect(scan *s, char c)
{
    skip_space(s);
    PL_FAIL_IF(s->p >= s->end || *s->p != c, PL_ERR_FILE,
               "%.200s: the header is not JSON: '%c' expected", s->file, c);
    s->p++;
    return PL_OK;
}

/* One piece of the header as a jansson value; the caller decrefs it. */
static pl_status parse_piece(const scan *s, const char *from, size_t n, json_t **out)
{
    json_error_t err;
    json_t *v = json_loadb(from, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &err);
    if (!v) {
        PL_FAIL_IF(json_error_code(&err) == json_error_out_of_memory, PL_ERR_MEMORY,
                   "out of memory while reading the header of %.200s", s->file);
        PL_FAIL(PL_ERR_FILE, "%.200s: the header is not valid JSON: %.120s, in %.*s", s->file,
                err.text, (int)(n < NAME_SHOWN ? n : NAME_SHOWN), from);
    }
    *out = v;
    return PL_OK;
}

/* ---- one member: a tensor, or the metadata ---------------------------------------------- */

/* `tag` is "file: tensor NAME", the beginning of every message about it. */
static pl_status parse_size(const char *tag, const char *what, const json_t *v, int64_t *out)
{
    PL_FAIL_IF(!json_is_integer(v), PL_ERR_FILE,
               "%s: %s holds something that is not a whole number", tag, what);
    int64_t n = json_integer_value(v);
    PL_FAIL_IF(n < 0 || n >= MAX_SIZE, PL_ERR_FILE, "%s: %s holds %lld, which is not in [0, 2^48)",
               tag, what, (long long)n);
    *out = n;
    return PL_OK;
}

static pl_status parse_shape(pl_st_reader *r, const char *tag, const json_t *v, pl_st_tensor *t)
{
    PL_FAIL_IF(!json_is_array(v), PL_ERR_FILE, "%s: shape is not a list", tag);
    size_t rank = json_array_size(v);
    PL_FAIL_IF(rank > MAX_DIMS, PL_ERR_FILE, "%s: rank %zu, at most %d are read", tag, rank,
               MAX_DIMS);
    int64_t *dim = pl_arena_new(&r->arena, int64_t, rank);
    if (!dim) return PL_ERR_MEMORY;
    for (size_t i = 0; i < rank; i++)
        PL_TRY(parse_size(tag, "shape", json_array_get(v, i), &dim[i]));
    t->dim = dim;
    t->rank = (int)rank;
    return PL_OK;
}

static pl_status parse_dtype(const char *tag, const json_t *v, pl_st_tensor *t)
{
    PL_FAIL_IF(!json_is_string(v), PL_ERR_FILE, "%s: dtype is not text", tag);
    const char *name = json_string_value(v);
    for (int i = 0; i < PL_ST_N_DTYPES; i++) {
        if (strcmp(name, dtype_rows[i].name) != 0) continue;
        t->dtype = (pl_st_dtype)i;
        return PL_OK;
    }
    PL_FAIL(PL_ERR_FILE, "%s: unknown dtype \"%.40s\"", tag, name);
}

/* S6. A zero among the dimensions makes the product 0, and the others stay below 2^48, so no
 * product wraps unseen. */
static pl_status check_bytes(const char *tag, const pl_st_tensor *t)
{
    uint64_t bits = (uint64_t)dtype_rows[t->dtype].bits;
    for (int i = 0; i < t->rank; i++)
        PL_FAIL_IF(__builtin_mul_overflow(bits, (uint64_t)t->dim[i], &bits), PL_ERR_FILE,
                   "%s: the product of its shape overflows at dimension %d (%lld)", tag, i,
                   (long long)t->dim[i]);
    PL_FAIL_IF(bits % 8 != 0, PL_ERR_FILE, "%s: %llu bits of %s are not whole bytes", tag,
               (unsigned long long)bits, dtype_rows[t->dtype].name);
    PL_FAIL_IF(bits / 8 != t->end - t->begin, PL_ERR_FILE,
               "%s: its shape takes %llu bytes, its offsets [%llu, %llu) hold %llu", tag,
               (unsigned long long)(bits / 8), (unsigned long long)t->begin,
               (unsigned long long)t->end, (unsigned long long)(t->end - t->begin));
    return PL_OK;
}

static pl_status parse_offsets(const pl_st_reader *r, const char *tag, const json_t *v,
                               pl_st_tensor *t)
{
    PL_FAIL_IF(!json_is_array(v) || json_array_size(v) != 2, PL_ERR_FILE,
               "%s: data_offsets is not a list of two numbers", tag);
    int64_t begin, end;
    PL_TRY(parse_size(tag, "data_offsets", json_array_get(v, 0), &begin));
    PL_TRY(parse_size(tag, "data_offsets", json_array_get(v, 1), &end));
    uint64_t data = r->file.size - r->data_begin;
    PL_FAIL_IF(end < begin || (uint64_t)end > data, PL_ERR_FILE,
               "%s: data_offsets [%lld, %lld) do not lie in the file's %llu bytes of data", tag,
               (long long)begin, (long long)end, (unsigned long long)data);
    t->begin = (uint64_t)begin;
    t->end = (uint64_t)end;
    return PL_OK;
}

static pl_status parse_tensor(pl_st_reader *r, const char *name, const json_t *v, pl_st_tensor *t)
{
    char tag[300];
    snprintf(tag, sizeof tag, "%.200s: tensor \"%.*s\"", r->file.name, NAME_SHOWN, name);
    PL_FAIL_IF(!json_is_object(v), PL_ERR_FILE, "%s is not an object", tag);
    const json_t *dtype = json_object_get(v, "dtype"), *shape = json_object_get(v, "shape"),
                 *offsets = json_object_get(v, "data_offsets");
    PL_FAIL_IF(!dtype || !shape || !offsets || json_object_size(v) != 3, PL_ERR_FILE,
               "%s must have exactly dtype, shape and data_offsets", tag);
    t->name = pl_arena_strdup(&r->arena, name);
    if (!t->name) return PL_ERR_MEMORY;
    PL_TRY(parse_dtype(tag, dtype, t));
    PL_TRY(parse_shape(r, tag, shape, t));
    PL_TRY(parse_offsets(r, tag, offsets, t));
    PL_TRY(check_bytes(tag, t));
    pl__st_set_type(t);
    return PL_OK;
}

void pl__st_set_type(pl_st_tensor *t)
{
    t->loadable = dtype_rows[t->dtype].dtype >= 0 && t->rank <= PL_MAX_RANK;
    if (t->loadable) t->type = pl_type_make((pl_dtype)dtype_rows[t->dtype].dtype, t->rank, t->dim);
}

static int meta_compare(const void *a, const void *b)
{
    return strcmp(((const pl_st_pair *)a)->key, ((const pl_st_pair *)b)->key);
}

static pl_status parse_meta(pl_st_reader *r, json_t *v)
{
    PL_FAIL_IF(r->has_meta, PL_ERR_FILE, "%.200s has __metadata__ twice", r->file.name);
    PL_FAIL_IF(!json_is_object(v), PL_ERR_FILE, "%.200s: __metadata__ is not an object",
               r->file.name);
    r->has_meta = true;
    r->meta = pl_arena_new(&r->arena, pl_st_pair, json_object_size(v));
    if (!r->meta) return PL_ERR_MEMORY;
    const char *key;
    json_t *value;
    json_object_foreach(v, key, value)
    {
        PL_FAIL_IF(!json_is_string(value), PL_ERR_FILE, "%.200s: __metadata__ \"%.*s\" is not text",
                   r->file.name, NAME_SHOWN, key);
        pl_st_pair *m = &r->meta[r->n_meta++];
        m->key = pl_arena_strdup(&r->arena, key);
        m->value = pl_arena_strdup(&r->arena, json_string_value(value));
        if (!m->key || !m->value) return PL_ERR_MEMORY;
    }
    pl__st_sort_meta(r);
    return PL_OK;
}

void pl__st_sort_meta(pl_st_reader *r)
{
    if (r->n_meta) qsort(r->meta, (size_t)r->n_meta, sizeof *r->meta, meta_compare);
}

pl_status pl__st_grow(pl_st_reader *r)
{
    if (r->n_tensors < r->cap_tensors) return PL_OK;
    PL_FAIL_IF(r->n_tensors >= MAX_TENSORS, PL_ERR_FILE, "%.200s: more than %d tensors",
               r->file.name, MAX_TENSORS);
    int cap = r->cap_tensors ? r->cap_tensors * 2 : 64;
    if (cap > MAX_TENSORS) cap = MAX_TENSORS;
    pl_st_tensor *t =
        pl_sys_realloc(r->tensor, (size_t)r->cap_tensors * sizeof *t, (size_t)cap * sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    r->tensor = t;
    r->cap_tensors = cap;
    return PL_OK;
}

/* One "key": value of the outer object, from the key's quote on. */
static pl_status parse_member(pl_st_reader *r, scan *s)
{
    skip_space(s);
    const char *key_at = s->p;
    PL_FAIL_IF(s->p >= s->end || *s->p != '"', PL_ERR_FILE,
               "%.200s: the header is not JSON: a name in quotes expected", s->file);
    PL_TRY(skip_string(s));
    size_t key_len = (size_t)(s->p - key_at);
    PL_TRY(expect(s, ':'));
    const char *value_at = s->p;
    PL_TRY(skip_value(s));
    json_t *key = NULL, *value = NULL;
    pl_status rc = parse_piece(s, key_at, key_len, &key);
    if (rc == PL_OK) rc = parse_piece(s, value_at, (size_t)(s->p - value_at), &value);
    if (rc != PL_OK) goto out;
    if (strcmp(json_string_value(key), "__metadata__") == 0) {
        rc = parse_meta(r, value);
        goto out;
    }
    rc = pl__st_grow(r);
    if (rc == PL_OK) rc = parse_tensor(r, json_string_value(key), value, &r->tensor[r->n_tensors]);
    if (rc == PL_OK) r->n_tensors++;
out:
    json_decref(key);
    json_decref(value);
    return rc;
}

static pl_status parse_header(pl_st_reader *r, const char *text, size_t n)
{
    scan s = {text, text + n, r->file.name};
    PL_TRY(expect(&s, '{'));
    skip_space(&s);
    if (s.p < s.end && *s.p == '}') {
        s.p++;
    } else {
        for (bool more = true; more;) {
            PL_TRY(parse_member(r, &s));
            more = *s.p++ == ','; /* skip_value stops at ',' or '}' only */
        }
    }
    skip_space(&s);
    PL_FAIL_IF(s.p != s.end, PL_ERR_FILE, "%.200s: %zu bytes follow the header's JSON",
               r->file.name, (size_t)(s.end - s.p));
    return PL_OK;
}

/* ---- the tensors together --------------------------------------------------------------- */

static int offset_compare(const void *a, const void *b)
{
    const pl_st_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1; /* empty tensors first */
    return strcmp(x->name, y->name);
}

static int name_compare(const void *a, const void *b)
{
    return strcmp((*(pl_st_tensor *const *)a)->name, (*(pl_st_tensor *const *)b)->name);
}

/* S7: no overlap, no hole, nothing after the last. */
static pl_status check_cover(pl_st_reader *r)
{
    uint64_t at = 0, data = r->file.size - r->data_begin;
    if (r->n_tensors) qsort(r->tensor, (size_t)r->n_tensors, sizeof *r->tensor, offset_compare);
    for (int i = 0; i < r->n_tensors; i++) {
        const pl_st_tensor *t = &r->tensor[i];
        PL_FAIL_IF(t->begin != at, PL_ERR_FILE,
                   "%.200s: tensor \"%.*s\" begins at byte %llu of the data, %s: the one "
                   "before ends at %llu",
                   r->file.name, NAME_SHOWN, t->name, (unsigned long long)t->begin,
                   t->begin < at ? "overlapping" : "after a hole", (unsigned long long)at);
        at = t->end;
    }
    PL_FAIL_IF(at != data, PL_ERR_FILE,
               "%.200s: the tensors end at byte %llu of the data, the file has %llu", r->file.name,
               (unsigned long long)at, (unsigned long long)data);
    return PL_OK;
}

pl_status pl__st_index(pl_st_reader *r)
{
    r->by_name = pl_arena_new(&r->arena, pl_st_tensor *, r->n_tensors);
    if (!r->by_name) return PL_ERR_MEMORY;
    for (int i = 0; i < r->n_tensors; i++) r->by_name[i] = &r->tensor[i];
    qsort(r->by_name, (size_t)r->n_tensors, sizeof *r->by_name, name_compare);
    for (int i = 1; i < r->n_tensors; i++)
        PL_FAIL_IF(name_compare(&r->by_name[i - 1], &r->by_name[i]) == 0, PL_ERR_FILE,
                   "%.200s has tensor \"%.*s\" twice", r->file.name, NAME_SHOWN,
                   r->by_name[i]->name);
    return PL_OK;
}

static pl_status load(pl_st_reader *r)
{
    uint8_t word[9];
    const pl_file *f = &r->file;
    PL_FAIL_IF(f->size < sizeof word, PL_ERR_FILE,
               "%.200s: %llu bytes are too few for a file of weights", f->name,
               (unsigned long long)f->size);
    PL_TRY(pl_file_read(f, 0, sizeof word, word));
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | word[i];
    if (pl__pt_is(word)) return pl__pt_load(r);
    PL_FAIL_IF(n > MAX_HEADER, PL_ERR_FILE,
               "%.200s: a header of %llu bytes, at most %u are read (is it a safetensors file?)",
               f->name, (unsigned long long)n, MAX_HEADER);
    PL_FAIL_IF(n > f->size - 8, PL_ERR_FILE,
               "%.200s: a header of %llu bytes does not fit in the file's %llu: it is cut short",
               f->name, (unsigned long long)n, (unsigned long long)f->size);
    r->data_begin = 8 + n;
    char *text = pl_sys_alloc((size_t)n);
    if (!text) return PL_ERR_MEMORY;
    pl_status rc = pl_file_read(f, 8, (size_t)n, text);
    if (rc == PL_OK) rc = parse_header(r, text, (size_t)n);
    pl_sys_free(text);
    if (rc == PL_OK) rc = check_cover(r);
    if (rc == PL_OK) rc = pl__st_index(r);
    return rc;
}

/* Takes the file, also on failure. */
static pl_status open_from(pl_file *f, pl_st_reader **out)
{
    pl_st_reader *r = pl_sys_alloc(sizeof *r);
    if (!r) {
        pl_file_close(f);
        return PL_ERR_MEMORY;
    }
    r->file = *f;
    r->file.name = pl_arena_strdup(&r->arena, f->name);
    pl_status rc = r->file.name ? load(r) : PL_ERR_MEMORY;
    if (rc != PL_OK) {
        pl_st_close(r);
        return rc;
    }
    *out = r;
    return PL_OK;
}

pl_status pl_st_open(const char *path, pl_st_reader **out)
{
    pl_file f = PL_FILE_NONE;
    PL_TRY(pl_file_open(path, PL_ERR_FILE, &f));
    return open_from(&f, out);
}

pl_status pl_st_open_memory(const void *data, size_t len, const char *name, pl_st_reader **out)
{
    pl_file f = PL_FILE_NONE;
    pl_file_open_memory(data, len, name, PL_ERR_FILE, &f);
    return open_from(&f, out);
}

void pl_st_close(pl_st_reader *r)
{
    if (!r) return;
    pl_file_close(&r->file);
    pl_sys_free(r->tensor);
    pl_arena_release(&r->arena);
    pl_sys_free(r);
}

pl_status pl_st_verify(const pl_st_reader *r, const char **sum)
{
    bool own = false;
    PL_TRY(r->zip ? pl__pt_verify(r, &own) : pl_file_verify(&r->file, &own));
    if (sum) *sum = own ? r->zip ? "CRC-32 of every member" : "XXH64 of the file" : NULL;
    return PL_OK;
}

int pl_st_count(const pl_st_reader *r)
{
    return r->n_tensors;
}

const pl_st_tensor *pl_st_at(const pl_st_reader *r, int index)
{
    return &r->tensor[index];
}

const pl_st_tensor *pl_st_find(const pl_st_reader *r, const char *name)
{
    pl_st_tensor want = {.name = name}, *key = &want;
    if (r->n_tensors == 0) return NULL;
    pl_st_tensor **hit =
        bsearch(&key, r->by_name, (size_t)r->n_tensors, sizeof *r->by_name, name_compare);
    return hit ? *hit : NULL;
}

const char *pl_st_path(const pl_st_reader *r)
{
    return r->file.name;
}

int pl_st_meta_count(const pl_st_reader *r)
{
    return r->n_meta;
}

void pl_st_meta_at(const pl_st_reader *r, int index, const char **key, const char **value)
{
    *key = r->meta[index].key;
    *value = r->meta[index].value;
}

const char *pl_st_meta_get(const pl_st_reader *r, const char *key)
{
    pl_st_pair want = {key, NULL};
    if (r->n_meta == 0) return NULL;
    const pl_st_pair *hit =
        bsearch(&want, r->meta, (size_t)r->n_meta, sizeof *r->meta, meta_compare);
    return hit ? hit->value : NULL;
}

pl_status pl_st_read(const pl_st_reader *r, const pl_st_tensor *t, void *dst, size_t dst_bytes)
{
    PL_FAIL_IF(dst_bytes != t->end - t->begin, PL_ERR_ARG,
               "tensor \"%.*s\" has %llu bytes, %zu requested", NAME_SHOWN, t->name,
               (unsigned long long)(t->end - t->begin), dst_bytes);
    return pl_st_read_range(r, t, 0, dst_bytes, dst);
}

/* A tensor whose elements do not follow each other in the file: one read for each run that does. */
static pl_status read_strided(const pl_st_reader *r, const pl_st_tensor *t, uint64_t offset,
                              size_t bytes, char *dst)
{
    size_t size = (size_t)pl_st_dtype_bits(t->dtype) / 8;
    int64_t last = t->rank ? t->dim[t->rank - 1] : 1;
    bool runs = t->rank && t->stride[t->rank - 1] == 1;
    PL_FAIL_IF(offset % size || bytes % size, PL_ERR_ARG,
               "tensor \"%.*s\": bytes [%llu, +%zu) are not whole elements", NAME_SHOWN, t->name,
               (unsigned long long)offset, bytes);
    for (uint64_t e = offset / size, end = (offset + bytes) / size; e < end;) {
        uint64_t rest = e, at = 0, n = runs ? (uint64_t)last - e % (uint64_t)last : 1;
        for (int k = t->rank - 1; k >= 0; k--) {
            at += rest % (uint64_t)t->dim[k] * (uint64_t)t->stride[k];
            rest /= (uint64_t)t->dim[k];
        }
        if (n > end - e) n = end - e;
        PL_TRY(pl_file_read(&r->file, r->data_begin + t->begin + at * size, (size_t)n * size, dst));
        dst += n * size;
        e += n;
    }
    return PL_OK;
}

pl_status pl_st_read_range(const pl_st_reader *r, const pl_st_tensor *t, uint64_t offset,
                           size_t bytes, void *dst)
{
    uint64_t size = t->end - t->begin;
    PL_FAIL_IF(offset > size || bytes > size - offset, PL_ERR_ARG,
               "tensor \"%.*s\" has %llu bytes, %zu requested at %llu", NAME_SHOWN, t->name,
               (unsigned long long)size, bytes, (unsigned long long)offset);
    PL_TRY(t->stride ? read_strided(r, t, offset, bytes, dst)
                     : pl_file_read(&r->file, r->data_begin + t->begin + offset, bytes, dst));
    const uint8_t *b = dst;
    for (size_t i = 0; t->dtype == PL_ST_BOOL && i < bytes; i++)
        PL_FAIL_IF(b[i] > 1, PL_ERR_FILE, "%.200s: tensor \"%.*s\": BOOL byte %llu is %d",
                   r->file.name, NAME_SHOWN, t->name, (unsigned long long)offset + i, b[i]);
    return PL_OK;
}
