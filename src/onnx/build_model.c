/* build_model.c - walks the nodes of a model and adds them to a graph.
 *
 * Only nodes that the wanted outputs need are built, so that a branch that cannot be built (a
 * post-processing step with shapes that depend on data) does no harm. A node whose inputs are all
 * known is computed at once (fold.c); others are added by their row of ops.def. Functions of the
 * model are inlined; a branch of If is built when its condition is known.
 */
#include "onnx/onnx.h"

#include "base/dtype.h"
#include "onnx/recognise.h"

#include <stdio.h>
#include <string.h>

struct pl_ox_scope {
    pl_ox_map *names;     /* to pl_ox_val */
    pl_ox_scope *outer;   /* whose names are visible; NULL: none */
    const pl_ox_node *at; /* the call, in the scope of a function */
    pl_ox_function *fn;   /* NULL: not a function */
    pl_ox_scope *caller;  /* of the call */
    pl_ox_map *wanted;    /* names that outputs need */
};

static pl_ox_val *look_up(const pl_ox_scope *s, const char *name)
{
    for (; s; s = s->outer) {
        pl_ox_val *v = pl_ox_map_get(s->names, name);
        if (v) return v;
    }
    return NULL;
}

static const pl_ox_attr *find_in(pl_ox_attr *const *a, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (a[i]->name && strcmp(a[i]->name, name) == 0) return a[i];
    return NULL;
}

/* An attribute that refers to an attribute of the function's call is replaced by it. */
static const pl_ox_attr *resolve(const pl_ox_scope *s, const pl_ox_attr *a)
{
    for (int depth = 0; a && a->ref_attr_name && a->ref_attr_name[0]; depth++) {
        while (s && !s->fn) s = s->outer;
        if (!s || depth > PL_OX_NESTING) return NULL;
        const pl_ox_attr *given = find_in(s->at->attribute, s->at->n_attribute, a->ref_attr_name);
        a = given ? given
                  : find_in(s->fn->attribute_proto, s->fn->n_attribute_proto, a->ref_attr_name);
        s = s->caller;
    }
    return a;
}

const pl_ox_attr *pl_ox_attr_find(const pl_ox_call *c, const char *name)
{
    return resolve(c->b->scope, find_in(c->node->attribute, c->node->n_attribute, name));
}

/* ---- what is needed -------------------------------------------------------------------------- */
static pl_status want_names(pl_ox_map *wanted, const pl_ox_graph *g, int depth)
{
    for (size_t i = 0; i < g->n_node && depth < PL_OX_MAX_DEPTH; i++) {
        const pl_ox_node *n = g->node[i];
        for (size_t k = 0; k < n->n_input; k++) PL_TRY(pl_ox_map_put(wanted, n->input[k], wanted));
        for (size_t k = 0; k < n->n_attribute; k++)
            if (n->attribute[k]->g) PL_TRY(want_names(wanted, n->attribute[k]->g, depth + 1));
    }
    for (size_t k = 0; k < g->n_output; k++)
        if (g->output[k]->name) PL_TRY(pl_ox_map_put(wanted, g->output[k]->name, wanted));
    return PL_OK;
}

static bool is_wanted(const pl_ox_map *wanted, const pl_ox_node *n)
{
    for (size_t k = 0; k < n->n_output; k++)
        if (pl_ox_map_get(wanted, n->output[k])) return true;
    return false;
}

bool pl_ox_is_read(const pl_ox_call *c, int k)
{
    const char *name = k < c->n_out ? c->node->output[k] : NULL;
    return name && name[0] && pl_ox_map_get(c->b->scope->wanted, name);
}

/* Marks the names that the names in wanted need, from the last node to the first. */
static pl_status want(pl_ox_map *wanted, pl_ox_node *const *node, size_t n_node)
{
    for (size_t i = n_node; i-- > 0;) {
        const pl_ox_node *n = node[i];
        if (!is_wanted(wanted, n)) continue;
        for (size_t k = 0; k < n->n_input; k++) PL_TRY(pl_ox_map_put(wanted, n->input[k], wanted));
        for (size_t k = 0; k < n->n_attribute; k++)
            if (n->attribute[k]->g) PL_TRY(want_names(wanted, n->attribute[k]->g, 0));
    }
    return PL_OK;
}

