/* array.c - see array.h. */
#include "data/sets/array.h"
#include "data/sets/table_columns.h"
#include "data/sets/token_windows.h"
#include "plimsoll_hdf5.h"

#include "base/arena.h"
#include "base/dtype.h"
#include "base/sys.h"
#include "io/npy.h"
#include "io/safetensors.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERIFIED_BYTES ((int64_t)1 << 30) /* larger arrays are verified by `inspect` alone */

/* One file: exactly one of the five readers. */
typedef struct shard {
    const char *path;
    pl_npy *npy;
    pl_st_reader *st;
    const pl_st_tensor *tensor;
    pl_hdf5 *hdf5;
    pl_table_part *table;
    pl_token_windows *tokens;
    pl_dtype have; /* of the file, where its numbers are converted */
    bool converts; /* floats, bytes and bools to floats, or whole numbers to others */
    int64_t first; /* row of the column that its first row is */
} shard;

struct pl_array {
    pl_arena mem;
    shard *shards;
    int n;
    int64_t rows;
    pl_type sample;
    size_t row_bytes;
    bool verify; /* compare checksums at opening */
    /* a row in the file's type, where numbers are converted: one thread at a time */
    pthread_mutex_t lock;
    char *scratch;
    size_t scratch_bytes;
};

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static bool is_hdf5(const char *name)
{
    return ends_with(name, ".h5") || ends_with(name, ".hdf5");
}

bool pl_array_is_bundle(const char *name)
{
    return ends_with(name, ".safetensors") || ends_with(name, ".npz") || ends_with(name, ".csv") ||
           ends_with(name, ".bin") || is_hdf5(name);
}

static pl_status open_tensor(shard *s, const char *field, bool verify, pl_type *type)
{
    pl_status rc = pl_st_open(s->path, &s->st);
    if (rc == PL_OK && verify) rc = pl_st_verify(s->st, NULL);
    if (rc == PL_ERR_FILE) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    if (rc != PL_OK) return rc;
    s->tensor = pl_st_find(s->st, field);
    PL_FAIL_IF(!s->tensor, PL_ERR_DATA,
               "%s has no tensor \"%s\" (data.fields can give it another name)", s->path, field);
    PL_FAIL_IF(!s->tensor->loadable, PL_ERR_DATA,
               "%s: tensor \"%s\" has dtype %s, which is not read", s->path, field,
               pl_st_dtype_name(s->tensor->dtype));
    *type = s->tensor->type;
    return PL_OK;
}

static pl_status open_file(const pl_array *a, shard *s, const char *field,
                           const char *const *others, pl_type *type)
{
    if (ends_with(s->path, ".safetensors")) return open_tensor(s, field, a->verify, type);
    if (ends_with(s->path, ".csv")) {
        PL_TRY(pl_table_part_open(s->path, field, others, &a->sample, &s->table));
        *type = pl_table_part_type(s->table);
        return PL_OK;
    }
    if (ends_with(s->path, ".bin")) {
        PL_TRY(pl_token_windows_open(s->path, field, &a->sample, &s->tokens));
        *type = PL_TYPE(a->sample.dtype, pl_token_windows_rows(s->tokens), a->sample.dim[0]);
        return PL_OK;
    }
    if (is_hdf5(s->path)) {
        PL_TRY(pl_hdf5_open(s->path, field, &s->hdf5));
        *type = pl_hdf5_type(s->hdf5);
        return PL_OK;
    }
    PL_TRY(ends_with(s->path, ".npz") ? pl_npy_open_member(s->path, field, &s->npy)
                                      : pl_npy_open(s->path, &s->npy));
    *type = pl_npy_type(s->npy);
    return PL_OK;
}

static bool is_whole(pl_dtype d)
{
    return d == PL_U8 || d == PL_I32 || d == PL_I64;
}

/* Other floating types, bytes and bools are converted to a floating type, whole numbers to whole
 * numbers of another width. Whole numbers of 32 and 64 bits are not taken for floats: they are
 * mostly class numbers. */
static bool is_converted(pl_dtype have, pl_dtype want)
{
    if (have == want) return false;
    if (pl_dtype_is_float(want)) return have != PL_I32 && have != PL_I64;
    return is_whole(want) && (is_whole(have) || have == PL_BOOL);
}

