/* test_levels.c - memory below the device: plans with moves compute the same bits, however long
 * moves take, and the checker rejects moves that are wrong. */
#include "rt/levels/channels.h"
#include "rt/levels/levels.h"
#include "rt/levels/link_rates.h"
#include "rt/levels/process_levels.h"
#include "rt/rt_int.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SLOTS = 64, STEPS = 3 };

typedef struct bench {
    pl_store *store;
    pl_program *p;
    pl_session *s;
    pl_level_opts levels;
    pl_homes homes;
    uint8_t level[MOST_SLOTS];
    uint64_t offset[MOST_SLOTS];
} bench;

/* Where values go: from the CPU to disk, from a device with its own memory to the host, or through
 * `transit` bytes of the host to disk. */
typedef struct low {
    const char *device; /* NULL: that of PL_TEST_DEVICE, or "apart", which every machine has */
    uint8_t level;
    uint64_t transit;
} low;
static const low lows[] = {{"cpu", PL_LEVEL_DISK, 0},
                           {NULL, PL_LEVEL_HOST, 0},
                           {NULL, PL_LEVEL_DISK, 1 << 20},
                           {NULL, PL_LEVEL_DISK, 64 << 10}};

static pl_graph *make(bench *b, uint64_t seed)
{
    b->store = pl_store_new();
    return seed ? random_graph(b->store, seed, 60) : training_graph(b->store, 6, 64, 64);
}

/* Gives every slot that may move a home at that level. */
static void move_slots(bench *b, uint8_t level, uint64_t transit)
{
    b->homes =
        (pl_homes){.n = (uint32_t)pl_store_count(b->store), .level = b->level, .offset = b->offset};
    for (int i = 0; i < pl_store_count(b->store); i++) {
        if (!pl_program_slot_may_move(b->p, i)) continue;
        b->level[i] = level;
        b->offset[i] = b->homes.bytes[level];
        b->homes.bytes[level] +=
            pl_level_round_up(pl_type_bytes(&pl_store_slot(b->store, i)->type));
    }
    b->levels = (pl_level_opts){.homes = &b->homes, .channel_ns = {1, 1, 1, 1}, .move_ns = 1000};
    b->levels.capacity[level] = (uint64_t)1 << 30;
    /* some values stay on the host */
    if (transit) b->levels.capacity[PL_LEVEL_HOST] = transit + (64 << 10);
    b->levels.transit = transit;
}

/* Delays of channels: none, or the moves of some channels take long. */
static void delay(bench *b, uint64_t seed)
{
    struct pl_channels *c = b->s->levels ? pl_levels_channels(b->s->levels) : NULL;
    for (int k = 0; c && k < PL_N_CHANNELS; k++)
        pl_channels_delay(c, (pl_channel)k, seed >> k & 1 ? 300 : 0, seed);
}

static void run_steps(bench *b, uint64_t seed)
{
    CHECK_OK(pl_session_new(b->store, 1, &b->p, &b->s));
    delay(b, seed);
    for (int i = 0; i < pl_store_count(b->store); i++) {
        const pl_slot *slot = pl_store_slot(b->store, i);
        size_t bytes = pl_type_bytes(&slot->type);
        void *v = malloc(bytes + 1);
        fill_input(seed + 99, slot->name, &slot->type, v);
        CHECK_OK(pl_session_write_slot(b->s, i, 0, v, bytes));
        free(v);
    }
    for (uint64_t k = 0; k < STEPS; k++) {
        for (int i = 0; i < pl_program_input_count(b->p); i++) {
            const char *name = pl_program_input_name(b->p, i);
            pl_type t;
            void *to = pl_session_input(b->s, b->p, name, &t);
            if (to) fill_input(seed + k, name, &t, to);
        }
        CHECK_OK(pl_session_run(b->s, b->p));
    }
}

static void end(bench *b)
{
    pl_session_free(b->s);
    pl_program_free(b->p);
    pl_store_free(b->store);
}