/* ---- one node -------------------------------------------------------------------------------- */
static pl_status walk(pl_ox_build *b, pl_ox_node *const *node, size_t n);

static pl_status lacks_op(const pl_ox_call *c)
{
    const pl_ox_graph *g = c->b->model->proto->graph;
    char others[256] = "";
    size_t len = 0, same = 0;
    for (size_t i = 0; i < g->n_node; i++) {
        const pl_ox_node *n = g->node[i];
        if (!n->op_type) continue;
        if (strcmp(n->op_type, c->op) == 0)
            same++;
        else if (!pl_ox_op_find(n->domain ? n->domain : "", n->op_type) &&
                 !strstr(others, n->op_type) && len + strlen(n->op_type) + 3 < sizeof others &&
                 !(n->domain && n->domain[0]))
            len += (size_t)snprintf(others + len, sizeof others - len, "%s%s", len ? ", " : "",
                                    n->op_type);
    }
    const char *domain = c->node->domain ? c->node->domain : "";
    bool quantized = strstr(c->op, "uantize") || strstr(c->op, "QLinear") ||
                     strstr(c->op, "Integer") || strncmp(c->op, "MatMulNBits", 11) == 0;
    bool by_data = strcmp(c->op, "NonMaxSuppression") == 0 || strcmp(c->op, "Unique") == 0;
    return pl_ox_fail(
        c, PL_ERR_UNSUPPORTED,
        "Plimsoll does not support the op %s%s%s (docs/ONNX.md lists the ops); %zu node%s of the model "
        "need%s it%s%s. %s",
        domain, domain[0] ? "." : "", c->op, same, same == 1 ? "" : "s", same == 1 ? "s" : "",
        others[0] ? "; also missing: " : "", others,
        quantized ? "The model is quantized: export the model of floats and train that"
        : by_data ? "The shape of its result depends on data: export the model without this step "
                    "(boxes and scores as outputs), or train with outputs that do not need it"
        : strncmp(domain, "com.microsoft", 13) == 0
            ? "ONNX Runtime's optimizer wrote it: take the model from before the optimization"
        : strcmp(domain, "ai.onnx.ml") == 0
            ? "It belongs to classical machine learning (trees, scalers, tables): take a model "
              "without this step"
            : "Export with another opset, or replace this layer");
}

static pl_status push_scope(pl_ox_build *b, pl_ox_scope *s, pl_ox_scope *outer)
{
    PL_FAIL_IF(++b->depth > PL_OX_NESTING, PL_ERR_FILE,
               "%s: functions and branches lie more than %d deep in each other", b->model->path,
               PL_OX_NESTING);
    PL_FAIL_IF(++b->scopes > PL_OX_MAX_SCOPES, PL_ERR_FILE,
               "%s: functions that call functions make more than %d calls; inline the functions "
               "before the import, or split the model",
               b->model->path, PL_OX_MAX_SCOPES);
    s->outer = outer;
    s->caller = b->scope;
    s->names = pl_ox_map_new(&b->mem);
    s->wanted = pl_ox_map_new(&b->mem);
    return s->names && s->wanted ? PL_OK : PL_ERR_MEMORY;
}

