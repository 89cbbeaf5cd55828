/* cmd_new.c - `plimsoll new NAME`: a folder with a network to start from.
 *
 * The folder holds one C file (model, loss, data), a configuration and a Makefile; `make` there
 * gives NAME.so, which every command takes where it takes a built-in recipe. The network is a small
 * classifier of points on two spirals: enough to learn something at once, little enough to replace.
 */
#include "cli/ui.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the templates @NAME@ is the network's name, @PLIMSOLL@ this program's path. */
static const char source[] = "\
/* @NAME@ - a network of your own: model, loss, data.\n\
 *\n\
 * Points (x, y) lie on one of two spirals; the network says which. Build with `make`, then:\n\
 *\n\
 *     plimsoll plan config.yaml          what it takes\n\
 *     plimsoll train config.yaml         watch it learn\n\
 */\n\
#include <plimsoll_recipe.h>\n\
\n\
#include <math.h>\n\
\n\
/* Your own configuration keys, beside the engine's (batch, optim.*, schedule.*, ...). */\n\
static const pl_config_entry schema[] = {\n\
    {\"model.width\", PL_CONFIG_INT, \"64\", 1, 65536, NULL, \"Width of the hidden layers.\"},\n\
    {\"model.depth\", PL_CONFIG_INT, \"3\", 1, 64, NULL, \"Hidden layers.\"},\n\
    {\"data.samples\", PL_CONFIG_INT, \"4096\", 1, 1e9, NULL, \"Points of the training set.\"},\n\
    {\"data.eval_samples\", PL_CONFIG_INT, \"1024\", 1, 1e9, NULL, \"Points of the evaluation.\"},\n\
    {0},\n\
};\n\
\n\
/* The forward pass: points (batch, 2) to logits (batch, 2). Errors are sticky: no check per line. */\n\
static pl_val forward(pl_builder *b, pl_nn *m, pl_val points)\n\
{\n\
    const pl_config *c = pl_builder_config(b);\n\
    int64_t width = pl_config_int(c, \"model.width\"), depth = pl_config_int(c, \"model.depth\");\n\
    pl_val x = points;\n\
    for (int64_t i = 0; i < depth; i++)\n\
        x = pl_silu(m->g, pl_nn_linear(m, x, pl_nn_name(m, \"hidden.%d\", (int)i), width, (pl_nn_lin){0}));\n\
    return pl_nn_linear(m, x, \"out\", 2, (pl_nn_lin){0});\n\
}\n\
\n\
/* The programs of a step: training ends in minimise, evaluation in named scalar outputs. */\n\
static pl_status build(pl_builder *b)\n\
{\n\
    int64_t batch = pl_builder_batch(b);\n\
    pl_nn *train = pl_builder_train(b);\n\
    pl_val points = pl_input(train->g, \"points\", PL_TYPE(PL_F32, batch, 2));\n\
    pl_val label = pl_input(train->g, \"label\", PL_TYPE(PL_I32, batch));\n\
    pl_builder_minimise(b, pl_loss_cross_entropy(train->g, forward(b, train, points), label));\n\
\n\
    pl_nn *eval = pl_builder_eval(b);\n\
    pl_graph *g = eval->g;\n\
    points = pl_input(g, \"points\", PL_TYPE(PL_F32, batch, 2));\n\
    label = pl_input(g, \"label\", PL_TYPE(PL_I32, batch));\n\
    pl_val logits = forward(b, eval, points);\n\
    pl_val right = pl_cast(g, pl_eq(g, pl_argmax(g, logits, 1), label), PL_F32);\n\
    pl_output(g, \"loss\", pl_loss_cross_entropy(g, logits, label));\n\
    pl_output(g, \"accuracy\", pl_mean(g, right, PL_AXES_ALL, false));\n\
    return PL_OK;\n\
}\n\
\n\
/* ---- data: sample i is a pure function of i ---- */\n\
static pl_status data_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)\n\
{\n\
    (void)data;\n\
    float *points = pl_batch_input(batch, \"points\", NULL);\n\
    int32_t *label = pl_batch_input(batch, \"label\", NULL);\n\
    for (int i = 0; i < n; i++) {\n\
        int64_t k = sample[i] + (subset == PL_SUBSET_EVAL ? 1000003 : 0);\n\
        double t = fmod((double)k * 0.6180339887498949, 1.0); /* spreads evenly over the curve */\n\
        double angle = 9 * t + 3.141592653589793 * (double)(k % 2), radius = 0.2 + t;\n\
        points[2 * i] = (float)(radius * cos(angle));\n\
        points[2 * i + 1] = (float)(radius * sin(angle));\n\
        label[i] = (int32_t)(k % 2);\n\
    }\n\
    return PL_OK;\n\
}\n\
\n\
static const pl_preset presets[] = {\n\
    {\"default\", \"two spirals\", \"\\\n\
batch: 128\\n\\\n\
optim: {name: adamw, lr: 5e-3}\\n\\\n\
schedule: {name: cosine, warmup_steps: 20}\\n\\\n\
train: {steps: 600, log_every: 100}\\n\\\n\
eval: {every: 200, batches: 8}\\n\"},\n\
    {NULL, NULL, NULL},\n\
};\n\
\n\
static const pl_recipe recipe = {\n\
    .abi = PL_RECIPE_ABI,\n\
    .name = \"@NAME@\",\n\
    .about = \"which of two spirals a point lies on\",\n\
    .schema = schema,\n\
    .presets = presets,\n\
    .build = build,\n\
    .data_read = data_read,\n\
    .metric = \"accuracy\",\n\
};\n\
\n\
PL_API const pl_recipe *pl_recipe_entry(void);\n\
const pl_recipe *pl_recipe_entry(void)\n\
{\n\
    return &recipe;\n\
}\n";

