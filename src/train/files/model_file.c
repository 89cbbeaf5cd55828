/* model_file.c - slots to and from safetensors files, in PyTorch's names and layouts.
 *
 * A slot's file layout says: with our value viewed as shape `view`, file dimension i is our
 * dimension perm[i]. Both directions walk the file's elements in order and step through ours by
 * strides, one block at a time. Model files hold parameters and buffers; moments and counters
 * belong to checkpoints, which keep them in our own layout.
 */
#include "base/dtype.h"
#include "base/sys.h"
#include "base/threads.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "rt/levels/process_levels.h"
#include "train/files/weight_source.h"
#include "train/run/run.h"

#include <math.h>
#include <string.h>

/* The file's shape, and the stride in our value of each file dimension. */
typedef struct layout_walk {
    pl_type file;
    int64_t stride[PL_MAX_RANK];
} layout_walk;

static layout_walk walk_of(const pl_slot *slot)
{
    const pl_file_layout *l = &slot->layout;
    const pl_type *type = pl_slot_type(slot);
    int32_t rank = l->view_rank ? l->view_rank : type->rank;
    const int64_t *dim = l->view_rank ? l->view : type->dim;
    int64_t ours[PL_MAX_RANK], stride = 1, file_dim[PL_MAX_RANK];
    for (int i = rank - 1; i >= 0; i--) {
        ours[i] = stride;
        stride *= dim[i];
    }
    layout_walk w;
    for (int i = 0; i < rank; i++) {
        int k = l->rank ? l->perm[i] : i;
        file_dim[i] = dim[k];
        w.stride[i] = ours[k];
    }
    w.file = pl_type_make(slot->type.dtype, rank, file_dim);
    return w;
}

pl_type pl__slot_file_type(const pl_slot *slot)
{
    pl_type t = walk_of(slot).file;
    return slot->layout.flat ? PL_TYPE(t.dtype, pl_type_elems(&t)) : t;
}

/* Whether the file has the elements in our order. */
static bool same_order(const pl_slot *slot)
{
    bool same = true;
    for (int i = 0; i < slot->layout.rank; i++) same &= slot->layout.perm[i] == i;
    return same;
}

/* Copies elements [first, first + n) in the file's order, between `part`, which holds only them,
 * and our whole value. */
static void copy_walk(const pl_slot *slot, int64_t first, int64_t n, char *part, char *ours,
                      bool to_file)
{
    layout_walk w = walk_of(slot);
    size_t bytes = pl_dtype_bytes(slot->type.dtype);
    int64_t at[PL_MAX_RANK] = {0}, from = 0, rest = first;
    for (int k = w.file.rank - 1; k >= 0 && w.file.dim[k]; k--) {
        at[k] = rest % w.file.dim[k];
        rest /= w.file.dim[k];
        from += at[k] * w.stride[k];
    }
    for (int64_t i = 0; i < n; i++) {
        size_t a = (size_t)i * bytes, b = (size_t)from * bytes;
        if (to_file)
            memcpy(part + a, ours + b, bytes);
        else
            memcpy(ours + b, part + a, bytes);
        for (int k = w.file.rank - 1; k >= 0; k--) {
            from += w.stride[k];
            if (++at[k] < w.file.dim[k]) break;
            from -= at[k] * w.stride[k];
            at[k] = 0;
        }
    }
}

/* The direction decides which of the two is read and which is written. */
static char *writable(const void *p)
{
    return (char *)(uintptr_t)p;
}

void pl__slot_from_file(const pl_slot *slot, const void *src, void *dst)
{
    copy_walk(slot, 0, pl_type_elems(&slot->type), writable(src), dst, false);
}

void pl__slot_to_file(const pl_slot *slot, const void *ours, void *to)
{
    copy_walk(slot, 0, pl_type_elems(&slot->type), to, writable(ours), true);
}

bool pl__slot_in_model(const pl_slot *s)
{
    return s->kind == PL_SLOT_PARAM || s->kind == PL_SLOT_BUFFER;
}

/* ---- staging ----------------------------------------------------------------------------
 * All bytes pass through a block that is allocated when the run is opened, so that the plan counts
 * it. Slots that the host cannot address and that have another layout in the file pass through host
 * memory as a whole. */
pl_status pl__stage_open(pl_run *r)
{
    r->files.stage = pl_sys_alloc(PL_STAGE_BYTES);
    if (!r->files.stage) return PL_ERR_MEMORY;
    memset(r->files.stage, 1,
           PL_STAGE_BYTES); /* touches the pages, so that they count as resident */
    return PL_OK;
}

