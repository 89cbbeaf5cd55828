/* decoder.c - the decoder of Wan 2.1's video autoencoder: latents to frames.
 *
 *     latent (B,F,H,W,C) -> frames (B,1+4(F-1),8H,8W,3), with the published sizes
 *
 * Convolutions over time are causal: a frame depends on itself and on the two frames before it. So
 * the graph decodes one frame of the latent after the other, and each convolution keeps the last
 * two frames of its input for the next one: the memory of activations does not grow with F. A level
 * that doubles the frames leaves the first frame of the video single, and its convolution over time
 * never sees that frame: zeros replace it.
 *
 * Slots have the names of Wan's own file, below "vae.". A single frame (a picture) uses the last of
 * the three slices of a kernel, and no convolution that doubles frames.
 */
#include "wandistill.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEPT = 2 * WAN_VAE_LEVELS * (WAN_VAE_BLOCKS + 2) + 8 };

typedef struct decoder {
    pl_nn *m;
    const wan_vae *c;
    pl_val kept[KEPT]; /* of each causal convolution, in the order of the forward pass */
    int at;            /* the next of these */
} decoder;

static int64_t frames(const pl_graph *g, pl_val x)
{
    pl_type t = pl_val_type(g, x);
    return t.rank == 5 ? t.dim[1] : 0;
}

static int64_t width(const pl_graph *g, pl_val x)
{
    pl_type t = pl_val_type(g, x);
    return t.rank > 0 ? t.dim[t.rank - 1] : 0;
}

/* The kernel (O,T,K,K,I) of a convolution over time and space, O,I,T,K,K in files. */
static pl_val kernel_of(pl_nn *m, const char *name, int64_t out, int64_t in, int time, int space)
{
    double bound = 1 / sqrt((double)(in * time * space * space));
    pl_slot slot = {.name = pl_nn_name(m, "vae.%s.weight", name),
                    .type = PL_TYPE(m->dtype, out, time, space, space, in),
                    .kind = PL_SLOT_PARAM,
                    .init = {PL_INIT_UNIFORM, -bound, bound},
                    .layout = {.rank = 5, .perm = {0, 4, 1, 2, 3}},
                    .trainable = !m->frozen,
                    .decay = true};
    return pl_nn_read(m, pl_store_add(pl_graph_store(m->g), &slot));
}

/* Frame t of the result depends on frames t - time + 1 to t; frames before the first are zero. */
static pl_val causal(decoder *d, pl_val x, const char *name, int64_t out, int time, int space)
{
    pl_graph *g = d->m->g;
    pl_val *kept = &d->kept[d->at++];
    if (!pl_val_ok(x)) return x;
    pl_val seen = pl_val_ok(*kept) ? pl_concat(g, 2, (const pl_val[]){*kept, x}, 1) : x;
    int64_t n = frames(g, seen), absent = time - 1 - (n - frames(g, x));
    pl_val w = kernel_of(d->m, name, out, width(g, x), time, space);
    pl_nn_push(d->m, "vae.%s", name);
    pl_val bias = pl_nn_param(d->m, "bias", 1, &out, pl_nn_constant(0));
    pl_nn_pop(d->m);
    pl_conv_opts o = {.pad_lo = {0, space / 2, space / 2}, .pad_hi = {0, space / 2, space / 2}};
    if (frames(g, x) == 1) /* zeros are left out, with the slices of the kernel that they meet */
        w = pl_slice(g, w, 1, absent, time, 1);
    else
        o.pad_lo[0] = (int)absent;
    *kept = time > 1 ? pl_slice(g, seen, 1, n < time ? 0 : n - time + 1, n, 1) : PL_NO_VAL;
    return pl_conv(g, seen, w, bias, &o);
}

static pl_val norm(decoder *d, pl_val x, const char *name)
{
    pl_graph *g = d->m->g;
    int64_t c = width(g, x);
    pl_nn_push(d->m, "vae.%s", name);
    pl_val gamma = pl_nn_param(d->m, "gamma", 1, &c, pl_nn_constant(1));
    pl_nn_pop(d->m);
    x = pl_nn_normalize(g, x, pl_val_type(g, x).rank - 1, 1e-12);
    return pl_mul(g, pl_scale(g, x, sqrt((double)c)), gamma);
}

static pl_val block(decoder *d, pl_val x, const char *name, int64_t out)
{
    pl_nn *m = d->m;
    pl_val h = pl_silu(m->g, norm(d, x, pl_nn_name(m, "%s.residual.0", name)));
    h = causal(d, h, pl_nn_name(m, "%s.residual.2", name), out, 3, 3);
    h = pl_silu(m->g, norm(d, h, pl_nn_name(m, "%s.residual.3", name)));
    h = causal(d, h, pl_nn_name(m, "%s.residual.6", name), out, 3, 3);
    if (width(m->g, x) != out) x = causal(d, x, pl_nn_name(m, "%s.shortcut", name), out, 1, 1);
    return pl_add(m->g, x, h);
}