static pl_status inline_function(pl_ox_call *c, pl_ox_function *f)
{
    pl_ox_build *b = c->b;
    pl_ox_scope s = {.at = c->node, .fn = f}, *before = b->scope;
    int64_t opset = b->opset;
    PL_TRY(push_scope(b, &s, NULL));
    for (size_t i = 0; i < f->n_input; i++)
        if ((int)i < c->n_in && c->in[i]) PL_TRY(pl_ox_map_put(s.names, f->input[i], c->in[i]));
    for (size_t i = 0; i < f->n_output; i++) PL_TRY(pl_ox_map_put(s.wanted, f->output[i], &s));
    for (size_t i = 0; i < f->n_opset; i++)
        if (!f->opset[i]->domain || !f->opset[i]->domain[0]) b->opset = f->opset[i]->version;
    PL_TRY(want(s.wanted, f->node, f->n_node));
    b->scope = &s;
    pl_status rc = walk(b, f->node, f->n_node);
    b->scope = before;
    b->opset = opset;
    b->depth--;
    if (rc != PL_OK) return rc;
    for (int i = 0; i < c->n_out && (size_t)i < f->n_output; i++)
        c->out[i] = look_up(&s, f->output[i]);
    return PL_OK;
}

static pl_status add_tensors(pl_ox_build *b, pl_ox_scope *s, const pl_ox_graph *g);

pl_status pl_ox_subgraph(pl_ox_call *c, const pl_ox_graph *g, int n_in, pl_ox_val *const *in,
                         int n_out, pl_ox_val **out)
{
    pl_ox_build *b = c->b;
    pl_ox_scope s = {0}, *before = b->scope;
    if ((size_t)n_in != g->n_input && n_in)
        return pl_ox_fail(c, PL_ERR_FILE, "its subgraph has %zu inputs, wanted %d", g->n_input,
                          n_in);
    if ((size_t)n_out > g->n_output)
        return pl_ox_fail(c, PL_ERR_FILE, "its subgraph has %zu outputs, wanted %d", g->n_output,
                          n_out);
    PL_TRY(push_scope(b, &s, before));
    PL_TRY(add_tensors(b, &s, g));
    for (int i = 0; i < n_in; i++)
        if (g->input[i]->name) PL_TRY(pl_ox_map_put(s.names, g->input[i]->name, in[i]));
    for (size_t i = 0; i < g->n_output; i++)
        if (g->output[i]->name) PL_TRY(pl_ox_map_put(s.wanted, g->output[i]->name, &s));
    PL_TRY(want(s.wanted, g->node, g->n_node));
    b->scope = &s;
    pl_status rc = walk(b, g->node, g->n_node);
    b->scope = before;
    b->depth--;
    if (rc != PL_OK) return rc;
    for (int i = 0; i < n_out; i++) {
        out[i] = g->output[i]->name ? look_up(&s, g->output[i]->name) : NULL;
        if (!out[i]) return pl_ox_fail(c, PL_ERR_FILE, "its subgraph has no output %d", i);
    }
    return PL_OK;
}

/* Dropout after nodes that the user names. */
static void add_dropout(pl_ox_call *c)
{
    const pl_onnx_dropout *d = c->b->o->dropout;
    pl_ox_val *v = c->n_out ? c->out[0] : NULL;
    for (; d && d->pattern && v && c->b->m->training; d++) {
        bool hit = (c->node->name && pl_nn_match(d->pattern, c->node->name)) ||
                   (c->node->output[0] && pl_nn_match(d->pattern, c->node->output[0]));
        if (!hit || !pl_val_ok(v->v) || !pl_dtype_is_float(v->dtype)) continue;
        pl_ox_val *dropped = pl_ox_val_new(c->b, pl_nn_dropout(c->b->m, v->v, d->p), v->perm);
        if (dropped) c->out[0] = dropped;
        c->b->dropped |= UINT64_C(1) << ((d - c->b->o->dropout) & 63);
        return;
    }
}

/* Plans name kernels by nodes. Every build copies these names, so a very long name loses its end;
 * the cut is before the first byte of a UTF-8 character. */
static void push_name(const pl_ox_call *c)
{
    char name[1024];
    const char *whole = c->node->name && c->node->name[0] ? c->node->name : c->op;
    size_t n = strnlen(whole, sizeof name - 1);
    while (whole[n] && n > 0 && ((unsigned char)whole[n] & 0xc0) == 0x80) n--;
    memcpy(name, whole, n);
    name[n] = 0;
    pl_scope_push(c->g, name);
}

