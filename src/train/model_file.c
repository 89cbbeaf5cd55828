/* model_file.c - weights in and out: slots to safetensors in PyTorch's names and layouts.
 *
 * A slot's file layout says: seen with shape `view`, file dimension i is our dimension perm[i]. Both
 * directions walk the file's elements in order and step through ours by strides. Model files hold
 * parameters and buffers; moments and counters belong to checkpoints.
 */
#include "base/dtype.h"
#include "base/sys.h"
#include "io/safetensors.h"
#include "train/train_int.h"

#include <string.h>

/* Our shape as the layout sees it, and the stride in ours of each file dimension. */
typedef struct layout_walk {
    pl_type file;
    int64_t stride[PL_MAX_RANK];
} layout_walk;

static layout_walk walk_of(const pl_slot *slot)
{
    const pl_file_layout *l = &slot->layout;
    int32_t rank = l->view_rank ? l->view_rank : slot->type.rank;
    const int64_t *dim = l->view_rank ? l->view : slot->type.dim;
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

/* Element numbers in ours, in file order. */
static void copy_walk(const pl_slot *slot, const char *src, char *dst, bool to_file)
{
    layout_walk w = walk_of(slot);
    size_t bytes = pl_dtype_bytes(slot->type.dtype);
    int64_t n = pl_type_elems(&w.file), at[PL_MAX_RANK] = {0}, ours = 0;
    for (int64_t i = 0; i < n; i++) {
        size_t a = (size_t)i * bytes, b = (size_t)ours * bytes;
        if (to_file)
            memcpy(dst + a, src + b, bytes);
        else
            memcpy(dst + b, src + a, bytes);
        for (int k = w.file.rank - 1; k >= 0; k--) {
            ours += w.stride[k];
            if (++at[k] < w.file.dim[k]) break;
            ours -= at[k] * w.stride[k];
            at[k] = 0;
        }
    }
}

void pl__slot_from_file(const pl_slot *slot, const void *src, void *dst)
{
    copy_walk(slot, src, dst, false);
}

void pl__slot_to_file(const pl_slot *slot, const void *src, void *dst)
{
    copy_walk(slot, src, dst, true);
}

static bool in_model_file(const pl_slot *s)
{
    return s->kind == PL_SLOT_PARAM || s->kind == PL_SLOT_BUFFER;
}

/* ---- saving ----------------------------------------------------------------------------- */
static pl_status declare_slots(pl_run *r, pl_st_writer *w, int *slots, int *n, size_t *largest)
{
    *n = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        if (!in_model_file(s)) continue;
        pl_type t = pl__slot_file_type(s);
        PL_TRY(pl_st_writer_add(w, s->name, &t));
        if (pl_type_bytes(&t) > *largest) *largest = pl_type_bytes(&t);
        slots[(*n)++] = i;
    }
    PL_TRY(pl_st_writer_meta(w, "format", "pt"));
    PL_TRY(pl_st_writer_meta(w, "plimsoll.recipe", r->recipe->name));
    return pl_st_writer_meta(w, "plimsoll.version", pl_version());
}

/* staging: room for a slot in the file's layout, and after that in ours, where the slot itself is
 * out of reach. */
static pl_status write_slots(pl_run *r, pl_st_writer *w, const int *slots, int n, char *staging,
                             size_t largest)
{
    PL_TRY(pl_st_writer_begin(w));
    for (int i = 0; i < n; i++) {
        int k = pl_st_writer_order(w, i);
        const pl_slot *s = pl_store_slot(r->store, slots[k]);
        size_t bytes = pl_type_bytes(&s->type);
        const void *ours = pl_session_slot(r->session, slots[k]);
        if (!ours) {
            PL_TRY(pl_session_read_slot(r->session, slots[k], 0, staging + largest, bytes));
            ours = staging + largest;
        }
        pl__slot_to_file(s, ours, staging);
        PL_TRY(pl_st_writer_write(w, k, staging, bytes));
    }
    return pl_st_writer_finish(w);
}

