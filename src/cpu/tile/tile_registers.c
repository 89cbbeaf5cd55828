/* tile_registers.c - assigns registers (parts of a worker's scratch) to steps.
 *
 * Idea: linear scan. Steps are in execution order, so a register is free after its last reader; a
 * result may take the register of an argument that dies in the same step. Values that stay the same
 * from tile to tile (stable) keep their own register.
 *
 * Invariant: no two values that are alive at once share a register, and a step that may store into
 * the memory of an operand (ir/group/inplace.h) has a register to wait in while the operand is
 * still read.
 *
 * Example: %2 = sub %0 %1; %3 = exp %2; store %3, with %0 and %1 in memory. %2 takes register 0; %3
 * could reuse it, because %2 dies there, but %3 is computed directly into the output. One register.
 *
 * Cost: steps times registers, some hundred of each at most.
 */
#include "cpu/tile/tile_build.h"

#include <string.h>

static void find_uses(pl_tile_code *t)
{
    for (int i = 0; i < t->n_step; i++) {
        t->step[i].last_use = i;
        for (int k = 0; k < t->step[i].n_arg; k++) t->step[t->step[i].arg[k]].last_use = i;
    }
    for (int i = 0; i < t->n_step; i++) /* a chain reads its operands at its head */
        for (int m = t->step[i].flow; m >= 0 && !t->step[i].absorbed; m = t->step[m].flow)
            for (int k = 0; k < t->step[m].n_arg; k++) {
                int32_t *last = &t->step[t->step[m].arg[k]].last_use;
                if (*last < i) *last = i;
            }
}

/* An output may share the memory of a densely read operand. A store before the operand's last use
 * would destroy the operand, so the value must be able to wait in a register until the tile's
 * end. */
static void find_hazards(pl_tile_code *t)
{
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        for (int o = s->first_out; o < s->first_out + s->n_out; o++) {
            pl_tile_place *q = &t->place[o];
            if (q->kind != PL_FUSED_STORE) continue;
            for (int k = 0; k < t->n_step && !q->bits; k++) {
                const pl_step *l = &t->step[k];
                if (l->code != PL_STEP_LOAD || !t->in[l->operand].whole) continue;
                if (pl_dtype_bytes(t->in[l->operand].dtype) != q->width) continue;
                if ((l->alias ? l->last_use : k) > i) q->hazard |= (uint64_t)1 << l->operand;
            }
            if (q->hazard) s->last_use = t->n_step;
            bool taken = o > s->first_out && t->place[o - 1].direct;
            q->direct = !q->bits && !taken && !s->stable && q->width == pl_vec_width(s->cls);
        }
    }
}

static bool needs_register(const pl_tile_code *t, const pl_step *s)
{
    if (s->alias) return false;
    for (int o = s->first_out; o < s->first_out + s->n_out; o++)
        if (t->place[o].direct && !t->place[o].hazard) return false;
    return true;
}

static int pool_of(const pl_step *s)
{
    size_t w = pl_vec_width(s->cls);
    return w == 1 ? 0 : w == 4 ? 1 : 2;
}

static bool pooled(const pl_tile_code *t, const pl_step *s)
{
    return s->level == PL_LEVEL_FULL && !s->stable && !s->absorbed && needs_register(t, s);
}

/* Frees the registers that s reads and that step i needs last. */
static void free_args(const pl_tile_code *t, pl_tile_pools *pl, const pl_step *s, int i)
{
    for (int k = 0; k < s->n_arg; k++) {
        const pl_step *a = &t->step[s->arg[k]];
        if (a->slot >= 0 && a->last_use == i) pl->busy[pool_of(a)][a->slot] = 0;
    }
}

/* Assigns whole-tile registers by liveness: a result may take its dying argument's register. */
static void give_slots(pl_tile_code *t, pl_tile_pools *pl)
{
    memset(pl, 0, sizeof *pl);
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        for (int m = i; m >= 0; m = t->step[m].flow) free_args(t, pl, &t->step[m], i);
        if (!pooled(t, s)) continue;
        int w = pool_of(s), slot = 0;
        while (pl->busy[w][slot]) slot++;
        pl->busy[w][slot] = s->last_use > i; /* otherwise only its outputs read it, at once */
        if (slot >= pl->count[w]) pl->count[w] = slot + 1;
        s->slot = slot;
    }
}

/* Registers a multiple of 4 KiB apart would conflict: the processor assumes that a load depends on
 * a store to the same offset in another page. */
static size_t skewed(size_t bytes)
{
    return pl_align64(bytes) + 192;
}

static size_t full_bytes_of(const pl_tile_code *t, const pl_tile_pools *pl)
{
    size_t each = (size_t)pl->count[0] + 4 * (size_t)pl->count[1] + 8 * (size_t)pl->count[2];
    /* Stable values and operands in memory are read in every tile. */
    uint8_t hot[PL_TILE_INSTRS * 4 + PL_TILE_OUTPUTS * 3 + 1] = {0};
    for (int i = 0; i < t->n_step; i++)
        for (int k = 0; k < t->step[i].n_arg && !t->step[i].stable; k++) hot[t->step[i].arg[k]] = 1;
    for (int i = 0; i < t->n_step; i++) {
        const pl_step *s = &t->step[i];
        if (s->level == PL_LEVEL_FULL && (s->stable || s->alias) && hot[i] && !s->brief)
            each += pl_vec_width(s->cls);
    }
    return each;
}

size_t pl_tile_registers(pl_tile_code *t, pl_tile_pools *pl)
{
    find_uses(t);
    find_hazards(t);
    give_slots(t, pl);
    return full_bytes_of(t, pl);
}

/* Lays out a worker's block: pointers, operand bases, change marks, lanes, then registers. */
void pl_tile_lay_out_worker(pl_tile_code *t, const pl_tile_pools *pl)
{
    size_t at = 0, n = (size_t)(t->tile_t * t->inner), steps = (size_t)t->n_step;
    size_t rows = t->row ? n / (size_t)t->row : 0, raw = 0, full_at[3];
    t->ptr_at = at, at += pl_align64(sizeof(void *) * steps);
    t->base_at = at, at += pl_align64(sizeof(int64_t) * (size_t)t->n_in);
    t->changed_at = at, at += pl_align64(steps + 1);
    t->lanes_at = at, at += pl_align64(sizeof(pl_acc) * PL_RED_LANES * ((size_t)t->n_place + 1));
    for (int w = 0; w < 3; w++) {
        full_at[w] = at;
        at += skewed(n * (w == 0 ? 1u : w == 1 ? 4u : 8u)) * (size_t)pl->count[w];
    }
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        size_t width = pl_vec_width(s->cls);
        if (s->code == PL_STEP_LOAD && s->fn) raw = pl_align64(2 * n);
        if (s->alias) continue;
        if (s->slot >= 0) {
            s->at = full_at[pool_of(s)] + skewed(n * width) * (size_t)s->slot;
            continue;
        }
        /* computed directly into an output */
        if (s->level == PL_LEVEL_FULL && !s->stable) continue;
        size_t count = s->brief                    ? (size_t)(t->brief_t * t->inner)
                       : s->level == PL_LEVEL_FULL ? n
                       : s->level == PL_LEVEL_ROW  ? rows
                                                   : 1;
        s->at = at;
        at += s->level == PL_LEVEL_FULL
                  ? skewed(count * width)
                  : pl_align64(count * width) * (s->code == PL_STEP_REDUCE ? 2 : 1);
    }
    t->raw_at = at;
    t->worker_bytes = at + raw;
}