/* Whether a slot lives below the device. */
static bool is_below(const pl_run *r, int slot)
{
    return r->build && r->build->levels && pl_home_level(&r->build->levels->homes, slot);
}

/* Returns the bytes of the largest slot of the model that must pass through r->files.whole. */
static size_t whole_bytes(const pl_run *r, bool in_host)
{
    size_t most = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        bool passes = (pl__slot_in_model(s) || pl__is_average(s)) && !same_order(s) &&
                      (s->shards || s->quant || !in_host || is_below(r, i));
        if (passes && pl_type_bytes(pl_slot_type(s)) > most) most = pl_type_bytes(pl_slot_type(s));
    }
    return most;
}

uint64_t pl__stage_slots_bytes(const pl_run *r)
{
    return whole_bytes(r, true);
}

enum { AT_ONCE = 2 << 20 };
typedef struct whole {
    char *at;
    size_t bytes;
} whole;

static void make_resident(void *ctx, int64_t task, int worker)
{
    const whole *w = ctx;
    size_t at = (size_t)task * AT_ONCE;
    (void)worker;
    memset(w->at + at, 1, w->bytes - at < AT_ONCE ? w->bytes - at : AT_ONCE);
}

pl_status pl__stage_slots(pl_run *r)
{
    bool in_host = !pl__run_own_memory(r);
    size_t most = whole_bytes(r, in_host);
    if (!most || r->files.whole) return PL_OK;
    r->files.whole = pl_sys_alloc(most);
    if (!r->files.whole) return PL_ERR_MEMORY;
    whole w = {r->files.whole, most};
    pl_threads_for((int64_t)((most + AT_ONCE - 1) / AT_ONCE), make_resident, &w);
    return PL_OK;
}

/* ---- saving ----------------------------------------------------------------------------- */
/* Receives the bytes of a sharded slot. */
typedef struct fetched {
    pl_st_writer *w;
    int k;
    char *at;
} fetched;

static pl_status fetched_to_file(void *ctx, const char *data, size_t bytes)
{
    fetched *f = ctx;
    return pl_st_writer_write(f->w, f->k, data, bytes);
}

static pl_status fetched_to_memory(void *ctx, const char *data, size_t bytes)
{
    fetched *f = ctx;
    memcpy(f->at, data, bytes);
    f->at += bytes;
    return PL_OK;
}

static pl_status write_ordered(pl_run *r, pl_st_writer *w, int k, int slot)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    size_t bytes = pl_type_bytes(pl_slot_type(s));
    if (s->shards) return pl__ranks_fetch(r, slot, fetched_to_file, &(fetched){.w = w, .k = k});
    const char *ours = pl_session_slot(r->session, slot);
    if (ours) return pl_st_writer_write(w, k, ours, bytes);
    for (size_t at = 0; at < bytes;) {
        size_t n = bytes - at < PL_STAGE_BYTES ? bytes - at : PL_STAGE_BYTES;
        PL_TRY(pl_session_read_slot(r->session, slot, at, r->files.stage, n));
        PL_TRY(pl_st_writer_write(w, k, r->files.stage, n));
        at += n;
    }
    return PL_OK;
}

static pl_status write_walked(pl_run *r, pl_st_writer *w, int k, int slot)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    size_t size = pl_dtype_bytes(s->type.dtype);
    int64_t elems = pl_type_elems(pl_slot_type(s)), chunk = (int64_t)(PL_STAGE_BYTES / size);
    char *ours = s->shards ? r->files.whole : pl_session_slot(r->session, slot);
    if (s->shards) {
        PL_TRY(pl__ranks_fetch(r, slot, fetched_to_memory, &(fetched){.at = ours}));
    } else if (!ours) {
        ours = r->files.whole;
        PL_TRY(pl_session_read_slot(r->session, slot, 0, ours, pl_type_bytes(&s->type)));
    }
    for (int64_t at = 0; at < elems; at += chunk) {
        int64_t n = elems - at < chunk ? elems - at : chunk;
        copy_walk(s, at, n, r->files.stage, ours, true);
        PL_TRY(pl_st_writer_write(w, k, r->files.stage, (size_t)n * size));
    }
    return PL_OK;
}

static pl_type type_in(const pl_slot *s, bool model)
{
    return model ? pl__slot_file_type(s) : *pl_slot_type(s);
}

