/* npy.c - see npy.h.
 *
 * The header is a Python dict literal, but only three keys with three kinds of value may occur, so
 * a strict parser for exactly that is smaller and safer than a general one: each key once, in any
 * order, a comma after the last allowed. Like NumPy, it refuses headers over 10,000 bytes.
 */
#include "io/npy.h"

#include "base/str.h"
#include "base/sys.h"
#include "io/file.h"
#include "io/tensors/zip.h"

#include <stdio.h>
#include <string.h>

#define MAX_HEADER 10000u
#define DATA_ALIGN 64u
#define MAX_BYTES  ((uint64_t)1 << 48)

struct pl_npy {
    pl_file file;
    uint64_t begin, bytes; /* of the array in the file */
    char *name;            /* owned copy */
    pl_type type;
    uint64_t data_begin;
    int64_t rows;
    size_t row_bytes;
};

static const struct descr_row {
    const char *descr;
    pl_dtype dtype;
} descr_rows[] = {{"<f4", PL_F32}, {"<f8", PL_F64}, {"<f2", PL_F16}, {"|u1", PL_U8},
                  {"<i4", PL_I32}, {"<i8", PL_I64}, {"|b1", PL_BOOL}};
enum { N_DESCR = sizeof descr_rows / sizeof descr_rows[0] };

/* ---- the header ------------------------------------------------------------------------- */

typedef struct head {
    const char *p, *end, *file;
    char descr[16];
    bool fortran, has_descr, has_order, has_shape;
    int rank;
    int64_t dim[PL_MAX_RANK];
} head;

static void skip_space(head *h)
{
    while (h->p < h->end && (*h->p == ' ' || *h->p == '\t' || *h->p == '\n')) h->p++;
}

static bool take(head *h, const char *word)
{
    size_t n = strlen(word);
    skip_space(h);
    if ((size_t)(h->end - h->p) < n || memcmp(h->p, word, n) != 0) return false;
    h->p += n;
    return true;
}

static pl_status malformed(const head *h, const char *what)
{
    PL_FAIL(PL_ERR_DATA, "%.200s: the .npy header is malformed: %s expected", h->file, what);
}

/* A short string in either kind of quotes, without escapes. */
static pl_status take_string(head *h, char *out, size_t cap, const char *what)
{
    skip_space(h);
    if (h->p >= h->end || (*h->p != '\'' && *h->p != '"')) return malformed(h, what);
    char quote = *h->p++;
    size_t n = 0;
    while (h->p + n < h->end && h->p[n] != quote && h->p[n] != '\\') n++;
    if (h->p + n >= h->end || h->p[n] != quote || n >= cap) return malformed(h, what);
    memcpy(out, h->p, n);
    out[n] = 0;
    h->p += n + 1;
    return PL_OK;
}

static pl_status take_size(head *h, int64_t *out)
{
    skip_space(h);
    const char *start = h->p;
    uint64_t v = 0;
    for (; h->p < h->end && *h->p >= '0' && *h->p <= '9'; h->p++) {
        v = v * 10 + (uint64_t)(*h->p - '0');
        PL_FAIL_IF(v >= MAX_BYTES, PL_ERR_DATA, "%.200s: a dimension is 2^48 or more", h->file);
    }
    if (h->p == start) return malformed(h, "a whole number in shape");
    *out = (int64_t)v;
    return PL_OK;
}

/* (), (3,), (2, 3) or (2, 3,); (3) is a number in Python, not a tuple. */
static pl_status take_shape(head *h)
{
    if (!take(h, "(")) return malformed(h, "'(' of the shape");
    bool comma = true;
    while (!take(h, ")")) {
        if (!comma) return malformed(h, "',' in shape");
        PL_FAIL_IF(h->rank == PL_MAX_RANK, PL_ERR_DATA, "%.200s: more than %d dimensions", h->file,
                   PL_MAX_RANK);
        PL_TRY(take_size(h, &h->dim[h->rank++]));
        comma = take(h, ",");
    }
    return h->rank == 1 && !comma ? malformed(h, "',' after a lone dimension") : PL_OK;
}

static pl_status take_descr(head *h)
{
    skip_space(h);
    PL_FAIL_IF(h->p < h->end && *h->p == '[', PL_ERR_DATA,
               "%.200s: an array of records cannot be read; save each field as a separate array",
               h->file);
    return take_string(h, h->descr, sizeof h->descr, "a short text for descr");
}

