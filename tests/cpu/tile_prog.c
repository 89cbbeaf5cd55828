/* tile_prog.c - building and running the small groups of the tests. */
#include "tests/cpu/tile_prog.h"
#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "tests/lib/guarded.h"

#include <stdlib.h>
#include <string.h>

const char *const tile_isas[] = {"base", "avx2", "avx512"};

tile_prog *tile_new(int rank, const int64_t *dim, int row_rank)
{
    tile_prog *g = pl_sys_alloc(sizeof *g);
    g->p.rank = rank;
    g->p.row_rank = row_rank;
    for (int d = 0; d < rank; d++) g->p.dim[d] = dim[d];
    g->p.in = g->in;
    g->p.instr = g->instr;
    g->p.out = g->out;
    return g;
}

int64_t tile_elems(const tile_prog *g)
{
    int64_t n = 1;
    for (int d = 0; d < g->p.rank; d++) n *= g->p.dim[d];
    return n;
}

int tile_ld(tile_prog *g, pl_dtype d, uint32_t broadcast)
{
    pl_fused_operand *x = &g->in[g->p.n_in];
    x->dtype = d;
    x->in = (uint32_t)g->p.n_in;
    int64_t s = 1;
    for (int k = g->p.rank - 1; k >= 0; k--) {
        x->stride[k] = (broadcast >> k) & 1u ? 0 : s;
        if (x->stride[k]) s *= g->p.dim[k];
    }
    g->instr[g->p.n_instr] =
        (pl_fused_instr){.code = PL_FUSED_LOAD, .dtype = d, .operand = g->p.n_in++};
    return g->p.n_instr++;
}

int tile_imm(tile_prog *g, pl_dtype d, double v)
{
    g->instr[g->p.n_instr] = (pl_fused_instr){.code = PL_FUSED_RAMP, .dtype = d, .imm = v};
    return g->p.n_instr++;
}

int tile_map3(tile_prog *g, pl_scalar_fn f, int a, int b, int c)
{
    pl_dtype d = g->instr[f == PL_SCALAR_SELECT ? b : a].dtype;
    g->instr[g->p.n_instr] = (pl_fused_instr){.code = PL_FUSED_MAP,
                                              .dtype = pl_scalar_gives_bool(f) ? PL_BOOL : d,
                                              .n_arg = pl_scalar_arity(f),
                                              .arg = {a, b, c},
                                              .fn = f,
                                              .imm = 0.01};
    return g->p.n_instr++;
}

int tile_map2(tile_prog *g, pl_scalar_fn f, int a, int b)
{
    return tile_map3(g, f, a, b, 0);
}

int tile_cast(tile_prog *g, pl_dtype d, int a)
{
    g->instr[g->p.n_instr] = (pl_fused_instr){
        .code = PL_FUSED_MAP, .dtype = d, .fn = PL_SCALAR_CAST, .n_arg = 1, .arg = {a}};
    return g->p.n_instr++;
}

int tile_row_reduce(tile_prog *g, pl_reduce_fn f, int a)
{
    g->instr[g->p.n_instr] = (pl_fused_instr){.code = PL_FUSED_ROW_REDUCE,
                                              .dtype = g->instr[a].dtype,
                                              .n_arg = 1,
                                              .arg = {a},
                                              .reduce = f};
    return g->p.n_instr++;
}

int tile_row_var(tile_prog *g, int a)
{
    g->instr[g->p.n_instr] = (pl_fused_instr){
        .code = PL_FUSED_ROW_VAR, .dtype = g->instr[a].dtype, .n_arg = 1, .arg = {a}};
    return g->p.n_instr++;
}

int tile_st(tile_prog *g, int a)
{
    int o = g->p.n_out++;
    g->out[o] = (pl_fused_output){
        .kind = PL_FUSED_STORE, .src = a, .dtype = g->instr[a].dtype, .out = o, .out2 = -1};
    return o;
}

int tile_st_rows(tile_prog *g, int a)
{
    int o = tile_st(g, a);
    g->out[o].kind = PL_FUSED_ROWS;
    return o;
}

