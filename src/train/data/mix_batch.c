/* mix_batch.c - see mix_batch.h. Samples are mixed from the last to the first, so that each still
 * finds the sample before it unmixed. */
#include "train/data/mix_batch.h"

#include "base/dtype.h"
#include "data/augment/mixing.h"

#include <stdio.h>
#include <string.h>

enum { ALIGN = 64, NAME = 256 };
static const char share_tail[] = ".share", mixed_tail[] = ".mixed";

bool pl__mix_wanted(const pl_config *c)
{
    return pl_config_float(c, "data.mixup") > 0 || pl_config_float(c, "data.cutmix") > 0;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n > m && strcmp(text + n - m, tail) == 0;
}

bool pl__mix_fills(const char *input)
{
    return ends_with(input, share_tail) || ends_with(input, mixed_tail);
}

static bool is_pictures(const pl_type *t)
{
    return t->rank == 4 && t->dtype == PL_F32;
}

/* Returns the layout of one picture of an input. */
static pl_pixels pixels_of(const pl_type *t, bool bytes)
{
    bool planar = t->dim[1] == 3 || t->dim[1] == 1;
    return (pl_pixels){.channels = (int)t->dim[planar ? 1 : 3],
                       .h = (int)t->dim[planar ? 2 : 1],
                       .w = (int)t->dim[planar ? 3 : 2],
                       .planar = planar,
                       .bytes = bytes};
}

static size_t row_bytes(const pl_type *t)
{
    return pl_type_bytes(t) / (size_t)t->dim[0];
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- the training program ------------------------------------------------------------------- */
/* Whether an input is read for the extra sample: pictures, and the label whose share is there. */
static bool is_mixed(const pl_program *p, const char *name, const pl_type *t)
{
    char share[NAME];
    if (t->rank < 1 || t->dim[0] < 1) return false;
    snprintf(share, sizeof share, "%s%s", name, share_tail);
    for (int i = 0; i < pl_program_input_count(p); i++)
        if (strcmp(pl_program_input_name(p, i), share) == 0) return true;
    return is_pictures(t);
}

size_t pl__mix_bytes(const pl_run *r, int bucket)
{
    const pl_program *p = r->build->variants[bucket].train;
    size_t sum = 0;
    for (int i = 0; p && pl__mix_wanted(r->config) && i < pl_program_input_count(p); i++) {
        pl_type t = pl_program_input_type(p, i);
        if (is_mixed(p, pl_program_input_name(p, i), &t)) sum += aligned(row_bytes(&t));
    }
    return sum;
}

pl_status pl__mix_check(const pl_run *r)
{
    const pl_program *p = pl__train(r);
    bool label = false, pictures = false;
    if (!pl__mix_wanted(r->config) || !p) return PL_OK;
    for (int i = 0; i < pl_program_input_count(p); i++) {
        pl_type t = pl_program_input_type(p, i);
        label |= ends_with(pl_program_input_name(p, i), share_tail);
        pictures |= is_pictures(&t);
    }
    PL_FAIL_IF(
        !label || !pictures, PL_ERR_CONFIG,
        "data.mixup and data.cutmix are for classification of pictures: recipe %s has no %s; "
        "set both keys to 0",
        r->recipe->name, label ? "input of pictures" : "label that can be mixed");
    return PL_OK;
}

/* ---- one sample more ------------------------------------------------------------------------- */
/* Returns where the extra sample of an input lies; NULL: the input is not mixed. */
static void *extra_of(const pl_read_job *j, const char *wanted)
{
    char *at = j->extra, share[NAME];
    const char *name;
    for (int i = 0; (name = j->batch->input_at(j->batch->find_ctx, i)); i++) {
        pl_type t;
        if (!pl_batch_input(j->batch, name, &t) || t.rank < 1 || t.dim[0] < 1) continue;
        snprintf(share, sizeof share, "%s%s", name, share_tail);
        if (!is_pictures(&t) && !pl_batch_input(j->batch, share, NULL)) continue;
        if (strcmp(name, wanted) == 0) return at;
        at += aligned(row_bytes(&t));
    }
    return NULL;
}

static void *find_extra(void *ctx, const char *name, pl_type *type)
{
    const pl_mix_extra *e = ctx;
    void *at = extra_of(e->job, name);
    if (at && type) {
        pl_batch_input(e->job->batch, name, type);
        type->dim[0] = 1;
    }
    return at;
}

static const char *extra_input_at(void *ctx, int i)
{
    const pl_mix_extra *e = ctx;
    return e->job->batch->input_at(e->job->batch->find_ctx, i);
}

pl_batch pl__mix_extra_batch(const pl_read_job *j, pl_mix_extra *where)
{
    *where = (pl_mix_extra){j};
    return (pl_batch){.find = find_extra, .input_at = extra_input_at, .find_ctx = where};
}

/* ---- mixing ---------------------------------------------------------------------------------- */
static double mix_pictures(const pl_mixing *m, const pl_type *t, bool bytes, char *all,
                           const char *extra)
{
    pl_pixels to = pixels_of(t, bytes);
    size_t row = bytes ? row_bytes(t) / sizeof(float) : row_bytes(t);
    double share = 1;
    for (int64_t i = t->dim[0] - 1; i >= 0; i--) {
        to.data = all + (size_t)i * row;
        share = pl_mixing_apply(m, &to, i ? all + (size_t)(i - 1) * row : extra);
    }
    return share;
}

/* Labels of the samples before; without `extra` of the samples themselves. */
static void shift_labels(const char *label, const char *extra, size_t row, int64_t n, char *to)
{
    for (int64_t i = 0; i < n; i++) {
        const char *from = !extra ? label + (size_t)i * row
                           : i    ? label + (size_t)(i - 1) * row
                                  : extra;
        memcpy(to + (size_t)i * row, from, row);
    }
}

static void write_labels(const pl_read_job *j, const char *share_name, bool mix, double share)
{
    char label[NAME], mixed[NAME];
    pl_type t, type;
    int n = (int)(strlen(share_name) - strlen(share_tail));
    snprintf(label, sizeof label, "%.*s", n, share_name);
    snprintf(mixed, sizeof mixed, "%s%s", label, mixed_tail);
    float *shares = pl_batch_input(j->batch, share_name, &t);
    char *from = pl_batch_input(j->batch, label, &type),
         *to = pl_batch_input(j->batch, mixed, NULL);
    for (int64_t i = 0; i < t.dim[0]; i++) shares[i] = (float)share;
    if (from && to)
        shift_labels(from, mix ? extra_of(j, label) : NULL, row_bytes(&type), type.dim[0], to);
}

void pl__mix_batch(const pl_run *r, const pl_read_job *j)
{
    const pl_config *c = r->config;
    bool mix = j->number >= 0;
    double share = 1;
    const char *name;
    pl_mixing m = pl_mixing_draw(
        pl_config_float(c, "data.mixup"), pl_config_float(c, "data.cutmix"),
        (uint64_t)pl_config_int(c, "seed"), (mix ? j->number : 0) / r->build->accumulate);
    for (int i = 0; mix && (name = j->batch->input_at(j->batch->find_ctx, i)); i++) {
        pl_type t;
        char *all = pl_batch_input(j->batch, name, &t);
        if (all && is_pictures(&t)) share = mix_pictures(&m, &t, j->bytes, all, extra_of(j, name));
    }
    for (int i = 0; (name = j->batch->input_at(j->batch->find_ctx, i)); i++)
        if (ends_with(name, share_tail) && pl_batch_input(j->batch, name, NULL))
            write_labels(j, name, mix, share);
}
