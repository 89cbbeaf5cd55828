/* pictures.c - pictures for predictions: one file or a folder, read as evaluations read theirs. */
#include "train/data/images/image_set.h"

#include <string.h>

enum { MOST_SIDE = 8192 };

/* Shapes of the image inputs of the main program, and the largest sides; 0 where it has none. */
static pl_status find_shapes(const pl_run *r, pl_pictures *p, int *w, int *h)
{
    const pl_image_feed *f = r->recipe->images;
    *w = *h = 0;
    for (p->n = 0; f && f->images && f->images[p->n].name && p->n < PL_MAX_IMAGES; p->n++) {
        pl_pixels *to = &p->shape[p->n];
        PL_TRY(pl__image_shape(&f->images[p->n], pl__train(r), to));
        if (to->w > *w) *w = to->w;
        if (to->h > *h) *h = to->h;
    }
    return PL_OK;
}

uint64_t pl__pictures_bytes(const pl_run *r)
{
    pl_pictures p = {0};
    int w, h;
    if (!r->recipe->images || find_shapes(r, &p, &w, &h) != PL_OK) return 0;
    return pl__image_thread_bytes(r, w, h) +
           (uint64_t)pl_config_size(r->config, "data.large_memory");
}

pl_status pl__pictures_open(pl_run *r, const char *path, pl_pictures *out)
{
    int w, h;
    PL_TRY(find_shapes(r, out, &w, &h));
    pl_image_set_opts o = pl__image_opts(r, w, h);
    if (!w) { /* memory is reserved for the largest side; it counts when a picture touches it */
        o.most_w = o.most_h = MOST_SIDE;
        o.limits.min_side = 0;
        o.limits.min_bytes = 0;
        o.augment.center = 1;
    }
    out->fail = o.on_bad == PL_BAD_FAIL;
    o.on_bad = PL_BAD_FAIL; /* another picture in the place of a bad one would be a wrong answer */
    o.items = (pl_items_opts){.path = path, .plain = true};
    o.threads = 1;
    return pl_image_set_open(&o, &out->set);
}

void pl__pictures_close(pl_pictures *p)
{
    pl_image_set_close(p->set);
    p->set = NULL;
}

/* Bytes of a path before its ending. */
static size_t stem_of(const char *name)
{
    const char *dot = strrchr(name, '.'), *slash = strrchr(name, '/');
    return dot && (!slash || dot > slash) ? (size_t)(dot - name) : strlen(name);
}

int pl__pictures_stem(const pl_items *items, int64_t picture)
{
    const char *name = items->item[picture].name;
    size_t stem = stem_of(name), whole = strlen(name);
    /* Paths of a folder are sorted: those that begin with the stem are next to each other. */
    for (int64_t k = picture - 1; k >= 0; k--) {
        const char *other = items->item[k].name;
        if (strncmp(other, name, stem) != 0) break;
        /* the picture x.gif, too, because its result may be x.gif.png */
        if (!other[stem] || (stem_of(other) == stem && other[stem] == '.')) return (int)whole;
    }
    for (int64_t k = picture + 1; k < items->n; k++) {
        const char *other = items->item[k].name;
        if (strncmp(other, name, stem + 1) != 0) break;
        if (stem_of(other) == stem) return (int)whole;
    }
    return (int)stem;
}

pl_status pl__pictures_pixels(const pl_pictures *p, int64_t picture, int w, int h, uint8_t *rgb)
{
    pl_pixels to = {.data = rgb, .w = w, .h = h, .channels = 3, .bytes = true};
    PL_FAIL_IF(w > MOST_SIDE || h > MOST_SIDE, PL_ERR_DATA,
               "%s: %d x %d pixels; predictions read at most %d a side",
               pl_image_set_items(p->set)->item[picture].name, w, h, MOST_SIDE);
    pl_image_read read = {.eval = true, .sample = picture, .to = &to, .n_to = 1};
    return pl_image_set_read(p->set, &read);
}

pl_status pl__pictures_read(pl_run *r, const pl_pictures *p, int64_t picture, int64_t row)
{
    const pl_image_feed *f = r->recipe->images;
    pl_pixels to[PL_MAX_IMAGES];
    pl_image_read read = {.eval = true, .sample = picture, .to = to};
    for (int k = 0; k < p->n; k++) {
        char *all = pl_session_input(r->session, pl__train(r), f->images[k].name, NULL);
        if (!all) continue;
        pl_pixels *t = &to[read.n_to++];
        *t = p->shape[k];
        t->data = all + (size_t)row * (size_t)t->w * (size_t)t->h * (size_t)t->channels *
                            (t->bytes ? 1 : sizeof(float));
    }
    return pl_image_set_read(p->set, &read);
}