static pl_status emit(pl_ox_call *c)
{
    const char *domain = c->node->domain ? c->node->domain : "";
    if (strcmp(domain, "ai.onnx") == 0) domain = "";
    char *key = pl_arena_printf(&c->b->mem, "%s:%s:%s", domain, c->op,
                                c->node->overload ? c->node->overload : "");
    if (!key) return PL_ERR_MEMORY;
    const pl_ox_op *op = pl_ox_op_find(domain, c->op);
    pl_ox_function *f = pl_ox_map_get(c->b->model->functions, key);
    if (f && !op) return inline_function(c, f);
    if (!op) return lacks_op(c);
    bool done = false;
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i] && c->in[i]->item && !strstr(c->op, "Sequence") &&
            !strstr(c->op, "Optional") && strcmp(c->op, "If") != 0 &&
            strcmp(c->op, "Identity") != 0 && strcmp(c->op, "Loop") != 0)
            return pl_ox_fail(c, PL_ERR_UNSUPPORTED, "input %d is a sequence of tensors", i);
    PL_TRY(pl_ox_check_texts(c));
    PL_TRY(pl_ox_fold(c, &done));
    if (done) return pl_ox_check_types(c);
    push_name(c);
    pl_status rc = c->b->o->plain || domain[0] ? PL_OK : pl_ox_recognise(c, &done);
    if (rc == PL_OK && !done) rc = op->emit(c);
    pl_scope_pop(c->g);
    pl_ox_val *v = c->n_out ? c->out[0] : NULL;
    if (rc == PL_OK && v && !v->op && !v->init && !v->known) { /* a note for patterns */
        v->op = c->op;
        v->arg = c->in;
        v->n_arg = c->n_in;
        v->axis = pl_ox_attr_int(c, "axis", -1);
        v->number = pl_ox_attr_float(c, "epsilon", 1e-5);
        for (int i = 0; i < c->n_in; i++)
            if (!c->in[i]) v->n_arg = 0;
    }
    if (rc == PL_OK) add_dropout(c);
    return rc == PL_OK ? pl_ox_check_types(c) : rc;
}

/* An input that nothing defines before its node. */
static pl_status undefined(const pl_ox_call *c, const char *name)
{
    const pl_ox_graph *g = c->b->model->proto->graph;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (g->initializer[i]->name && strcmp(g->initializer[i]->name, name) == 0)
            return pl_ox_fail(c, PL_ERR_UNSUPPORTED,
                              "input '%s' has elements of type %s, which Plimsoll does not support",
                              name, pl_ox_type_name(g->initializer[i]->data_type));
    return pl_ox_fail(c, PL_ERR_FILE,
                      "input '%s' is not defined before this node: no node makes it, or nodes form "
                      "a cycle",
                      name);
}

static pl_status build_node(pl_ox_build *b, const pl_ox_node *n)
{
    PL_FAIL_IF(!n->op_type || ++b->calls > PL_OX_MAX_CALLS, PL_ERR_FILE,
               "%s: a node without an op, or more than %d nodes", b->model->path, PL_OX_MAX_CALLS);
    pl_ox_call c = {.b = b, .g = b->g, .node = n, .op = n->op_type};
    if (n->n_input > 1 << 16 || n->n_output > 1 << 16)
        return pl_ox_fail(&c, PL_ERR_FILE, "it has %zu inputs and %zu outputs", n->n_input,
                          n->n_output);
    c.n_in = (int)n->n_input;
    c.n_out = (int)n->n_output;
    c.in = pl_arena_new(&b->mem, pl_ox_val *, c.n_in + 1);
    c.out = pl_arena_new(&b->mem, pl_ox_val *, c.n_out + 1);
    if (!c.in || !c.out) return PL_ERR_MEMORY;
    for (int i = 0; i < c.n_in; i++) {
        if (!n->input[i] || !n->input[i][0]) continue;
        c.in[i] = look_up(b->scope, n->input[i]);
        if (c.in[i] || b->scope->fn) continue;
        return undefined(&c, n->input[i]);
    }
    PL_TRY(emit(&c));
    for (int i = 0; i < c.n_out; i++) {
        if (!n->output[i] || !n->output[i][0] || !c.out[i]) continue;
        if (pl_ox_map_get(b->scope->names, n->output[i]))
            return pl_ox_fail(&c, PL_ERR_FILE, "'%s' is defined twice", n->output[i]);
        if (!c.out[i]->name) c.out[i]->name = n->output[i];
        PL_TRY(pl_ox_map_put(b->scope->names, n->output[i], c.out[i]));
    }
    return PL_OK;
}

