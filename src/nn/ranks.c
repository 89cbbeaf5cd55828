/* ranks.c - gradients, weights and moments across several ranks; all of it nodes of the graph.
 *
 *   replicate   gradients --all_reduce--> sums, every rank updates everything
 *   optimizer   gradients --reduce_scatter--> own parts; moments and update of the own part only;
 *               new parts --all_gather--> weights
 *   gradients   the same, and accumulated gradients are own parts
 *   weights     weights are sharded too: part --all_gather--> weight where it is read
 *
 * A tensor of n elements is flattened and padded with zeros to `ranks` parts of equal size k, a
 * multiple of 16. Buckets of parts have the shape [ranks, sum of k], so that one exchange serves
 * many tensors:
 *
 *      tensor a (padded) as [N, ka]   tensor b as [N, kb]
 *      bucket [N, ka+kb]   row r is rank r's part of a, then of b   --reduce_scatter--> [ka+kb]
 *
 * Buckets take the gradients in the order of their nodes, which is the order in which the backward
 * pass computes them, so a bucket's exchange can begin while the backward pass continues.
 */
#include "nn/nn.h"

#include <stdlib.h>

/* elements; smaller parameters are not sharded */
enum { PART_ALIGN = 16, SHARE_FROM = 1024 };

void pl__nn_set_ranks(pl_nn *m, const pl_nn_ranks *r)
{
    m->state->ranks = r;
}

const pl_nn_ranks *pl__nn_ranks(const pl_nn *m)
{
    return m->state->ranks;
}

static int ranks_of(const pl_nn *m)
{
    return m->state->ranks ? m->state->ranks->ranks : 1;
}

static bool exchanges(const pl_nn *m)
{
    return ranks_of(m) > 1 || (m->state->ranks && m->state->ranks->always);
}

pl_val pl__nn_over_ranks(pl_nn *m, pl_val x, const char *name)
{
    return exchanges(m) ? pl_all_reduce(m->g, x, ranks_of(m), name) : x;
}

/* ---- parts ------------------------------------------------------------------------------ */
static int64_t part_elems(const pl_nn_ranks *r, const pl_type *t)
{
    int64_t part = (pl_type_elems(t) + r->ranks - 1) / r->ranks;
    int64_t align = r->part_align ? r->part_align : PART_ALIGN;
    return (part + align - 1) / align * align;
}

void pl__nn_share_packed(const pl_nn_ranks *r, const pl_type *of, pl_slot *slot)
{
    pl_type part = pl_packed_type(part_elems(r, of));
    slot->whole = slot->type;
    slot->type = PL_TYPE(PL_U8, pl_type_elems(&part));
    slot->shards = r->ranks;
    slot->shard = r->rank;
}

void pl__nn_share(const pl_nn_ranks *r, pl_slot *slot)
{
    slot->whole = slot->type;
    slot->type = PL_TYPE(slot->whole.dtype, part_elems(r, &slot->whole));
    slot->shards = r->ranks;
    slot->shard = r->rank;
}

bool pl__nn_shares(const pl_nn *m, const pl_type *t)
{
    const pl_nn_ranks *r = m->state->ranks;
    return r && r->ranks > 1 && r->shard == PL_SHARD_WEIGHTS && pl_type_elems(t) >= SHARE_FROM;
}

/* Flattens x and pads it with zeros to ranks times k elements. */
static pl_val padded(pl_nn *m, pl_val x, int64_t k)
{
    pl_type t = pl_val_type(m->g, x);
    int64_t n = pl_type_elems(&t), all = k * ranks_of(m);
    x = pl_reshape(m->g, x, 1, (const int64_t[]){n});
    if (n == all) return x;
    pl_val zeros = pl_fill(m->g, PL_TYPE(t.dtype, all - n), 0);
    return pl_concat(m->g, 2, (const pl_val[]){x, zeros}, 0);
}

