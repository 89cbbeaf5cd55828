/* capture.c - runs bound units in order, and captures a whole run as one CUDA graph.
 *
 * A program's units are captured once, and every run replays the graph. Capturing runs nothing:
 * kernels that load on first use load during capture or when the graph is instantiated. Where
 * capture fails (a library must run once to set itself up), and for programs with exchanges between
 * ranks, which connect at the first exchange, the units first run once, one by one, on zero inputs.
 * Uploads have their own stream:
 *
 *   upload stream:  wait for `taken`   host[side] -> stage          record `came[side]`
 *   stream:         wait for `came`    stage -> arena, record `taken`, graph,
 *                                      outputs -> mirror[side], record `done[side]`
 *
 * Moves between levels have separate streams (move_streams.h), captured with the units.
 *
 * In a graph a unit follows the units whose memory it needs (beside.h), not the unit before it in
 * the list: the GPU may run units beside each other. Before each unit, the capture sets the nodes
 * on which the unit's nodes depend; kernels do nothing for it.
 *
 * So a batch is uploaded while the previous run is still going, and the GPU may start run n + 1
 * before the host has read the outputs of run n.
 */
#include "base/sys.h"
#include "cuda/device/move_streams.h"
#include "cuda/ops/beside.h"
#include "cuda/ops/many.h"

typedef struct captured {
    const pl_capture_plan *plan;
    cudaGraphExec_t graph; /* NULL: eager, or nothing to run */
    cudaEvent_t came[2], begun[2], done[2];
} captured;

/* Programs share the stage, so these exist once: the event after which the stage may be
 * overwritten, and the program whose inputs it holds ahead of a run (NULL: none). */
static cudaEvent_t taken;
static const captured *stage_owner;

static pl_status enqueue_one(pl_cuda_moves *m, const pl_bound_unit *l)
{
    if (l->move) return pl_cuda_moves_begin(m, l);
    PL_TRY(pl_cuda_moves_wait(m, l));
    if (l->exec) return l->exec->kernel->run(&l->call);
    if (l->bytes)
        PL_CUDA(
            cudaMemcpyAsync(l->to, l->from, l->bytes, cudaMemcpyDeviceToDevice, pl_cuda_stream()));
    return PL_OK;
}

/* ---- edges of a graph --------------------------------------------------------------------- */
/* Nodes of a graph that a unit has added last: units that follow the unit also follow these. */
enum { MOST_NODES = 8 };
typedef struct last_nodes {
    cudaGraphNode_t node[MOST_NODES];
    cudaGraphEdgeData edge[MOST_NODES];
    size_t n;
} last_nodes;

/* A graph while it is captured. */
typedef struct weave {
    pl_beside list;
    last_nodes at[PL_BESIDE_SPAN];
    cudaGraphNode_t node[PL_BESIDE_SPAN * MOST_NODES]; /* scratch of follow */
    cudaGraphEdgeData edge[PL_BESIDE_SPAN * MOST_NODES];
} weave;

/* The next call on the stream follows all nodes of these entries. */
static pl_status follow(weave *w, uint64_t entries)
{
    size_t n = 0;
    for (int i = 0; i < PL_BESIDE_SPAN; i++)
        for (size_t k = 0; entries >> i & 1u && k < w->at[i].n; k++) {
            w->node[n] = w->at[i].node[k];
            w->edge[n++] = w->at[i].edge[k];
        }
    PL_CUDA(cudaStreamUpdateCaptureDependencies(pl_cuda_stream(), w->node, w->edge, n,
                                                cudaStreamSetCaptureDependencies));
    return PL_OK;
}

static pl_status note_last(last_nodes *out)
{
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *node;
    const cudaGraphEdgeData *edge;
    size_t n;
    PL_CUDA(cudaStreamGetCaptureInfo(pl_cuda_stream(), &status, NULL, NULL, &node, &edge, &n));
    PL_FAIL_IF(n > MOST_NODES, PL_ERR_UNSUPPORTED, "a unit ends in %zu kernels", n);
    for (size_t i = 0; i < n; i++) {
        out->node[i] = node[i];
        out->edge[i] = edge ? edge[i] : (cudaGraphEdgeData){0};
    }
    out->n = n;
    return PL_OK;
}

