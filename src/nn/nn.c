/* nn.c - the context of model code: names, slots, and state that is chained through a graph.
 *
 * A graph reads a slot's value before the run and may assign it once. Code that calls a layer
 * several times needs the current value instead. The table of entries has it: `now` starts as the
 * slot's state node, an update replaces it, and pl_nn_finish assigns the entries that changed. One
 * state node per slot also means that the gradient of a shared parameter is complete.
 */
#include "nn/nn.h"

#include "base/sys.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

pl_nn *pl_nn_new(pl_graph *g, bool training)
{
    pl_nn *m = pl_sys_alloc(sizeof *m);
    if (!m) return NULL;
    m->state = pl_sys_alloc(sizeof *m->state);
    if (!m->state) {
        pl_sys_free(m);
        return NULL;
    }
    m->g = g;
    m->dtype = PL_F32;
    m->training = training;
    return m;
}

void pl_nn_free(pl_nn *m)
{
    if (!m) return;
    pl_arena_release(&m->state->arena);
    pl_sys_free(m->state->entries);
    pl_sys_free(m->state);
    pl_sys_free(m);
}

static void record(pl_nn *m, pl_status code, const char *text)
{
    struct pl_nn_state *s = m->state;
    if (s->status != PL_OK) return;
    s->status = code;
    s->first = !pl_graph_error(m->g)[0];
    snprintf(s->error, sizeof s->error, "%s%s%s", s->path, s->len ? ": " : "", text);
}

pl_val pl_nn_fail(pl_nn *m, pl_status code, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    record(m, code, text);
    return PL_NO_VAL;
}

/* ---- names ------------------------------------------------------------------------------ */
void pl_nn_push(pl_nn *m, const char *fmt, ...)
{
    struct pl_nn_state *s = m->state;
    char name[PL_NN_PATH];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    bool fits = n >= 0 && s->len + (size_t)n + 2 < sizeof s->path && s->depth < PL_NN_DEPTH;
    if (!fits) {
        record(m, PL_ERR_ARG, "a path of names is too long or too deep");
        name[0] = '\0';
    }
    if (s->depth < PL_NN_DEPTH) s->marks[s->depth] = s->len;
    s->depth++;
    if (name[0]) {
        int k =
            snprintf(s->path + s->len, sizeof s->path - s->len, "%s%s", s->len ? "." : "", name);
        s->len += (size_t)k;
    }
    pl_scope_push(m->g, name[0] ? name : "layer");
}

void pl_nn_pop(pl_nn *m)
{
    struct pl_nn_state *s = m->state;
    if (s->depth == 0) {
        record(m, PL_ERR_ARG, "more names are popped than were pushed");
        return;
    }
    s->depth--;
    if (s->depth < PL_NN_DEPTH) s->len = s->marks[s->depth];
    s->path[s->len] = '\0';
    pl_scope_pop(m->g);
}

const char *pl_nn_name(pl_nn *m, const char *fmt, ...)
{
    char text[PL_NN_PATH];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *kept = pl_arena_strdup(&m->state->arena, text);
    if (kept) return kept;
    record(m, PL_ERR_MEMORY, "out of memory for a name");
    return "";
}

/* ---- slots ------------------------------------------------------------------------------ */
int pl__nn_slot_named(pl_nn *m, const pl_slot *slot)
{
    pl_store *store = pl_graph_store(m->g);
    int index = pl_store_add(store, slot);
    if (index < 0) record(m, pl_store_status(store), pl_error_text());
    return index;
}

int pl__nn_slot(pl_nn *m, const char *name, pl_type type, pl_slot_kind kind, pl_init init,
                const pl_file_layout *layout)
{
    struct pl_nn_state *s = m->state;
    char full[2 * PL_NN_PATH];
    snprintf(full, sizeof full, "%s%s%s", s->path, s->len ? "." : "", name);
    pl_slot slot = {.name = full, .type = type, .kind = kind, .init = init};
    if (layout) slot.layout = *layout;
    slot.trainable = kind == PL_SLOT_PARAM && !m->frozen;
    slot.decay = kind == PL_SLOT_PARAM;
    slot.as_bf16 = slot.trainable && s->bf16_weights && type.dtype == PL_F32;
    if (slot.as_bf16) slot.type.dtype = PL_BF16;
    if (kind == PL_SLOT_PARAM && pl__nn_shares(m, &type)) pl__nn_share(s->ranks, &slot);
    return pl__nn_slot_named(m, &slot);
}

pl_nn_entry *pl__nn_entry(pl_nn *m, int slot)
{
    struct pl_nn_state *s = m->state;
    if (slot >= s->n_entries) {
        int n = slot + 1 > 2 * s->n_entries ? slot + 64 : 2 * s->n_entries;
        pl_nn_entry *p =
            pl_sys_realloc(s->entries, (size_t)s->n_entries * sizeof *p, (size_t)n * sizeof *p);
        if (!p) {
            record(m, PL_ERR_MEMORY, "out of memory for the table of slots");
            return NULL;
        }
        s->entries = p;
        s->n_entries = n;
    }
    return &s->entries[slot];
}