static pl_val unpadded(pl_nn *m, pl_val x, const pl_type *t)
{
    int64_t n = pl_type_elems(t);
    return pl_reshape(m->g, pl_slice(m->g, x, 0, 0, n, 1), t->rank, t->dim);
}

pl_val pl__nn_gathered(pl_nn *m, const pl_slot *slot, pl_val part)
{
    if (!pl_val_ok(part)) return part;
    return unpadded(m, pl_all_gather(m->g, part, slot->shards, slot->name), &slot->whole);
}

pl_val pl__nn_part(pl_nn *m, int slot, pl_val whole)
{
    const pl_nn_ranks *r = m->state->ranks;
    if (!pl_val_ok(whole)) return whole;
    const pl_type *t = pl_slot_type(pl_store_slot(pl_graph_store(m->g), slot));
    int64_t k = part_elems(r, t);
    return pl_slice(m->g, padded(m, whole, k), 0, r->rank * k, (r->rank + 1) * k, 1);
}

pl_val pl__nn_read_part(pl_nn *m, int slot)
{
    pl_nn_entry *e = slot < 0 ? NULL : pl__nn_entry(m, slot);
    if (!e) return PL_NO_VAL;
    if (!pl_store_slot(pl_graph_store(m->g), slot)->shards)
        return pl__nn_part(m, slot, pl__nn_stored(m, slot));
    if (!pl_val_ok(e->part)) e->part = pl_state(m->g, slot);
    return e->part;
}

void pl__nn_update_part(pl_nn *m, int slot, pl_val part)
{
    pl_nn_entry *e = slot < 0 ? NULL : pl__nn_entry(m, slot);
    if (!e || !pl_val_ok(part)) return;
    e->part = part;
    e->now = e->seen = PL_NO_VAL; /* gathered again when it is read */
    e->changed = true;
}

/* ---- buckets ---------------------------------------------------------------------------- */
/* One tensor of a bucket; sorted by the value that is ready last. */
typedef struct item {
    int index; /* in the caller's list */
    uint32_t made;
    pl_type type;
    int64_t part;
} item;

static int by_made(const void *a, const void *b)
{
    const item *x = a, *y = b;
    return x->made != y->made ? (x->made > y->made) - (x->made < y->made)
                              : (x->index > y->index) - (x->index < y->index);
}

static item *items_new(pl_nn *m, int n, const pl_val *vals, const int *slots)
{
    item *list = pl_arena_new(&m->state->arena, item, (size_t)n + 1);
    if (!list) {
        pl_nn_fail(m, PL_ERR_MEMORY, "out of memory for %d tensors of ranks", n);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        const pl_type *t = pl_slot_type(pl_store_slot(pl_graph_store(m->g), slots[i]));
        list[i] = (item){i, vals[i].id, pl_val_type(m->g, vals[i]), part_elems(m->state->ranks, t)};
    }
    qsort(list, (size_t)n, sizeof *list, by_made);
    return list;
}

/* Returns how many items from `first` on make a bucket: of one dtype, up to the bucket size. */
static int bucket_size(const pl_nn *m, const item *list, int first, int n)
{
    uint64_t sum = 0;
    int k = first;
    for (; k < n && list[k].type.dtype == list[first].type.dtype; k++) {
        uint64_t bytes = pl_type_bytes(&list[k].type);
        if (k > first && sum + bytes > m->state->ranks->bucket_bytes) break;
        sum += bytes;
    }
    return k - first;
}

static pl_val *values_new(pl_nn *m, int n)
{
    pl_val *v = pl_arena_new(&m->state->arena, pl_val, (size_t)n + 1);
    if (!v) pl_nn_fail(m, PL_ERR_MEMORY, "out of memory for a bucket of %d", n);
    return v;
}

