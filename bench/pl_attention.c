/* pl_attention.c - attention forward and backward on a GPU, one shape after the other.
 *
 *   pl_attention [-k] SHAPE...        SHAPE: BATCH,QUERIES,KEYS,HEADS,KV_HEADS,DIM,KIND,DTYPE
 *
 * KIND: full, causal, bool (a mask [B,1,N,M] of bool) or added (a mask [1,H,N,M] of the operands'
 * type). DTYPE: bf16, f16, f32, tf32. Prints one JSON line per shape: ms of all kernels of
 * the forward program and of what the gradient adds, the bytes of scratch, and the names of
 * the kernels; with -k also a line for each kernel. Shared heads of keys are repeated and their
 * gradients summed inside these times. bench/peers/attention.py compares with PyTorch.
 */
#include "lib/time_unit.h"
#include "plimsoll_nn.h"
#include "plimsoll_ops.h"

typedef struct problem {
    long b, n, m, heads, kv, d;
    char kind[16], type[16];
    pl_dtype dtype;
    enum pl_precision precision;
} problem;

static bool read_problem(const char *text, problem *p)
{
    if (sscanf(text, "%ld,%ld,%ld,%ld,%ld,%ld,%15[a-z],%15[a-z0-9]", &p->b, &p->n, &p->m, &p->heads,
               &p->kv, &p->d, p->kind, p->type) != 8)
        return false;
    bool bf16 = strcmp(p->type, "bf16") == 0, f16 = strcmp(p->type, "f16") == 0;
    p->dtype = bf16 ? PL_BF16 : f16 ? PL_F16 : PL_F32;
    p->precision = strcmp(p->type, "tf32") == 0 ? PL_PRECISION_TF32 : PL_PRECISION_FP32;
    return true;
}

/* Attention of the problem; with its gradient if back. */
static pl_program *compiled(pl_store *s, const problem *p, bool back)
{
    pl_graph *g = pl_graph_new(s);
    pl_val q = pl_input(g, "q", PL_TYPE(p->dtype, p->b, p->n, p->heads * p->d));
    pl_val k = pl_input(g, "k", PL_TYPE(p->dtype, p->b, p->m, p->kv * p->d));
    pl_val v = pl_input(g, "v", PL_TYPE(p->dtype, p->b, p->m, p->kv * p->d));
    pl_nn_attention o = {.heads = (int)p->heads, .kv_heads = (int)p->kv};
    o.causal = strcmp(p->kind, "causal") == 0;
    if (strcmp(p->kind, "bool") == 0)
        o.mask = pl_input(g, "mask", PL_TYPE(PL_BOOL, p->b, 1, p->n, p->m));
    if (strcmp(p->kind, "added") == 0)
        o.mask = pl_input(g, "mask", PL_TYPE(p->dtype, 1, p->heads, p->n, p->m));
    pl_val y = pl_nn_attend_with(g, q, k, v, o), in[3] = {q, k, v}, grad[3];
    pl_output(g, "y", y);
    if (back) {
        pl_val seed = pl_input(g, "d_y", pl_val_type(g, y));
        pl_grad_seeded(g, &y, &seed, 1, in, 3, grad);
        for (int i = 0; i < 3; i++) pl_output(g, i == 0 ? "d_q" : i == 1 ? "d_k" : "d_v", grad[i]);
    }
    pl_compile_opts opts = PL_COMPILE_INIT;
    pl_program *out = NULL;
    opts.device = "cuda";
    opts.precision = p->precision;
    if (pl_compile(g, &opts, &out) != PL_OK) die("compile");
    return out;
}

typedef struct total {
    double ms;
    size_t work;
    char names[200];
} total;

static total time_program(const pl_program *p, bool each)
{
    total t = {0};
    const pl_device_mode mode = {p->opts.precision == PL_PRECISION_TF32, false, false};
    p->dev->set_mode(&mode);
    for (uint32_t u = 0; u < p->base_units->n; u++) {
        const pl_unit *unit = &p->base_units->unit[u];
        const pl_op *op = pl_node_get(p->base_graph, unit->nodes[0])->op;
        const char *name;
        bool attends = strncmp(op->name, "attention", 9) == 0;
        if (unit->kind != PL_UNIT_KERNEL && unit->kind != PL_UNIT_GROUP) continue;
        if (!attends && (op->flags & (PL_OP_EFFECT | PL_OP_SOURCE))) continue;
        double ms = time_call(p, u, false, NULL, &name);
        t.ms += ms;
        size_t n = strlen(t.names);
        if (attends) snprintf(t.names + n, sizeof t.names - n, "%s%s", n ? " " : "", name);
        if (each) printf("  %8.4f ms %s %s\n", ms, op->name, name);
    }
    for (uint32_t u = 0; u < p->base_units->n; u++)
        if (p->exec[u].work_bytes > t.work) t.work = p->exec[u].work_bytes;
    return t;
}

int main(int argc, char **argv)
{
    bool each = argc > 1 && strcmp(argv[1], "-k") == 0;
    for (int i = each ? 2 : 1; i < argc; i++) {
        problem p = {0};
        pl_store *s = pl_store_new();
        if (!read_problem(argv[i], &p)) {
            fprintf(stderr, "%s is not BATCH,QUERIES,KEYS,HEADS,KV_HEADS,DIM,KIND,DTYPE\n",
                    argv[i]);
            return 2;
        }
        pl_program *f = compiled(s, &p, false), *b = compiled(s, &p, true);
        total x = time_program(f, each), y = time_program(b, each);
        printf("{\"shape\": \"%s\", \"forward_ms\": %.5f, \"backward_ms\": %.5f, \"scratch\": %zu, "
               "\"kernels\": \"%s\"}\n",
               argv[i], x.ms, y.ms - x.ms, y.work, y.names);
        fflush(stdout);
        pl_program_free(f);
        pl_program_free(b);
        pl_store_free(s);
    }
    return argc > 1 ? 0 : 2;
}
