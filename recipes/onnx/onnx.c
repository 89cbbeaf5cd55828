/* onnx.c - the network of an ONNX file, trained on data of the user: no code.
 *
 * `plimsoll train model.onnx loss=cross_entropy data.path=pictures/`: the file takes the place of a
 * configuration; key `recipe` keeps its path. The keys below name loss, metrics and data: losses
 * and metrics by name (terms.c), values of its inputs (inputs.c). Data are pictures in folders or
 * tars, or arrays with the names of the model's inputs and of the targets (docs/DATA.md).
 */
#include "onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const pl_config_entry schema[] = {
    {"dims", PL_CONFIG_TREE, "{}",
     .doc = "Sizes of the model's dynamic dimensions by their names, {seq: 128}; the first "
            "dimension is `batch`."},
    {"inputs", PL_CONFIG_TREE, "{}",
     .doc =
         "Inputs with a fixed value instead of data, {attention_mask: 1}: a number, range (0, 1, "
         "2, ... along the last dimension), or a file with an array, ids.npy. Inputs without a "
         "batch need one."},
    {"loss", PL_CONFIG_TEXT, "auto",
     .doc =
         "What training minimises: cross_entropy, mse, l1, smooth_l1, bce_with_logits, kl, dice, "
         "output:NAME, or a sum, cross_entropy(logits, label) + 0.4 * mse(aux, target); auto: "
         "chosen by the first output's shape."},
    {"class_weights", PL_CONFIG_FLOATS, "null", .min = 0, .max = 1e6,
     .doc =
         "Weights of the classes in losses cross_entropy, one for each class: [0.2, 1, 3]; null: "
         "all 1."},
    {"metrics", PL_CONFIG_TEXTS, "null",
     .doc = "Metrics that evaluations report beside the loss: accuracy, top5, f1, iou, mae, psnr, "
            "perplexity, also with output and target, accuracy(logits, label); null: metrics that "
            "suit the loss."},
    {"trainable", PL_CONFIG_TEXT, "null",
     .doc = "Initializers that are trained, as a pattern of names; null: all weights."},
    {"frozen", PL_CONFIG_TEXT, "null",
     .doc = "Initializers that keep their values, as a pattern: \"layer1.*,*.bias\"."},
    {"dropout", PL_CONFIG_TREE, "{}",
     .doc = "Dropout in training behind nodes, by patterns of their names or outputs: {\"*fc*\": "
            "0.1}; for models whose exporter removed it."},
    {"init", PL_CONFIG_CHOICE, "file", .choices = "file|pytorch",
     .doc = "Initial weights: the weights of the file (file), or random weights with PyTorch's "
            "defaults (pytorch)."},
    {"data.mean", PL_CONFIG_FLOATS, "null", .min = -1000, .max = 1000,
     .doc = "Pictures: subtracted from red, green and blue (0 to 1); null: [0.485, 0.456, 0.406], "
            "or 0.5 for grey."},
    {"data.std", PL_CONFIG_FLOATS, "null", .min = 1e-6, .max = 1000,
     .doc = "Pictures: red, green and blue are divided by these afterwards; null: [0.229, 0.224, "
            "0.225], or 0.5 for grey."},
    {"predict.top", PL_CONFIG_INT, "5", .min = 1, .max = 1e6, .resume = PL_RESUME_FREE,
     .doc = "plimsoll predict: classes per picture in the CSV file, the likeliest first."},
    {0},
};

