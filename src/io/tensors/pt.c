/* pt.c - files of torch.save (PyTorch 1.6 or later) as tensors and metadata.
 *
 * Such a file is a zip:
 *
 *     NAME/data.pkl     a pickle: what was saved, with a description in place of each tensor
 *     NAME/data/KEY     the numbers of storage KEY
 *     NAME/byteorder    "little"; may be missing
 *
 * The pickle becomes a tree of values (pickle.h), and nothing in it is called. A tensor is the
 * description of a call of one of torch's rebuild functions. Dictionaries, lists, and objects with
 * their attributes are walked; their keys, joined by dots, name the tensors. A module that was
 * pickled whole gives the names of its state_dict: the dictionaries _parameters, _buffers and
 * _modules add nothing to a name. Small arrays of numpy are metadata, as lists of numbers are:
 * "scaler.mean_.0". Of a tensor that is not read (quantised, sparse, without numbers) the metadata
 * have its name and class. Values of any other class are skipped.
 *
 * Sizes and strides of every tensor are checked against its storage before it is listed, so a
 * reader of a tensor stays inside the file.
 */
#include "base/str.h"
#include "base/sys.h"
#include "io/json.h"
#include "io/tensors/numpy.h"
#include "io/tensors/pickle.h"
#include "io/tensors/st_int.h"
#include "io/tensors/zip.h"

#include <math.h>
#include <string.h>

enum { MAX_PICKLE = 64 << 20, MAX_DEPTH = 32, MAX_VISITS = 8000000, MAX_META = 10000 };
#define MAX_SIZE ((int64_t)1 << 48)

typedef struct loader {
    pl_st_reader *r;
    pl_arena mem; /* the tree and the list of members */
    pl_zip zip;
    const char *folder; /* "NAME/" */
    pl_str path;        /* of the value that is visited */
    int visits, cap_meta;
    const pl_pickle *skipped; /* the first class that is not understood; NULL */
} loader;

/* ---- dtypes ----------------------------------------------------------------------------- */
static const struct dtype_name {
    const char *storage, *dtype;
    pl_st_dtype to;
} dtype_names[] = {
    {"torch.FloatStorage", "torch.float32", PL_ST_F32},
    {"torch.HalfStorage", "torch.float16", PL_ST_F16},
    {"torch.BFloat16Storage", "torch.bfloat16", PL_ST_BF16},
    {"torch.DoubleStorage", "torch.float64", PL_ST_F64},
    {"torch.LongStorage", "torch.int64", PL_ST_I64},
    {"torch.IntStorage", "torch.int32", PL_ST_I32},
    {"torch.ShortStorage", "torch.int16", PL_ST_I16},
    {"torch.CharStorage", "torch.int8", PL_ST_I8},
    {"torch.ByteStorage", "torch.uint8", PL_ST_U8},
    {"torch.BoolStorage", "torch.bool", PL_ST_BOOL},
    {"torch.ComplexFloatStorage", "torch.complex64", PL_ST_C64},
    {NULL, "torch.uint16", PL_ST_U16},
    {NULL, "torch.uint32", PL_ST_U32},
    {NULL, "torch.uint64", PL_ST_U64},
    {NULL, "torch.float8_e4m3fn", PL_ST_F8_E4M3},
    {NULL, "torch.float8_e5m2", PL_ST_F8_E5M2},
    {NULL, "torch.float8_e4m3fnuz", PL_ST_F8_E4M3FNUZ},
    {NULL, "torch.float8_e5m2fnuz", PL_ST_F8_E5M2FNUZ},
    {NULL, "torch.float8_e8m0fnu", PL_ST_F8_E8M0},
};

static bool find_dtype(const pl_pickle *v, bool storage, pl_st_dtype *out)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++) {
        const char *name = storage ? dtype_names[i].storage : dtype_names[i].dtype;
        if (!name || !pl_pickle_is(v, name)) continue;
        *out = dtype_names[i].to;
        return true;
    }
    return false;
}

/* ---- tensors ---------------------------------------------------------------------------- */
static const pl_pickle *item(const pl_pickle *v, int i)
{
    return v && v->kind == PL_PICKLE_SEQUENCE && i < v->n ? v->item[i] : NULL;
}

