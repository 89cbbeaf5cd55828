/* tensors.c - see plimsoll_tensors.h: the readers and writers of weight files for recipes and
 * programs. */
#include "plimsoll_tensors.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "io/file.h"
#include "io/st_set.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 1 << 12 };

struct pl_tensors {
    pl_st_set *set;
};

pl_status pl_tensors_open(const char *path, pl_tensors **out)
{
    pl_tensors *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    pl_status rc = pl_st_set_open(path, &t->set);
    if (rc != PL_OK) {
        pl_sys_free(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

void pl_tensors_close(pl_tensors *t)
{
    if (!t) return;
    pl_st_set_close(t->set);
    pl_sys_free(t);
}

int pl_tensors_count(const pl_tensors *t)
{
    int n = 0;
    for (int i = 0; i < pl_st_set_files(t->set); i++) n += pl_st_count(pl_st_set_file(t->set, i));
    return n;
}

/* Tensor i of all files. */
static const pl_st_tensor *tensor_at(const pl_tensors *t, int i, const pl_st_reader **file)
{
    for (int f = 0; f < pl_st_set_files(t->set); f++) {
        *file = pl_st_set_file(t->set, f);
        if (i < pl_st_count(*file)) return pl_st_at(*file, i);
        i -= pl_st_count(*file);
    }
    return NULL;
}

static pl_tensor_info info_of(const pl_st_tensor *x)
{
    return (pl_tensor_info){x->name, pl_st_dtype_name(x->dtype), x->rank, x->dim,
                            x->end - x->begin};
}

pl_tensor_info pl_tensors_at(const pl_tensors *t, int i)
{
    const pl_st_reader *file;
    return info_of(tensor_at(t, i, &file));
}

int pl_tensors_find(const pl_tensors *t, const char *name)
{
    int first = 0;
    for (int f = 0; f < pl_st_set_files(t->set); f++) {
        const pl_st_reader *file = pl_st_set_file(t->set, f);
        const pl_st_tensor *hit = pl_st_find(file, name);
        if (hit) return first + (int)(hit - pl_st_at(file, 0));
        first += pl_st_count(file);
    }
    return -1;
}

const char *pl_tensors_meta(const pl_tensors *t, const char *key)
{
    const char *value = NULL;
    for (int f = 0; f < pl_st_set_files(t->set) && !value; f++)
        value = pl_st_meta_get(pl_st_set_file(t->set, f), key);
    return value;
}

pl_status pl_tensors_read(const pl_tensors *t, int i, pl_dtype as, void *dst, size_t dst_bytes)
{
    const pl_st_reader *file = NULL;
    const pl_st_tensor *x = tensor_at(t, i, &file);
    char raw[BLOCK];
    PL_FAIL_IF(!x->loadable, PL_ERR_FILE, "tensor \"%.80s\": %s, or its rank %d, is not read",
               x->name, pl_st_dtype_name(x->dtype), x->rank);
    if (x->type.dtype == as) return pl_st_read(file, x, dst, dst_bytes);
    int64_t n = pl_type_elems(&x->type), size = (int64_t)pl_dtype_bytes(x->type.dtype);
    PL_FAIL_IF(dst_bytes != (size_t)n * pl_dtype_bytes(as), PL_ERR_ARG,
               "tensor \"%.80s\" has %lld elements, %zu bytes were requested", x->name,
               (long long)n, dst_bytes);
    for (int64_t at = 0; at < n;) {
        int64_t m = BLOCK / size < n - at ? BLOCK / size : n - at;
        PL_TRY(pl_st_read_range(file, x, (uint64_t)(at * size), (size_t)(m * size), raw));
        for (int64_t k = 0; k < m; k++)
            pl_elem_set(as, dst, at + k, pl_elem_get(x->type.dtype, raw, k));
        at += m;
    }
    return PL_OK;
}

static pl_status save(pl_st_writer *w, const pl_tensor_data *tensor, int n)
{
    for (int i = 0; i < n; i++)
        PL_TRY(pl_st_writer_add(w, tensor[i].name ? tensor[i].name : "tensor", &tensor[i].type));
    if (n == 1 && !tensor[0].name) pl_st_writer_alone(w);
    PL_TRY(pl_st_writer_begin(w));
    for (int i = 0; i < n; i++) {
        int k = pl_st_writer_order(w, i);
        PL_TRY(pl_st_writer_write(w, k, tensor[k].data, pl_type_bytes(&tensor[k].type)));
    }
    return pl_st_writer_finish(w);
}

pl_status pl_tensors_save(const char *path, const pl_tensor_data *tensor, int n)
{
    pl_st_writer *w;
    PL_TRY(pl_st_writer_new(path, &w));
    pl_status rc = save(w, tensor, n);
    pl_st_writer_free(w);
    return rc;
}

/* The metadata; in place of the digits of a checksum, that it matches: opening has verified it. */
static void list_meta(const pl_st_reader *file,
                      void (*each)(void *ctx, const char *key, const char *value), void *ctx)
{
    const char *key, *value, *sum = NULL;
    if (!each) return;
    for (int i = 0; i < pl_st_meta_count(file); i++) {
        pl_st_meta_at(file, i, &key, &value);
        if (strcmp(key, PL_SUM_KEY) != 0) each(ctx, key, value);
    }
    char text[80];
    pl_status rc = pl_st_verify(file, &sum);
    snprintf(text, sizeof text, "%s%s", sum ? sum : "none", sum && rc == PL_OK ? ", matches" : "");
    each(ctx, "checksum", text);
}

pl_status pl_model_file_list(const char *path, void (*each)(void *ctx, const pl_tensor_info *t),
                             void (*each_meta)(void *ctx, const char *key, const char *value),
                             void *ctx)
{
    pl_st_set *s;
    PL_TRY(pl_st_set_open(path, &s));
    for (int f = 0; f < pl_st_set_files(s); f++) {
        const pl_st_reader *file = pl_st_set_file(s, f);
        for (int i = 0; i < pl_st_count(file); i++) {
            pl_tensor_info info = info_of(pl_st_at(file, i));
            each(ctx, &info);
        }
        list_meta(file, each_meta, ctx);
    }
    pl_st_set_close(s);
    return PL_OK;
}
