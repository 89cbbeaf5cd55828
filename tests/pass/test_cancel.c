/* test_cancel.c - elements that are moved and moved back: the ops are removed, and no bit
 * changes. */
#include "pass/pass.h"
#include "plimsoll.h"
#include "plimsoll_ops.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

/* ---- chains that vanish ----------------------------------------------------------------- */
/* Two layers with gradients, in the layout NHWC; pairs: each layer passes its result on in NCHW. */
static pl_graph *two_layers(pl_store *store, bool pairs)
{
    static const int nchw[] = {0, 3, 1, 2}, nhwc[] = {0, 2, 3, 1};
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 2, 3, 5, 4)), y = x, dx;
    for (int i = 0; i < 2; i++) {
        y = pl_mul(g, pl_leaky_relu(g, y, 0.25), pl_full_like(g, y, 1.5));
        if (pairs) y = pl_permute(g, pl_permute(g, y, nchw), nhwc);
    }
    pl_grad(g, pl_sum(g, pl_mul(g, y, pl_square(g, y)), 0xf, false), &x, 1, &dx);
    pl_output(g, "y", y);
    pl_output(g, "dx", dx);
    return g;
}

/* Returns the text of the graph after the passes, which consume g; the caller frees the text.
 * NULL: the passes failed. */
static char *text_after_passes(pl_graph *g)
{
    char *text = NULL;
    if (pl_passes_run(&g, NULL) != PL_OK || pl_graph_print(g, &text) != PL_OK) text = NULL;
    pl_graph_free(g);
    return text;
}

TEST(cancel_pairs_of_layouts_leave_the_graph_without_them)
{
    pl_store *store = pl_store_new();
    char *plain = text_after_passes(two_layers(store, false));
    char *pairs = text_after_passes(two_layers(store, true));

    CHECK(plain && pairs);
    CHECK_MSG(!strstr(pairs, "permute") && strcmp(plain, pairs) == 0, "%s", pairs);
    pl_text_free(plain);
    pl_text_free(pairs);
    pl_store_free(store);
}

/* Whether the graph still has the op after the passes on y, which reads x. */
static bool stays(pl_graph *g, pl_val y, const char *op)
{
    pl_output(g, "y", pl_exp(g, y));
    char *text = text_after_passes(g);
    bool found = !text || strstr(text, op);
    pl_text_free(text);
    return found;
}

TEST(cancel_keeps_permutations_that_do_not_cancel)
{
    static const int turn[] = {1, 2, 0}, swap[] = {0, 2, 1};
    pl_store *store = pl_store_new();
    for (int n = 1; n <= 4; n++) {
        pl_graph *g = pl_graph_new(store);
        pl_val y = pl_input(g, "x", PL_TYPE(PL_F32, 3, 4, 5));
        for (int i = 0; i < n; i++) y = pl_permute(g, y, turn);
        CHECK_MSG(stays(g, y, "permute") == (n != 3), "%d turns", n);
    }
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 3, 4, 4));

    CHECK(stays(g, pl_flip(g, pl_permute(g, pl_flip(g, x, 2), swap), 2), "flip"));
    pl_store_free(store);
}

/* ---- any chain gives the bits of its ops one by one ------------------------------------- */
enum { MOST_ELEMS = 4096, MOST_OPS = 7 };
typedef struct move {
    int kind; /* 0 permute, 1 flip, 2 reshape, 3 slice, 4 broadcast */
    int perm[4];
    int64_t dim[4], start, step;
    int rank, axis;
    uint32_t axes;
} move;

static pl_val apply(pl_graph *g, pl_val x, const move *m)
{
    pl_type t = pl_val_type(g, x);
    if (m->kind == 0) return pl_permute(g, x, m->perm);
    if (m->kind == 1) return pl_flip(g, x, m->axes);
    if (m->kind == 2) return pl_reshape(g, x, m->rank, m->dim);
    if (m->kind == 3) return pl_slice(g, x, m->axis, m->start, t.dim[m->axis], m->step);
    return pl_broadcast(g, x, m->rank, m->dim);
}

static int64_t pick(uint64_t *state, int64_t n)
{
    return (int64_t)((pl_test_noise(state) + 1) / 2 * (double)n);
}

