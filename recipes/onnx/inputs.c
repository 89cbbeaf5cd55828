/* inputs.c - where the inputs of the model come from, and the model as a part of a program.
 *
 *     key inputs      a fixed value (fixed.c): {attention_mask: 1, img_ids: ids.npy}
 *     pictures        input "image" of the program, 0 to 1, normalised by data.mean and data.std
 *     tokens          input "tokens" of the program, without its last token
 *     otherwise       an input of the program with the model's name, which data.path fills
 */
#include "onnx.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pl_status onnx_open(const pl_config *c, pl_onnx **out)
{
    const char *path = pl_config_text(c, "recipe"), *why = pl_onnx_missing();
    size_t n = strlen(path);
    if (why) return pl_fail(PL_ERR_UNSUPPORTED, "ONNX files cannot be read: %s", why);
    if (n < 6 || strcmp(path + n - 5, ".onnx") != 0)
        return pl_fail(PL_ERR_CONFIG,
                       "the recipe onnx needs a file: name it in place of the configuration, "
                       "plimsoll plan model.onnx");
    return pl_onnx_open(path, out);
}

/* ---- pictures ------------------------------------------------------------------------------- */
static bool is_channels(int64_t n)
{
    return n == 1 || n == 3;
}

bool onnx_port_is_last(const pl_onnx_port *port)
{
    return !is_channels(port->dim[1]) && is_channels(port->dim[3]);
}

const pl_onnx_port *onnx_picture_port(const pl_onnx *model)
{
    for (int i = 0; i < pl_onnx_input_count(model); i++) {
        const pl_onnx_port *p = pl_onnx_input(model, i);
        if (p->supported && p->rank == 4 && (p->dtype == PL_F32 || p->dtype == PL_F16) &&
            (is_channels(p->dim[1]) || is_channels(p->dim[3])))
            return p;
    }
    return NULL;
}

/* Reads n numbers behind a word: "mean 0.5 0.5 0.5 std 0.2 0.2 0.2"; false: there are none. */
static bool read_numbers(const char *text, const char *word, int n, float *to)
{
    const char *at = text ? strstr(text, word) : NULL;
    if (!at) return false;
    at += strlen(word);
    for (int i = 0; i < n; i++) {
        char *end;
        double x = strtod(at, &end);
        if (end == at || !isfinite(x) || (x <= 0 && strcmp(word, "std") == 0)) return false;
        to[i] = (float)x;
        at = end;
    }
    return true;
}

pl_status onnx_colours(const pl_config *c, const pl_onnx *model, const char *key, int channels,
                       float *to)
{
    static const float usual[2][3] = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
    bool std = strcmp(key, "data.std") == 0;
    int n;
    const double *x = pl_config_floats(c, key, &n);
    for (int i = 0; i < channels; i++) to[i] = channels == 1 ? 0.5f : usual[std][i];
    if (pl_config_is_null(c, key)) { /* the weights of an exported file want its numbers */
        float own[3];
        const char *word = std ? "std" : "mean", *noted = pl_onnx_meta(model, "plimsoll.normalise");
        if (read_numbers(noted, word, channels, own))
            memcpy(to, own, sizeof *to * (size_t)channels);
        return PL_OK;
    }
    if (n != channels && n != 1)
        return pl_fail(PL_ERR_CONFIG,
                       "%s has %d numbers, the pictures of the model have %d channels", key, n,
                       channels);
    for (int i = 0; i < channels; i++) to[i] = (float)x[n == 1 ? 0 : i];
    return PL_OK;
}

pl_status onnx_class_names(pl_builder *b, const pl_onnx *model)
{
    const char *json = pl_onnx_meta(model, "plimsoll.classes");
    const char *file = pl_config_text(pl_builder_config(b), "recipe");
    return json ? pl_builder_own_classes(b, json, file) : PL_OK;
}

static pl_val constants(pl_graph *g, const float *x, int n)
{
    pl_val each[3];
    for (int i = 0; i < n; i++) each[i] = pl_fill(g, PL_TYPE(PL_F32, 1), (double)x[i]);
    return n == 1 ? each[0] : pl_concat(g, n, each, 0);
}