void pl__nn_store_bf16(pl_nn *m, bool on)
{
    m->state->bf16_weights = on;
}

pl_val pl__nn_stored(pl_nn *m, int slot)
{
    if (slot < 0) return PL_NO_VAL;
    if (slot >= pl_store_count(pl_graph_store(m->g)))
        return pl_nn_fail(m, PL_ERR_ARG, "no slot %d in the store, which has %d", slot,
                          pl_store_count(pl_graph_store(m->g)));
    pl_nn_entry *e = pl__nn_entry(m, slot);
    if (!e) return PL_NO_VAL;
    if (pl_val_ok(e->now)) return e->now;
    const pl_slot *s = pl_store_slot(pl_graph_store(m->g), slot);
    pl_val now =
        s->shards ? pl__nn_gathered(m, s, pl__nn_read_part(m, slot)) : pl_state(m->g, slot);
    e = pl__nn_entry(m, slot);
    return e->now = now;
}

pl_val pl_nn_read(pl_nn *m, int slot)
{
    pl_val now = pl__nn_stored(m, slot);
    if (!pl_val_ok(now) || !pl_store_slot(pl_graph_store(m->g), slot)->as_bf16) return now;
    pl_nn_entry *e = pl__nn_entry(m, slot);
    if (!pl_val_ok(e->seen)) e->seen = pl_cast(m->g, now, PL_F32);
    return e->seen;
}

void pl_nn_update(pl_nn *m, int slot, pl_val v)
{
    if (slot < 0 || !pl_val_ok(v)) return;
    pl_nn_entry *e = pl__nn_entry(m, slot);
    if (!e) return;
    e->now = v;
    e->seen = PL_NO_VAL;
    e->changed = true;
}

pl_file_layout pl__nn_file_shape(int rank, const int64_t *dim)
{
    pl_file_layout l = {.rank = rank, .view_rank = rank};
    for (int i = 0; i < rank; i++) {
        l.view[i] = dim[i];
        l.perm[i] = i;
    }
    return l;
}

pl_val pl__nn_param(pl_nn *m, const char *name, pl_type type, pl_init init,
                    const pl_file_layout *layout)
{
    return pl_nn_read(m, pl__nn_slot(m, name, type, PL_SLOT_PARAM, init, layout));
}

/* Computes the fans of a tensor whose first dimension is its outputs. */
static pl_init plain_init(pl_nn_init init, const pl_type *t)
{
    double out = t->rank > 0 ? (double)t->dim[0] : 1, in = 1;
    for (int i = 1; i < t->rank; i++) in *= (double)t->dim[i];
    return pl_nn_init_of(init, in, out);
}

/* pl_type_make cannot report more dimensions. */
static bool rank_fits(pl_nn *m, const char *name, int rank)
{
    if (rank >= 0 && rank <= PL_MAX_RANK) return true;
    pl_nn_fail(m, PL_ERR_SHAPE, "%s: rank %d; at most %d", name, rank, PL_MAX_RANK);
    return false;
}

pl_val pl_nn_param(pl_nn *m, const char *name, int rank, const int64_t *dim, pl_nn_init init)
{
    if (!rank_fits(m, name, rank)) return PL_NO_VAL;
    pl_type t = pl_type_make(m->dtype, rank, dim);
    return pl__nn_param(m, name, t, plain_init(init, &t), NULL);
}

pl_val pl_nn_param_as(pl_nn *m, const char *name, int rank, const int64_t *dim, int file_rank,
                      const int64_t *file_dim, pl_nn_init init)
{
    if (!rank_fits(m, name, rank) || !rank_fits(m, name, file_rank)) return PL_NO_VAL;
    pl_type t = pl_type_make(m->dtype, rank, dim);
    pl_file_layout l = pl__nn_file_shape(file_rank, file_dim);
    return pl__nn_param(m, name, t, plain_init(init, &t), &l);
}

void pl_nn_declare(pl_nn *m, const char *name, int rank, const int64_t *dim, pl_nn_init init)
{
    if (!rank_fits(m, name, rank)) return;
    pl_type t = pl_type_make(m->dtype, rank, dim);
    pl__nn_slot(m, name, t, PL_SLOT_PARAM, plain_init(init, &t), NULL);
}

int pl_nn_buffer(pl_nn *m, const char *name, pl_type type, pl_init init)
{
    return pl__nn_slot(m, name, type, PL_SLOT_BUFFER, init, NULL);
}

pl_val pl_nn_constant_array(pl_nn *m, const char *name, pl_type type, const void *data)
{
    return pl_nn_read(m,
                      pl_nn_buffer(m, name, type, (pl_init){.kind = PL_INIT_DATA, .data = data}));
}

int pl_nn_buffer_as(pl_nn *m, const char *name, pl_type type, int file_rank,
                    const int64_t *file_dim, pl_init init)
{
    pl_file_layout l = pl__nn_file_shape(file_rank, file_dim);
    return pl__nn_slot(m, name, type, PL_SLOT_BUFFER, init, &l);
}

pl_val pl_nn_key(pl_nn *m)
{
    struct pl_nn_state *s = m->state;
    if (!pl_val_ok(s->key)) s->key = pl_rng_key(m->g);
    return s->key;
}

