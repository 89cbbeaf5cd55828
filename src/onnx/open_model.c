/* open_model.c - opens an ONNX file: inputs, outputs, initializers, functions; which tensors train.
 *
 * An initializer is a weight when a layer uses it as one (input 1 of Conv, the table of a Gather),
 * or when its name looks like a parameter's. Exporters give parameters the names of the module
 * ("layer1.0.conv1.weight") and other tensors generated names ("onnx::Mul_12", "val_3",
 * "/blocks.0/Constant_output_0").
 */
#include "onnx/onnx.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- texts to pointers ----------------------------------------------------------------------- */
typedef struct map_entry {
    const char *key;
    void *value;
} map_entry;
struct pl_ox_map {
    pl_arena *mem;
    map_entry *entry; /* open addressing; cap is a power of two */
    size_t cap, n;
};

pl_ox_map *pl_ox_map_new(pl_arena *mem)
{
    pl_ox_map *m = pl_arena_new(mem, pl_ox_map, 1);
    if (!m) return NULL;
    *m = (pl_ox_map){.mem = mem, .entry = pl_arena_new(mem, map_entry, 64), .cap = 64};
    return m->entry ? m : NULL;
}

static map_entry *place(const pl_ox_map *m, const char *key)
{
    size_t i = (size_t)XXH64(key, strlen(key), 0) & (m->cap - 1);
    while (m->entry[i].key && strcmp(m->entry[i].key, key) != 0) i = (i + 1) & (m->cap - 1);
    return &m->entry[i];
}

void *pl_ox_map_get(const pl_ox_map *m, const char *key)
{
    return place(m, key)->value;
}

pl_status pl_ox_map_put(pl_ox_map *m, const char *key, void *value)
{
    if (2 * (m->n + 1) > m->cap) {
        pl_ox_map bigger = {.mem = m->mem, .cap = 2 * m->cap, .n = m->n};
        bigger.entry = pl_arena_new(m->mem, map_entry, bigger.cap);
        if (!bigger.entry) return PL_ERR_MEMORY;
        for (size_t i = 0; i < m->cap; i++)
            if (m->entry[i].key) *place(&bigger, m->entry[i].key) = m->entry[i];
        *m = bigger;
    }
    map_entry *e = place(m, key);
    m->n += !e->key;
    *e = (map_entry){key, value};
    return PL_OK;
}

/* ---- ports ----------------------------------------------------------------------------------- */
/* A dynamic dimension without a name gets one, INPUT_1, which key dims can bind; the first
 * dimension is the batch. */
static pl_status read_port(pl_onnx *o, const pl_ox_info *info, bool input, pl_onnx_port *p)
{
    *p = (pl_onnx_port){.name = info->name ? info->name : "", .rank = -1, .type_name = "unknown"};
    const pl_ox_tensor_type *t = info->type ? info->type->tensor : NULL;
    if (t) {
        p->type_name = pl_ox_type_name(t->elem_type);
        p->supported = pl_ox_dtype(t->elem_type, &p->dtype);
    }
    if (!t || !t->shape) {
        PL_FAIL_IF(
            input && t, PL_ERR_UNSUPPORTED,
            "%s: input '%s' has no shape; export the model with the number of its dimensions",
            o->path, p->name);
        return PL_OK;
    }
    PL_FAIL_IF(t->shape->n_dim > PL_MAX_RANK, PL_ERR_UNSUPPORTED,
               "%s: '%s' has %zu dimensions; Plimsoll supports at most %d", o->path, p->name,
               t->shape->n_dim, PL_MAX_RANK);
    p->rank = (int)t->shape->n_dim;
    for (int i = 0; i < p->rank; i++) {
        const pl_ox_dim *d = t->shape->dim[i];
        bool named = d->param && d->param[0];
        p->dim[i] = d->has_value && !named ? d->value : -1; /* -1 in a file: dynamic, too */
        p->dim_name[i] = named ? d->param : NULL;
        PL_FAIL_IF(p->dim[i] < -1 || p->dim[i] > (int64_t)1 << 40, PL_ERR_FILE,
                   "%s: '%s' has a dimension of %lld", o->path, p->name, (long long)p->dim[i]);
        if (p->dim[i] >= 0 || named || !i) continue;
        p->dim_name[i] = pl_arena_printf(&o->mem, "%s_%d", p->name, i);
        if (!p->dim_name[i]) return PL_ERR_MEMORY;
    }
    return PL_OK;
}

