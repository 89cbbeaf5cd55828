/* values.c - values of a build: on the host, in the file, in the graph; and their two orders of
 * dimensions (onnx.h). Tensors of the file become slots here. */
#include "onnx/onnx.h"

#include "nn/nn.h"

#include <stdio.h>
#include <string.h>

int64_t pl_ox_elems(const pl_ox_val *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->rank; i++) n *= v->dim[i];
    return n;
}

static void identity(int rank, int *perm)
{
    for (int i = 0; i < rank; i++) perm[i] = i;
}

pl_ox_val *pl_ox_val_new(pl_ox_build *b, pl_val v, const int *perm)
{
    pl_ox_val *x = pl_arena_new(&b->mem, pl_ox_val, 1);
    if (!x) return NULL;
    pl_type t = pl_val_type(b->g, v);
    x->dtype = t.dtype;
    x->rank = t.rank;
    x->v = v;
    identity(t.rank, x->perm);
    if (perm) memcpy(x->perm, perm, (size_t)t.rank * sizeof *perm);
    for (int i = 0; i < t.rank; i++) x->dim[x->perm[i]] = t.dim[i];
    return x;
}

pl_ox_val *pl_ox_host_new(pl_ox_build *b, pl_dtype dtype, int rank, const int64_t *dim)
{
    pl_ox_val *x = pl_arena_new(&b->mem, pl_ox_val, 1);
    if (!x) return NULL;
    x->dtype = dtype;
    x->rank = rank;
    if (rank) memcpy(x->dim, dim, (size_t)rank * sizeof *dim);
    identity(rank, x->perm);
    x->known = true;
    x->host.n = pl_ox_elems(x);
    void *p = pl_arena_alloc(&b->mem, (size_t)(x->host.n > 0 ? x->host.n : 1) * 8);
    if (!p) return NULL;
    if (pl_dtype_is_float(dtype))
        x->host.d = p;
    else
        x->host.i = p;
    return x;
}

pl_status pl_ox_set_val(pl_ox_call *c, int k, pl_ox_val *v)
{
    if (!v) return PL_ERR_MEMORY;
    if (k < c->n_out) c->out[k] = v;
    return PL_OK;
}

pl_status pl_ox_set(pl_ox_call *c, int k, pl_val v, const int *perm)
{
    pl_status rc = pl_graph_status(c->g);
    if (rc != PL_OK) { /* the graph's message begins with the scope, which is the node's name */
        const char *text = pl_graph_error(c->g);
        const char *scope = c->node->name && c->node->name[0] ? c->node->name : c->op;
        size_t n = strlen(scope);
        bool begins = strncmp(text, scope, n) == 0 && text[n] == ':' && text[n + 1] == ' ';
        return pl_ox_fail(c, rc, "%s", begins ? text + n + 2 : text);
    }
    if (!pl_val_ok(v)) return pl_ox_fail(c, PL_ERR_GRAPH, "the engine made no value");
    return pl_ox_set_val(c, k, pl_ox_val_new(c->b, v, perm));
}

bool pl_ox_known(pl_ox_build *b, pl_ox_val *v)
{
    if (!v || v->item) return false;
    if (v->known) return true;
    if (!v->init || v->init->about.weight || v->init->role == PL_OX_ROLE_BUFFER) return false;
    if (pl_ox_elems(v) > PL_OX_HOST_ELEMS) return false;
    if (pl_ox_init_read(b->model, v->init, &b->mem, &v->host) != PL_OK) return false;
    return v->known = true;
}

/* ---- tensors and constants as graph values --------------------------------------------------- */
/* Sets the initial distribution that PyTorch gives the weight of a layer. false: PyTorch has none
 * for a weight of the module's own (a class token, a position table). */
