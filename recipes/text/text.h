/* text.h - what the files of the text recipe share. */
#ifndef RECIPES_TEXT_H
#define RECIPES_TEXT_H

#include <plimsoll_recipe.h>
#include <plimsoll_tokens.h>

/* Sizes of the network. */
typedef struct text_sizes {
    int64_t context, width, heads, layers, vocabulary;
    double dropout;
    uint64_t tokens; /* a hash of all tokens, in their order; 0: numbers without a vocabulary */
} text_sizes;

/* Reads the sizes from the configuration; the vocabulary's from its file, or model.vocabulary. */
pl_status text_sizes_of(const pl_config *c, text_sizes *s);
/* The vocabulary of data.vocabulary, or bytes. The caller closes it. */
pl_status text_tokens_open(const pl_config *c, pl_tokens **out);
/* Adds the vocabulary to the model file. */
void text_state_facts(pl_builder *b, const text_sizes *s);
/* model.c: tokens [B,T] to logits [B,T,V]; which: numbers [B] of the positions to compute logits
 * for, then [B,V]; PL_NO_VAL: all positions. */
pl_val text_model(pl_nn *m, const text_sizes *s, pl_val tokens, pl_val which);

/* data.c */
pl_status text_data_open(const pl_config *c, void **data);
void text_data_close(void *data);
int64_t text_data_size(void *data, pl_subset subset);
pl_status text_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                         pl_batch *batch);
uint64_t text_data_bytes(const pl_config *c);

/* predict.c */
extern const pl_predict text_predict;

/* presets.c */
extern const pl_preset text_presets[];
extern const pl_source_file text_sources[];

#endif
