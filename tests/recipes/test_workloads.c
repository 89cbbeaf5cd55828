/* test_workloads.c - whole training systems, five steps, against PyTorch's numbers.
 *
 * tests/data/peers/<name>.json is written by tools/oracle/peer_numbers.py, which explains it:
 * parameters and inputs come from a hash of their names on both sides; loss terms, and norms
 * and sign projections of gradients and changes, are compared. All elements are counted in the
 * order of PyTorch's files, so layouts are tested along the way.
 */
#include "base/sys.h"
#include "tests/lib/lab.h"
#include "tests/lib/test.h"
#include "tests/recipes/peer.h"
#include "tests/workloads/workloads.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- inputs and outputs ----------------------------------------------------------------- */
/* PyTorch has (B,C,H,W) where we have (B,H,W,C). */
static int64_t *input_order(const pl_type *t, int64_t *n)
{
    static const int plain[PL_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7}, image[4] = {0, 3, 1, 2};
    return peer_file_order(t->rank, t->dim, t->rank == 4 ? image : plain, n);
}

/* ---- one workload ----------------------------------------------------------------------- */
typedef void build_fn(pl_nn *m, const void *config);
/* One run of a program in a step, on which micro-batch (0: the program chooses). */
typedef struct call {
    int program, micro;
} call;
typedef struct work {
    const char *name;
    const void *config;
    build_fn *build[4];
    int (*calls)(int step, call *out); /* step: from 1; returns the number of calls */
} work;

typedef struct bench {
    const work *w;
    json_t *data;
    pl_store *store;
    lab *lab;
    double **start; /* of each slot, in file order */
    int n_slots;
} bench;

static void bench_close(bench *b)
{
    for (int i = 0; b->start && i < b->n_slots; i++) pl_sys_free(b->start[i]);
    pl_sys_free(b->start);
    lab_free(b->lab);
    pl_store_free(b->store);
    json_decref(b->data);
}

/* Builds every program of the workload. */
static pl_status bench_build(bench *b)
{
    b->store = pl_store_new();
    b->lab = lab_new(b->store);
    for (int i = 0; i < 4 && b->w->build[i]; i++) {
        pl_graph *g = pl_graph_new(b->store);
        pl_nn *m = pl_nn_new(g, true);
        b->w->build[i](m, b->w->config);
        pl_status rc = pl_nn_finish(m);
        pl_nn_free(m);
        lab_add(b->lab, g);
        if (rc != PL_OK) return rc;
    }
    return lab_open(b->lab);
}

static void put(pl_dtype d, void *p, int64_t i, double v)
{
    if (d == PL_F32) ((float *)p)[i] = (float)v;
    if (d == PL_I64) ((int64_t *)p)[i] = (int64_t)v;
    if (d == PL_BOOL) ((uint8_t *)p)[i] = v != 0;
}

static double get(pl_dtype d, const void *p, int64_t i)
{
    return d == PL_I64 ? (double)((const int64_t *)p)[i] : (double)((const float *)p)[i];
}

/* Returns the values of a tensor in file order. The caller frees them. */
static double *in_file_order(const pl_slot *s, const void *p, int64_t *n)
{
    int64_t *index = peer_slot_order(s, n);
    double *x = pl_sys_alloc(sizeof *x * (size_t)(*n + 1));
    for (int64_t i = 0; i < *n; i++) x[i] = get(s->type.dtype, p, index[i]);
    pl_sys_free(index);
    return x;
}

static void start_slot(bench *b, int slot, const char *name, json_t *row)
{
    const pl_slot *s = pl_store_slot(b->store, slot);
    json_t *values = json_object_get(row, "values"), *fill = json_object_get(row, "fill");
    uint64_t base = peer_hash(name);
    int64_t n, *index = peer_slot_order(s, &n);
    for (int64_t i = 0; i < n; i++) {
        double v = values ? json_number_value(json_array_get(values, (size_t)i))
                          : json_number_value(json_array_get(fill, 0)) +
                                json_number_value(json_array_get(fill, 1)) * peer_noise(base, i);
        put(s->type.dtype, lab_slot(b->lab, slot), index[i], v);
    }
    pl_sys_free(index);
    b->start[slot] = in_file_order(s, lab_slot(b->lab, slot), &n);
}

