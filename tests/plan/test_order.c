/* test_order.c - the order search against all possible orders, on graphs small enough for that. */
#include "plan/core/plan_int.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>

enum { MAX = 16, LIMIT = 50000 };

/* Random units that each write one buffer and read up to two earlier buffers; sizes differ
 * widely, equal sizes may be reused in place. A buffer that nobody reads is a small result. */
static pl_status random_problem(pl_problem *q, pl_arena *mem, uint64_t seed, uint32_t n)
{
    uint64_t r = seed;
    uint32_t reads[2 * MAX][2], readers[2 * MAX][2], writes[MAX][2], n_reads = 0;
    q->n_units = q->n_buffers = n;
    q->buffer = pl_arena_new(mem, pl_buffer, n);
    q->work = pl_arena_new(mem, uint64_t, n);
    q->in_place = pl_arena_new(mem, pl_in_place, 2 * n);
    q->in_place_start = pl_arena_new(mem, uint32_t, n + 1);
    if (!q->buffer || !q->work || !q->in_place || !q->in_place_start) return PL_ERR_MEMORY;
    uint32_t n_takes = 0;
    for (uint32_t t = 0; t < n; t++) {
        r = r * 6364136223846793005u + 1442695040888963407u;
        uint64_t size = (r >> 60 & 3) == 0 ? 64 * 20 : 64 + 64 * (r >> 40 & 63);
        q->buffer[t] = (pl_buffer){.bytes = size, .producer = t, .old_slot = -1, .direct = -1};
        q->work[t] = (r >> 20 & 7) == 0 ? 64 * (r >> 24 & 31) : 0;
        writes[t][0] = writes[t][1] = t;
        uint32_t a = t ? (uint32_t)(r >> 33) % t : 0, b = t ? (uint32_t)(r >> 13) % t : 0;
        for (uint32_t k = 0; k < 2 && t > 2; k++) {
            uint32_t s = k ? b : a;
            if (k && (a == b || r >> 62 == 0)) break;
            reads[n_reads][0] = readers[n_reads][1] = t;
            reads[n_reads][1] = readers[n_reads][0] = s;
            n_reads++;
            if (q->buffer[s].bytes == size) q->in_place[n_takes++] = (pl_in_place){s, t};
        }
        q->in_place_start[t + 1] = n_takes;
    }
    PL_TRY(pl_plan_rows_make(mem, n, (const uint32_t(*)[2])reads, n_reads, &q->reads));
    PL_TRY(pl_plan_rows_make(mem, n, (const uint32_t(*)[2])readers, n_reads, &q->readers));
    PL_TRY(pl_plan_rows_make(mem, n, (const uint32_t(*)[2])writes, n, &q->writes));
    for (uint32_t s = 0; s < n; s++) {
        if (q->readers.start[s] != q->readers.start[s + 1]) continue;
        q->buffer[s].pinned = true;
        q->buffer[s].bytes = 64;
    }
    return pl_problem_edges(q, mem);
}

typedef struct all_orders {
    pl_problem *q;
    pl_life life;
    uint32_t order[MAX], waits[MAX];
    bool placed[MAX];
    uint64_t best;
    long tried;
} all_orders;

static void try_all(all_orders *a, uint32_t depth)
{
    pl_problem *q = a->q;
    if (a->tried > LIMIT) return;
    if (depth == q->n_units) {
        a->tried++;
        pl_life_replay(q, a->order, a->best, &a->life);
        if (a->life.peak < a->best) a->best = a->life.peak;
        return;
    }
    for (uint32_t t = 0; t < q->n_units; t++) {
        if (a->placed[t] || a->waits[t]) continue;
        a->placed[t] = true;
        a->order[depth] = t;
        for (uint32_t e = q->succs.start[t]; e < q->succs.start[t + 1]; e++)
            a->waits[q->succs.list[e]]--;
        try_all(a, depth + 1);
        for (uint32_t e = q->succs.start[t]; e < q->succs.start[t + 1]; e++)
            a->waits[q->succs.list[e]]++;
        a->placed[t] = false;
    }
}

/* Peak of the search divided by the best peak of all orders; 0 when there are too many orders. */
static double gap(uint64_t seed, double *program)
{
    pl_arena mem = PL_ARENA_INIT;
    pl_plan_opts o = {0};
    pl_problem q = {.opts = &o};
    all_orders a = {.q = &q, .best = UINT64_MAX};
    double result = 0;
    uint32_t order[MAX];
    const char *name;
    uint64_t first, own;
    if (random_problem(&q, &mem, seed, 8 + (uint32_t)seed % 4) != PL_OK ||
        pl_order_search(&q, order, &name, &first, &own) != PL_OK ||
        pl_life_new(&q, &mem, &a.life) != PL_OK)
        goto out;
    pl_life_replay(&q, order, UINT64_MAX, &a.life);
    double found = (double)a.life.peak;
    for (uint32_t t = 0; t < q.n_units; t++) a.waits[t] = q.preds.start[t + 1] - q.preds.start[t];
    try_all(&a, 0);
    if (a.tried <= LIMIT) {
        result = found / (double)a.best;
        *program = (double)first / (double)a.best;
    }
out:
    pl_arena_release(&mem);
    return result;
}

