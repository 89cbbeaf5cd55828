/* classify.c - pictures to classes: ResNet, ConvNeXt or ViT on a folder of the user.
 *
 * The classes are the folders of data.path, or the labels of labels.csv or metadata.jsonl there.
 * Pictures reach the network as numbers from 0 to 1 and are normalised inside it (model.mean,
 * model.std), so that a model file and its configuration say everything. A file of published
 * weights (init_from) keeps everything but a last layer with another number of classes.
 */
#include "classify.h"

#include <stdio.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"network", PL_CONFIG_CHOICE, "resnet18",
     .choices = "resnet18|resnet50|convnext_tiny|vit_small",
     .doc = "Network; model.* change its sizes."},
    {"side", PL_CONFIG_INT, "224", .min = 8, .max = 8192,
     .doc = "Height and width of the pictures that the network sees, in pixels."},
    {"model.classes", PL_CONFIG_INT, "null", .min = 1, .max = 1e6,
     .doc = "Number of classes; null: as many as the model file or the data have (generated data: "
            "6)."},
    {"model.width", PL_CONFIG_INT, "null", .min = 1, .max = 65536,
     .doc = "Channels of the first stage, or numbers per token; null: the network's own."},
    {"model.depths", PL_CONFIG_INTS, "null", .min = 1, .max = 1000,
     .doc = "Blocks of each stage; null: the network's own ([3, 4, 23, 3] makes ResNet-101)."},
    {"model.heads", PL_CONFIG_INT, "null", .min = 1, .max = 1024,
     .doc = "vit_small: attention heads; null: 6."},
    {"model.patch", PL_CONFIG_INT, "null", .min = 1, .max = 1024,
     .doc = "vit_small: side of a patch in pixels; null: 16."},
    {"model.drop_path", PL_CONFIG_FLOAT, "0", .min = 0, .max = 0.99,
     .doc = "Stochastic depth: probability of leaving out the last block; earlier ones less."},
    {"model.dropout", PL_CONFIG_FLOAT, "0", .min = 0, .max = 0.99,
     .doc = "Dropout probability before the last layer."},
    {"model.mean", PL_CONFIG_FLOATS, "[0.485, 0.456, 0.406]", .min = -10, .max = 10,
     .doc = "Subtracted from red, green and blue (0 to 1)."},
    {"model.std", PL_CONFIG_FLOATS, "[0.229, 0.224, 0.225]", .min = 1e-6, .max = 10,
     .doc = "Red, green and blue are divided by these afterwards."},
    {"loss.smoothing", PL_CONFIG_FLOAT, "0", .min = 0, .max = 0.99,
     .doc = "Label smoothing: share of the target that is spread over all classes."},
    {"data.samples", PL_CONFIG_INT, "1024", .min = 1, .max = 1e12,
     .doc = "Number of generated training pictures."},
    {"data.eval_samples", PL_CONFIG_INT, "256", .min = 1, .max = 1e12,
     .doc = "Number of generated evaluation pictures."},
    {"predict.top", PL_CONFIG_INT, "5", .min = 1, .max = 1e6, .resume = PL_RESUME_FREE,
     .doc = "plimsoll predict: classes per picture in the CSV file, the likeliest first."},
    {0},
};

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

pl_val classify_image(pl_builder *b, pl_nn *m)
{
    int64_t side = pl_config_int(pl_builder_config(b), "side");
    pl_type type = PL_TYPE(PL_F32, pl_builder_batch(b), side, side, 3);
    pl_val x = pl_cast(m->g, pl_input(m->g, "image", type), m->dtype);
    x = pl_sub(m->g, x, colours(b, m, "model.mean"));
    return pl_div(m->g, x, colours(b, m, "model.std"));
}