/* What a call of a rebuild function gets: storage, offset, sizes, strides. NULL: another call. */
static const pl_pickle *tensor_args(const pl_pickle *v, const pl_pickle **dtype)
{
    for (int i = 0; v && v->kind == PL_PICKLE_CALL && i < 4; i++) {
        const pl_pickle *f = v->func, *a = v->args;
        if (pl_pickle_is(f, "torch._utils._rebuild_tensor_v2") ||
            pl_pickle_is(f, "torch._utils._rebuild_tensor"))
            return a;
        if (pl_pickle_is(f, "torch._utils._rebuild_tensor_v3")) return *dtype = item(a, 6), a;
        if (pl_pickle_is(f, "torch._tensor._rebuild_from_type_v2")) {
            const pl_pickle *inner = item(a, 0);
            bool plain = pl_pickle_is(inner, "torch._utils._rebuild_tensor_v2");
            return plain ? item(a, 2) : NULL;
        }
        bool wraps = pl_pickle_is(f, "torch._utils._rebuild_parameter") ||
                     pl_pickle_is(f, "torch._utils._rebuild_parameter_with_state");
        v = wraps ? item(a, 0) : NULL; /* a parameter around a tensor */
    }
    return NULL;
}

static pl_status bad(const loader *l, const char *what)
{
    (void)pl__fail(PL_ERR_FILE, __FILE__, __LINE__, "%.200s: tensor \"%.80s\": %s", l->r->file.name,
                   l->path.text ? l->path.text : "", what);
    return PL_ERR_FILE;
}

/* Sizes or strides: whole numbers in a tuple, which torch.Size may wrap. */
static pl_status take_sizes(loader *l, const pl_pickle *v, const int64_t **out, int *n)
{
    if (v && v->kind == PL_PICKLE_CALL && pl_pickle_is(v->func, "torch.Size")) v = item(v->args, 0);
    if (!v || v->kind != PL_PICKLE_SEQUENCE || v->n > 64)
        return bad(l, "its sizes are not a tuple of at most 64 numbers");
    int64_t *to = pl_arena_new(&l->r->arena, int64_t, v->n + 1);
    if (!to) return PL_ERR_MEMORY;
    for (int i = 0; i < v->n; i++) {
        const pl_pickle *x = v->item[i];
        if (x->kind != PL_PICKLE_INT || x->number < 0 || x->number >= MAX_SIZE)
            return bad(l, "a size or stride is not a whole number in [0, 2^48)");
        to[i] = x->number;
    }
    *out = to;
    *n = v->n;
    return PL_OK;
}

/* Finds the storage's bytes in the file. */
static pl_status find_storage(loader *l, const pl_pickle *id, uint64_t *begin, uint64_t *bytes)
{
    const pl_pickle *key = item(id, 2);
    char name[600];
    if (!pl_pickle_is(item(id, 0), "storage") || !key || key->kind != PL_PICKLE_TEXT)
        return bad(l, "its storage has no name");
    snprintf(name, sizeof name,
             "%.400s"
             "data/%.*s",
             l->folder, (int)(key->length < 100 ? key->length : 100), key->text);
    const pl_zip_member *m = pl_zip_find(&l->zip, name);
    PL_FAIL_IF(!m, PL_ERR_FILE, "%.200s: tensor \"%.80s\": its numbers, %.80s, are missing",
               l->r->file.name, l->path.text, name);
    *bytes = m->bytes;
    return pl_zip_begin(&l->r->file, m, begin);
}

/* Whether all elements lie in a storage of so many bytes; *rows: they follow each other. */
static bool lies_inside(const pl_st_tensor *t, const int64_t *stride, int64_t offset,
                        uint64_t bytes, bool *rows, uint64_t *elems)
{
    uint64_t size = (uint64_t)pl_st_dtype_bits(t->dtype) / 8, last = (uint64_t)offset, next = 1;
    *elems = 1;
    *rows = true;
    for (int i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(*elems, (uint64_t)t->dim[i], elems) || *elems >= MAX_SIZE)
            return false;
    if (!*elems) return true;
    for (int i = t->rank - 1; i >= 0; i--) {
        uint64_t step;
        *rows = *rows && (t->dim[i] == 1 || (uint64_t)stride[i] == next);
        next *= (uint64_t)t->dim[i];
        if (__builtin_mul_overflow((uint64_t)t->dim[i] - 1, (uint64_t)stride[i], &step) ||
            __builtin_add_overflow(last, step, &last) || last >= MAX_SIZE)
            return false;
    }
    return (last + 1) * size <= bytes;
}

static pl_status add_meta(loader *l, const pl_pickle *v);

/* Notes a tensor that is not read: the metadata say under its name which class it has. */
static pl_status add_unread(loader *l, const pl_pickle *class)
{
    if (!l->skipped) l->skipped = class;
    if (!class || class->kind != PL_PICKLE_NAME) return PL_OK;
    char text[160];
    snprintf(text, sizeof text, "a tensor of %.*s, which is not read",
             (int)(class->length < 100 ? class->length : 100), class->text);
    pl_pickle v = {.kind = PL_PICKLE_TEXT, .text = text, .length = strlen(text)};
    return add_meta(l, &v);
}