static pl_status read_ports(pl_onnx *o)
{
    const pl_ox_graph *g = o->proto->graph;
    o->in = pl_arena_new(&o->mem, pl_onnx_port, g->n_input + 1);
    o->out = pl_arena_new(&o->mem, pl_onnx_port, g->n_output + 1);
    if (!o->in || !o->out) return PL_ERR_MEMORY;
    for (size_t i = 0; i < g->n_input; i++) {
        if (g->input[i]->name && pl_ox_map_get(o->inits, g->input[i]->name)) continue;
        PL_TRY(read_port(o, g->input[i], true, &o->in[o->n_in++]));
    }
    pl_ox_map *seen = pl_ox_map_new(&o->mem);
    if (!seen) return PL_ERR_MEMORY;
    for (size_t i = 0; i < g->n_output; i++) { /* an output that is listed twice is one */
        const char *name = g->output[i]->name ? g->output[i]->name : "";
        if (pl_ox_map_get(seen, name)) continue;
        PL_TRY(pl_ox_map_put(seen, name, seen));
        PL_TRY(read_port(o, g->output[i], false, &o->out[o->n_out++]));
    }
    return PL_OK;
}

/* ---- initializers ---------------------------------------------------------------------------- */
static pl_status read_inits(pl_onnx *o)
{
    const pl_ox_graph *g = o->proto->graph;
    o->init = pl_arena_new(&o->mem, pl_ox_init, g->n_initializer + g->n_sparse + 1);
    if (!o->init) return PL_ERR_MEMORY;
    for (size_t i = 0; i < g->n_initializer + g->n_sparse; i++) {
        pl_ox_init *t = &o->init[o->n_init];
        if (i < g->n_initializer)
            t->tensor = g->initializer[i];
        else
            t->sparse = g->sparse[i - g->n_initializer];
        const pl_ox_tensor *named = t->tensor ? t->tensor : t->sparse->values;
        PL_FAIL_IF(!named || !named->name || !named->name[0] || (t->sparse && !t->sparse->indices),
                   PL_ERR_FILE, "%s: initializer %zu has no name or no values", o->path, i);
        t->about.name = named->name;
        pl_dtype dtype;
        if (!pl_ox_dtype(named->data_type, &dtype))
            continue; /* reported by the node that uses it */
        PL_TRY(pl_ox_tensor_type_of(o, named, &t->about.type));
        if (t->sparse) {
            pl_ox_tensor whole = {.n_dims = t->sparse->n_dims,
                                  .dims = t->sparse->dims,
                                  .data_type = named->data_type,
                                  .name = named->name};
            PL_TRY(pl_ox_tensor_type_of(o, &whole, &t->about.type));
        }
        PL_FAIL_IF(pl_ox_map_get(o->inits, named->name), PL_ERR_FILE,
                   "%s: there are two initializers '%s'", o->path, named->name);
        PL_TRY(pl_ox_map_put(o->inits, named->name, t));
        o->n_init++;
    }
    return PL_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */
static pl_status read_functions(pl_onnx *o)
{
    for (size_t i = 0; i < o->proto->n_function; i++) {
        pl_ox_function *f = o->proto->function[i];
        char *key = pl_arena_printf(&o->mem, "%s:%s:%s", f->domain ? f->domain : "",
                                    f->name ? f->name : "", f->overload ? f->overload : "");
        if (!key) return PL_ERR_MEMORY;
        PL_TRY(pl_ox_map_put(o->functions, key, f));
    }
    return PL_OK;
}

static pl_status read_opset(pl_onnx *o)
{
    for (size_t i = 0; i < o->proto->n_opset; i++) {
        const pl_ox_opset *s = o->proto->opset[i];
        if (!s->domain || !s->domain[0] || strcmp(s->domain, "ai.onnx") == 0) o->opset = s->version;
    }
    if (!o->opset && o->proto->n_opset) o->opset = 18; /* ops of other domains only */
    PL_FAIL_IF(!o->opset, PL_ERR_FILE, "%s: the file does not name its opset", o->path);
    PL_FAIL_IF(
        o->opset < 1 || o->opset > 28, PL_ERR_UNSUPPORTED,
        "%s: opset %lld; opsets 1 to 28 are read, 13 to 28 are tested. Export the model with "
        "opset_version=18",
        o->path, (long long)o->opset);
    return PL_OK;
}

static pl_status read_model(pl_onnx *o)
{
    PL_TRY(pl_ox_parse(&o->file, &o->mem, &o->proto));
    PL_FAIL_IF(!o->proto->graph, PL_ERR_FILE, "%s has no graph; it is not an ONNX model", o->path);
    PL_TRY(read_opset(o));
    PL_TRY(pl_ox_sort_nodes(o));
    o->inits = pl_ox_map_new(&o->mem);
    o->functions = pl_ox_map_new(&o->mem);
    o->slots = pl_ox_map_new(&o->mem);
    o->producer =
        pl_arena_printf(&o->mem, "%s%s%s", o->proto->producer_name ? o->proto->producer_name : "",
                        o->proto->producer_version ? " " : "",
                        o->proto->producer_version ? o->proto->producer_version : "");
    if (!o->inits || !o->functions || !o->slots || !o->producer) return PL_ERR_MEMORY;
    PL_TRY(read_inits(o));
    PL_TRY(pl_ox_read_kinds(o));
    PL_TRY(read_functions(o));
    PL_TRY(read_ports(o));
    PL_TRY(pl_ox_set_roles(o));
    return PL_OK;
}

static pl_status open_file(const char *path, const char *folder, size_t folder_len,
                           const pl_file *memory, pl_onnx **out)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_onnx *o = pl_arena_new(&mem, pl_onnx, 1);
    if (!o) return PL_ERR_MEMORY;
    o->mem = mem;
    o->file = (pl_file)PL_FILE_NONE;
    o->path = pl_arena_strdup(&o->mem, path);
    o->folder = pl_arena_strndup(&o->mem, folder, folder_len);
    pl_status rc = o->path && o->folder ? PL_OK : PL_ERR_MEMORY;
    if (rc == PL_OK && memory)
        o->file = *memory;
    else if (rc == PL_OK)
        rc = pl_file_open(o->path, PL_ERR_FILE, &o->file);
    if (rc == PL_OK) rc = pl_ox_verify(o);
    if (rc == PL_OK) rc = read_model(o);
    if (rc == PL_OK)
        *out = o;
    else
        pl_onnx_free(o);
    return rc;
}

