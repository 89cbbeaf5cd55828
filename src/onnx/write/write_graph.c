/* write_graph.c - a graph of the engine as an ONNX file; see write_graph.h.
 *
 * Nodes that an output needs are written in the order of the graph, each by its row of writers.def.
 * Small constants and nodes are encoded in memory; values of slots go from the source to the file,
 * one at a time. A message begins with its length, so all sizes are known before the first byte is
 * written.
 */
#include "base/sys.h"
#include "io/file.h"
#include "onnx/onnx.h"
#include "onnx/write/encode.h"
#include "onnx/write/write.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"

#include <stdio.h>
#include <string.h>

enum { OPSET = 18, IR_VERSION = 8 };
#define MOST_BYTES ((uint64_t)INT32_MAX) /* of a protobuf message */

/* ---- rows ----------------------------------------------------------------------------- */
typedef struct writer_row {
    const char *op;
    void (*write)(pl_ow *w);
    const char *why_not;
} writer_row;

static const writer_row rows[] = {
#define PL_WRITE(op)          {#op, pl_ow_write_##op, NULL},
#define PL_WRITE_AS(op, name) {#op, pl_ow_write_##name, NULL},
#define PL_WRITE_NOT(op, why) {#op, NULL, why},
#include "onnx/write/writers.def"
};

typedef struct map_row {
    const char *op;
    const char *(*by)(pl_ow *w, const char *const *in);
} map_row;

static const map_row maps[PL_N_SCALARS] = {
#define PL_WRITE_MAP(NAME, name)    [PL_SCALAR_##NAME] = {name, NULL},
#define PL_WRITE_MAP_BY(NAME, name) [PL_SCALAR_##NAME] = {NULL, pl_ow_map_##name},
#include "onnx/write/writers.def"
};

static const writer_row *row_of(const char *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].op, op) == 0) return &rows[i];
    return NULL;
}

static bool is_map(const pl_op *op)
{
    return op->flags & PL_OP_MAP && op->scalar < PL_N_SCALARS &&
           (maps[op->scalar].op || maps[op->scalar].by);
}

const char *pl_ow_lacks(const char *name)
{
    const pl_op *op = pl_op_find(name);
    const writer_row *row = row_of(name);
    if ((op && is_map(op)) || (row && row->write)) return NULL;
    return row ? row->why_not : "writers.def has no row for it";
}

/* An elementwise op works in the order of its first operand that has another than the engine's. */
static void write_map(pl_ow *w)
{
    const pl_node_rec *n = pl_node_get(w->g, w->node);
    const map_row *row = &maps[n->op->scalar];
    int order[PL_MAX_RANK];
    const int *hand = NULL;
    const char *in[4] = {NULL};
    bool whole, any = false;
    for (int i = 0; i < n->n_in && !hand; i++) hand = pl_ow_order(w, pl_ow_arg(w, i));
    if (hand) memcpy(order, hand, sizeof order);
    for (int i = 0; i < n->n_in && i < 3; i++) {
        in[i] = pl_ow_operand(w, pl_ow_arg(w, i), hand ? order : NULL, &whole);
        any |= whole;
    }
    if (!any) in[0] = pl_ow_in(w, pl_ow_arg(w, 0), hand ? order : NULL);
    const char *y = row->by ? row->by(w, in) : pl_ow_op(w, row->op, in, NULL);
    pl_ow_set(w, pl_ow_result(w, 0), y, hand ? order : NULL);
}

/* ---- sources and effects --------------------------------------------------------------- */
void pl_ow_write_input(pl_ow *w)
{
    const char *name = pl_node_name(w->g, w->node);
    pl_ow_declare(&w->inputs, 11, name, pl_type_of(w->g, pl_ow_result(w, 0)));
    pl_ow_set(w, pl_ow_result(w, 0), name, NULL);
}

/* The name of a tensor, or another one where an input has it. */
static const char *free_name(pl_ow *w, const char *name, const char *prefix)
{
    for (uint32_t n = 1; n < w->g->n_nodes; n++) {
        const char *other = pl_node_name(w->g, n);
        if (other && pl_node_get(w->g, n)->op == &pl_op_input && strcmp(other, name) == 0)
            return pl_arena_printf(&w->mem, "%s%s", prefix, name);
    }
    return name;
}