/* Sets the initial value of every tensor of the PyTorch program; false if a tensor has no slot
 * of its shape. */
static bool bench_start(bench *b)
{
    const char *name;
    json_t *row;
    b->n_slots = pl_store_count(b->store);
    b->start = pl_sys_alloc(sizeof *b->start * (size_t)b->n_slots);
    int model_slots = 0, rows = 0;
    for (int i = 0; i < b->n_slots; i++)
        model_slots += pl_store_slot(b->store, i)->kind <= PL_SLOT_BUFFER;
    json_object_foreach(json_object_get(b->data, "tensors"), name, row)
    {
        int slot = pl_store_find(b->store, name);
        if (slot < 0 ||
            !peer_same_shape(pl_store_slot(b->store, slot), json_object_get(row, "shape"))) {
            pl_test_fail(__FILE__, __LINE__, "%s: no slot, or another shape", name);
            return false;
        }
        start_slot(b, slot, name, row);
        rows++;
    }
    if (rows != model_slots)
        pl_test_fail(__FILE__, __LINE__, "%d tensors in the peer, %d in the store", rows,
                     model_slots);
    return rows == model_slots;
}

/* ---- inputs ----------------------------------------------------------------------------- */
typedef struct ranked {
    double u;
    int64_t i;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->u < y->u ? -1 : x->u > y->u ? 1 : x->i < y->i ? -1 : x->i > y->i;
}

static void permutation(uint64_t base, int64_t n, int64_t count, int64_t *out)
{
    ranked *r = pl_sys_alloc(sizeof *r * (size_t)n);
    for (int64_t i = 0; i < n; i++) r[i] = (ranked){peer_uniform(base, i), i};
    qsort(r, (size_t)n, sizeof *r, by_rank);
    for (int64_t i = 0; i < count; i++) out[i] = r[i].i;
    pl_sys_free(r);
}

static double draw(const char *kind, double arg, uint64_t base, int64_t i)
{
    if (!strcmp(kind, "normal")) return peer_noise(base, i);
    double u = peer_uniform(base, i);
    if (!strcmp(kind, "symmetric")) return u * 2 - 1;
    if (!strcmp(kind, "sparse")) return u > 0.9 ? 1 : -1;
    if (!strcmp(kind, "bool")) return u < 0.4;
    if (!strcmp(kind, "int")) return floor(u * arg);
    return u;
}

static void give_input(bench *b, int program, const char *input, const char *label, json_t *how)
{
    pl_type t;
    void *p = lab_input(b->lab, program, input, &t);
    if (!p) return;
    const char *kind = json_string_value(json_object_get(how, "kind"));
    int64_t arg = json_integer_value(json_object_get(how, "arg"));
    uint64_t base = peer_hash(label);
    int64_t n, *index = input_order(&t, &n);
    if (!strcmp(kind, "perm"))
        permutation(base, arg, n, p);
    else
        for (int64_t i = 0; i < n; i++) put(t.dtype, p, index[i], draw(kind, (double)arg, base, i));
    pl_sys_free(index);
}

static void give_inputs(bench *b, int step, call at)
{
    const char *name;
    json_t *how;
    char input[96], label[128];
    json_object_foreach(json_object_get(b->data, "inputs"), name, how)
    {
        for (int micro = 1; micro <= 8; micro++) {
            if (at.micro && at.micro != micro) continue;
            if (at.micro)
                snprintf(input, sizeof input, "%s", name);
            else
                snprintf(input, sizeof input, "micro%d.%s", micro, name);
            snprintf(label, sizeof label, "step%d.micro%d.%s", step, micro, name);
            give_input(b, at.program, input, label, how);
        }
    }
}

/* ---- comparison ------------------------------------------------------------------------- */
typedef struct worst {
    double loss, grad, change, state; /* change: a share of what allowed_change allows */
    int grads;                        /* gradients compared */
    char grad_name[128], change_name[128], state_name[128];
} worst;

static void note(double d, const char *name, double *most, char *most_name)
{
    if (d <= *most) return; /* NaN counts as a deviation */
    *most = d;
    snprintf(most_name, 128, "%s", name);
}