/* Dimensions of 1 do not count: a column of numbers may be [N] or [N, 1]. */
static bool rows_match(const pl_type *array, const pl_type *sample, bool any_dtype)
{
    any_dtype |= is_converted(array->dtype, sample->dtype);
    if (array->rank < 1 || (array->dtype != sample->dtype && !any_dtype)) return false;
    int i = 1, k = 0;
    for (;;) {
        while (i < array->rank && array->dim[i] == 1) i++;
        while (k < sample->rank && sample->dim[k] == 1) k++;
        if (i == array->rank || k == sample->rank) return i == array->rank && k == sample->rank;
        if (array->dim[i++] != sample->dim[k++]) return false;
    }
}

static pl_status open_shard(pl_array *a, shard *s, const char *input, const char *field,
                            const char *const *others)
{
    char x[96], y[96];
    pl_type have = {0};
    PL_FAIL_IF(access(s->path, R_OK) != 0, PL_ERR_DATA, "input \"%s\" needs the array %s: %s",
               input, s->path, strerror(errno));
    PL_TRY(open_file(a, s, field, others, &have));
    bool match = rows_match(&have, &a->sample, s->hdf5 || s->table);
    PL_FAIL_IF(!match && is_whole(a->sample.dtype) && !is_whole(have.dtype), PL_ERR_DATA,
               "%s is %s; input \"%s\" needs whole numbers, samples of %s: save it as int64 (%s)",
               s->path, pl_type_text(&have, x, sizeof x), input,
               pl_type_text(&a->sample, y, sizeof y),
               have.rank > a->sample.rank + 1 ? "one-hot rows: argmax(-1)" : "astype(\"int64\")");
    pl_type as = have;
    as.dtype = a->sample.dtype;
    PL_FAIL_IF(!match, PL_ERR_DATA, "%s is %s; input \"%s\" needs samples of %s in its rows%s",
               s->path, pl_type_text(&have, x, sizeof x), input,
               pl_type_text(&a->sample, y, sizeof y),
               rows_match(&as, &a->sample, true) && !is_whole(a->sample.dtype)
                   ? ": save it with astype(\"float32\")"
                   : "");
    PL_FAIL_IF(have.dim[0] == 0, PL_ERR_DATA, "%s holds no samples", s->path);
    s->have = have.dtype;
    s->converts = !s->hdf5 && !s->table && is_converted(have.dtype, a->sample.dtype);
    size_t row = (size_t)pl_type_elems(&a->sample) * pl_dtype_bytes(have.dtype);
    if (s->converts && row > a->scratch_bytes) {
        a->scratch = pl_sys_realloc(a->scratch, a->scratch_bytes, row);
        if (!a->scratch) return PL_ERR_MEMORY;
        a->scratch_bytes = row;
    }
    s->first = a->rows;
    a->rows += have.dim[0];
    return PL_OK;
}

/* Whether all files together are small enough to read them before training. The files of a cache
 * are verified by its stamp, at any size. */
static bool is_small(const char *const *paths, int n)
{
    int64_t bytes = 0;
    struct stat st;
    for (int i = 0; i < n && bytes <= VERIFIED_BYTES; i++)
        if (stat(paths[i], &st) == 0) bytes += st.st_size;
    return bytes <= VERIFIED_BYTES;
}

static pl_status open_all(pl_array *a, const char *const *paths, int n, const char *input,
                          const char *field, const char *const *others)
{
    a->shards = pl_arena_new(&a->mem, shard, n + 1);
    if (!a->shards) return PL_ERR_MEMORY;
    a->verify = is_small(paths, n);
    for (int i = 0; i < n; i++) {
        a->shards[i].path = pl_arena_strdup(&a->mem, paths[i]);
        if (!a->shards[i].path) return PL_ERR_MEMORY;
        a->n++;
        PL_TRY(open_shard(a, &a->shards[i], input, field, others));
    }
    return PL_OK;
}

pl_status pl_array_open(const char *const *paths, int n, const char *input, const char *field,
                        const char *const *others, const pl_type *sample, pl_array **out)
{
    pl_array *a = pl_sys_alloc(sizeof *a);
    if (!a) return PL_ERR_MEMORY;
    pthread_mutex_init(&a->lock, NULL);
    a->sample = *sample;
    a->row_bytes = pl_type_bytes(sample);
    pl_status rc = open_all(a, paths, n, input, field, others);
    if (rc != PL_OK) {
        pl_array_close(a);
        return rc;
    }
    *out = a;
    return PL_OK;
}