static pl_val conv2(decoder *d, pl_val x, const char *name, int64_t out, int kernel)
{
    pl_nn_conv o = {.kernel = kernel, .pad = kernel / 2};
    return pl_nn_conv2d(d->m, x, pl_nn_name(d->m, "vae.%s", name), out, o);
}

/* Frames as samples of a batch, (B*F,H,W,C), and back. */
static pl_val single(pl_graph *g, pl_val x)
{
    return pl_flatten(g, x, 0, 1);
}

static pl_val video(pl_graph *g, pl_val x, int64_t batch)
{
    pl_type t = pl_val_type(g, x);
    return pl_reshape(g, x, PL_DIMS(batch, -1, t.dim[1], t.dim[2], t.dim[3]));
}

/* One head over the positions of a frame. */
static pl_val attention(decoder *d, pl_val x, const char *name)
{
    pl_graph *g = d->m->g;
    pl_val h = norm(d, single(g, x), pl_nn_name(d->m, "%s.norm", name)), part[3];
    pl_type t = pl_val_type(g, h);
    int64_t c = width(g, h);
    h = conv2(d, h, pl_nn_name(d->m, "%s.to_qkv", name), 3 * c, 1);
    pl_split(g, pl_flatten(g, h, 1, 2), 2, 3, part);
    h = pl_scale(g, pl_matmul(g, part[0], part[1], false, true), 1 / sqrt((double)c));
    h = pl_reshape(g, pl_matmul(g, pl_softmax(g, h, -1), part[2], false, false), t.rank, t.dim);
    h = conv2(d, h, pl_nn_name(d->m, "%s.proj", name), c, 1);
    return pl_add(g, x, video(g, h, pl_val_type(g, x).dim[0]));
}

/* Twice the frames: the halves of the channels are neighbours in time. */
static pl_val more_frames(decoder *d, pl_val x, const char *name)
{
    pl_graph *g = d->m->g;
    int64_t c = width(g, x);
    x = causal(d, x, pl_nn_name(d->m, "%s.time_conv", name), 2 * c, 3, 1);
    pl_type t = pl_val_type(g, x);
    x = pl_reshape(g, x, PL_DIMS(t.dim[0], t.dim[1], t.dim[2], t.dim[3], 2, c));
    x = pl_permute(g, x, (const int[]){0, 1, 4, 2, 3, 5});
    return pl_reshape(g, x, PL_DIMS(t.dim[0], 2 * t.dim[1], t.dim[2], t.dim[3], c));
}

static pl_val enlarge(decoder *d, pl_val x, const char *name, bool doubles, bool first)
{
    pl_graph *g = d->m->g;
    int64_t batch = pl_val_type(g, x).dim[0], c = width(g, x);
    if (doubles && first) d->at++; /* its convolution begins with the next frame */
    if (doubles && !first) x = more_frames(d, x, name);
    x = pl_nn_upsample_nearest(g, single(g, x), 2);
    return video(g, conv2(d, x, pl_nn_name(d->m, "%s.resample.1", name), c / 2, 3), batch);
}

/* Frames of one frame of the latent, (B,1,H,W,C). */
static pl_val decode_next(decoder *d, pl_val z, bool first)
{
    const wan_vae *c = d->c;
    pl_nn *m = d->m;
    int64_t wide = c->mult[c->levels - 1] * c->width;
    int k = 0;
    d->at = 0;
    pl_val h = causal(d, causal(d, z, "conv2", c->channels, 1, 1), "decoder.conv1", wide, 3, 3);
    h = block(d, h, "decoder.middle.0", wide);
    h = attention(d, h, "decoder.middle.1");
    h = block(d, h, "decoder.middle.2", wide);
    for (int i = c->levels - 1; i >= 0; i--) {
        for (int j = 0; j <= c->blocks; j++)
            h = block(d, h, pl_nn_name(m, "decoder.upsamples.%d", k++), c->mult[i] * c->width);
        if (i)
            h = enlarge(d, h, pl_nn_name(m, "decoder.upsamples.%d", k++), c->doubles[i - 1], first);
    }
    h = pl_silu(m->g, norm(d, h, "decoder.head.0"));
    return causal(d, h, "decoder.head.2", 3, 3, 3);
}

pl_val wan_decode(pl_nn *m, const wan_vae *c, pl_val z)
{
    decoder d = {.m = m, .c = c};
    pl_val part[WAN_VAE_FRAMES];
    int64_t n = frames(m->g, z);
    if (n < 1 || n > WAN_VAE_FRAMES)
        return pl_nn_fail(m, PL_ERR_SHAPE, "a latent of %lld frames; 1 to %d can be decoded",
                          (long long)n, WAN_VAE_FRAMES);
    for (int64_t i = 0; i < n; i++)
        part[i] = decode_next(&d, pl_slice(m->g, z, 1, i, i + 1, 1), i == 0);
    pl_val x = n == 1 ? part[0] : pl_concat(m->g, (int)n, part, 1);
    return pl_clamp(m->g, x, -1, 1);
}