static pl_status take_member(head *h)
{
    char key[16];
    PL_TRY(take_string(h, key, sizeof key, "'descr', 'fortran_order' or 'shape'"));
    if (!take(h, ":")) return malformed(h, "':'");
    bool *seen = strcmp(key, "descr") == 0           ? &h->has_descr
                 : strcmp(key, "fortran_order") == 0 ? &h->has_order
                 : strcmp(key, "shape") == 0         ? &h->has_shape
                                                     : NULL;
    PL_FAIL_IF(!seen || *seen, PL_ERR_DATA, "%.200s: key '%s' in the .npy header %s", h->file, key,
               seen ? "occurs twice" : "is unknown");
    *seen = true;
    if (seen == &h->has_descr) return take_descr(h);
    if (seen == &h->has_shape) return take_shape(h);
    h->fortran = take(h, "True");
    return h->fortran || take(h, "False") ? PL_OK : malformed(h, "True or False");
}

static pl_status parse_head(head *h)
{
    if (!take(h, "{")) return malformed(h, "'{'");
    bool comma = true;
    while (!take(h, "}")) {
        if (!comma) return malformed(h, "','");
        PL_TRY(take_member(h));
        comma = take(h, ",");
    }
    skip_space(h);
    if (h->p != h->end) return malformed(h, "nothing after '}'");
    PL_FAIL_IF(!h->has_descr || !h->has_order || !h->has_shape, PL_ERR_DATA,
               "%.200s: the .npy header has no %s", h->file,
               !h->has_descr   ? "descr"
               : !h->has_order ? "fortran_order"
                               : "shape");
    return PL_OK;
}

static pl_status find_dtype(const head *h, pl_dtype *out)
{
    for (int i = 0; i < N_DESCR; i++) {
        if (strcmp(h->descr, descr_rows[i].descr) != 0) continue;
        *out = descr_rows[i].dtype;
        return PL_OK;
    }
    char kind = h->descr[0] ? h->descr[1] : 0;
    PL_FAIL_IF(h->descr[0] == '>', PL_ERR_DATA,
               "%.200s: big-endian data ('%s'); save it with a.astype(a.dtype.newbyteorder('<'))",
               h->file, h->descr);
    PL_FAIL_IF(kind == 'O', PL_ERR_DATA,
               "%.200s: an array of Python objects is a pickle and is never loaded; save plain "
               "numbers",
               h->file);
    PL_FAIL_IF(kind == 'V', PL_ERR_DATA,
               "%.200s: type '%s' is not a type of .npy (bfloat16?); use safetensors, or save "
               "float32",
               h->file, h->descr);
    PL_FAIL(PL_ERR_DATA,
            "%.200s: type '%s' cannot be read; convert to float32, float64, float16, uint8, "
            "int32, int64 "
            "or bool with a.astype(...)",
            h->file, h->descr);
}

/* Fortran order is the same as C order when at most one dimension is longer than 1. */
static pl_status check_order(const head *h)
{
    int longer = 0;
    for (int i = 0; i < h->rank; i++) longer += h->dim[i] > 1;
    PL_FAIL_IF(h->fortran && longer > 1, PL_ERR_DATA,
               "%.200s: Fortran order cannot be read by rows; save np.ascontiguousarray(a)",
               h->file);
    return PL_OK;
}

static pl_status check_size(pl_npy *a)
{
    uint64_t row = pl_dtype_bytes(a->type.dtype), total, have = a->bytes - a->data_begin;
    bool wrap = false;
    for (int i = a->type.rank - 1; i > 0; i--)
        wrap |= __builtin_mul_overflow(row, (uint64_t)a->type.dim[i], &row);
    a->rows = a->type.rank > 0 ? a->type.dim[0] : 1;
    wrap |= __builtin_mul_overflow(row, (uint64_t)a->rows, &total);
    char text[200];
    PL_FAIL_IF(wrap || total != have, PL_ERR_DATA,
               "%.200s: %s takes %s%llu bytes, the file has %llu of data", a->name,
               pl_type_text(&a->type, text, sizeof text), wrap ? "more than " : "",
               (unsigned long long)(wrap ? UINT64_MAX : total), (unsigned long long)have);
    a->row_bytes = (size_t)row;
    return PL_OK;
}

static pl_status interpret(pl_npy *a, const char *text, size_t n)
{
    head h = {.p = text, .end = text + n, .file = a->name};
    pl_dtype dtype = PL_F32;
    PL_TRY(parse_head(&h));
    PL_TRY(find_dtype(&h, &dtype));
    PL_TRY(check_order(&h));
    a->type = pl_type_make(dtype, h.rank, h.dim);
    return check_size(a);
}

