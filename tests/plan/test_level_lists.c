/* test_level_lists.c - lists of units that plans with moves start from: where updates run, and what
 * runs again instead of being moved. */
#include "plan/levels/level_plan.h"
#include "plimsoll_ops.h"
#include "tests/lib/test.h"

typedef struct bench {
    pl_store *store;
    pl_graph *g;
    pl_units *u;
    int slot;
    pl_val old, x;
} bench;

static bench begin(void)
{
    bench b = {.store = pl_store_new()};
    b.g = pl_graph_new(b.store);
    b.slot = pl_store_add(b.store, &(pl_slot){.name = "w", .type = PL_TYPE(PL_F32, 64, 64)});
    b.old = pl_state(b.g, b.slot);
    b.x = pl_input(b.g, "x", PL_TYPE(PL_F32, 64, 64));
    return b;
}

static void end(bench *b)
{
    pl_units_free(b->u);
    pl_graph_free(b->g);
    pl_store_free(b->store);
}

static uint32_t unit_of(const bench *b, pl_val v)
{
    return b->u->unit_of[v.id] - 1;
}

/* The update and its reader pass the reader of the old value, and nothing else moves. */
TEST(level_updates_run_after_the_last_reader_of_the_old_value)
{
    bench b = begin();
    pl_val a = pl_mul(b.g, b.old, b.x), update = pl_add(b.g, b.old, a);
    pl_val average = pl_neg(b.g, update), other = pl_exp(b.g, a), late = pl_sub(b.g, a, b.old);
    pl_assign(b.g, b.slot, update);
    pl_output(b.g, "average", average);
    pl_output(b.g, "other", other);
    pl_output(b.g, "late", late);
    CHECK_OK(pl_graph_status(b.g));
    CHECK_OK(pl_units_single(b.g, &b.u));
    uint32_t list[] = {unit_of(&b, a), unit_of(&b, update), unit_of(&b, average),
                       unit_of(&b, other), unit_of(&b, late)};
    const uint32_t want[] = {list[0], list[3], list[4], list[1], list[2]};
    CHECK_OK(pl_level_delay_updates(b.g, b.u, list, 5));
    for (int i = 0; i < 5; i++) CHECK_INT(list[i], want[i]);
    end(&b);
}

/* The last reader of the old value reads the new one, too: the update does not wait for it. */
TEST(level_updates_run_before_their_own_readers)
{
    bench b = begin();
    pl_val a = pl_mul(b.g, b.old, b.x), update = pl_add(b.g, b.old, a);
    pl_val step = pl_sub(b.g, update, b.old);
    pl_assign(b.g, b.slot, update);
    pl_output(b.g, "step", step);
    CHECK_OK(pl_graph_status(b.g));
    CHECK_OK(pl_units_single(b.g, &b.u));
    uint32_t list[] = {unit_of(&b, a), unit_of(&b, update), unit_of(&b, step)};
    const uint32_t want[] = {list[0], list[1], list[2]};
    CHECK_OK(pl_level_delay_updates(b.g, b.u, list, 3));
    for (int i = 0; i < 3; i++) CHECK_INT(list[i], want[i]);
    end(&b);
}

/* A cheap result of a slot on the device is computed again after a long time, and moved after a
 * long time if its slot is below the device, or if computing takes longer than moving. */
TEST(level_cheap_results_of_slots_are_computed_again)
{
    for (int variant = 0; variant < 3; variant++) {
        bench b = begin();
        pl_val cheap = pl_exp(b.g, b.old), y = pl_mul(b.g, cheap, b.x), z = pl_neg(b.g, y);
        pl_val last = pl_mul(b.g, cheap, z);
        pl_output(b.g, "last", last);
        CHECK_OK(pl_graph_status(b.g));
        CHECK_OK(pl_units_single(b.g, &b.u));
        uint32_t order[] = {unit_of(&b, cheap), unit_of(&b, y), unit_of(&b, z), unit_of(&b, last)};
        double cost[8] = {0};
        cost[order[0]] = variant == 2 ? 1e6 : 100;
        cost[order[1]] = cost[order[2]] = cost[order[3]] = 1e7;
        uint8_t level[1] = {variant == 1 ? PL_LEVEL_HOST : PL_LEVEL_DEVICE};
        pl_homes homes = {.n = 1, .level = level};
        pl_level_opts levels = {.homes = &homes, .channel_ns = {1, 1, 1, 1}, .move_ns = 1000};
        levels.capacity[PL_LEVEL_HOST] = 1 << 20;
        pl_plan_opts opts = {.fixed_order = order};
        pl_level_problem p = {
            .g = b.g, .units = b.u, .opts = &opts, .n = 4, .cost_ns = cost, .levels = &levels};
        pl_arena mem = PL_ARENA_INIT;
        uint32_t *list, n;
        CHECK_OK(pl_level_repeat_cheap(&p, &mem, &list, &n));
        CHECK_INT(n, variant ? 4 : 5);
        CHECK(list[0] == order[0] && list[1] == order[1] && list[n - 1] == order[3]);
        if (!variant) CHECK(list[3] == order[0]);
        pl_arena_release(&mem);
        end(&b);
    }
}