/* The picture reader fills [batch, H, W, C] from 0 to 1. */
static pl_status bind_picture(onnx_part *p, const pl_onnx_opts *o)
{
    const pl_config *c = pl_builder_config(p->b);
    const pl_onnx_port *port = onnx_picture_port(p->model);
    pl_graph *g = p->m->g;
    pl_type t;
    float mean[3], std[3];
    if (!port)
        return pl_fail(PL_ERR_CONFIG,
                       "data.path has pictures, and the model has no input of pictures "
                       "([batch, 3, height, width]): data.source=arrays reads arrays");
    pl_status rc = pl_onnx_input_type(p->model, port->name, o, &t);
    if (rc != PL_OK) return rc;
    bool last = onnx_port_is_last(port);
    int channels = (int)t.dim[last ? 3 : 1];
    if ((rc = onnx_colours(c, p->model, "data.mean", channels, mean)) != PL_OK) return rc;
    if ((rc = onnx_colours(c, p->model, "data.std", channels, std)) != PL_OK) return rc;
    pl_type own = last ? PL_TYPE(PL_F32, t.dim[0], t.dim[1], t.dim[2], t.dim[3])
                       : PL_TYPE(PL_F32, t.dim[0], t.dim[2], t.dim[3], t.dim[1]);
    pl_val x = pl_input(g, "image", own);
    x = pl_div(g, pl_sub(g, x, constants(g, mean, channels)), constants(g, std, channels));
    p->in[p->n_in++] = (pl_onnx_value){port->name, pl_cast(g, x, t.dtype), !last};
    return PL_OK;
}

/* ---- tokens --------------------------------------------------------------------------------- */
static const pl_onnx_port *token_port(const pl_onnx *model)
{
    for (int i = 0; i < pl_onnx_input_count(model); i++) {
        const pl_onnx_port *p = pl_onnx_input(model, i);
        bool whole = p->dtype == PL_I32 || p->dtype == PL_I64;
        if (p->supported && whole && p->rank == 2) return p;
    }
    return NULL;
}

static pl_status bind_tokens(onnx_part *p, const pl_onnx_opts *o)
{
    const pl_onnx_port *port = token_port(p->model);
    pl_graph *g = p->m->g;
    pl_type t;
    if (!port)
        return pl_fail(PL_ERR_CONFIG, "data.path has tokens, and the model has no input of whole "
                                      "numbers [batch, length]");
    pl_status rc = pl_onnx_input_type(p->model, port->name, o, &t);
    if (rc != PL_OK) return rc;
    pl_val all = pl_input(g, "tokens", PL_TYPE(PL_I32, t.dim[0], t.dim[1] + 1));
    p->in[p->n_in++] = (pl_onnx_value){.name = port->name,
                                       .value = pl_cast(g, pl_slice(g, all, 1, 0, -1, 1), t.dtype)};
    snprintf(p->target[p->n_targets].name, ONNX_NAME, "label");
    p->target[p->n_targets++].value = pl_slice(g, all, 1, 1, t.dim[1] + 1, 1);
    return PL_OK;
}

/* ---- options -------------------------------------------------------------------------------- */
enum { PAIRS = 64 };
typedef struct options {
    pl_onnx_opts o;
    pl_onnx_dim dims[2 * PAIRS + 1]; /* of the configuration, then of fixed values */
    pl_onnx_dropout dropout[PAIRS + 1];
    onnx_fixed fixed;
} options;

static void options_free(options *s)
{
    onnx_fixed_free(&s->fixed);
    free(s);
}

/* Appends a name to a list for a message. */
static void list(char *text, size_t cap, const char *name)
{
    size_t n = strlen(text);
    if (strstr(text, name) == NULL && n + strlen(name) + 3 < cap)
        snprintf(text + n, cap - n, "%s%s", n ? ", " : "", name);
}

/* Every size names a dynamic dimension of an input. */
static pl_status check_dims(const onnx_part *p, const pl_onnx_dim *dims)
{
    char names[400] = "";
    for (; dims->name; dims++) {
        bool found = false;
        for (int i = 0; i < pl_onnx_input_count(p->model) && !found; i++) {
            const pl_onnx_port *port = pl_onnx_input(p->model, i);
            for (int k = 0; k < port->rank; k++) {
                if (!port->dim_name[k]) continue;
                found |= strcmp(port->dim_name[k], dims->name) == 0;
                list(names, sizeof names, port->dim_name[k]);
            }
        }
        if (!found)
            return pl_fail(PL_ERR_CONFIG,
                           "dims.%s: no input of the model has a dynamic dimension %s (%s)",
                           dims->name, dims->name, names[0] ? names : "all sizes are fixed");
    }
    return PL_OK;
}

/* Every pattern of the key matches a weight. Names without * and ? may be missing in the file:
 * exporters leave out what no node reads. */