/* A move of a tensor of rank 3 or 4. */
static move draw(uint64_t *state, const pl_type *t)
{
    move m = {.kind = (int)pick(state, 5), .rank = t->rank};
    m.axis = (int)pick(state, t->rank);
    m.axes = (uint32_t)pick(state, 1 << t->rank);
    m.step = 1 + pick(state, 2);
    m.start = pick(state, t->dim[m.axis]);
    int turn = (int)pick(state, t->rank);
    for (int i = 0; i < t->rank; i++) {
        m.perm[i] = (i + turn) % t->rank;
        m.dim[i] = t->dim[i];
    }
    if (m.kind == 4 && t->rank == 3) {
        for (int i = 3; i > 0; i--) m.dim[i] = t->dim[i - 1];
        m.dim[0] = 2;
        m.rank = 4;
    } else if (m.kind == 2 && t->rank == 4) {
        m.dim[1] *= m.dim[2];
        m.dim[2] = m.dim[3];
        m.rank = 3;
    } else if (m.kind == 2) {
        m.dim[3] = t->dim[2] % 2 ? 1 : 2;
        m.dim[2] = t->dim[2] / m.dim[3];
        m.rank = 4;
    }
    return m;
}

/* Appends moves that undo the first n moves, where this is possible: types are the types before
 * each move. */
static int undo(move *m, int n, const pl_type *type)
{
    int total = n;
    for (int i = n - 1; i >= 0; i--) {
        move *b = &m[total++];
        *b = m[i];
        b->rank = type[i].rank;
        memcpy(b->dim, type[i].dim, sizeof b->dim);
        for (int k = 0; k < type[i].rank && m[i].kind == 0; k++) b->perm[m[i].perm[k]] = k;
        if (m[i].kind > 2) return n;
    }
    return total;
}

/* Runs n moves of the elements in `data` as one program; false: the program fails. Updates
 * *type. */
static bool run_moves(const move *m, int n, pl_type *type, float *data)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_program *p = NULL;
    pl_session *s = NULL;
    pl_val y = pl_input(g, "x", *type);
    for (int i = 0; i < n; i++) y = apply(g, y, &m[i]);
    pl_output(g, "y", y);
    bool ok = pl_compile(g, &o, &p) == PL_OK && pl_session_new(store, 1, &p, &s) == PL_OK;
    if (ok) {
        pl_type t;
        float *x = pl_session_input(s, p, "x", &t);
        memcpy(x, data, (size_t)pl_type_elems(&t) * sizeof *data);
        ok = pl_session_run(s, p) == PL_OK;
        const float *out = ok ? pl_session_output(s, p, "y", type) : NULL;
        ok = ok && out && pl_type_elems(type) <= MOST_ELEMS;
        if (ok) memcpy(data, out, (size_t)pl_type_elems(type) * sizeof *data);
    }
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(store);
    return ok;
}

TEST(cancel_chains_give_the_bits_of_their_ops_one_by_one)
{
    uint64_t state = 11;
    int chains = pl_test_long() ? 2000 : 60;
    for (int k = 0; k < chains; k++) {
        static float one[MOST_ELEMS], all[MOST_ELEMS];
        move m[2 * MOST_OPS];
        pl_type type[MOST_OPS + 1], end = PL_TYPE(PL_F32, 2 + k % 2, 4, 3 + k % 4);
        int n = 0, want = 1 + (int)pick(&state, 3);
        for (int i = 0; i < MOST_ELEMS; i++) one[i] = all[i] = (float)i;
        type[0] = end;
        while (n < want) {
            m[n] = draw(&state, &type[n]);
            type[n + 1] = type[n];
            CHECK_MSG(run_moves(&m[n], 1, &type[n + 1], one), "chain %d: %s", k, pl_error_text());
            n++;
        }
        int total = undo(m, n, type);
        pl_type at = type[n];
        for (int i = n; i < total; i++) CHECK(run_moves(&m[i], 1, &at, one));
        CHECK_MSG(run_moves(m, total, &end, all), "chain %d: %s", k, pl_error_text());
        CHECK_INT(pl_type_equal(&end, &at), true);
        CHECK_MSG(!memcmp(one, all, (size_t)pl_type_elems(&at) * sizeof *one),
                  "chain %d of %d ops: elements differ", k, total);
    }
}
