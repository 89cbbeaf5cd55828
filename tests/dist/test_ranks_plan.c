/* test_ranks_plan.c - plans for ranks: sharding under a budget, predicted times of exchanges,
 * and a rank with a different plan, which is named. */
#include "base/threads.h"
#include "plan/cost/cost_link.h"
#include "plimsoll_ranks.h"
#include "rt/rt_int.h"
#include "tests/dist/ranks_cli.h"
#include "tests/dist/ranks_lab.h"
#include "tests/lib/alloc_count.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- links ------------------------------------------------------------------------------ */
static pl_cost exchange(double tensors, double bytes, double ranks)
{
    return (pl_cost){.work = PL_WORK_LINK,
                     .m = tensors * bytes * (ranks - 1) / ranks,
                     .n = tensors * (ranks - 1),
                     .k = ranks};
}

/* A ring: bytes over the bandwidth of the slowest level that it crosses, plus a latency per
 * neighbour. */
TEST(ranks_plan_times_exchanges_by_their_links)
{
    pl_rank_link nvlink, ib, both;

    CHECK_OK(pl_link_parse("nvlink", &nvlink));
    CHECK_OK(pl_link_parse("ib", &ib));
    CHECK_OK(pl_link_parse("nvlink/8+ib", &both));
    pl_cost sum = exchange(2, 1e9, 8), wide = exchange(2, 1e9, 16);
    double ring = 1e9 * sum.m / nvlink.inner.bandwidth + 14 * nvlink.inner.latency_ns;
    CHECK_MSG(fabs(pl_link_ns(&nvlink, &sum) - ring) < 1, "%g, wanted %g",
              pl_link_ns(&nvlink, &sum), ring);
    /* one machine: the outer level is not crossed */
    CHECK(pl_link_ns(&both, &sum) == pl_link_ns(&nvlink, &sum));

    ring = 1e9 * wide.m / ib.inner.bandwidth +
           2 * (7 * nvlink.inner.latency_ns + 1 * ib.inner.latency_ns);
    CHECK_MSG(fabs(pl_link_ns(&both, &wide) - ring) < 1, "%g, wanted %g", pl_link_ns(&both, &wide),
              ring);

    /* Few bytes among many ranks: the tree's logarithmic number of latencies. */
    pl_cost small = exchange(1, 64, 1024);
    double tree = 3 * nvlink.inner.latency_ns + 7 * ib.inner.latency_ns;
    CHECK(pl_link_ns(&both, &small) >= tree && pl_link_ns(&both, &small) < 1.01 * tree);
    CHECK_INT(pl_link_parse("nvlink/8", &both), PL_ERR_CONFIG);
    CHECK_INT(pl_link_parse("string", &both), PL_ERR_CONFIG);
    CHECK(strstr(pl_error_text(), "nvlink/8+ib"));
}

/* `plan --ranks` prints the sum of its exchanges, by theory of an all_reduce of all gradients. */
TEST(ranks_plan_says_what_a_step_sends)
{
    if (!cli_bin()) SKIP("PL_BIN is not set");
    double bytes[3], ms[3];
    static const char *const links[] = {"nvlink", "ib", "eth"};

    for (int i = 0; i < 3; i++) {
        cli_result r = cli_run(
            "$P plan wandistill/tiny batch=64 --ranks 16 --device h100 --link %s shard=none --json",
            links[i]);
        CHECK_MSG(r.code == 0, "%s", r.err);
        double gradients = 4 * ranks_number(r.out, "trainable");
        bytes[i] = ranks_number(r.out, "link_bytes");
        ms[i] = ranks_number(r.out, "link_ms");
        CHECK_MSG(fabs(bytes[i] - 2 * 15 / 16.0 * gradients) < 1, "%g of %g", bytes[i], gradients);
        CHECK(ranks_number(r.out, "link_wait_ms") <= ms[i] * (1 + 1e-9));
    }
    CHECK_MSG(ms[0] < ms[1] && ms[1] < ms[2], "%g, %g, %g ms", ms[0], ms[1], ms[2]);
}

/* ---- order ------------------------------------------------------------------------------ */
static const char *op_at(const pl_program *p, uint32_t i)
{
    const pl_unit *u = &p->units->unit[p->plan->order[i]];
    return u->kind == PL_UNIT_KERNEL ? pl_node_get(p->g, u->nodes[0])->op->name : "";
}

/* Gradients are reduced in buckets during the backward pass: most exchanges are before its last
 * products. */
