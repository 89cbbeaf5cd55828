/* names.c - conventions of names: published checkpoints of Stable Diffusion, diffusers, and the
 * authors' whole checkpoint (Lightning). The U-Net's input convolution has a different number of
 * channels in the first two and is not read from them. */
#include "names.h"
#include "recipes/lpips.h"
#include "stablesr.h"

#include <plimsoll_tensors.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- U-Net ------------------------------------------------------------------------------ */
#define OWN_PARTS "*.spade.*,edge_processor.*,edge_fusion.*"
static const pl_naming unet_namings[] = {
    {.name = "diffusers", .map = sr_diffusers_unet, .ignored = "conv_in.*"},
    {.name = "published", .map = sr_published_unet, .ignored = "input_blocks.0.*," OWN_PARTS},
    {.name = "checkpoint",
     .prefix = SR_UNET,
     .map = sr_published_unet,
     .ignored = "*,!" SR_UNET "*," SR_UNET "input_blocks.0.*,*.spade.*," SR_UNET
                "edge_processor.*," SR_UNET "edge_fusion.*"},
    {.name = NULL},
};

/* ---- the authors' checkpoint ------------------------------------------------------------ */
enum { TIMES = 1000 };

/* The authors' program takes alphas_cumprod in f32 and recomputes all tables from it, in f32;
 * tables that use alphas_cumprod_prev in f64. */
bool sr_schedule(const pl_config *c, int i, char name[PL_TENSOR_NAME], pl_type *type, void *data)
{
    static const char *const names[] = {"betas",
                                        "alphas_cumprod",
                                        "alphas_cumprod_prev",
                                        "sqrt_alphas_cumprod",
                                        "sqrt_one_minus_alphas_cumprod",
                                        "log_one_minus_alphas_cumprod",
                                        "sqrt_recip_alphas_cumprod",
                                        "sqrt_recipm1_alphas_cumprod",
                                        "posterior_variance",
                                        "posterior_log_variance_clipped",
                                        "posterior_mean_coef1",
                                        "posterior_mean_coef2"};
    const double lo = sqrt(0.00085), hi = sqrt(0.012), step = (hi - lo) / (TIMES - 1);
    float *out = data, given = 1, left = 1; /* alphas_cumprod as given, and recomputed */
    double exact = 1;
    (void)c;
    if (i < 0 || i >= (int)(sizeof names / sizeof *names)) return false;
    snprintf(name, PL_TENSOR_NAME, "%s", names[i]);
    *type = PL_TYPE(PL_F32, TIMES);
    for (int t = 0; out && t < TIMES; t++) {
        double root = t < TIMES / 2 ? lo + step * t : hi - step * (TIMES - 1 - t);
        float last = given, before = left;
        exact *= 1 - root * root;
        given = (float)exact;
        float beta = 1 - given / last, alpha = 1 - beta;
        left *= alpha;
        double beyond = 1 - (double)before, rest = (double)(1 - left);
        double variance = (double)beta * beyond / rest;
        const double value[] = {(double)beta,
                                (double)left,
                                (double)before,
                                (double)sqrtf(left),
                                (double)sqrtf(1 - left),
                                log(rest),
                                (double)sqrtf(1 / left),
                                (double)sqrtf(1 / left - 1),
                                variance,
                                log(fmax(variance, 1e-20)),
                                (double)beta * sqrt((double)before) / rest,
                                beyond * (double)sqrtf(alpha) / rest};
        out[t] = (float)value[i];
    }
    return true;
}

static const char *const order[] = {"betas,alphas_*,sqrt_*,log_*,posterior_*",
                                    SR_UNET "time_embed.*",
                                    SR_UNET "input_blocks.*",
                                    SR_UNET "middle_block.*",
                                    SR_UNET "output_blocks.*",
                                    SR_UNET "out.*",
                                    SR_UNET "edge_processor.*",
                                    SR_UNET "edge_fusion.*",
                                    SR_VAE "*",
                                    SR_STRUCT "time_embed.*",
                                    SR_STRUCT "input_blocks.*",
                                    SR_STRUCT "middle_block.*",
                                    SR_STRUCT "*",
                                    NULL};
static const char *const siblings[] = {
    "in_layers,emb_layers,spade,out_layers,skip_connection",
    "param_free_norm,mlp_shared,mlp_gamma,mlp_beta",
    "attn1,ff,attn2,norm1,norm2,norm3",
    NULL,
};
static const pl_naming authors[] = {
    {.name = "authors",
     .map = sr_authors_name,
     .constant = sr_schedule,
     .order = order,
     .siblings = siblings,
     .step = "global_step",
     /* the autoencoder where latents are read, and what training has no use for */
     .ignored = "cond_stage_model.*,model_ema.*,logvar," SR_VAE "*"},
    {.name = NULL},
};

/* A checkpoint has no text encoder: the context of the empty prompt comes from context_from. */
const pl_start sr_start = {.naming = authors, .missing = "context"};

/* ---- where they come from --------------------------------------------------------------- */
static const pl_rename context_names[] = {{"context", "context"}, {NULL, NULL}};
static const pl_naming context_naming[] = {{.name = "plain", .rules = context_names},
                                           {.name = NULL}};

