/* init.c - the state before the first step: constants and random draws, slot by slot.
 *
 * An element depends on (seed, name of its slot, index) alone: not on the device, the number of
 * threads or the other slots of the store. Draws are made in batches (cpu/kernels/draw.h), shifted
 * and scaled in double, and rounded once. A device computes constants, uniform and normal floats
 * itself where it can (pl_device.draw); otherwise the host writes them, block by block.
 */
#include "base/dtype.h"
#include "base/threads.h"
#include "cpu/kernels/draw.h"
#include "rt/rt_int.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

/* Elements of a task for the threads, and of one batch of draws. */
enum { CHUNK = 1 << 16, AT_ONCE = 512 };

typedef struct job {
    void *base;
    pl_dtype dtype;
    pl_init init;
    pl_draws from;
    int64_t first, n; /* first: a multiple of AT_ONCE */
} job;

/* Converts scaled draws to the slot's type. */
static void store(const job *j, int64_t at, int64_t n, const double *v)
{
    float *f = (float *)j->base + at;
    uint16_t *h = (uint16_t *)j->base + at;
    if (j->dtype == PL_F32)
        for (int64_t i = 0; i < n; i++) f[i] = (float)v[i];
    else if (j->dtype == PL_BF16)
        for (int64_t i = 0; i < n; i++) h[i] = pl_f32_to_bf16((float)v[i]);
    else
        for (int64_t i = 0; i < n; i++) pl_elem_set(j->dtype, j->base, at + i, v[i]);
}

/* Rounding to the slot's type may reach b, which is outside [a, b): a replaces it. */
static void keep_below(const job *j, int64_t at, int64_t n, const double *v)
{
    /* Rounding moves a number by at most 2^-9 of it (bf16): numbers further below b stay below
     * b. */
    double near = j->init.b - fmax(fabs(j->init.a), fabs(j->init.b)) * 0x1p-7;
    for (int64_t i = 0; i < n; i++)
        if (v[i] >= near && pl_elem_get(j->dtype, j->base, at + i) >= j->init.b)
            pl_elem_set(j->dtype, j->base, at + i, j->init.a);
}

/* Redraws numbers outside the bounds into `drawn`, with other seeds. Where the bounds exclude
 * nearly all of the distribution, the nearest bound replaces what no draw of TRIES could. */
static void keep_within(const job *j, int64_t at, int64_t n, float *drawn, double *v)
{
    enum { TRIES = 64 };
    const double lo = j->init.lo, hi = j->init.hi;
    for (int t = 1; t <= TRIES; t++) {
        bool outside = false;
        for (int64_t i = 0; i < n && !outside; i++) outside = v[i] < lo || v[i] > hi;
        if (!outside) return;
        pl_draws from = j->from;
        from.seed += (uint64_t)t * 0x9E3779B97F4A7C15u;
        pl_draw_run(&from, j->first + at, n, drawn);
        for (int64_t i = 0; i < n; i++)
            if (v[i] < lo || v[i] > hi) v[i] = j->init.a + j->init.b * (double)drawn[i];
    }
    for (int64_t i = 0; i < n; i++) v[i] = fmin(fmax(v[i], lo), hi);
}

static bool is_normal(pl_init_kind kind)
{
    return kind == PL_INIT_NORMAL || kind == PL_INIT_TRUNC_NORMAL;
}

static void draw_part(const job *j, int64_t at, int64_t n)
{
    float drawn[AT_ONCE];
    double v[AT_ONCE];
    bool normal = is_normal(j->init.kind);
    double scale = normal ? j->init.b : j->init.b - j->init.a;
    pl_draw_run(&j->from, j->first + at, n, drawn);
    for (int64_t i = 0; i < n; i++) v[i] = j->init.a + scale * (double)drawn[i];
    if (j->init.kind == PL_INIT_TRUNC_NORMAL) keep_within(j, at, n, drawn, v);
    store(j, at, n, v);
    if (!normal && j->init.a < j->init.b) keep_below(j, at, n, v);
}

/* Copies double the part that is filled. */
static void fill_constant(const job *j, int64_t at, int64_t n)
{
    int64_t bytes = (int64_t)pl_dtype_bytes(j->dtype);
    char *to = (char *)j->base + at * bytes;
    pl_elem_set(j->dtype, to, 0, j->init.a);
    for (int64_t done = 1, more; done < n; done += more) {
        more = done < n - done ? done : n - done;
        memcpy(to + done * bytes, to, (size_t)(more * bytes));
    }
}

static void fill_chunk(void *ctx, int64_t task, int worker)
{
    const job *j = ctx;
    (void)worker;
    int64_t end = (task + 1) * CHUNK < j->n ? (task + 1) * CHUNK : j->n;
    for (int64_t at = task * CHUNK; at < end; at += AT_ONCE) {
        int64_t n = end - at < AT_ONCE ? end - at : AT_ONCE;
        if (j->init.kind != PL_INIT_CONST)
            draw_part(j, at, n);
        else
            fill_constant(j, at, n);
    }
}

static pl_slot_draws draws_of(const pl_slot *slot, uint64_t seed)
{
    uint64_t h = XXH64(slot->name, strlen(slot->name), 0);
    return (pl_slot_draws){seed ^ (h & 0xffffffff00000000u), (uint32_t)h, slot->init};
}

