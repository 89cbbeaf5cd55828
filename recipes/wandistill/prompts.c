/* prompts.c - generated text embeddings, in the shape of the encoder's (L,text_dim).
 *
 * A sample is a pure function of its number: a prompt of a few words of a small vocabulary, each
 * word a fixed random direction, zeros after the last word as the encoder pads. The text encoder
 * itself is never loaded: embeddings of real prompts are computed once and read from a file.
 */
#include "wandistill.h"

#include <stdio.h>

enum { WORDS = 512 };
#define WORLD 0x3A70000000000000u

/* Return the number of words of a prompt, and the i-th word. */
static int64_t length_of(uint64_t seed, int64_t tokens)
{
    return 1 + (int64_t)(pl_sample_uniform(seed, 0) * (double)tokens);
}

static uint64_t word_of(uint64_t seed, int64_t i)
{
    return (uint64_t)(pl_sample_uniform(seed, 1 + (uint64_t)i) * WORDS);
}

/* Embeds with unit variance. */
static void embed(uint64_t seed, int64_t tokens, int64_t width, float *out)
{
    int64_t words = length_of(seed, tokens);
    for (int64_t i = 0; i < tokens; i++) {
        uint64_t word = word_of(seed, i) << 32;
        for (int64_t k = 0; k < width; k++)
            *out++ =
                i < words ? (float)(3.4641016 * (pl_sample_uniform(word, (uint64_t)k) - 0.5)) : 0;
    }
}

pl_status wan_draw(const pl_config *c, pl_subset subset, int64_t sample, int w, int h, uint8_t *rgb,
                   char *caption, size_t cap)
{
    (void)w, (void)h, (void)rgb;
    uint64_t seed = pl_sample_seed(WORLD, subset, sample);
    int64_t words = length_of(seed, pl_config_int(c, "text.tokens"));
    size_t at = 0;
    for (int64_t i = 0; i < words && at + 16 < cap; i++)
        at +=
            (size_t)snprintf(caption + at, cap - at, "%sw%d", i ? " " : "", (int)word_of(seed, i));
    return PL_OK;
}

pl_status wan_data_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch)
{
    (void)data;
    pl_type words = {0}, type = {0};
    float *text = pl_batch_input(batch, "text", &words);
    /* Noise of an evaluation, the same every time; training draws its own. */
    float *latents = pl_batch_input(batch, "latents", &type);
    int64_t *t = pl_batch_input(batch, "t", NULL);
    int64_t size = latents ? type.dim[1] * type.dim[2] * type.dim[3] : 0;
    for (int i = 0; i < n; i++) {
        uint64_t seed = pl_sample_seed(WORLD, subset, sample[i]);
        if (text) embed(seed, words.dim[1], words.dim[2], text + i * words.dim[1] * words.dim[2]);
        for (int64_t k = 0; k < size; k++)
            latents[i * size + k] = (float)pl_sample_normal(seed + 7, (uint64_t)k);
        if (t) t[i] = (int64_t)(pl_sample_uniform(seed, 1u << 20) * 1000);
    }
    return PL_OK;
}
