/* staging.c - staged access: inputs and outputs of programs on devices with their own memory.
 *
 * Each bound program has two host blocks for its inputs and two mirrors of its outputs; the session
 * has one block on the device, the stage, that the inputs of all programs pass through (device.h
 * has the drawing). Runs use the two sides alternately.
 *
 * Every run fetches its small outputs, which a training loop reads, into the mirror of its side:
 * the small outputs of the last two runs can be read. A large output is fetched on request, into
 * the first mirror, after the small ones.
 *
 * Invariant: staging.side is the side of the next run, so the last run has side ^ 1, and the run
 * before it, side.
 */
#include "base/sys.h"
#include "plimsoll_unstable.h"
#include "rt/levels/levels.h"
#include "rt/rt_int.h"

#include <pthread.h>
#include <stdio.h>

enum { ALIGN = 256, SMALL_OUTPUT = 64 << 10 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t staged_stage_bytes(const pl_program *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < p->n_inputs; i++) {
        pl_type t = pl_program_input_type(p, i);
        sum += aligned(pl_type_bytes(&t));
    }
    return sum;
}

static pl_status list_inputs(pl_session *s, pl_bound_program *b)
{
    const pl_program *p = b->p;
    pl_transfer *in = pl_arena_new(&s->mem, pl_transfer, p->n_inputs + 1);
    if (!in) return PL_ERR_MEMORY;
    size_t at = 0;
    for (int i = 0; i < p->n_inputs; i++) {
        uint32_t val = pl_node_get(p->g, p->inputs[i])->out;
        size_t bytes = pl_type_bytes(pl_type_of(p->g, val));
        /* An input without a reader has no place. */
        void *device = pl_bound_address(s, b, &p->plan->place[val]);
        in[i] = (pl_transfer){at, device, device ? bytes : 0};
        at += aligned(bytes);
    }
    b->staging.plan.in = in;
    b->staging.plan.n_in = (uint32_t)p->n_inputs;
    b->staging.plan.in_bytes = at;
    return PL_OK;
}

/* Assigns places to the small outputs, or to the large ones. */
static uint32_t place_outputs(const pl_session *s, pl_bound_program *b, bool small,
                              pl_transfer *placed)
{
    const pl_program *p = b->p;
    pl_staging *f = &b->staging;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->plan->n_outputs; i++) {
        const pl_plan_output *o = &p->plan->outputs[i];
        size_t bytes = pl_type_bytes(pl_type_of(p->g, pl_node_in(p->g, o->node)[0]));
        if (small != (bytes <= SMALL_OUTPUT)) continue;
        placed[n++] = f->out[i] =
            (pl_transfer){f->mirror_bytes[0], pl_bound_address(s, b, &o->place), bytes};
        f->mirror_bytes[0] += aligned(bytes);
    }
    return n;
}

static pl_status list_outputs(pl_session *s, pl_bound_program *b)
{
    uint32_t n = b->p->plan->n_outputs;
    pl_staging *f = &b->staging;
    f->out = pl_arena_new(&s->mem, pl_transfer, n + 1);
    f->fresh = pl_arena_new(&s->mem, bool, n + 1);
    pl_transfer *fetched = pl_arena_new(&s->mem, pl_transfer, n + 1);
    if (!f->out || !f->fresh || !fetched) return PL_ERR_MEMORY;
    f->plan.out = fetched;
    f->plan.n_out = place_outputs(s, b, true, fetched);
    f->mirror_bytes[1] = f->mirror_bytes[0];
    place_outputs(s, b, false, fetched + f->plan.n_out);
    return PL_OK;
}

/* Lists the program's transfers and creates its mirrors. */
static pl_status make_mirror(pl_session *s, pl_bound_program *b)
{
    PL_TRY(list_inputs(s, b));
    PL_TRY(list_outputs(s, b));
    pl_staging *f = &b->staging;
    for (int k = 0; k < 2; k++) PL_TRY(s->dev->host_alloc(f->mirror_bytes[k], &f->plan.mirror[k]));
    return PL_OK;
}

