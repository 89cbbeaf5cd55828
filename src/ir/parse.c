/* parse.c - text to graph; see text.h for the form.
 *
 * A hand-written scanner over one buffer: the grammar has one line per node and no recursion, so
 * depth and memory are bounded by the length of the text. Every failure names line and column.
 * Written types are compared with what infer derives.
 */
#include "ir/text.h"

#include "base/sys.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INPUTS 4096

typedef struct scan {
    const char *p, *end, *begin;
    pl_graph *g;
} scan;

static pl_status fail_at(const scan *s, const char *what)
{
    int line = 1, column = 1;
    for (const char *q = s->begin; q < s->p; q++) {
        column = *q == '\n' ? 1 : column + 1;
        line += *q == '\n';
    }
    return pl__fail(PL_ERR_GRAPH, __FILE__, __LINE__, "%d:%d: %s", line, column, what);
}

/* ---- tokens ----------------------------------------------------------------------------- */
static void blanks(scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

static bool at(scan *s, char c)
{
    blanks(s);
    return s->p < s->end && *s->p == c;
}

static bool eat(scan *s, char c)
{
    if (!at(s, c)) return false;
    s->p++;
    return true;
}

static pl_status want(scan *s, char c)
{
    if (eat(s, c)) return PL_OK;
    char what[] = "expected 'x'";
    what[10] = c;
    return fail_at(s, what);
}

/* Scans a word of letters, digits and _; returns its length, 0 if there is none. */
static size_t word(scan *s, const char **out)
{
    blanks(s);
    *out = s->p;
    while (s->p < s->end && (isalnum((unsigned char)*s->p) || *s->p == '_')) s->p++;
    return (size_t)(s->p - *out);
}

static bool word_is(const char *w, size_t n, const char *text)
{
    return strlen(text) == n && memcmp(w, text, n) == 0;
}

/* Numbers are copied, because strtod needs a terminator. */
static pl_status number_text(scan *s, char buf[64])
{
    blanks(s);
    size_t n = 0;
    while (s->p < s->end && n < 63 && (isalnum((unsigned char)*s->p) || strchr("+-.", *s->p)) &&
           *s->p)
        buf[n++] = *s->p++;
    buf[n] = 0;
    return n ? PL_OK : fail_at(s, "expected a number");
}

static pl_status integer(scan *s, int64_t *out)
{
    char buf[64], *end;
    PL_TRY(number_text(s, buf));
    errno = 0;
    long long v = strtoll(buf, &end, 10);
    if (*end || errno) return fail_at(s, "expected an integer");
    *out = v;
    return PL_OK;
}

static pl_status real(scan *s, double *out)
{
    char buf[64], *end;
    PL_TRY(number_text(s, buf));
    *out = strtod(buf, &end);
    return *end ? fail_at(s, "expected a number") : PL_OK;
}

static int hex(char c)
{
    return isdigit((unsigned char)c)    ? c - '0'
           : isxdigit((unsigned char)c) ? (c | 32) - 'a' + 10
                                        : -1;
}

/* A quoted string, copied into the graph's arena. */
static pl_status quoted(scan *s, const char **out)
{
    PL_TRY(want(s, '"'));
    char *text, *w;
    const char *close = s->p;
    while (close < s->end && *close != '"' && *close != '\n')
        close += *close == '\\' && close + 1 < s->end ? 2 : 1;
    if (close >= s->end || *close != '"') return fail_at(s, "string without an end");
    text = pl_arena_alloc(&s->g->arena, (size_t)(close - s->p) + 1);
    if (!text) return PL_ERR_MEMORY;
    for (w = text; s->p < close; s->p++) {
        if (*s->p != '\\') {
            *w++ = *s->p;
        } else if (s->p[1] == 'x' && close - s->p > 3 && hex(s->p[2]) >= 0 && hex(s->p[3]) >= 0) {
            *w++ = (char)(hex(s->p[2]) * 16 + hex(s->p[3]));
            s->p += 3;
        } else if (s->p[1] == '"' || s->p[1] == '\\') {
            *w++ = *++s->p;
        } else {
            return fail_at(s, "unknown escape in a string");
        }
        if (w[-1] == 0) return fail_at(s, "zero byte in a string");
    }
    s->p = close + 1;
    *out = text;
    return PL_OK;
}

static pl_status dims(scan *s, int64_t *v, int32_t *n)
{
    *n = 0;
    PL_TRY(want(s, '['));
    while (!eat(s, ']')) {
        if (*n) PL_TRY(want(s, ','));
        if (*n == PL_MAX_RANK) return fail_at(s, "more than 8 numbers in a list");
        PL_TRY(integer(s, &v[(*n)++]));
    }
    return PL_OK;
}

static pl_status dtype(scan *s, pl_dtype *out)
{
    const char *w;
    size_t n = word(s, &w);
    for (int d = 0; d < PL_N_DTYPES; d++) {
        if (!word_is(w, n, pl_dtype_name((pl_dtype)d))) continue;
        *out = (pl_dtype)d;
        return PL_OK;
    }
    return fail_at(s, "expected a dtype (f32, f64, bf16, f16, i32, i64, u8, bool)");
}

static pl_status type(scan *s, pl_type *out)
{
    pl_dtype d;
    int64_t v[PL_MAX_RANK];
    int32_t n;
    PL_TRY(dtype(s, &d));
    PL_TRY(dims(s, v, &n));
    int64_t elems = 1;
    for (int i = 0; i < n; i++)
        if (v[i] < 0 || __builtin_mul_overflow(elems, v[i], &elems) || elems > (int64_t)1 << 48)
            return fail_at(s, "shape is negative or has more than 2^48 elements");
    *out = pl_type_make(d, n, v);
    return PL_OK;
}

pl_status pl_type_parse(const char *text, size_t len, pl_type *out)
{
    scan s = {text, text + len, text, NULL};
    PL_TRY(type(&s, out));
    blanks(&s);
    return s.p == s.end ? PL_OK : fail_at(&s, "text after the type");
}

/* ---- attributes ------------------------------------------------------------------------- */
static pl_status enum_value(scan *s, const pl_attr *t, int32_t *out)
{
    const char *w;
    size_t n = word(s, &w);
    for (int32_t i = 0; t->names[i]; i++) {
        if (!word_is(w, n, t->names[i])) continue;
        *out = i;
        return PL_OK;
    }
    return fail_at(s, "unknown name for this attribute");
}

static pl_status bool_value(scan *s, bool *out)
{
    const char *w;
    size_t n = word(s, &w);
    *out = word_is(w, n, "true");
    return *out || word_is(w, n, "false") ? PL_OK : fail_at(s, "expected true or false");
}

static pl_status slot_value(scan *s, int32_t *out)
{
    const char *name;
    PL_TRY(quoted(s, &name));
    *out = pl_store_find(s->g->store, name);
    return *out >= 0 ? PL_OK : fail_at(s, "no slot of this name");
}

static pl_status attr_value(scan *s, const pl_attr *t, char *p)
{
    switch (t->kind) {
    case PL_ATTR_INT: return integer(s, (int64_t *)(void *)p);
    case PL_ATTR_FLOAT: return real(s, (double *)(void *)p);
    case PL_ATTR_BOOL: return bool_value(s, (bool *)p);
    case PL_ATTR_ENUM: return enum_value(s, t, (int32_t *)(void *)p);
    case PL_ATTR_DTYPE: return dtype(s, (pl_dtype *)(void *)p);
    case PL_ATTR_DIMS: return dims(s, ((pl_dims *)(void *)p)->v, &((pl_dims *)(void *)p)->n);
    case PL_ATTR_TEXT: return quoted(s, (const char **)(void *)p);
    case PL_ATTR_SLOT: return slot_value(s, (int32_t *)(void *)p);
    }
    return fail_at(s, "unknown kind of attribute");
}

/* name=value, ... up to `close` or the end of the text (close = 0). */
static pl_status attr_list(scan *s, const pl_op *op, void *attr, char close)
{
    for (bool first = true;; first = false) {
        blanks(s);
        if (close ? eat(s, close) : s->p == s->end) return PL_OK;
        if (!first) PL_TRY(want(s, ','));
        const char *w;
        size_t n = word(s, &w);
        const pl_attr *t = op->attrs;
        while (t && t->name && !word_is(w, n, t->name)) t++;
        if (!t || !t->name) return fail_at(s, "no such attribute of this op");
        PL_TRY(want(s, '='));
        PL_TRY(attr_value(s, t, (char *)attr + t->offset));
    }
}

/* Texts must never be NULL. */
static void default_texts(const pl_op *op, char *attr)
{
    static const char *const empty = "";
    for (const pl_attr *t = op->attrs; t && t->name; t++)
        if (t->kind == PL_ATTR_TEXT) memcpy(attr + t->offset, &empty, sizeof empty);
}

pl_status pl_attr_parse(const pl_op *op, const char *text, size_t len, pl_graph *g, void *attr)
{
    scan s = {text, text + len, text, g};
    memset(attr, 0, op->attr_bytes);
    default_texts(op, attr);
    return attr_list(&s, op, attr, 0);
}

/* ---- lines ------------------------------------------------------------------------------ */
static pl_status init_value(scan *s, pl_init *out)
{
    static const char *names[] = {"const", "uniform", "normal"};
    const char *w;
    size_t n = word(s, &w);
    int k = 0;
    while (k < 3 && !word_is(w, n, names[k])) k++;
    if (k == 3) return fail_at(s, "expected const, uniform or normal");
    out->kind = (pl_init_kind)k;
    PL_TRY(want(s, '('));
    PL_TRY(real(s, &out->a));
    PL_TRY(want(s, ','));
    PL_TRY(real(s, &out->b));
    return want(s, ')');
}

static pl_status check_layout(scan *s, const pl_slot *slot)
{
    const pl_file_layout *l = &slot->layout;
    uint32_t seen = 0;
    int64_t elems = 1;
    int32_t rank = l->view_rank ? l->view_rank : slot->type.rank;
    for (int i = 0; i < l->rank; i++) {
        if (l->perm[i] < 0 || l->perm[i] >= rank) return fail_at(s, "perm out of range");
        seen |= 1u << l->perm[i];
    }
    if (l->rank && (l->rank != rank || seen != (1u << rank) - 1))
        return fail_at(s, "perm is not a permutation");
    for (int i = 0; i < l->view_rank; i++)
        if (l->view[i] < 0 || __builtin_mul_overflow(elems, l->view[i], &elems))
            return fail_at(s, "bad view");
    if (l->view_rank && elems != pl_type_elems(&slot->type))
        return fail_at(s, "view has another number of elements");
    return PL_OK;
}

/* Whether the word is the name of a quantized form. */
static bool quant_word(const char *w, size_t n, pl_quant *out)
{
    for (int q = PL_QUANT_NONE + 1; q < PL_N_QUANTS; q++)
        if (word_is(w, n, pl_quant_name((pl_quant)q))) {
            *out = (pl_quant)q;
            return true;
        }
    return false;
}

static pl_status slot_option(scan *s, pl_slot *slot)
{
    const char *w;
    size_t n = word(s, &w);
    if (word_is(w, n, "train")) {
        slot->trainable = true;
    } else if (word_is(w, n, "decay")) {
        slot->decay = true;
    } else if (word_is(w, n, "flat")) {
        slot->layout.flat = true;
    } else if (quant_word(w, n, &slot->quant)) {
        return PL_OK;
    } else if (word_is(w, n, "init")) {
        PL_TRY(want(s, '='));
        PL_TRY(init_value(s, &slot->init));
    } else if (word_is(w, n, "perm")) {
        int64_t v[PL_MAX_RANK];
        PL_TRY(want(s, '='));
        PL_TRY(dims(s, v, &slot->layout.rank));
        for (int i = 0; i < slot->layout.rank; i++)
            slot->layout.perm[i] = v[i] < 0 || v[i] > PL_MAX_RANK ? -1 : (int32_t)v[i];
    } else if (word_is(w, n, "view")) {
        PL_TRY(want(s, '='));
        PL_TRY(dims(s, slot->layout.view, &slot->layout.view_rank));
    } else {
        return fail_at(s, "unknown word in a slot line");
    }
    return PL_OK;
}

static pl_status slot_line(scan *s)
{
    static const char *kinds[] = {"param", "buffer", "optimizer", "counter"};
    pl_slot slot;
    memset(&slot, 0, sizeof slot);
    PL_TRY(quoted(s, &slot.name));
    PL_TRY(type(s, &slot.type));
    const char *w;
    size_t n = word(s, &w);
    int k = 0;
    while (k < 4 && !word_is(w, n, kinds[k])) k++;
    if (k == 4) return fail_at(s, "expected param, buffer, optimizer or counter");
    slot.kind = (pl_slot_kind)k;
    while (blanks(s), s->p < s->end && *s->p != '\n') PL_TRY(slot_option(s, &slot));
    PL_TRY(check_layout(s, &slot));
    if (pl_store_add(s->g->store, &slot) < 0) return pl_store_status(s->g->store);
    return PL_OK;
}

/* Enters the scope of a path; creates it unless it is the last one used. */
static pl_status enter_scope(scan *s, const char *path)
{
    pl_graph *g = s->g;
    if (strcmp(g->scopes[g->scope].path, path) == 0) return PL_OK;
    g->scope = 0;
    if (*path) pl_scope_push(g, path);
    return g->status;
}

static pl_status value_id(scan *s, uint32_t *out)
{
    int64_t v;
    PL_TRY(want(s, '%'));
    PL_TRY(integer(s, &v));
    if (v < 1 || v >= (int64_t)UINT32_MAX) return fail_at(s, "value number out of range");
    *out = (uint32_t)v;
    return PL_OK;
}

/* "%3, %4 =": the numbers must be the next ones. */
static pl_status defined_values(scan *s, int *n_out)
{
    *n_out = 0;
    if (!at(s, '%')) return PL_OK;
    do {
        uint32_t id;
        PL_TRY(value_id(s, &id));
        if (id != s->g->n_vals + (uint32_t)*n_out)
            return fail_at(s, "values are numbered in order of definition");
        if (++*n_out > PL_MAX_OUT) return fail_at(s, "too many results");
    } while (eat(s, ','));
    return want(s, '=');
}

static pl_status input_values(scan *s, pl_val *in, int *n_in)
{
    *n_in = 0;
    if (!eat(s, '(')) return PL_OK;
    while (!eat(s, ')')) {
        if (*n_in) PL_TRY(want(s, ','));
        if (*n_in == MAX_INPUTS) return fail_at(s, "too many inputs");
        PL_TRY(value_id(s, &in[*n_in].id));
        if (in[*n_in].id >= s->g->n_vals) return fail_at(s, "value used before its definition");
        ++*n_in;
    }
    return PL_OK;
}

static pl_status node_line(scan *s, pl_val *in)
{
    int n_out, n_in;
    PL_TRY(defined_values(s, &n_out));
    const char *w;
    size_t n = word(s, &w);
    char name[64] = "";
    if (n < sizeof name) memcpy(name, w, n);
    const pl_op *op = pl_op_find(name);
    if (!op) return fail_at(s, "no op of this name");
    if (op->n_out != n_out) return fail_at(s, "wrong number of results for this op");
    PL_TRY(input_values(s, in, &n_in));
    char *attr = pl_arena_alloc(&s->g->arena, op->attr_bytes + 1);
    if (!attr) return PL_ERR_MEMORY;
    default_texts(op, attr);
    if (eat(s, '{')) PL_TRY(attr_list(s, op, attr, '}'));
    pl_type types[PL_MAX_OUT];
    for (int k = 0; k < n_out; k++) {
        PL_TRY(want(s, k ? ',' : ':'));
        PL_TRY(type(s, &types[k]));
    }
    const char *path = "";
    if (eat(s, '@')) PL_TRY(quoted(s, &path));
    PL_TRY(enter_scope(s, path));
    pl_val out[PL_MAX_OUT];
    pl_build(s->g, op, attr, n_in, in, out);
    if (s->g->status != PL_OK) return fail_at(s, s->g->error);
    for (int k = 0; k < n_out; k++)
        if (!pl_type_equal(&types[k], &s->g->vals[out[k].id].type))
            return fail_at(s, "the written type differs from the type that the op infers");
    return PL_OK;
}

static pl_status graph_text(scan *s, pl_val *in)
{
    static const char head[] = "plimsoll graph 1\n";
    if ((size_t)(s->end - s->p) < sizeof head - 1 || memcmp(s->p, head, sizeof head - 1) != 0)
        return fail_at(s, "a graph begins with the line \"plimsoll graph 1\"");
    s->p += sizeof head - 1;
    while (blanks(s), s->p < s->end) {
        const char *line = s->p, *w;
        bool comment = at(s, '#');
        size_t n = comment ? 0 : word(s, &w);
        if (comment) {
            while (s->p < s->end && *s->p != '\n') s->p++;
        } else if (word_is(w, n, "slot")) {
            PL_TRY(slot_line(s));
        } else if (word_is(w, n, "streams")) {
            int64_t v;
            PL_TRY(integer(s, &v));
            if (v < 0 || v > INT32_MAX) return fail_at(s, "stream count out of range");
            s->g->n_streams = (uint32_t)v;
        } else if (n || at(s, '%')) {
            s->p = line;
            PL_TRY(node_line(s, in));
        }
        if (s->p < s->end) PL_TRY(want(s, '\n'));
    }
    s->g->scope = 0;
    return PL_OK;
}

pl_status pl_graph_parse(const char *text, size_t len, pl_store *store, pl_graph **out)
{
    pl_graph *g = pl_graph_new(store);
    pl_val *in = pl_sys_alloc(MAX_INPUTS * sizeof *in);
    pl_status rc = PL_ERR_MEMORY;
    if (g && in) {
        scan s = {text, text + len, text, g};
        rc = graph_text(&s, in);
        if (rc == PL_OK) rc = pl_graph_verify(g);
    }
    pl_sys_free(in);
    if (rc != PL_OK) {
        pl_graph_free(g);
        return rc;
    }
    *out = g;
    return PL_OK;
}