/* ---- targets -------------------------------------------------------------------------------- */
static bool is_whole(pl_dtype d)
{
    return d == PL_I32 || d == PL_I64;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static bool is_folder(const char *path, const char *sub)
{
    char whole[4096];
    struct stat st;
    snprintf(whole, sizeof whole, "%s/%s", path, sub);
    return stat(whole, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool has_masks(const pl_config *c)
{
    const char *path = pl_config_text(c, "data.path");
    return is_folder(path, "masks") || is_folder(path, "train/masks");
}

/* A file of tokens, or a folder with train.bin. */
static bool has_tokens(const char *path)
{
    char whole[4096];
    struct stat st;
    snprintf(whole, sizeof whole, "%s/train.bin", path);
    return ends_with(path, ".bin") || stat(whole, &st) == 0;
}

/* Without data, a model with one input of pictures is planned and measured for pictures. */
static onnx_feed feed_of(const pl_builder *b, const pl_onnx *model)
{
    const pl_config *c = pl_builder_config(b);
    if (pl_builder_pictures(b)) return ONNX_PICTURES;
    if (pl_config_is_null(c, "data.path") && onnx_picture_port(model)) return ONNX_PICTURES;
    return has_tokens(pl_config_text(c, "data.path")) ? ONNX_TOKENS : ONNX_ARRAYS;
}

/* The name that the data have for a target. */
static const char *target_name(const onnx_part *p, const onnx_term *t, const pl_type *type)
{
    bool classes = is_whole(type->dtype);
    if (p->feed == ONNX_PICTURES && classes && type->rank == 3) return "mask";
    if (p->feed == ONNX_PICTURES && classes) return "label";
    if (p->feed == ONNX_TOKENS && classes) return "label";
    if (t->target[0]) return t->target;
    return classes ? "label" : "target";
}

/* The model's input of that name, where the target is the input itself; PL_NO_VAL: it is not. */
static pl_val input_as_target(onnx_part *p, const char *name)
{
    for (int i = 0; i < p->n_in; i++)
        if (strcmp(p->in[i].name, name) == 0) {
            const int first[4] = {0, 3, 1, 2};
            return p->in[i].channels_last ? pl_permute(p->m->g, p->in[i].value, first)
                                          : p->in[i].value;
        }
    return PL_NO_VAL;
}

/* The target of a term, an input of the program that terms share. */
static pl_val target_of(onnx_part *p, const onnx_term *t, const pl_type *type)
{
    pl_graph *g = p->m->g;
    const char *name = target_name(p, t, type);
    pl_val own = t->target[0] ? input_as_target(p, t->target) : PL_NO_VAL;
    if (pl_val_ok(own)) return own;
    for (int i = 0; i < p->n_targets; i++)
        if (strcmp(p->target[i].name, name) == 0) return p->target[i].value;
    if (p->n_targets == ONNX_TERMS) return PL_NO_VAL;
    if (pl_builder_pictures(p->b) && !is_whole(type->dtype))
        return pl_nn_fail(p->m, PL_ERR_CONFIG,
                          "loss: %s compares with numbers (%s), and pictures of data.path have "
                          "classes: set loss=cross_entropy, or name arrays (INPUT.npy and %s.npy), "
                          "or the pictures themselves as the target, %s(OUTPUT, INPUT)",
                          t->kind, name, name, t->kind);
    for (int i = 0; i < pl_onnx_input_count(p->model); i++)
        if (strcmp(pl_onnx_input(p->model, i)->name, name) == 0)
            return pl_nn_fail(p->m, PL_ERR_CONFIG,
                              "target %s has the name of an input of the model: give the target "
                              "another name, %s(OUTPUT, NAME)",
                              name, t->kind);
    snprintf(p->target[p->n_targets].name, ONNX_NAME, "%s", name);
    return p->target[p->n_targets++].value = pl_input(g, name, *type);
}

/* Class numbers that do not count: 255 in masks, torch's -100 in arrays. */
static pl_task_opts opts_of(const onnx_part *p, const onnx_term *t, const pl_type *output)
{
    pl_task_opts o = t->o;
    bool classes = strcmp(t->kind, "cross_entropy") == 0 || strcmp(t->kind, "dice") == 0;
    if (o.ignore || o.ignore_zero || !classes) return o;
    if (p->feed == ONNX_PICTURES && output->rank == 4) o.ignore = output->dim[1] <= 255 ? 255 : 0;
    if (p->feed == ONNX_ARRAYS) o.ignore = -100;
    return o;
}

static int64_t classes_of(const pl_type *output, pl_task_opts o)
{
    int axis = o.axis ? o.axis : output->rank == 3 ? 2 : 1;
    return output->dim[axis < 0 ? axis + output->rank : axis];
}

/* Key class_weights as a value; PL_NO_VAL: not set, or wrong. */
static pl_val class_weights(onnx_part *p, const onnx_term *t, int64_t classes)
{
    const pl_config *c = pl_builder_config(p->b);
    int n;
    const double *x = pl_config_floats(c, "class_weights", &n);
    if (pl_config_is_null(c, "class_weights") || strcmp(t->kind, "cross_entropy") != 0)
        return PL_NO_VAL;
    if (n != classes)
        return pl_nn_fail(
            p->m, PL_ERR_CONFIG, "class_weights has %d numbers, output %s has %lld classes", n,
            t->output[0] ? t->output : pl_onnx_output(p->model, 0)->name, (long long)classes);
    return pl_task_class_weights(p->m, t->output[0] ? t->output : t->kind, n, x);
}

/* ---- losses --------------------------------------------------------------------------------- */
static pl_val scalar_of(onnx_part *p, const onnx_term *t, pl_val x)
{
    pl_type type = pl_val_ok(x) ? pl_val_type(p->m->g, x) : (pl_type){0};
    if (pl_val_ok(x) && pl_type_elems(&type) != 1)
        return pl_nn_fail(p->m, PL_ERR_CONFIG,
                          "loss: output %s is not one number: name a loss, mse(%s, TARGET)",
                          t->output, t->output);
    return pl_cast(p->m->g, pl_reshape(p->m->g, x, 0, NULL), PL_F32);
}

/* Whether batches with one label a sample are mixed (data.mixup, data.cutmix). */
static bool is_mixed(const onnx_part *p, const onnx_term *t, const pl_type *output)
{
    const pl_config *c = pl_builder_config(p->b);
    bool on = pl_config_float(c, "data.mixup") > 0 || pl_config_float(c, "data.cutmix") > 0;
    return on && p->m->training && strcmp(t->kind, "cross_entropy") == 0 && output->rank == 2;
}

static pl_val loss_of(onnx_part *p, const onnx_term *t)
{
    pl_val x = onnx_value_of(p, t->output);
    pl_type target;
    char text[96];
    if (!pl_val_ok(x)) return x;
    if (strcmp(t->kind, "output") == 0) return scalar_of(p, t, x);
    pl_type type = pl_val_type(p->m->g, x);
    pl_task_opts o = opts_of(p, t, &type);
    if (!pl_task_target(t->kind, &type, o, &target))
        return pl_nn_fail(p->m, PL_ERR_CONFIG, "loss: %s has no meaning for output %s, %s", t->kind,
                          t->output[0] ? t->output : pl_onnx_output(p->model, 0)->name,
                          pl_type_text(&type, text, sizeof text));
    if (is_whole(target.dtype)) o.weight = class_weights(p, t, classes_of(&type, o));
    if (is_whole(target.dtype) && p->feed == ONNX_PICTURES)
        pl_builder_outputs(p->b, classes_of(&type, o));
    pl_val expected = target_of(p, t, &target);
    if (!pl_val_ok(expected)) return expected;
    pl_type given = pl_val_type(p->m->g, expected);
    if (given.rank != target.rank ||
        memcmp(given.dim, target.dim, (size_t)target.rank * sizeof *target.dim) != 0) {
        char wanted[96];
        return pl_nn_fail(p->m, PL_ERR_CONFIG, "loss: %s compares output %s with %s, and %s is %s",
                          t->kind, t->output[0] ? t->output : pl_onnx_output(p->model, 0)->name,
                          pl_type_text(&target, wanted, sizeof wanted), target_name(p, t, &target),
                          pl_type_text(&given, text, sizeof text));
    }
    if (is_mixed(p, t, &type))
        return pl_builder_label_loss(p->b, p->m, x, target_name(p, t, &target), expected,
                                     (pl_cross_entropy){.smoothing = o.smoothing,
                                                        .ignore = o.ignore,
                                                        .ignore_zero = o.ignore_zero,
                                                        .weight = o.weight});
    return pl_task_loss(p->m, t->kind, x, expected, o);
}

static const char *term_label(const onnx_term *t)
{
    return t->output[0] ? t->output : t->kind;
}

/* The name of term k among the outputs: loss.OUTPUT, loss.OUTPUT.KIND where several terms have that
 * output, and the number of the term behind it where two are of one kind, too. */
static const char *term_name(onnx_part *p, const onnx_terms *terms, int k)
{
    const onnx_term *t = &terms->term[k];
    bool same_output = false, same_kind = false;
    for (int i = 0; i < terms->n; i++) {
        bool same = i != k && strcmp(term_label(&terms->term[i]), term_label(t)) == 0;
        same_output |= same;
        same_kind |= same && strcmp(terms->term[i].kind, t->kind) == 0;
    }
    if (!same_output) return pl_nn_name(p->m, "loss.%s", term_label(t));
    if (!same_kind) return pl_nn_name(p->m, "loss.%s.%s", term_label(t), t->kind);
    return pl_nn_name(p->m, "loss.%s.%s.%d", term_label(t), t->kind, k + 1);
}

/* The weighted sum of all terms; each of several terms is a separate output, too. */
static pl_val total_of(onnx_part *p, const onnx_terms *terms)
{
    pl_graph *g = p->m->g;
    pl_val sum = PL_NO_VAL;
    for (int i = 0; i < terms->n; i++) {
        const onnx_term *t = &terms->term[i];
        pl_val x = loss_of(p, t);
        if (terms->n > 1) pl_output(g, term_name(p, terms, i), x);
        if (t->weight != 1) x = pl_scale(g, x, t->weight);
        sum = i ? pl_add(g, sum, x) : x;
    }
    return sum;
}

/* ---- metrics -------------------------------------------------------------------------------- */
/* The term of a metric's output in the losses, for its target and options. */
static const onnx_term *term_for(const onnx_part *p, const onnx_terms *losses, const onnx_term *t)
{
    const char *first = pl_onnx_output(p->model, 0)->name, *want = t->output[0] ? t->output : NULL;
    for (int i = 0; i < losses->n; i++) {
        const char *has = losses->term[i].output[0] ? losses->term[i].output : first;
        if (strcmp(losses->term[i].kind, "output") == 0) continue;
        if (!want || strcmp(want, has) == 0) return &losses->term[i];
    }
    return NULL;
}

static pl_status report(onnx_part *p, const onnx_terms *losses, const onnx_term *t, bool asked,
                        bool *sets)
{
    const onnx_term *loss = term_for(p, losses, t);
    pl_type target;
    if (!loss)
        return asked ? pl_fail(PL_ERR_CONFIG, "metrics: no loss compares output %s with a target",
                               t->output[0] ? t->output : pl_onnx_output(p->model, 0)->name)
                     : PL_OK;
    pl_val x = onnx_value_of(p, loss->output);
    if (!pl_val_ok(x)) return PL_OK;
    pl_type type = pl_val_type(p->m->g, x);
    pl_task_opts o = opts_of(p, loss, &type);
    if (t->o.peak > 0) o.peak = t->o.peak;
    if (!pl_task_target(loss->kind, &type, o, &target)) return PL_OK;
    bool counts = strcmp(t->kind, "f1") == 0 || strcmp(t->kind, "iou") == 0;
    if (!pl_task_measures(t->kind, &type, &target, o) || (counts && *sets)) {
        char text[96];
        if (asked && !counts)
            return pl_fail(PL_ERR_CONFIG,
                           "metrics: %s has no meaning for output %s, %s, with loss %s", t->kind,
                           loss->output[0] ? loss->output : pl_onnx_output(p->model, 0)->name,
                           pl_type_text(&type, text, sizeof text), loss->kind);
        return PL_OK;
    }
    *sets |= counts;
    const char *name = t->output[0] ? pl_nn_name(p->m, "%s.%s", t->kind, t->output) : NULL;
    pl_task_report(p->m, t->kind, name, x, target_of(p, loss, &target), o);
    return PL_OK;
}

static pl_status report_all(onnx_part *p, const onnx_terms *losses)
{
    static const char *const usual[] = {"accuracy", "top5", "iou", "perplexity", "mae"};
    const pl_config *c = pl_builder_config(p->b);
    int n;
    bool sets = false;
    const char *const *asked = pl_config_texts(c, "metrics", &n);
    onnx_term one;
    pl_status rc = PL_OK;
    for (int i = 0; i < n && rc == PL_OK; i++) {
        rc = onnx_term_read("metrics", asked[i], &one);
        if (rc == PL_OK && !pl_task_is_metric(one.kind))
            rc = pl_fail(PL_ERR_CONFIG, "metrics: \"%s\" is not one of %s", asked[i],
                         pl_task_metrics());
        if (rc == PL_OK) rc = report(p, losses, &one, true, &sets);
    }
    if (!pl_config_is_null(c, "metrics") || rc != PL_OK) return rc;
    const onnx_term *loss = term_for(p, losses, &(onnx_term){.weight = 1});
    pl_val x = loss ? onnx_value_of(p, loss->output) : PL_NO_VAL;
    int rank = pl_val_ok(x) ? pl_val_type(p->m->g, x).rank : 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && rc == PL_OK; i++) {
        onnx_term t = {.weight = 1};
        bool words = strcmp(usual[i], "perplexity") == 0, maps = strcmp(usual[i], "iou") == 0;
        bool top = strcmp(usual[i], "top5") == 0, mae = strcmp(usual[i], "mae") == 0;
        bool bits =
            loss && (strcmp(loss->kind, "bce_with_logits") == 0 || strcmp(loss->kind, "dice") == 0);
        if ((words && rank != 3) || (maps && rank < 4) || (top && rank != 2)) continue;
        if (mae && bits) continue;
        if (!mae && !bits && loss && strcmp(loss->kind, "cross_entropy") != 0) continue;
        snprintf(t.kind, sizeof t.kind, "%s", usual[i]);
        rc = report(p, losses, &t, false, &sets);
    }
    return rc;
}

/* ---- programs ------------------------------------------------------------------------------- */
static pl_status add_program(onnx_part *p, const onnx_terms *losses)
{
    p->losses = losses;
    pl_status rc = PL_OK;
    for (int i = 0; i < losses->n && rc == PL_OK; i++) rc = onnx_need(p, losses->term[i].output);
    return rc == PL_OK ? onnx_add(p) : rc;
}

static pl_status state_facts(const onnx_part *p)
{
    const pl_config *c = pl_builder_config(p->b);
    const pl_onnx_port *port = onnx_picture_port(p->model);
    float mean[3], std[3];
    char text[256] = "mean";
    if (p->feed != ONNX_PICTURES || !port) return PL_OK;
    int channels = (int)port->dim[onnx_port_is_last(port) ? 3 : 1];
    pl_status rc = onnx_colours(c, p->model, "data.mean", channels, mean);
    if (rc == PL_OK) rc = onnx_colours(c, p->model, "data.std", channels, std);
    size_t at = strlen(text);
    for (int i = 0; i < 2 * channels; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s %.6g", i == channels ? " std" : "",
                               (double)(i < channels ? mean[i] : std[i - channels]));
    pl_builder_fact(p->b, "normalise", text);
    return rc;
}

/* What build works with: too large for the stack. */
typedef struct work {
    onnx_part part;
    onnx_terms losses;
} work;

static void begin_part(onnx_part *p, pl_builder *b, pl_nn *m, pl_onnx *model)
{
    memset(p, 0, sizeof *p);
    p->b = b;
    p->m = m;
    p->model = model;
    p->feed = feed_of(b, model);
}

static pl_status build_parts(pl_builder *b, pl_onnx *model, work *w)
{
    onnx_part *p = &w->part;
    pl_status rc = onnx_losses(pl_builder_config(b), model, &w->losses);
    begin_part(p, b, pl_builder_train(b), model);
    if (rc == PL_OK) rc = add_program(p, &w->losses);
    if (rc != PL_OK) return rc;
    pl_builder_minimise(b, total_of(p, &w->losses));

    begin_part(p, b, pl_builder_eval(b), model);
    rc = add_program(p, &w->losses);
    if (rc != PL_OK) return rc;
    pl_output(p->m->g, "loss", total_of(p, &w->losses));
    rc = report_all(p, &w->losses);
    /* names that the module has for one weight: "head.weight=embed.weight;..." */
    const char *tied = pl_onnx_meta(model, "plimsoll.tied");
    if (tied) pl_builder_fact(b, "tied", tied);
    return rc == PL_OK ? state_facts(p) : rc;
}

static pl_status build(pl_builder *b)
{
    work *w = calloc(1, sizeof *w);
    if (!w) return PL_ERR_MEMORY;
    pl_status rc = onnx_class_names(b, pl_builder_own(b));
    if (rc == PL_OK) rc = build_parts(b, pl_builder_own(b), w);
    free(w);
    return rc;
}

/* ---- data ----------------------------------------------------------------------------------- */
/* Without data.path: numbers without a meaning, for times and memory (data.source=synthetic). */
static pl_status data_open(const pl_config *c, void **data)
{
    pl_onnx *model;
    if (strcmp(pl_config_text(c, "data.source"), "synthetic") != 0)
        return pl_fail(
            PL_ERR_CONFIG,
            "data.path is not set: name a folder of pictures or arrays (docs/TRAIN_ONNX.md); "
            "data.source=synthetic runs on random numbers, to measure times");
    pl_status rc = onnx_open(c, &model);
    if (rc == PL_OK) *data = model;
    return rc;
}

static void data_close(void *data)
{
    pl_onnx_free(data);
}

static int64_t data_size(void *data, pl_subset subset)
{
    (void)data;
    return subset == PL_SUBSET_TRAIN ? 1024 : 64;
}

/* Numbers around 0, class numbers and tokens 0 and 1. */
static void draw(uint64_t seed, const pl_type *t, void *to)
{
    int64_t n = pl_type_elems(t);
    if (t->dtype == PL_F32) pl_sample_noise(seed, n, to);
    for (int64_t i = 0; i < n && is_whole(t->dtype); i++) {
        int64_t v = pl_sample_uniform(seed, (uint64_t)i) < 0.5;
        if (t->dtype == PL_I64)
            ((int64_t *)to)[i] = v;
        else
            ((int32_t *)to)[i] = (int32_t)v;
    }
}

static pl_status data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    static const char *const others[] = {"image", "label", "mask", "tokens", "target", NULL};
    const pl_onnx *model = data;
    uint64_t seed = pl_sample_seed(0x0411, subset, n ? sample[0] : 0);
    pl_type t;
    void *to;
    for (int i = 0; i < pl_onnx_input_count(model); i++)
        if ((to = pl_batch_input(batch, pl_onnx_input(model, i)->name, &t))) draw(seed + 1, &t, to);
    for (const char *const *name = others; *name; name++)
        if ((to = pl_batch_input(batch, *name, &t))) draw(seed + 2, &t, to);
    return PL_OK;
}

/* ---- the recipe ----------------------------------------------------------------------------- */
static const pl_image_input images[] = {{"image", 0, 1}, {NULL, 0, 0}};
static const pl_image_feed labelled = {.images = images, .label = "label"};
static const pl_image_feed masked = {.images = images, .mask = "mask"};

static void close_model(void *model)
{
    pl_onnx_free(model);
}

/* A network without pictures reads arrays; a folder with masks has a class for every pixel. */
static pl_status adapt(const pl_config *c, pl_recipe *own)
{
    pl_onnx *model;
    pl_status rc = onnx_open(c, &model);
    if (rc != PL_OK) return rc;
    own->own = model;
    if (!onnx_picture_port(model))
        own->images = NULL;
    else if (has_masks(c))
        own->images = &masked;
    return PL_OK;
}

static pl_status value_of(void *model, const pl_slot *slot, void *to, bool *known)
{
    return pl_onnx_slot_read(model, slot, to, known);
}

static pl_status write_onnx(void *model, const char *weights, const char *out, int *tensors)
{
    return pl_onnx_write(model, weights, out, tensors);
}

static const pl_export exports[] = {
    {.name = "onnx", .about = "the ONNX file with the trained weights", .write = write_onnx},
    {.name = NULL}};

const pl_recipe pl_recipe_onnx;
const pl_recipe pl_recipe_onnx = {
    .abi = PL_RECIPE_ABI,
    .name = "onnx",
    .about = "the network of an ONNX file on your own pictures or arrays",
    .schema = schema,
    .build = build,
    .data_open = data_open,
    .data_close = data_close,
    .data_size = data_size,
    .data_read = data_read,
    .derive = pl_task_derive,
    .images = &labelled,
    .metric = "loss",
    .predict = &onnx_predict,
    .exports = exports,
    .adapt = adapt,
    .own_free = close_model,
    .value = value_of,
};
