/* tape.c - launches in order, and a whole run as one graph.
 *
 * The first run of a program goes launch by launch, so that modules that load on first use and
 * algorithms that set themselves up do it then; after it the same launches are captured, once,
 * and every later run replays the graph. Uploads go over a stream of their own:
 *
 *   upload stream:  wait for `taken`   host[turn] -> stage          record `came[turn]`
 *   stream:         wait for `came`    stage -> arena, record `taken`, graph, record `done`
 *
 * so that a batch goes up while the run before it still works.
 */
#include "base/sys.h"
#include "cuda/device_int.h"

typedef struct tape {
    const pl_tape_plan *plan;
    cudaGraphExec_t graph; /* NULL: eager, or nothing to run */
    cudaEvent_t came[2], done;
} tape;

/* When the stage may be written again; one for all tapes, since programs share the stage. */
static cudaEvent_t taken;

static pl_status enqueue_one(const pl_launch *l)
{
    if (l->exec) return l->exec->kernel->run(&l->call);
    if (l->bytes)
        PL_CUDA(cudaMemcpyAsync(l->to, l->from, l->bytes, cudaMemcpyDeviceToDevice,
                                pl_cuda_stream()));
    return PL_OK;
}

pl_status pl_cuda_enqueue(const pl_launch *l, uint32_t n, uint32_t *failed)
{
    for (*failed = 0; *failed < n; ++*failed) PL_TRY(enqueue_one(&l[*failed]));
    *failed = 0;
    return PL_OK;
}

/* ---- launch by launch ------------------------------------------------------------------- */
static pl_status run_timed(const pl_launch *l, cudaEvent_t begin, cudaEvent_t end, uint64_t *ns)
{
    float ms = 0;
    PL_CUDA(cudaEventRecord(begin, pl_cuda_stream()));
    PL_TRY(enqueue_one(l));
    PL_CUDA(cudaEventRecord(end, pl_cuda_stream()));
    PL_CUDA(cudaEventSynchronize(end));
    PL_CUDA(cudaEventElapsedTime(&ms, begin, end));
    *ns += (uint64_t)(1e6 * (double)ms);
    return PL_OK;
}

static pl_status run_all_timed(const pl_launch *l, uint32_t n, uint64_t *ns, uint32_t *failed)
{
    cudaEvent_t begin, end;
    PL_CUDA(cudaEventCreate(&begin));
    PL_CUDA(cudaEventCreate(&end));
    pl_status rc = PL_OK;
    for (uint32_t i = 0; i < n && rc == PL_OK; i++) {
        rc = run_timed(&l[i], begin, end, &ns[i]);
        *failed = i;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return rc;
}

pl_status pl_cuda_run(const pl_launch *l, uint32_t n, uint64_t *ns, uint32_t *failed)
{
    if (ns) return run_all_timed(l, n, ns, failed);
    PL_TRY(pl_cuda_enqueue(l, n, failed));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    return PL_OK;
}

/* ---- tapes ------------------------------------------------------------------------------ */
static pl_status fetch_outputs(const pl_tape_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_out; i++)
        PL_CUDA(cudaMemcpyAsync((char *)plan->mirror + plan->out[i].at, plan->out[i].device,
                                plan->out[i].bytes, cudaMemcpyDeviceToHost, pl_cuda_stream()));
    return PL_OK;
}

static pl_status run_body(const pl_tape_plan *plan)
{
    uint32_t failed;
    PL_TRY(pl_cuda_enqueue(plan->launch, plan->n_launch, &failed));
    return fetch_outputs(plan);
}