static bool fresh_init(const pl_ox_init *t, pl_init *out)
{
    pl_ox_role role = t->role;
    const pl_type *type = &t->about.type;
    double fan = t->fan_in;
    bool attends = pl_nn_match("*in_proj_weight", t->about.name) && type->rank == 2;
    /* Norms that the exporter wrote as sums and products. */
    bool vector = type->rank == 1 && role == PL_OX_ROLE_NONE && fan <= 0;
    if (vector && pl_nn_match("*weight", t->about.name)) role = PL_OX_ROLE_SCALE;
    if (vector && pl_nn_match("*bias", t->about.name)) role = PL_OX_ROLE_SHIFT;
    if (pl_nn_match("*in_proj_bias", t->about.name)) role = PL_OX_ROLE_SHIFT;
    if (attends) fan = (double)(type->dim[0] + type->dim[1]) / 6; /* nn.MultiheadAttention */
    if (role == PL_OX_ROLE_SCALE || role == PL_OX_ROLE_SHIFT)
        *out = (pl_init){PL_INIT_CONST, role == PL_OX_ROLE_SCALE, 0};
    else if (role == PL_OX_ROLE_TABLE)
        *out = (pl_init){PL_INIT_NORMAL, 0, 1};
    else if (role == PL_OX_ROLE_SLOPE)
        *out = (pl_init){PL_INIT_CONST, 0.25, 0};
    else if (fan > 0)
        *out = pl_nn_init_of(pl_nn_uniform(-1 / __builtin_sqrt(fan), 1 / __builtin_sqrt(fan)), fan,
                             fan);
    else
        return false;
    return true;
}

static bool trains(const pl_ox_build *b, const pl_ox_init *t)
{
    if (!pl_dtype_is_float(t->about.type.dtype) || t->role == PL_OX_ROLE_BUFFER) return false;
    if (b->o->frozen && pl_nn_match(b->o->frozen, t->about.name)) return false;
    return b->o->trainable ? pl_nn_match(b->o->trainable, t->about.name) : t->about.weight;
}

/* Remembers where the slot's initial value comes from. */
static pl_status remember(pl_ox_build *b, const char *name, const pl_ox_slot *s)
{
    pl_onnx *o = b->model;
    pl_ox_slot *old = pl_ox_map_get(o->slots, name);
    if (old) {
        old->fresh = s->fresh;
        return PL_OK;
    }
    pl_ox_slot *p = pl_arena_new(&o->mem, pl_ox_slot, 1);
    if (!p) return PL_ERR_MEMORY;
    *p = *s;
    p->name = pl_arena_strdup(&o->mem, name);
    if (!p->name) return PL_ERR_MEMORY;
    if (s->host.n) {
        void *copy = pl_arena_alloc(&o->mem, (size_t)s->host.n * 8);
        if (!copy) return PL_ERR_MEMORY;
        memcpy(copy, s->host.i ? (void *)s->host.i : (void *)s->host.d, (size_t)s->host.n * 8);
        if (s->host.i)
            p->host.i = copy;
        else
            p->host.d = copy;
    }
    return pl_ox_map_put(o->slots, p->name, p);
}

/* Creates or finds the slot and returns its value. s: rank, perm, dim, source. */
static pl_val slot_value(pl_ox_build *b, const char *name, pl_slot *slot, const pl_ox_slot *s)
{
    slot->name = name;
    slot->type.rank = s->rank;
    bool moved = false;
    for (int i = 0; i < s->rank; i++) {
        slot->type.dim[i] = s->dim[s->perm[i]];
        slot->layout.perm[s->perm[i]] = i;
        moved |= s->perm[i] != i;
    }
    slot->layout.rank = moved ? s->rank : 0;
    if (!moved) memset(slot->layout.perm, 0, sizeof slot->layout.perm);
    slot->decay = slot->kind == PL_SLOT_PARAM;
    if (slot->kind == PL_SLOT_PARAM && pl__nn_shares(b->m, &slot->type))
        pl__nn_share(pl__nn_ranks(b->m), slot);
    if (remember(b, name, s) != PL_OK) return pl_nn_fail(b->m, PL_ERR_MEMORY, "out of memory");
    return pl_nn_read(b->m, pl__nn_slot_named(b->m, slot));
}