void pl_array_close(pl_array *a)
{
    if (!a) return;
    for (int i = 0; i < a->n; i++) {
        pl_npy_close(a->shards[i].npy);
        pl_st_close(a->shards[i].st);
        pl_hdf5_close(a->shards[i].hdf5);
        pl_table_part_close(a->shards[i].table);
        pl_token_windows_close(a->shards[i].tokens);
    }
    pl_arena_release(&a->mem);
    pthread_mutex_destroy(&a->lock);
    pl_sys_free(a->scratch);
    pl_sys_free(a);
}

int64_t pl_array_rows(const pl_array *a)
{
    return a->rows;
}

static const shard *shard_of(const pl_array *a, int64_t row)
{
    int lo = 0, hi = a->n - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (a->shards[mid].first <= row)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &a->shards[lo];
}

const char *pl_array_path(const pl_array *a, int64_t row)
{
    return shard_of(a, row)->path;
}

static pl_status read_raw(const shard *s, int64_t row, size_t row_bytes, void *to)
{
    if (s->npy) return pl_npy_read(s->npy, row, 1, to);
    pl_status rc = pl_st_read_range(s->st, s->tensor, (uint64_t)row * row_bytes, row_bytes, to);
    if (rc == PL_ERR_FILE) PL_FAIL(PL_ERR_DATA, "%s", pl_error_text());
    return rc;
}

/* Writes n numbers of the scratch row to `to`. PL_ERR_DATA: one does not fit the input's type. */
static pl_status convert(const pl_array *a, const shard *s, int64_t row, void *to)
{
    int64_t n = pl_type_elems(&a->sample);
    bool whole = is_whole(s->have) && is_whole(a->sample.dtype);
    for (int64_t i = 0; i < n && !whole; i++)
        pl_elem_set(a->sample.dtype, to, i, pl_elem_get(s->have, a->scratch, i));
    for (int64_t i = 0; i < n && whole; i++) {
        int64_t v = s->have == PL_I64   ? ((const int64_t *)(const void *)a->scratch)[i]
                    : s->have == PL_I32 ? ((const int32_t *)(const void *)a->scratch)[i]
                                        : ((const uint8_t *)a->scratch)[i];
        int64_t low = a->sample.dtype == PL_I32 ? INT32_MIN : 0;
        int64_t high = a->sample.dtype == PL_I32 ? INT32_MAX : UINT8_MAX;
        PL_FAIL_IF(a->sample.dtype != PL_I64 && (v < low || v > high), PL_ERR_DATA,
                   "%s: element %lld of row %lld is %lld; the input has whole numbers from %lld to "
                   "%lld",
                   s->path, (long long)i, (long long)row, (long long)v, (long long)low,
                   (long long)high);
        if (a->sample.dtype == PL_I64)
            ((int64_t *)to)[i] = v;
        else if (a->sample.dtype == PL_I32)
            ((int32_t *)to)[i] = (int32_t)v;
        else
            ((uint8_t *)to)[i] = (uint8_t)v;
    }
    return PL_OK;
}

pl_status pl_array_read(const pl_array *a, int64_t row, void *to)
{
    const shard *s = shard_of(a, row);
    row -= s->first;
    if (s->hdf5) return pl_hdf5_read(s->hdf5, row, a->sample.dtype, to);
    if (s->table) return pl_table_part_read(s->table, row, a->sample.dtype, to);
    if (s->tokens) return pl_token_windows_read(s->tokens, row, to);
    if (!s->converts) return read_raw(s, row, a->row_bytes, to);
    pthread_mutex_t *lock = &((pl_array *)(uintptr_t)a)->lock; /* the scratch row is shared */
    pthread_mutex_lock(lock);
    size_t bytes = (size_t)pl_type_elems(&a->sample) * pl_dtype_bytes(s->have);
    pl_status rc = read_raw(s, row, bytes, a->scratch);
    if (rc == PL_OK) rc = convert(a, s, row, to);
    pthread_mutex_unlock(lock);
    return rc;
}