/* Which slots a file holds, and how. */
typedef struct contents {
    pl_slot_test test;
    bool model; /* in PyTorch's names and layouts */
    bool leave; /* without the frozen weights that checkpoints leave out */
    bool averages;
} contents;

/* Declares the other names of slot `name` in a model file: the slot is written again. */
static pl_status declare_tied(pl_run *r, pl_st_writer *w, const char *name, const pl_type *t,
                              int from, int *slots, int *n)
{
    char other[PL_TENSOR_NAME];
    for (int k = 0; pl__tied_name(r, name, k, other, sizeof other); k++) {
        bool usable = pl_utf8_valid(other, strlen(other)) && strcmp(other, "__metadata__") != 0;
        if (!usable || pl_store_find(r->store, other) >= 0) continue;
        PL_TRY(pl_st_writer_add(w, other, t));
        slots[(*n)++] = from;
    }
    return PL_OK;
}

static pl_status declare_slots(pl_run *r, pl_st_writer *w, const contents *c, int *slots, int *n)
{
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        int from = i;
        if (!c->test(s) || (c->leave && r->files.leaving[i])) continue;
        if (c->averages) PL_TRY(pl__average_of(r, i, &from));
        if (from < 0) from = i;
        pl_type t = type_in(pl_store_slot(r->store, from), c->model);
        PL_TRY(pl_st_writer_add(w, s->name, &t));
        slots[(*n)++] = from;
        if (c->model) PL_TRY(declare_tied(r, w, s->name, &t, from, slots, n));
    }
    if (c->model) PL_TRY(pl_st_writer_meta(w, "format", "pt"));
    if (c->model) PL_TRY(pl__meta_write(r, w));
    if (c->averages) PL_TRY(pl_st_writer_meta(w, "plimsoll.weights", "averaged"));
    if (c->leave) PL_TRY(pl__frozen_tell(r, w));
    if (c->model) PL_TRY(pl__random_frozen_tell(r, w));
    PL_TRY(pl_st_writer_meta(w, "plimsoll.recipe", r->recipe->name));
    return pl_st_writer_meta(w, "plimsoll.version", pl_version());
}

static pl_status write_slots(pl_run *r, pl_st_writer *w, bool model, const int *slots, int n)
{
    PL_TRY(pl_st_writer_begin(w));
    for (int i = 0; i < n; i++) {
        int k = pl_st_writer_order(w, i);
        bool walk = model && !same_order(pl_store_slot(r->store, slots[k]));
        PL_TRY(walk ? write_walked(r, w, k, slots[k]) : write_ordered(r, w, k, slots[k]));
    }
    return pl_st_writer_finish(w);
}

static pl_status write_file(pl_run *r, const char *path, const contents *c, uint64_t *bytes,
                            uint64_t *hash)
{
    pl_st_writer *w = NULL;
    int n = 0, most = pl_store_count(r->store) + pl__tied_count(r);
    int *slots = pl_sys_alloc((size_t)most * sizeof(int) + 1);
    pl_status rc = slots ? pl_st_writer_new(path, &w) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = declare_slots(r, w, c, slots, &n);
    if (rc == PL_OK) rc = write_slots(r, w, c->model, slots, n);
    if (rc == PL_OK) pl_st_writer_sum(w, bytes, hash);
    pl_st_writer_free(w);
    pl_sys_free(slots);
    return rc;
}

pl_status pl__slots_write(pl_run *r, const char *path, bool model, pl_slot_test test, bool leave,
                          uint64_t *bytes, uint64_t *hash)
{
    return write_file(r, path, &(contents){.test = test, .model = model, .leave = leave}, bytes,
                      hash);
}

pl_status pl_run_save_model(pl_run *r, const char *path)
{
    uint64_t bytes, hash;
    return pl__slots_write(r, path, true, pl__slot_in_model, false, &bytes, &hash);
}

pl_status pl_run_save_averages(pl_run *r, const char *path)
{
    uint64_t bytes, hash;
    return write_file(r, path,
                      &(contents){.test = pl__slot_in_model, .model = true, .averages = true},
                      &bytes, &hash);
}

/* ---- loading ---------------------------------------------------------------------------- */
/* Converts numbers of another floating type, rounded to the slot's. */
static void convert(pl_dtype from, const void *src, pl_dtype to, void *dst, int64_t n)
{
    const uint16_t *half = src;
    const float *real = src;
    if (from == PL_BF16 && to == PL_F32)
        for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = pl_bf16_to_f32(half[i]);
    else if (from == PL_F32 && to == PL_BF16)
        for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = pl_f32_to_bf16(real[i]);
    else
        for (int64_t i = 0; i < n; i++) pl_elem_set(to, dst, i, pl_elem_get(from, src, i));
}