/* ---- units in order ----------------------------------------------------------------------- */
/* Consecutive small kernels of one kind become one launch where possible (cuda/ops/many.h). *step:
 * how many units have begun. */
static pl_status enqueue_next(pl_cuda_moves *moves, weave *w, const pl_bound_unit *l, uint32_t n,
                              uint32_t *step)
{
    const pl_call *calls[PL_CUDA_MANY];
    int n_calls, at = 0;
    *step = pl_cuda_together(l, n, calls, &n_calls);
    bool idle = *step == 1 && !l->exec && !l->bytes && !l->move;
    if (w && !idle) {
        uint64_t follows;
        bool opens;
        at = pl_beside_add(&w->list, l, *step, &follows, &opens);
        if (follows) PL_TRY(follow(w, follows));
    }
    if (n_calls > 1) {
        PL_TRY(pl_cuda_moves_wait(moves, l));
        PL_TRY(pl_cuda_many_of(l->exec->kernel)(calls, n_calls));
    } else {
        for (uint32_t k = 0; k < *step; k++) PL_TRY(enqueue_one(moves, &l[k]));
    }
    return w && !idle ? note_last(&w->at[at]) : PL_OK;
}

static pl_status enqueue_all(weave *w, const pl_bound_unit *l, uint32_t n, uint32_t *failed)
{
    pl_cuda_moves moves = {0};
    for (uint32_t i = 0, step; i < n; i += step) {
        *failed = i;
        PL_TRY(enqueue_next(&moves, w, l + i, n - i, &step));
    }
    PL_TRY(pl_cuda_moves_end(&moves));
    *failed = 0;
    return w ? follow(w, pl_beside_ends(&w->list)) : PL_OK;
}

pl_status pl_cuda_enqueue(const pl_bound_unit *l, uint32_t n, uint32_t *failed)
{
    return enqueue_all(NULL, l, n, failed);
}

/* ---- unit by unit ----------------------------------------------------------------------- */
static double bytes_of(const pl_bound_unit *l)
{
    double sum = 0;
    for (int i = 0; l->exec && i < l->call.n_in; i++)
        sum += (double)pl_type_bytes(&l->call.in_type[i]);
    for (int i = 0; l->exec && i < l->call.n_out; i++)
        sum += (double)pl_type_bytes(&l->call.out_type[i]);
    return sum;
}

/* Divides the time of a launch among its units by the bytes of their operands. */
static void divide(const pl_bound_unit *l, uint32_t n, double launch_ns, uint64_t *ns)
{
    double all = 0;
    for (uint32_t i = 0; i < n; i++) all += bytes_of(&l[i]);
    for (uint32_t i = 0; i < n; i++)
        ns[i] += (uint64_t)(launch_ns * (all > 0 ? bytes_of(&l[i]) / all : 1.0 / n));
}

/* Records an event before each launch and one after the last; at[i] is recorded before unit i. The
 * GPU never waits for the host in between, so the times equal the times of a run at full speed, in
 * order. */
static pl_status run_between(const pl_bound_unit *l, uint32_t n, cudaEvent_t *at, uint64_t *ns,
                             uint32_t *failed)
{
    pl_cuda_moves moves = {0};
    for (uint32_t i = 0, step; i < n; i += step) {
        *failed = i;
        PL_CUDA(cudaEventCreate(&at[i]));
        PL_CUDA(cudaEventRecord(at[i], pl_cuda_stream()));
        PL_TRY(enqueue_next(&moves, NULL, l + i, n - i, &step));
    }
    PL_CUDA(cudaEventCreate(&at[n]));
    PL_CUDA(cudaEventRecord(at[n], pl_cuda_stream()));
    PL_TRY(pl_cuda_moves_end(&moves));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    for (uint32_t i = 0, end; i < n; i = end) {
        float ms = 0;
        end = i + 1;
        while (!at[end]) end++;
        PL_CUDA(cudaEventElapsedTime(&ms, at[i], at[end]));
        divide(l + i, end - i, 1e6 * (double)ms, ns + i);
    }
    return PL_OK;
}