TEST(ranks_plan_begins_exchanges_within_backward)
{
    static const char *const keys[] = {"ranks=2", "batch=4", "student.depth=8",
                                       "gradient_bucket=64KiB"};

    pl_run *run = NULL;
    uint32_t exchanges = 0, before = 0, last = 0;
    CHECK_OK(pl_run_open("wandistill/tiny", keys, 4, &run));
    CHECK_OK(pl_run_build(run));
    const pl_program *p = pl_run_train_program(run);
    for (uint32_t i = 0; i < p->plan->n_order; i++)
        if (strcmp(op_at(p, i), "matmul") == 0) last = i;
    for (uint32_t i = 0; i < p->plan->n_order; i++) {
        bool exchange = strcmp(op_at(p, i), "all_reduce") == 0;
        exchanges += exchange;
        before += exchange && i < last;
    }

    CHECK_MSG(exchanges >= 6 && 2 * before > exchanges,
              "%u of %u exchanges begin before the last product", before, exchanges);
    pl_run_free(run);
}

/* ---- shard: auto ------------------------------------------------------------------------ */
typedef struct planned {
    pl_shard shard;
    bool fits;
    uint64_t minimum;
} planned;

static planned plan_with(const char *shard, uint64_t budget)
{
    char memory[48];
    planned p = {.minimum = 0};
    snprintf(memory, sizeof memory, "memory=%llu", (unsigned long long)budget);
    const char *keys[] = {"ranks=4",
                          "batch=8",
                          "accumulate=2",
                          "data.workers=0",
                          "student.hidden=768",
                          "teacher.dim=384",
                          "teacher.ffn=1536",
                          shard,
                          memory};
    pl_run *run = NULL;
    pl_status rc = pl_run_open("wandistill/tiny", keys, budget ? 9 : 8, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_find_minimum(run);
    if (rc == PL_OK)
        p = (planned){pl_run_links_get(run).shard, pl_run_memory_get(run).fits,
                      pl_run_memory_get(run).minimum};
    else
        pl_test_fail(__FILE__, __LINE__, "%s: %s", shard, pl_error_text());
    pl_run_free(run);
    return p;
}

/* A budget between the minimums of two kinds of sharding chooses the first that fits. */
TEST(ranks_plan_shares_what_the_budget_needs)
{
    static const char *const shards[] = {"shard=none", "shard=optimizer", "shard=gradients",
                                         "shard=weights"};
    planned own[4];
    if (!pl_test_allocs_counted()) SKIP("a sanitizer allocates memory too");

    plan_with(shards[0], 0); /* memory that the first plan leaves in the process stays */
    for (int i = 0; i < 4; i++) {
        own[i] = plan_with(shards[i], 0);
        CHECK_INT(own[i].shard, i);
        if (i)
            CHECK_MSG(own[i].minimum < own[i - 1].minimum, "%s needs %llu bytes, %s %llu",
                      shards[i], (unsigned long long)own[i].minimum, shards[i - 1],
                      (unsigned long long)own[i - 1].minimum);
    }
    for (int i = 1; i < 4; i++) {
        planned p = plan_with("shard=auto", (own[i].minimum + own[i - 1].minimum) / 2);
        CHECK_MSG((int)p.shard == i && p.fits, "between %s and %s: %s, %s", shards[i - 1],
                  shards[i], pl_shard_name(p.shard), p.fits ? "fits" : "does not fit");
    }

    CHECK_INT(plan_with("shard=auto", 2 * own[0].minimum).shard, PL_SHARD_NONE);
    CHECK(!plan_with("shard=auto", own[3].minimum / 2).fits);
}

/* ---- a plan that is other --------------------------------------------------------------- */
static pl_status start_other(lab_rank *r)
{
    static const char *const keys[] = {"ranks=2", "batch=4", "data.workers=0"};
    pl_run *run = NULL;
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_status rc = pl_run_open("wandistill/tiny", keys, 3, &run);
    o.no_fuse = r->ctx && r->world.comm.rank == 1;
    if (rc == PL_OK) pl_run_set_compile(run, &o);
    if (rc == PL_OK) rc = pl_run_join(run, &r->world);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) rc = pl_run_start(run);
    pl_run_free(run);
    return rc;
}

TEST(ranks_plan_that_differs_names_the_rank)
{
    lab_rank world[LAB_RANKS];
    int failed;
    pl_threads_set(1);

    CHECK(lab_world(2, start_other, NULL, world, &failed));
    CHECK(!lab_world(2, start_other, &failed, world, &failed));

    pl_threads_set(0);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(world[i].status, PL_ERR_CONFIG);
        CHECK_MSG(strstr(world[i].error, "rank 1 has a different plan from rank 0"), "%s",
                  world[i].error);
    }
}