static pl_status make_hosts(const pl_session *s, pl_bound_program *b)
{
    pl_capture_plan *plan = &b->staging.plan;
    for (int k = 0; k < 2; k++) PL_TRY(s->dev->host_alloc(plan->in_bytes, &plan->host[k]));
    return PL_OK;
}

/* A thread that allocates the host blocks while the main thread captures programs: locking the
 * blocks' pages takes the driver a third of the time that capturing takes. */
typedef struct host_job {
    pl_session *s;
    pthread_t thread;
    bool running;
    pl_status rc;
    char error[512];
} host_job;

static void *make_all_hosts(void *ctx)
{
    host_job *j = ctx;
    for (int i = 0; i < j->s->n_bound && j->rc == PL_OK; i++)
        if (!j->s->bound[i].on_host) j->rc = make_hosts(j->s, &j->s->bound[i]);
    if (j->rc != PL_OK) snprintf(j->error, sizeof j->error, "%s", pl_error_text());
    return NULL;
}

static pl_status end_hosts(host_job *j)
{
    if (j->running)
        pthread_join(j->thread, NULL);
    else
        make_all_hosts(j);
    return j->rc == PL_OK ? PL_OK : pl__fail(j->rc, __FILE__, __LINE__, "%s", j->error);
}

static pl_status make_shared(pl_session *s)
{
    enum { BOUNCE = 4 << 20 };
    size_t most = 0;
    for (int i = 0; i < s->n_bound; i++)
        if (s->bound[i].staging.plan.in_bytes > most) most = s->bound[i].staging.plan.in_bytes;
    void *p = NULL;
    PL_TRY(s->dev->alloc(most, &p));
    s->stage = p;
    s->stage_bytes = most;
    PL_TRY(s->dev->host_alloc(BOUNCE, &p));
    s->bounce = p;
    s->bounce_bytes = BOUNCE;
    return PL_OK;
}

static pl_status capture_program(pl_session *s, pl_bound_program *b)
{
    uint32_t failed;
    pl_staging *f = &b->staging;
    f->plan.units = b->units;
    f->plan.n_units = b->n_units;
    f->plan.stage = s->stage;
    f->plan.eager = b->p->opts.mode == PL_MODE_EAGER;
    f->plan.beside = !b->p->limited;
    if (b->dies) return PL_OK; /* poisoned: runs unit by unit */
    pl_status rc = s->dev->capture_new(&b->staging.plan, &b->staging.captured, &failed);
    if (rc == PL_OK || failed >= b->n_units) return rc;
    return pl__fail_prefix(rc, "%s", b->p->position_label[failed]);
}

static pl_status staged_open(pl_session *s)
{
    uint64_t at = pl_sys_now_ns();
    host_job hosts = {.s = s, .rc = PL_OK};
    for (int i = 0; i < s->n_bound; i++)
        if (!s->bound[i].on_host) PL_TRY(make_mirror(s, &s->bound[i]));
    PL_TRY(make_shared(s));
    hosts.running = pthread_create(&hosts.thread, NULL, make_all_hosts, &hosts) == 0;
    s->times.host = pl_lap(&at);
    pl_status rc = PL_OK;
    for (int i = 0; i < s->n_bound && rc == PL_OK; i++)
        if (!s->bound[i].on_host) rc = capture_program(s, &s->bound[i]);
    s->times.record = pl_lap(&at);
    if (rc != PL_OK) {
        if (hosts.running) pthread_join(hosts.thread, NULL);
        return rc;
    }
    PL_TRY(end_hosts(&hosts));
    s->times.host += pl_lap(&at);
    return s->state_bytes ? s->dev->fill(s->state, 0, s->state_bytes) : PL_OK;
}

static pl_status widen_stage(pl_session *s, size_t bytes)
{
    if (bytes <= s->stage_bytes) return PL_OK;
    void *p = s->stage;
    PL_TRY(p ? s->dev->grow(p, s->stage_bytes, bytes) : s->dev->alloc(bytes, &p));
    s->stage = p;
    s->stage_bytes = bytes;
    return PL_OK;
}

