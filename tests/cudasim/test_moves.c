/* test_moves.c - moves on streams beside kernels: the same bits in every order that the GPU may
 * choose, captured as a graph or eager. */
#include "rt/levels/levels.h"
#include "rt/levels/process_levels.h"
#include "rt/process_budget.h"
#include "rt/rt_int.h"
#include "tests/cudasim/streams.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

/* The files under test, for this file alone. */
#define pl_cuda_upload_stream   moves_upload
#define pl_cuda_together        moves_together
#define pl_cuda_many_of         moves_many_of
#define pl_cuda_enqueue         moves_enqueue
#define pl_cuda_run             moves_run
#define pl_cuda_capture_new     moves_capture_new
#define pl_cuda_capture_free    moves_capture_free
#define pl_cuda_capture_send    moves_capture_send
#define pl_cuda_capture_run     moves_capture_run
#define pl_cuda_capture_reclaim moves_capture_reclaim
#define pl_cuda_capture_wait    moves_capture_wait
#define pl_cuda_capture_ms      moves_capture_ms
#define pl_cuda_moves_wait      moves_wait
#define pl_cuda_moves_begin     moves_begin
#define pl_cuda_moves_end       moves_end
#define pl_beside_allowed       moves_beside_allowed
#define pl_beside_add           moves_beside_add
#define pl_beside_ends          moves_beside_ends
#include "cuda/device/capture.c"
#include "cuda/device/move_streams.c"
#include "cuda/ops/beside.c"
#include "cuda/ops/many.c"

cudaStream_t moves_upload(void)
{
    return (cudaStream_t)(uintptr_t)1;
}

/* ---- a GPU that computes with the CPU's kernels ------------------------------------------- */
typedef struct late_kernel {
    pl_kernel kernel; /* first: a unit's kernel is one of these */
    const pl_kernel *real;
} late_kernel;

static void run_late(const void *ctx)
{
    const pl_call *c = ctx;
    const pl_bound_unit *l =
        (const pl_bound_unit *)((const char *)c - offsetof(pl_bound_unit, call));
    CHECK_OK(((const late_kernel *)l->exec->kernel)->real->run(c));
}

static pl_status enqueue_call(const pl_call *c)
{
    sim_enqueue(run_late, c, NULL);
    return PL_OK;
}

/* Adjacent calls of one kernel share a launch: here they run in the opposite order. */
static pl_status enqueue_many(const pl_call *const *calls, int n)
{
    for (int i = n; i-- > 0;) sim_enqueue(run_late, calls[i], NULL);
    return PL_OK;
}

pl_cuda_many_fn moves_many_of(const pl_kernel *k)
{
    return strcmp(k->name, "many") == 0 ? enqueue_many : NULL;
}

static pl_status sim_alloc(size_t bytes, void **out)
{
    *out = calloc(1, bytes + 64);
    return PL_OK;
}

static void sim_free(void *p, size_t bytes)
{
    (void)bytes;
    sim_wait();
    free(p);
}

static pl_status sim_fill(void *to, int byte, size_t bytes)
{
    sim_memset(to, byte, bytes, NULL);
    return PL_OK;
}

static pl_status sim_copy(void *to, const void *from, size_t bytes)
{
    sim_memcpy(to, from, bytes, cudaMemcpyDeviceToDevice, NULL);
    sim_wait();
    return PL_OK;
}

static const pl_device sim_device = {
    .name = "streams",
    .access = &pl_access_staged,
    .own_memory = true,
    .moves = true,
    .alloc = sim_alloc,
    .free = sim_free,
    .fill = sim_fill,
    .discard = pl_exec_discard,
    .run = pl_cuda_run,
    .host_alloc = sim_alloc,
    .host_free = sim_free,
    .write = sim_copy,
    .read = sim_copy,
    .capture_new = pl_cuda_capture_new,
    .capture_free = pl_cuda_capture_free,
    .capture_send = pl_cuda_capture_send,
    .capture_run = pl_cuda_capture_run,
    .capture_reclaim = pl_cuda_capture_reclaim,
    .capture_wait = pl_cuda_capture_wait,
    .capture_ms = pl_cuda_capture_ms,
};

/* ---- programs ----------------------------------------------------------------------------- */
enum { MOST_SLOTS = 64, MOST_UNITS = 512, STEPS = 3 };

typedef struct rig {
    pl_store *store;
    pl_program *p;
    pl_session *s;
    pl_level_opts levels;
    pl_homes homes;
    uint8_t level[MOST_SLOTS];
    uint64_t offset[MOST_SLOTS];
    late_kernel late[MOST_UNITS];
    int n_late;
} rig;

