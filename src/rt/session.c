/* session.c - memory for programs, and running them.
 *
 * A session maps two blocks of device memory: the arena, as large as the largest of its programs
 * needs, and the state, all slots of the store in index order (M8 of docs/MEMORY.md). Binding a
 * program turns the plan's places into pointers once; a run then walks over the bound units and
 * allocates nothing (M9). The programs of one session share the arena, so the inputs and outputs of
 * one program are valid only until another one runs.
 *
 * The session does not depend on the place of that memory: it reads, writes and runs through the
 * device's pl_access (device.h).
 */
#include "base/sys.h"
#include "plimsoll_unstable.h"
#include "rt/levels/levels.h"
#include "rt/rt_int.h"

#include <string.h>

/* ---- binding ---------------------------------------------------------------------------- */
void *pl_bound_address(const pl_session *s, const pl_bound_program *b, const pl_place *at)
{
    if (at->space == PL_SPACE_ARENA) {
        char *arena = b->on_host ? s->host_arena : s->arena;
        return arena ? arena + at->offset : NULL; /* a program without values has none */
    }
    if (at->space == PL_SPACE_STATE && !pl_home_level(s->homes, at->slot))
        return s->state + s->slot_at[at->slot] + at->offset;
    if (at->space == PL_SPACE_HOST) return (char *)pl_levels_host(s->levels) + at->offset;
    if (at->space == PL_SPACE_STATE && pl_home_level(s->homes, at->slot) == PL_LEVEL_HOST)
        return (char *)pl_levels_host(s->levels) + s->homes->offset[at->slot] + at->offset;
    return NULL;
}

static pl_status bind_unit(pl_session *s, const pl_bound_program *b, uint32_t unit,
                           pl_bound_unit *l)
{
    const pl_program *p = b->p;
    pl_unit_args a = pl_unit_args_of(p->g, &p->units->unit[unit]);
    const void **in = pl_arena_new(&s->mem, const void *, a.n_in + 1);
    void **out = pl_arena_new(&s->mem, void *, a.n_out + 1);
    if (!in || !out) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < a.n_in; i++) in[i] = pl_bound_address(s, b, &p->plan->place[a.in[i]]);
    for (uint32_t k = 0; k < a.n_out; k++)
        out[k] = pl_bound_address(s, b, &p->plan->place[pl_arg_out(&a, k)]);
    l->exec = &p->exec[pl_base_unit(p, unit)];
    l->call = p->call[pl_base_unit(p, unit)];
    l->call.in = in;
    l->call.out = out;
    l->call.work = p->plan->work_bytes[unit]
                       ? (b->on_host ? s->host_arena : s->arena) + p->plan->work_offset[unit]
                       : NULL;
    return PL_OK;
}

/* Lists which buffers die after each position; a buffer of the whole run dies after the last. */
static pl_status list_deaths(pl_session *s, pl_bound_program *b)
{
    const pl_plan *plan = b->p->plan;
    b->dies = pl_arena_new(&s->mem, uint32_t, plan->n_buffers + 1);
    b->dies_from = pl_arena_new(&s->mem, uint32_t, plan->n_positions + 2);
    if (!b->dies || !b->dies_from) return PL_ERR_MEMORY;
    uint32_t *from = b->dies_from;
    for (uint32_t i = 0; i < plan->n_buffers; i++) from[plan->buffers[i].last]++;
    for (uint32_t t = 1; t <= plan->n_positions; t++) from[t] += from[t - 1];
    for (uint32_t i = 0; i < plan->n_buffers; i++) {
        /* the last position at which the buffer is alive */
        int32_t step = plan->buffers[i].last - 1;
        b->dies[from[step]++] = i;
    }
    for (uint32_t t = plan->n_positions; t > 0; t--) from[t] = from[t - 1];
    from[0] = 0;
    return PL_OK;
}

/* ---- exchanges beside computing ---------------------------------------------------------- */
/* Whether a unit touches bytes [lo, hi). */
static bool touches(const pl_bound_unit *l, const char *lo, const char *hi)
{
    const pl_call *c = &l->call;
    if (!l->exec) {
        const char *from = l->from, *to = l->to;
        return (from < hi && from + l->bytes > lo) || (to < hi && to + l->bytes > lo);
    }
    for (int i = 0; i < c->n_in; i++) {
        const char *at = c->in[i];
        if (at && at < hi && at + pl_type_bytes(&c->in_type[i]) > lo) return true;
    }
    for (int k = 0; k < c->n_out; k++) {
        const char *at = c->out[k];
        if (at && at < hi && at + pl_type_bytes(&c->out_type[k]) > lo) return true;
    }
    const char *work = c->work;
    return work && work < hi && work + l->exec->work_bytes > lo;
}