void pl__nn_set_key(pl_nn *m, pl_val key)
{
    m->state->key = key;
    m->state->key_given = true;
}

int64_t pl__nn_dim(pl_nn *m, pl_val v, int axis)
{
    if (!pl_val_ok(v)) return 0;
    pl_type t = pl_val_type(m->g, v);
    int i = axis < 0 ? t.rank + axis : axis;
    return i >= 0 && i < t.rank ? t.dim[i] : 0;
}

/* ---- what a forward pass changes -------------------------------------------------------- */
/* (1-momentum)*old + momentum*value */
static pl_val moved(pl_graph *g, pl_val old, pl_val value, double momentum)
{
    return pl_add(g, pl_scale(g, old, 1 - momentum), pl_scale(g, value, momentum));
}

void pl__nn_statistic(pl_nn *m, int slot, pl_val value, double momentum)
{
    pl_val old = pl_nn_read(m, slot);
    pl_nn_entry *e = slot < 0 ? NULL : pl__nn_entry(m, slot);
    if (!e || !pl_val_ok(value)) return;
    value = pl_stop_gradient(m->g, value);
    if (!m->bn_average) {
        pl_nn_update(m, slot, moved(m->g, old, value, momentum));
        return;
    }
    e->sum = e->calls ? pl_add(m->g, e->sum, value) : value;
    e->averaged = true;
    e->momentum = momentum;
    e->calls++;
}

pl_status pl_nn_finish(pl_nn *m)
{
    struct pl_nn_state *s = m->state;
    pl_graph *g = m->g;
    if (s->depth) record(m, PL_ERR_ARG, "a name was pushed and not popped");
    if (s->finished) record(m, PL_ERR_ARG, "pl_nn_finish was called twice");
    s->finished = true;
    for (int slot = 0; slot < s->n_entries; slot++) {
        pl_nn_entry *e = &s->entries[slot];
        if (e->averaged)
            pl_nn_update(m, slot,
                         moved(g, e->now, pl_scale(g, e->sum, 1.0 / e->calls), e->momentum));
    }
    pl__nn_settle_buffers(m);
    for (int slot = 0; slot < s->n_entries; slot++) {
        const pl_nn_entry *e = &s->entries[slot];
        if (e->changed) pl_assign(g, slot, pl_val_ok(e->part) ? e->part : e->now);
    }
    /* Only training advances the key: an evaluation or sampling program must not change training's
     * draws. */
    if (pl_val_ok(s->key) && !s->key_given && m->training) {
        /* {seed, step} plus {0, 1} */
        pl_val one = pl_iota(g, pl_val_type(g, s->key), 0);
        pl_assign(g, pl_store_find(pl_graph_store(g), "rng"), pl_add(g, s->key, one));
    }
    /* The first error is the cause; the other may be its consequence (a missing input). */
    PL_FAIL_IF(s->status != PL_OK && s->first, s->status, "%s", s->error);
    PL_TRY(pl_graph_status(g));
    PL_FAIL_IF(s->status != PL_OK, s->status, "%s", s->error);
    return PL_OK;
}

/* ---- slots by pattern ------------------------------------------------------------------- */
/* Matches text [p, end) with * and ? against name; backtracks to the last star only. */
static bool glob(const char *p, const char *end, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (p < end && *p == '*') {
            star = p++;
            from = name;
        } else if (p < end && (*p == '?' || *p == *name)) {
            p++;
            name++;
        } else if (star) {
            p = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*') p++;
    return p == end;
}

bool pl_nn_match(const char *pattern, const char *name)
{
    if (!pattern) return true;
    pattern += strspn(pattern, " ");
    bool in = pattern[0] == '!'; /* a list that starts with an exclusion starts from everything */
    while (*pattern) {
        const char *end = pattern + strcspn(pattern, ","), *last = end;
        while (last > pattern && last[-1] == ' ') last--;
        bool no = *pattern == '!';
        if (glob(pattern + no, last, name)) in = !no;
        pattern = *end ? end + 1 : end;
        pattern += strspn(pattern, " ");
    }
    return in;
}

int64_t pl_nn_count(const pl_store *s, const char *pattern, bool trainable_only)
{
    int64_t n = 0;
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        if (slot->kind == PL_SLOT_PARAM && (slot->trainable || !trainable_only) &&
            pl_nn_match(pattern, slot->name))
            n += pl_type_elems(pl_slot_type(slot));
    }
    return n;
}

static int set_flag(pl_store *s, const char *pattern, bool on, void (*set)(pl_store *, int, bool))
{
    int n = 0;
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *slot = pl_store_slot(s, i);
        if (slot->kind != PL_SLOT_PARAM || !pl_nn_match(pattern, slot->name)) continue;
        set(s, i, on);
        n++;
    }
    return n;
}

int pl_nn_set_trainable(pl_store *s, const char *pattern, bool on)
{
    return set_flag(s, pattern, on, pl_store_set_trainable);
}

int pl_nn_set_decay(pl_store *s, const char *pattern, bool on)
{
    return set_flag(s, pattern, on, pl_store_set_decay);
}
