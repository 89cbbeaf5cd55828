/* rank_files.c - sharded state in files and back.
 *
 * Rank 0 writes a checkpoint as a single process would, and requests from the other ranks the state
 * that rank 0 does not have; they answer these orders until it is done:
 *
 *   FETCH slot   every rank sends its shard of the slot; the whole passes through rank 0's stage
 *   PART  dir    every rank writes its shards of state into dir/part-RRRRR-of-NNNNN.safetensors
 *   DONE         the end, and whether the save succeeded
 *
 * Weights are whole in model.safetensors, whatever the sharding. Sharded moments are in the part
 * files, flat, in the order of ranks: part p of a tensor follows the elements of parts 0 to p-1. So
 * any number of ranks can read what any other number wrote. Rank 0 writes the manifest, which lists
 * every file, after all parts: a checkpoint with a missing part is rejected.
 */
#include "base/dtype.h"
#include "base/sys.h"
#include "dist/world.h"
#include "io/safetensors.h"
#include "train/files/checkpoint.h"

#include <stdio.h>
#include <string.h>

enum { FETCH = 1, PART = 2, DONE = 3 };

typedef struct order {
    int32_t what, arg;
    char dir[PL_PATH_BYTES];
} order;

/* A rank's answer to PART. */
typedef struct answer {
    int32_t status;
    uint64_t bytes, hash;
    char text[256];
} answer;

/* Sends rank 0's bytes to all ranks. Without a world it does nothing. */
pl_status pl_world_tell(pl_world *w, void *data, size_t bytes)
{
    if (!w) return PL_OK;
    pl_comm *c = pl_world_comm(w);
    for (int i = 0; i < c->size; i++) {
        c->send[i] = (pl_parcel){data, c->rank == 0 ? bytes : 0};
        c->recv[i] = (pl_parcel){data, i == 0 ? bytes : 0};
    }
    c->op = "order";
    c->name = "of rank 0";
    return pl_comm_exchange(c, PL_TRAFFIC_CONTROL);
}

/* Returns the bytes of the slot's whole value that rank i holds, and sets where they begin. */
static size_t part_bytes(const pl_slot *s, int i, size_t *at)
{
    size_t part = pl_type_bytes(&s->type), all = pl_type_bytes(&s->whole);
    *at = (size_t)i * part;
    return *at >= all ? 0 : all - *at < part ? all - *at : part;
}

/* Returns the bytes of [from, from + n) of the slot's whole value that rank i holds; *at: where
 * they begin. */
static size_t window_of(const pl_slot *s, int i, size_t from, size_t n, size_t *at)
{
    size_t begin, bytes = part_bytes(s, i, &begin), end = begin + bytes;
    size_t lo = begin > from ? begin : from, hi = end < from + n ? end : from + n;
    *at = lo < hi ? lo : from;
    return lo < hi ? hi - lo : 0;
}

/* FETCH, on rank 0 and on the others: the whole value passes through rank 0's stage, block by
 * block, to its sink. */
static pl_status gather_slot(pl_run *r, int slot, pl_bytes_sink sink, void *ctx)
{
    pl_comm *c = pl_world_comm(r->ranks.world);
    const pl_slot *s = pl_store_slot(r->store, slot);
    size_t at, begin, all = pl_type_bytes(&s->whole);
    part_bytes(s, c->rank, &begin);
    for (size_t from = 0; from < all; from += PL_STAGE_BYTES) {
        size_t n = all - from < PL_STAGE_BYTES ? all - from : PL_STAGE_BYTES;
        for (int i = 0; i < c->size; i++) {
            size_t bytes = window_of(s, i, from, n, &at);
            c->recv[i] = (pl_parcel){r->files.stage + (at - from), c->rank == 0 && i ? bytes : 0};
            c->send[i] = (pl_parcel){r->files.stage, 0};
        }
        size_t own = window_of(s, c->rank, from, n, &at);
        char *to = c->rank ? r->files.stage : r->files.stage + (at - from);
        if (own) PL_TRY(pl_session_read_slot(r->session, slot, at - begin, to, own));
        if (c->rank) c->send[0].bytes = own;
        c->op = "gathering";
        c->name = s->name;
        PL_TRY(pl_comm_exchange(c, PL_TRAFFIC_CONTROL));
        if (c->rank == 0) PL_TRY(sink(ctx, r->files.stage, n));
    }
    return PL_OK;
}

pl_status pl__ranks_fetch(pl_run *r, int slot, pl_bytes_sink sink, void *ctx)
{
    order o = {.what = FETCH, .arg = slot};
    PL_FAIL_IF(!r->ranks.world || pl_world_rank(r->ranks.world), PL_ERR_PEER,
               "%s is sharded across ranks, and this process cannot reach the other ranks",
               pl_store_slot(r->store, slot)->name);
    PL_TRY(pl_world_tell(r->ranks.world, &o, sizeof o));
    return gather_slot(r, slot, sink, ctx);
}

/* ---- part files ------------------------------------------------------------------------- */
static bool in_part_file(const pl_slot *s)
{
    return s->shards && pl__slot_in_state(s);
}