static pl_status add_tensor(loader *l, const pl_pickle *args, const pl_pickle *dtype)
{
    const pl_pickle *storage = item(args, 0), *offset = item(args, 1);
    const pl_pickle *id = storage && storage->kind == PL_PICKLE_PERSISTENT ? storage->args : NULL;
    pl_st_tensor t = {.name = NULL};
    const int64_t *stride;
    int n_strides;
    uint64_t begin = 0, bytes = 0, elems;
    bool rows;
    if (!id || !offset || offset->kind != PL_PICKLE_INT || offset->number < 0 ||
        offset->number >= MAX_SIZE)
        return bad(l, "its description is damaged");
    bool known =
        dtype ? find_dtype(dtype, false, &t.dtype) : find_dtype(item(id, 1), true, &t.dtype);
    if (!known) /* complex128, ...: no dtype of safetensors */
        return add_unread(l, dtype ? dtype : item(id, 1));
    PL_TRY(take_sizes(l, item(args, 2), &t.dim, &t.rank));
    PL_TRY(take_sizes(l, item(args, 3), &stride, &n_strides));
    if (n_strides != t.rank) return bad(l, "it has another number of strides than of sizes");
    PL_TRY(find_storage(l, id, &begin, &bytes));
    if (!lies_inside(&t, stride, offset->number, bytes, &rows, &elems))
        return bad(l, "its elements do not lie in its storage");
    uint64_t size = (uint64_t)pl_st_dtype_bits(t.dtype) / 8;
    t.begin = elems ? begin + (uint64_t)offset->number * size : begin;
    t.end = t.begin + elems * size;
    t.stride = rows || !elems ? NULL : stride;
    t.name = pl_arena_strdup(&l->r->arena, l->path.len ? l->path.text : "tensor");
    if (!t.name) return PL_ERR_MEMORY;
    pl__st_set_type(&t);
    PL_TRY(pl__st_grow(l->r));
    l->r->tensor[l->r->n_tensors++] = t;
    return PL_OK;
}

/* ---- numbers and texts ------------------------------------------------------------------ */
static pl_status add_meta(loader *l, const pl_pickle *v)
{
    pl_st_reader *r = l->r;
    char *text = NULL, number[PL_FLOAT_TEXT_BYTES];
    if (r->n_meta == MAX_META || !l->path.len) return PL_OK;
    if (!r->meta && !(r->meta = pl_arena_new(&r->arena, pl_st_pair, MAX_META)))
        return PL_ERR_MEMORY;
    switch (v->kind) {
    case PL_PICKLE_BOOL: text = pl_arena_strdup(&r->arena, v->number ? "true" : "false"); break;
    case PL_PICKLE_INT: text = pl_arena_printf(&r->arena, "%lld", (long long)v->number); break;
    case PL_PICKLE_FLOAT:
        if (!isfinite(v->real)) return PL_OK;
        text = pl_arena_strdup(&r->arena, pl_float_text(v->real, number));
        break;
    default:
        if (memchr(v->text, 0, v->length) || !pl_utf8_valid(v->text, v->length)) return PL_OK;
        text = pl_arena_strndup(&r->arena, v->text, v->length);
    }
    const char *key = pl_arena_strdup(&r->arena, l->path.text);
    if (!text || !key) return PL_ERR_MEMORY;
    r->meta[r->n_meta++] = (pl_st_pair){key, text};
    return PL_OK;
}

/* A key that is there twice in a dictionary: the first one stays. */
static void drop_double_meta(pl_st_reader *r)
{
    int n = 0;
    pl__st_sort_meta(r);
    for (int i = 0; i < r->n_meta; i++)
        if (!n || strcmp(r->meta[n - 1].key, r->meta[i].key) != 0) r->meta[n++] = r->meta[i];
    r->n_meta = n;
}

/* ---- the walk --------------------------------------------------------------------------- */
static pl_status visit(loader *l, const pl_pickle *v, int depth);

/* Visits a value under one more key; part NULL: under the same path. */
static pl_status visit_key(loader *l, const char *part, size_t n, const pl_pickle *v, int depth)
{
    size_t before = l->path.len;
    if (part) {
        if (before) pl_str_add(&l->path, ".");
        pl_str_addn(&l->path, part, n);
        if (l->path.failed) return PL_ERR_MEMORY;
    }
    pl_status rc = l->path.len > 2000 ? PL_OK : visit(l, v, depth + 1);
    l->path.len = before;
    if (l->path.text) l->path.text[before] = 0;
    return rc;
}

