/* graphs.c - see graphs.h. */
#include "tests/lib/graphs.h"

#include "base/dtype.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

uint64_t used_ns(void)
{
    struct rusage r[2];
    uint64_t us = 0;
    getrusage(RUSAGE_SELF, &r[0]);
    getrusage(RUSAGE_CHILDREN, &r[1]);
    for (int i = 0; i < 2; i++)
        us += (uint64_t)(r[i].ru_utime.tv_sec + r[i].ru_stime.tv_sec) * 1000000u +
              (uint64_t)(r[i].ru_utime.tv_usec + r[i].ru_stime.tv_usec);
    return us * 1000;
}

enum { ROWS = 6, COLS = 8 };

typedef struct maker {
    pl_graph *g;
    pl_val v[512];
    int n;
    uint64_t rng;
} maker;

static uint32_t draw(maker *m, uint32_t n)
{
    m->rng = m->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m->rng >> 33) % n;
}

static pl_val pick(maker *m)
{
    /* recent values more often, so that graphs are deep as well as wide */
    int n = m->n, back = (int)draw(m, draw(m, 2) ? 6u : (uint32_t)n);
    return m->v[back < n ? n - 1 - back : 0];
}

static pl_val pick_type(maker *m, const pl_type *t)
{
    for (int tries = 0; tries < 40; tries++) {
        pl_val v = pick(m);
        pl_type u = pl_val_type(m->g, v);
        if (pl_type_equal(t, &u)) return v;
    }
    return PL_NO_VAL;
}

static void keep(maker *m, pl_val v)
{
    if (pl_val_ok(v) && m->n < 512) m->v[m->n++] = v;
}

static pl_val half(pl_graph *g, pl_val v)
{
    return pl_scale(g, v, 0.5);
}

static pl_val one_op(maker *m)
{
    pl_graph *g = m->g;
    pl_val a = pick(m);
    pl_type t = pl_val_type(g, a);
    pl_val b = pick_type(m, &t);
    if (!pl_val_ok(b)) b = a;
    switch (draw(m, 16)) {
    case 0: return pl_tanh(g, a);
    case 1: return pl_relu(g, a);
    case 2: return pl_neg(g, a);
    case 3: return half(g, pl_add(g, a, b));
    case 4: return pl_mul(g, a, b);
    case 5: return pl_max(g, a, b);
    case 6: return pl_mean(g, a, PL_AXIS(-1), true);
    case 7: return t.rank == 2 ? pl_mean(g, a, PL_AXIS(0), false) : pl_square(g, a);
    case 8: return pl_reshape(g, a, 1, (const int64_t[]){-1});
    case 9:
        return pl_type_elems(&t) == ROWS * COLS ? pl_reshape(g, a, PL_DIMS(ROWS, COLS))
                                                : pl_abs(g, a);
    case 10:
        return t.rank > 0 && t.dim[0] >= 4 ? pl_slice(g, a, 0, 2, t.dim[0], 1) : pl_sigmoid(g, a);
    case 11:
        if (t.rank == 0 || t.dim[0] > 3 * ROWS) return pl_sin(g, a);
        return pl_concat(g, 2, (const pl_val[]){a, b}, 0);
    case 12:
        if (t.rank != 2) return pl_cos(g, a);
        return pl_tanh(g, pl_matmul(g, a, b, false, true));
    case 13: return t.rank == 2 ? pl_permute(g, a, (const int[]){1, 0}) : pl_neg(g, b);
    case 14: {
        pl_type row_type = PL_TYPE(PL_F32, COLS);
        pl_val row = pick_type(m, &row_type);
        bool fits = t.rank == 2 && t.dim[1] == COLS && pl_val_ok(row);
        return fits ? half(g, pl_sub(g, a, row)) : pl_square(g, a);
    }
    default: return pl_fill(g, t, 0.25);
    }
}

static pl_type slot_type(int i)
{
    return i % 3 == 0   ? PL_TYPE(PL_F32, ROWS, COLS)
           : i % 3 == 1 ? PL_TYPE(PL_F32, COLS)
                        : PL_TYPE(PL_F32, ROWS * COLS);
}