void classify_state_facts(pl_builder *b)
{
    int n;
    char text[256];
    const pl_config *c = pl_builder_config(b);
    const double *mean = pl_config_floats(c, "model.mean", &n);
    const double *std = pl_config_floats(c, "model.std", &n);
    snprintf(text, sizeof text, "mean %.6g %.6g %.6g std %.6g %.6g %.6g", mean[0], mean[1], mean[2],
             std[0], std[1], std[2]);
    pl_builder_fact(b, "normalise", text);
    pl_builder_fact(b, "network", pl_config_text(c, "network"));
}

pl_status classify_classes(pl_builder *b, int64_t *n)
{
    const pl_config *c = pl_builder_config(b);
    const pl_classes *names;
    bool given = !pl_config_is_null(c, "model.classes");
    *n = given ? pl_config_int(c, "model.classes") : CLASSIFY_SHAPES;
    pl_status rc = pl_builder_classes(b, &names);
    if (rc != PL_OK || !names) return rc;
    if (given && pl_classes_count(names) > *n)
        return pl_fail(PL_ERR_CONFIG, "model.classes is %lld, but there are %d classes",
                       (long long)*n, pl_classes_count(names));
    if (!given) *n = pl_classes_count(names);
    return PL_OK;
}

static pl_val logits_of(pl_builder *b, pl_nn *m, const classify_net *n)
{
    return classify_network(m, n, classify_image(b, m));
}

/* Share of the batch whose class is among the k likeliest. */
static pl_val within(pl_graph *g, pl_val logits, pl_val label, int64_t k)
{
    pl_val values, which;
    pl_topk(g, logits, k, -1, &values, &which);
    pl_val hit = pl_cast(g, pl_eq(g, which, pl_unsqueeze(g, label, 1)), PL_F32);
    return pl_mean(g, pl_max_over(g, hit, PL_AXIS(1), false), PL_AXES_ALL, false);
}

static pl_status build(pl_builder *b)
{
    const pl_config *c = pl_builder_config(b);
    classify_net n;
    pl_type labels = PL_TYPE(PL_I32, pl_builder_batch(b));
    pl_status rc = classify_net_of(c, &n);
    if (rc == PL_OK) rc = classify_classes(b, &n.classes);
    if (rc != PL_OK) return rc;

    pl_nn *m = pl_builder_train(b);
    pl_val logits = logits_of(b, m, &n);
    pl_cross_entropy o = {.smoothing = pl_config_float(c, "loss.smoothing")};
    pl_val label = pl_input(m->g, "label", labels);
    pl_builder_minimise(b, pl_builder_label_loss(b, m, logits, "label", label, o));
    classify_state_facts(b);

    m = pl_builder_eval(b);
    logits = logits_of(b, m, &n);
    label = pl_input(m->g, "label", labels);
    pl_output(m->g, "loss", pl_loss_cross_entropy(m->g, logits, label));
    pl_output(m->g, "accuracy", within(m->g, logits, label, 1));
    if (n.classes > 5) pl_output(m->g, "top5", within(m->g, logits, label, 5));
    return PL_OK;
}

static const pl_image_input images[] = {{"image", 0, 1}, {NULL, 0, 0}};
static const pl_image_feed feed = {
    .images = images, .label = "label", .height = "side", .width = "side"};

/* A last layer for another number of classes keeps its initial values; so do counters that other
 * programs leave out. */
static const pl_start start = {.fresh = "fc.*,head.weight,head.bias,classifier.2.*",
                               .missing = "*.num_batches_tracked",
                               .naming = classify_namings};

const pl_recipe pl_recipe_classify;
const pl_recipe pl_recipe_classify = {
    .abi = PL_RECIPE_ABI,
    .name = "classify",
    .about = "pictures to classes: ResNet, ConvNeXt or ViT on your own folder of pictures",
    .schema = schema,
    .presets = classify_presets,
    .build = build,
    .data_read = classify_read,
    .data_write = classify_write,
    .images = &feed,
    .metric = "accuracy",
    .predict = &classify_predict,
    .start = &start,
    .sources = classify_sources,
};