static pl_status load(pl_npy *a)
{
    uint8_t lead[12];
    const pl_file *f = &a->file;
    PL_FAIL_IF(a->bytes < 10, PL_ERR_DATA, "%.200s: %llu bytes are too few for a .npy file",
               f->name, (unsigned long long)a->bytes);
    PL_TRY(pl_file_read(f, a->begin, 10, lead));
    PL_FAIL_IF(memcmp(lead, "\x93NUMPY", 6) != 0, PL_ERR_DATA, "%.200s is not a .npy file",
               f->name);
    PL_FAIL_IF(lead[6] < 1 || lead[6] > 3 || lead[7] != 0, PL_ERR_DATA,
               "%.200s: .npy version %d.%d, 1.0 to 3.0 are read", f->name, lead[6], lead[7]);
    uint64_t at = lead[6] == 1 ? 10 : 12, n = lead[8] | (uint64_t)lead[9] << 8;
    if (at == 12) {
        PL_TRY(pl_file_read(f, a->begin + 10, 2, lead + 10));
        n |= (uint64_t)lead[10] << 16 | (uint64_t)lead[11] << 24;
    }
    PL_FAIL_IF(n > MAX_HEADER, PL_ERR_DATA, "%.200s: a header of %llu bytes, at most %u are read",
               f->name, (unsigned long long)n, MAX_HEADER);
    a->data_begin = at + n;
    PL_FAIL_IF(a->data_begin > a->bytes, PL_ERR_DATA, "%.200s: its header goes past its end",
               f->name);
    char *text = pl_sys_alloc((size_t)n);
    if (!text) return PL_ERR_MEMORY;
    pl_status rc = pl_file_read(f, a->begin + at, (size_t)n, text);
    if (rc == PL_OK) rc = interpret(a, text, (size_t)n);
    pl_sys_free(text);
    return rc;
}

/* Takes the file, also on failure. The array has the bytes [begin, begin + bytes). */
static pl_status open_part(pl_file *f, uint64_t begin, uint64_t bytes, pl_npy **out)
{
    size_t n = strlen(f->name) + 1;
    pl_npy *a = pl_sys_alloc(sizeof *a + n);
    if (!a) {
        pl_file_close(f);
        return PL_ERR_MEMORY;
    }
    a->name = memcpy(a + 1, f->name, n);
    a->file = *f;
    a->begin = begin;
    a->bytes = bytes;
    a->file.name = a->name;
    pl_status rc = load(a);
    if (rc != PL_OK)
        pl_npy_close(a);
    else
        *out = a;
    return rc;
}

pl_status pl_npy_open(const char *path, pl_npy **out)
{
    pl_file f = PL_FILE_NONE;
    PL_TRY(pl_file_open(path, PL_ERR_DATA, &f));
    return open_part(&f, 0, f.size, out);
}

/* Finds the bytes of an array of an .npz file. */
static pl_status find_member(const pl_file *f, const char *array, uint64_t *begin, uint64_t *bytes)
{
    pl_arena mem = {0};
    pl_zip zip;
    pl_status rc = pl_zip_open(f, &mem, &zip);
    char *name = rc == PL_OK ? pl_arena_printf(&mem, "%s.npy", array) : NULL;
    const pl_zip_member *m = name ? pl_zip_find(&zip, name) : NULL;
    if (rc == PL_OK && !name) rc = PL_ERR_MEMORY;
    if (rc == PL_OK && !m)
        rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__,
                      "%.200s has no array \"%.100s\" (data.fields can give it another name)",
                      f->name, array);
    if (rc == PL_OK && !m->stored)
        rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__,
                      "%.200s is compressed, so that its rows cannot be read one by one: write it "
                      "with numpy.savez",
                      f->name);
    if (rc == PL_OK) rc = pl_zip_begin(f, m, begin);
    if (rc == PL_OK) *bytes = m->bytes;
    pl_arena_release(&mem);
    return rc == PL_ERR_FILE ? pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "%s", pl_error_text())
                             : rc;
}

pl_status pl_npy_open_member(const char *path, const char *array, pl_npy **out)
{
    pl_file f = PL_FILE_NONE;
    uint64_t begin = 0, bytes = 0;
    PL_TRY(pl_file_open(path, PL_ERR_DATA, &f));
    pl_status rc = find_member(&f, array, &begin, &bytes);
    if (rc == PL_OK) return open_part(&f, begin, bytes, out);
    pl_file_close(&f);
    return rc;
}

pl_status pl_npy_open_memory(const void *data, size_t len, const char *name, pl_npy **out)
{
    pl_file f = PL_FILE_NONE;
    pl_file_open_memory(data, len, name, PL_ERR_DATA, &f);
    return open_part(&f, 0, f.size, out);
}

void pl_npy_close(pl_npy *a)
{
    if (!a) return;
    pl_file_close(&a->file);
    pl_sys_free(a);
}

pl_type pl_npy_type(const pl_npy *a)
{
    return a->type;
}

int64_t pl_npy_rows(const pl_npy *a)
{
    return a->rows;
}

size_t pl_npy_row_bytes(const pl_npy *a)
{
    return a->row_bytes;
}