static bool conflict(const pl_bound_unit *x, const pl_bound_unit *l)
{
    const pl_call *c = &x->call;
    const char *in = c->in[0], *out = c->out[0], *work = c->work;
    return touches(l, in, in + pl_type_bytes(&c->in_type[0])) ||
           touches(l, out, out + pl_type_bytes(&c->out_type[0])) ||
           (work && touches(l, work, work + x->exec->work_bytes));
}

static bool is_exchange(const pl_program *p, uint32_t step)
{
    return step < p->plan->n_order &&
           p->cost[pl_base_unit(p, p->plan->order[step])].work == PL_WORK_LINK;
}

/* Numbers the exchanges between ranks, and records for each unit how many of them must have ended
 * before it: all up to the last exchange whose bytes it touches. Exchanges end in their order. */
static void order_exchanges(const pl_program *p, pl_bound_program *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_units; i++) {
        if (!is_exchange(p, i)) continue;
        b->units[i].exchange = ++n;
        for (uint32_t k = i + 1; k < b->n_units; k++)
            if (!is_exchange(p, k) && conflict(&b->units[i], &b->units[k])) {
                b->units[k].after = n; /* later units follow this one, so they wait too */
                break;
            }
    }
}

/* Whether a program is the host's in a session of a device with its own memory. */
static bool runs_on_host(const pl_session *s, const pl_program *p)
{
    return s->dev->own_memory && p->dev == &pl_device_cpu;
}

static pl_status bind_program(pl_session *s, pl_program *p, pl_bound_program *b)
{
    const pl_plan *plan = p->plan;
    b->p = p;
    b->on_host = runs_on_host(s, p);
    b->n_units = plan->n_order + plan->n_copies;
    b->units = pl_arena_new(&s->mem, pl_bound_unit, b->n_units + 1);
    if (!b->units) return PL_ERR_MEMORY;
    for (uint32_t i = 0; i < plan->n_order; i++)
        if (p->units->unit[plan->order[i]].kind != PL_UNIT_MOVE)
            PL_TRY(bind_unit(s, b, plan->order[i], &b->units[i]));
    for (uint32_t i = 0; i < plan->n_copies; i++)
        b->units[plan->n_order + i] =
            (pl_bound_unit){.from = pl_bound_address(s, b, &plan->copies[i].from),
                            .to = pl_bound_address(s, b, &plan->copies[i].to),
                            .bytes = plan->copies[i].bytes};
    pl_levels_bind(s, p, b);
    order_exchanges(p, b);
    return p->opts.poison ? list_deaths(s, b) : PL_OK;
}

/* Returns how the host reaches a program's inputs and outputs, and runs it. */
static const pl_access *access_of(const pl_session *s, const pl_bound_program *b)
{
    return b->on_host ? &pl_access_direct : s->dev->access;
}

/* ---- making a session ------------------------------------------------------------------- */
enum { MORE_PROGRAMS = 16 }; /* that can be added later */

static pl_status lay_out_state(pl_session *s)
{
    s->n_slots = pl_store_count(s->store);
    s->slot_at = pl_arena_new(&s->mem, uint64_t, s->n_slots + 1);
    if (!s->slot_at) return PL_ERR_MEMORY;
    for (int i = 0; i < s->n_slots; i++) {
        uint64_t bytes = pl_slot_bytes(pl_store_slot(s->store, i));
        if (pl_home_level(s->homes, i)) bytes = 0; /* not in this block */
        s->slot_at[i + 1] =
            s->slot_at[i] + (bytes + PL_PLAN_ALIGN - 1) / PL_PLAN_ALIGN * PL_PLAN_ALIGN;
    }
    s->state_bytes = s->slot_at[s->n_slots];
    return PL_OK;
}

