/* fixed.c - inputs of the model with one value for all samples: key inputs.
 *
 *     inputs: {attention_mask: 1, position_ids: range, img_ids: ids.npy}
 *
 * An input without a batch (a scalar, positions that all samples share) must have such a value; an
 * input with a batch may have one. The value is known when the graph is built, so shapes may depend
 * on it. The compiled program has no such input: data.path and --input do not supply it.
 *
 * A file is searched from the current folder, then beside the model. Its array has the shape of the
 * input, or of one row of it, which is then used for every sample. Dynamic dimensions that only the
 * file knows get their sizes from the array.
 */
#include "onnx.h"

#include <plimsoll_tensors.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *onnx_fixed_text(const onnx_part *p, const char *name)
{
    static const char *const usual[][2] = {
        {"attention_mask", "1"}, {"position_ids", "range"}, {"token_type_ids", "0"}};
    const pl_config *c = pl_builder_config(p->b);
    const char *key, *value;
    for (int i = 0; (key = pl_config_pair(c, "inputs", i, &value)); i++)
        if (strcmp(key, name) == 0) return value;
    for (size_t i = 0; p->feed == ONNX_TOKENS && i < sizeof usual / sizeof *usual; i++)
        if (strcmp(usual[i][0], name) == 0) return usual[i][1];
    return NULL;
}

static bool is_number(const char *text, double *value)
{
    char *end;
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        *value = text[0] == 't';
        return true;
    }
    *value = strtod(text, &end);
    return end != text && *end == 0;
}

static bool is_file(const char *text)
{
    double ignored;
    return strcmp(text, "range") != 0 && !is_number(text, &ignored);
}

static pl_status find_file(const onnx_part *p, const char *name, const char *text, char *path,
                           size_t cap)
{
    const char *model = pl_config_text(pl_builder_config(p->b), "recipe");
    const char *slash = strrchr(model, '/');
    int folder = slash ? (int)(slash - model) + 1 : 0;
    int n = snprintf(path, cap, "%s", text);
    if (n >= 0 && (size_t)n < cap && access(path, R_OK) == 0) return PL_OK;
    n = snprintf(path, cap, "%.*s%s", folder, model, text);
    if (text[0] != '/' && n >= 0 && (size_t)n < cap && access(path, R_OK) == 0) return PL_OK;
    return pl_fail(PL_ERR_CONFIG,
                   "inputs.%s: \"%s\" is not a number, not range, and not a file that can be read, "
                   "from here or beside the model: inputs.%s=FILE.npy names an array",
                   name, text, name);
}

/* ---- names and sizes ------------------------------------------------------------------------ */
pl_status onnx_fixed_check(const onnx_part *p)
{
    const pl_config *c = pl_builder_config(p->b);
    const char *key, *value;
    for (int i = 0; (key = pl_config_pair(c, "inputs", i, &value)); i++) {
        char names[400] = "";
        bool found = false;
        for (int k = 0; k < pl_onnx_input_count(p->model); k++) {
            const char *name = pl_onnx_input(p->model, k)->name;
            size_t n = strlen(names);
            found |= strcmp(name, key) == 0;
            if (n + strlen(name) + 3 < sizeof names)
                snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", name);
        }
        if (!found)
            return pl_fail(PL_ERR_CONFIG, "inputs.%s: the model has no input %s (its inputs: %s)",
                           key, key, names);
        if (i >= ONNX_FIXED)
            return pl_fail(PL_ERR_CONFIG, "inputs: at most %d inputs have fixed values",
                           ONNX_FIXED);
    }
    return PL_OK;
}

/* The name of the batch: the first dimension of the first input that data fill. */
static const char *batch_name(const onnx_part *p)
{
    for (int i = 0; i < pl_onnx_input_count(p->model); i++) {
        const pl_onnx_port *port = pl_onnx_input(p->model, i);
        if (port->rank > 0 && !onnx_fixed_text(p, port->name)) return port->dim_name[0];
    }
    return NULL;
}

static bool has_dim(const pl_onnx_dim *dims, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(dims[i].name, name) == 0) return true;
    return false;
}

pl_status onnx_fixed_dims(const onnx_part *p, pl_onnx_dim *dims, int cap)
{
    const char *batch = batch_name(p);
    int n = 0;
    while (dims[n].name) n++;
    for (int i = 0; i < pl_onnx_input_count(p->model); i++) {
        const pl_onnx_port *port = pl_onnx_input(p->model, i);
        const char *text = onnx_fixed_text(p, port->name);
        char path[4096];
        pl_type t;
        if (!text || !is_file(text)) continue;
        pl_status rc = find_file(p, port->name, text, path, sizeof path);
        if (rc == PL_OK) rc = pl_array_file_type(path, port->name, &t);
        if (rc != PL_OK) return rc;
        for (int k = 0; k < port->rank && t.rank == port->rank; k++) {
            const char *name = port->dim_name[k];
            if (!name || (batch && strcmp(name, batch) == 0) || has_dim(dims, n, name)) continue;
            if (n < cap) dims[n++] = (pl_onnx_dim){name, t.dim[k]};
        }
    }
    return PL_OK;
}