int tile_st_reduce(tile_prog *g, pl_reduce_fn f, int a, uint32_t mask)
{
    int o = tile_st(g, a);
    g->out[o].kind = PL_FUSED_REDUCE;
    g->out[o].reduce = f;
    g->out[o].mask = mask;
    if (f == PL_REDUCE_MOMENTS) g->out[o].out2 = o + 1;
    return o;
}

bool tile_run_guarded(const pl_fused *p, const void *const *in, void *const *out,
                      const size_t *bytes, int n_out)
{
    pl_arena a = PL_ARENA_INIT;
    pl_tile_code *t = NULL;
    if (pl_tile_compile(p, &a, &t) != PL_OK) {
        pl_test_fail(__FILE__, __LINE__, "compile: %s", pl_error_text());
        pl_arena_release(&a);
        return false;
    }
    guarded_block work = guarded_new(pl_tile_work_bytes(t)), own[PL_TILE_OUTPUTS + 1];
    void *to[PL_TILE_OUTPUTS + 1];
    for (int o = 0; o < n_out; o++) {
        own[o] = guarded_new(bytes[o]);
        memcpy(own[o].data, out[o], bytes[o]);
        to[o] = own[o].data;
    }

    uint64_t before = pl_sys_counts_get().allocs;
    pl_tile_run(t, in, to, work.data);
    bool ok = pl_sys_counts_get().allocs == before && guarded_intact(&work);

    for (int o = 0; o < n_out; o++) {
        ok = ok && guarded_intact(&own[o]);
        memcpy(out[o], own[o].data, bytes[o]);
        guarded_free(&own[o]);
    }
    if (!ok) pl_test_fail(__FILE__, __LINE__, "a guard byte was written, or the run allocated");
    guarded_free(&work);
    pl_arena_release(&a);
    return ok;
}

bool tile_run(const tile_prog *g, const void *const *in, void *const *out)
{
    size_t bytes[PL_TILE_OUTPUTS + 1];
    int n = 0;
    for (int o = 0; o < g->p.n_out; o++) {
        const pl_fused_output *x = &g->out[o];
        int64_t e = 1, row = 1;
        for (int d = 0; d < g->p.rank; d++) {
            if (d >= g->p.rank - g->p.row_rank) row *= g->p.dim[d];
            if (x->kind != PL_FUSED_REDUCE || !((x->mask >> d) & 1u)) e *= g->p.dim[d];
        }
        if (x->kind == PL_FUSED_ROWS) e = row ? e / row : 0;
        bytes[x->out] = (size_t)e * pl_dtype_bytes(x->dtype);
        if (x->out >= n) n = x->out + 1;
        if (x->out2 >= 0 && x->kind == PL_FUSED_REDUCE) {
            bytes[x->out2] = bytes[x->out];
            if (x->out2 >= n) n = x->out2 + 1;
        }
    }
    return tile_run_guarded(&g->p, in, out, bytes, n);
}

void *tile_buf(int64_t n)
{
    return pl_sys_alloc((size_t)n * 8 + 64);
}

void tile_noise(pl_dtype d, void *x, int64_t n, uint64_t *seed)
{
    for (int64_t i = 0; i < n; i++) {
        double v = pl_test_noise(seed) * 2.0;
        if (d == PL_BOOL)
            v = v > 0;
        else if (d == PL_U8)
            v = floor(fabs(v) * 100.0);
        else if (!pl_dtype_is_float(d))
            v = floor(v * 1000.0);
        pl_elem_set(d, x, i, v);
    }
}

bool tile_same_bits(pl_dtype d, const void *a, const void *b, int64_t n)
{
    size_t w = pl_dtype_bytes(d);
    for (int64_t i = 0; i < n; i++) {
        if (memcmp((const char *)a + (size_t)i * w, (const char *)b + (size_t)i * w, w) == 0)
            continue;
        double x = pl_elem_get(d, a, i), y = pl_elem_get(d, b, i);
        if (x != x && y != y) continue;
        pl_test_fail(__FILE__, __LINE__, "%s element %lld: %.9g and %.9g differ", pl_dtype_name(d),
                     (long long)i, x, y);
        return false;
    }
    return true;
}