pl_status pl_run_save_model(pl_run *r, const char *path)
{
    pl_st_writer *w = NULL;
    int n = 0, *slots = pl_sys_alloc((size_t)pl_store_count(r->store) * sizeof(int) + 1);
    size_t largest = 1;
    char *staging = NULL;
    pl_status rc = slots ? pl_st_writer_new(path, &w) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = declare_slots(r, w, slots, &n, &largest);
    if (rc == PL_OK && !(staging = pl_sys_alloc(2 * largest))) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) rc = write_slots(r, w, slots, n, staging, largest);
    pl_st_writer_free(w);
    pl_sys_free(slots);
    pl_sys_free(staging);
    return rc;
}

/* ---- loading ---------------------------------------------------------------------------- */
static pl_status load_slot(pl_run *r, const pl_st_reader *f, int i, const char *path, char *staging,
                           size_t largest)
{
    const pl_slot *s = pl_store_slot(r->store, i);
    const pl_st_tensor *t = pl_st_find(f, s->name);
    pl_type want = pl__slot_file_type(s);
    char a[96], b[96];
    PL_FAIL_IF(!t, PL_ERR_FILE, "%s has no tensor \"%s\" (%s)", path, s->name,
               pl_type_text(&want, a, sizeof a));
    PL_FAIL_IF(!t->loadable || !pl_type_equal(&t->type, &want), PL_ERR_FILE,
               "%s: tensor \"%s\" is %s, the model wants %s", path, s->name,
               t->loadable ? pl_type_text(&t->type, b, sizeof b) : pl_st_dtype_name(t->dtype),
               pl_type_text(&want, a, sizeof a));
    PL_TRY(pl_st_read(f, t, staging, pl_type_bytes(&want)));
    void *ours = pl_session_slot(r->session, i);
    pl__slot_from_file(s, staging, ours ? ours : staging + largest);
    if (ours) return PL_OK;
    return pl_session_write_slot(r->session, i, 0, staging + largest, pl_type_bytes(&s->type));
}

static pl_status load_all(pl_run *r, const pl_st_reader *f, const char *path, bool partial)
{
    size_t largest = 1;
    int wanted = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        wanted += in_model_file(s);
        if (in_model_file(s) && pl_type_bytes(&s->type) > largest)
            largest = pl_type_bytes(&s->type);
    }
    PL_FAIL_IF(!partial && pl_st_count(f) > wanted, PL_ERR_FILE,
               "%s holds %d tensors, the model has %d: not its weights", path, pl_st_count(f),
               wanted);
    char *staging = pl_sys_alloc(2 * largest);
    pl_status rc = staging ? PL_OK : PL_ERR_MEMORY;
    for (int i = 0; i < pl_store_count(r->store) && rc == PL_OK; i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        if (in_model_file(s)) rc = load_slot(r, f, i, path, staging, largest);
    }
    pl_sys_free(staging);
    return rc;
}

pl_status pl_run_load_model(pl_run *r, const char *path, bool partial)
{
    pl_st_reader *f;
    PL_TRY(pl_st_open(path, &f));
    pl_status rc = load_all(r, f, path, partial);
    pl_st_close(f);
    return rc;
}

pl_status pl_model_file_list(const char *path, void (*each)(void *ctx, const pl_tensor_info *t),
                             void (*each_meta)(void *ctx, const char *key, const char *value),
                             void *ctx)
{
    pl_st_reader *f;
    PL_TRY(pl_st_open(path, &f));
    for (int i = 0; i < pl_st_count(f); i++) {
        const pl_st_tensor *t = pl_st_at(f, i);
        pl_tensor_info info = {t->name, pl_st_dtype_name(t->dtype), t->rank, t->dim,
                               t->end - t->begin};
        each(ctx, &info);
    }
    for (int i = 0; each_meta && i < pl_st_meta_count(f); i++) {
        const char *key, *value;
        pl_st_meta_at(f, i, &key, &value);
        each_meta(ctx, key, value);
    }
    pl_st_close(f);
    return PL_OK;
}
