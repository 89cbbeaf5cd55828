/* codegen_stages.c - the schedule of a row kernel: which stage computes what, and which values stay
 * in registers between stages.
 *
 * Each stage walks the elements once. Stage k computes the reductions whose operands need the
 * results of stages before k; a variance takes its own stage, after its mean. The last stage
 * stores. Example: see codegen_row.c (softmax: maximum, sum, store).
 */
#include "cuda/codegen/codegen_row.h"

enum { MAX_STAGES = 64, RAW_REGS = 128 };

/* Returns the registers of a thread for its part of a row; half as many are for values it keeps.
 * Larger blocks have fewer: 255, 128 or 64 in all. */
static int raw_registers(const pl_cg_pass *p)
{
    return p->tx <= 256 ? RAW_REGS : p->tx <= 512 ? RAW_REGS / 2 : RAW_REGS / 4;
}

bool pl_cg_row_sum(const pl_cg_pass *p, int i)
{
    return p->used[i] && p->instr[i].code == PL_FUSED_ROW_REDUCE;
}

bool pl_cg_row_var(const pl_cg_pass *p, int i)
{
    return i + 1 < p->n_instr && p->used[i + 1] && p->instr[i + 1].code == PL_FUSED_ROW_VAR;
}

/* phase: number of the first stage in which the value is available. A reduction of values of phase
 * k is available in phase k + 1; a variance one later. */
static void find_phases(pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    t->n = 1;
    for (int i = 0; i < p->n_instr; i++) {
        const pl_fused_instr *x = &p->instr[i];
        if (!p->used[i]) continue;
        int ph = 0;
        for (int k = 0; k < x->n_arg; k++)
            if (t->phase[x->arg[k]] > ph) ph = t->phase[x->arg[k]];
        if (x->code == PL_FUSED_ROW_REDUCE) ph++;
        if (x->code == PL_FUSED_ROW_VAR) ph++;
        t->phase[i] = ph;
        if (ph + 1 > t->n) t->n = ph + 1;
    }
}

static void mark(pl_cg_stages *t, int stage, int i)
{
    const pl_cg_pass *p = t->p;
    bool *need = t->need + (size_t)stage * (size_t)p->n_instr;
    if (!(t->dep[i] & PL_CG_DEP_J)) return; /* a row's value: available before the stage */
    need[i] = true;
    for (int k = i; k >= 0; k--) {
        if (!need[k]) continue;
        for (int m = 0; m < p->instr[k].n_arg; m++) {
            int q = p->instr[k].arg[m];
            if (t->dep[q] & PL_CG_DEP_J) need[q] = true;
        }
    }
}

static bool find_needs(pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    if (t->n > MAX_STAGES) return false;
    for (int i = 0; i < p->n_instr; i++) {
        if (!pl_cg_row_sum(p, i)) continue;
        mark(t, t->phase[i] - 1, p->instr[i].arg[0]);
        if (pl_cg_row_var(p, i)) mark(t, t->phase[i], p->instr[i].arg[0]);
    }
    for (int s = 0; s < p->n_sink; s++)
        if (p->sink[s].kind != PL_FUSED_ROWS) mark(t, t->n - 1, p->sink[s].src);
    return true;
}

static int cost_of(pl_scalar_fn f)
{
    switch (f) {
#define PL_SCALAR_LIBM(NAME, name) case PL_SCALAR_##NAME:
#include "ir/scalar.def"
    case PL_SCALAR_SIN:
    case PL_SCALAR_COS:
    case PL_SCALAR_SIGMOID:
    case PL_SCALAR_SOFTPLUS:
    case PL_SCALAR_SILU:
    case PL_SCALAR_GELU:
    case PL_SCALAR_GELU_SLOPE:
    case PL_SCALAR_GELU_TANH:
    case PL_SCALAR_POW:
    case PL_SCALAR_MOD:
    case PL_SCALAR_DIV:
    case PL_SCALAR_RECIPROCAL:
    case PL_SCALAR_SQRT:
    case PL_SCALAR_RSQRT: return 8;
    default: return 1;
    }
}

