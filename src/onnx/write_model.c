/* write_model.c - an ONNX file again, with other weights, for inference.
 *
 * The file is copied field by field: what this program does not understand stays. Initializers that
 * are in the weights are replaced; BatchNormalization and Dropout lose what switches them to
 * training. A message begins with its length, so the pieces of the graph are listed first and
 * written then; elements of tensors go from file to file, one tensor at a time. Elements that lie
 * in external data go into the new file; a file beyond 2 GiB has its elements in a second file,
 * x.onnx.data. */
#include "onnx/onnx.h"

#include "base/dtype.h"
#include "base/sys.h"
#include "io/st_set.h"
#include "onnx/write/encode.h"

#include <stdio.h>
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
    const pl_ox_init *init;     /* a tensor: its elements are those of */
    const pl_st_tensor *tensor; /* the weights, in this file, or, NULL, of the old external data */
    int file;
} piece;

typedef struct writer {
    pl_onnx *o;
    pl_arena mem;
    pl_st_set *weights;
    piece *piece;
    size_t n, cap;
    int replaced;
    const char *data; /* name of the second file; NULL: there is none */
    uint64_t at;      /* bytes of the second file so far */
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

/* Whether the weights replace elements of this type. Training does not change whole numbers and
 * truth values (masks, tables of indices), so other tensors are copied from the file. */
static bool is_written(int32_t type)
{
    return type == PL_OX_FLOAT || type == PL_OX_DOUBLE || type == PL_OX_FLOAT16 ||
           type == PL_OX_BFLOAT16 || type == PL_OX_INT64;
}

static void put_text(text *t, int id, const char *value)
{
    size_t n = strlen(value);
    put_head(t, id, n);
    memcpy(t->at + t->n, value, n);
    t->n += n;
}

/* An entry of external_data. */
static void put_pair(text *t, const char *key, const char *value)
{
    char at[600];
    text inner = {.at = at};
    put_text(&inner, 1, key);
    put_text(&inner, 2, value);
    put_head(t, 13, inner.n);
    memcpy(t->at + t->n, inner.at, inner.n);
    t->n += inner.n;
}

/* Where the elements lie in the second file. */
static void put_location(const writer *w, text *t, uint64_t bytes)
{
    char number[24];
    put_pair(t, "location", w->data);
    snprintf(number, sizeof number, "%llu", (unsigned long long)w->at);
    put_pair(t, "offset", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)bytes);
    put_pair(t, "length", number);
    put_varint(t, 14 << 3);
    put_varint(t, 1);
}

/* An initializer: dimensions, type, name, then its raw bytes, or where they are. */
static pl_status add_initializer(writer *w, piece p)
{
    const pl_ox_init *init = p.init;
    const pl_type *t = &init->about.type;
    text inner = {.at = pl_arena_alloc(&w->mem, strlen(init->about.name) + 1024)};
    text head = {.at = pl_arena_alloc(&w->mem, 32)};
    if (!inner.at || !head.at) return PL_ERR_MEMORY;
    for (int i = 0; i < t->rank; i++) {
        put_varint(&inner, 1 << 3);
        put_varint(&inner, (uint64_t)t->dim[i]);
    }
    put_varint(&inner, 2 << 3);
    put_varint(&inner, (uint64_t)init->tensor->data_type);
    put_text(&inner, 8, init->about.name);
    if (w->data)
        put_location(w, &inner, p.bytes);
    else
        put_head(&inner, 9, p.bytes);
    put_head(&head, 5, inner.n + (w->data ? 0 : p.bytes));
    PL_TRY(add_text(w, &head));
    PL_TRY(add_text(w, &inner));
    w->at += p.bytes;
    return add(w, p);
}

/* An initializer with the elements of the weights. */
static pl_status add_tensor(writer *w, const pl_ox_init *init, const pl_st_tensor *tensor, int file)
{
    const pl_type *t = &init->about.type;
    PL_FAIL_IF(!tensor->loadable || !same_shape(t, tensor), PL_ERR_FILE,
               "%s: initializer '%s' and the weights differ in type or shape", w->o->path,
               init->about.name);
    w->replaced++;
    return add_initializer(
        w, (piece){.bytes = pl_type_bytes(t), .init = init, .tensor = tensor, .file = file});
}

/* A constant whose elements lie in external data. */
static pl_status add_constant(writer *w, const pl_ox_init *init)
{
    uint64_t bytes = pl_ox_tensor_bytes(init->tensor, pl_type_elems(&init->about.type));
    return add_initializer(w, (piece){.bytes = bytes, .init = init});
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
            PL_TRY(add_node(w, &f, w->o->in_file[node++]));
            continue;
        }
        const pl_ox_tensor *t =
            f.id == 5 && init < g->n_initializer ? g->initializer[init++] : NULL;
        const pl_ox_init *known = t && t->name ? pl_ox_map_get(w->o->inits, t->name) : NULL;
        int file;
        bool replaced = known && is_written(t->data_type);
        const pl_st_tensor *tensor = replaced ? pl_st_set_find(w->weights, t->name, &file) : NULL;
        if (tensor)
            PL_TRY(add_tensor(w, known, tensor, file));
        else if (known && t->data_location == 1)
            PL_TRY(add_constant(w, known));
        else
            PL_TRY(add_file(w, f.begin, f.end));
    }
    return PL_OK;
}