/* A tensor of a file, and what of it a slot takes. */
typedef struct piece {
    const pl_st_reader *f;
    const pl_st_tensor *t;
    int64_t first, add_count; /* in elements of the file, of the slot */
    double add;
    bool check; /* the values are another run's or another program's: NaN is refused */
} piece;

static piece piece_of(const pl_slot *s, const pl_st_reader *f, const pl_st_tensor *t,
                      const pl_published *from)
{
    piece p = {.f = f, .t = t};
    if (!from) return p;
    p.check = true;
    int64_t rows = pl__slot_file_type(s).dim[0];
    if (from->rows && rows) p.first = from->row * (pl_type_elems(pl_slot_type(s)) / rows);
    p.add = from->add;
    p.add_count = from->add_count;
    return p;
}

/* Quantized slots are written in whole blocks. */
enum { CHUNK_OF = 64 };

/* Returns how many elements fit the stage at once: in the slot's type, and after them in the file's
 * type. */
static int64_t chunk_of(const pl_st_tensor *t, const pl_slot *s)
{
    size_t ours = pl_dtype_bytes(s->type.dtype), theirs = pl_dtype_bytes(t->type.dtype);
    size_t each = t->type.dtype == s->type.dtype ? ours : ours + theirs;
    return (int64_t)(PL_STAGE_BYTES / each / CHUNK_OF * CHUNK_OF);
}

pl_status pl__weights_check(const pl_st_reader *f, const pl_st_tensor *t, const void *raw,
                            pl_dtype type, const void *values, int64_t at, int64_t n)
{
    pl_dtype theirs = t->type.dtype;
    bool real = type == PL_F32 || type == PL_F64 || type == PL_F16 || type == PL_BF16;
    for (int64_t i = 0; real && i < n; i++) {
        double v =
            type == PL_F32 ? (double)((const float *)values)[i] : pl_elem_get(type, values, i);
        if (isfinite(v)) continue;
        PL_FAIL_IF(
            isnan(v), PL_ERR_FILE,
            "%.300s: tensor \"%s\" has NaN, first as element %lld: the training that saved it "
            "had diverged; use an earlier checkpoint",
            pl_st_path(f), t->name, (long long)(at + i));
        double before = theirs == type ? v : pl_elem_get(theirs, raw, i);
        PL_FAIL_IF(isfinite(before), PL_ERR_FILE,
                   "%.300s: tensor \"%s\": element %lld, %g, is too large for %s, to which the "
                   "weights are converted",
                   pl_st_path(f), t->name, (long long)(at + i), before, pl_dtype_name(type));
    }
    return PL_OK;
}

/* Reads elements [at, at + n) of the slot, in the file's order and the slot's type, into the
 * stage. */
static pl_status read_part(pl_run *r, const piece *p, const pl_slot *s, int64_t at, int64_t n)
{
    pl_dtype type = s->type.dtype;
    size_t ours = pl_dtype_bytes(type), theirs = pl_dtype_bytes(p->t->type.dtype);
    bool same = p->t->type.dtype == type;
    char *stage = r->files.stage, *raw = same ? stage : stage + (size_t)chunk_of(p->t, s) * ours;
    PL_TRY(
        pl_st_read_range(p->f, p->t, (uint64_t)(p->first + at) * theirs, (size_t)n * theirs, raw));
    if (!same) convert(p->t->type.dtype, raw, type, stage, n);
    if (p->check) PL_TRY(pl__weights_check(p->f, p->t, raw, type, stage, at, n));
    for (int64_t i = 0; i < n && at + i < p->add_count; i++)
        pl_elem_set(type, stage, i, pl_elem_get(type, stage, i) - p->add);
    return PL_OK;
}

static pl_status read_walked(pl_run *r, const piece *p, int slot)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    int64_t elems = pl_type_elems(pl_slot_type(s)), chunk = chunk_of(p->t, s);
    char *there = s->shards ? NULL : pl_session_slot(r->session, slot),
         *ours = there ? there : r->files.whole;
    for (int64_t at = 0; at < elems; at += chunk) {
        int64_t n = elems - at < chunk ? elems - at : chunk;
        PL_TRY(read_part(r, p, s, at, n));
        copy_walk(s, at, n, r->files.stage, ours, false);
    }
    if (there) return PL_OK;
    int64_t first, n = pl__slot_range(s, &first);
    size_t size = pl_dtype_bytes(s->type.dtype);
    return n ? pl_session_write_slot(r->session, slot, 0, ours + (size_t)first * size,
                                     (size_t)n * size)
             : PL_OK;
}