/* A program on the host reads and writes slots where they lie: all of them are in host memory. */
static pl_status check_host_program(const pl_session *s, const pl_program *p)
{
    for (uint32_t n = 1; n < p->g->n_nodes; n++) {
        int slot = pl_node_slot(p->g, n);
        PL_FAIL_IF(slot >= 0 && pl_home_level(s->homes, slot) != PL_LEVEL_HOST, PL_ERR_ARG,
                   "a program on the host uses slot \"%s\", which is not in host memory",
                   pl_store_slot(s->store, slot)->name);
    }
    return PL_OK;
}

/* Checks that a program uses the session's store, and a device that can run. */
static pl_status check_program(const pl_session *s, const pl_program *p, int i)
{
    PL_FAIL_IF(p->g->store != s->store, PL_ERR_ARG,
               "program %d was compiled with another store than the session's", i);
    if (runs_on_host(s, p)) return check_host_program(s, p);
    PL_FAIL_IF(i && p->dev != s->dev, PL_ERR_ARG,
               "programs of one session must be compiled for one device");
    PL_FAIL_IF(p->homes != s->homes, PL_ERR_ARG,
               "programs of one session must have the same slots below the device");
    PL_FAIL_IF(p->dev->plans_only, PL_ERR_DEVICE,
               "%s is a profile to plan with: nothing can run on it; plimsoll devices lists what "
               "this machine can train on",
               p->dev->name);
    return PL_OK;
}

/* Sets the session's device, and the sizes of its blocks: of each the largest that a program
 * needs. A program for the CPU beside programs of a device with its own memory has its arena on the
 * host. */
static pl_status size_blocks(pl_session *s, int n, pl_program *const *programs)
{
    for (int i = 0; i < n; i++)
        if (i == 0 || (programs[i]->dev->own_memory && !s->dev->own_memory)) {
            s->dev = programs[i]->dev;
            s->homes = programs[i]->homes;
            s->disk_dir = programs[i]->disk_dir;
        }
    for (int i = 0; i < n; i++) {
        PL_TRY(check_program(s, programs[i], i));
        const pl_plan *plan = programs[i]->plan;
        uint64_t *arena = runs_on_host(s, programs[i]) ? &s->host_arena_bytes : &s->arena_bytes;
        if (plan->arena_bytes > *arena) *arena = plan->arena_bytes;
        for (int level = 1; level < PL_N_LEVELS; level++)
            if (plan->level_bytes[level] > s->level_bytes[level])
                s->level_bytes[level] = plan->level_bytes[level];
    }
    return PL_OK;
}

static pl_status map_blocks(pl_session *s)
{
    void *arena = NULL, *state = NULL, *host = NULL;
    if (s->level_bytes[PL_LEVEL_HOST] || s->level_bytes[PL_LEVEL_DISK])
        PL_TRY(pl_levels_open(s->dev, s->level_bytes, s->disk_dir, &s->levels));
    PL_TRY(s->dev->alloc(s->arena_bytes, &arena));
    s->arena = arena;
    PL_TRY(s->dev->alloc(s->state_bytes, &state));
    s->state = state;
    PL_TRY(pl_device_cpu.alloc(s->host_arena_bytes, &host));
    s->host_arena = host;
    return PL_OK;
}

static pl_status build(pl_session *s, int n, pl_program *const *programs)
{
    PL_TRY(pl_store_status(s->store));
    PL_TRY(size_blocks(s, n, programs));
    PL_TRY(lay_out_state(s));
    uint64_t at = pl_sys_now_ns();
    PL_TRY(map_blocks(s));
    s->max_bound = n + MORE_PROGRAMS;
    s->bound = pl_arena_new(&s->mem, pl_bound_program, s->max_bound);
    if (!s->bound) return PL_ERR_MEMORY;
    s->times.memory = pl_lap(&at);
    if (s->dev->ready) PL_TRY(s->dev->ready());
    s->times.ready = pl_lap(&at);
    for (; s->n_bound < n; s->n_bound++)
        PL_TRY(bind_program(s, programs[s->n_bound], &s->bound[s->n_bound]));
    s->times.bind = pl_lap(&at);
    return s->dev->access->open(s);
}

pl_status pl_session_new(pl_store *store, int n, pl_program *const *programs, pl_session **out)
{
    pl_session *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    s->store = store;
    s->dev = &pl_device_cpu;
    pl_status rc = build(s, n, programs);
    if (rc != PL_OK) {
        pl_session_free(s);
        return rc;
    }
    *out = s;
    return PL_OK;
}