static pl_status walk(pl_ox_build *b, pl_ox_node *const *node, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_wanted(b->scope->wanted, node[i])) PL_TRY(build_node(b, node[i]));
    return PL_OK;
}

/* ---- the graph ------------------------------------------------------------------------------- */
static pl_status add_tensor(pl_ox_build *b, pl_ox_scope *s, pl_ox_init *t)
{
    pl_ox_val *v = pl_arena_new(&b->mem, pl_ox_val, 1);
    if (!v) return PL_ERR_MEMORY;
    v->name = t->about.name;
    v->init = t;
    v->widened = t->tensor && pl_ox_type_widened(pl_ox_type_name(t->tensor->data_type));
    v->narrow = t->tensor && pl_ox_type_narrow(pl_ox_type_name(t->tensor->data_type));
    v->dtype = t->about.type.dtype;
    v->rank = t->about.type.rank;
    memcpy(v->dim, t->about.type.dim, sizeof v->dim);
    for (int i = 0; i < v->rank; i++) v->perm[i] = i;
    return pl_ox_map_put(s->names, v->name, v);
}

/* Initializers of a branch. */
static pl_status add_tensors(pl_ox_build *b, pl_ox_scope *s, const pl_ox_graph *g)
{
    for (size_t i = 0; i < g->n_initializer; i++) {
        pl_ox_init *t = pl_arena_new(&b->model->mem, pl_ox_init, 1);
        if (!t) return PL_ERR_MEMORY;
        t->tensor = g->initializer[i];
        t->about.name = t->tensor->name ? t->tensor->name : "";
        PL_TRY(pl_ox_tensor_type_of(b->model, t->tensor, &t->about.type));
        PL_TRY(add_tensor(b, s, t));
    }
    return PL_OK;
}

static pl_status bind(const pl_onnx *o, const pl_onnx_port *p, const pl_onnx_opts *opts,
                      pl_type *out)
{
    PL_FAIL_IF(
        p->rank < 0, PL_ERR_UNSUPPORTED,
        "%s: input '%s' is not a tensor but a sequence, a map or an optional value; export the "
        "model with tensors as inputs",
        o->path, p->name);
    PL_FAIL_IF(!p->supported, PL_ERR_UNSUPPORTED,
               "%s: input '%s' has elements of type %s, which Plimsoll does not support", o->path,
               p->name, p->type_name);
    pl_type t = pl_type_make(p->dtype, p->rank, p->dim);
    const pl_onnx_port *first = &o->in[0];
    for (int i = 0; i < p->rank; i++) {
        if (p->dim[i] >= 0) continue;
        const char *name = p->dim_name[i];
        int64_t size = 0;
        for (const pl_onnx_dim *d = opts->dims; d && d->name; d++)
            if (name && strcmp(d->name, name) == 0) size = d->size;
        /* The batch: the first dimension, and others of the same name. */
        bool batch = i == 0 || (name && first->rank > 0 && first->dim_name[0] &&
                                strcmp(first->dim_name[0], name) == 0);
        if (!size && batch) size = opts->batch;
        PL_FAIL_IF(size <= 0 && batch, PL_ERR_CONFIG,
                   "%s: input '%s' has a dynamic first dimension%s%s; set batch=SIZE", o->path,
                   p->name, name ? " " : "", name ? name : "");
        PL_FAIL_IF(size <= 0, PL_ERR_CONFIG,
                   "%s: dimension '%s' of input '%s' is dynamic; set its size: dims.%s=SIZE "
                   "(dims: {%s: SIZE} in YAML)",
                   o->path, name, p->name, name, name);
        t.dim[i] = size;
    }
    *out = t;
    return PL_OK;
}

