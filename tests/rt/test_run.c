/* test_run.c - programs and sessions: the same numbers under every plan, no allocation in a run,
 * state that is exactly what assign writes. */
#include "tests/lib/graphs.h"
#include "tests/lib/ref_eval.h"
#include "tests/lib/test.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_OUT = 8, STEPS = 3 };

/* All state and outputs after a few runs. */
typedef struct trace {
    float *out[STEPS][MAX_OUT];
    size_t out_elems[MAX_OUT];
    float *state[64];
    int n_out, n_state;
} trace;

static void trace_free(trace *t)
{
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < MAX_OUT; i++) free(t->out[s][i]);
    for (int i = 0; i < 64; i++) free(t->state[i]);
}

static void initial_state(pl_store *store, uint64_t seed, int i, void *to)
{
    const pl_slot *s = pl_store_slot(store, i);
    fill_input(seed + 99, s->name, &s->type, to);
}

static size_t slot_bytes(pl_store *store, int i)
{
    return pl_type_bytes(&pl_store_slot(store, i)->type);
}

static pl_status trace_plain(pl_store *store, const pl_graph *g, uint64_t seed, trace *t)
{
    ref_eval *e = ref_eval_new(g);
    pl_status rc = PL_OK;
    t->n_state = pl_store_count(store);
    for (int i = 0; i < t->n_state; i++)
        if (ref_eval_slot(e, i)) initial_state(store, seed, i, ref_eval_slot(e, i));
    for (int s = 0; rc == PL_OK && s < STEPS; s++) {
        for (uint32_t n = 1; n < g->n_nodes; n++) {
            const pl_node_rec *r = pl_node_get(g, n);
            if (!(r->op->flags & PL_OP_SOURCE) || pl_node_slot(g, n) >= 0) continue;
            const char *name = pl_node_name(g, n);
            fill_input(seed + (uint64_t)s, name, pl_type_of(g, r->out), ref_eval_input(e, name));
        }
        rc = ref_eval_run(e);
        t->n_out = 0;
        for (uint32_t n = 1; rc == PL_OK && n < g->n_nodes; n++) {
            if (!(pl_node_get(g, n)->op->flags & PL_OP_EFFECT) || pl_node_slot(g, n) >= 0) continue;
            pl_val v = {pl_node_in(g, n)[0]};
            size_t bytes = pl_type_bytes(pl_type_of(g, v.id));
            t->out[s][t->n_out] = malloc(bytes + 1);
            memcpy(t->out[s][t->n_out++], ref_eval_get(e, v), bytes);
        }
    }
    for (int i = 0; i < t->n_state; i++) {
        t->state[i] = malloc(slot_bytes(store, i));
        if (ref_eval_slot(e, i))
            memcpy(t->state[i], ref_eval_slot(e, i), slot_bytes(store, i));
        else
            initial_state(store, seed, i, t->state[i]);
    }
    ref_eval_free(e);
    return rc;
}

static pl_status trace_compiled(pl_store *store, pl_graph *g, const pl_compile_opts *o,
                                uint64_t seed, trace *t)
{
    pl_program *p = NULL;
    pl_session *s = NULL;
    pl_status rc = pl_compile(g, o, &p);
    if (rc == PL_OK) rc = pl_session_new(store, 1, &p, &s);
    t->n_state = pl_store_count(store);
    for (int i = 0; rc == PL_OK && i < t->n_state; i++) {
        void *start = malloc(slot_bytes(store, i) + 1);
        initial_state(store, seed, i, start);
        rc = pl_session_write_slot(s, i, 0, start, slot_bytes(store, i));
        free(start);
    }
    for (int step = 0; rc == PL_OK && step < STEPS; step++) {
        for (int i = 0; i < pl_program_input_count(p); i++) {
            pl_type type;
            const char *name = pl_program_input_name(p, i);
            void *to = pl_session_input(s, p, name, &type);
            fill_input(seed + (uint64_t)step, name, &type, to);
        }
        rc = pl_session_run(s, p);
        if (rc == PL_OK) rc = pl_session_wait(s);
        t->n_out = pl_program_output_count(p);
        for (int i = 0; rc == PL_OK && i < t->n_out; i++) {
            pl_type type;
            const void *from = pl_session_output(s, p, pl_program_output_name(p, i), &type);
            t->out_elems[i] = (size_t)pl_type_elems(&type);
            t->out[step][i] = malloc(pl_type_bytes(&type) + 1);
            memcpy(t->out[step][i], from, pl_type_bytes(&type));
        }
    }
    for (int i = 0; rc == PL_OK && i < t->n_state; i++) {
        t->state[i] = malloc(slot_bytes(store, i));
        rc = pl_session_read_slot(s, i, 0, t->state[i], slot_bytes(store, i));
    }
    pl_session_free(s);
    pl_program_free(p);
    return rc;
}