static pl_status capture(tape *t)
{
    cudaGraph_t graph = NULL;
    PL_CUDA(cudaStreamBeginCapture(pl_cuda_stream(), cudaStreamCaptureModeThreadLocal));
    pl_status rc = run_body(t->plan);
    cudaError_t end = cudaStreamEndCapture(pl_cuda_stream(), &graph);
    if (rc == PL_OK && end != cudaSuccess)
        rc = pl_cuda_failed(end, "cudaStreamEndCapture", __FILE__, __LINE__);
    if (rc == PL_OK) {
        cudaError_t made = cudaGraphInstantiate(&t->graph, graph, 0);
        if (made != cudaSuccess)
            rc = pl_cuda_failed(made, "cudaGraphInstantiate", __FILE__, __LINE__);
    }
    if (rc == PL_OK) {
        cudaError_t up = cudaGraphUpload(t->graph, pl_cuda_stream());
        if (up != cudaSuccess) rc = pl_cuda_failed(up, "cudaGraphUpload", __FILE__, __LINE__);
    }
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    return rc;
}

static pl_status make_events(tape *t)
{
    unsigned plain = cudaEventDisableTiming;
    if (!taken) PL_CUDA(cudaEventCreateWithFlags(&taken, plain));
    for (int k = 0; k < 2; k++) PL_CUDA(cudaEventCreateWithFlags(&t->came[k], plain));
    PL_CUDA(cudaEventCreateWithFlags(&t->done, plain));
    return PL_OK;
}

static pl_status rehearse(tape *t)
{
    uint32_t failed;
    PL_TRY(pl_cuda_run(t->plan->launch, t->plan->n_launch, NULL, &failed));
    if (t->plan->eager || t->plan->n_launch + t->plan->n_out == 0) return PL_OK;
    PL_TRY(capture(t));
    PL_CUDA(cudaStreamSynchronize(pl_cuda_stream()));
    return PL_OK;
}

pl_status pl_cuda_tape_new(const pl_tape_plan *plan, void **out)
{
    tape *t = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    t->plan = plan;
    pl_status rc = make_events(t);
    if (rc == PL_OK) rc = rehearse(t);
    if (rc != PL_OK) {
        pl_cuda_tape_free(t);
        return rc;
    }
    *out = t;
    return PL_OK;
}

void pl_cuda_tape_free(void *p)
{
    tape *t = p;
    if (!t) return;
    cudaDeviceSynchronize();
    if (t->graph) cudaGraphExecDestroy(t->graph);
    for (int k = 0; k < 2; k++)
        if (t->came[k]) cudaEventDestroy(t->came[k]);
    if (t->done) cudaEventDestroy(t->done);
    pl_sys_free(t);
}

static pl_status take_inputs(tape *t, int turn)
{
    const pl_tape_plan *plan = t->plan;
    cudaStream_t up = pl_cuda_upload_stream(), stream = pl_cuda_stream();
    if (!plan->in_bytes) return PL_OK;
    PL_CUDA(cudaStreamWaitEvent(up, taken, 0));
    PL_CUDA(cudaMemcpyAsync(plan->stage, plan->host[turn], plan->in_bytes, cudaMemcpyHostToDevice,
                            up));
    PL_CUDA(cudaEventRecord(t->came[turn], up));
    PL_CUDA(cudaStreamWaitEvent(stream, t->came[turn], 0));
    for (uint32_t i = 0; i < plan->n_in; i++)
        if (plan->in[i].bytes)
            PL_CUDA(cudaMemcpyAsync(plan->in[i].device, (char *)plan->stage + plan->in[i].at,
                                    plan->in[i].bytes, cudaMemcpyDeviceToDevice, stream));
    PL_CUDA(cudaEventRecord(taken, stream));
    return PL_OK;
}

pl_status pl_cuda_tape_run(void *p, int turn)
{
    tape *t = p;
    PL_TRY(take_inputs(t, turn));
    if (t->graph)
        PL_CUDA(cudaGraphLaunch(t->graph, pl_cuda_stream()));
    else
        PL_TRY(run_body(t->plan));
    PL_CUDA(cudaEventRecord(t->done, pl_cuda_stream()));
    return PL_OK;
}

pl_status pl_cuda_tape_turn(void *p, int turn)
{
    const tape *t = p;
    PL_CUDA(cudaEventSynchronize(t->came[turn]));
    return PL_OK;
}

pl_status pl_cuda_tape_wait(void *p)
{
    const tape *t = p;
    PL_CUDA(cudaEventSynchronize(t->done));
    return PL_OK;
}