/* ---- one more program --------------------------------------------------------------------- */
/* Grows the arena in place where the device can; otherwise a larger arena replaces the old one, and
 * everything bound to the old one is bound again. */
static pl_status widen_arena(pl_session *s, uint64_t bytes)
{
    void *arena = s->arena;
    if (bytes <= s->arena_bytes) return PL_OK;
    if (arena && s->dev->grow) {
        PL_TRY(s->dev->grow(arena, s->arena_bytes, bytes));
        s->arena_bytes = bytes;
        return PL_OK;
    }
    PL_TRY(s->dev->alloc(bytes, &arena));
    if (s->arena) s->dev->free(s->arena, s->arena_bytes);
    s->arena = arena;
    s->arena_bytes = bytes;
    for (int i = 0; i < s->n_bound; i++) PL_TRY(bind_program(s, s->bound[i].p, &s->bound[i]));
    return PL_OK;
}

static pl_status add_bound(pl_session *s, pl_program *p)
{
    pl_bound_program *b = &s->bound[s->n_bound];
    memset(b, 0, sizeof *b);
    PL_TRY(bind_program(s, p, b));
    pl_status rc = access_of(s, b)->add(s, b);
    if (rc == PL_OK)
        s->n_bound++;
    else
        access_of(s, b)->drop(s, b);
    return rc;
}

pl_status pl_session_add(pl_session *s, pl_program *p)
{
    PL_TRY(check_program(s, p, s->n_bound));
    PL_FAIL_IF(pl_session_find(s, p), PL_ERR_ARG, "the session has this program already");
    PL_FAIL_IF(s->n_bound == s->max_bound, PL_ERR_ARG,
               "the session has %d programs and has no room for more", s->n_bound);
    PL_FAIL_IF(pl_store_count(s->store) != s->n_slots, PL_ERR_ARG,
               "the store has %d slots, the session was made for %d", pl_store_count(s->store),
               s->n_slots);
    PL_TRY(pl_session_wait(s));
    if (s->dev->ready) PL_TRY(s->dev->ready());
    for (int level = 1; level < PL_N_LEVELS; level++)
        PL_FAIL_IF(p->plan->level_bytes[level] > s->level_bytes[level], PL_ERR_ARG,
                   "the program needs %llu bytes below the device, the session has %llu",
                   (unsigned long long)p->plan->level_bytes[level],
                   (unsigned long long)s->level_bytes[level]);
    PL_FAIL_IF(runs_on_host(s, p) && p->plan->arena_bytes > s->host_arena_bytes, PL_ERR_ARG,
               "the program needs an arena of %llu bytes on the host, the session has %llu",
               (unsigned long long)p->plan->arena_bytes, (unsigned long long)s->host_arena_bytes);
    if (!runs_on_host(s, p)) PL_TRY(widen_arena(s, p->plan->arena_bytes));
    return add_bound(s, p);
}

void pl_session_free(pl_session *s)
{
    if (!s) return;
    s->dev->access->close(s);
    if (s->arena) s->dev->free(s->arena, s->arena_bytes);
    pl_device_cpu.free(s->host_arena, s->host_arena_bytes);
    if (s->state) s->dev->free(s->state, s->state_bytes);
    pl_levels_free(s->levels);
    pl_arena_release(&s->mem);
    pl_sys_free(s);
}

uint64_t pl_program_stage_bytes(const pl_program *p)
{
    return p->dev->access->stage_bytes(p);
}

pl_session_times pl_session_times_get(const pl_session *s)
{
    return s->times;
}

uint64_t pl_session_arena_bytes(const pl_session *s)
{
    return s->arena_bytes;
}

uint64_t pl_session_state_bytes(const pl_session *s)
{
    return s->state_bytes;
}

pl_bound_program *pl_session_find(const pl_session *s, const pl_program *p)
{
    for (int i = 0; i < s->n_bound; i++)
        if (s->bound[i].p == p) return &s->bound[i];
    return NULL;
}

/* ---- access ----------------------------------------------------------------------------- */
void *pl_session_slot(pl_session *s, int slot)
{
    /* slots without elements may leave the state without bytes */
    bool is = s->state && slot >= 0 && slot < s->n_slots && !pl_home_level(s->homes, slot) &&
              !pl_store_slot(s->store, slot)->quant;
    return is ? s->dev->access->host_address(s->state + s->slot_at[slot]) : NULL;
}

