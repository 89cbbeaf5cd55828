/* codegen_fold.c - writes the kernel that folds partial results of reductions into results.
 *
 * Partial results lie as [runs before][parts][runs after], or in strips of a few columns
 * (pl_cg_strips); the partial results of one result are spread over the reduced runs. Y threads
 * share X neighbouring results (or 4 X, where neighbours are results of other columns, so that
 * every 32-byte sector is read whole): each thread takes every Y-th partial result in order, then a
 * tree combines the Y threads. X and Y depend on the number of partial results and on their layout
 * alone: that fixes the order of the sum.
 *
 * Each reduction has its own blocks in one kernel, all as large as the largest; a block does
 * several sets of X times Y threads where a large GPU can then hold all blocks at once.
 */
#include "cuda/codegen/codegen_int.h"

#include <string.h>

enum { EACH = 8, EACH_OF_MOMENTS = 4 }; /* partial results of a thread, unless there are too many */
enum { LEAST_THREADS = 256, MOST_THREADS = 1024, MOST_OF_MOMENTS = 512 };

typedef struct axes {
    int n;
    int64_t size[PL_CG_RANK + 1], stride[PL_CG_RANK + 1];
    int64_t total;
} axes;

/* Adds an axis, innermost first; an axis that continues the previous axis is merged with it. */
static void add_axis(axes *x, int64_t size, int64_t stride)
{
    int last = x->n - 1;
    x->total *= size;
    if (x->n && stride == x->stride[last] * x->size[last]) {
        x->size[last] *= size;
        return;
    }
    x->size[x->n] = size;
    x->stride[x->n++] = stride;
}

/* Splits the dims of the partial results into kept and folded ones. */
static void split(const pl_cg_pass *p, const pl_cg_runs *r, uint32_t folded, axes *keep, axes *fold)
{
    int64_t stride = 1, rows = p->parts;
    int last = r->n - 1;
    memset(keep, 0, sizeof *keep);
    memset(fold, 0, sizeof *fold);
    keep->total = fold->total = 1;
    for (int d = 0; d < r->along; d++) rows *= r->size[d];
    if (pl_cg_strips(r)) {
        add_axis(keep, PL_CG_STRIP, 1);
        add_axis(keep, r->size[last--] / PL_CG_STRIP, rows * PL_CG_STRIP);
        stride = PL_CG_STRIP;
    }
    for (int d = last; d >= 0; d--) {
        int64_t size = d == r->along ? p->parts : r->size[d];
        add_axis(folded >> d & 1u ? fold : keep, size, stride);
        stride *= size;
    }
}

/* Writes "I name = " and the offset of index `at` over the axes. */
static void put_place(pl_cg *w, const axes *x, const char *at, const char *name)
{
    pl_cg_put(w, "I %s = 0;\n{ I q_ = %s;\n", name, at);
    for (int d = 0; d < x->n; d++) {
        int s = pl_cg_size(w, x->stride[d]);
        if (d == x->n - 1) {
            pl_cg_put(w, "%s += q_ * a.s[%d];\n", name, s);
            break;
        }
        int m = pl_cg_divider(w, x->size[d]);
        pl_cg_put(w,
                  "const I q%d = p_quot(q_, a.m[%d]); %s += (q_ - q%d * (I)a.m[%d].d) * "
                  "a.s[%d]; q_ = q%d;\n",
                  d, m, name, d, m, s, d);
    }
    pl_cg_put(w, "}\n");
}

/* The blocks of one sink. */
typedef struct section {
    int sink, tx, ty, vec, unroll;
    axes keep, fold;
    int64_t sets; /* of tx times ty threads */
    const char *acc, *op;
    int bytes; /* of shared memory, of a set */
} section;

static section section_of(const pl_cg_pass *p, const pl_cg_runs *r, int s)
{
    const pl_cg_sink *k = &p->sink[s];
    pl_dtype d = p->instr[k->src].dtype;
    section x = {.sink = s, .acc = pl_cg_acc(d, k->reduce), .op = pl_cg_fold(k->reduce)};
    int one = (int)pl_cg_acc_bytes(d, k->reduce),
        most = r->moments ? MOST_OF_MOMENTS : MOST_THREADS;
    split(p, r, k->folded, &x.keep, &x.fold);
    /* neighbours in memory belong to other results */
    bool beside = r->n && !(k->folded >> (r->n - 1) & 1u);
    x.vec = beside && r->size[r->n - 1] % 4 == 0 ? 4 : 1;
    x.tx = !beside ? 1 : 8 / x.vec;
    int64_t each = r->moments ? EACH_OF_MOMENTS : EACH;
    for (x.ty = 8; each * x.ty < x.fold.total && 2 * x.ty * x.tx <= most;) x.ty *= 2;
    while (x.tx < 32 && x.tx * x.ty < LEAST_THREADS) x.tx *= 2;
    x.unroll = (int)pl_cg_clamp(128 / (x.vec * one), 1, 8);
    x.sets = pl_cg_ceil(x.keep.total, x.tx * x.vec);
    x.bytes = x.tx * x.ty / 32 * x.tx * x.vec * one;
    return x;
}

/* Writes the walk over a thread's partial results, in order; several are loaded at once, so that
 * their latencies overlap. */