static const pl_onnx_port *port_of(const pl_onnx *o, const char *name)
{
    for (int i = 0; i < o->n_in; i++)
        if (strcmp(o->in[i].name, name) == 0) return &o->in[i];
    return NULL;
}

pl_status pl_onnx_input_type(const pl_onnx *o, const char *name, const pl_onnx_opts *opts,
                             pl_type *out)
{
    const pl_onnx_port *p = port_of(o, name);
    PL_FAIL_IF(!p, PL_ERR_CONFIG, "%s has no input '%s'", o->path, name);
    return bind(o, p, opts, out);
}

/* An input whose value the caller fixes. */
static pl_status add_constant(pl_ox_build *b, const pl_onnx_port *p, const pl_onnx_constant *k)
{
    PL_FAIL_IF(pl_type_elems(&k->type) > PL_ONNX_CONSTANT_ELEMS, PL_ERR_ARG,
               "%s: input '%s' has %lld elements, a fixed value has at most %d", b->model->path,
               k->name, (long long)pl_type_elems(&k->type), PL_ONNX_CONSTANT_ELEMS);
    pl_ox_val *v = pl_ox_host_new(b, p->dtype, k->type.rank, k->type.dim);
    if (!v) return PL_ERR_MEMORY;
    v->name = k->name;
    v->widened = pl_ox_type_widened(p->type_name);
    v->narrow = pl_ox_type_narrow(p->type_name);
    for (int64_t i = 0; i < v->host.n; i++) {
        double x = pl_elem_get(k->type.dtype, k->data, i);
        if (v->host.d)
            v->host.d[i] = x;
        else
            v->host.i[i] = k->type.dtype == PL_I64 ? ((const int64_t *)k->data)[i] : (int64_t)x;
    }
    return pl_ox_map_put(b->scope->names, k->name, v);
}

static pl_status add_input(pl_ox_build *b, const pl_onnx_port *p, int n_in, const pl_onnx_value *in)
{
    pl_onnx *o = b->model;
    const pl_onnx_value *given = NULL;
    for (const pl_onnx_constant *k = b->o->constants; k && k->name; k++)
        if (strcmp(k->name, p->name) == 0) return add_constant(b, p, k);
    for (int i = 0; i < n_in; i++)
        if (strcmp(in[i].name, p->name) == 0) given = &in[i];
    if (!given && !pl_ox_map_get(b->scope->wanted, p->name)) return PL_OK;
    pl_type t;
    PL_TRY(bind(o, p, b->o, &t));
    pl_ox_val *v;
    if (given) {
        int perm[PL_MAX_RANK];
        pl_type have = pl_val_type(b->g, given->value);
        pl_ox_last_perm(have.rank, perm);
        v = pl_ox_val_new(b, given->value, given->channels_last ? perm : NULL);
        if (!v) return PL_ERR_MEMORY;
        char a[96], z[96];
        bool same = v->rank == t.rank && v->dtype == t.dtype;
        for (int i = 0; same && i < t.rank; i++) same = v->dim[i] == t.dim[i];
        PL_FAIL_IF(!same, PL_ERR_SHAPE, "%s: input '%s' is %s%s; the model needs %s", o->path,
                   p->name, pl_type_text(&have, a, sizeof a),
                   given->channels_last ? " (channels last)" : "", pl_type_text(&t, z, sizeof z));
    } else
        v = pl_ox_val_new(b, pl_input(b->g, p->name, t), NULL);
    if (!v) return PL_ERR_MEMORY;
    v->name = p->name;
    v->widened = pl_ox_type_widened(p->type_name);
    v->narrow = pl_ox_type_narrow(p->type_name);
    return pl_ox_map_put(b->scope->names, p->name, v);
}

