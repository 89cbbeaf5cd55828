/* tile_chain.c - finds chains: f32 steps each of which has one reader, the next step. A chain runs
 * as one loop over the tile (cpu/vec/vec_chain.isa.c), so its inner values stay in vector
 * registers. The last step of a chain is its head; the other steps are absorbed: they have no
 * register and are not executed.
 *
 *   %4 = sub %0 %1       head %6: from %0, links sub %1, mul %2, add %3;
 *   %5 = mul %4 %2       %4 and %5 never reach memory
 *   %6 = add %5 %3
 *
 * Invariant: a link rounds like the loop it replaces, so bits do not change. Cost: steps squared.
 */
#include "cpu/tile/tile_plan.h"

enum { NONE = -1 };

static bool is_full(const pl_step *s)
{
    return s->level == PL_LEVEL_FULL;
}

/* Returns the link code of the step when its value comes from arg[k], or NONE. */
static int code_of(const pl_tile_code *t, const pl_step *s, int k)
{
    bool vector = s->n_arg < 2 || is_full(&t->step[s->arg[1 - k]]);
    int wide = vector ? 0 : PL_LINK_ADD_S - PL_LINK_ADD;
    switch (s->map) {
    case PL_SCALAR_ADD: return PL_LINK_ADD + wide;
    case PL_SCALAR_SUB: return (k == 0 ? PL_LINK_SUB : PL_LINK_RSUB) + wide;
    case PL_SCALAR_MUL: return PL_LINK_MUL + wide;
    case PL_SCALAR_NEG: return PL_LINK_NEG;
    case PL_SCALAR_SQUARE: return PL_LINK_SQUARE;
    case PL_SCALAR_RELU: return PL_LINK_RELU;
    case PL_SCALAR_LEAKY_RELU: return PL_LINK_LEAKY;
    default: return NONE;
    }
}

static bool linkable(const pl_tile_code *t, const pl_step *s)
{
    return s->code == PL_STEP_MAP && is_full(s) && !s->stable && !s->per_row && !s->round &&
           s->cls == PL_VEC_F32 && t->step[s->arg[0]].cls == PL_VEC_F32 && code_of(t, s, 0) != NONE;
}

/* Returns the argument that the value flows through: the argument with the longest chain behind it
 * that no other step uses, or any whole-tile argument. */
static int flow_arg(const pl_tile_code *t, const pl_step *s, const uint8_t *single)
{
    int best = NONE;
    for (int k = 0; k < s->n_arg; k++) {
        const pl_step *a = &t->step[s->arg[k]];
        if (!is_full(a)) continue;
        int32_t links = single[s->arg[k]] ? a->n_link : 0;
        int32_t most = best == NONE           ? NONE
                       : single[s->arg[best]] ? t->step[s->arg[best]].n_link
                                              : 0;
        if (links > most) best = k;
    }
    return best;
}

static pl_chain_link link_of(const pl_tile_code *t, const pl_step *s, int k)
{
    return (pl_chain_link){(pl_link_code)code_of(t, s, k), (float)s->imm,
                           s->n_arg == 2 ? s->arg[1 - k] : s->arg[k]};
}

/* Writes the head's links, first to last, and the step the chain starts from. */
static void write_links(pl_tile_code *t, pl_step *s, int32_t at)
{
    s->first_link = at;
    at += s->n_link;
    for (pl_step *m = s;; m = &t->step[m->flow]) {
        int k = m->flow_arg;
        t->link[--at] = link_of(t, m, k);
        if (m->flow == NONE) {
            s->from = m->arg[k];
            return;
        }
    }
}

static bool reads_stable(const pl_tile_code *t, const pl_step *s)
{
    for (int k = 0; k < s->n_arg; k++) {
        const pl_step *a = &t->step[s->arg[k]];
        if (is_full(a) && a->stable) return true;
    }
    return false;
}

/* Marks stable values that only chains, or brief values, read. */
static void find_brief(pl_tile_code *t)
{
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        s->brief = is_full(s) && s->stable && !s->alias && s->n_out == 0 && t->brief_t < t->tile_t;
    }
    for (int j = t->n_step - 1; j >= 0; j--) {
        const pl_step *s = &t->step[j];
        if (s->chain || s->absorbed || s->brief) continue;
        for (int k = 0; k < s->n_arg; k++) t->step[s->arg[k]].brief = false;
    }
}

void pl_tile_chains(pl_tile_code *t)
{
    uint8_t single[PL_TILE_INSTRS * 4 + PL_TILE_OUTPUTS * 3 + 1] = {0};
    int32_t at = 0;
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        s->flow = NONE;
        if (!linkable(t, s)) continue;
        s->n_link = 1;
        for (int j = i + 1; j < t->n_step; j++)
            for (int k = 0; k < t->step[j].n_arg; k++)
                if (t->step[j].arg[k] == i && single[i] < 2) single[i]++;
        single[i] = single[i] == 1 && s->n_out == 0;
        s->flow_arg = flow_arg(t, s, single);
        pl_step *a = &t->step[s->arg[s->flow_arg]];
        if (!single[s->arg[s->flow_arg]] || a->n_link == PL_TILE_LINKS) continue;
        s->flow = s->arg[s->flow_arg];
        s->n_link = a->n_link + 1;
        a->absorbed = true;
    }
    for (int i = 0; i < t->n_step; i++) {
        pl_step *s = &t->step[i];
        s->chain = !s->absorbed && (s->n_link > 1 || (s->n_link && reads_stable(t, s)));
        if (!s->chain) continue;
        write_links(t, s, at);
        at += s->n_link;
    }
    t->n_link = at;
    find_brief(t);
}