static void put_walk(pl_cg *w, const section *x)
{
    pl_cg_put(w,
              "for (I f0_ = y_; f0_ < n_; f0_ += U * Y) {\np_vec<%s, V> r_[U];\n"
              "_Pragma(\"unroll\") for (int u = 0; u < U; u++) {\nconst I f_ = f0_ + u * Y;\n",
              x->acc);
    put_place(w, &x->fold, "f_ < n_ ? f_ : f0_", "at_");
    pl_cg_put(w, "r_[u] = *(const p_vec<%s, V> *)(A_ + at_);\n}\n", x->acc);
    pl_cg_put(
        w,
        "_Pragma(\"unroll\") for (int u = 0; u < U; u++) {\nif (f0_ + u * Y >= n_) break;\n"
        "_Pragma(\"unroll\") for (int j = 0; j < V; j++) t_[j] = %s::op(t_[j], r_[u].x[j]);\n}\n}\n",
        x->op);
}

/* Writes set b_ of a section; set_ is the set's number in the block, thread_ the thread's index in
 * it. */
static void put_section(pl_cg *w, const section *x)
{
    const pl_cg_sink *k = &w->p->sink[x->sink];
    int n_keep = pl_cg_size(w, x->keep.total), n_fold = pl_cg_size(w, x->fold.total);
    pl_cg_put(w, "const I x_ = thread_ %% X, y_ = thread_ / X, k_ = (b_ * X + x_) * V;\n");
    pl_cg_put(w, "const bool on_ = set_ < SETS && k_ < a.s[%d];\nconst I n_ = on_ ? a.s[%d] : 0;\n",
              n_keep, n_fold);
    put_place(w, &x->keep, "on_ ? k_ : 0", "base_");
    pl_cg_put(
        w, "%s t_[V];\n_Pragma(\"unroll\") for (int j = 0; j < V; j++) t_[j] = %s::none<%s>();\n",
        x->acc, x->op, x->acc);
    pl_cg_put(w, "const %s *const A_ = (const %s *)a.p[%d] + base_;\n", x->acc, x->acc,
              pl_cg_pointer(w, PL_CODE_WORK, 0, k->partial, 16));
    put_walk(w, x);
    pl_cg_put(
        w,
        "const %s v_ = p_across<%s, X, Y>(t_, sm_ + set_ * %d, thread_);\nconst I to_ = b_ * X * V + thread_;\n"
        "if (set_ < SETS && thread_ < X * V && to_ < a.s[%d]) {\n",
        x->acc, x->op, x->bytes, n_keep);
    pl_cg_put_result(w, x->sink, "v_", "to_");
    pl_cg_put(w, "}\n");
}

/* Returns the sets per block of a section, at most `most`. */
static int sets_of(const section *x, int threads, int most)
{
    return (int)pl_cg_clamp(threads / (x->tx * x->ty), 1, most);
}

/* Returns the fewest sets per block with which a large GPU, one block per multiprocessor, holds all
 * blocks at once; or as many as fit. */
static int most_sets(const section *x, int n, int threads)
{
    int most = 1;
    for (; most < threads / LEAST_THREADS; most *= 2) {
        int64_t blocks = 0;
        for (int i = 0; i < n; i++) blocks += pl_cg_ceil(x[i].sets, sets_of(&x[i], threads, most));
        if (blocks <= PL_CG_BLOCKS / 8) break;
    }
    return most;
}

pl_status pl_cg_folds(const pl_cg_pass *p, const pl_cg_runs *r, pl_arena *a, pl_code_kernel *out)
{
    pl_cg *w = pl_cg_new(p, a);
    section *x = pl_arena_new(a, section, p->n_sink + 1);
    if (!w || !x) return PL_ERR_MEMORY;
    int n = 0, bytes = 0, threads = LEAST_THREADS;
    int64_t first = 0;
    for (int s = 0; s < p->n_sink; s++) {
        if (p->sink[s].kind != PL_FUSED_REDUCE) continue;
        x[n] = section_of(p, r, s);
        if (x[n].tx * x[n].ty > threads) threads = x[n].tx * x[n].ty;
        n++;
    }
    int most = most_sets(x, n, threads);
    for (int i = 0; i < n; i++)
        if (x[i].bytes * (threads / (x[i].tx * x[i].ty)) > bytes)
            bytes = x[i].bytes * (threads / (x[i].tx * x[i].ty));
    pl_cg_head(w, threads, 1); /* all registers: loads in flight need them */
    pl_cg_put(w, "__shared__ __align__(16) unsigned char sm_[%d];\n", bytes);
    for (int i = 0; i < n; i++) {
        int sets = sets_of(&x[i], threads, most);
        int64_t next = first + pl_cg_ceil(x[i].sets, sets);
        int lo = pl_cg_size(w, first), hi = pl_cg_size(w, next);
        pl_cg_put(w, "if ((I)blockIdx.x >= a.s[%d] && (I)blockIdx.x < a.s[%d]) {\n", lo, hi);
        pl_cg_put(w, "enum { X = %d, Y = %d, V = %d, U = %d, SETS = %d };\n", x[i].tx, x[i].ty,
                  x[i].vec, x[i].unroll, sets);
        pl_cg_put(w,
                  "const I set_ = threadIdx.x / (X * Y), thread_ = threadIdx.x %% (X * Y);\n"
                  "const I b_ = ((I)blockIdx.x - a.s[%d]) * SETS + set_;\n",
                  lo);
        put_section(w, &x[i]);
        pl_cg_put(w, "}\n");
        first = next;
    }
    pl_cg_put(w, "}\n");
    return pl_cg_finish(w, (uint32_t)first, (uint32_t)threads, 1, out);
}