static pl_status check_patterns(const onnx_part *p, const char *key, const char *patterns)
{
    char one[ONNX_NAME], names[400] = "";
    for (const char *at = patterns; at && *at;) {
        size_t n = strcspn(at, ",");
        bool found = n >= sizeof one;
        size_t space = strspn(at, " ");
        if (space < n) snprintf(one, sizeof one, "%.*s", (int)(n - space), at + space);
        at += n + (at[n] == ',');
        if (space >= n || one[0] == '!') continue;
        for (int i = 0; i < pl_onnx_initializer_count(p->model) && !found; i++) {
            const pl_onnx_initializer *t = pl_onnx_initializer_get(p->model, i);
            found = pl_nn_match(one, t->name);
            if (t->weight) list(names, sizeof names, t->name);
        }
        if (!found)
            return pl_fail(PL_ERR_CONFIG, "%s: no weight of the model matches \"%s\" (weights: %s)",
                           key, one, names);
    }
    return PL_OK;
}

static pl_status check_pairs(const pl_config *c)
{
    pl_status rc = pl_config_pairs_check(c, "dims", true);
    if (rc == PL_OK) rc = pl_config_pairs_check(c, "dropout", true);
    if (rc == PL_OK) rc = pl_config_pairs_check(c, "inputs", false);
    return rc;
}

/* Samples of a program: the builder's, or for predictions the first dimension that the inputs have
 * in the file, if all have the same. */
static int64_t batch_of(const onnx_part *p)
{
    int64_t own = 0;
    for (int i = 0; p->own_batch && i < pl_onnx_input_count(p->model); i++) {
        const pl_onnx_port *port = pl_onnx_input(p->model, i);
        if (!port->supported || onnx_fixed_text(p, port->name)) continue;
        int64_t n = port->rank > 0 ? port->dim[0] : 0;
        if (n <= 0 || (own && n != own)) return pl_builder_batch(p->b);
        own = n;
    }
    return own ? own : pl_builder_batch(p->b);
}

static pl_status read_options(onnx_part *p, options *s)
{
    const pl_config *c = pl_builder_config(p->b);
    const char *name, *value;
    pl_status rc = check_pairs(c);
    if (rc != PL_OK) return rc;
    for (int i = 0; i < PAIRS && (name = pl_config_pair(c, "dims", i, &value)); i++) {
        char *end;
        s->dims[i] = (pl_onnx_dim){name, strtoll(value, &end, 10)};
        if (*end || s->dims[i].size < 1)
            return pl_fail(PL_ERR_CONFIG, "dims.%s: %s is not a whole number from 1 on", name,
                           value);
    }
    for (int i = 0; i < PAIRS && (name = pl_config_pair(c, "dropout", i, &value)); i++) {
        s->dropout[i] = (pl_onnx_dropout){name, strtod(value, NULL)};
        if (!(s->dropout[i].p >= 0 && s->dropout[i].p < 1))
            return pl_fail(PL_ERR_CONFIG, "dropout.%s: %s is not a probability below 1", name,
                           value);
    }
    s->o = (pl_onnx_opts){
        .batch = batch_of(p),
        .dims = s->dims,
        .dropout = s->dropout,
        .constants = s->fixed.list,
        .trainable = pl_config_is_null(c, "trainable") ? NULL : pl_config_text(c, "trainable"),
        .frozen = pl_config_is_null(c, "frozen") ? NULL : pl_config_text(c, "frozen"),
        .init = strcmp(pl_config_text(c, "init"), "pytorch") == 0 ? PL_ONNX_INIT_PYTORCH
                                                                  : PL_ONNX_INIT_FILE};
    rc = check_dims(p, s->dims);
    if (rc == PL_OK) rc = onnx_fixed_check(p);
    if (rc == PL_OK) rc = onnx_fixed_dims(p, s->dims, 2 * PAIRS);
    if (rc == PL_OK) rc = check_patterns(p, "trainable", s->o.trainable);
    return rc == PL_OK ? check_patterns(p, "frozen", s->o.frozen) : rc;
}

/* What to do about a file of one batch. */
static void fixed_sizes(const onnx_part *p, int64_t own, char *text, size_t cap)
{
    int64_t batch = pl_config_int(pl_builder_config(p->b), "batch");
    size_t n = (size_t)snprintf(
        text, cap, "export the model with a dynamic batch, or set batch=%lld", (long long)own);
    if (batch > own && batch % own == 0)
        snprintf(text + n, cap - n, ", or accumulate=%lld (micro-batches of %lld)",
                 (long long)(batch / own), (long long)own);
    pl_builder_fixed_batch(p->b, own);
}