static pl_status read_ordered(pl_run *r, const piece *p, int slot)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    size_t size = pl_dtype_bytes(s->type.dtype);
    int64_t first, elems = pl__slot_range(s, &first), chunk = chunk_of(p->t, s);
    for (int64_t at = 0; at < elems; at += chunk) {
        int64_t n = elems - at < chunk ? elems - at : chunk;
        PL_TRY(read_part(r, p, s, first + at, n));
        PL_TRY(pl_session_write_slot(r->session, slot, (size_t)at * size, r->files.stage,
                                     (size_t)n * size));
    }
    return PL_OK;
}

pl_status pl__slot_read(pl_run *r, const struct pl_st_reader *f, const struct pl_st_tensor *t,
                        int slot, bool model, const struct pl_published *from)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    piece p = piece_of(s, f, t, from);
    if (r->files.filled) r->files.filled[slot] = !pl__random_frozen_noted(f, t->name);
    return model && !same_order(s) ? read_walked(r, &p, slot) : read_ordered(r, &p, slot);
}

static pl_status load_slot(pl_run *r, const pl_st_reader *f, int i, const char *path, bool model)
{
    const pl_slot *s = pl_store_slot(r->store, i);
    const pl_st_tensor *t = pl_st_find(f, s->name);
    pl_type want = type_in(s, model);
    char a[96], b[96];
    PL_FAIL_IF(!t, PL_ERR_FILE, "%s has no tensor \"%s\" (%s)", path, s->name,
               pl_type_text(&want, a, sizeof a));
    PL_FAIL_IF(!t->loadable || !pl_type_equal(&t->type, &want), PL_ERR_FILE,
               "%s: tensor \"%s\" is %s, the model needs %s", path, s->name,
               t->loadable ? pl_type_text(&t->type, b, sizeof b) : pl_st_dtype_name(t->dtype),
               pl_type_text(&want, a, sizeof a));
    return pl__slot_read(r, f, t, i, model, NULL);
}

static pl_status load_all(pl_run *r, const pl_st_reader *f, const char *path, bool model,
                          pl_slot_test test, bool partial)
{
    int wanted = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) wanted += test(pl_store_slot(r->store, i));
    PL_FAIL_IF(!partial && pl_st_count(f) > wanted, PL_ERR_FILE,
               "%s has %d tensors, the %s has %d: the file has the %s of another network", path,
               pl_st_count(f), model ? "model" : "run", wanted, model ? "weights" : "state");
    for (int i = 0; i < pl_store_count(r->store); i++) {
        bool absent = false;
        if (!test(pl_store_slot(r->store, i))) continue;
        if (model) PL_TRY(pl__frozen_absent(r, f, i, &absent));
        if (!absent) PL_TRY(load_slot(r, f, i, path, model));
    }
    return PL_OK;
}

pl_status pl__slots_read(pl_run *r, const char *path, bool model, pl_slot_test test, bool partial)
{
    pl_st_reader *f;
    PL_TRY(pl_st_open(path, &f));
    pl_status rc = pl_st_verify(f, NULL);
    if (rc == PL_OK) rc = load_all(r, f, path, model, test, partial);
    pl_st_close(f);
    return rc;
}

pl_status pl__slots_take(pl_run *r, const char *path, bool model, pl_slot_test test, int *taken,
                         int *of)
{
    pl_st_reader *f;
    PL_TRY(pl_st_open(path, &f));
    pl_status rc = pl_st_verify(f, NULL);
    *taken = *of = 0;
    for (int i = 0; i < pl_store_count(r->store) && rc == PL_OK; i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        if (!test(s)) continue;
        ++*of;
        bool known = r->files.filled && r->files.filled[i];
        if (!pl_st_find(f, s->name) || (known && pl__random_frozen_noted(f, s->name))) continue;
        ++*taken;
        rc = load_slot(r, f, i, path, model);
    }
    if (rc == PL_OK && model) rc = pl__random_frozen_recall(r, pl_st_meta_get(f, PL_RANDOM_NOTE));
    pl_st_close(f);
    return rc;
}

pl_status pl_run_load_model(pl_run *r, const char *path, bool partial)
{
    return pl__slots_read(r, path, true, pl__slot_in_model, partial);
}