static pl_status check_part(const pl_session *s, int slot, uint64_t at, size_t bytes)
{
    PL_FAIL_IF(slot < 0 || slot >= s->n_slots, PL_ERR_ARG, "the session has no slot %d", slot);
    uint64_t all = pl_type_bytes(&pl_store_slot(s->store, slot)->type);
    PL_FAIL_IF(at > all || bytes > all - at, PL_ERR_ARG,
               "bytes %llu to %llu are out of range: slot %s has %llu", (unsigned long long)at,
               (unsigned long long)(at + bytes), pl_store_slot(s->store, slot)->name,
               (unsigned long long)all);
    return PL_OK;
}

pl_status pl__slot_read_stored(pl_session *s, int slot, uint64_t at, void *to, size_t bytes)
{
    uint8_t level = pl_home_level(s->homes, slot);
    if (level) PL_TRY(pl_session_wait(s));
    if (level) return pl_levels_read(s->levels, level, s->homes->offset[slot] + at, to, bytes);
    const char *from = s->state + s->slot_at[slot] + at;
    for (size_t done = 0, n; done < bytes; done += n) {
        const void *view;
        n = bytes - done;
        PL_TRY(s->dev->access->view(s, from + done, &n, &view));
        memcpy((char *)to + done, view, n);
    }
    return PL_OK;
}

pl_status pl__slot_write_stored(pl_session *s, int slot, uint64_t at, const void *from,
                                size_t bytes)
{
    uint8_t level = pl_home_level(s->homes, slot);
    if (level) PL_TRY(pl_session_wait(s));
    if (level) return pl_levels_write(s->levels, level, s->homes->offset[slot] + at, from, bytes);
    char *to = s->state + s->slot_at[slot] + at;
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done;
        void *block = s->dev->access->block(s, to + done, &n);
        memcpy(block, (const char *)from + done, n);
        PL_TRY(s->dev->access->put(s, to + done, block, n));
    }
    return PL_OK;
}

pl_status pl_session_read_slot(pl_session *s, int slot, uint64_t at, void *to, size_t bytes)
{
    PL_TRY(check_part(s, slot, at, bytes));
    return pl_store_slot(s->store, slot)->quant ? pl__slot_read_quantized(s, slot, at, to, bytes)
                                                : pl__slot_read_stored(s, slot, at, to, bytes);
}

pl_status pl_session_write_slot(pl_session *s, int slot, uint64_t at, const void *from,
                                size_t bytes)
{
    PL_TRY(check_part(s, slot, at, bytes));
    return pl_store_slot(s->store, slot)->quant ? pl__slot_write_quantized(s, slot, at, from, bytes)
                                                : pl__slot_write_stored(s, slot, at, from, bytes);
}

void *pl_session_input(pl_session *s, const pl_program *p, const char *name, pl_type *type)
{
    pl_bound_program *b = pl_session_find(s, p);
    for (int i = 0; i < p->n_inputs; i++) {
        if (strcmp(pl_node_name(p->g, p->inputs[i]), name) != 0) continue;
        if (type) *type = *pl_type_of(p->g, pl_node_get(p->g, p->inputs[i])->out);
        return b ? access_of(s, b)->input(s, b, i) : NULL;
    }
    return NULL;
}

const void *pl_session_output_of(pl_session *s, const pl_program *p, const char *name, int ago,
                                 pl_type *type)
{
    pl_bound_program *b = pl_session_find(s, p);
    for (uint32_t i = 0; i < p->plan->n_outputs; i++) {
        const pl_plan_output *o = &p->plan->outputs[i];
        if (strcmp(pl_node_name(p->g, o->node), name) != 0) continue;
        if (type) *type = *pl_type_of(p->g, pl_node_in(p->g, o->node)[0]);
        return b ? access_of(s, b)->output(s, b, i, ago) : NULL;
    }
    return NULL;
}

const void *pl_session_output(pl_session *s, const pl_program *p, const char *name, pl_type *type)
{
    return pl_session_output_of(s, p, name, 0, type);
}