static pl_ow_tensor *tensor_of(pl_ow *w, int slot)
{
    const pl_slot *s = pl_store_slot(w->g->store, slot);
    for (pl_ow_tensor *t = w->tensors; t; t = t->next)
        if (t->slot == slot) return t;
    pl_ow_tensor *t = pl_arena_new(&w->mem, pl_ow_tensor, 1);
    const char *name = t ? free_name(w, s->name, "weight.") : NULL;
    if (!name) {
        w->status = PL_ERR_MEMORY;
        return NULL;
    }
    *t = (pl_ow_tensor){.name = name, .slot = slot, .type = w->source->type(w->source->ctx, slot)};
    *w->last_tensor = t;
    w->last_tensor = &t->next;
    w->info.tensors++;
    w->info.bytes += pl_type_bytes(&t->type);
    return t;
}

/* The slot as model files have it is the order at hand. */
void pl_ow_write_state(pl_ow *w)
{
    int slot = pl_node_slot(w->g, w->node), back[PL_MAX_RANK] = {0};
    const pl_slot *s = pl_store_slot(w->g->store, slot);
    const pl_file_layout *l = &s->layout;
    const pl_type *type = pl_slot_type(s);
    const pl_ow_tensor *t = tensor_of(w, slot);
    uint32_t result = pl_ow_result(w, 0);
    if (!t) return;
    if (!l->view_rank && !l->flat) {
        int perm[PL_MAX_RANK];
        for (int i = 0; i < PL_MAX_RANK; i++) perm[i] = l->rank && i < l->rank ? l->perm[i] : i;
        pl_ow_set(w, result, t->name, perm);
        return;
    }
    int rank = l->view_rank ? l->view_rank : type->rank;
    int64_t dim[PL_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int k = l->rank ? l->perm[i] : i;
        dim[i] = l->view_rank ? l->view[k] : type->dim[k];
        back[k] = i;
    }
    const char *x = l->flat ? pl_ow_reshape(w, t->name, rank, dim) : t->name;
    x = pl_ow_transpose(w, x, rank, back);
    pl_ow_set(w, result, pl_ow_reshape(w, x, type->rank, type->dim), NULL);
}

/* An output is a copy with the name of the output. */
void pl_ow_write_output(pl_ow *w)
{
    uint32_t x = pl_ow_arg(w, 0);
    const char *from = pl_ow_in(w, x, NULL);
    const char *name = free_name(w, pl_node_name(w->g, w->node), "out.");
    pl_str m = PL_STR_INIT;
    if (w->status != PL_OK || !name) return;
    pl_ow_put_text(&m, 1, from);
    pl_ow_put_text(&m, 2, name);
    pl_ow_put_text(&m, 3, name);
    pl_ow_put_text(&m, 4, "Identity");
    pl_ow_put_message(&w->nodes, 1, &m);
    w->info.nodes++;
    pl_ow_declare(&w->outputs, 12, name, pl_type_of(w->g, x));
}

/* ---- the graph ------------------------------------------------------------------------- */
/* Marks what outputs need, from the last node to the first. */
static bool *mark_needed(pl_ow *w)
{
    const pl_graph *g = w->g;
    bool *needed = pl_arena_new(&w->mem, bool, g->n_nodes);
    w->used = pl_arena_new(&w->mem, bool, g->n_vals);
    if (!needed || !w->used) return NULL;
    for (uint32_t n = g->n_nodes - 1; n >= 1; n--) {
        const pl_node_rec *r = pl_node_get(g, n);
        needed[n] = r->op == &pl_op_output || r->op == &pl_op_input;
        for (int k = 0; k < r->n_out; k++) needed[n] |= w->used[r->out + (uint32_t)k];
        for (int k = 0; needed[n] && k < r->n_in && !(r->op->flags & PL_OP_DRAW); k++)
            w->used[pl_node_in(g, n)[k]] = true;
    }
    return needed;
}

