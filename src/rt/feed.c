/* feed.c - inputs and outputs of programs whose device the host cannot reach into.
 *
 * Each bound program has two host blocks for its inputs, written in side, and two mirrors of its
 * outputs; the session has one block on the device that inputs pass through (device.h has the
 * drawing). Every run fetches the small outputs, which are what a training loop reads, into the
 * mirror whose side it is: those of the last two runs can be read. A large one is fetched when
 * somebody asks for it, behind the small ones of the first mirror.
 */
#include "base/sys.h"
#include "plimsoll_unstable.h"
#include "rt/rt_int.h"

#include <pthread.h>
#include <stdio.h>

enum { ALIGN = 256, SMALL_OUTPUT = 64 << 10 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t pl_program_stage_bytes(const pl_program *p)
{
    uint64_t sum = 0;
    bool staged = p->dev->apart || p->dev->plans_only;
    for (int i = 0; staged && i < p->n_inputs; i++) {
        pl_type t = pl_program_input_type(p, i);
        sum += aligned(pl_type_bytes(&t));
    }
    return sum;
}

static pl_status list_inputs(pl_session *s, pl_bound *b)
{
    const pl_program *p = b->p;
    pl_transfer *in = pl_arena_new(&s->mem, pl_transfer, p->n_inputs + 1);
    if (!in) return PL_ERR_MEMORY;
    size_t at = 0;
    for (int i = 0; i < p->n_inputs; i++) {
        uint32_t val = pl_node_get(p->g, p->inputs[i])->out;
        size_t bytes = pl_type_bytes(pl_type_of(p->g, val));
        /* An input that nobody reads has no place. */
        void *device = pl_session_address(s, &p->plan->place[val]);
        in[i] = (pl_transfer){at, device, device ? bytes : 0};
        at += aligned(bytes);
    }
    b->feed.plan.in = in;
    b->feed.plan.n_in = (uint32_t)p->n_inputs;
    b->feed.plan.in_bytes = at;
    return PL_OK;
}

/* Places for the outputs that are small, or for those that are not. */
static uint32_t place_outputs(const pl_session *s, pl_bound *b, bool small, pl_transfer *placed)
{
    const pl_program *p = b->p;
    pl_feed *f = &b->feed;
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->plan->n_outputs; i++) {
        const pl_plan_output *o = &p->plan->outputs[i];
        size_t bytes = pl_type_bytes(pl_type_of(p->g, pl_node_in(p->g, o->node)[0]));
        if (small != (bytes <= SMALL_OUTPUT)) continue;
        placed[n++] = f->out[i] =
            (pl_transfer){f->mirror_bytes[0], pl_session_address(s, &o->place), bytes};
        f->mirror_bytes[0] += aligned(bytes);
    }
    return n;
}

static pl_status list_outputs(pl_session *s, pl_bound *b)
{
    uint32_t n = b->p->plan->n_outputs;
    pl_feed *f = &b->feed;
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

/* What a tape is made over. */
static pl_status make_mirror(pl_session *s, pl_bound *b)
{
    PL_TRY(list_inputs(s, b));
    PL_TRY(list_outputs(s, b));
    pl_feed *f = &b->feed;
    for (int k = 0; k < 2; k++) PL_TRY(s->dev->host_alloc(f->mirror_bytes[k], &f->plan.mirror[k]));
    return PL_OK;
}

static pl_status make_hosts(const pl_session *s, pl_bound *b)
{
    pl_tape_plan *plan = &b->feed.plan;
    for (int k = 0; k < 2; k++) PL_TRY(s->dev->host_alloc(plan->in_bytes, &plan->host[k]));
    return PL_OK;
}

/* Pinning the blocks that inputs are written to takes a card's driver a third of the time that
 * tapes take: both at once. */
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
        j->rc = make_hosts(j->s, &j->s->bound[i]);
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
        if (s->bound[i].feed.plan.in_bytes > most) most = s->bound[i].feed.plan.in_bytes;
    void *p = NULL;
    PL_TRY(s->dev->alloc(most, &p));
    s->stage = p;
    s->stage_bytes = most;
    PL_TRY(s->dev->host_alloc(BOUNCE, &p));
    s->bounce = p;
    s->bounce_bytes = BOUNCE;
    return PL_OK;
}

static pl_status make_tape(pl_session *s, pl_bound *b)
{
    uint32_t failed;
    pl_feed *f = &b->feed;
    f->plan.launch = b->launch;
    f->plan.n_launch = b->n_launch;
    f->plan.stage = s->stage;
    f->plan.eager = b->p->opts.mode == PL_MODE_EAGER;
    if (b->dies) return PL_OK; /* goes launch by launch */
    pl_status rc = s->dev->tape_new(&b->feed.plan, &b->feed.tape, &failed);
    if (rc == PL_OK || failed >= b->n_launch) return rc;
    return pl__fail_prefix(rc, "%s", b->p->step_label[failed]);
}

