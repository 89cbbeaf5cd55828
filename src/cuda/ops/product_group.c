/* product_group.c - prepare and run of a group that begins with a product (ir/group/product.h).
 *
 * There are two ways: one generated kernel for both (codegen_product.c), or the product's own
 * kernel (a library's) and the group behind it. Each distinct unit has both timed once, with
 * numbers drawn at random; the joined kernel is taken if it is CLEARLY faster and keeps no
 * registers in memory, which the driver would have to reserve for every thread. Choices are stored
 * (choice.h), so that a unit has one way, and one order of its sums, in every plan and every run.
 *
 * In separate kernels, a product's result that is not an output of the unit is in scratch.
 */
#include "cuda/codegen/cuda_group.h"

#include "base/arena.h"
#include "base/sys.h"
#include "cuda/codegen/codegen_cache.h"
#include "cuda/device/choice.h"
#include "cuda/device/device_int.h"
#include "ir/group/product.h"

#include <cuda.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define CLEARLY 1.03f /* the joined kernel must be so many times as fast */
enum { HOPPER = 90, MAX_IN = 8 };

typedef struct prepared {
    pl_arena arena;
    pl_plain_product m;
    pl_dtype dtype;
    uint32_t n_in, n_out, n_head; /* of the unit; operands of the product */
    uint32_t at[MAX_IN];          /* operand i of the product is this input of the unit */
    bool stored;                  /* the unit's last output is the product's result */
    pl_unit behind;
    /* joined */
    pl_cuda_code *joined;
    pl_code_tiles tiles;
    /* apart */
    pl_exec head;
    pl_call call; /* of the product */
    pl_cuda_code *group;
    size_t y_bytes, head_bytes; /* of scratch, before the group's */
    const void **in;            /* pointers of the group behind */
} prepared;