static pl_status visit_pair(loader *l, const pl_pickle *key, const pl_pickle *v, int depth)
{
    char number[32];
    if (key->kind == PL_PICKLE_INT) {
        snprintf(number, sizeof number, "%lld", (long long)key->number);
        return visit_key(l, number, strlen(number), v, depth);
    }
    if (key->kind != PL_PICKLE_TEXT || memchr(key->text, 0, key->length) ||
        !pl_utf8_valid(key->text, key->length))
        return PL_OK;
    return visit_key(l, key->text, key->length, v, depth);
}

/* Attributes of an object. */
static pl_status visit_state(loader *l, const pl_pickle *state, int depth)
{
    for (int i = 0; state && state->kind == PL_PICKLE_DICT && i + 1 < state->n; i += 2) {
        const pl_pickle *key = state->item[i];
        bool module = pl_pickle_is(key, "_parameters") || pl_pickle_is(key, "_buffers") ||
                      pl_pickle_is(key, "_modules");
        PL_TRY(module ? visit_key(l, NULL, 0, state->item[i + 1], depth)
                      : visit_pair(l, key, state->item[i + 1], depth));
    }
    return PL_OK;
}

/* Numbers of numpy: one under its path, several under numbers below it. */
static pl_status visit_numbers(loader *l, const double *x, int n, bool alone, int depth)
{
    char number[32];
    for (int i = 0; i < n; i++) {
        pl_pickle v = {.kind = PL_PICKLE_FLOAT, .real = x[i]};
        snprintf(number, sizeof number, "%d", i);
        PL_TRY(visit_key(l, alone ? NULL : number, strlen(number), &v, depth));
    }
    return PL_OK;
}

/* Whether a call makes a tensor of a kind that is not read: torch._utils._rebuild_qtensor, ... */
static bool is_other_tensor(const pl_pickle *f)
{
    static const char start[] = "torch._utils._rebuild_";
    return f && f->kind == PL_PICKLE_NAME && f->length > sizeof start - 1 &&
           memcmp(f->text, start, sizeof start - 1) == 0;
}

static pl_status visit_call(loader *l, const pl_pickle *v, int depth)
{
    const pl_pickle *dtype = NULL, *args = tensor_args(v, &dtype);
    double x[PL_NUMPY_MOST];
    if (args) return add_tensor(l, args, dtype);
    if (is_other_tensor(v->func)) return add_unread(l, v->func);
    int n = pl_numpy_numbers(v, x);
    if (n >= 0) return visit_numbers(l, x, n, v->args && !v->state, depth);
    bool dict = pl_pickle_is(v->func, "collections.OrderedDict") ||
                pl_pickle_is(v->func, "collections.defaultdict");
    if (!dict && !l->skipped) l->skipped = v->func;
    for (int i = 0; i + 1 < v->n; i += 2) PL_TRY(visit_pair(l, v->item[i], v->item[i + 1], depth));
    return dict ? PL_OK : visit_state(l, v->state, depth);
}

static pl_status visit(loader *l, const pl_pickle *v, int depth)
{
    char number[32];
    PL_FAIL_IF(++l->visits > MAX_VISITS, PL_ERR_FILE, "%.200s: the pickle has more than %d values",
               l->r->file.name, MAX_VISITS);
    if (depth > MAX_DEPTH) return PL_OK;
    switch (v->kind) {
    case PL_PICKLE_BOOL:
    case PL_PICKLE_INT:
    case PL_PICKLE_FLOAT:
    case PL_PICKLE_TEXT: return add_meta(l, v);
    case PL_PICKLE_CALL: return visit_call(l, v, depth);
    case PL_PICKLE_DICT:
        for (int i = 0; i + 1 < v->n; i += 2)
            PL_TRY(visit_pair(l, v->item[i], v->item[i + 1], depth));
        return PL_OK;
    case PL_PICKLE_SEQUENCE:
        for (int i = 0; i < v->n; i++) {
            snprintf(number, sizeof number, "%d", i);
            PL_TRY(visit_key(l, number, strlen(number), v->item[i], depth));
        }
        return PL_OK;
    default: return PL_OK;
    }
}

/* ---- the file --------------------------------------------------------------------------- */
bool pl__pt_is(const uint8_t first[9])
{
    /* a header of safetensors may have 0x0280 bytes, too; it begins after its length, with '{' */
    bool pickle = first[0] == 0x80 && first[1] >= 2 && first[1] <= 5 && first[8] != '{';
    return memcmp(first, "PK\3\4", 4) == 0 || pickle;
}