static pl_status write_nodes(pl_ow *w)
{
    const bool *needed = mark_needed(w);
    w->form = pl_arena_new(&w->mem, pl_ow_form *, w->g->n_vals);
    if (!needed || !w->form) return PL_ERR_MEMORY;
    for (uint32_t n = 1; n < w->g->n_nodes && w->status == PL_OK; n++) {
        const pl_op *op = pl_node_get(w->g, n)->op;
        const writer_row *row = row_of(op->name);
        w->node = n;
        if (!needed[n]) continue;
        if (is_map(op))
            write_map(w);
        else if (row && row->write)
            row->write(w);
        else
            pl_ow_fail(w, "the op %s has no ONNX form: %s", op->name, pl_ow_lacks(op->name));
    }
    bool failed = w->nodes.failed || w->constants.failed || w->inputs.failed || w->outputs.failed;
    return w->status != PL_OK ? w->status : failed ? PL_ERR_MEMORY : PL_OK;
}

/* ---- the file -------------------------------------------------------------------------- */
static void put_pair(pl_str *s, int field, const char *key, const char *value)
{
    pl_str m = PL_STR_INIT;
    pl_ow_put_text(&m, 1, key);
    pl_ow_put_text(&m, 2, value);
    pl_ow_put_message(s, field, &m);
}

static pl_status put_fact(void *to, const char *key, const char *text)
{
    pl_str *s = to;
    put_pair(s, 14, key, text);
    return s->failed ? PL_ERR_MEMORY : PL_OK;
}

/* A TensorProto without its elements: they follow, or lie at byte `at` of the file `data`. */
static pl_str tensor_head(const pl_ow_tensor *t, const char *data, uint64_t at)
{
    pl_str m = PL_STR_INIT;
    char number[32];
    for (int i = 0; i < t->type.rank; i++) pl_ow_put_int(&m, 1, t->type.dim[i]);
    pl_ow_put_int(&m, 2, pl_ow_dtype(t->type.dtype));
    pl_ow_put_text(&m, 8, t->name);
    if (!data) {
        pl_ow_put_head(&m, 9, pl_type_bytes(&t->type));
        return m;
    }
    put_pair(&m, 13, "location", data);
    snprintf(number, sizeof number, "%llu", (unsigned long long)at);
    put_pair(&m, 13, "offset", number);
    snprintf(number, sizeof number, "%zu", pl_type_bytes(&t->type));
    put_pair(&m, 13, "length", number);
    pl_ow_put_int(&m, 14, 1);
    return m;
}

static pl_status write_elements(pl_ow *w, const pl_ow_tensor *t, pl_file_writer *out)
{
    size_t bytes = pl_type_bytes(&t->type);
    void *data = pl_sys_alloc(bytes + 1);
    if (!data) return PL_ERR_MEMORY;
    pl_status rc = w->source->read(w->source->ctx, t->slot, data);
    if (rc == PL_OK) rc = pl_file_writer_write(out, data, bytes);
    pl_sys_free(data);
    return rc;
}

/* Everything before the graph's own fields; data: the name of the file with the tensors, or NULL,
 * and its checksum. The checksums come first, where onnx/sums.c finds them. */
static pl_str model_head(const pl_ow_source *source, uint64_t graph_bytes, const char *data,
                         uint64_t data_sum)
{
    pl_str m = PL_STR_INIT, opset = PL_STR_INIT;
    pl_ox_put_sums(&m, data, data_sum);
    if (source->facts && source->facts(source->ctx, put_fact, &m) != PL_OK) m.failed = true;
    pl_ow_put_int(&m, 1, IR_VERSION);
    pl_ow_put_text(&m, 2, "plimsoll");
    pl_ow_put_text(&m, 3, pl_version());
    pl_ow_put_text(&opset, 1, "");
    pl_ow_put_int(&opset, 2, OPSET);
    pl_ow_put_message(&m, 8, &opset);
    pl_ow_put_head(&m, 7, graph_bytes);
    return m;
}

static pl_status write_text(pl_file_writer *out, pl_str *s)
{
    pl_status rc = s->failed ? PL_ERR_MEMORY : PL_OK;
    if (rc == PL_OK && s->len) rc = pl_file_writer_write(out, s->text, s->len);
    pl_str_release(s);
    return rc;
}

/* Bytes of the graph's tensors in the model file. */
static uint64_t tensor_bytes(const pl_ow *w, const char *data)
{
    uint64_t sum = 0, at = 0;
    for (const pl_ow_tensor *t = w->tensors; t; t = t->next) {
        pl_str m = tensor_head(t, data, at), head = PL_STR_INIT;
        uint64_t inside = data ? 0 : pl_type_bytes(&t->type);
        pl_ow_put_head(&head, 5, m.len + inside);
        sum += head.len + m.len + inside;
        at += pl_type_bytes(&t->type);
        pl_str_release(&m);
        pl_str_release(&head);
    }
    return sum;
}