static size_t room(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

static void product_release(void *prep)
{
    prepared *k = prep;
    if (!k) return;
    pl_cuda_code_release(k->joined);
    pl_cuda_code_release(k->group);
    pl_exec_discard(&k->head);
    pl_arena_release(&k->arena);
    pl_sys_free(k);
}

/* ---- joined ------------------------------------------------------------------------------- */
typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static int64_t taps_of(const pl_plain_product *m)
{
    return m->window.taps[0] ? m->window.taps[0] * m->window.taps[1] : 1;
}

/* Describes a row-major matrix of which 64 columns of `rows` rows are copied at a time. */
static pl_status encode(encode_fn *fn, const prepared *k, const void *at, int64_t height,
                        int64_t width, int rows, pl_cuda_map *out)
{
    CUtensorMap map;
    const cuuint64_t dim[2] = {(cuuint64_t)width, (cuuint64_t)height},
                     stride[1] = {(cuuint64_t)width * 2};
    const cuuint32_t box[2] = {64, (cuuint32_t)rows}, step[2] = {1, 1};
    CUresult rc =
        fn(&map,
           k->dtype == PL_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
           2, (void *)(uintptr_t)at, dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        return pl_cuda_driver_failed(rc, "cuTensorMapEncodeTiled", __FILE__, __LINE__);
    memcpy(out, &map, sizeof map);
    return PL_OK;
}

typedef CUresult line_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                         const cuuint64_t *, const int *, const int *, cuuint32_t, cuuint32_t,
                         const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                         CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* Describes images as one line of pixels with gaps of zeros before each row and each image
 * (cuda/conv/windows.cuh), of which 64 channels of `range` pixels are copied at a time. */
static pl_status encode_line(const prepared *k, const void *at, pl_cuda_map *out)
{
    const pl_plain_product *m = &k->m;
    const int64_t *size = m->window.size, channels = m->k / taps_of(m);
    line_fn *fn;
    void *entry;
    CUtensorMap map;
    const cuuint64_t dim[4] = {(cuuint64_t)channels, (cuuint64_t)size[1], (cuuint64_t)size[0],
                               (cuuint64_t)(m->m / (size[0] * size[1]))},
                     stride[3] = {dim[0] * 2, dim[0] * dim[1] * 2, dim[0] * dim[1] * dim[2] * 2};
    const int before[2] = {-(int)k->tiles.gap[1], -(int)k->tiles.gap[0]}, after[2] = {0, 0};
    const cuuint32_t step[4] = {1, 1, 1, 1};
    PL_TRY(pl_cuda_driver("cuTensorMapEncodeIm2col", 12000, &entry));
    memcpy(&fn, &entry, sizeof fn);
    CUresult rc =
        fn(&map,
           k->dtype == PL_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
           4, (void *)(uintptr_t)at, dim, stride, before, after, 64, (cuuint32_t)k->tiles.range,
           step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        return pl_cuda_driver_failed(rc, "cuTensorMapEncodeIm2col", __FILE__, __LINE__);
    memcpy(out, &map, sizeof map);
    return PL_OK;
}

static pl_status run_joined(const prepared *k, const void *const *in, void *const *out, void *work)
{
    pl_cuda_map map[2];
    encode_fn *fn;
    void *entry;
    const pl_plain_product *m = &k->m;
    const void *b = in[k->at[1]];
    PL_TRY(pl_cuda_driver("cuTensorMapEncodeTiled", 12000, &entry));
    memcpy(&fn, &entry, sizeof fn);
    PL_TRY(k->tiles.range ? encode_line(k, in[k->at[0]], &map[0])
                          : encode(fn, k, in[k->at[0]], m->m, m->k, k->tiles.bm, &map[0]));
    /* without tb the taps of a window are columns of b, not rows */
    PL_TRY(m->tb ? encode(fn, k, b, m->n, m->k, k->tiles.bn, &map[1])
                 : encode(fn, k, b, m->k / taps_of(m), m->n * taps_of(m), 64, &map[1]));
    return pl_cuda_code_run(k->joined, in, out, work, map);
}

/* Sets *ok: whether the unit can be one kernel. *text: a number for the computation of the
 * kernel. */
static pl_status prepare_joined(const pl_graph *g, const pl_unit *u, prepared *k, bool *ok,
                                pl_code_key *text)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_code made;
    *ok = false;
    if (pl_cuda_props_get()->arch != HOPPER) return PL_OK;
    pl_status rc = pl_code_make_product(g, u, &scratch, &made, &k->tiles);
    if (rc == PL_OK) {
        *text = pl_code_key_of(made.kernel[0].text, made.kernel[0].len, "");
        rc = pl_cuda_code_keep(&made, &k->joined);
    }
    *ok = rc == PL_OK;
    pl_arena_release(&scratch);
    return rc == PL_ERR_UNSUPPORTED ? PL_OK : rc;
}

/* ---- separate kernels --------------------------------------------------------------------- */
static pl_status run_apart(const prepared *k, const void *const *in, void *const *out, void *work)
{
    const void *head_in[MAX_IN];
    void *y = k->stored ? out[k->n_out - 1] : work;
    char *at = (char *)work + k->y_bytes;
    pl_call c = k->call;
    for (uint32_t i = 0; i < k->n_head; i++) head_in[i] = in[k->at[i]];
    c.in = head_in;
    c.out = &y;
    c.work = at;
    c.prep = k->head.prep;
    PL_TRY(k->head.kernel->run(&c));
    memcpy(k->in, in, sizeof *in * k->n_in);
    k->in[k->n_in] = y;
    return pl_cuda_code_run(k->group, k->in, out, at + k->head_bytes, NULL);
}

static pl_status prepare_apart(const pl_graph *g, uint32_t product, pl_cuda_prepare_fn *head,
                               prepared *k)
{
    const pl_node_rec *r = pl_node_get(g, product);
    uint32_t nodes[1] = {product}, outs[1] = {r->out};
    const pl_unit one = {.kind = PL_UNIT_KERNEL,
                         .n_nodes = 1,
                         .nodes = nodes,
                         .n_in = r->n_in,
                         .in = (uint32_t *)(uintptr_t)pl_node_in(g, product),
                         .n_out = 1,
                         .out = outs};
    pl_type *in = pl_arena_new(&k->arena, pl_type, r->n_in),
            *out = pl_arena_new(&k->arena, pl_type, PL_MAX_OUT);
    k->in = pl_arena_alloc(&k->arena, sizeof *k->in * (k->n_in + 1));
    if (!in || !out || !k->in) return PL_ERR_MEMORY;
    pl_node_call(g, product, in, out, &k->call);
    PL_TRY(head(g, &one, &k->call, false, &k->head));
    pl_arena scratch = PL_ARENA_INIT;
    pl_code made;
    pl_status rc = pl_code_make(g, &k->behind, &scratch, &made);
    if (rc == PL_OK) rc = pl_cuda_code_keep(&made, &k->group);
    pl_arena_release(&scratch);
    k->y_bytes = k->stored ? 0 : room(pl_type_bytes(&out[0]));
    k->head_bytes = room(k->head.work_bytes);
    return rc;
}

static size_t apart_bytes(const prepared *k)
{
    return k->y_bytes + k->head_bytes + pl_cuda_code_of(k->group)->work_bytes;
}

/* ---- the choice --------------------------------------------------------------------------- */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct trial {
    const prepared *k;
    bool joined;
    const void **in;
    void **out, *work;
} trial;

static pl_status trial_run(void *ctx)
{
    const trial *t = ctx;
    return (t->joined ? run_joined : run_apart)(t->k, t->in, t->out, t->work);
}

/* Floats are drawn: a GPU multiplies zeros faster than numbers. */
static pl_status fill(void *at, const pl_type *t, uint32_t stream)
{
    const pl_init normal = {.kind = PL_INIT_NORMAL, .b = 1};
    if (pl_dtype_is_float(t->dtype))
        return pl_cuda_start_values(at, t->dtype, 1, stream, &normal, 0, pl_type_elems(t));
    PL_CUDA(cudaMemsetAsync(at, 1, pl_type_bytes(t), pl_cuda_stream()));
    return PL_OK;
}

static pl_status time_both(const pl_graph *g, const pl_unit *u, const prepared *k, float ms[2])
{
    size_t work = room(apart_bytes(k)), more = pl_cuda_code_of(k->joined)->work_bytes, bytes, at;
    pl_arena scratch = PL_ARENA_INIT;
    trial t = {.k = k,
               .in = pl_arena_alloc(&scratch, sizeof *t.in * (u->n_in + 1)),
               .out = pl_arena_alloc(&scratch, sizeof *t.out * (u->n_out + 1))};
    char *block = NULL;
    pl_status rc = t.in && t.out ? pl_cuda_group_wait() : PL_ERR_MEMORY;
    at = bytes = work > more ? work : room(more);
    for (uint32_t i = 0; i < u->n_in; i++) bytes += room(pl_type_bytes(pl_type_of(g, u->in[i])));
    for (uint32_t i = 0; i < u->n_out; i++) bytes += room(pl_type_bytes(pl_type_of(g, u->out[i])));
    if (rc == PL_OK && cudaMalloc((void **)&block, bytes) != cudaSuccess) {
        (void)cudaGetLastError();
        rc = PL_ERR_MEMORY;
    }
    t.work = block;
    for (uint32_t i = 0; rc == PL_OK && i < u->n_in; i++) {
        t.in[i] = block + at;
        rc = fill(block + at, pl_type_of(g, u->in[i]), i);
        at += room(pl_type_bytes(pl_type_of(g, u->in[i])));
    }
    for (uint32_t i = 0; rc == PL_OK && i < u->n_out; i++) {
        t.out[i] = block + at;
        at += room(pl_type_bytes(pl_type_of(g, u->out[i])));
    }
    for (int i = 0; rc == PL_OK && i < 2; i++) {
        t.joined = i == 1;
        rc = pl_cuda_time(trial_run, &t, &ms[i]);
    }
    if (block) cudaFree(block);
    pl_arena_release(&scratch);
    return rc;
}

/* Decides, and leaves only the chosen way prepared. *ms: its time. */
static pl_status choose(const pl_graph *g, const pl_unit *u, uint32_t product,
                        pl_cuda_prepare_fn *head, pl_code_key text, prepared *k, float *ms)
{
    char key[300];
    const pl_plain_product *m = &k->m;
    pl_cuda_timed t = {0, 0};
    int used =
        snprintf(key, sizeof key,
                 "joined:%s:%s:%" PRId64 "x%" PRId64 "x%" PRId64 ":%d%d:%016" PRIx64 "%016" PRIx64,
                 pl_node_get(g, product)->op->name, pl_dtype_name(k->dtype), m->m, m->n, m->k,
                 m->tb, k->stored, text.hi, text.lo);
    for (int d = 0; d < 2 && m->window.taps[0]; d++)
        used += snprintf(key + used, sizeof key - (size_t)used,
                         ":%" PRId64 "k%" PRId64 "d%" PRId64 "p%" PRId64, m->window.size[d],
                         m->window.taps[d], m->window.apart[d], m->window.pad[d]);
    bool known = pl_cuda_timed_get(key, 2, &t);
    if (!known || t.at == 0) PL_TRY(prepare_apart(g, product, head, k));
    if (!known) {
        float both[2] = {0, 0};
        bool left = pl_cuda_time_left();
        pthread_mutex_lock(&lock);
        pl_status rc = left ? time_both(g, u, k, both) : PL_OK;
        pthread_mutex_unlock(&lock);
        if (rc == PL_ERR_MEMORY) rc = PL_OK;
        PL_TRY(rc);
        t.at = both[1] > 0 && both[1] * CLEARLY < both[0] && !pl_cuda_code_spills(k->joined);
        t.ms = both[t.at];
        if (t.ms > 0 || !left) pl_cuda_timed_put(key, 2, &t);
    }
    *ms = t.ms;
    if (t.at == 0) {
        pl_cuda_code_release(k->joined);
        k->joined = NULL;
    }
    return PL_OK;
}

/* ---- the kernel --------------------------------------------------------------------------- */
static pl_status product_run(const pl_call *c)
{
    const prepared *k = c->prep;
    return (k->joined ? run_joined : run_apart)(k, c->in, c->out, c->work);
}

static const pl_kernel joined_kernel = {
    .name = "wgmma", .release = product_release, .run = product_run};
static const pl_kernel apart_kernel = {
    .name = "apart", .release = product_release, .run = product_run};

static pl_status describe(const pl_graph *g, const pl_unit *u, uint32_t product, prepared *k)
{
    const pl_node_rec *r = pl_node_get(g, product);
    pl_type in[MAX_IN], out[PL_MAX_OUT];
    pl_call c;
    PL_FAIL_IF(r->n_in > MAX_IN, PL_ERR_UNSUPPORTED, "a product of %u operands", r->n_in);
    pl_node_call(g, product, in, out, &c);
    r->op->product(&c, &k->m);
    k->dtype = out[0].dtype;
    k->n_in = u->n_in;
    k->n_out = u->n_out;
    k->n_head = r->n_in;
    k->stored = u->n_out && u->out[u->n_out - 1] == r->out;
    for (uint32_t i = 0; i < r->n_in; i++)
        while (u->in[k->at[i]] != pl_node_in(g, product)[i]) k->at[i]++;
    return pl_group_behind(g, u, &k->arena, &k->behind);
}

static pl_status build(const pl_graph *g, const pl_unit *u, pl_cuda_prepare_fn *head, prepared *k,
                       pl_exec *out)
{
    uint32_t product = pl_group_product(g, u);
    bool ok;
    float ms = 0;
    pl_code_key text = {0, 0};
    PL_TRY(describe(g, u, product, k));
    PL_TRY(prepare_joined(g, u, k, &ok, &text));
    PL_TRY(ok ? choose(g, u, product, head, text, k, &ms) : prepare_apart(g, product, head, k));
    const pl_code *code = pl_cuda_code_of(k->joined ? k->joined : k->group);
    const bool *may = code->inplace;
    if (!k->joined) {
        bool *table;
        PL_TRY(pl_group_product_inplace(g, u, &k->behind, may, &k->arena, &table));
        may = table;
    }
    *out = (pl_exec){.kernel = k->joined ? &joined_kernel : &apart_kernel,
                     .prep = k,
                     .inplace = may,
                     .work_bytes = k->joined ? code->work_bytes : apart_bytes(k),
                     .measured_ns = 1e6 * (double)ms};
    return PL_OK;
}

pl_status pl_cuda_product_prepare(const pl_graph *g, const pl_unit *u, pl_cuda_prepare_fn *head,
                                  pl_exec *out)
{
    prepared *k = pl_sys_alloc(sizeof *k);
    if (!k) return PL_ERR_MEMORY;
    pl_status rc = build(g, u, head, k, out);
    if (rc != PL_OK) product_release(k);
    return rc;
}