pl_graph *random_graph(pl_store *store, uint64_t seed, int n_ops)
{
    maker m = {.g = pl_graph_new(store), .rng = seed * 77 + 5};
    int slots[9];
    for (int i = 0; i < 9; i++) {
        char name[32];
        snprintf(name, sizeof name, "slot%d", i);
        slots[i] = pl_store_add(store, &(pl_slot){.name = name,
                                                  .type = slot_type(i),
                                                  .trainable = i < 5,
                                                  .init = {PL_INIT_UNIFORM, -1, 1}});
    }
    keep(&m, pl_input(m.g, "x", PL_TYPE(PL_F32, ROWS, COLS)));
    keep(&m, pl_input(m.g, "y", PL_TYPE(PL_F32, COLS)));
    for (int i = 0; i < 9; i++) keep(&m, pl_state(m.g, slots[i]));
    for (int i = 0; i < n_ops; i++) {
        if (draw(&m, 12) == 0) keep(&m, pl_state(m.g, slots[draw(&m, 9)]));
        keep(&m, one_op(&m));
    }
    for (int i = 0; i < 9; i++) {
        pl_type t = slot_type(i);
        pl_val v = draw(&m, 8) ? pick_type(&m, &t) : PL_NO_VAL;
        if (pl_val_ok(v)) pl_assign(m.g, slots[i], v);
    }
    int n_out = 1 + (int)draw(&m, 4);
    for (int i = 0; i < n_out; i++) {
        char name[32];
        snprintf(name, sizeof name, "out%d", i);
        pl_output(m.g, name, pick(&m));
    }
    return m.g;
}

static int add_slot(pl_store *s, const char *kind, int i, pl_type t, pl_init init, bool param)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, i);
    return pl_store_add(s, &(pl_slot){.name = name,
                                      .type = t,
                                      .init = init,
                                      .kind = param ? PL_SLOT_PARAM : PL_SLOT_OPTIMIZER,
                                      .trainable = param});
}

pl_graph *training_graph(pl_store *store, int layers, int64_t batch, int64_t width)
{
    pl_graph *g = pl_graph_new(store);
    pl_val *p = calloc((size_t)layers * 2, sizeof *p), *d = calloc((size_t)layers * 2, sizeof *d);
    int *slot = calloc((size_t)layers * 2, sizeof *slot);
    double scale = 1 / sqrt((double)width);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, batch, width));
    for (int i = 0; i < layers; i++) {
        slot[2 * i] = add_slot(store, "w", i, PL_TYPE(PL_F32, width, width),
                               (pl_init){PL_INIT_UNIFORM, -scale, scale}, true);
        slot[2 * i + 1] = add_slot(store, "b", i, PL_TYPE(PL_F32, width), (pl_init){0}, true);
        p[2 * i] = pl_state(g, slot[2 * i]);
        p[2 * i + 1] = pl_state(g, slot[2 * i + 1]);
        x = pl_tanh(g, pl_add(g, pl_matmul(g, x, p[2 * i], false, true), p[2 * i + 1]));
    }
    pl_val loss = pl_mean(g, pl_square(g, pl_shift(g, x, -0.5)), PL_AXES_ALL, false);
    pl_output(g, "loss", loss);
    pl_grad(g, loss, p, 2 * layers, d);
    for (int i = 0; i < 2 * layers; i++) {
        int m = add_slot(store, "m", i, pl_val_type(g, p[i]), (pl_init){0}, false);
        pl_val mom = pl_add(g, pl_scale(g, pl_state(g, m), 0.9), d[i]);
        pl_assign(g, m, mom);
        pl_assign(g, slot[i], pl_sub(g, p[i], pl_scale(g, mom, 0.3)));
    }
    free(p);
    free(d);
    free(slot);
    return g;
}

void fill_input(uint64_t seed, const char *name, const pl_type *t, void *to)
{
    uint64_t s = seed * 1000003 + 17;
    for (; *name; name++) s = s * 31 + (uint64_t)*name;
    for (int64_t i = 0; i < pl_type_elems(t); i++) pl_elem_set(t->dtype, to, i, pl_test_noise(&s));
}