/* Buffers that no state_dict has are not in model files. */
static pl_slot_kind kept_as(const pl_ox_init *t)
{
    return t->kind == PL_OX_KIND_TRANSIENT ? PL_SLOT_COUNTER : PL_SLOT_BUFFER;
}

/* used: nodes that are built read it. */
static pl_val tensor_value(pl_ox_build *b, pl_ox_val *v, bool used)
{
    const pl_ox_init *t = v->init;
    pl_dtype own = t->about.type.dtype;
    bool narrow = own == PL_F16 || own == PL_BF16; /* optimizers need f32 */
    bool weight = t->about.weight || trains(b, t);
    pl_slot slot = {.kind = weight ? PL_SLOT_PARAM : kept_as(t),
                    .trainable = used && trains(b, t) && !b->m->frozen};
    slot.type.dtype = narrow ? PL_F32 : own;
    pl_ox_slot s = {.init = t, .rank = v->rank};
    memcpy(s.dim, v->dim, sizeof s.dim);
    identity(v->rank, s.perm);
    if (t->conv) pl_ox_last_perm(v->rank, s.perm);
    s.fresh = b->o->init == PL_ONNX_INIT_PYTORCH && t->about.weight && fresh_init(t, &slot.init);
    pl_val x = slot_value(b, t->about.name, &slot, &s);
    memcpy(v->perm, s.perm, sizeof v->perm);
    return narrow ? pl_cast(b->g, x, own) : x;
}

/* Two builds of one model give a constant the same name. Constants of functions that are inlined
 * several times share a name in the file; those with other elements get a number. */
static const char *constant_name(pl_ox_build *b, const pl_ox_val *v)
{
    const char *own = v->name ? v->name : "value";
    for (int k = 1;; k++) {
        const char *name = k > 1 ? pl_nn_name(b->m, "constant.%s.%d", own, k)
                                 : pl_nn_name(b->m, "constant.%s", own);
        const pl_ox_slot *s = pl_ox_map_get(b->model->slots, name);
        if (!s) return name;
        const pl_ox_host *x = &s->host, *y = &v->host;
        bool same = s->rank == v->rank && memcmp(s->dim, v->dim, sizeof s->dim) == 0 &&
                    !x->i == !y->i && x->n == y->n;
        /* a constant without elements has no memory */
        if (same && (!x->n || memcmp(x->i ? (void *)x->i : (void *)x->d,
                                     y->i ? (void *)y->i : (void *)y->d, (size_t)x->n * 8) == 0))
            return name;
    }
}

static pl_val host_value(pl_ox_build *b, pl_ox_val *v)
{
    const pl_ox_host *h = &v->host;
    pl_type t = pl_type_make(v->dtype, v->rank, v->dim);
    bool even = h->n > 0, steps = h->n > 1 && v->rank == 1 && h->i && v->dtype != PL_BOOL;
    for (int64_t k = 1; k < h->n; k++) {
        even &= h->i ? h->i[k] == h->i[0] : memcmp(&h->d[k], &h->d[0], 8) == 0;
        if (h->i) steps &= h->i[k] - h->i[k - 1] == h->i[1] - h->i[0];
    }
    bool exact = !h->i || (h->i[0] < (1ll << 53) && h->i[0] > -(1ll << 53));
    if (even && exact) return pl_fill(b->g, t, h->i ? (double)h->i[0] : h->d[0]);
    if (steps && exact && h->i[h->n - 1] < (1ll << 31) && h->i[0] > -(1ll << 31)) {
        pl_val x = pl_iota(b->g, t, 0);
        if (h->i[1] - h->i[0] != 1) x = pl_scale(b->g, x, (double)(h->i[1] - h->i[0]));
        return h->i[0] ? pl_shift(b->g, x, (double)h->i[0]) : x;
    }
    bool narrow = v->dtype == PL_F16 || v->dtype == PL_BF16;
    /* a value that folding made is not in model files: no state_dict has it */
    pl_slot slot = {.kind = v->init ? kept_as(v->init) : PL_SLOT_COUNTER};
    slot.type.dtype = narrow ? PL_F32 : v->dtype;
    pl_ox_slot s = {.init = v->init, .host = v->init ? (pl_ox_host){0} : *h, .rank = v->rank};
    memcpy(s.dim, v->dim, sizeof s.dim);
    identity(v->rank, s.perm);
    const char *name = v->init ? v->init->about.name : constant_name(b, v);
    pl_val x = slot_value(b, name, &slot, &s);
    return narrow ? pl_cast(b->g, x, v->dtype) : x;
}