/* Finds NAME/data.pkl. */
static pl_status find_folder(loader *l)
{
    static const char tail[] = "/data.pkl";
    for (int i = 0; i < l->zip.n; i++) {
        const char *name = l->zip.member[i].name;
        size_t n = strlen(name), m = sizeof tail - 1;
        if (n <= m || strcmp(name + n - m, tail) != 0 || strchr(name, '/') != name + n - m)
            continue;
        l->folder = pl_arena_strndup(&l->mem, name, n - m + 1);
        return l->folder ? PL_OK : PL_ERR_MEMORY;
    }
    PL_FAIL(PL_ERR_FILE,
            "%.200s is a zip, but not a file of torch.save: it has no member NAME/data.pkl",
            l->r->file.name);
}

static pl_status read_member(loader *l, const char *name, size_t most, uint8_t **out, size_t *bytes)
{
    const pl_file *f = &l->r->file;
    char *path = pl_arena_printf(&l->mem, "%s%s", l->folder, name);
    if (!path) return PL_ERR_MEMORY;
    const pl_zip_member *m = pl_zip_find(&l->zip, path);
    uint64_t begin;
    *out = NULL;
    *bytes = 0;
    if (!m) return PL_OK;
    PL_FAIL_IF(m->bytes > most, PL_ERR_FILE, "%.200s: %s has %llu bytes, at most %zu are read",
               f->name, path, (unsigned long long)m->bytes, most);
    PL_TRY(pl_zip_begin(f, m, &begin));
    *out = pl_arena_new(&l->mem, uint8_t, m->bytes + 1);
    if (!*out) return PL_ERR_MEMORY;
    *bytes = (size_t)m->bytes;
    return pl_file_read(f, begin, *bytes, *out);
}

static pl_status load(loader *l)
{
    const char *file = l->r->file.name;
    uint8_t *pickle, *order;
    size_t bytes, n;
    const pl_pickle *root;
    PL_TRY(pl_zip_open(&l->r->file, &l->mem, &l->zip));
    PL_TRY(find_folder(l));
    PL_TRY(read_member(l, "byteorder", 64, &order, &n));
    PL_FAIL_IF(order && (n < 6 || memcmp(order, "little", 6) != 0), PL_ERR_FILE,
               "%.200s holds big-endian numbers; save it on a little-endian machine", file);
    PL_TRY(read_member(l, "data.pkl", MAX_PICKLE, &pickle, &bytes));
    PL_TRY(pl_pickle_read(pickle, bytes, file, &l->mem, &root));
    PL_TRY(visit(l, root, 0));
    PL_FAIL_IF(!l->r->n_tensors, PL_ERR_FILE, "%.200s holds no tensor%s%.*s%s", file,
               l->skipped ? ", but values of " : "",
               l->skipped && l->skipped->kind == PL_PICKLE_NAME ? (int)l->skipped->length : 0,
               l->skipped && l->skipped->kind == PL_PICKLE_NAME ? l->skipped->text : "",
               l->skipped ? ", which are not read (nothing in the file is executed)" : "");
    drop_double_meta(l->r);
    return pl__st_index(l->r);
}

pl_status pl__pt_verify(const pl_st_reader *r, bool *any)
{
    const pl_file *f = &r->file;
    pl_arena mem = PL_ARENA_INIT;
    pl_zip zip = {0};
    *any = false;
    if (f->fd < 0) return PL_OK;
    pl_status rc = pl_zip_open(f, &mem, &zip);
    for (int i = 0; i < zip.n && rc == PL_OK; i++) *any |= zip.member[i].crc != 0;
    if (rc == PL_OK && *any && !pl_file_is_verified(f)) {
        rc = pl_zip_verify(f, &zip);
        if (rc == PL_OK) pl_file_set_verified(f);
    }
    pl_arena_release(&mem);
    return rc;
}

pl_status pl__pt_load(pl_st_reader *r)
{
    uint8_t first[4];
    PL_TRY(pl_file_read(&r->file, 0, sizeof first, first));
    PL_FAIL_IF(
        memcmp(first, "PK\3\4", 4) != 0, PL_ERR_FILE,
        "%.200s is a pickle without a zip around it, as PyTorch before 1.6 wrote: read it with torch.load and "
        "save it again with torch.save, or with safetensors.torch.save_file",
        r->file.name);
    loader l = {.r = r};
    r->zip = true;
    pl_status rc = load(&l);
    pl_str_release(&l.path);
    pl_arena_release(&l.mem);
    return rc;
}