/* Compares outputs and slots of two programs after the same runs. */
static void compare(bench *a, bench *b, uint64_t seed)
{
    for (int i = 0; i < pl_program_output_count(a->p); i++) {
        const char *name = pl_program_output_name(a->p, i);
        pl_type t;
        const void *x = pl_session_output(a->s, a->p, name, &t);
        const void *y = pl_session_output(b->s, b->p, name, NULL);
        CHECK_MSG(memcmp(x, y, pl_type_bytes(&t)) == 0, "seed %d: output %s differs", (int)seed,
                  name);
    }
    for (int i = 0; i < pl_store_count(a->store); i++) {
        size_t bytes = pl_type_bytes(&pl_store_slot(a->store, i)->type);
        char *x = malloc(2 * bytes + 1), *y = x + bytes;
        CHECK_OK(pl_session_read_slot(a->s, i, 0, x, bytes));
        CHECK_OK(pl_session_read_slot(b->s, i, 0, y, bytes));
        CHECK_MSG(memcmp(x, y, bytes) == 0, "seed %d: slot %s differs", (int)seed,
                  pl_store_slot(a->store, i)->name);
        free(x);
    }
}

/* All slots below the device, the arena as small as moves make it, moves that are slow or quick:
 * outputs and state have the same bits. */
static void check_bits(const low *to, uint64_t seed, int *moves)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    const char *given = getenv("PL_TEST_DEVICE");
    o.device = to->device ? to->device : given ? given : "apart";
    o.poison = seed % 4 == 0;
    bench a = {0}, b = {0};
    uint64_t least;
    CHECK_OK(pl_compile(make(&a, seed), &o, &a.p));
    CHECK_OK(pl_compile(make(&b, seed), &o, &b.p));
    move_slots(&b, to->level, to->transit);
    b.levels.only_moves = seed % 3 != 0;               /* else recompute, too */
    if (seed & 1) setenv("PLIMSOLL_IO_URING", "0", 1); /* threads instead of a ring */

    CHECK_OK(pl_program_set_levels(b.p, &b.levels, "/tmp"));
    CHECK_OK(pl_program_minimum(b.p, 0, &least));
    /* the smallest budget, or one between it and the keep-all arena */
    uint64_t all = a.p->plan->arena_bytes;
    if (all > least) least += (all - least) / 8 * (seed % 5);
    CHECK_OK(pl_program_set_budget(b.p, least));
    run_steps(&a, seed);
    run_steps(&b, seed);
    unsetenv("PLIMSOLL_IO_URING");

    CHECK(b.p->plan->arena_bytes <= least);
    CHECK(b.p->plan->level_bytes[to->level] >= b.homes.bytes[to->level]);
    for (int level = 1; level < PL_N_LEVELS; level++)
        CHECK(b.p->plan->level_bytes[level] <= b.levels.capacity[level]);
    *moves += (int)b.p->plan->n_moves;
    compare(&a, &b, seed);
    end(&a);
    end(&b);
}

TEST(levels_do_not_change_bits)
{
    for (size_t k = 0; k < sizeof lows / sizeof *lows; k++) {
        int moves = 0;
        uint64_t graphs = pl_test_long() ? 250 : lows[k].transit ? 12 : 32;
        for (uint64_t seed = 0; seed < graphs; seed++) check_bits(&lows[k], seed, &moves);
        CHECK_MSG(moves > 4 * (int)graphs, "%d moves in %d graphs", moves, (int)graphs);
    }
}

/* The arena of a training graph shrinks by moves alone, and more memory is not slower. */
TEST(levels_move_activations_within_a_budget)
{
    bench b = {0};
    uint64_t least, all;
    double ms = 0;
    CHECK_OK(pl_compile(make(&b, 0), NULL, &b.p));
    all = pl_program_plan(b.p)->arena_bytes;
    b.levels = (pl_level_opts){.capacity = {[PL_LEVEL_DISK] = (uint64_t)1 << 30},
                               .channel_ns = {1, 1, 1, 1},
                               .move_ns = 1000,
                               .only_moves = true};

    CHECK_OK(pl_program_set_levels(b.p, &b.levels, "/tmp"));
    CHECK_OK(pl_program_minimum(b.p, 0, &least));

    CHECK_MSG(least < all * 3 / 4, "%llu of %llu", (unsigned long long)least,
              (unsigned long long)all);
    for (int k = 0; k <= 8; k++) {
        uint64_t budget = least + (all - least) / 8 * (uint64_t)k;
        CHECK_OK(pl_program_set_budget(b.p, budget));
        CHECK(pl_program_plan(b.p)->arena_bytes <= budget);
        double now = pl_program_plan(b.p)->predicted_step_ms;
        CHECK_MSG(k == 0 || now <= ms * 1.02, "%g ms after %g ms", now, ms);
        ms = now;
    }
    end(&b);
}