/* ---- values --------------------------------------------------------------------------------- */
static pl_status fill(const char *name, const char *text, const pl_type *t, void *to)
{
    bool range = strcmp(text, "range") == 0, whole = t->dtype == PL_I64;
    double value = 0;
    if (!range) (void)is_number(text, &value);
    if (whole && !(value > -9e18 && value < 9e18 && (double)(int64_t)value == value))
        return pl_fail(PL_ERR_CONFIG, "inputs.%s: %s is not a whole number, as the input needs",
                       name, text);
    int64_t n = pl_type_elems(t), last = t->rank ? t->dim[t->rank - 1] : 1;
    for (int64_t i = 0; i < n; i++) {
        double x = range ? (double)(i % last) : value;
        if (whole)
            ((int64_t *)to)[i] = (int64_t)x;
        else
            ((double *)to)[i] = x;
    }
    return PL_OK;
}

/* Whether the array is the value (0), one row of it (1), or neither (-1). */
static int rows_of(const pl_type *array, const pl_type *t)
{
    size_t dim = sizeof *t->dim;
    if (array->rank == t->rank && memcmp(array->dim, t->dim, (size_t)t->rank * dim) == 0) return 0;
    if (t->rank == 0) return -1;
    bool one = array->rank == t->rank && array->dim[0] == 1;
    if (!one && array->rank != t->rank - 1) return -1;
    return memcmp(array->dim + one, t->dim + 1, (size_t)(t->rank - 1) * dim) == 0 ? 1 : -1;
}

static pl_status read_file(const onnx_part *p, const char *name, const char *text, const pl_type *t,
                           void *to)
{
    char path[4096], have[96], want[96];
    pl_type array;
    pl_status rc = find_file(p, name, text, path, sizeof path);
    if (rc == PL_OK) rc = pl_array_file_type(path, name, &array);
    if (rc != PL_OK) return rc;
    int rows = rows_of(&array, t);
    pl_type same = pl_type_make(array.dtype, t->rank, t->dim); /* the shapes differ, no more */
    if (rows < 0)
        return pl_fail(PL_ERR_CONFIG, "inputs.%s: %s is %s, the input needs %s", name, path,
                       pl_type_text(&array, have, sizeof have),
                       pl_type_text(&same, want, sizeof want));
    size_t bytes = (size_t)pl_type_elems(&array) * 8, all = (size_t)pl_type_elems(t) * 8;
    rc = pl_array_file_read(path, name, t->dtype, to, bytes);
    if (rc != PL_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", pl_error_text());
        return pl_fail(rc, "inputs.%s: %s", name, why);
    }
    for (size_t at = bytes; rows == 1 && at < all; at += bytes) memcpy((char *)to + at, to, bytes);
    return PL_OK;
}

pl_status onnx_fixed_read(const onnx_part *p, const pl_onnx_opts *o, onnx_fixed *out)
{
    for (int i = 0; i < pl_onnx_input_count(p->model); i++) {
        const char *name = pl_onnx_input(p->model, i)->name, *text = onnx_fixed_text(p, name);
        pl_onnx_constant *to = &out->list[out->n];
        if (!text || out->n == ONNX_FIXED) continue;
        pl_status rc = pl_onnx_input_type(p->model, name, o, &to->type);
        if (rc != PL_OK) return rc;
        if (pl_type_elems(&to->type) > PL_ONNX_CONSTANT_ELEMS)
            return pl_fail(PL_ERR_CONFIG,
                           "inputs.%s: the input has %lld elements, a fixed value has at most %d: "
                           "make it data",
                           name, (long long)pl_type_elems(&to->type), PL_ONNX_CONSTANT_ELEMS);
        to->type.dtype = pl_dtype_is_float(to->type.dtype) ? PL_F64 : PL_I64;
        void *data = malloc(pl_type_bytes(&to->type) + 1);
        if (!data) return PL_ERR_MEMORY;
        out->data[out->n++] = data;
        to->data = data;
        rc = is_file(text) ? read_file(p, name, text, &to->type, data)
                           : fill(name, text, &to->type, data);
        if (rc != PL_OK) return rc;
        to->name = name;
    }
    return PL_OK;
}

void onnx_fixed_free(onnx_fixed *f)
{
    for (int i = 0; i < f->n; i++) free(f->data[i]);
}