static pl_status no_output(const pl_onnx *o, const char *name)
{
    char names[400] = "";
    size_t n = 0;
    for (int i = 0; i < o->n_out; i++)
        PL_FAIL_IF(strcmp(o->out[i].name, name) == 0, PL_ERR_FILE,
                   "%s: no node makes output '%s' of the model", o->path, name);
    for (int i = 0; i < o->n_out && n + 1 < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", o->out[i].name);
    PL_FAIL(PL_ERR_CONFIG, "%s has no output '%s' (%s)", o->path, name, names);
}

static pl_status set_outputs(pl_ox_build *b, int n_out, pl_onnx_value *out)
{
    for (int i = 0; i < n_out; i++) {
        pl_ox_val *v = look_up(b->scope, out[i].name);
        if (!v) return no_output(b->model, out[i].name);
        PL_FAIL_IF(v->item, PL_ERR_UNSUPPORTED, "%s: output '%s' is a sequence", b->model->path,
                   out[i].name);
        PL_FAIL_IF(out[i].channels_last && v->rank < 2, PL_ERR_SHAPE,
                   "%s: output '%s' has %d dimensions and no channels", b->model->path, out[i].name,
                   v->rank);
        pl_val x = out[i].channels_last ? pl_ox_last(b, v) : pl_ox_plain(b, v);
        out[i].value = x;
    }
    pl_status rc = pl_graph_status(b->g);
    PL_FAIL_IF(rc != PL_OK, rc, "%s: %s", b->model->path, pl_graph_error(b->g));
    return PL_OK;
}

static pl_status build(pl_ox_build *b, int n_in, const pl_onnx_value *in, int n_out,
                       pl_onnx_value *out)
{
    pl_onnx *o = b->model;
    const pl_ox_graph *g = o->proto->graph;
    pl_ox_scope s = {0};
    PL_TRY(push_scope(b, &s, NULL));
    b->scope = &s;
    for (int i = 0; i < n_in; i++)
        PL_FAIL_IF(!port_of(o, in[i].name), PL_ERR_CONFIG, "%s has no input '%s'", o->path,
                   in[i].name);
    for (int i = 0; i < n_out; i++) PL_TRY(pl_ox_map_put(s.wanted, out[i].name, &s));
    for (int i = 0; i < o->n_out && !n_out; i++)
        PL_TRY(pl_ox_map_put(s.wanted, o->out[i].name, &s));
    PL_TRY(want(s.wanted, g->node, g->n_node));
    for (int i = 0; i < o->n_init; i++) PL_TRY(add_tensor(b, &s, &o->init[i]));
    for (int i = 0; i < o->n_in; i++) PL_TRY(add_input(b, &o->in[i], n_in, in));
    PL_TRY(walk(b, g->node, g->n_node));
    PL_TRY(set_outputs(b, n_out, out));
    for (int i = 0; b->m->training && b->o->dropout && b->o->dropout[i].pattern; i++)
        PL_FAIL_IF(!(b->dropped >> (i & 63) & 1), PL_ERR_CONFIG,
                   "dropout: no node of the model matches \"%s\", or an earlier pattern has all "
                   "its nodes",
                   b->o->dropout[i].pattern);
    for (int i = 0; i < o->n_init && b->m->training; i++) PL_TRY(pl_ox_keep(b, &o->init[i]));
    return PL_OK;
}

pl_status pl_onnx_build(pl_onnx *o, pl_nn *m, const pl_onnx_opts *opts, int n_in,
                        const pl_onnx_value *in, int n_out, pl_onnx_value *out)
{
    static const pl_onnx_opts none;
    pl_ox_build b = {.model = o, .m = m, .g = m->g, .o = opts ? opts : &none, .opset = o->opset};
    pl_status rc = build(&b, n_in, in, n_out, out);
    o->recognised = b.recognised;
    pl_arena_release(&b.mem);
    return rc;
}
