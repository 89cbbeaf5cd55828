/* photo.c - a recipe for tests and benches of the data path: classes of images, a small network. */
#include <plimsoll_ops.h>
#include <plimsoll_recipe.h>

static const pl_config_entry schema[] = {
    {"height", PL_CONFIG_INT, "32", 8, 4096, NULL, "Of an image."},
    {"width", PL_CONFIG_INT, "32", 8, 4096, NULL, "Of an image."},
    {"positions", PL_CONFIG_BOOL, "false", 0, 0, NULL,
     "A weight for every pixel: they depend on the size."},
    {"classes", PL_CONFIG_INT, "4", 2, 4096, NULL, "Classes."},
    {"named", PL_CONFIG_BOOL, "false", 0, 0, NULL, "Those weights have the height in their name."},
    {"encode", PL_CONFIG_BOOL, "false", 0, 0, NULL, "A frozen convolution in front."},
    {"scale", PL_CONFIG_FLOAT, "1", 0, 10, NULL, "Of what the frozen convolution gives."},
    {"convs", PL_CONFIG_INT, "1", 0, 64, NULL,
     "Convolutions at full size: how much there is to compute."},
    {0},
};

static pl_val forward(pl_builder *b, pl_nn *m, pl_val x)
{
    const pl_config *c = pl_builder_config(b);
    for (int64_t i = 0; i < pl_config_int(c, "convs"); i++) {
        pl_nn_push(m, "convs.%d", (int)i);
        x = pl_relu(m->g, pl_nn_conv2d(m, x, "conv", 8, (pl_nn_conv){.kernel = 3, .pad = 1}));
        pl_nn_pop(m);
    }
    x = pl_mean(m->g, x, PL_AXIS(1) | PL_AXIS(2), false);
    return pl_nn_linear(m, x, "out", pl_config_int(c, "classes"), (pl_nn_lin){0});
}

static pl_val image_input(pl_builder *b, pl_nn *m)
{
    const pl_config *c = pl_builder_config(b);
    int64_t n = pl_builder_batch(b), height = pl_config_int(c, "height"),
            width = pl_config_int(c, "width");
    pl_val x = pl_input(m->g, "image", PL_TYPE(PL_F32, n, height, width, 3));
    if (!pl_config_bool(c, "positions")) return x;
    const char *name =
        pl_config_bool(c, "named") ? pl_nn_name(m, "positions%d", (int)height) : "positions";
    pl_val at = pl_nn_param(m, name, 3, (int64_t[]){height, width, 3}, (pl_nn_init){0});
    return pl_add(m->g, x, pl_broadcast(m->g, at, 4, (int64_t[]){n, height, width, 3}));
}

/* Latents of a quarter of the size. */
static pl_val encoder(pl_builder *b, pl_nn *m)
{
    pl_val x =
        pl_nn_conv2d(m, image_input(b, m), "encoder", 4, (pl_nn_conv){.kernel = 4, .stride = 4});
    pl_nn_set_trainable(pl_builder_store(b), "encoder.*", false);
    return pl_scale(m->g, x, pl_config_float(pl_builder_config(b), "scale"));
}

static pl_val source(pl_builder *b, pl_nn *m)
{
    const pl_config *c = pl_builder_config(b);
    int64_t n = pl_builder_batch(b), height = pl_config_int(c, "height"),
            width = pl_config_int(c, "width");
    if (!pl_config_bool(c, "encode")) return image_input(b, m);
    if (pl_builder_cached(b))
        return pl_input(m->g, "latent", PL_TYPE(PL_F32, n, height / 4, width / 4, 4));
    return pl_stop_gradient(m->g, encoder(b, m));
}

static pl_val label_input(pl_builder *b, pl_nn *m)
{
    return pl_input(m->g, "class", PL_TYPE(PL_I32, pl_builder_batch(b)));
}

static pl_val loss(pl_builder *b, pl_nn *m)
{
    pl_val x = source(b, m);
    return pl_loss_cross_entropy(m->g, forward(b, m, x), label_input(b, m));
}

static pl_status encode(pl_builder *b, pl_nn *m)
{
    pl_output(m->g, "latent", encoder(b, m));
    pl_output(m->g, "class", label_input(b, m));
    return PL_OK;
}

static pl_status build(pl_builder *b)
{
    pl_builder_minimise(b, loss(b, pl_builder_train(b)));
    pl_nn *eval = pl_builder_eval(b);
    pl_graph *g = eval->g;
    pl_val logits = forward(b, eval, source(b, eval)), label = label_input(b, eval);
    pl_val right = pl_cast(g, pl_eq(g, pl_argmax(g, logits, 1), label), PL_F32);
    pl_output(g, "loss", pl_loss_cross_entropy(g, logits, label));
    pl_output(g, "accuracy", pl_mean(g, right, PL_AXES_ALL, false));
    return PL_OK;
}

static const pl_image_input images[] = {{"image", -1, 1}, {NULL, 0, 0}};
static const pl_image_feed feed = {
    .images = images, .label = "class", .classes = "classes", .height = "height", .width = "width"};
static const pl_encoder frozen = {.build = encode, .keys = "height,width,scale"};
static const pl_preset presets[] = {
    {"small", "for tests", "batch: 4\ntrain: {steps: 10, log_every: 1}\neval: {batches: 1}\n"},
    {NULL, NULL, NULL}};

static const pl_recipe recipe = {.abi = PL_RECIPE_ABI,
                                 .name = "photo",
                                 .about = "classes of photographs",
                                 .schema = schema,
                                 .presets = presets,
                                 .build = build,
                                 .images = &feed,
                                 .encoder = &frozen};

const pl_recipe *pl_recipe_entry(void);
const pl_recipe *pl_recipe_entry(void)
{
    return &recipe;
}