bool pl__slot_in_state_file(const pl_slot *s)
{
    return pl__slot_in_state(s) && !s->shards;
}

static void part_name(int i, int n, char *out, size_t cap)
{
    snprintf(out, cap, "part-%05d-of-%05d.safetensors", i, n);
}

static bool shares_state(const pl_run *r)
{
    for (int i = 0; i < pl_store_count(r->store); i++)
        if (in_part_file(pl_store_slot(r->store, i))) return true;
    return false;
}

static pl_status write_part(pl_run *r, pl_st_writer *w, const int *slots, int n)
{
    PL_TRY(pl_st_writer_begin(w));
    for (int i = 0; i < n; i++) {
        int k = pl_st_writer_order(w, i);
        size_t at, bytes = part_bytes(pl_store_slot(r->store, slots[k]),
                                      pl_world_rank(r->ranks.world), &at);
        for (size_t done = 0; done < bytes;) {
            size_t m = bytes - done < PL_STAGE_BYTES ? bytes - done : PL_STAGE_BYTES;
            PL_TRY(pl_session_read_slot(r->session, slots[k], done, r->files.stage, m));
            PL_TRY(pl_st_writer_write(w, k, r->files.stage, m));
            done += m;
        }
    }
    return pl_st_writer_finish(w);
}

static pl_status save_part(pl_run *r, const char *dir, answer *out)
{
    char name[48], path[PL_PATH_BYTES];
    pl_st_writer *w = NULL;
    int n = 0, *slots = pl_sys_alloc((size_t)pl_store_count(r->store) * sizeof(int) + 1);
    if (!slots) return PL_ERR_MEMORY;
    part_name(pl_world_rank(r->ranks.world), pl_world_size(r->ranks.world), name, sizeof name);
    pl_status rc = pl__path(path, dir, name);
    if (rc == PL_OK) rc = pl_st_writer_new(path, &w);
    for (int i = 0; rc == PL_OK && i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        size_t at, bytes = in_part_file(s) ? part_bytes(s, pl_world_rank(r->ranks.world), &at) : 0;
        if (!in_part_file(s)) continue;
        pl_type t = PL_TYPE(s->type.dtype, (int64_t)(bytes / pl_dtype_bytes(s->type.dtype)));
        rc = pl_st_writer_add(w, s->name, &t);
        slots[n++] = i;
    }
    if (rc == PL_OK) rc = write_part(r, w, slots, n);
    if (rc == PL_OK) pl_st_writer_sum(w, &out->bytes, &out->hash);
    pl_st_writer_free(w);
    pl_sys_free(slots);
    return rc;
}

/* PART, on rank 0 and on the others. Every rank gets the answers of all. */
static pl_status save_all_parts(pl_run *r, const char *dir, answer *all)
{
    answer own;
    memset(&own, 0, sizeof own);
    own.status = save_part(r, dir, &own);
    if (own.status != PL_OK) snprintf(own.text, sizeof own.text, "%s", pl_error_text());
    return pl_world_share(r->ranks.world, &own, sizeof own, all);
}

pl_status pl__ranks_save_parts(pl_run *r, const char *dir, pl_checkpoint *c)
{
    int n = pl_world_size(r->ranks.world);
    if (!shares_state(r)) return PL_OK;
    PL_FAIL_IF(c->n_files + n > (int)(sizeof c->file / sizeof *c->file), PL_ERR_IO,
               "a checkpoint of %d ranks has too many files", n);
    order o = {.what = PART};
    snprintf(o.dir, sizeof o.dir, "%s", dir);
    answer *all = pl_sys_alloc((size_t)n * sizeof *all);
    if (!all) return PL_ERR_MEMORY;
    pl_status rc = pl_world_tell(r->ranks.world, &o, sizeof o);
    if (rc == PL_OK) rc = save_all_parts(r, dir, all);
    for (int i = 0; rc == PL_OK && i < n; i++) {
        int k = c->n_files++;
        if (all[i].status != PL_OK)
            rc = pl__fail((pl_status)all[i].status, __FILE__, __LINE__, "rank %d: %s", i,
                          all[i].text);
        part_name(i, n, c->file[k].name, sizeof c->file[k].name);
        c->file[k].bytes = all[i].bytes;
        c->file[k].hash = all[i].hash;
        c->bytes += all[i].bytes;
    }
    pl_sys_free(all);
    return rc;
}

/* ---- serving ---------------------------------------------------------------------------- */
pl_status pl_run_serve(pl_run *r, bool *well)
{
    order o;
    answer *all = NULL;
    pl_status rc = PL_OK;
    *well = false;
    if (!r->ranks.world) return PL_OK;
    do {
        memset(&o, 0, sizeof o);
        rc = pl_world_tell(r->ranks.world, &o, sizeof o);
        if (rc == PL_OK && o.what == FETCH) rc = gather_slot(r, o.arg, NULL, NULL);
        if (rc == PL_OK && o.what == PART) {
            if (!all) all = pl_sys_alloc((size_t)pl_world_size(r->ranks.world) * sizeof *all);
            rc = all ? save_all_parts(r, o.dir, all) : PL_ERR_MEMORY;
        }
    } while (rc == PL_OK && o.what != DONE);
    pl_sys_free(all);
    *well = rc == PL_OK && o.arg != 0;
    return rc;
}