/* Gives every slot that may move a home at that level; to disk the moves pass through the host. */
static void move_slots(rig *b, uint8_t level)
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
    b->levels = (pl_level_opts){
        .homes = &b->homes,
        .capacity = {[PL_LEVEL_HOST] = (uint64_t)1 << 30, [PL_LEVEL_DISK] = (uint64_t)1 << 30},
        .transit = level == PL_LEVEL_DISK ? 1 << 20 : 0,
        .channel_ns = {1, 1, 1, 1},
        .move_ns = 1000,
        .only_moves = true};
}

/* Returns a kernel that runs the unit's when the GPU comes to it; units that have the same kernel
 * and no scratch share it. */
static const pl_kernel *late_of(rig *b, const pl_exec *e)
{
    const char *name = e->work_bytes ? "one" : "many";
    int i = 0;
    while (i < b->n_late && (b->late[i].real != e->kernel || b->late[i].kernel.name != name)) i++;
    if (i == b->n_late)
        b->late[b->n_late++] = (late_kernel){
            {.name = name, .run = enqueue_call, .release = e->kernel->release}, e->kernel};
    return &b->late[i].kernel;
}

/* Moves a program to the simulated GPU. */
static void use_gpu(rig *b)
{
    CHECK(b->p->base_units->n < MOST_UNITS);
    for (uint32_t i = 0; i < b->p->base_units->n; i++)
        if (b->p->exec[i].kernel) b->p->exec[i].kernel = late_of(b, &b->p->exec[i]);
    b->p->dev = &sim_device;
}

/* Compiles for the CPU's kernels, and moves the program to the simulated GPU. */
static void compile(rig *b, uint64_t seed, bool eager, uint8_t level)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    uint64_t least;
    o.device = "apart";
    o.mode = eager ? PL_MODE_EAGER : o.mode;
    b->store = pl_store_new();
    CHECK_OK(pl_compile(
        seed ? random_graph(b->store, seed, 60) : training_graph(b->store, 6, 64, 64), &o, &b->p));
    if (level) {
        move_slots(b, level);
        CHECK_OK(pl_program_set_levels(b->p, &b->levels, "/tmp"));
        CHECK_OK(pl_program_minimum(b->p, 0, &least));
        CHECK_OK(pl_program_set_budget(b->p, least));
    }
    use_gpu(b);
}

static void fill_slots(rig *b, uint64_t seed)
{
    for (int i = 0; i < pl_store_count(b->store); i++) {
        const pl_slot *slot = pl_store_slot(b->store, i);
        size_t bytes = pl_type_bytes(&slot->type);
        void *v = malloc(bytes + 1);
        fill_input(seed + 99, slot->name, &slot->type, v);
        CHECK_OK(pl_session_write_slot(b->s, i, 0, v, bytes));
        free(v);
    }
}

static void run(rig *b, uint64_t seed)
{
    CHECK_OK(pl_session_new(b->store, 1, &b->p, &b->s));
    fill_slots(b, seed);
    for (uint64_t k = 0; k < STEPS; k++) {
        for (int i = 0; i < pl_program_input_count(b->p); i++) {
            const char *name = pl_program_input_name(b->p, i);
            pl_type t;
            void *to = pl_session_input(b->s, b->p, name, &t);
            if (to) fill_input(seed + k, name, &t, to);
        }
        CHECK_OK(pl_session_run(b->s, b->p));
    }
    CHECK_OK(pl_session_wait(b->s));
}

static void compare(rig *a, rig *b, uint64_t seed)
{
    for (int i = 0; i < pl_program_output_count(a->p); i++) {
        const char *name = pl_program_output_name(a->p, i);
        pl_type t;
        const void *x = pl_session_output(a->s, a->p, name, &t);
        const void *y = pl_session_output(b->s, b->p, name, NULL);
        CHECK_MSG(memcmp(x, y, pl_type_bytes(&t)) == 0, "seed %d: output %s", (int)seed, name);
    }
    for (int i = 0; i < pl_store_count(a->store); i++) {
        size_t bytes = pl_type_bytes(&pl_store_slot(a->store, i)->type);
        char *x = malloc(2 * bytes + 1), *y = x + bytes;
        CHECK_OK(pl_session_read_slot(a->s, i, 0, x, bytes));
        CHECK_OK(pl_session_read_slot(b->s, i, 0, y, bytes));
        CHECK_MSG(memcmp(x, y, bytes) == 0, "seed %d: slot %s", (int)seed,
                  pl_store_slot(a->store, i)->name);
        free(x);
    }
}

