/* test_tile_chain.c - runs of cheap f32 functions, which the interpreter executes as one loop:
 * every kind of link, with the running value on either side, against the same arithmetic in plain
 * C. */
#include "tests/lib/test.h"

#include "cpu/tile/tile.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, COLS = 29, LINKS = 12 };

typedef struct link {
    pl_scalar_fn fn;
    int other;  /* 0: a whole operand, 1: one value per column, 2: a constant, -1: none */
    bool first; /* the running value is the first argument */
} link;

static float apply(const link *l, float run, float other)
{
    float a = l->first ? run : other, b = l->first ? other : run;
    switch ((int)l->fn) {
    case PL_SCALAR_ADD: return a + b;
    case PL_SCALAR_SUB: return a - b;
    case PL_SCALAR_MUL: return a * b;
    case PL_SCALAR_NEG: return -run;
    case PL_SCALAR_SQUARE: return run * run;
    case PL_SCALAR_RELU: return run > 0 ? run : 0;
    default: return run > 0 ? run : run * 0.25f; /* LEAKY_RELU */
    }
}

static link random_link(uint64_t *noise)
{
    static const pl_scalar_fn fns[] = {PL_SCALAR_ADD,  PL_SCALAR_SUB,       PL_SCALAR_MUL,
                                       PL_SCALAR_SUB,  PL_SCALAR_NEG,       PL_SCALAR_SQUARE,
                                       PL_SCALAR_RELU, PL_SCALAR_LEAKY_RELU};
    int k = (int)((pl_test_noise(noise) + 1) * 3.999);
    int other = (int)((pl_test_noise(noise) + 1) * 1.4999);
    return (link){fns[k], k < 4 ? other : -1, pl_test_noise(noise) < 0};
}

/* %0 whole operand, %1 column operand, %2 constant, %3.. the chain; false when a bit differs. */
static bool chain_is_right(const link *l, int n, const float *x, const float *c)
{
    static float y[ROWS * COLS];
    const float constant = 0.75f;
    pl_fused_operand in[2] = {{.in = 0, .dtype = PL_F32, .stride = {COLS, 1}},
                              {.in = 1, .dtype = PL_F32, .stride = {0, 1}}};
    pl_fused_instr code[3 + LINKS];
    memset(code, 0, sizeof code);
    for (int i = 0; i < 2; i++)
        code[i] = (pl_fused_instr){.code = PL_FUSED_LOAD, .dtype = PL_F32, .operand = i};
    code[2] = (pl_fused_instr){.code = PL_FUSED_RAMP, .dtype = PL_F32, .imm = (double)constant};
    for (int i = 0; i < n; i++) {
        int run = i ? 2 + i : 0, other = l[i].other < 0 ? run : l[i].other;
        code[3 + i] = (pl_fused_instr){.code = PL_FUSED_MAP,
                                       .dtype = PL_F32,
                                       .fn = l[i].fn,
                                       .imm = 0.25,
                                       .n_arg = pl_scalar_arity(l[i].fn),
                                       .arg = {l[i].first ? run : other, l[i].first ? other : run}};
    }
    pl_fused_output out = {.kind = PL_FUSED_STORE, .src = 2 + n, .dtype = PL_F32, .out2 = -1};
    pl_fused p = {.rank = 2,
                  .dim = {ROWS, COLS},
                  .n_in = 2,
                  .n_instr = 3 + n,
                  .n_out = 1,
                  .in = in,
                  .instr = code,
                  .out = &out};
    pl_arena mem = PL_ARENA_INIT;
    pl_tile_code *t;
    bool right = pl_tile_compile(&p, &mem, &t) == PL_OK;
    if (right) {
        void *work = aligned_alloc(64, (pl_tile_work_bytes(t) + 127) / 64 * 64);
        pl_tile_run(t, (const void *[]){x, c}, (void *[]){y}, work);
        free(work);
    }
    for (int i = 0; right && i < ROWS * COLS; i++) {
        const float others[3] = {x[i], c[i % COLS], constant};
        float run = x[i];
        for (int k = 0; k < n; k++)
            run = apply(&l[k], run, l[k].other < 0 ? 0 : others[l[k].other]);
        right = run == y[i]; /* -0 and 0 count as equal */
    }
    pl_arena_release(&mem);
    return right;
}

TEST(tile_chains_of_every_link_match_plain_c)
{
    static float x[ROWS * COLS], c[COLS];
    uint64_t noise = 5;
    for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)pl_test_noise(&noise);
    for (int i = 0; i < COLS; i++) c[i] = (float)pl_test_noise(&noise);
    for (int trial = 0; trial < 2000; trial++) {
        link l[LINKS];
        int n = 2 + trial % (LINKS - 1);
        for (int i = 0; i < n; i++) l[i] = random_link(&noise);
        CHECK_MSG(chain_is_right(l, n, x, c), "trial %d, %d links", trial, n);
    }
}