pl_status pl_run_served(pl_run *r, bool well)
{
    order o = {.what = DONE, .arg = well};
    return pl_world_tell(r->ranks.world, &o, sizeof o);
}

/* ---- reading ---------------------------------------------------------------------------- */
/* Reads elements [first, first + n) of the slot's whole value to the beginning of the slot, as far
 * as the tensor, which holds elements [begin, end), has them. */
static pl_status read_overlap(pl_run *r, const pl_st_reader *f, const pl_st_tensor *t, int slot,
                              int64_t begin, int64_t end, int64_t first, int64_t n)
{
    size_t elem = pl_dtype_bytes(pl_store_slot(r->store, slot)->type.dtype);
    int64_t from = begin > first ? begin : first, to = end < first + n ? end : first + n;
    int64_t step = (int64_t)(PL_STAGE_BYTES / elem);
    for (; from < to; from += step) {
        int64_t m = to - from < step ? to - from : step;
        PL_TRY(pl_st_read_range(f, t, (uint64_t)(from - begin) * elem, (size_t)m * elem,
                                r->files.stage));
        PL_TRY(pl_session_write_slot(r->session, slot, (uint64_t)(from - first) * elem,
                                     r->files.stage, (size_t)m * elem));
    }
    return PL_OK;
}

int64_t pl__slot_range(const pl_slot *s, int64_t *first)
{
    int64_t n = pl_type_elems(&s->type), all = pl_type_elems(pl_slot_type(s));
    *first = s->shards ? s->shard * n : 0;
    return *first >= all ? 0 : all - *first < n ? all - *first : n;
}

static pl_status read_parts(pl_run *r, pl_st_reader *const *part, int n_parts, int slot,
                            const char *dir)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    int64_t first, n = pl__slot_range(s, &first), at = 0;
    for (int p = 0; p < n_parts; p++) {
        const pl_st_tensor *t = pl_st_find(part[p], s->name);
        if (!t || !t->loadable || t->type.dtype != s->type.dtype) break;
        int64_t elems = pl_type_elems(&t->type);
        PL_TRY(read_overlap(r, part[p], t, slot, at, at + elems, first, n));
        at += elems;
    }
    PL_FAIL_IF(at != pl_type_elems(pl_slot_type(s)), PL_ERR_FILE,
               "%s has %lld elements of \"%s\", the run has "
               "%lld",
               dir, (long long)at, s->name, (long long)pl_type_elems(pl_slot_type(s)));
    return PL_OK;
}

static pl_status read_state_slots(pl_run *r, const pl_st_reader *whole, pl_st_reader *const *part,
                                  int n_parts, const char *dir)
{
    int wanted = 0, there = pl_st_count(whole) + (n_parts ? pl_st_count(part[0]) : 0);
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        if (!pl__slot_in_state(s)) continue;
        const pl_st_tensor *t = pl_st_find(whole, s->name);
        char a[96], b[96];
        wanted++;
        PL_FAIL_IF(t && (!t->loadable || !pl_type_equal(&t->type, pl_slot_type(s))), PL_ERR_FILE,
                   "%s: tensor \"%s\" is %s, the run needs %s", dir, s->name,
                   pl_type_text(&t->type, b, sizeof b), pl_type_text(pl_slot_type(s), a, sizeof a));
        PL_TRY(t ? pl__slot_read(r, whole, t, i, false, NULL)
                 : read_parts(r, part, n_parts, i, dir));
    }
    PL_FAIL_IF(there > wanted, PL_ERR_FILE,
               "%s has %d state tensors, the run has %d: the file belongs to another run", dir,
               there, wanted);
    return PL_OK;
}

pl_status pl__ranks_read_state(pl_run *r, const char *dir, const pl_checkpoint *c)
{
    char path[PL_PATH_BYTES], name[48];
    pl_st_reader *whole = NULL, **part = NULL;
    int n = 0, opened = 0;
    for (int i = 0; i < c->n_files; i++) n += strncmp(c->file[i].name, "part-", 5) == 0;
    PL_TRY(pl__path(path, dir, "state.safetensors"));
    PL_TRY(pl_st_open(path, &whole));
    part = pl_sys_alloc(((size_t)n + 1) * sizeof *part);
    pl_status rc = part ? PL_OK : PL_ERR_MEMORY;
    for (; rc == PL_OK && opened < n; opened++) {
        part_name(opened, n, name, sizeof name);
        rc = pl__path(path, dir, name);
        if (rc == PL_OK) rc = pl_st_open(path, &part[opened]);
        if (rc != PL_OK) break;
    }
    if (rc == PL_OK) rc = read_state_slots(r, whole, part, n, dir);
    for (int i = 0; i < opened; i++) pl_st_close(part[i]);
    pl_st_close(whole);
    pl_sys_free(part);
    return rc;
}