/* Copies the slots that the program assigns to `kept`, or back. */
static pl_status copy_assigned(pl_session *s, const pl_bound_program *b, char *kept, bool back)
{
    const pl_graph *g = b->p->g;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        int slot = pl_node_slot(g, n);
        if (slot < 0 || !(pl_node_get(g, n)->op->flags & PL_OP_EFFECT)) continue;
        size_t bytes = pl_type_bytes(&pl_store_slot(s->store, slot)->type);
        PL_TRY(back ? pl_session_write_slot(s, slot, 0, kept, bytes)
                    : pl_session_read_slot(s, slot, 0, kept, bytes));
        kept += bytes;
    }
    return PL_OK;
}

static uint64_t assigned_bytes(const pl_session *s, const pl_bound_program *b)
{
    const pl_graph *g = b->p->g;
    uint64_t sum = 0;
    for (uint32_t n = 1; n < g->n_nodes; n++) {
        int slot = pl_node_slot(g, n);
        if (slot >= 0 && (pl_node_get(g, n)->op->flags & PL_OP_EFFECT))
            sum += pl_type_bytes(&pl_store_slot(s->store, slot)->type);
    }
    return sum;
}

/* Capturing may run the program, which changes the slots that it assigns, on the device or below
 * it: keeps a copy of them on the host. */
static pl_status capture_beside(pl_session *s, pl_bound_program *b)
{
    char *kept = pl_sys_alloc(assigned_bytes(s, b) + 1);
    if (!kept) return PL_ERR_MEMORY;
    pl_status rc = copy_assigned(s, b, kept, false);
    if (rc == PL_OK) {
        rc = capture_program(s, b);
        pl_status back = copy_assigned(s, b, kept, true);
        if (rc == PL_OK) rc = back;
    }
    pl_sys_free(kept);
    return rc;
}

static pl_status staged_add(pl_session *s, pl_bound_program *b)
{
    PL_TRY(make_mirror(s, b));
    PL_TRY(make_hosts(s, b));
    PL_TRY(widen_stage(s, b->staging.plan.in_bytes));
    return capture_beside(s, b);
}

static void staged_drop(pl_session *s, pl_bound_program *b)
{
    pl_staging *f = &b->staging;
    s->dev->capture_free(f->captured);
    for (int k = 0; k < 2; k++) {
        if (f->plan.host[k]) s->dev->host_free(f->plan.host[k], f->plan.in_bytes);
        if (f->plan.mirror[k]) s->dev->host_free(f->plan.mirror[k], f->mirror_bytes[k]);
    }
}

static void staged_close(pl_session *s)
{
    for (int i = 0; i < s->n_bound; i++) staged_drop(s, &s->bound[i]);
    if (s->stage) s->dev->free(s->stage, s->stage_bytes);
    if (s->bounce) s->dev->host_free(s->bounce, s->bounce_bytes);
}

static void *staged_host_address(void *at)
{
    (void)at;
    return NULL;
}

static pl_status staged_view(pl_session *s, const void *at, size_t *bytes, const void **host)
{
    if (*bytes > s->bounce_bytes) *bytes = s->bounce_bytes;
    *host = s->bounce;
    return s->dev->read(s->bounce, at, *bytes);
}

static void *staged_block(pl_session *s, void *at, size_t *bytes)
{
    (void)at;
    if (*bytes > s->bounce_bytes) *bytes = s->bounce_bytes;
    return s->bounce;
}

static pl_status staged_put(pl_session *s, void *at, const void *block, size_t bytes)
{
    return s->dev->write(at, block, bytes);
}

static void *staged_input(pl_session *s, pl_bound_program *b, int i)
{
    (void)s;
    return (char *)b->staging.plan.host[b->staging.side] + b->staging.plan.in[i].at;
}

static bool is_small(const pl_staging *f, uint32_t i)
{
    return f->out[i].bytes <= SMALL_OUTPUT;
}

