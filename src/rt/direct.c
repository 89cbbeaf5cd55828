/* direct.c - direct access: the host reads and writes a device's arena and state themselves.
 *
 * Used by the CPU, and by programs that run on the host beside a device with its own memory.
 * Nothing is copied: an input is written where the plan placed it, an output is read where it lies,
 * and a run has ended when the call returns. The next run overwrites the outputs of a run, so only
 * the outputs of the last run can be read.
 */
#include "rt/rt_int.h"

static pl_status direct_open(pl_session *s)
{
    (void)s;
    return PL_OK;
}

static void direct_close(pl_session *s)
{
    (void)s;
}

static pl_status direct_add(pl_session *s, pl_bound_program *b)
{
    (void)s, (void)b;
    return PL_OK;
}

static void direct_drop(pl_session *s, pl_bound_program *b)
{
    (void)s, (void)b;
}

static uint64_t direct_stage_bytes(const pl_program *p)
{
    (void)p;
    return 0;
}

static void *direct_host_address(void *at)
{
    return at;
}

static pl_status direct_view(pl_session *s, const void *at, size_t *bytes, const void **host)
{
    (void)s, (void)bytes;
    *host = at;
    return PL_OK;
}

static void *direct_block(pl_session *s, void *at, size_t *bytes)
{
    (void)s, (void)bytes;
    return at;
}

static pl_status direct_put(pl_session *s, void *at, const void *block, size_t bytes)
{
    (void)s, (void)at, (void)block, (void)bytes;
    return PL_OK;
}

static void *direct_input(pl_session *s, pl_bound_program *b, int i)
{
    const pl_program *p = b->p;
    return pl_bound_address(s, b, &p->plan->place[pl_node_get(p->g, p->inputs[i])->out]);
}

static const void *direct_output(pl_session *s, pl_bound_program *b, uint32_t i, int ago)
{
    return ago ? NULL : pl_bound_address(s, b, &b->p->plan->outputs[i].place);
}

static pl_status direct_send(pl_session *s, pl_bound_program *b)
{
    (void)s, (void)b;
    return PL_OK;
}

static pl_status direct_run(pl_session *s, pl_bound_program *b, uint32_t *failed)
{
    if (pl_session_is_watched(s, b)) return pl_session_run_watched(s, b, failed);
    return b->p->dev->run(b->units, b->n_units, NULL, failed);
}

static pl_status direct_wait(pl_session *s, const pl_bound_program *b, int ago)
{
    (void)s, (void)b, (void)ago;
    return PL_OK;
}

static double direct_device_ms(pl_session *s, const pl_bound_program *b, int ago)
{
    (void)s, (void)b, (void)ago;
    return 0;
}

const pl_access pl_access_direct = {
    .open = direct_open,
    .close = direct_close,
    .add = direct_add,
    .drop = direct_drop,
    .stage_bytes = direct_stage_bytes,
    .host_address = direct_host_address,
    .view = direct_view,
    .block = direct_block,
    .put = direct_put,
    .input = direct_input,
    .output = direct_output,
    .send = direct_send,
    .run = direct_run,
    .wait = direct_wait,
    .device_ms = direct_device_ms,
};