/* Each input that data fill begins with the batch: the micro-batch, unless the file fixes another.
 */
static pl_status check_batch(const onnx_part *p, const pl_onnx_opts *o)
{
    for (int i = 0; i < pl_onnx_input_count(p->model); i++) {
        const pl_onnx_port *port = pl_onnx_input(p->model, i);
        const char *name = port->name;
        pl_type t;
        if (!port->supported || onnx_fixed_text(p, name)) continue;
        pl_status rc = pl_onnx_input_type(p->model, name, o, &t);
        if (rc != PL_OK) return rc;
        if (t.rank == 0)
            return pl_fail(PL_ERR_CONFIG,
                           "input %s is one number for the whole batch, which data cannot fill: "
                           "give it a value, inputs.%s=NUMBER (inputs: {%s: NUMBER} in YAML)",
                           name, name, name);
        if (t.dim[0] == o->batch) continue;
        char text[96], sizes[200] = "";
        if (port->dim[0] < 0)
            snprintf(sizes, sizeof sizes, "leave out dims.%s", port->dim_name[0]);
        else if (!port->dim[0])
            snprintf(sizes, sizeof sizes, "export the model with a dynamic batch");
        else
            fixed_sizes(p, t.dim[0], sizes, sizeof sizes);
        return pl_fail(
            PL_ERR_CONFIG,
            "input %s is %s, with a first dimension of %lld, and the batch is %lld. Where "
            "the first dimension is the batch: %s. Where the input has no batch: give it "
            "a value for all samples, inputs.%s=FILE.npy (or a number, or range)",
            name, pl_type_text(&t, text, sizeof text), (long long)t.dim[0], (long long)o->batch,
            sizes, name);
    }
    return PL_OK;
}

static bool is_bound(const onnx_part *p, const char *name)
{
    for (int i = 0; i < p->n_in; i++)
        if (strcmp(p->in[i].name, name) == 0) return true;
    return onnx_fixed_text(p, name) != NULL;
}

/* Inputs of the model that are targets too: an autoencoder. */
static pl_status bind_targets(onnx_part *p, const pl_onnx_opts *o)
{
    for (int k = 0; p->losses && k < p->losses->n; k++)
        for (int i = 0; i < pl_onnx_input_count(p->model); i++) {
            const char *name = pl_onnx_input(p->model, i)->name;
            pl_type t;
            if (strcmp(p->losses->term[k].target, name) != 0 || is_bound(p, name)) continue;
            pl_status rc = pl_onnx_input_type(p->model, name, o, &t);
            if (rc != PL_OK) return rc;
            p->in[p->n_in++] = (pl_onnx_value){.name = name, .value = pl_input(p->m->g, name, t)};
        }
    return PL_OK;
}

static pl_status add(onnx_part *p, options *s)
{
    pl_status rc = read_options(p, s);
    if (rc == PL_OK) rc = check_batch(p, &s->o);
    if (rc == PL_OK) rc = onnx_fixed_read(p, &s->o, &s->fixed);
    if (rc == PL_OK && p->feed == ONNX_PICTURES) rc = bind_picture(p, &s->o);
    if (rc == PL_OK && p->feed == ONNX_TOKENS) rc = bind_tokens(p, &s->o);
    if (rc == PL_OK) rc = bind_targets(p, &s->o);
    if (rc == PL_OK) rc = pl_onnx_build(p->model, p->m, &s->o, p->n_in, p->in, p->n_out, p->out);
    return rc;
}

pl_status onnx_add(onnx_part *p)
{
    options *s = calloc(1, sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    pl_status rc = add(p, s);
    options_free(s);
    return rc;
}

/* ---- outputs -------------------------------------------------------------------------------- */
pl_status onnx_need(onnx_part *p, const char *name)
{
    if (!name || !*name) name = pl_onnx_output(p->model, 0)->name;
    for (int i = 0; i < p->n_out; i++)
        if (strcmp(p->out[i].name, name) == 0) return PL_OK;
    if (p->n_out == (int)(sizeof p->out / sizeof *p->out))
        return pl_fail(PL_ERR_CONFIG, "more than %d outputs are used", p->n_out);
    p->out[p->n_out++] = (pl_onnx_value){.name = name};
    return PL_OK;
}

pl_val onnx_value_of(const onnx_part *p, const char *name)
{
    if (!name || !*name) name = pl_onnx_output(p->model, 0)->name;
    for (int i = 0; i < p->n_out; i++)
        if (strcmp(p->out[i].name, name) == 0) return p->out[i].value;
    return PL_NO_VAL;
}