int pl_cg_wanted(const pl_cg_stages *t, int i, int *first)
{
    int n = 0;
    for (int s = t->n - 1; s >= 0; s--)
        if (t->need[s * t->p->n_instr + i]) {
            n++;
            *first = s;
        }
    return n;
}

/* Clears what later stages needed only for kept values. */
static void refresh(pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    for (int s = 0; s < t->n; s++) {
        bool *need = t->need + (size_t)s * (size_t)p->n_instr;
        for (int i = p->n_instr - 1; i >= 0; i--) {
            if (!need[i]) continue;
            int first = 0;
            pl_cg_wanted(t, i, &first);
            bool read = false;
            for (int m = 0; m < p->n_sink; m++)
                read |= p->sink[m].kind != PL_FUSED_ROWS && p->sink[m].src == i && s == t->n - 1;
            for (int u = i + 1; u < p->n_instr; u++) {
                const pl_fused_instr *x = &p->instr[u];
                if (pl_cg_row_sum(p, u) && x->arg[0] == i)
                    read |= s == t->phase[u] - 1 || (pl_cg_row_var(p, u) && s == t->phase[u]);
                int f = 0;
                if (!need[u] || (t->kept[u] && pl_cg_wanted(t, u, &f) && f < s)) continue;
                for (int m = 0; m < x->n_arg; m++) read |= x->arg[m] == i;
            }
            if (!read) need[i] = false;
        }
    }
}

static void find_kept(pl_cg_stages *t)
{
    const pl_cg_pass *p = t->p;
    int elems = p->steps * p->vec, raw = 0, most = raw_registers(p), room = most / 2;
    for (int i = 0; i < p->n_instr; i++)
        if (p->used[i] && p->instr[i].code == PL_FUSED_LOAD && t->dep[i] & PL_CG_DEP_J &&
            t->dep[i] & PL_CG_DEP_O)
            raw += elems * (int)pl_dtype_bytes(p->instr[i].dtype) / 4;
    t->raw = p->steps > 0 && raw <= most;
    if (p->steps == 0 || raw + elems > most + most / 4) return;
    for (int i = 0; i < p->n_instr; i++) {
        int first = 0;
        if (!p->used[i] || p->instr[i].code != PL_FUSED_MAP || !(t->dep[i] & PL_CG_DEP_J)) continue;
        int regs = elems * (p->instr[i].dtype == PL_F64 || p->instr[i].dtype == PL_I64 ? 2 : 1);
        if (pl_cg_wanted(t, i, &first) < 2 || cost_of(p->instr[i].fn) < 8 || regs > room) continue;
        t->kept[i] = true;
        room -= regs;
        refresh(t);
    }
    /* The compiler does not recognise a repeated conversion from f16. With column sums, registers
     * are worth more than conversions. */
    for (int i = 0; i < p->n_instr && t->raw && !p->columns; i++) {
        int first = 0;
        if (!p->used[i] || p->instr[i].code != PL_FUSED_LOAD || p->instr[i].dtype != PL_F16)
            continue;
        if (!(t->dep[i] & PL_CG_DEP_J) || pl_cg_wanted(t, i, &first) < 2 || elems > room) continue;
        t->kept[i] = true;
        room -= elems;
    }
}

pl_status pl_cg_stages_make(const pl_cg_pass *p, const int *dep, pl_arena *a, pl_cg_stages *out)
{
    size_t n = (size_t)p->n_instr + 1;
    pl_cg_stages t = {.p = p, .dep = dep};
    t.phase = pl_arena_new(a, int, n);
    t.need = pl_arena_new(a, bool, n *MAX_STAGES);
    t.kept = pl_arena_new(a, bool, n);
    t.ahead = pl_arena_new(a, int, n);
    t.early = pl_arena_new(a, bool, n);
    t.fixed = pl_arena_new(a, bool, n);
    t.twice = pl_arena_new(a, bool, n);
    if (!t.phase || !t.need || !t.kept || !t.ahead || !t.early || !t.fixed || !t.twice)
        return PL_ERR_MEMORY;
    find_phases(&t);
    PL_FAIL_IF(!find_needs(&t), PL_ERR_UNSUPPORTED,
               "a group has %d sums that depend on one another", t.n);
    find_kept(&t);
    *out = t;
    return PL_OK;
}