pl_status pl_npy_read(const pl_npy *a, int64_t first, int64_t n, void *dst)
{
    PL_FAIL_IF(first < 0 || n < 0 || first > a->rows || n > a->rows - first, PL_ERR_ARG,
               "%.200s has %lld rows, %lld requested from row %lld on", a->name, (long long)a->rows,
               (long long)n, (long long)first);
    size_t bytes = (size_t)n * a->row_bytes; /* inside the file: no wrap */
    PL_TRY(pl_file_read(&a->file, a->begin + a->data_begin + (uint64_t)first * a->row_bytes, bytes,
                        dst));
    const uint8_t *b = dst;
    for (size_t i = 0; a->type.dtype == PL_BOOL && i < bytes; i++)
        PL_FAIL_IF(b[i] > 1, PL_ERR_DATA, "%.200s: a byte of a bool array is %d; it must be 0 or 1",
                   a->name, b[i]);
    return PL_OK;
}

/* ---- writing ---------------------------------------------------------------------------- */

struct pl_npy_writer {
    pl_file_writer *file;
    uint64_t left; /* bytes still missing */
};

static pl_status write_head(pl_npy_writer *w, const pl_type *type, const char *descr)
{
    pl_str h = PL_STR_INIT;
    pl_str_addn(&h, "\x93NUMPY\1\0\0\0", 10);
    pl_str_addf(&h, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < type->rank; i++)
        pl_str_addf(&h, i ? " %lld%s" : "%lld%s", (long long)type->dim[i],
                    i + 1 < type->rank || type->rank == 1 ? "," : "");
    pl_str_add(&h, "), }");
    while (!h.failed && h.len % DATA_ALIGN != DATA_ALIGN - 1) pl_str_add(&h, " ");
    pl_str_add(&h, "\n");
    pl_status rc = h.failed ? PL_ERR_MEMORY : PL_OK;
    if (rc == PL_OK) {
        h.text[8] = (char)((h.len - 10) & 0xFF);
        h.text[9] = (char)((h.len - 10) >> 8 & 0xFF);
        rc = pl_file_writer_write(w->file, h.text, h.len);
    }
    pl_str_release(&h);
    return rc;
}

pl_status pl_npy_writer_new(const char *path, const pl_type *type, pl_npy_writer **out)
{
    const char *descr = NULL;
    for (int i = 0; i < N_DESCR; i++)
        if (descr_rows[i].dtype == type->dtype) descr = descr_rows[i].descr;
    PL_FAIL_IF(!descr, PL_ERR_UNSUPPORTED, "%.200s: .npy has no type for %s; use safetensors", path,
               pl_dtype_name(type->dtype));
    uint64_t bytes = pl_dtype_bytes(type->dtype);
    for (int i = 0; i < type->rank; i++)
        PL_FAIL_IF(type->dim[i] < 0 ||
                       __builtin_mul_overflow(bytes, (uint64_t)type->dim[i], &bytes) ||
                       bytes >= MAX_BYTES,
                   PL_ERR_ARG, "%.200s: dimension %d is %lld, more than a file holds", path, i,
                   (long long)type->dim[i]);
    pl_npy_writer *w = pl_sys_alloc(sizeof *w);
    if (!w) return PL_ERR_MEMORY;
    w->left = bytes;
    pl_status rc = pl_file_writer_new(path, &w->file);
    if (rc == PL_OK) rc = write_head(w, type, descr);
    if (rc != PL_OK)
        pl_npy_writer_free(w);
    else
        *out = w;
    return rc;
}

pl_status pl_npy_writer_write(pl_npy_writer *w, const void *data, size_t bytes)
{
    PL_FAIL_IF(bytes > w->left, PL_ERR_ARG,
               "%zu bytes were given, but the array has room for only %llu more", bytes,
               (unsigned long long)w->left);
    PL_TRY(pl_file_writer_write(w->file, data, bytes));
    w->left -= bytes;
    return PL_OK;
}

pl_status pl_npy_writer_finish(pl_npy_writer *w)
{
    PL_FAIL_IF(w->left, PL_ERR_ARG, "the array is incomplete: %llu bytes were not written",
               (unsigned long long)w->left);
    return pl_file_writer_commit(w->file);
}

void pl_npy_writer_free(pl_npy_writer *w)
{
    if (!w) return;
    pl_file_writer_free(w->file);
    pl_sys_free(w);
}

pl_status pl_npy_write(const char *path, const pl_type *type, const void *data)
{
    pl_npy_writer *w = NULL;
    PL_TRY(pl_npy_writer_new(path, type, &w));
    pl_status rc = pl_npy_writer_write(w, data, (size_t)w->left);
    if (rc == PL_OK) rc = pl_npy_writer_finish(w);
    pl_npy_writer_free(w);
    return rc;
}
