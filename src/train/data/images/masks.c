/* masks.c - masks of images: which number of a PNG file is which class (data.mask_values). */
#include "train/data/images/image_set.h"

#include <stdio.h>

enum { IGNORE = 255 };

/* Masks with 0 and 255 alone are usual where there are two classes; with 255 ignored they would
 * teach that everything is the first class. */
static pl_status check_numbers(struct pl_images *m)
{
    enum { LOOKED_AT = 32 };
    bool seen[256] = {false}, other = false;
    PL_TRY(pl_image_set_mask_numbers(m->set, LOOKED_AT, seen));
    for (int v = 0; v < 256; v++)
        other |= seen[v] && m->mask_class[v] > 0 && m->mask_class[v] != IGNORE;
    PL_FAIL_IF(seen[255] && m->mask_class[255] == IGNORE && !other, PL_ERR_DATA,
               "the masks have no other class than the first (values of classes: %s), and pixels "
               "with 255 are ignored: set data.mask_values, e.g. [0, 255] if 255 is the second "
               "class",
               m->mask_known);
    return PL_OK;
}

pl_status pl__mask_classes(const pl_run *r, struct pl_images *m)
{
    const pl_image_feed *f = r->recipe->images;
    int n;
    if (!f->mask) return PL_OK;
    int64_t classes = f->mask_classes ? pl_config_int(r->config, f->mask_classes) : r->data.outputs;
    if (classes > 255) classes = 255;
    const int64_t *value = pl_config_ints(r->config, "data.mask_values", &n);
    PL_FAIL_IF(n && n != classes, PL_ERR_CONFIG,
               "data.mask_values has %d numbers, %s is %lld: one number for each class", n,
               f->mask_classes ? f->mask_classes : "the number of classes of the network",
               (long long)classes);
    for (int i = 0; i < 256; i++) m->mask_class[i] = i == IGNORE ? IGNORE : -1;
    size_t at = 0;
    for (int64_t k = 0; k < classes && k < 256; k++) {
        int64_t v = n ? value[k] : k;
        PL_FAIL_IF(m->mask_class[v] >= 0 && m->mask_class[v] < k, PL_ERR_CONFIG,
                   "data.mask_values has %lld twice", (long long)v);
        m->mask_class[v] = (int32_t)k;
        if (at + 8 < sizeof m->mask_known)
            at += (size_t)snprintf(m->mask_known + at, sizeof m->mask_known - at, "%s%lld",
                                   k ? ", " : "", (long long)v);
    }
    return check_numbers(m);
}

bool pl__mask_of(const pl_run *r, const pl_read_job *j, int64_t i, pl_mask_read *out)
{
    const pl_image_feed *f = r->recipe->images;
    const struct pl_images *m = r->data.images;
    pl_type t;
    int32_t *all = f->mask ? pl_batch_input(j->batch, f->mask, &t) : NULL;
    if (!all) return false;
    *out = (pl_mask_read){.to = all + i * t.dim[1] * t.dim[2],
                          .w = (int)t.dim[2],
                          .h = (int)t.dim[1],
                          .class_of = m->mask_class,
                          .known = m->mask_known};
    return true;
}
