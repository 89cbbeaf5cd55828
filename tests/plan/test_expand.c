/* test_expand.c - graphs in which units run more than once: which run each reader reads. */
#include "plan/core/expand.h"

#include "plimsoll_ops.h"
#include "tests/lib/test.h"

#include <string.h>

typedef struct bench {
    pl_store *store;
    pl_graph *g;
    pl_units *u;
    pl_expansion *x;
} bench;

static bench begin(void)
{
    bench b = {.store = pl_store_new()};
    b.g = pl_graph_new(b.store);
    return b;
}

static void end(bench *b)
{
    pl_expansion_free(b->x);
    pl_units_free(b->u);
    pl_graph_free(b->g);
    pl_store_free(b->store);
}

/* The unit that makes a value. */
static uint32_t unit_of(const bench *b, pl_val v)
{
    return b->u->unit_of[v.id] - 1;
}

/* Runs the producers of these values, in this order. */
static pl_status expand(bench *b, const pl_val *v, uint32_t n)
{
    uint32_t list[16];
    PL_TRY(pl_graph_status(b->g));
    PL_TRY(pl_units_single(b->g, &b->u));
    for (uint32_t i = 0; i < n; i++) list[i] = unit_of(b, v[i]);
    return pl_expand(b->g, b->u, list, n, &b->x);
}

/* Output and input of the i-th entry of the list. */
static const pl_unit *run(const bench *b, uint32_t i)
{
    return &b->x->units->unit[b->x->order[i]];
}

/* The value that a view views; the value itself if it is not a view. */
static uint32_t base_of(const bench *b, uint32_t val)
{
    uint32_t u;
    while ((u = b->x->units->unit_of[val]) && b->x->units->unit[u - 1].kind == PL_UNIT_VIEW)
        val = b->x->units->unit[u - 1].in[0];
    return val;
}

static uint32_t assigned(const bench *b)
{
    for (uint32_t n = 1; n < b->x->g->n_nodes; n++)
        if ((b->x->g->nodes[n].op->flags & PL_OP_EFFECT) && pl_node_slot(b->x->g, n) >= 0)
            return pl_node_in(b->x->g, n)[0];
    return 0;
}

/* A slot gets the value of the first run, directly or through a view, and units after the second
 * run still read the first. A value that is not assigned is read from the latest run. */
TEST(expand_assigns_the_value_of_the_first_run)
{
    for (int view = 0; view < 2; view++) {
        bench b = begin();
        int slot = pl_store_add(b.store, &(pl_slot){.name = "s", .type = PL_TYPE(PL_F32, 4, 6)});
        pl_val old = pl_state(b.g, slot);
        pl_val t = view ? pl_tanh(b.g, pl_reshape(b.g, old, PL_DIMS(24))) : pl_tanh(b.g, old);
        pl_val free = pl_exp(b.g, old);
        pl_val y = pl_neg(b.g, t), z = pl_neg(b.g, free);
        pl_assign(b.g, slot, view ? pl_reshape(b.g, t, PL_DIMS(4, 6)) : t);
        pl_output(b.g, "y", y);
        pl_output(b.g, "z", z);
        CHECK_OK(expand(&b, (pl_val[]){t, free, t, free, y, z}, 6));
        CHECK_OK(pl_graph_verify(b.x->g));
        CHECK(!b.x->recomputed[b.x->order[0]] && b.x->recomputed[b.x->order[2]]);
        CHECK(base_of(&b, assigned(&b)) == run(&b, 0)->out[0]);
        CHECK(run(&b, 4)->in[0] == run(&b, 0)->out[0]);
        CHECK(run(&b, 5)->in[0] == run(&b, 3)->out[0]);
        end(&b);
    }
}

/* A view reads the last run before its reader, also through views of views; readers in between
 * share one view. */
TEST(expand_views_read_the_last_run_of_their_base)
{
    bench b = begin();
    pl_val x = pl_input(b.g, "x", PL_TYPE(PL_F32, 4, 6)), t = pl_tanh(b.g, x);
    pl_val flat = pl_reshape(b.g, t, PL_DIMS(24)), box = pl_reshape(b.g, flat, PL_DIMS(2, 12));
    pl_val y[4] = {pl_neg(b.g, box), pl_exp(b.g, box), pl_abs(b.g, box), pl_square(b.g, flat)};

    for (int i = 0; i < 4; i++) pl_output(b.g, (const char *[]){"a", "b", "c", "d"}[i], y[i]);
    CHECK_OK(expand(&b, (pl_val[]){t, y[0], y[1], t, y[2], y[3]}, 6));
    CHECK_OK(pl_graph_verify(b.x->g));
    CHECK(run(&b, 1)->in[0] == run(&b, 2)->in[0]);
    CHECK(run(&b, 1)->in[0] != run(&b, 4)->in[0]);
    CHECK(base_of(&b, run(&b, 1)->in[0]) == run(&b, 0)->out[0]);
    CHECK(base_of(&b, run(&b, 4)->in[0]) == run(&b, 3)->out[0]);
    CHECK(base_of(&b, run(&b, 5)->in[0]) == run(&b, 3)->out[0]);

    int views = 0;
    for (uint32_t i = 0; i < b.x->units->n; i++) views += b.x->units->unit[i].kind == PL_UNIT_VIEW;
    CHECK_INT(views, 4);

    end(&b);
}
