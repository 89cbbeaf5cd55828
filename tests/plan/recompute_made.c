/* recompute_made.c - see recompute_made.h. */
#include "tests/plan/recompute_made.h"

#include <stdlib.h>
#include <string.h>

made *made_new(void)
{
    made *m = calloc(1, sizeof *m);
    if (!m) abort();
    memset(m->base, 0xff, sizeof m->base);
    m->p = (pl_recompute_problem){.cost = m->cost,
                                  .work_bytes = m->work,
                                  .unit_flags = m->unit_flags,
                                  .in_at = m->in_at,
                                  .in = m->in,
                                  .out_at = m->out_at,
                                  .out = m->out,
                                  .bytes = m->bytes,
                                  .buffer_flags = m->buffer_flags,
                                  .base = m->base};
    return m;
}

uint32_t add_buffer(made *m, uint64_t bytes)
{
    m->bytes[m->p.n_buffers] = bytes;
    return m->p.n_buffers++;
}

void add_unit(made *m, double cost)
{
    uint32_t unit = m->p.n_units++;
    m->cost[unit] = cost;
    m->in_at[unit + 1] = m->in_at[unit];
    m->out_at[unit + 1] = m->out_at[unit];
}

void reads(made *m, uint32_t buf)
{
    m->in[m->in_at[m->p.n_units]++] = buf;
}

void writes(made *m, uint32_t buf)
{
    m->out[m->out_at[m->p.n_units]++] = buf;
}

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

made *make_chain(uint32_t l)
{
    made *m = made_new();
    uint32_t x0 = add_buffer(m, 1);
    for (uint32_t i = 1; i < l; i++) {
        add_unit(m, 1);
        reads(m, x0 + i - 1);
        writes(m, add_buffer(m, 1));
    }
    for (uint32_t j = 0; j < l; j++) {
        add_unit(m, 0);
        reads(m, x0 + l - 1 - j);
        if (j) reads(m, m->p.n_buffers - 1);
        writes(m, add_buffer(m, 1));
    }
    m->buffer_flags[m->p.n_buffers - 1] = PL_RECOMPUTE_END;
    return m;
}

made *make_training(uint64_t seed, uint32_t nf)
{
    made *m = made_new();
    uint64_t s = seed * 7919 + 17;
    static uint32_t a[MAX_UNITS / 2], b[MAX_UNITS / 2];
    for (uint32_t i = 0; i < nf; i++) {
        a[i] = i ? i - 1 : PL_RECOMPUTE_NONE;
        b[i] = i > 1 && draw(&s, 3) == 0 ? draw(&s, i - 1) : PL_RECOMPUTE_NONE;
        add_unit(m, 1 + draw(&s, 20));
        if (a[i] != PL_RECOMPUTE_NONE) reads(m, a[i]);
        if (b[i] != PL_RECOMPUTE_NONE) reads(m, b[i]);
        writes(m, add_buffer(m, 1 + draw(&s, 10)));
    }
    for (uint32_t j = 0; j < nf; j++) {
        uint32_t i = nf - 1 - j;
        add_unit(m, 1 + draw(&s, 30));
        if (!j || draw(&s, 4)) reads(m, i);
        for (uint32_t q = i + 1; q < nf; q++)
            if (a[q] == i || b[q] == i) reads(m, nf + nf - 1 - q);
        if (i && draw(&s, 2)) reads(m, i - 1);
        bool end = !i || draw(&s, 4) == 0;
        uint32_t g = add_buffer(m, end && i ? 1 : m->bytes[i]);
        if (end) m->buffer_flags[g] = PL_RECOMPUTE_END;
        writes(m, g);
    }
    m->p.base = NULL;
    return m;
}

made *make_any(uint64_t seed, uint32_t n_units)
{
    made *m = made_new();
    uint64_t s = seed * 104729 + 5;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t b = add_buffer(m, 1 + draw(&s, 20));
        if (i) m->buffer_flags[b] = PL_RECOMPUTE_PINNED;
    }
    for (uint32_t unit = 0; unit < n_units; unit++) {
        uint32_t have = m->p.n_buffers, n_in = 1 + draw(&s, 3), first = have;
        add_unit(m, draw(&s, 50));
        for (uint32_t i = 0; i < n_in; i++) {
            /* Mostly recent units, mirrored in the second half as in a backward pass. */
            uint32_t at = unit > n_units / 2 && i ? have * (n_units - unit) / n_units + draw(&s, 3)
                                                  : have - 1 - draw(&s, have < 4 ? have : 4);
            if (at >= have) at = have - 1;
            if (!i) first = at;
            reads(m, at);
        }
        if (draw(&s, 6) == 0) {
            uint32_t v = add_buffer(m, 0);
            m->base[v] = first;
            writes(m, v);
            continue;
        }
        for (uint32_t n_out = 1 + (draw(&s, 4) == 0); n_out > 0; n_out--) {
            uint32_t b = add_buffer(m, draw(&s, 8) ? 1 + draw(&s, 40) : draw(&s, 2));
            m->buffer_flags[b] = draw(&s, 16) == 0   ? PL_RECOMPUTE_PINNED
                                 : draw(&s, 12) == 0 ? PL_RECOMPUTE_END
                                                     : 0;
            writes(m, b);
        }
        m->work[unit] = draw(&s, 3) ? 0 : draw(&s, 30);
        m->unit_flags[unit] = draw(&s, 15) == 0 ? PL_RECOMPUTE_ONCE : 0;
    }
    m->buffer_flags[m->p.n_buffers - 1] |= PL_RECOMPUTE_END;
    return m;
}