pl_val pl_ox_any(pl_ox_build *b, pl_ox_val *v)
{
    if (pl_val_ok(v->v)) return v->v;
    if (v->one) return v->v = pl_broadcast(b->g, pl_ox_any(b, v->one), v->rank, v->dim);
    return v->v = v->init && !v->known ? tensor_value(b, v, true) : host_value(b, v);
}

pl_status pl_ox_keep(pl_ox_build *b, const pl_ox_init *t)
{
    bool in_module = t->about.weight || t->role == PL_OX_ROLE_BUFFER ||
                     t->kind == PL_OX_KIND_PARAMETER || t->kind == PL_OX_KIND_BUFFER;
    if (!in_module || !t->tensor || pl_store_find(pl_graph_store(b->g), t->about.name) >= 0)
        return PL_OK;
    pl_ox_val v = {.init = t, .dtype = t->about.type.dtype, .rank = t->about.type.rank};
    memcpy(v.dim, t->about.type.dim, sizeof v.dim);
    tensor_value(b, &v, false);
    return pl_graph_status(b->g);
}

/* ---- orders ---------------------------------------------------------------------------------- */
void pl_ox_last_perm(int rank, int *perm)
{
    identity(rank, perm);
    for (int i = 1; i < rank; i++) perm[i] = i + 1 < rank ? i + 1 : 1;
}

int pl_ox_axis(const pl_ox_val *v, int axis)
{
    for (int i = 0; i < v->rank; i++)
        if (v->perm[i] == axis) return i;
    return 0;
}

pl_val pl_ox_ordered(pl_ox_build *b, pl_ox_val *v, int rank, const int *perm)
{
    pl_val x = pl_ox_any(b, v);
    int lead = rank - v->rank, move[PL_MAX_RANK], n = 0, last = -1;
    bool moves = false; /* beyond dimensions of 1, which a reshape moves */
    int64_t dim[PL_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int logical = perm[i] - lead;
        dim[i] = logical < 0 ? 1 : v->dim[logical];
        if (logical < 0) continue;
        int at = pl_ox_axis(v, logical);
        move[n++] = at;
        if (dim[i] == 1) continue;
        moves |= at < last;
        last = at;
    }
    if (moves) x = pl_permute(b->g, x, move);
    pl_type t = pl_val_type(b->g, x);
    bool same = t.rank == rank && memcmp(t.dim, dim, (size_t)rank * sizeof *dim) == 0;
    return same ? x : pl_reshape(b->g, x, rank, dim);
}

pl_val pl_ox_plain(pl_ox_build *b, pl_ox_val *v)
{
    int perm[PL_MAX_RANK];
    identity(v->rank, perm);
    return pl_ox_ordered(b, v, v->rank, perm);
}

pl_val pl_ox_last(pl_ox_build *b, pl_ox_val *v)
{
    int perm[PL_MAX_RANK];
    pl_ox_any(b, v);
    pl_ox_last_perm(v->rank, perm);
    return pl_ox_ordered(b, v, v->rank, perm);
}