/* ---- channels ----------------------------------------------------------------------------- */
static void plain_before(void *ctx, pl_part *part)
{
    const pl_bound_unit *m = part->move;
    char *at = (m->to ? (char *)m->to : (char *)(uintptr_t)m->from) + part->at;
    part->transfer = (pl_ring_transfer){
        .memory = at, .at = m->disk_at + part->at, .bytes = part->bytes, .writes = !m->to};
    ++*(int *)ctx;
}

static pl_status plain_after(void *ctx, pl_part *part)
{
    (void)ctx;
    PL_FAIL_IF(part->transfer.why, PL_ERR_IO, "part at %d: %s", (int)part->at, part->transfer.why);
    return PL_OK;
}

static pl_status run_one(pl_channels *c, pl_bound_unit m)
{
    m.move = 1;
    pl_channels_begin(c, &m);
    return pl_channels_end_run(c);
}

static bool fails(pl_status rc, const char *why)
{
    return rc == PL_ERR_IO && strstr(pl_error_text(), why);
}

/* Bytes come back as they went, a file that ends or takes no bytes is an error with its reason, and
 * the next run works; with a ring and without one. */
static void check_channels(bool rings, char *out, char *in)
{
    enum { BYTES = 9 * PL_PART_BYTES / 2 + 4096 };
    static const bool used[PL_N_CHANNELS] = {[PL_CHANNEL_READ] = true, [PL_CHANNEL_WRITE] = true};
    static const pl_part_steps steps = {plain_before, plain_after};
    const pl_bound_unit write = {.channel = PL_CHANNEL_WRITE, .from = out, .bytes = BYTES};
    const pl_bound_unit read = {.channel = PL_CHANNEL_READ, .to = in, .bytes = BYTES};
    pl_channels *c, *shut;
    int parts = 0, closed = 0;
    int file = open(pl_test_path("level"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    int only_reads = open(pl_test_path("level"), O_RDONLY);
    CHECK(file >= 0 && only_reads >= 0);
    CHECK_OK(pl_channels_open(used, file, rings, &steps, &parts, &c));
    CHECK_OK(pl_channels_open(used, only_reads, rings, &steps, &closed, &shut));
    for (int i = 0; i < BYTES; i++) out[i] = (char)(i * 37 >> 3);

    CHECK_OK(run_one(c, write));
    memset(in, 0, BYTES);
    CHECK_OK(run_one(c, read));
    CHECK(memcmp(out, in, BYTES) == 0);
    CHECK_MSG(parts == (rings ? 20 : 10), "%d parts", parts);

    CHECK(fails(run_one(shut, write), "Bad file descriptor"));
    CHECK_OK(run_one(shut, read));
    CHECK(ftruncate(file, 3 * PL_PART_BYTES + 512) == 0);
    CHECK(fails(run_one(c, read), "the file has ended"));
    CHECK_OK(run_one(c, write));
    memset(in, 0, BYTES);
    CHECK_OK(run_one(c, read));
    CHECK(memcmp(out, in, BYTES) == 0);
    pl_channels_free(c);
    pl_channels_free(shut);
    close(file);
    close(only_reads);
}

TEST(levels_channels_move_bytes_and_tell_why_a_file_fails)
{
    char *block = malloc(12 * PL_PART_BYTES);
    check_channels(false, block, block + 6 * PL_PART_BYTES);
    if (!pl_ring_missing()) check_channels(true, block, block + 6 * PL_PART_BYTES);
    free(block);
}

/* ---- rates of links ----------------------------------------------------------------------- */
TEST(levels_rates_of_links_are_measured_and_kept)
{
    const pl_device *dev;
    pl_link_rates r, kept;
    char owner[256];
    setenv("PLIMSOLL_CACHE", pl_test_path("cache"), 1);
    CHECK_OK(pl_device_find("apart", &dev));

    CHECK_OK(pl_link_measure(dev, &r));
    CHECK(r.up > 1e6 && r.down > 1e6);
    CHECK(!pl_link_rates_find("card", &kept));
    CHECK_OK(pl_link_rates_put("card", &r));
    CHECK_OK(pl_link_rates_put("other card", &(pl_link_rates){3e9, 4e9}));
    CHECK_OK(pl_link_rates_put("card", &(pl_link_rates){5e9, 6e9}));

    CHECK(pl_link_rates_find("card", &kept) && kept.up == 5e9 && kept.down == 6e9);
    CHECK(pl_link_rates_find("other card", &kept) && kept.up == 3e9 && kept.down == 4e9);
    /* a changed byte: no rates, others stay; nothing else lies in the folder */
    CHECK(system(
              "cd \"$PLIMSOLL_CACHE\" && sed -i 's/^5e/6e/' links.txt && test $(ls | wc -l) = 1") ==
          0);
    CHECK(!pl_link_rates_find("card", &kept));
    CHECK(pl_link_rates_find("other card", &kept) && kept.up == 3e9);
    CHECK(pl_link_disk_owner(pl_test_dir(), owner, sizeof owner));
    CHECK(!pl_link_disk_owner(pl_test_path("nothing"), owner, sizeof owner));
    unsetenv("PLIMSOLL_CACHE");
}

/* ---- the checker -------------------------------------------------------------------------- */
static pl_status check(const bench *b)
{
    const pl_expanded_plan *set = pl_budget_plan(b->p->budget);
    return pl_plan_check(b->p->g, b->p->units, &set->opts, b->p->plan);
}

/* Breaks one move in one way; returns whether the checker noticed. */
static bool notices(bench *b, uint32_t which, int how)
{
    pl_plan *p = (pl_plan *)(uintptr_t)b->p->plan;
    pl_move kept = p->moves[which], *m = &p->moves[which];
    pl_place *out = &p->place[b->p->units->unit[m->unit].out[0]], place = *out;
    uint64_t bytes = p->level_bytes[PL_LEVEL_DISK];
    if (how == 0) m->end = m->begin;                              /* ends before it begins */
    if (how == 1) m->bytes -= 1;                                  /* does not move all bytes */
    if (how == 2) m->channel ^= 1;                                /* another channel */
    if (how == 3) p->level_bytes[PL_LEVEL_DISK] = PL_LEVEL_ALIGN; /* too small a file */
    if (how == 4) m->dest.offset += PL_LEVEL_ALIGN; /* to another place than the unit's */
    if (how == 5) m->end = (int32_t)p->n_order;     /* still on its way when it is read */
    bool wrong = check(b) != PL_OK;
    *m = kept;
    *out = place;
    p->level_bytes[PL_LEVEL_DISK] = bytes;
    return wrong;
}

TEST(levels_checker_rejects_wrong_moves)
{
    bench b = {0};
    uint64_t least;
    CHECK_OK(pl_compile(make(&b, 0), NULL, &b.p));
    move_slots(&b, PL_LEVEL_DISK, 0);
    CHECK_OK(pl_program_set_levels(b.p, &b.levels, "/tmp"));
    CHECK_OK(pl_program_minimum(b.p, 0, &least));
    CHECK_OK(pl_program_set_budget(b.p, least));
    CHECK_OK(check(&b));
    for (uint32_t i = 0; i < b.p->plan->n_moves; i++) {
        bool fetch = b.p->plan->moves[i].to == PL_LEVEL_DEVICE;
        for (int how = 0; how < 6; how++)
            if (how < 5 || fetch)
                CHECK_MSG(notices(&b, i, how), "move %d, mistake %d", (int)i, how);
    }
    CHECK_OK(check(&b));
    end(&b);
}