/* ---- running ---------------------------------------------------------------------------- */
/* Fills dead bytes with NaN, to show that no result depends on them (M10): here everything but the
 * inputs, because nothing else is alive before the first unit. Inputs are buffers of the plan in no
 * special order, so each gap ends at the nearest input. */
static pl_status poison_start(pl_session *s, const pl_bound_program *b)
{
    const pl_plan *plan = b->p->plan;
    char *arena = b->on_host ? s->host_arena : s->arena;
    uint64_t at = 0;
    while (at < plan->arena_bytes) {
        uint64_t lo = plan->arena_bytes, hi = lo;
        for (uint32_t i = 0; i < plan->n_buffers; i++) {
            const pl_placed_buffer *f = &plan->buffers[i];
            if (f->component != PL_COMP_INPUTS || f->offset + f->bytes <= at) continue;
            if (f->offset < lo) lo = f->offset, hi = f->offset + f->bytes;
        }
        if (lo > at) PL_TRY(b->p->dev->fill(arena + at, 0xff, lo - at));
        at = hi;
    }
    return PL_OK;
}

static pl_status poison_after(pl_session *s, const pl_bound_program *b, uint32_t step)
{
    const pl_plan *plan = b->p->plan;
    char *arena = b->on_host ? s->host_arena : s->arena;
    if (step + 1 >= plan->n_positions) return PL_OK; /* outputs stay valid after the last unit */
    for (uint32_t i = b->dies_from[step]; i < b->dies_from[step + 1]; i++) {
        const pl_placed_buffer *f = &plan->buffers[b->dies[i]];
        PL_TRY(b->p->dev->fill(arena + f->offset, 0xff, f->bytes));
    }
    return PL_OK;
}

bool pl_session_is_watched(const pl_session *s, const pl_bound_program *b)
{
    return b->dies || b->profile.ns || s->watching;
}

pl_status pl_session_run_watched(pl_session *s, pl_bound_program *b, uint32_t *failed)
{
    b->profile.runs++;
    if (!b->dies && !s->watching)
        return b->p->dev->run(b->units, b->n_units, b->profile.ns, failed);
    if (b->dies) PL_TRY(poison_start(s, b));
    for (uint32_t i = 0; i < b->n_units; i++) {
        uint32_t zero;
        uint64_t *ns = b->profile.ns ? &b->profile.ns[i] : NULL;
        *failed = i;
        PL_TRY(b->p->dev->run(&b->units[i], 1, ns, &zero));
        if (s->watching) PL_TRY(pl_watch_unit(s, b, i));
        if (b->dies) PL_TRY(poison_after(s, b, i));
    }
    return PL_OK;
}

pl_status pl_session_send(pl_session *s, const pl_program *p)
{
    pl_bound_program *b = pl_session_find(s, p);
    PL_FAIL_IF(!b, PL_ERR_ARG, "the program does not belong to this session");
    return access_of(s, b)->send(s, b);
}

pl_status pl_session_run(pl_session *s, pl_program *p)
{
    pl_bound_program *b = pl_session_find(s, p);
    PL_FAIL_IF(!b, PL_ERR_ARG, "the program does not belong to this session");
    uint32_t failed = 0;
    /* a program on the host reads what the device has stored there */
    if (b->on_host) PL_TRY(pl_session_wait(s));
    pl_status rc = access_of(s, b)->run(s, b, &failed);
    if (rc == PL_OK || failed >= b->n_units) return rc;
    return pl__fail_prefix(rc, "%s", p->position_label[failed]);
}

pl_status pl_session_wait(pl_session *s)
{
    for (int i = 0; i < s->n_bound; i++)
        PL_TRY(access_of(s, &s->bound[i])->wait(s, &s->bound[i], 0));
    return PL_OK;
}

pl_status pl_session_wait_for(pl_session *s, const pl_program *p, int ago)
{
    const pl_bound_program *b = pl_session_find(s, p);
    PL_FAIL_IF(!b, PL_ERR_ARG, "the program does not belong to this session");
    return access_of(s, b)->wait(s, b, ago);
}

double pl_session_device_ms(pl_session *s, const pl_program *p, int ago)
{
    const pl_bound_program *b = pl_session_find(s, p);
    return b ? access_of(s, b)->device_ms(s, b, ago) : 0;
}

uint64_t pl_session_used_bytes(const pl_session *s)
{
    return s->dev->used_bytes();
}