static void reduce_whole(pl_nn *m, const item *list, int n, pl_val *grad, const char *name)
{
    pl_val *flat = values_new(m, n);
    int64_t at = 0;
    for (int i = 0; flat && i < n; i++)
        flat[i] = pl_reshape(m->g, grad[list[i].index], 1, (const int64_t[]){-1});
    if (!flat) return;
    pl_val sum = pl__nn_over_ranks(m, pl_concat(m->g, n, flat, 0), name);
    for (int i = 0; i < n; i++) {
        int64_t elems = pl_type_elems(&list[i].type);
        pl_val own = pl_slice(m->g, sum, 0, at, at + elems, 1);
        grad[list[i].index] = pl_reshape(m->g, own, list[i].type.rank, list[i].type.dim);
        at += elems;
    }
}

static void reduce_parts(pl_nn *m, const item *list, int n, pl_val *grad, const char *name)
{
    int ranks = ranks_of(m);
    pl_val *rows = values_new(m, n);
    int64_t at = 0, width = 0;
    for (int i = 0; rows && i < n; i++) {
        pl_val flat = padded(m, grad[list[i].index], list[i].part);
        rows[i] = pl_reshape(m->g, flat, 2, (const int64_t[]){ranks, list[i].part});
        width += list[i].part;
    }
    if (!rows) return;
    pl_val bucket =
        pl_reshape(m->g, pl_concat(m->g, n, rows, 1), 1, (const int64_t[]){ranks * width});
    pl_val sum = pl_reduce_scatter(m->g, bucket, ranks, name);
    for (int i = 0; i < n; i++) {
        grad[list[i].index] = pl_slice(m->g, sum, 0, at, at + list[i].part, 1);
        at += list[i].part;
    }
}

void pl__nn_reduce(pl_nn *m, pl_grads *grads, bool parts)
{
    if (!exchanges(m) || grads->n == 0) return;
    item *list = items_new(m, grads->n, grads->grad, grads->slot);
    for (int at = 0, n, i = 0; list && at < grads->n; at += n, i++) {
        n = bucket_size(m, list, at, grads->n);
        const char *name = pl_nn_name(m, "gradients %d", i);
        (parts ? reduce_parts : reduce_whole)(m, list + at, n, grads->grad, name);
    }
}

void pl__nn_update_gathered(pl_nn *m, int n, const int *slots, const pl_val *parts)
{
    int ranks = ranks_of(m);
    pl_store *store = pl_graph_store(m->g);
    item *list = n ? items_new(m, n, parts, slots) : NULL;
    for (int first = 0, k, b = 0; list && first < n; first += k, b++) {
        k = bucket_size(m, list, first, n);
        pl_val *row = values_new(m, k);
        int64_t width = 0, at = 0;
        if (!row) return;
        for (int i = 0; i < k; i++) {
            row[i] = parts[list[first + i].index];
            width += list[first + i].part;
        }
        pl_val all =
            pl_all_gather(m->g, pl_concat(m->g, k, row, 0), ranks, pl_nn_name(m, "weights %d", b));
        all = pl_reshape(m->g, all, 2, (const int64_t[]){ranks, width});
        for (int i = 0; i < k; i++) {
            const item *t = &list[first + i];
            pl_val own = pl_slice(m->g, all, 1, at, at + t->part, 1);
            own = pl_reshape(m->g, own, 1, (const int64_t[]){ranks * t->part});
            pl_nn_update(m, slots[t->index],
                         unpadded(m, own, &pl_store_slot(store, slots[t->index])->type));
            at += t->part;
        }
    }
}

/* ---- running statistics ----------------------------------------------------------------- */
void pl__nn_settle_buffers(pl_nn *m)
{
    struct pl_nn_state *s = m->state;
    pl_store *store = pl_graph_store(m->g);
    if (ranks_of(m) == 1 || s->ranks->sync_norm) return;
    for (int slot = 0; slot < s->n_entries && slot < pl_store_count(store); slot++) {
        const pl_slot *p = pl_store_slot(store, slot);
        pl_nn_entry *e = &s->entries[slot];
        if (!e->changed || p->kind != PL_SLOT_BUFFER || p->type.dtype != PL_F32) continue;
        e->now = pl_scale(m->g, pl__nn_over_ranks(m, e->now, p->name), 1.0 / s->ranks->ranks);
    }
}