static pl_status run_timed(const pl_bound_unit *l, uint32_t n, uint64_t *ns, uint32_t *failed)
{
    cudaEvent_t *at = pl_sys_alloc(((size_t)n + 1) * sizeof(cudaEvent_t));
    if (!at) return PL_ERR_MEMORY;
    pl_status rc = run_between(l, n, at, ns, failed);
    for (uint32_t i = 0; i <= n; i++)
        if (at[i]) cudaEventDestroy(at[i]);
    pl_sys_free(at);
    return rc;
}

pl_status pl_cuda_run(const pl_bound_unit *l, uint32_t n, uint64_t *ns, uint32_t *failed)
{
    if (ns) return run_timed(l, n, ns, failed);
    PL_TRY(pl_cuda_enqueue(l, n, failed));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    return PL_OK;
}

/* ---- captured programs ------------------------------------------------------------------ */
static pl_status fetch_outputs(const pl_capture_plan *plan, int side)
{
    for (uint32_t i = 0; i < plan->n_out; i++)
        PL_CUDA(cudaMemcpyAsync((char *)plan->mirror[side] + plan->out[i].at, plan->out[i].device,
                                plan->out[i].bytes, cudaMemcpyDeviceToHost, pl_cuda_stream()));
    return PL_OK;
}

/* Captures the units into *out; w: they may run beside each other, NULL: in order. Relaxed mode:
 * internal work of a library on its first call is not part of the graph. */
static pl_status capture_graph(const captured *t, weave *w, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    *out = NULL;
    PL_CUDA(cudaStreamBeginCapture(pl_cuda_stream(), cudaStreamCaptureModeRelaxed));
    uint32_t failed;
    pl_status rc = enqueue_all(w, t->plan->units, t->plan->n_units, &failed);
    cudaError_t end = cudaStreamEndCapture(pl_cuda_stream(), &graph);
    if (rc == PL_OK && end != cudaSuccess)
        rc = pl_cuda_failed(end, "cudaStreamEndCapture", __FILE__, __LINE__);
    if (rc == PL_OK) {
        cudaError_t made = cudaGraphInstantiate(out, graph, 0);
        if (made != cudaSuccess)
            rc = pl_cuda_failed(made, "cudaGraphInstantiate", __FILE__, __LINE__);
    }
    if (rc == PL_OK) {
        cudaError_t up = cudaGraphUpload(*out, pl_cuda_stream());
        if (up != cudaSuccess) rc = pl_cuda_failed(up, "cudaGraphUpload", __FILE__, __LINE__);
    }
    if (graph) cudaGraphDestroy(graph);
    if (rc != PL_OK && *out) {
        cudaGraphExecDestroy(*out);
        *out = NULL;
    }
    cudaGetLastError();
    return rc;
}

static pl_status make_events(captured *t)
{
    unsigned plain = cudaEventDisableTiming;
    if (!taken) PL_CUDA(cudaEventCreateWithFlags(&taken, plain));
    for (int k = 0; k < 2; k++) {
        PL_CUDA(cudaEventCreateWithFlags(&t->came[k], plain));
        PL_CUDA(cudaEventCreate(&t->begun[k]));
        PL_CUDA(cudaEventCreate(&t->done[k]));
    }
    return PL_OK;
}

pl_status pl_cuda_capture_send(void *p, int side)
{
    captured *t = p;
    const pl_capture_plan *plan = t->plan;
    cudaStream_t up = pl_cuda_upload_stream();
    if (!plan->in_bytes) return PL_OK;
    PL_CUDA(cudaStreamWaitEvent(up, taken, 0));
    PL_CUDA(
        cudaMemcpyAsync(plan->stage, plan->host[side], plan->in_bytes, cudaMemcpyHostToDevice, up));
    PL_CUDA(cudaEventRecord(t->came[side], up));
    stage_owner = t;
    return PL_OK;
}