static void end(rig *b)
{
    pl_session_free(b->s);
    pl_program_free(b->p);
    pl_store_free(b->store);
    free(b);
}

static void end_pair(rig *b, rig *update)
{
    pl_session_free(b->s);
    b->s = NULL;
    pl_program_free(update->p);
    free(update);
    end(b);
}

/* A new GPU; its orders are drawn from the seed. */
static void start_gpu(uint64_t seed)
{
    sim_gpu.n_graphs = sim_gpu.n_events = 0;
    memset(channels, 0, sizeof channels);
    fork_event = taken = NULL;
    sim_gpu.n_streams = 2;
    sim_gpu.draws = seed << 32;
    sim_gpu.slow = (unsigned)seed; /* stream 0: kernels, 1: uploads, others: moves */
    sim_gpu.elapsed = 0.01f;
    sim_gpu.faster = 1;
}

TEST(cuda_moves_do_not_change_bits_in_any_order)
{
    int moves = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        rig *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
        start_gpu(seed);
        compile(a, seed, true, PL_LEVEL_DEVICE);
        compile(b, seed, seed % 3 == 1, seed & 1 ? PL_LEVEL_DISK : PL_LEVEL_HOST);

        run(a, seed);
        run(b, seed);

        moves += (int)b->p->plan->n_moves;
        compare(a, b, seed);
        end(a);
        end(b);
    }
    CHECK(moves > 100);
}

/* Returns how many nodes of the graph do not follow the node before them. */
static int free_nodes(const sim_list *l)
{
    int n = 0;
    for (int i = 1; i < l->n; i++) {
        bool follows = false;
        for (int k = 0; k < SIM_DEPS; k++) follows = follows || l->node[i].dep[k] == i - 1;
        n += !follows;
    }
    return n;
}

/* The second graph is said to be the faster one, so its units run beside each other. */
TEST(cuda_units_beside_each_other_do_not_change_bits)
{
    int beside = 0;
    for (uint64_t seed = 0; seed < 16; seed++) {
        rig *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
        start_gpu(seed);
        compile(a, seed, true, PL_LEVEL_DEVICE);
        compile(b, seed, false, PL_LEVEL_DEVICE);
        run(a, seed);
        sim_gpu.faster = 2;

        run(b, seed);

        CHECK_MSG(sim_gpu.n_graphs == 2, "seed %d: %d graphs", (int)seed, sim_gpu.n_graphs);
        CHECK_INT(free_nodes(&sim_gpu.graph[0]), 0);
        beside += free_nodes(&sim_gpu.graph[1]);
        compare(a, b, seed);
        end(a);
        end(b);
    }
    CHECK_MSG(beside > 30, "%d units run beside the one before", beside);
}

TEST(cuda_units_run_in_order_where_that_is_as_fast)
{
    rig *b = calloc(1, sizeof *b);
    start_gpu(1);
    compile(b, 1, false, PL_LEVEL_DEVICE);

    run(b, 1);

    CHECK_INT(sim_gpu.n_graphs, 3); /* in order, beside each other, in order again */
    CHECK(free_nodes(&sim_gpu.graph[1]) > 0);
    CHECK_INT(free_nodes(&sim_gpu.graph[2]), 0);
    CHECK(((const captured *)b->s->bound[0].staging.captured)->graph == &sim_gpu.graph[2]);
    end(b);
}

TEST(cuda_units_run_in_order_where_memory_is_limited)
{
    rig *b = calloc(1, sizeof *b);
    start_gpu(1);
    sim_gpu.faster = 2;
    compile(b, 1, false, PL_LEVEL_DEVICE);
    pl_program_limit_memory(b->p);

    run(b, 1);

    CHECK_INT(sim_gpu.n_graphs, 1);
    CHECK_INT(free_nodes(&sim_gpu.graph[0]), 0);
    end(b);
}

/* Two updates share a launch, unless the second needs a move that the first does not wait for. */
TEST(cuda_units_share_a_launch_if_they_wait_for_the_same_moves)
{
    float data[4][64];
    const void *in[2] = {data[0], data[1]};
    void *out[2] = {data[2], data[3]};
    pl_type t = PL_TYPE(PL_F32, 64);
    const pl_kernel many = {.name = "many"};
    const pl_exec exec = {.kernel = &many};
    pl_bound_unit l[2] = {{0}};
    const pl_call *calls[PL_CUDA_MANY];
    int n;
    for (int i = 0; i < 2; i++) {
        l[i].exec = &exec;
        l[i].call = (pl_call){.in = &in[i], .out = &out[i], .n_in = 1, .n_out = 1};
        l[i].call.in_type = l[i].call.out_type = &t;
    }

    CHECK_INT(pl_cuda_together(l, 2, calls, &n), 2);
    CHECK_INT(n, 2);
    l[1].wait[PL_CHANNEL_UP] = 3;
    CHECK_INT(pl_cuda_together(l, 2, calls, &n), 1);
    l[0].wait[PL_CHANNEL_UP] = 3;
    CHECK_INT(pl_cuda_together(l, 2, calls, &n), 2);
}