/* Returns where a run on that side stores an output. */
static char *mirror_of(const pl_staging *f, uint32_t i, int side)
{
    return (char *)f->plan.mirror[is_small(f, i) ? side : 0] + f->out[i].at;
}

/* Returns the side of the last run, or of the run before it. */
static int side_of(const pl_staging *f, int ago)
{
    return f->side ^ 1 ^ ago;
}

/* Fetches an output of the last run. */
static pl_status fetch(pl_session *s, pl_staging *f, uint32_t i)
{
    const pl_transfer *o = &f->out[i];
    PL_TRY(s->dev->read(mirror_of(f, i, side_of(f, 0)), o->device, o->bytes));
    f->fresh[i] = true;
    return PL_OK;
}

static const void *staged_output(pl_session *s, pl_bound_program *b, uint32_t i, int ago)
{
    pl_staging *f = &b->staging;
    if (ago && !is_small(f, i)) return NULL;
    bool fetched = f->captured && is_small(f, i);
    if (fetched && s->dev->capture_wait(f->captured, side_of(f, ago)) != PL_OK) return NULL;
    if (!fetched && !ago && !f->fresh[i] && fetch(s, f, i) != PL_OK) return NULL;
    return mirror_of(f, i, side_of(f, ago));
}

static pl_status run_watched(pl_session *s, pl_bound_program *b, uint32_t *failed)
{
    const pl_staging *f = &b->staging;
    for (uint32_t i = 0; i < f->plan.n_in; i++)
        if (f->plan.in[i].bytes)
            PL_TRY(s->dev->write(f->plan.in[i].device, staged_input(s, b, (int)i),
                                 f->plan.in[i].bytes));
    return pl_session_run_watched(s, b, failed);
}

static pl_status staged_run(pl_session *s, pl_bound_program *b, uint32_t *failed)
{
    pl_staging *f = &b->staging;
    bool watched = pl_session_is_watched(s, b);
    *failed = b->n_units;
    if (watched)
        PL_TRY(run_watched(s, b, failed));
    else
        PL_TRY(s->dev->capture_run(f->captured, f->side, f->sent));
    f->sent = false;
    for (uint32_t i = 0; i < b->p->plan->n_outputs; i++) f->fresh[i] = false;
    f->side ^= 1;
    /* A watched run fetches every output itself; a captured run does so automatically. */
    for (uint32_t i = 0; watched && i < b->p->plan->n_outputs; i++) PL_TRY(fetch(s, f, i));
    return f->captured ? s->dev->capture_reclaim(f->captured, f->side) : PL_OK;
}

static pl_status staged_send(pl_session *s, pl_bound_program *b)
{
    if (pl_session_is_watched(s, b)) return PL_OK;
    PL_TRY(s->dev->capture_send(b->staging.captured, b->staging.side));
    b->staging.sent = true;
    return PL_OK;
}

static pl_status staged_wait(pl_session *s, const pl_bound_program *b, int ago)
{
    const pl_staging *f = &b->staging;
    if (f->captured) PL_TRY(s->dev->capture_wait(f->captured, side_of(f, ago)));
    return s->levels ? pl_levels_failure(s->levels) : PL_OK;
}

static double staged_device_ms(pl_session *s, const pl_bound_program *b, int ago)
{
    const pl_staging *f = &b->staging;
    bool ended = f->captured && staged_wait(s, b, ago) == PL_OK;
    return ended ? s->dev->capture_ms(f->captured, side_of(f, ago)) : 0;
}

const pl_access pl_access_staged = {
    .open = staged_open,
    .close = staged_close,
    .add = staged_add,
    .drop = staged_drop,
    .stage_bytes = staged_stage_bytes,
    .host_address = staged_host_address,
    .view = staged_view,
    .block = staged_block,
    .put = staged_put,
    .input = staged_input,
    .output = staged_output,
    .send = staged_send,
    .run = staged_run,
    .wait = staged_wait,
    .device_ms = staged_device_ms,
};