static pl_status write_model(pl_ow *w, const char *data, uint64_t data_sum, pl_file_writer *out)
{
    pl_str *part[] = {&w->nodes, &w->constants, &w->inputs, &w->outputs};
    uint64_t bytes = tensor_bytes(w, data), at = 0;
    pl_str name = PL_STR_INIT;
    pl_ow_put_text(&name, 2, "plimsoll");
    bytes += name.len;
    for (int i = 0; i < 4; i++) bytes += part[i]->len;
    pl_str head = model_head(w->source, bytes, data, data_sum);
    pl_status rc = write_text(out, &head);
    if (rc == PL_OK) rc = write_text(out, &name);
    pl_str_release(&name);
    for (int i = 0; i < 4 && rc == PL_OK; i++) rc = write_text(out, part[i]);
    for (const pl_ow_tensor *t = w->tensors; t && rc == PL_OK; t = t->next) {
        pl_str m = tensor_head(t, data, at), field = PL_STR_INIT;
        pl_ow_put_head(&field, 5, m.len + (data ? 0 : pl_type_bytes(&t->type)));
        at += pl_type_bytes(&t->type);
        rc = write_text(out, &field);
        if (rc == PL_OK) rc = write_text(out, &m);
        pl_str_release(&m);
        if (rc == PL_OK && !data) rc = write_elements(w, t, out);
    }
    return rc;
}

/* The tensors one after the other, in a file beside the model. */
static pl_status write_data(pl_ow *w, const char *path, uint64_t *sum)
{
    pl_file_writer *out = NULL;
    pl_status rc = pl_file_writer_new(path, &out);
    for (const pl_ow_tensor *t = w->tensors; t && rc == PL_OK; t = t->next)
        rc = write_elements(w, t, out);
    if (rc == PL_OK) rc = pl_file_writer_commit(out);
    if (rc == PL_OK) *sum = pl_file_writer_hash(out);
    pl_file_writer_free(out);
    return rc;
}

static pl_status write_files(pl_ow *w, const char *path, uint64_t most)
{
    uint64_t bytes = w->nodes.len + w->constants.len + w->inputs.len + w->outputs.len + 4096;
    uint64_t sum = 0;
    const char *data = NULL, *slash = strrchr(path, '/');
    PL_FAIL_IF(bytes > MOST_BYTES, PL_ERR_UNSUPPORTED,
               "%s: the nodes and constants take %llu bytes; an ONNX file holds at most 2 GiB",
               path, (unsigned long long)bytes);
    if (bytes + tensor_bytes(w, NULL) > most) {
        char *whole = pl_arena_printf(&w->mem, "%s.data", path);
        if (!whole) return PL_ERR_MEMORY;
        PL_TRY(write_data(w, whole, &sum));
        data = whole + (slash ? slash - path + 1 : 0);
        w->info.external = true;
    }
    pl_file_writer *out = NULL;
    pl_status rc = pl_file_writer_new(path, &out);
    if (rc == PL_OK) rc = write_model(w, data, sum, out);
    if (rc == PL_OK) pl_file_writer_sum_at(out, PL_OX_SUM_AT);
    if (rc == PL_OK) rc = pl_file_writer_commit(out);
    pl_file_writer_free(out);
    return rc;
}

pl_status pl_ow_graph(const pl_graph *g, const pl_ow_source *source, const char *path,
                      uint64_t inline_bytes, pl_ow_info *info)
{
    pl_ow w = {.g = g, .source = source};
    w.last_tensor = &w.tensors;
    pl_status rc = write_nodes(&w);
    if (rc == PL_OK) rc = write_files(&w, path, inline_bytes ? inline_bytes : MOST_BYTES);
    if (rc == PL_OK) *info = w.info;
    pl_str_release(&w.nodes);
    pl_str_release(&w.constants);
    pl_str_release(&w.inputs);
    pl_str_release(&w.outputs);
    pl_arena_release(&w.mem);
    return rc;
}