/* ---- sizes --------------------------------------------------------------------------------- */
bool wan_vae_of(const pl_config *c, pl_nn *m, wan_vae *v)
{
    int levels, means, deviations;
    const int64_t *mult = pl_config_ints(c, "vae.mult", &levels);
    *v = (wan_vae){.width = pl_config_int(c, "vae.width"),
                   .channels = pl_config_int(c, "teacher.channels"),
                   .blocks = (int)pl_config_int(c, "vae.blocks"),
                   .mean = pl_config_floats(c, "vae.mean", &means),
                   .deviation = pl_config_floats(c, "vae.std", &deviations),
                   .levels = levels};
    if (levels < 1 || levels > WAN_VAE_LEVELS)
        pl_nn_fail(m, PL_ERR_CONFIG, "vae.mult has %d numbers; 1 to %d are possible", levels,
                   WAN_VAE_LEVELS);
    else if (means != v->channels || deviations != v->channels)
        pl_nn_fail(m, PL_ERR_CONFIG,
                   "vae.mean and vae.std have %d and %d numbers; a latent has %lld channels "
                   "(teacher.channels)",
                   means, deviations, (long long)v->channels);
    else {
        for (int i = 0; i < levels; i++) {
            v->mult[i] = mult[i];
            v->doubles[i] = i > 0; /* Wan's: all but the finest */
            if (i && v->mult[i] * v->width % 2)
                return pl_nn_fail(m, PL_ERR_CONFIG,
                                  "vae.width x vae.mult[%d] is %lld and must be even: enlarging "
                                  "halves the channels",
                                  i, (long long)(v->mult[i] * v->width)),
                       false;
        }
        return true;
    }
    return false;
}

/* ---- published names ----------------------------------------------------------------------- */
static const pl_rename native[] = {
    {"conv2.*", "vae.conv2.*"},
    {"decoder.**", "vae.decoder.**"},
    {NULL, NULL},
};

/* diffusers counts blocks within a level, Wan all of them in a row. */
static bool diffusers_name(const pl_config *c, const char *ours, const pl_type *type,
                           pl_published *to)
{
    static const char *const parts[][2] = {
        {"vae.conv2.", "post_quant_conv."},
        {"vae.decoder.conv1.", "decoder.conv_in."},
        {"vae.decoder.middle.0.", "decoder.mid_block.resnets.0."},
        {"vae.decoder.middle.1.", "decoder.mid_block.attentions.0."},
        {"vae.decoder.middle.2.", "decoder.mid_block.resnets.1."},
        {"vae.decoder.head.0.", "decoder.norm_out."},
        {"vae.decoder.head.2.", "decoder.conv_out."},
    };
    static const char *const inner[][2] = {
        {"residual.0.", "norm1."}, {"residual.2.", "conv1."},       {"residual.3.", "norm2."},
        {"residual.6.", "conv2."}, {"shortcut.", "conv_shortcut."}, {"", ""}};
    char head[PL_TENSOR_NAME / 2];
    const char *rest = NULL;
    int n = 0, k, per = (int)pl_config_int(c, "vae.blocks") + 2; /* a level, with its resampling */
    (void)type;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !rest; i++)
        if (strncmp(ours, parts[i][0], strlen(parts[i][0])) == 0) {
            snprintf(head, sizeof head, "%s", parts[i][1]);
            rest = ours + strlen(parts[i][0]);
        }
    if (!rest && sscanf(ours, "vae.decoder.upsamples.%d.%n", &k, &n) == 1 && n) {
        bool resample = k % per == per - 1;
        snprintf(head, sizeof head, "decoder.up_blocks.%d.%s.%d.", k / per,
                 resample ? "upsamplers" : "resnets", resample ? 0 : k % per);
        rest = ours + n;
    }
    if (!rest) return false;
    for (int i = 0;; i++)
        if (strncmp(rest, inner[i][0], strlen(inner[i][0])) == 0) {
            snprintf(to->name, sizeof to->name, "%s%s%s", head, inner[i][1],
                     rest + strlen(inner[i][0]));
            return true;
        }
}

/* A picture needs no convolution that doubles frames, and nothing of the encoder. */
const pl_naming wan_vae_namings[] = {
    {.name = "native Wan", .rules = native, .ignored = "encoder.*,conv1.*,*.time_conv.*"},
    {.name = "diffusers", .map = diffusers_name, .ignored = "encoder.*,quant_conv.*,*.time_conv.*"},
    {.name = NULL},
};
