/* buckets.c - the image sizes of a run (data.buckets, docs/DATA.md): which there are, and which one
 * an image belongs to.
 *
 * Each size is a variant of the build: every program of the step, built by the recipe with that
 * size under the configuration keys that its pl_image_feed names. All variants share one store, so
 * they must agree on every slot.
 */
#include "base/sys.h"
#include "train/data/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- which sizes ---------------------------------------------------------------------------- */
static pl_status add_bucket(pl_bucket_list *l, int64_t height, int64_t width)
{
    for (int i = 0; i < l->n; i++)
        if (l->height[i] == height && l->width[i] == width) return PL_OK;
    PL_FAIL_IF(
        l->n == PL_MAX_BUCKETS, PL_ERR_CONFIG,
        "data.buckets gives more than %d sizes; raise data.bucket_step or lower data.bucket_aspect",
        PL_MAX_BUCKETS);
    l->height[l->n] = (int)height;
    l->width[l->n++] = (int)width;
    return PL_OK;
}

static pl_status parse_bucket(pl_bucket_list *l, const char *text)
{
    int height, width, used = 0;
    bool ok = sscanf(text, "%dx%d%n", &height, &width, &used) == 2 && text[used] == 0;
    PL_FAIL_IF(
        !ok || height < 1 || width < 1 || height > 65535 || width > 65535, PL_ERR_CONFIG,
        "data.buckets: \"%s\" is not a size; a size is height x width, e.g. 512x768, or auto",
        text);
    return add_bucket(l, height, width);
}

/* auto: for every height that is a multiple of the step, the largest width that the area allows. */
static pl_status make_buckets(const pl_run *r, pl_bucket_list *l)
{
    const pl_config *c = r->config;
    const pl_image_feed *f = r->recipe->images;
    int64_t step = pl_config_int(c, "data.bucket_step"), before = l->n;
    int64_t height = pl_config_int(c, f->height), width = pl_config_int(c, f->width);
    int64_t area = pl_config_is_null(c, "data.bucket_area") ? height * (width ? width : height)
                                                            : pl_config_int(c, "data.bucket_area");
    double most = pl_config_float(c, "data.bucket_aspect");
    for (int64_t h = step; h <= 65535 && h * step <= area; h += step) {
        int64_t w = area / h / step * step;
        double aspect = w > h ? (double)w / (double)h : (double)h / (double)w;
        if (w <= 65535 && aspect <= most * (1 + 1e-9)) PL_TRY(add_bucket(l, h, w));
    }
    PL_FAIL_IF(
        l->n == before, PL_ERR_CONFIG,
        "data.buckets: no size of at most %lld pixels has sides that are multiples of %lld; lower "
        "data.bucket_step or raise data.bucket_area",
        (long long)area, (long long)step);
    return PL_OK;
}

pl_status pl__buckets_list(const pl_run *r, pl_bucket_list *l)
{
    int n;
    const char *const *text = pl_config_texts(r->config, "data.buckets", &n);
    const pl_image_feed *f = r->recipe->images;
    l->n = 0;
    if (n == 0 || r->purpose.goal == PL_GOAL_REPLAY || r->purpose.goal == PL_GOAL_PREDICT)
        return PL_OK;
    PL_FAIL_IF(
        !f || !f->height || !f->width, PL_ERR_CONFIG,
        "data.buckets: recipe %s does not say which of its keys are height and width (pl_image_feed)",
        r->recipe->name);
    for (int i = 0; i < n; i++)
        PL_TRY(strcmp(text[i], "auto") == 0 ? make_buckets(r, l) : parse_bucket(l, text[i]));
    bool square = strcmp(f->height, f->width) == 0;
    for (int i = 0; square && i < l->n; i++)
        PL_FAIL_IF(l->height[i] != l->width[i], PL_ERR_CONFIG,
                   "data.buckets: recipe %s has one key for both sides (%s): %dx%d is not square",
                   r->recipe->name, f->height, l->height[i], l->width[i]);
    return PL_OK;
}

/* ---- one size ------------------------------------------------------------------------------- */
pl_status pl__bucket_config(pl_run *r, const pl_config *from, int height, int width,
                            pl_config **out)
{
    char text[256];
    const pl_image_feed *f = r->recipe->images;
    PL_TRY(pl__run_config_copy(r, from, out));
    snprintf(text, sizeof text, "%s=%d", f->height, height);
    PL_TRY(pl_config_override(*out, text));
    snprintf(text, sizeof text, "%s=%d", f->width, width);
    return pl_config_override(*out, text);
}

pl_status pl__bucket_check(const pl_run *r, const pl_step_build *b, int k, int slots)
{
    const pl_variant *v = &b->variants[k], *first = &b->variants[0];
    if (k == 0) return PL_OK;
    PL_FAIL_IF(pl_store_count(r->store) != slots, PL_ERR_CONFIG,
               "it has state that other buckets do not have (%s); buckets share all their state",
               pl_store_slot(r->store, slots)->name);
    bool same = v->n_step_programs == first->n_step_programs && !v->eval == !first->eval;
    for (int i = 0; same && i < v->n_step_programs; i++)
        same = strcmp(v->step_programs[i].name ? v->step_programs[i].name : "",
                      first->step_programs[i].name ? first->step_programs[i].name : "") == 0;
    PL_FAIL_IF(!same, PL_ERR_CONFIG, "its step runs other programs than the step of bucket %dx%d",
               first->height, first->width);
    return PL_OK;
}

/* ---- which one ------------------------------------------------------------------------------ */
void pl__variant_select(pl_run *r, int k)
{
    pl_variant *v = &r->build->variants[k];
    if (r->build->now != v) r->build->now = v; /* without buckets it is never written */
}

static double apart(const pl_variant *v, int width, int height)
{
    return fabs(log((double)v->width / v->height) - log((double)width / height));
}

/* Whether a is nearer to an image than b: by aspect; of equal aspects, the largest bucket that the
 * image fills, else the smallest. */
static bool nearer(const pl_variant *a, const pl_variant *b, int width, int height)
{
    double by = apart(b, width, height) - apart(a, width, height);
    bool fills_a = a->width <= width && a->height <= height;
    bool fills_b = b->width <= width && b->height <= height;
    if (fabs(by) > 1e-9) return by > 0;
    if (fills_a != fills_b) return fills_a;
    return ((int64_t)a->width * a->height > (int64_t)b->width * b->height) == fills_a;
}

int pl__bucket_nearest(const pl_run *r, int width, int height)
{
    const pl_variant *v = r->build->variants;
    int best = 0;
    for (int k = 1; k < r->build->n_variants; k++)
        if (nearer(&v[k], &v[best], width, height)) best = k;
    return best;
}

int pl_run_bucket_count(const pl_run *r)
{
    return r->build && r->build->variants[0].height ? r->build->n_variants : 0;
}

pl_run_bucket pl_run_bucket_at(const pl_run *r, int i)
{
    const pl_variant *v = &r->build->variants[i];
    pl_run_bucket b = {.height = v->height, .width = v->width};
    for (int t = 0; t < v->n_step_programs; t++) {
        const pl_plan_info *p = pl_program_plan(v->step_programs[t].run);
        if (p->arena_bytes > b.arena_bytes) b.arena_bytes = p->arena_bytes;
    }
    b.step_ms = pl__variant_ms(r, v);
    return b;
}