static double grad_norm(json_t *row)
{
    return json_number_value(json_array_get(json_object_get(row, "grad"), 0));
}

static double largest_grad(bench *b)
{
    const char *name;
    json_t *row;
    double most = 0;
    json_object_foreach(json_object_get(b->data, "tensors"), name, row) most =
        fmax(most, grad_norm(row));
    return most;
}

/* Compares gradients that the program wrote as outputs; returns their number. Some are only
 * rounding noise (biases before a BatchNorm), so small gradients are measured against a
 * hundredth of the largest. */
static int check_gradients(bench *b, int program, worst *w)
{
    const char *name;
    json_t *row, *want;
    char output[256];
    int checked = 0;
    double floor_norm = 1e-2 * largest_grad(b);
    json_object_foreach(json_object_get(b->data, "tensors"), name, row)
    {
        snprintf(output, sizeof output, "grad.%s", name);
        const void *p = lab_output(b->lab, program, output, NULL);
        if (!p || !(want = json_object_get(row, "grad"))) continue;
        int64_t n;
        double *x = in_file_order(pl_store_slot(b->store, pl_store_find(b->store, name)), p, &n);
        note(peer_deviation(peer_summarise(x, n), want, floor_norm), name, &w->grad, w->grad_name);
        pl_sys_free(x);
        checked++;
    }
    return checked;
}

static int count_gradients(bench *b)
{
    const char *name;
    json_t *row;
    int n = 0;
    json_object_foreach(json_object_get(b->data, "tensors"), name, row) n +=
        json_object_get(row, "grad") != NULL;
    return n;
}

/* Runs one step and compares its loss terms; in the first step also its gradients. */
static pl_status run_step(bench *b, int step, worst *w)
{
    call calls[8];
    int n = b->w->calls(step, calls);
    json_t *want = json_array_get(json_object_get(b->data, "steps"), (size_t)step - 1), *value;
    const char *term;
    double sums[8] = {0};
    for (int i = 0; i < n; i++) {
        give_inputs(b, step, calls[i]);
        PL_TRY(lab_run(b->lab, calls[i].program));
        if (step == 1) w->grads += check_gradients(b, calls[i].program, w);
        int at = 0;
        json_object_foreach(want, term, value)
        {
            const float *v = lab_output(b->lab, calls[i].program, term, NULL);
            if (v) sums[at] += (double)*v;
            at++;
        }
    }
    int at = 0;
    json_object_foreach(want, term, value)
    {
        double ref = json_number_value(value), got = sums[at++];
        double d = fabs(got - ref) / fmax(fabs(ref), 1e-2);
        if (d > 1e-5)
            printf("    %s step %d: %s = %.9g, PyTorch has %.9g\n", b->w->name, step, term, got,
                   ref);
        if (!(d <= w->loss)) w->loss = d;
    }
    return PL_OK;
}

/* A few gradients near 0 change their sign with the order of summation, and Adam makes full steps
 * of them. PyTorch shows how much that moves the change of this tensor: spread. */
static double allowed_change(json_t *row)
{
    return 0.005 + 2 * json_number_value(json_object_get(row, "spread"));
}

/* Compares the result of training: changes of parameters, values of buffers and averages. Adam
 * turns a gradient that is noise into steps of random sign, so parameters with such gradients
 * only are left out, and so are running means that follow them. */
static void check_final(bench *b, worst *w)
{
    const char *name;
    json_t *row, *want;
    char ema[256];
    double noise_level = 1e-5 * largest_grad(b);
    json_object_foreach(json_object_get(b->data, "tensors"), name, row)
    {
        int64_t n;
        int slot = pl_store_find(b->store, name);
        const pl_slot *s = pl_store_slot(b->store, slot);
        double *x = in_file_order(s, lab_slot(b->lab, slot), &n);
        if ((want = json_object_get(row, "final"))) {
            double d = peer_deviation(peer_summarise(x, n), want, 0);
            note(strstr(name, "running_mean") ? d / 50 : d, name, &w->state, w->state_name);
        }
        for (int64_t i = 0; i < n; i++) x[i] -= b->start[slot][i];
        bool moves = grad_norm(row) > noise_level;
        if (moves && (want = json_object_get(row, "change")))
            note(peer_deviation(peer_summarise(x, n), want, 0) / allowed_change(row), name,
                 &w->change, w->change_name);
        pl_sys_free(x);
        if (!moves || !(want = json_object_get(row, "ema"))) continue;
        snprintf(ema, sizeof ema, "ema.%s", name);
        int e = pl_store_find(b->store, ema);
        double d = HUGE_VAL;
        if (e >= 0) {
            x = in_file_order(s, lab_slot(b->lab, e), &n);
            d = peer_deviation(peer_summarise(x, n), want, 0);
            pl_sys_free(x);
        }
        note(d, ema, &w->state, w->state_name);
    }
}

