/* segment.c - a class for every pixel: U-Net on a folder of pictures and masks of the user.
 *
 * Masks are PNG files with one number per pixel (grey or palette); data.mask_values says which
 * number is which class. Pixels with the number 255 (unless that is a class) do not count.
 */
#include "segment.h"

#include <stdio.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"height", PL_CONFIG_INT, "256", .min = 8, .max = 16384,
     .doc = "Rows of the pictures that the network sees; a multiple of 2^model.levels."},
    {"width", PL_CONFIG_INT, "256", .min = 8, .max = 16384,
     .doc = "Columns of the pictures that the network sees; a multiple of 2^model.levels."},
    {"model.classes", PL_CONFIG_INT, "2", .min = 2, .max = 255,
     .doc = "Number of classes, the background included."},
    {"model.width", PL_CONFIG_INT, "64", .min = 1, .max = 4096,
     .doc = "Channels at full size; each level has twice as many."},
    {"model.levels", PL_CONFIG_INT, "4", .min = 1, .max = 8, .doc = "How often sizes are halved."},
    {"model.upsample", PL_CONFIG_CHOICE, "transposed", .choices = "transposed|bilinear",
     .doc = "How sizes are doubled: by a learned transposed convolution or by interpolation."},
    {"model.mean", PL_CONFIG_FLOATS, "[0.485, 0.456, 0.406]", .min = -10, .max = 10,
     .doc = "Subtracted from red, green and blue (0 to 1)."},
    {"model.std", PL_CONFIG_FLOATS, "[0.229, 0.224, 0.225]", .min = 1e-6, .max = 10,
     .doc = "Red, green and blue are divided by these afterwards."},
    {"loss.dice", PL_CONFIG_FLOAT, "1", .min = 0, .max = 1e3,
     .doc = "Weight of the Dice loss beside the cross-entropy; helps small classes."},
    {"data.samples", PL_CONFIG_INT, "256", .min = 1, .max = 1e12,
     .doc = "Number of generated training pictures."},
    {"data.eval_samples", PL_CONFIG_INT, "64", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation pictures."},
    {0},
};

enum { IGNORE = 255, MOST_IOU = 12 }; /* MOST_IOU: classes for which overlaps are reported */

pl_status segment_net_of(const pl_config *c, segment_net *n)
{
    *n = (segment_net){.classes = pl_config_int(c, "model.classes"),
                       .width = pl_config_int(c, "model.width"),
                       .levels = pl_config_int(c, "model.levels"),
                       .rows = pl_config_int(c, "height"),
                       .columns = pl_config_int(c, "width"),
                       .bilinear = strcmp(pl_config_text(c, "model.upsample"), "bilinear") == 0};
    int64_t step = (int64_t)1 << n->levels;
    if (n->rows % step || n->columns % step)
        return pl_fail(PL_ERR_CONFIG,
                       "height (%lld) and width (%lld) must be multiples of %lld (2^model.levels)",
                       (long long)n->rows, (long long)n->columns, (long long)step);
    return PL_OK;
}

/* A constant [3] with the numbers of a key. */
static pl_val colours(pl_builder *b, pl_nn *m, const char *key)
{
    int n;
    const double *x = pl_config_floats(pl_builder_config(b), key, &n);
    pl_val each[3];
    if (n != 3)
        return pl_nn_fail(m, PL_ERR_CONFIG, "%s has %d numbers; give three: red, green, blue", key,
                          n);
    for (int i = 0; i < 3; i++) each[i] = pl_fill(m->g, PL_TYPE(m->dtype, 1), x[i]);
    return pl_concat(m->g, 3, each, 0);
}

pl_val segment_image(pl_builder *b, pl_nn *m, const segment_net *n)
{
    pl_type type = PL_TYPE(PL_F32, pl_builder_batch(b), n->rows, n->columns, 3);
    pl_val x = pl_cast(m->g, pl_input(m->g, "image", type), m->dtype);
    x = pl_sub(m->g, x, colours(b, m, "model.mean"));
    return pl_div(m->g, x, colours(b, m, "model.std"));
}

static pl_val mask_input(pl_builder *b, pl_nn *m, const segment_net *n)
{
    return pl_input(m->g, "mask", PL_TYPE(PL_I32, pl_builder_batch(b), n->rows, n->columns));
}

/* 1 where the mask has class k and 0 elsewhere: [B,H,W,classes]. */
static pl_val one_hot(pl_graph *g, pl_val mask, int64_t classes)
{
    pl_val k = pl_iota(g, PL_TYPE(PL_I32, classes), 0);
    return pl_cast(g, pl_eq(g, pl_unsqueeze(g, mask, -1), k), PL_F32);
}

static pl_val counts(pl_graph *g, pl_val mask)
{
    return pl_cast(g, pl_ne(g, mask, pl_full_like(g, mask, IGNORE)), PL_F32);
}

