/* one_array.c - one array of a file, read whole: .npy, .npz, safetensors, PyTorch's files. */
#include "base/dtype.h"
#include "base/err.h"
#include "base/sys.h"
#include "io/npy.h"
#include "io/st_set.h"
#include "plimsoll_tensors.h"

#include <string.h>

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static bool is_numpy(const char *path)
{
    return ends_with(path, ".npy") || ends_with(path, ".npz");
}

static pl_status open_numpy(const char *path, const char *name, pl_npy **out)
{
    return ends_with(path, ".npz") ? pl_npy_open_member(path, name, out) : pl_npy_open(path, out);
}

/* A tensor that is alone in its file may have any name. */
static pl_status find_tensor(const pl_st_set *set, const char *path, const char *name,
                             const pl_st_reader **file, const pl_st_tensor **out)
{
    int n = 0;
    *out = NULL;
    for (int f = 0; f < pl_st_set_files(set) && !*out; f++) {
        *file = pl_st_set_file(set, f);
        *out = pl_st_find(*file, name);
        n += pl_st_count(*file);
    }
    if (!*out && n == 1 && pl_st_set_files(set) == 1) *out = pl_st_at(*file, 0);
    PL_FAIL_IF(!*out, PL_ERR_DATA, "%s has no tensor \"%s\"", path, name);
    PL_FAIL_IF(!(*out)->loadable, PL_ERR_DATA, "%s: tensor \"%s\": %s, or its rank %d, is not read",
               path, (*out)->name, pl_st_dtype_name((*out)->dtype), (*out)->rank);
    return PL_OK;
}

pl_status pl_array_file_type(const char *path, const char *name, pl_type *type)
{
    if (is_numpy(path)) {
        pl_npy *a;
        PL_TRY(open_numpy(path, name, &a));
        *type = pl_npy_type(a);
        pl_npy_close(a);
        return PL_OK;
    }
    pl_st_set *set;
    const pl_st_reader *file;
    const pl_st_tensor *x;
    PL_TRY(pl_st_set_open(path, &set));
    pl_status rc = find_tensor(set, path, name, &file, &x);
    if (rc == PL_OK) *type = x->type;
    pl_st_set_close(set);
    return rc;
}

/* Reads the elements in the type that the file has. */
static pl_status read_raw(const char *path, const char *name, void *to, size_t bytes)
{
    if (is_numpy(path)) {
        pl_npy *a;
        PL_TRY(open_numpy(path, name, &a));
        pl_status rc = pl_npy_read(a, 0, pl_npy_rows(a), to);
        pl_npy_close(a);
        return rc;
    }
    pl_st_set *set;
    const pl_st_reader *file;
    const pl_st_tensor *x;
    PL_TRY(pl_st_set_open(path, &set));
    pl_status rc = find_tensor(set, path, name, &file, &x);
    if (rc == PL_OK) rc = pl_st_read(file, x, to, bytes);
    pl_st_set_close(set);
    return rc;
}

pl_status pl_array_file_read(const char *path, const char *name, pl_dtype as, void *to,
                             size_t bytes)
{
    pl_type type;
    char text[96];
    PL_TRY(pl_array_file_type(path, name, &type));
    int64_t n = pl_type_elems(&type);
    PL_FAIL_IF(pl_dtype_is_float(type.dtype) && !pl_dtype_is_float(as), PL_ERR_DATA,
               "%s is %s, whole numbers are expected: save it as int64 (astype(\"int64\"))", path,
               pl_type_text(&type, text, sizeof text));
    PL_FAIL_IF((size_t)n * pl_dtype_bytes(as) != bytes, PL_ERR_ARG,
               "%s is %s, room for %zu bytes was given", path,
               pl_type_text(&type, text, sizeof text), bytes);
    if (type.dtype == as) return read_raw(path, name, to, bytes);
    void *raw = pl_sys_alloc(pl_type_bytes(&type) + 1);
    pl_status rc = raw ? read_raw(path, name, raw, pl_type_bytes(&type)) : PL_ERR_MEMORY;
    for (int64_t k = 0; rc == PL_OK && k < n; k++)
        pl_elem_set(as, to, k, pl_elem_get(type.dtype, raw, k));
    pl_sys_free(raw);
    return rc;
}