TEST(order_is_close_to_the_optimum)
{
    double sum = 0, worst = 0, base = 0;
    int n = 0, optimal = 0;

    for (uint64_t seed = 1; seed <= 400; seed++) {
        double program = 0, r = gap(seed * 7919, &program);
        if (r == 0) continue;
        CHECK_MSG(r >= 1, "better than the best: the replay is wrong");
        n++;
        optimal += r < 1.0001;
        sum += r;
        base += program;
        worst = fmax(worst, r);
    }
    printf("    %d graphs: program order %.3f, search %.4f of the best, worst %.3f, optimal %d\n",
           n, base / n, sum / n, worst, optimal);

    CHECK(n > 100);
    CHECK_MSG(sum / n < 1.01 && worst < 1.5, "mean %.4f, worst %.3f", sum / n, worst);
}

/* ---- updates next to each other --------------------------------------------------------- */
enum { WEIGHTS = 3 };

/* Units: 0 makes an activation of 6400 bytes; then for each weight i a gradient of 640 bytes,
 * which reads the activation, and its update in place of the slot; after the first update a unit
 * that reads the new weight. The first unit needs `early` bytes of scratch. */
static pl_status updates_problem(pl_problem *q, pl_arena *mem, uint64_t early, bool averaged)
{
    uint32_t reads[16][2], readers[16][2], writes[16][2], n_reads = 0, n_units = 0, n = 0;
    *q = (pl_problem){.n_units = 0};
    q->buffer = pl_arena_new(mem, pl_buffer, 16);
    q->work = pl_arena_new(mem, uint64_t, 16);
    q->in_place = pl_arena_new(mem, pl_in_place, 16);
    q->in_place_start = pl_arena_new(mem, uint32_t, 17);
    q->old_of_slot = pl_arena_new(mem, uint32_t, WEIGHTS);
    if (!q->buffer || !q->work || !q->in_place || !q->in_place_start || !q->old_of_slot)
        return PL_ERR_MEMORY;
    q->n_slots = WEIGHTS;
    for (uint32_t i = 0; i < WEIGHTS; i++) q->old_of_slot[i] = PL_NONE;
#define MAKES(size, slot)                                                                          \
 (q->buffer[n] =                                                                                   \
      (pl_buffer){.bytes = (size), .producer = n_units, .old_slot = -1, .direct = (slot)},         \
  writes[n][0] = n_units++, writes[n][1] = n, n++)
#define READS(b)                                                                                   \
 (reads[n_reads][0] = readers[n_reads][1] = n_units - 1,                                           \
  reads[n_reads][1] = readers[n_reads][0] = (b), n_reads++)
    q->work[0] = early;
    MAKES(6400, -1);
    for (uint32_t i = 0; i < WEIGHTS; i++) {
        MAKES(640, -1);
        READS(0);
        uint32_t gradient = n - 1;
        MAKES(640, (int32_t)i);
        READS(gradient);
        if (i > 0 || !averaged) continue;
        uint32_t weight = n - 1;
        MAKES(64, -1);
        READS(weight);
        q->buffer[n - 1].pinned = true;
    }
#undef MAKES
#undef READS
    q->n_units = n_units;
    q->n_buffers = n;
    PL_TRY(pl_plan_rows_make(mem, n_units, (const uint32_t(*)[2])reads, n_reads, &q->reads));
    PL_TRY(pl_plan_rows_make(mem, n, (const uint32_t(*)[2])readers, n_reads, &q->readers));
    PL_TRY(pl_plan_rows_make(mem, n_units, (const uint32_t(*)[2])writes, n, &q->writes));
    return pl_problem_edges(q, mem);
}

/* Writes the gathered order as letters, a unit of the program order each; peak before and after. */
static pl_status gathered(uint64_t early, bool averaged, char *text, uint64_t peak[2])
{
    pl_arena mem = PL_ARENA_INIT;
    pl_problem q;
    pl_life life;
    uint32_t order[16];
    pl_status rc = updates_problem(&q, &mem, early, averaged);
    if (rc == PL_OK) rc = pl_life_new(&q, &mem, &life);
    for (uint32_t i = 0; i < 16; i++) order[i] = i;
    if (rc == PL_OK) {
        pl_life_replay(&q, order, UINT64_MAX, &life);
        peak[0] = life.peak;
        rc = pl_order_gather(&q, order);
    }
    if (rc == PL_OK) {
        pl_life_replay(&q, order, UINT64_MAX, &life);
        peak[1] = life.peak;
        for (uint32_t i = 0; i < q.n_units; i++) text[i] = (char)('a' + order[i]);
        text[q.n_units] = 0;
    }
    pl_arena_release(&mem);
    return rc;
}

TEST(order_gathers_updates_as_far_as_memory_allows)
{
    char text[17];
    uint64_t peak[2];
    /* room for all gradients at once */
    CHECK_OK(gathered(2000, false, text, peak));
    CHECK_MSG(strcmp(text, "abdfceg") == 0 && peak[0] == peak[1], "%s, peak %llu", text,
              (unsigned long long)peak[1]);
    /* room for two of them */
    CHECK_OK(gathered(1280, false, text, peak));
    CHECK_MSG(strcmp(text, "abdcefg") == 0 && peak[0] == peak[1], "%s", text);
    /* room for one: nothing moves */
    CHECK_OK(gathered(0, false, text, peak));
    CHECK_MSG(strcmp(text, "abcdefg") == 0 && peak[0] == peak[1], "%s", text);
}

TEST(order_runs_updates_before_what_reads_their_result)
{
    char text[17];
    uint64_t peak[2];
    CHECK_OK(gathered(4000, true, text, peak)); /* d reads what update c writes */
    CHECK_MSG(strcmp(text, "abcdegfh") == 0 && peak[0] == peak[1], "%s", text);
}