static void run_work(const work *w)
{
    char path[256];
    bench b = {.w = w};
    worst far = {0};
    json_error_t error;
    snprintf(path, sizeof path, "tests/data/peers/%s.json", w->name);
    b.data = json_load_file(path, 0, &error);
    if (!b.data) {
        pl_test_fail(__FILE__, __LINE__, "%s: %s", path, error.text);
        return;
    }
    pl_status rc = bench_build(&b);
    if (rc == PL_OK && bench_start(&b)) {
        for (int step = 1; step <= 5 && rc == PL_OK; step++) rc = run_step(&b, step, &far);
        check_final(&b, &far);
        printf("    %s: losses %.1e, gradients %.1e (%s), changes %.2f of what is allowed (%s), "
               "state %.1e (%s)\n",
               w->name, far.loss, far.grad, far.grad_name, far.change, far.change_name, far.state,
               far.state_name);
        if (!(far.loss <= 1e-5 && far.grad <= 1e-4 && far.change <= 1 && far.state <= 1e-4 &&
              far.grads == count_gradients(&b)))
            pl_test_fail(__FILE__, __LINE__, "%s is not PyTorch's", w->name);
    }
    if (rc != PL_OK) pl_test_fail(__FILE__, __LINE__, "%s: %s", w->name, pl_error_text());
    bench_close(&b);
}

/* ---- the workloads ---------------------------------------------------------------------- */
static int once(int step, call *out)
{
    (void)step;
    out[0] = (call){0, 1};
    return 1;
}

static int all_micros(int step, call *out)
{
    (void)step;
    out[0] = (call){0, 0};
    return 1;
}

static int two_micros_then_apply(int step, call *out)
{
    (void)step;
    out[0] = (call){0, 1};
    out[1] = (call){0, 2};
    out[2] = (call){1, 1};
    return 3;
}

/* The penalty runs at even counts; the count starts at 2. */
static int disc_then_generator(int step, call *out)
{
    out[0] = (call){step % 2 ? 0 : 1, 1};
    out[1] = (call){2, 1};
    return 2;
}

TEST(workload_lgt_matches_pytorch)
{
    run_work(&(work){"lgt", &lgt_tiny, {lgt_micro, lgt_apply}, two_micros_then_apply});
}

TEST(workload_wandistill_matches_pytorch)
{
    run_work(&(work){"wandistill", &wan_tiny, {wan_step}, once});
}

TEST(workload_stablesr_edge_after_matches_pytorch)
{
    run_work(&(work){"stablesr-edge-after", &sr_edge_after_tiny, {sr_edge_step}, once});
}

TEST(workload_stablesr_edge_before_matches_pytorch)
{
    run_work(&(work){"stablesr-edge-before", &sr_edge_before_tiny, {sr_edge_step}, once});
}

TEST(workload_stablesr_full_matches_pytorch)
{
    run_work(&(work){"stablesr-full", &sr_tiny, {sr_step}, all_micros});
}

/* The next test covers most of this network too. */
TEST(workload_fluxflow_vae_matches_pytorch)
{
    if (!pl_test_long()) SKIP("long");
    run_work(&(work){"fluxflow-vae", &flux_tiny_vae, {flux_generator}, once});
}

TEST(workload_fluxflow_gan_matches_pytorch)
{
    run_work(&(work){"fluxflow-vae-gan-lpips",
                     &flux_tiny_gan,
                     {flux_disc_r1, flux_disc, flux_generator},
                     disc_then_generator});
}