/* The largest difference; INFINITY when the two have different types. tol 0 compares bits. */
static double array_distance(const float *a, const float *b, size_t n, bool bits)
{
    if (bits) return memcmp(a, b, n * sizeof *a) == 0 ? 0 : (double)INFINITY;
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d;
    }
    return worst;
}

static double trace_distance(pl_store *store, const trace *a, const trace *b, bool bits)
{
    double worst = 0;
    if (a->n_out != b->n_out) return (double)INFINITY;
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < a->n_out; i++)
            worst = fmax(worst, array_distance(a->out[s][i], b->out[s][i], b->out_elems[i], bits));
    for (int i = 0; i < a->n_state; i++)
        worst =
            fmax(worst, array_distance(a->state[i], b->state[i], slot_bytes(store, i) / 4, bits));
    return worst;
}

static const struct variant {
    const char *name;
    bool no_fuse, no_reuse, reference, poison, no_small;
} variants[] = {
    {"no_fuse no_reuse", true, true, false, false}, /* the others are compared with this result */
    {"no_fuse", true, false, false, false},         {"default", false, false, false, false},
    {"no_reuse", false, true, false, false},        {"no_fuse poison", true, false, false, true},
    {"poison", false, false, false, true},          {"no_small", false, false, false, false, true},
};

static pl_compile_opts options(const struct variant *v)
{
    pl_compile_opts o = PL_COMPILE_INIT;
    o.no_fuse = v->no_fuse;
    o.no_reuse = v->no_reuse;
    o.reference = v->reference;
    o.poison = v->poison;
    o.no_small = v->no_small;
    return o;
}

static void compare_all(uint64_t seed, int n_ops)
{
    trace plain = {0}, base = {0}, ref = {0};
    pl_store *store = pl_store_new();
    pl_graph *g = random_graph(store, seed, n_ops);
    CHECK_OK(pl_graph_status(g));
    CHECK_OK(trace_plain(store, g, seed, &plain));
    pl_graph_free(g);
    pl_compile_opts o = options(&(struct variant){"reference", false, false, true, true});
    CHECK_OK(trace_compiled(store, random_graph(store, seed, n_ops), &o, seed, &ref));
    CHECK_MSG(trace_distance(store, &plain, &ref, true) == 0, "seed %d: reference differs",
              (int)seed);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        trace t = {0};
        o = options(&variants[i]);
        CHECK_OK(trace_compiled(store, random_graph(store, seed, n_ops), &o, seed, &t));
        double far = trace_distance(store, &ref, &t, false);
        CHECK_MSG(far < 1e-4, "seed %d, %s: %g from the reference", (int)seed, variants[i].name,
                  far);
        if (i == 0) base = t;
        CHECK_MSG(trace_distance(store, &base, &t, true) == 0, "seed %d: %s differs from %s",
                  (int)seed, variants[i].name, variants[0].name);
        if (i) trace_free(&t);
    }
    trace_free(&plain);
    trace_free(&base);
    trace_free(&ref);
    pl_store_free(store);
}

TEST(run_of_random_graphs_matches_the_reference)
{
    int seeds = pl_test_long() ? 2000 : 80;
    for (int seed = 1; seed <= seeds; seed++) compare_all((uint64_t)seed, 5 + seed % 60);
}

/* On a device with its own memory: the same bits from every plan, close to plain arithmetic; on
 * the guarded CPU, the CPU's bits. */
static void compare_device(const char *device, uint64_t seed, int n_ops)
{
    trace base = {0}, cpu = {0};
    pl_store *store = pl_store_new();
    pl_compile_opts o = options(&variants[2]);
    CHECK_OK(trace_compiled(store, random_graph(store, seed, n_ops), &o, seed, &cpu));
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        trace t = {0};
        o = options(&variants[i]);
        o.device = device;
        CHECK_OK(trace_compiled(store, random_graph(store, seed, n_ops), &o, seed, &t));
        double far = trace_distance(store, &cpu, &t, strcmp(device, "apart") == 0);
        CHECK_MSG(far < 1e-4, "seed %d, %s on %s: %g from the CPU", (int)seed, variants[i].name,
                  device, far);
        if (i == 0) base = t;
        CHECK_MSG(trace_distance(store, &base, &t, true) == 0, "seed %d on %s: %s differs from %s",
                  (int)seed, device, variants[i].name, variants[0].name);
        if (i) trace_free(&t);
    }
    trace_free(&base);
    trace_free(&cpu);
    pl_store_free(store);
}

TEST(device_random_graphs_match_the_cpu)
{
    const char *given = getenv("PL_TEST_DEVICE");
    for (int seed = 1; seed <= 30; seed++)
        compare_device(given ? given : "apart", (uint64_t)seed, 5 + seed % 60);
}
