/* move_streams.c - moves between levels on separate streams, beside the kernels.
 *
 *   stream:   kernel   fork ----------------------- kernel   wait   kernel
 *                       |                                     |
 *   channel:            copy ---------------------> event ----+
 *
 * A move begins on its channel's stream after everything before it on the main stream, and after
 * the moves that its wait[] names. A kernel waits for the events of the moves that it needs. In a
 * captured graph the waits become edges, and events and streams are not used again.
 *
 * Moves between host and disk are calls of the host on their channel's stream: the driver makes
 * them when the stream reaches them, and the stream continues when the bytes have arrived.
 *
 * Streams and events exist once per process and grow to the largest program.
 */
#include "cuda/device/move_streams.h"
#include "base/sys.h"
#include "rt/levels/levels.h"

static struct {
    cudaStream_t stream;
    cudaEvent_t *ended; /* of the moves of one list, in order */
    uint32_t n_events;
} channels[PL_N_CHANNELS];
static cudaEvent_t fork_event;

static pl_status make_event(cudaEvent_t *e)
{
    PL_CUDA(cudaEventCreateWithFlags(e, cudaEventDisableTiming));
    return PL_OK;
}

/* Makes the channel's stream, and room for the event of the list's move `index`. */
static pl_status prepare(pl_channel c, uint32_t index)
{
    cudaEvent_t *list = channels[c].ended;
    uint32_t had = channels[c].n_events, want = had ? 2 * had : 64;
    if (!fork_event) PL_TRY(make_event(&fork_event));
    if (!channels[c].stream)
        PL_CUDA(cudaStreamCreateWithFlags(&channels[c].stream, cudaStreamNonBlocking));
    if (index < had) return PL_OK;
    list = pl_sys_realloc(list, had * sizeof *list, want * sizeof *list);
    if (!list) return PL_ERR_MEMORY;
    channels[c].ended = list;
    for (; channels[c].n_events < want; channels[c].n_events++)
        PL_TRY(make_event(&list[channels[c].n_events]));
    return PL_OK;
}

/* Lets a stream wait for the first `number` moves of a channel. seen: the moves of each channel
 * that the stream has waited for. Moves that did not begin in this list have ended. */
static pl_status wait_for(const pl_cuda_moves *m, cudaStream_t stream, pl_channel c,
                          uint32_t number, uint32_t *seen)
{
    if (number <= m->before[c] || number <= seen[c] || number > m->begun[c]) return PL_OK;
    PL_CUDA(cudaStreamWaitEvent(stream, channels[c].ended[number - m->before[c] - 1], 0));
    seen[c] = number;
    return PL_OK;
}

pl_status pl_cuda_moves_wait(pl_cuda_moves *m, const pl_bound_unit *l)
{
    for (int c = 0; c < PL_N_CHANNELS; c++)
        if (l->wait[c]) PL_TRY(wait_for(m, pl_cuda_stream(), (pl_channel)c, l->wait[c], m->seen));
    return PL_OK;
}

static void CUDART_CB move_on_host(void *unit)
{
    pl_levels_move(unit);
}

/* Enqueues the move itself. */
static pl_status enqueue_move(const pl_bound_unit *l, cudaStream_t stream)
{
    bool up = l->channel == PL_CHANNEL_UP, disk = !up && l->channel != PL_CHANNEL_DOWN;
    if (disk)
        PL_CUDA(cudaLaunchHostFunc(stream, move_on_host, (void *)(uintptr_t)l));
    else
        PL_CUDA(cudaMemcpyAsync(l->to, l->from, l->bytes,
                                up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream));
    return PL_OK;
}

pl_status pl_cuda_moves_begin(pl_cuda_moves *m, const pl_bound_unit *l)
{
    pl_channel c = l->channel;
    if (m->begun[c] == 0) m->before[c] = l->move - 1;
    uint32_t index = l->move - m->before[c] - 1;
    PL_TRY(prepare(c, index));
    cudaStream_t stream = channels[c].stream;
    PL_CUDA(cudaEventRecord(fork_event, pl_cuda_stream()));
    PL_CUDA(cudaStreamWaitEvent(stream, fork_event, 0));
    for (int k = 0; k < PL_N_CHANNELS; k++)
        if (k != (int)c && l->wait[k])
            PL_TRY(wait_for(m, stream, (pl_channel)k, l->wait[k], m->seen_by[c]));
    PL_TRY(enqueue_move(l, stream));
    PL_CUDA(cudaEventRecord(channels[c].ended[index], stream));
    m->begun[c] = l->move;
    return PL_OK;
}

pl_status pl_cuda_moves_end(pl_cuda_moves *m)
{
    for (int c = 0; c < PL_N_CHANNELS; c++)
        PL_TRY(wait_for(m, pl_cuda_stream(), (pl_channel)c, m->begun[c], m->seen));
    return PL_OK;
}