const pl_weights sr_weights[] = {
    {"unet_from", "unet.*,!*.spade.*,!unet.inp.*", unet_namings},
    {"vae.weights", "vae.*", vae_namings},
    {"context_from", "context", context_naming},
    {"lpips.weights", LPIPS_SLOTS, lpips_namings},
    {NULL, NULL, NULL},
};

/* A file that cannot be read has none: reading its weights reports the reason. */
static bool has_fusion(const char *path)
{
    pl_tensors *t;
    bool found = false;
    if (pl_tensors_open(path, &t) != PL_OK) return false;
    for (int i = 0; i < pl_tensors_count(t) && !found; i++)
        found = strstr(pl_tensors_at(t, i).name, "decoder.fusion_layer_") != NULL;
    pl_tensors_close(t);
    return found;
}

double sr_fusion_of(const pl_config *c)
{
    const char *fusion = pl_config_text(c, "vae.fusion");
    bool on = strcmp(fusion, "true") == 0;
    if (strcmp(fusion, "auto") == 0 && !pl_config_is_null(c, "vae.weights"))
        on = has_fusion(pl_config_text(c, "vae.weights"));
    return on ? pl_config_float(c, "vae.dec_w") : 0;
}

/* ---- exports ---------------------------------------------------------------------------- */
static const pl_export_entry entries[] = {{"epoch", "0"},
                                          {"global_step", "step"},
                                          {"pytorch-lightning_version", "\"1.4.2\""},
                                          {NULL, NULL}};
static const pl_export_file authors_files[] = {
    {.name = "epoch=000000.ckpt",
     .slots = "unet.*,edge.*,fusion.*,struct.*,vae.*",
     .naming = authors,
     .under = "state_dict",
     .entries = entries},
    {.name = NULL},
};

/* Appends like snprintf. */
static int add(char *to, size_t cap, int at, const char *fmt, ...) PL_PRINTF(4, 5);

static int add(char *to, size_t cap, int at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n =
        vsnprintf(at < (int)cap ? to + at : NULL, at < (int)cap ? cap - (size_t)at : 0, fmt, args);
    va_end(args);
    return at + n;
}

/* The sizes for UNet2DConditionModel. Its attention_head_dim is the number of heads. */
static int unet_config(const pl_config *c, char *to, size_t cap)
{
    int levels, context, n, from = (int)pl_config_int(c, "model.attn_from"),
                            below = (int)pl_config_int(c, "model.attn_levels");
    const int64_t *mult = pl_config_ints(c, "model.mult", &levels),
                  *text = pl_config_ints(c, "model.context", &context);
    int64_t width = pl_config_int(c, "model.width"), head = pl_config_int(c, "model.head_dim");
    n = add(to, cap, 0, "{\n  \"_class_name\": \"UNet2DConditionModel\",\n");
    n = add(to, cap, n, "  \"in_channels\": 8,\n  \"out_channels\": 4,\n");
    n = add(to, cap, n, "  \"sample_size\": %lld,\n", (long long)pl_config_int(c, "latent"));
    n = add(to, cap, n, "  \"layers_per_block\": %lld,\n",
            (long long)pl_config_int(c, "model.blocks"));
    n = add(to, cap, n, "  \"transformer_layers_per_block\": %lld,\n",
            (long long)pl_config_int(c, "model.depth"));
    n = add(to, cap, n, "  \"cross_attention_dim\": %lld,\n", (long long)text[context - 1]);
    n = add(to, cap, n, "  \"norm_num_groups\": %lld,\n",
            (long long)pl_config_int(c, "model.groups"));
    n = add(to, cap, n, "  \"use_linear_projection\": true,\n  \"block_out_channels\": [");
    for (int i = 0; i < levels; i++)
        n = add(to, cap, n, "%s%lld", i ? ", " : "", (long long)(mult[i] * width));
    n = add(to, cap, n, "],\n  \"attention_head_dim\": [");
    for (int i = 0; i < levels; i++)
        n = add(to, cap, n, "%s%lld", i ? ", " : "", (long long)(mult[i] * width / head));
    n = add(to, cap, n, "],\n  \"down_block_types\": [");
    for (int i = 0; i < levels; i++)
        n = add(to, cap, n, "%s\"%sDownBlock2D\"", i ? ", " : "",
                i >= from && i < below ? "CrossAttn" : "");
    n = add(to, cap, n, "],\n  \"up_block_types\": [");
    for (int i = levels - 1; i >= 0; i--)
        n = add(to, cap, n, "\"%sUpBlock2D\"%s", i >= from && i < below ? "CrossAttn" : "",
                i ? ", " : "");
    return add(to, cap, n, "]\n}\n");
}

static const pl_export_file diffusers_files[] = {
    {.name = "unet/diffusion_pytorch_model.safetensors",
     .slots = "unet.*,!*.spade.*",
     .naming = &unet_namings[0]},
    {.name = "unet/config.json", .text = unet_config},
    {.name = NULL},
};
const pl_export sr_exports[] = {
    {"authors", "a Lightning checkpoint of StableSR's main.py", authors_files},
    {"diffusers", "a folder with the U-Net without SPADE, for UNet2DConditionModel",
     diffusers_files},
    {NULL, NULL, NULL},
};
