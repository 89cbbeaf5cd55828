/* prompts.c - generated text embeddings, in the shape of the encoder's (L,text_dim).
 *
 * A sample is a pure function of its number: a prompt of a few words of a small vocabulary, each word a
 * fixed random direction, zeros after the last word as the encoder pads. The text encoder itself is never
 * loaded: embeddings of real prompts are computed once and read with data.path (train/text.npy).
 */
#include "wandistill.h"

#include <stdlib.h>

enum { WORDS = 512 };

typedef struct prompts {
    int64_t samples, eval_samples, tokens, width;
} prompts;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static double unit(uint64_t x)
{
    return (double)(mix(x * 0x9E3779B97F4A7C15u + 1) >> 11) * 0x1p-53;
}

pl_status wan_data_open(const pl_config *c, void **data)
{
    prompts *p = calloc(1, sizeof *p);
    if (!p) return PL_ERR_MEMORY;
    *p = (prompts){.samples = pl_config_int(c, "data.samples"),
                   .eval_samples = pl_config_int(c, "data.eval_samples"),
                   .tokens = pl_config_int(c, "text.tokens"),
                   .width = pl_config_int(c, "text.dim")};
    *data = p;
    return PL_OK;
}

void wan_data_close(void *data)
{
    free(data);
}

int64_t wan_data_size(void *data, pl_subset subset)
{
    const prompts *p = data;
    return subset == PL_SUBSET_TRAIN ? p->samples : p->eval_samples;
}

/* Unit variance. */
static void embed(const prompts *p, uint64_t seed, float *out)
{
    int64_t words = 1 + (int64_t)(unit(seed) * (double)p->tokens);
    for (int64_t i = 0; i < p->tokens; i++) {
        uint64_t word = (uint64_t)(unit(seed + 1 + (uint64_t)i) * WORDS) * 0x100000000u;
        for (int64_t k = 0; k < p->width; k++)
            *out++ = i < words ? (float)(3.4641016 * (unit(word + (uint64_t)k) - 0.5)) : 0;
    }
}

/* Noise of an evaluation, the same every time; training draws its own. */
static void noise(uint64_t seed, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < 4; k++) sum += unit(seed + 4 * (uint64_t)i + k) - 0.5;
        out[i] = (float)(sum * 1.7320508);
    }
}

pl_status wan_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                        pl_batch *batch)
{
    const prompts *p = data;
    pl_type type = {0};
    float *text = pl_batch_input(batch, "text", NULL);
    float *latents = pl_batch_input(batch, "latents", &type);
    int64_t *t = pl_batch_input(batch, "t", NULL);
    int64_t size = latents ? type.dim[1] * type.dim[2] * type.dim[3] : 0;
    for (int i = 0; i < n; i++) {
        uint64_t world = subset == PL_SUBSET_TRAIN ? 0x3A70000000000000u : 0xE7A1000000000000u;
        uint64_t seed = mix(world + (uint64_t)sample[i]);
        if (text) embed(p, seed, text + i * p->tokens * p->width);
        if (latents) noise(seed + 7, size, latents + i * size);
        if (t) t[i] = (int64_t)(unit(seed + 3) * 1000);
    }
    return PL_OK;
}