pl_status pl_feed_make(pl_session *s)
{
    uint64_t at = pl_sys_now_ns();
    host_job hosts = {.s = s, .rc = PL_OK};
    for (int i = 0; i < s->n_bound; i++) PL_TRY(make_mirror(s, &s->bound[i]));
    PL_TRY(make_shared(s));
    hosts.running = pthread_create(&hosts.thread, NULL, make_all_hosts, &hosts) == 0;
    s->times.host = pl_lap(&at);
    pl_status rc = PL_OK;
    for (int i = 0; i < s->n_bound && rc == PL_OK; i++) rc = make_tape(s, &s->bound[i]);
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

/* Making a tape may run the program: the state waits on the host meanwhile. */
static pl_status make_tape_beside(pl_session *s, pl_bound *b)
{
    void *kept = pl_sys_alloc(s->state_bytes + 1);
    if (!kept) return PL_ERR_MEMORY;
    pl_status rc = s->dev->read(kept, s->state, s->state_bytes);
    if (rc == PL_OK) {
        rc = make_tape(s, b);
        pl_status back = s->dev->write(s->state, kept, s->state_bytes);
        if (rc == PL_OK) rc = back;
    }
    pl_sys_free(kept);
    return rc;
}

pl_status pl_feed_add(pl_session *s, pl_bound *b)
{
    PL_TRY(make_mirror(s, b));
    PL_TRY(make_hosts(s, b));
    PL_TRY(widen_stage(s, b->feed.plan.in_bytes));
    return make_tape_beside(s, b);
}

void pl_feed_drop(pl_session *s, pl_bound *b)
{
    pl_feed *f = &b->feed;
    s->dev->tape_free(f->tape);
    for (int k = 0; k < 2; k++) {
        if (f->plan.host[k]) s->dev->host_free(f->plan.host[k], f->plan.in_bytes);
        if (f->plan.mirror[k]) s->dev->host_free(f->plan.mirror[k], f->mirror_bytes[k]);
    }
}

void pl_feed_release(pl_session *s)
{
    for (int i = 0; i < s->n_bound; i++) pl_feed_drop(s, &s->bound[i]);
    if (s->stage) s->dev->free(s->stage, s->stage_bytes);
    if (s->bounce) s->dev->host_free(s->bounce, s->bounce_bytes);
}

void *pl_feed_input(const pl_bound *b, int i)
{
    return (char *)b->feed.plan.host[b->feed.side] + b->feed.plan.in[i].at;
}

static bool is_small(const pl_feed *f, uint32_t i)
{
    return f->out[i].bytes <= SMALL_OUTPUT;
}

/* Where a run with that side leaves an output. */
static char *mirror_of(const pl_feed *f, uint32_t i, int side)
{
    return (char *)f->plan.mirror[is_small(f, i) ? side : 0] + f->out[i].at;
}

/* Of the run that was begun last, or of the one before it. */
static int turn_of(const pl_feed *f, int ago)
{
    return f->side ^ 1 ^ ago;
}

/* Of the last run. */
static pl_status fetch(pl_session *s, pl_feed *f, uint32_t i)
{
    const pl_transfer *o = &f->out[i];
    PL_TRY(s->dev->read(mirror_of(f, i, turn_of(f, 0)), o->device, o->bytes));
    f->fresh[i] = true;
    return PL_OK;
}

const void *pl_feed_output(pl_session *s, pl_bound *b, uint32_t i, int ago)
{
    pl_feed *f = &b->feed;
    if (ago && !is_small(f, i)) return NULL;
    bool fetched = f->tape && is_small(f, i);
    if (fetched && s->dev->tape_wait(f->tape, turn_of(f, ago)) != PL_OK) return NULL;
    if (!fetched && !ago && !f->fresh[i] && fetch(s, f, i) != PL_OK) return NULL;
    return mirror_of(f, i, turn_of(f, ago));
}

static pl_status run_watched(pl_session *s, pl_bound *b, uint32_t *failed)
{
    const pl_feed *f = &b->feed;
    for (uint32_t i = 0; i < f->plan.n_in; i++)
        if (f->plan.in[i].bytes)
            PL_TRY(
                s->dev->write(f->plan.in[i].device, pl_feed_input(b, (int)i), f->plan.in[i].bytes));
    return pl_session_run_watched(s, b, failed);
}

pl_status pl_feed_run(pl_session *s, pl_bound *b, uint32_t *failed)
{
    pl_feed *f = &b->feed;
    bool watched = b->dies || b->profile.ns || s->watching;
    *failed = b->n_launch;
    if (watched)
        PL_TRY(run_watched(s, b, failed));
    else
        PL_TRY(s->dev->tape_run(f->tape, f->side, f->sent));
    f->sent = false;
    for (uint32_t i = 0; i < b->p->plan->n_outputs; i++) f->fresh[i] = false;
    f->side ^= 1;
    /* What a watched run of a program with a tape leaves is fetched as a tape would. */
    for (uint32_t i = 0; watched && i < b->p->plan->n_outputs; i++) PL_TRY(fetch(s, f, i));
    return f->tape ? s->dev->tape_reclaim(f->tape, f->side) : PL_OK;
}

pl_status pl_feed_send(pl_session *s, pl_bound *b)
{
    if (b->dies || b->profile.ns || s->watching) return PL_OK;
    PL_TRY(s->dev->tape_send(b->feed.tape, b->feed.side));
    b->feed.sent = true;
    return PL_OK;
}

pl_status pl_feed_wait(pl_session *s)
{
    for (int i = 0; i < s->n_bound; i++) PL_TRY(pl_feed_wait_for(s, &s->bound[i], 0));
    return PL_OK;
}

pl_status pl_feed_wait_for(pl_session *s, const pl_bound *b, int ago)
{
    return b->feed.tape ? s->dev->tape_wait(b->feed.tape, turn_of(&b->feed, ago)) : PL_OK;
}

double pl_session_device_ms(pl_session *s, const pl_program *p, int ago)
{
    const pl_bound *b = pl_session_find(s, p);
    bool is = b && b->feed.tape && pl_feed_wait_for(s, b, ago) == PL_OK;
    return is ? s->dev->tape_ms(b->feed.tape, turn_of(&b->feed, ago)) : 0;
}
