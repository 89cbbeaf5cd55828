/* write_model.c - an ONNX file again, with other weights, for inference.
 *
 * The file is copied field by field: what this program does not understand stays. Initializers that
 * the weights have are written anew; BatchNormalization and Dropout lose what switches them to
 * training. A message begins with its length, so the pieces of the graph are listed first and
 * written then; elements of tensors go from file to file, one tensor at a time. */
#include "onnx/onnx.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "io/st_set.h"

#include <stdlib.h>
#include <string.h>

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
#define MAX_FILE ((uint64_t)INT32_MAX) /* of a protobuf message */

/* A field of a message in the file: all its bytes, and those of its contents. */
typedef struct field {
    uint64_t id, begin, body, end;
} field;

/* A piece of the new file: bytes of the old one, bytes in memory, or a tensor. */
typedef struct piece {
    uint64_t from, bytes; /* of the old file, when text and init are NULL */
    const char *text;
    const pl_ox_init *init;
    const pl_st_tensor *tensor;
    int file;
} piece;

typedef struct writer {
    pl_onnx *o;
    pl_arena mem;
    pl_st_set *weights;
    piece *piece;
    size_t n, cap;
    int replaced;
} writer;

static pl_status next_field(const pl_file *f, uint64_t *pos, uint64_t end, field *out)
{
    uint8_t b[24];
    size_t have = end - *pos < sizeof b ? (size_t)(end - *pos) : sizeof b, n = 0;
    uint64_t v[2] = {0, 0};
    PL_TRY(pl_file_read(f, *pos, have, b));
    out->begin = *pos;
    for (int k = 0; k < 2; k++) {
        int shift = 0;
        do {
            PL_FAIL_IF(n >= have || shift > 63, PL_ERR_FILE, "%s: the file is damaged", f->name);
            v[k] |= (uint64_t)(b[n] & 127) << shift;
            shift += 7;
        } while (b[n++] & 128);
        unsigned wire = (unsigned)(v[0] & 7);
        if (k == 0 && wire != WIRE_BYTES && wire != WIRE_VARINT) {
            n += wire == WIRE_64 ? 8 : 4;
            break;
        }
    }
    out->id = v[0] >> 3;
    out->body = *pos + n;
    out->end = out->body + ((v[0] & 7) == WIRE_BYTES ? v[1] : 0);
    PL_FAIL_IF(out->end > end || out->end < out->body, PL_ERR_FILE, "%s: the file is damaged",
               f->name);
    *pos = out->end;
    return PL_OK;
}

static pl_status add(writer *w, piece p)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 256;
        piece *more = pl_sys_realloc(w->piece, w->cap * sizeof p, cap * sizeof p);
        if (!more) return PL_ERR_MEMORY;
        w->piece = more;
        w->cap = cap;
    }
    piece *last = w->n ? &w->piece[w->n - 1] : NULL;
    bool file = !p.text && !p.init;
    if (last && file && !last->text && !last->init && last->from + last->bytes == p.from)
        last->bytes += p.bytes;
    else
        w->piece[w->n++] = p;
    return PL_OK;
}

static pl_status add_file(writer *w, uint64_t from, uint64_t to)
{
    return from == to ? PL_OK : add(w, (piece){.from = from, .bytes = to - from});
}

/* ---- small messages in memory ---------------------------------------------------------------- */
typedef struct text {
    char *at;
    size_t n;
} text;

static void put_varint(text *t, uint64_t v)
{
    do {
        t->at[t->n++] = (char)((v & 127) | (v > 127 ? 128 : 0));
        v >>= 7;
    } while (v);
}

static void put_head(text *t, int id, uint64_t bytes)
{
    put_varint(t, (uint64_t)id << 3 | WIRE_BYTES);
    put_varint(t, bytes);
}

static pl_status add_text(writer *w, const text *t)
{
    return add(w, (piece){.text = t->at, .bytes = t->n});
}