static const char config[] = "\
# Configuration of @NAME@. Every key: plimsoll plan config.yaml --print-config\n\
recipe: ./@NAME@.so\n\
extends: default\n\
seed: 1\n\
model: {width: 64, depth: 3}\n";

static const char makefile[] = "\
# make            builds @NAME@.so\n\
# make train      builds it and trains\n\
PLIMSOLL ?= @PLIMSOLL@\n\
CC       ?= cc\n\
CFLAGS   ?= -O2 -g -Wall -Wextra\n\
\n\
@NAME@.so: @NAME@.c\n\
\t$(CC) -std=c11 $(CFLAGS) -fPIC -shared -I$(shell $(PLIMSOLL) --include-dir) -o $@ $< -lm\n\
\n\
plan train: @NAME@.so\n\
\t$(PLIMSOLL) $@ config.yaml\n\
\n\
clean:\n\
\trm -f @NAME@.so\n\
\n\
.PHONY: plan train clean\n";

static bool put_template(const char *folder, const char *file, const char *text, const char *name,
                         const char *program)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "wxe");
    if (!f) {
        cli_error("cannot write %s: %s", path, strerror(errno));
        return false;
    }
    while (*text) {
        if (strncmp(text, "@NAME@", 6) == 0) {
            fputs(name, f);
            text += 6;
        } else if (strncmp(text, "@PLIMSOLL@", 10) == 0) {
            fputs(program, f);
            text += 10;
        } else {
            fputc(*text++, f);
        }
    }
    bool ok = !ferror(f);
    if (fclose(f) != 0) ok = false;
    if (!ok) cli_error("cannot write %s: %s", path, strerror(errno));
    return ok;
}

static bool good_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_') return false;
    return n > 0 && n <= 64 && isalpha((unsigned char)name[0]);
}

int cmd_new(int argc, char **argv)
{
    cli_args a;
    const cli_option options[] = {{NULL, NULL, NULL, NULL}};
    cli_parse(argc, argv, options,
              "plimsoll new NAME\n\nWrites a folder NAME with a network to start from: one C file "
              "(model, loss, data),\na configuration and a Makefile.",
              "  plimsoll new my-net && cd my-net && make && plimsoll train config.yaml\n", &a);
    cli_want(&a, 1, 1, "new", "one name");
    const char *path = a.positional[0], *slash = strrchr(path, '/'),
               *name = slash ? slash + 1 : path;
    char program[PATH_MAX], file[128];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (!good_name(name)) {
        cli_error("\"%s\" is no name for a network: letters, digits, - and _, a letter first",
                  name);
        return 2;
    }
    if (mkdir(path, 0777) != 0) {
        cli_error("cannot make the folder %s: %s", path, strerror(errno));
        return 1;
    }
    snprintf(file, sizeof file, "%s.c", name);
    if (!put_template(path, file, source, name, program) ||
        !put_template(path, "config.yaml", config, name, program) ||
        !put_template(path, "Makefile", makefile, name, program))
        return 1;
    printf("%s/%s        model, loss and data: start here\n%s/config.yaml\n%s/Makefile\n\n"
           "next: cd %s && make && plimsoll train config.yaml\n",
           path, file, path, path, path);
    return 0;
}