/* 1 minus the mean over classes of 2 |P and T| / (|P| + |T|), with probabilities as P. */
static pl_val dice_loss(pl_graph *g, pl_val logits, pl_val mask, int64_t classes)
{
    uint32_t places = PL_AXIS(0) | PL_AXIS(1) | PL_AXIS(2);
    pl_scope_push(g, "dice");
    pl_scope_full(g);
    pl_val p = pl_mul(g, pl_softmax(g, pl_cast(g, logits, PL_F32), -1),
                      pl_unsqueeze(g, counts(g, mask), -1));
    pl_val t = one_hot(g, mask, classes);
    pl_val both = pl_sum(g, pl_mul(g, p, t), places, false);
    pl_val all = pl_add(g, pl_sum(g, p, places, false), pl_sum(g, t, places, false));
    pl_val dice = pl_div(g, pl_shift(g, pl_scale(g, both, 2), 1), pl_shift(g, all, 1));
    pl_val loss = pl_shift(g, pl_neg(g, pl_mean(g, dice, PL_AXES_ALL, false)), 1);
    pl_scope_pop(g);
    return loss;
}

static pl_val loss_of(pl_builder *b, pl_graph *g, pl_val logits, pl_val mask, int64_t classes)
{
    double dice = pl_config_float(pl_builder_config(b), "loss.dice");
    pl_val loss = pl_loss_cross_entropy_with(g, logits, mask, (pl_cross_entropy){.ignore = IGNORE});
    if (dice <= 0) return loss;
    return pl_add(g, loss, pl_scale(g, dice_loss(g, logits, mask, classes), dice));
}

/* Share of the pixels that are right, and, for each class, the pixels of a picture that prediction
 * and mask share and those that either has: their means over all pictures give the IoU. */
static void report(pl_nn *m, pl_val logits, pl_val mask, const segment_net *n)
{
    pl_graph *g = m->g;
    pl_val valid = counts(g, mask), got = pl_argmax(g, logits, 3);
    pl_val right = pl_mul(g, pl_cast(g, pl_eq(g, got, mask), PL_F32), valid);
    pl_val all = pl_sum(g, valid, PL_AXES_ALL, false);
    pl_val sum = pl_sum(g, right, PL_AXES_ALL, false);
    pl_output(g, "accuracy", pl_div(g, sum, pl_max(g, all, pl_full_like(g, all, 1))));
    for (int64_t k = 0; k < n->classes && n->classes <= MOST_IOU; k++) {
        pl_val p =
            pl_mul(g, pl_cast(g, pl_eq(g, got, pl_full_like(g, got, (double)k)), PL_F32), valid);
        pl_val t = pl_cast(g, pl_eq(g, mask, pl_full_like(g, mask, (double)k)), PL_F32);
        pl_val both = pl_mul(g, p, t);
        pl_val either = pl_sub(g, pl_add(g, p, t), both);
        pl_output(g, pl_nn_name(m, "both.%d", (int)k), pl_mean(g, both, PL_AXES_ALL, false));
        pl_output(g, pl_nn_name(m, "either.%d", (int)k), pl_mean(g, either, PL_AXES_ALL, false));
    }
}

static pl_status build(pl_builder *b)
{
    segment_net n;
    pl_status rc = segment_net_of(pl_builder_config(b), &n);
    if (rc != PL_OK) return rc;
    pl_nn *m = pl_builder_train(b);
    pl_val logits = segment_network(m, &n, segment_image(b, m, &n));
    pl_builder_minimise(b, loss_of(b, m->g, logits, mask_input(b, m, &n), n.classes));

    m = pl_builder_eval(b);
    logits = segment_network(m, &n, segment_image(b, m, &n));
    pl_val mask = mask_input(b, m, &n);
    pl_output(m->g, "loss", loss_of(b, m->g, logits, mask, n.classes));
    report(m, logits, mask, &n);
    return PL_OK;
}

/* The mean over classes of intersection over union. A class that neither has is left out. */
static int derive(const char *const *name, const double *mean, int n, const char **new_name,
                  double *new_value, int cap)
{
    double sum = 0;
    int classes = 0;
    for (int i = 0; i + 1 < n; i++) {
        if (strncmp(name[i], "both.", 5) != 0 || strncmp(name[i + 1], "either.", 7) != 0) continue;
        if (!(mean[i + 1] > 0)) continue;
        sum += mean[i] / mean[i + 1];
        classes++;
    }
    if (!classes || cap < 1) return 0;
    *new_name = "iou";
    *new_value = sum / classes;
    return 1;
}

static const pl_image_input images[] = {{"image", 0, 1}, {NULL, 0, 0}};
static const pl_image_feed feed = {
    .images = images, .mask = "mask", .mask_classes = "model.classes"};
static const pl_start start = {.fresh = "outc.conv.*", .missing = "*.num_batches_tracked"};

const pl_recipe pl_recipe_segment;
const pl_recipe pl_recipe_segment = {
    .abi = PL_RECIPE_ABI,
    .name = "segment",
    .about = "a class for every pixel: U-Net on your own pictures and masks",
    .schema = schema,
    .presets = segment_presets,
    .build = build,
    .data_read = segment_read,
    .data_write = segment_write,
    .derive = derive,
    .images = &feed,
    .metric = "iou",
    .predict = &segment_predict,
    .start = &start,
    .sources = segment_sources,
};