/* ---- tensors --------------------------------------------------------------------------------- */
static bool same_shape(const pl_type *a, const pl_st_tensor *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* An initializer with the elements of the weights: type, dimensions, name, then its raw bytes. */
static pl_status add_tensor(writer *w, const pl_ox_init *init, const pl_st_tensor *tensor, int file)
{
    const pl_type *t = &init->about.type;
    int32_t type = init->tensor->data_type;
    bool keep = type == PL_OX_FLOAT || type == PL_OX_DOUBLE || type == PL_OX_FLOAT16 ||
                type == PL_OX_BFLOAT16 || type == PL_OX_INT64;
    PL_FAIL_IF(!keep || !tensor->loadable || !same_shape(t, tensor), PL_ERR_FILE,
               "%s: initializer '%s' and the weights differ in type or shape", w->o->path,
               init->about.name);
    size_t name = strlen(init->about.name);
    text inner = {.at = pl_arena_alloc(&w->mem, name + 256)};
    text head = {.at = pl_arena_alloc(&w->mem, 32)};
    if (!inner.at || !head.at) return PL_ERR_MEMORY;
    for (int i = 0; i < t->rank; i++) {
        put_varint(&inner, 1 << 3);
        put_varint(&inner, (uint64_t)t->dim[i]);
    }
    put_varint(&inner, 2 << 3);
    put_varint(&inner, (uint64_t)type);
    put_head(&inner, 8, name);
    memcpy(inner.at + inner.n, init->about.name, name);
    inner.n += name;
    uint64_t bytes = pl_type_bytes(t);
    put_head(&inner, 9, bytes);
    put_head(&head, 5, inner.n + bytes);
    PL_TRY(add_text(w, &head));
    PL_TRY(add_text(w, &inner));
    w->replaced++;
    return add(w, (piece){.bytes = bytes, .init = init, .tensor = tensor, .file = file});
}

/* ---- nodes ----------------------------------------------------------------------------------- */
static bool is_training_mode(const pl_ox_attr *a)
{
    return a->name && strcmp(a->name, "training_mode") == 0;
}

/* Copies a node without what switches it to training: the attribute training_mode and the outputs
 * of running statistics, or the third input of Dropout. */
static pl_status add_node(writer *w, const field *f, const pl_ox_node *n)
{
    bool norm = n->op_type && strcmp(n->op_type, "BatchNormalization") == 0;
    bool drop = n->op_type && strcmp(n->op_type, "Dropout") == 0;
    bool mode = drop && n->n_input > 2;
    for (size_t i = 0; i < n->n_attribute && norm; i++) mode |= is_training_mode(n->attribute[i]);
    if (!mode) return add_file(w, f->begin, f->end);
    size_t in = 0, out = 0, attr = 0;
    text inner = {.at = pl_arena_alloc(&w->mem, (size_t)(f->end - f->body) + 1)};
    text head = {.at = pl_arena_alloc(&w->mem, 32)};
    if (!inner.at || !head.at) return PL_ERR_MEMORY;
    for (uint64_t pos = f->body; pos < f->end;) {
        field x;
        PL_TRY(next_field(&w->o->file, &pos, f->end, &x));
        if (x.id == 1 && drop && in++ >= 2) continue;
        if (x.id == 2 && norm && out++ >= 1) continue;
        if (x.id == 5 && norm && is_training_mode(n->attribute[attr++])) continue;
        PL_TRY(pl_file_read(&w->o->file, x.begin, (size_t)(x.end - x.begin), inner.at + inner.n));
        inner.n += (size_t)(x.end - x.begin);
    }
    put_head(&head, 1, inner.n);
    PL_TRY(add_text(w, &head));
    return add_text(w, &inner);
}

/* ---- the file -------------------------------------------------------------------------------- */
static pl_status list_graph(writer *w, const field *graph)
{
    const pl_ox_graph *g = w->o->proto->graph;
    size_t node = 0, init = 0;
    for (uint64_t pos = graph->body; pos < graph->end;) {
        field f;
        PL_TRY(next_field(&w->o->file, &pos, graph->end, &f));
        if (f.id == 1 && node < g->n_node) {
            PL_TRY(add_node(w, &f, g->node[node++]));
            continue;
        }
        const pl_ox_tensor *t =
            f.id == 5 && init < g->n_initializer ? g->initializer[init++] : NULL;
        const pl_ox_init *known = t && t->name ? pl_ox_map_get(w->o->inits, t->name) : NULL;
        int file;
        const pl_st_tensor *tensor = known ? pl_st_set_find(w->weights, t->name, &file) : NULL;
        PL_FAIL_IF(t && !tensor && t->data_location == 1, PL_ERR_UNSUPPORTED,
                   "%s: constant '%s' lies in external data, which the new file would lack",
                   w->o->path, t->name ? t->name : "");
        if (tensor)
            PL_TRY(add_tensor(w, known, tensor, file));
        else
            PL_TRY(add_file(w, f.begin, f.end));
    }
    return PL_OK;
}

/* The elements of a tensor, in the type of the initializer. */
static pl_status write_tensor(writer *w, const piece *p, pl_file_writer *out)
{
    const pl_st_reader *r = pl_st_set_file(w->weights, p->file);
    const pl_type *t = &p->init->about.type, *own = &p->tensor->type;
    size_t bytes = pl_type_bytes(own);
    void *from = pl_sys_alloc(bytes + 1);
    if (!from) return PL_ERR_MEMORY;
    void *to = from;
    pl_status rc = pl_st_read(r, p->tensor, from, bytes);
    if (rc == PL_OK && own->dtype != t->dtype) {
        to = pl_sys_alloc(p->bytes + 1);
        if (!to) rc = PL_ERR_MEMORY;
        for (int64_t i = 0; rc == PL_OK && i < pl_type_elems(t); i++)
            pl_elem_set(t->dtype, to, i, pl_elem_get(own->dtype, from, i));
    }
    if (rc == PL_OK) rc = pl_file_writer_write(out, to, (size_t)p->bytes);
    if (to != from) pl_sys_free(to);
    pl_sys_free(from);
    return rc;
}

static pl_status write_piece(writer *w, const piece *p, void *buffer, size_t cap,
                             pl_file_writer *out)
{
    if (p->init) return write_tensor(w, p, out);
    if (p->text) return pl_file_writer_write(out, p->text, (size_t)p->bytes);
    for (uint64_t done = 0; done < p->bytes;) {
        size_t n = p->bytes - done < cap ? (size_t)(p->bytes - done) : cap;
        PL_TRY(pl_file_read(&w->o->file, p->from + done, n, buffer));
        PL_TRY(pl_file_writer_write(out, buffer, n));
        done += n;
    }
    return PL_OK;
}

/* The checksum that the new file carries. */
static pl_status add_sum(writer *w)
{
    pl_str s = PL_STR_INIT;
    pl_ox_put_sums(&s, NULL, 0);
    text t = {.at = s.failed ? NULL : pl_arena_alloc(&w->mem, s.len), .n = s.len};
    if (t.at) memcpy(t.at, s.text, s.len);
    pl_str_release(&s);
    return t.at ? add_text(w, &t) : PL_ERR_MEMORY;
}

static pl_status list_model(writer *w)
{
    const pl_file *f = &w->o->file;
    bool seen = false;
    PL_TRY(add_sum(w));
    for (uint64_t pos = 0; pos < f->size;) {
        field x;
        PL_TRY(next_field(f, &pos, f->size, &x));
        if (x.id == 14 && pl_ox_is_sum(f, x.body, x.end)) continue; /* of the old file */
        if (x.id != 7) {
            PL_TRY(add_file(w, x.begin, x.end));
            continue;
        }
        PL_FAIL_IF(seen, PL_ERR_UNSUPPORTED, "%s: the file has its graph in two parts", f->name);
        seen = true;
        text head = {.at = pl_arena_alloc(&w->mem, 32)};
        if (!head.at) return PL_ERR_MEMORY;
        size_t at = w->n;
        PL_TRY(add_text(w, &head)); /* its length follows from the pieces after it */
        PL_TRY(list_graph(w, &x));
        uint64_t bytes = 0;
        for (size_t i = at + 1; i < w->n; i++) bytes += w->piece[i].bytes;
        put_head(&head, 7, bytes);
        w->piece[at].bytes = head.n;
        PL_FAIL_IF(bytes > MAX_FILE, PL_ERR_UNSUPPORTED,
                   "%s: the model has %llu bytes; an ONNX file holds at most 2 GiB", f->name,
                   (unsigned long long)bytes);
    }
    PL_FAIL_IF(!w->replaced, PL_ERR_FILE, "%s: the weights have no tensor of this model", f->name);
    return PL_OK;
}

static pl_status write_file(writer *w, const char *path)
{
    enum { BUFFER = 1 << 20 };
    pl_file_writer *out = NULL;
    void *buffer = pl_sys_alloc(BUFFER);
    pl_status rc = buffer ? pl_file_writer_new(path, &out) : PL_ERR_MEMORY;
    for (size_t i = 0; i < w->n && rc == PL_OK; i++)
        rc = write_piece(w, &w->piece[i], buffer, BUFFER, out);
    if (rc == PL_OK) pl_file_writer_sum_at(out, PL_OX_SUM_AT);
    if (rc == PL_OK) rc = pl_file_writer_commit(out);
    pl_file_writer_free(out);
    pl_sys_free(buffer);
    return rc;
}

pl_status pl_onnx_write(pl_onnx *o, const char *weights, const char *path, int *tensors)
{
    writer w = {.o = o};
    pl_status rc = pl_st_set_open(weights, &w.weights);
    if (rc == PL_OK) rc = list_model(&w);
    if (rc == PL_OK) rc = write_file(&w, path);
    if (rc == PL_OK && tensors) *tensors = w.replaced;
    pl_st_set_close(w.weights);
    pl_sys_free(w.piece);
    pl_arena_release(&w.mem);
    return rc;
}