/* ---- updates on the host -------------------------------------------------------------------- */
enum { LAYERS = 5, PAIRS = 8 }; /* PAIRS: steps */

/* Slots: weights, their gradients, momentum. */
static void add_layers(pl_store *store, int slot[3][LAYERS])
{
    static const char *const kind[3] = {"w", "g", "m"};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < LAYERS; k++) {
            char name[16];
            snprintf(name, sizeof name, "%s%d", kind[i], k);
            slot[i][k] =
                pl_store_add(store, &(pl_slot){.name = name, .type = PL_TYPE(PL_F32, 48, 48)});
        }
}

/* Reads weights and writes gradients. */
static pl_graph *gradient_graph(pl_store *store, int slot[3][LAYERS])
{
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 48, 48));
    for (int k = 0; k < LAYERS; k++) {
        pl_val w = pl_state(g, slot[0][k]);
        x = pl_tanh(g, pl_matmul(g, x, w, false, false));
        pl_assign(g, slot[1][k], pl_mul(g, x, w));
    }
    pl_output(g, "loss", x);
    return g;
}

/* Reads gradients, and writes weights and momentum. */
static pl_graph *update_graph(pl_store *store, int slot[3][LAYERS])
{
    pl_graph *g = pl_graph_new(store);
    for (int k = 0; k < LAYERS; k++) {
        pl_val w = pl_state(g, slot[0][k]), m = pl_state(g, slot[2][k]);
        m = pl_add(g, pl_tanh(g, m), pl_state(g, slot[1][k]));
        pl_assign(g, slot[2][k], m);
        pl_assign(g, slot[0][k], pl_tanh(g, pl_sub(g, w, m)));
    }
    return g;
}

/* A step is two programs. on_host: the second one is the CPU's, on slots in host memory; else both
 * are the GPU's. */
static void compile_pair(rig *b, rig *update, bool on_host)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    int slot[3][LAYERS];
    uint64_t least;
    b->store = update->store = pl_store_new();
    add_layers(b->store, slot);
    o.device = "apart";
    o.mode = on_host ? o.mode : PL_MODE_EAGER;
    CHECK_OK(pl_compile(gradient_graph(b->store, slot), &o, &b->p));
    if (on_host) {
        move_slots(b, PL_LEVEL_HOST);
        CHECK_OK(pl_program_set_levels(b->p, &b->levels, "/tmp"));
        CHECK_OK(pl_program_minimum(b->p, 0, &least));
        CHECK_OK(pl_program_set_budget(b->p, least));
        o.device = "cpu";
    }
    CHECK_OK(pl_compile(update_graph(b->store, slot), &o, &update->p));
    use_gpu(b);
    if (!on_host) use_gpu(update);
}

/* Runs steps of both programs, the weights as they are drawn from the seed. */
static void run_pair(rig *b, rig *update, uint64_t seed)
{
    pl_program *both[] = {b->p, update->p};
    CHECK_OK(pl_session_new(b->store, 2, both, &b->s));
    fill_slots(b, seed);
    for (uint64_t k = 0; k < PAIRS; k++) {
        pl_type t;
        void *to = pl_session_input(b->s, b->p, "x", &t);
        fill_input(seed + k, "x", &t, to);
        CHECK_OK(pl_session_run(b->s, b->p));
        CHECK_OK(pl_session_run(b->s, update->p));
    }
    CHECK_OK(pl_session_wait(b->s));
}

TEST(cuda_updates_on_the_host_have_the_same_bits_in_any_order)
{
    for (uint64_t seed = 1; seed <= 16; seed++) {
        rig *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
        rig *update_a = calloc(1, sizeof *a), *update_b = calloc(1, sizeof *b);
        start_gpu(seed);
        compile_pair(a, update_a, false);
        compile_pair(b, update_b, true);

        run_pair(a, update_a, seed);
        run_pair(b, update_b, seed);

        CHECK(b->p->plan->n_moves >= 2 * LAYERS); /* weights up, gradients down */
        CHECK_INT(update_b->p->plan->n_moves, 0);
        compare(a, b, seed);
        end_pair(a, update_a);
        end_pair(b, update_b);
    }
}