/* Initialises elements [first, first + n) of a slot, at base. */
static void init_part(const pl_slot *slot, uint64_t seed, int64_t first, int64_t n, void *base)
{
    size_t elem = pl_dtype_bytes(slot->type.dtype);
    if (slot->init.kind == PL_INIT_DATA) {
        memcpy(base, (const char *)slot->init.data + (size_t)first * elem, (size_t)n * elem);
        return;
    }
    pl_slot_draws d = draws_of(slot, seed);
    job j = {.base = base,
             .dtype = slot->type.dtype,
             .init = slot->init,
             .from = {.seed = d.seed,
                      .stream = d.stream,
                      .normal = is_normal(slot->init.kind),
                      .dtype = PL_F32}, /* all bits: draws are rounded after scaling */
             .first = first,
             .n = n};
    pl_threads_for((n + CHUNK - 1) / CHUNK, fill_chunk, &j);
}

/* Returns the number of elements of the whole slot that this rank holds, from *first on. Elements
 * beyond the slot's end, in the last rank's shard, stay zero. */
static int64_t elems_here(const pl_slot *slot, int64_t *first)
{
    int64_t n = pl_type_elems(&slot->type), all = pl_type_elems(pl_slot_type(slot));
    *first = slot->shards ? slot->shard * n : 0;
    int64_t left = all - *first;
    return left < 0 ? 0 : left < n ? left : n;
}

/* Whether the device draws the slot's initial values. */
static bool is_drawn(const pl_session *s, const pl_slot *slot)
{
    return s->dev->draw && pl_dtype_is_float(slot->type.dtype) && slot->init.kind <= PL_INIT_NORMAL;
}

/* Writes the initial elements [first, first + n) of a slot to a block of host memory. Where the
 * device draws, it does so in the arena, which holds nothing yet: the bits are those of a slot on
 * the device. */
static pl_status init_block(pl_session *s, const pl_slot *slot, uint64_t seed, int64_t first,
                            int64_t n, void *block)
{
    if (!is_drawn(s, slot)) {
        init_part(slot, seed, first, n, block);
        return PL_OK;
    }
    pl_slot_draws from = draws_of(slot, seed);
    PL_TRY(s->dev->draw(s->arena, slot->type.dtype, &from, first, n));
    return s->dev->read(block, s->arena, (size_t)n * pl_dtype_bytes(slot->type.dtype));
}

/* Returns the elements that pass through the host at once. */
static int64_t block_elems(const pl_session *s, size_t elem)
{
    enum { BLOCK = 1 << 20, DEVICE_BLOCK = 16 << 20 }; /* bytes */
    uint64_t bytes = s->dev->draw ? DEVICE_BLOCK : BLOCK;
    if (s->dev->draw && bytes > s->arena_bytes) bytes = s->arena_bytes;
    return (int64_t)(bytes / elem > 64 ? bytes / elem / 64 * 64 : 1);
}

/* A slot that lives below the device or is quantized: its values pass through one block of host
 * memory. */
static pl_status init_below(pl_session *s, int i, uint64_t seed)
{
    const pl_slot *slot = pl_store_slot(s->store, i);
    size_t elem = pl_dtype_bytes(slot->type.dtype);
    int64_t begin, drawn = elems_here(slot, &begin), all = pl_type_elems(&slot->type);
    int64_t most = block_elems(s, elem);
    char *block = pl_sys_alloc((size_t)most * elem);
    pl_status rc = block ? PL_OK : PL_ERR_MEMORY;
    for (int64_t first = 0; first < all && rc == PL_OK; first += most) {
        int64_t n = all - first < most ? all - first : most, left = drawn - first;
        int64_t here = left < 0 ? 0 : left < n ? left : n;
        if (here) rc = init_block(s, slot, seed, begin + first, here, block);
        memset(block + (size_t)here * elem, 0, (size_t)(n - here) * elem);
        if (rc == PL_OK)
            rc = pl_session_write_slot(s, i, (uint64_t)first * elem, block, (size_t)n * elem);
    }
    pl_sys_free(block);
    return rc;
}

static pl_status init_slot(pl_session *s, int i, uint64_t seed)
{
    const pl_slot *slot = pl_store_slot(s->store, i);
    if (pl_home_level(s->homes, i) || slot->quant) return init_below(s, i, seed);
    size_t elem = pl_dtype_bytes(slot->type.dtype);
    char *to = s->state + s->slot_at[i];
    int64_t begin, all = elems_here(slot, &begin);
    if (all < pl_type_elems(&slot->type)) PL_TRY(s->dev->fill(to, 0, pl_type_bytes(&slot->type)));
    if (is_drawn(s, slot)) {
        pl_slot_draws from = draws_of(slot, seed);
        return s->dev->draw(to, slot->type.dtype, &from, begin, all);
    }
    for (int64_t first = 0, n; first < all; first += n) {
        char *at = to + (size_t)first * elem;
        size_t bytes = (size_t)(all - first) * elem;
        void *block = s->dev->access->block(s, at, &bytes);
        n = (int64_t)(bytes / elem);
        init_part(slot, seed, begin + first, n, block);
        PL_TRY(s->dev->access->put(s, at, block, (size_t)n * elem));
    }
    return PL_OK;
}

pl_status pl_session_init(pl_session *s, uint64_t seed)
{
    uint64_t at = pl_sys_now_ns();
    for (int i = 0; i < s->n_slots; i++) PL_TRY(init_slot(s, i, seed));
    s->times.init = pl_lap(&at);
    return PL_OK;
}