static pl_status take_staged(const pl_capture_plan *plan)
{
    cudaStream_t stream = pl_cuda_stream();
    stage_owner = NULL;
    for (uint32_t i = 0; i < plan->n_in; i++)
        if (plan->in[i].bytes)
            PL_CUDA(cudaMemcpyAsync(plan->in[i].device, (char *)plan->stage + plan->in[i].at,
                                    plan->in[i].bytes, cudaMemcpyDeviceToDevice, stream));
    PL_CUDA(cudaEventRecord(taken, stream));
    return PL_OK;
}

/* Uploads again if another program has overwritten the stage since the inputs were sent. */
static pl_status take_inputs(captured *t, int side, bool sent)
{
    if (!t->plan->in_bytes) return PL_OK;
    if (!sent || stage_owner != t) PL_TRY(pl_cuda_capture_send(t, side));
    PL_CUDA(cudaStreamWaitEvent(pl_cuda_stream(), t->came[side], 0));
    return take_staged(t->plan);
}

static pl_status take_zeros(const pl_capture_plan *plan)
{
    if (!plan->in_bytes) return PL_OK;
    PL_CUDA(cudaMemsetAsync(plan->stage, 0, plan->in_bytes, pl_cuda_stream()));
    return take_staged(plan);
}

static pl_status rehearse(captured *t, uint32_t *failed)
{
    const pl_capture_plan *plan = t->plan;
    PL_TRY(take_zeros(plan));
    PL_TRY(pl_cuda_enqueue(plan->units, plan->n_units, failed));
    *failed = plan->n_units;
    cudaError_t rc = cudaStreamSynchronize(pl_cuda_stream());
    if (rc != cudaSuccess)
        return pl__fail_prefix(
            pl_cuda_failed(rc, "cudaStreamSynchronize behind the first run", __FILE__, __LINE__),
            "a kernel failed (CUDA_LAUNCH_BLOCKING=1 shows which one)");
    return PL_OK;
}

static bool has_exchanges(const pl_capture_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_units; i++)
        if (plan->units[i].exchange) return true;
    return false;
}

/* ---- one after the other, or beside each other ---------------------------------------- */
/* Sets *ms to the milliseconds of a run among some runs in a row. */
static pl_status time_runs(const captured *t, cudaGraphExec_t graph, int runs, float *ms)
{
    cudaStream_t stream = pl_cuda_stream();
    PL_CUDA(cudaEventRecord(t->begun[0], stream));
    for (int i = 0; i < runs; i++) PL_CUDA(cudaGraphLaunch(graph, stream));
    PL_CUDA(cudaEventRecord(t->done[0], stream));
    PL_CUDA(cudaStreamSynchronize(stream));
    PL_CUDA(cudaEventElapsedTime(ms, t->begun[0], t->done[0]));
    *ms /= (float)runs;
    return PL_OK;
}

/* Times a graph after a first run, which loads modules that are loaded on first use. */
static pl_status time_graph(const captured *t, cudaGraphExec_t graph, float *ms)
{
    enum { RUNS = 3 };
    PL_TRY(time_runs(t, graph, 1, ms));
    return time_runs(t, graph, RUNS, ms);
}

static pl_status make_woven(captured *t)
{
    weave *w = pl_sys_alloc(sizeof *w);
    if (!w) return PL_ERR_MEMORY;
    pl_status rc = capture_graph(t, w, &t->graph);
    pl_sys_free(w);
    return rc;
}

static void drop_graph(captured *t)
{
    if (t->graph) cudaGraphExecDestroy(t->graph);
    t->graph = NULL;
}

/* Units of less than SHORT_US microseconds on average leave a part of the GPU idle: where they may
 * run beside each other, both graphs are timed on zero inputs, and the faster one stays. Long units
 * fill the GPU, and edges between branches of a graph cost more than edges of a chain. The bits are
 * the same. A graph takes memory for every kernel, so there is one at a time; one with branches
 * takes more (30 to 150 MiB of the driver for the networks of bench/results on an H200), so plans
 * within a budget run in order. */