static pl_status write_constant(const writer *w, const piece *p, void *buffer, size_t cap,
                                pl_file_writer *out)
{
    for (uint64_t done = 0; done < p->bytes;) {
        size_t n = p->bytes - done < cap ? (size_t)(p->bytes - done) : cap;
        PL_TRY(pl_ox_external_read(w->o, p->init->tensor, done, n, buffer));
        PL_TRY(pl_file_writer_write(out, buffer, n));
        done += n;
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
    if (p->init && !p->tensor) return write_constant(w, p, buffer, cap, out);
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

/* Whether the piece lies in the second file. */
static bool is_beside(const writer *w, size_t i)
{
    return w->data && w->piece[i].init;
}

/* size: bytes of the new graph. */
static pl_status list_model(writer *w, uint64_t *size)
{
    const pl_file *f = &w->o->file;
    bool seen = false;
    for (uint64_t pos = 0; pos < f->size;) {
        field x;
        PL_TRY(next_field(f, &pos, f->size, &x));
        if (x.id == 14 && pl_ox_is_own(f, x.body, x.end)) continue; /* of the old weights */
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
        for (size_t i = at + 1; i < w->n; i++) bytes += is_beside(w, i) ? 0 : w->piece[i].bytes;
        put_head(&head, 7, bytes);
        w->piece[at].bytes = head.n;
        *size = bytes;
    }
    PL_FAIL_IF(!w->replaced, PL_ERR_FILE, "%s: the weights have no tensor of this model", f->name);
    return PL_OK;
}

/* Appends the facts in the weights' metadata: class names, for instance. */
static void put_facts(const writer *w, pl_str *s)
{
    const pl_st_reader *f = pl_st_set_file(w->weights, 0);
    for (int i = 0; i < pl_st_meta_count(f); i++) {
        const char *key, *value;
        pl_str m = PL_STR_INIT;
        pl_st_meta_at(f, i, &key, &value);
        if (strncmp(key, "plimsoll.", 9) != 0 || strcmp(key, PL_SUM_KEY) == 0) continue;
        pl_ow_put_text(&m, 1, key);
        pl_ow_put_text(&m, 2, value);
        pl_ow_put_message(s, 14, &m);
    }
}

/* Writes the pieces of one of the two files: the model with its checksums, or the elements. */
static pl_status write_file(writer *w, const char *path, bool beside, uint64_t *sum)
{
    enum { BUFFER = 1 << 20 };
    pl_file_writer *out = NULL;
    pl_str sums = PL_STR_INIT;
    void *buffer = pl_sys_alloc(BUFFER);
    pl_status rc = buffer ? pl_file_writer_new(path, &out) : PL_ERR_MEMORY;
    if (!beside) {
        pl_ox_put_sums(&sums, w->data, *sum);
        put_facts(w, &sums);
    }
    if (rc == PL_OK && !beside)
        rc = sums.failed ? PL_ERR_MEMORY : pl_file_writer_write(out, sums.text, sums.len);
    for (size_t i = 0; i < w->n && rc == PL_OK; i++)
        if (is_beside(w, i) == beside) rc = write_piece(w, &w->piece[i], buffer, BUFFER, out);
    if (rc == PL_OK && !beside) pl_file_writer_sum_at(out, PL_OX_SUM_AT);
    if (rc == PL_OK) rc = pl_file_writer_commit(out);
    if (rc == PL_OK && beside) *sum = pl_file_writer_hash(out);
    pl_file_writer_free(out);
    pl_str_release(&sums);
    pl_sys_free(buffer);
    return rc;
}

static pl_status write_files(writer *w, const char *path, uint64_t most)
{
    uint64_t size = 0, sum = 0;
    PL_TRY(list_model(w, &size));
    if (size > most) {
        const char *slash = strrchr(path, '/');
        char *beside = pl_arena_printf(&w->mem, "%s.data", path);
        if (!beside) return PL_ERR_MEMORY;
        w->data = beside + (slash ? slash - path + 1 : 0);
        PL_FAIL_IF(strlen(w->data) > 255, PL_ERR_CONFIG, "%s: the name of the file is too long",
                   path);
        w->n = 0;
        w->replaced = 0;
        w->at = 0;
        PL_TRY(list_model(w, &size));
        PL_FAIL_IF(size > MAX_FILE, PL_ERR_UNSUPPORTED,
                   "%s: the model has %llu bytes without its weights; an ONNX file holds at most "
                   "2 GiB",
                   w->o->path, (unsigned long long)size);
        PL_TRY(write_file(w, beside, true, &sum));
    }
    return write_file(w, path, false, &sum);
}

pl_status pl_ox_write(pl_onnx *o, const char *weights, const char *path, uint64_t most,
                      int *tensors)
{
    writer w = {.o = o};
    pl_status rc = pl_st_set_open(weights, &w.weights);
    if (rc == PL_OK) rc = write_files(&w, path, most);
    if (rc == PL_OK && tensors) *tensors = w.replaced;
    pl_st_set_close(w.weights);
    pl_sys_free(w.piece);
    pl_arena_release(&w.mem);
    return rc;
}

pl_status pl_onnx_write(pl_onnx *o, const char *weights, const char *path, int *tensors)
{
    return pl_ox_write(o, weights, path, MAX_FILE, tensors);
}
