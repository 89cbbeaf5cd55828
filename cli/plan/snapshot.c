/* snapshot.c - `plan --snapshot`: a plan as a PyTorch memory snapshot (pickle).
 *
 * The viewer at pytorch.org/memory_viz (and torch/cuda/_memory_viz.py) reads a pickled dictionary:
 * `segments` with their blocks, and `device_traces`, a list of allocations and frees for each
 * device. A plan has both before the first step: one segment for the arena and one for the state,
 * and an alloc and a free for every buffer at its first and last position. The time of an event is
 * its position; the frame of an event names the layer.
 *
 * Pickle protocol 2, of which a writer needs a dozen opcodes: marks, text, integers, lists, dicts.
 */
#include "cli/plan/plan_view.h"

#include <stdlib.h>
#include <string.h>

/* Addresses in the picture: arbitrary, far apart. */
#define ARENA_AT ((uint64_t)0x7f0000000000)
#define STATE_AT ((uint64_t)0x7e0000000000)

/* ---- pickle ----------------------------------------------------------------------------- */
static void put_text(FILE *f, const char *text)
{
    uint32_t n = (uint32_t)strlen(text);
    fputc('X', f);
    for (int i = 0; i < 4; i++) fputc((int)(n >> (8 * i) & 255), f);
    fwrite(text, 1, n, f);
}

/* LONG1: a byte count and little-endian two's complement; nine bytes hold any uint64. */
static void put_int(FILE *f, uint64_t v)
{
    fputc(0x8a, f);
    fputc(9, f);
    for (int i = 0; i < 8; i++) fputc((int)(v >> (8 * i) & 255), f);
    fputc(0, f);
}

static void put_key_int(FILE *f, const char *key, uint64_t v)
{
    put_text(f, key);
    put_int(f, v);
}

static void put_key_text(FILE *f, const char *key, const char *text)
{
    put_text(f, key);
    put_text(f, text);
}

static void open_dict(FILE *f)
{
    fputs("}(", f);
}

static void open_list(FILE *f)
{
    fputs("](", f);
}

static void close_dict(FILE *f)
{
    fputc('u', f);
}

static void close_list(FILE *f)
{
    fputc('e', f);
}

/* ---- the snapshot ----------------------------------------------------------------------- */
static void put_frames(FILE *f, const char *label, int step)
{
    put_text(f, "frames");
    open_list(f);
    open_dict(f);
    put_key_text(f, "filename", "plan");
    put_key_int(f, "line", (uint64_t)(step + 1));
    put_key_text(f, "name", label);
    close_dict(f);
    close_list(f);
}

static void put_event(FILE *f, const char *action, uint64_t addr, uint64_t size, int step,
                      const char *label)
{
    open_dict(f);
    put_key_text(f, "action", action);
    put_key_int(f, "addr", addr);
    put_key_int(f, "size", size);
    put_key_int(f, "stream", 0);
    put_key_int(f, "time_us", (uint64_t)(step + 1));
    put_frames(f, label, step);
    close_dict(f);
}

/* A segment with one block: the whole of it, active (state) or free between steps (arena). */
static void put_segment(FILE *f, uint64_t at, uint64_t size, bool active, const char *label)
{
    open_dict(f);
    put_key_int(f, "device", 0);
    put_key_int(f, "address", at);
    put_key_int(f, "total_size", size);
    put_key_int(f, "allocated_size", active ? size : 0);
    put_key_int(f, "active_size", active ? size : 0);
    put_key_int(f, "requested_size", active ? size : 0);
    put_key_int(f, "stream", 0);
    put_key_text(f, "segment_type", "large");
    put_text(f, "segment_pool_id");
    put_int(f, 0);
    put_int(f, 0);
    fputc(0x86, f); /* a pair */
    put_text(f, "is_expandable");
    fputc(0x89, f); /* False */
    put_frames(f, label, 0);
    put_text(f, "blocks");
    open_list(f);
    open_dict(f);
    put_key_int(f, "address", at);
    put_key_int(f, "size", size);
    put_key_int(f, "requested_size", size);
    put_key_text(f, "state", active ? "active_allocated" : "inactive");
    put_frames(f, label, 0);
    close_dict(f);
    close_list(f);
    close_dict(f);
}

typedef struct event {
    int step, buffer;
    bool ends;
} event;

/* By step; at one step what ends goes before what begins. */
static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->step != y->step) return x->step - y->step;
    if (x->ends != y->ends) return y->ends - x->ends;
    return x->buffer - y->buffer;
}

static void put_trace(FILE *f, const pl_program *p, uint64_t arena, uint64_t state, event *events)
{
    int n = pl_program_plan(p)->buffers;
    for (int i = 0; i < n; i++) {
        pl_plan_buffer b = pl_program_buffer(p, i);
        events[2 * i] = (event){b.first, i, false};
        events[2 * i + 1] = (event){b.last, i, true};
    }
    qsort(events, 2 * (size_t)n, sizeof *events, by_time);
    put_event(f, "segment_alloc", STATE_AT, state, -1, "state");
    put_event(f, "alloc", STATE_AT, state, -1, "state: weights, moments, statistics, counters");
    put_event(f, "segment_alloc", ARENA_AT, arena, -1, "arena");
    for (int i = 0; i < 2 * n; i++) {
        pl_plan_buffer b = pl_program_buffer(p, events[i].buffer);
        uint64_t at = ARENA_AT + b.offset;
        if (events[i].ends) {
            put_event(f, "free_requested", at, b.bytes, events[i].step, b.label);
            put_event(f, "free_completed", at, b.bytes, events[i].step, b.label);
        } else {
            put_event(f, "alloc", at, b.bytes, events[i].step, b.label);
        }
    }
}

bool plan_snapshot(const pl_run *run, const char *path)
{
    const pl_program *p = plan_largest_program(run, false).program;
    pl_run_memory m = pl_run_memory_get(run);
    event *events = calloc(2 * (size_t)pl_program_plan(p)->buffers + 1, sizeof *events);
    cli_file out;
    bool ok = events && cli_file_open(&out, path);
    if (ok) {
        FILE *f = out.f;
        fputs("\x80\x02", f);
        open_dict(f);
        put_text(f, "segments");
        open_list(f);
        put_segment(f, STATE_AT, m.state, true, "state");
        put_segment(f, ARENA_AT, m.arena, false, "arena");
        close_list(f);
        put_text(f, "device_traces");
        open_list(f);
        open_list(f);
        put_trace(f, p, m.arena, m.state, events);
        close_list(f);
        close_list(f);
        close_dict(f);
        fputc('.', f);
        ok = cli_file_close(&out, true);
    }
    free(events);
    return ok;
}