pl_status pl_onnx_open(const char *path, pl_onnx **out)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return open_file(path, ".", 1, NULL, out);
    return open_file(path, path, (size_t)(slash - path + (slash == path)), NULL, out);
}

pl_status pl_ox_open_memory(const void *data, size_t len, const char *folder, pl_onnx **out)
{
    pl_file f = PL_FILE_NONE;
    pl_file_open_memory(data, len, "memory", PL_ERR_FILE, &f);
    return open_file("memory", folder, strlen(folder), &f, out);
}

void pl_onnx_free(pl_onnx *o)
{
    if (!o) return;
    pl_file_close(&o->file);
    pl_arena mem = o->mem; /* holds o itself */
    pl_arena_release(&mem);
}

const char *pl_onnx_missing(void)
{
    return pl_ox_missing();
}
int pl_onnx_input_count(const pl_onnx *o)
{
    return o->n_in;
}
const pl_onnx_port *pl_onnx_input(const pl_onnx *o, int i)
{
    return i >= 0 && i < o->n_in ? &o->in[i] : NULL;
}
int pl_onnx_output_count(const pl_onnx *o)
{
    return o->n_out;
}
const pl_onnx_port *pl_onnx_output(const pl_onnx *o, int i)
{
    return i >= 0 && i < o->n_out ? &o->out[i] : NULL;
}
int pl_onnx_initializer_count(const pl_onnx *o)
{
    return o->n_init;
}
const pl_onnx_initializer *pl_onnx_initializer_get(const pl_onnx *o, int i)
{
    return i >= 0 && i < o->n_init ? &o->init[i].about : NULL;
}
int pl_onnx_node_count(const pl_onnx *o)
{
    return (int)o->proto->graph->n_node;
}
const char *pl_onnx_meta(const pl_onnx *o, const char *key)
{
    for (size_t i = 0; i < o->proto->n_metadata; i++) {
        const pl_ox_pair *p = o->proto->metadata[i];
        if (p->key && p->value && strcmp(p->key, key) == 0) return p->value;
    }
    return NULL;
}
const char *pl_onnx_producer(const pl_onnx *o)
{
    return o->producer;
}