static pl_status choose_form(captured *t)
{
    const float SHORT_US = 60, CLEARLY = 1.01f;
    const pl_capture_plan *plan = t->plan;
    float chain_ms, woven_ms;
    if (!plan->beside || !pl_beside_allowed(plan->units, plan->n_units)) return PL_OK;
    PL_TRY(take_zeros(plan));
    PL_TRY(time_runs(t, t->graph, 1, &chain_ms));
    if (1e3f * chain_ms > SHORT_US * (float)plan->n_units) return PL_OK;
    PL_TRY(time_graph(t, t->graph, &chain_ms));
    drop_graph(t);
    if (make_woven(t) == PL_OK) {
        PL_TRY(time_graph(t, t->graph, &woven_ms));
        if (woven_ms * CLEARLY < chain_ms) return PL_OK;
        drop_graph(t);
    }
    return capture_graph(t, NULL, &t->graph);
}

static pl_status record(captured *t, uint32_t *failed)
{
    const pl_capture_plan *plan = t->plan;
    bool graph = !plan->eager && plan->n_units > 0;
    if (!graph || has_exchanges(plan) || capture_graph(t, NULL, &t->graph) != PL_OK) {
        PL_TRY(rehearse(t, failed));
        if (!graph) return PL_OK;
        pl_status again = capture_graph(t, NULL, &t->graph);
        if (again != PL_OK)
            return pl__fail_prefix(again, "CUDA graph capture failed; try compile.mode=eager");
    }
    PL_TRY(choose_form(t));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    return PL_OK;
}

pl_status pl_cuda_capture_new(const pl_capture_plan *plan, void **out, uint32_t *failed)
{
    captured *t = pl_sys_alloc(sizeof *t);
    *failed = plan->n_units;
    if (!t) return PL_ERR_MEMORY;
    t->plan = plan;
    pl_status rc = make_events(t);
    if (rc == PL_OK) rc = record(t, failed);
    if (rc != PL_OK) {
        pl_cuda_capture_free(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

void pl_cuda_capture_free(void *p)
{
    captured *t = p;
    if (!t) return;
    if (stage_owner == t) stage_owner = NULL;
    cudaDeviceSynchronize();
    drop_graph(t);
    for (int k = 0; k < 2; k++) {
        if (t->came[k]) cudaEventDestroy(t->came[k]);
        if (t->begun[k]) cudaEventDestroy(t->begun[k]);
        if (t->done[k]) cudaEventDestroy(t->done[k]);
    }
    pl_sys_free(t);
}

pl_status pl_cuda_capture_run(void *p, int side, bool sent)
{
    captured *t = p;
    uint32_t failed;
    PL_TRY(take_inputs(t, side, sent));
    PL_CUDA(cudaEventRecord(t->begun[side], pl_cuda_stream()));
    if (t->graph)
        PL_CUDA(cudaGraphLaunch(t->graph, pl_cuda_stream()));
    else
        PL_TRY(pl_cuda_enqueue(t->plan->units, t->plan->n_units, &failed));
    PL_TRY(fetch_outputs(t->plan, side));
    PL_CUDA(cudaEventRecord(t->done[side], pl_cuda_stream()));
    return PL_OK;
}

pl_status pl_cuda_capture_reclaim(void *p, int side)
{
    const captured *t = p;
    PL_CUDA(cudaEventSynchronize(t->came[side]));
    return PL_OK;
}

pl_status pl_cuda_capture_wait(void *p, int side)
{
    const captured *t = p;
    PL_CUDA(cudaEventSynchronize(t->done[side]));
    return PL_OK;
}

double pl_cuda_capture_ms(void *p, int side)
{
    const captured *t = p;
    float ms = 0;
    if (cudaEventElapsedTime(&ms, t->begun[side], t->done[side]) != cudaSuccess) cudaGetLastError();
    return (double)ms;
}
