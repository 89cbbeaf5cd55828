/* encoders.h - the text encoders of `plimsoll embed`: umT5, DistilBERT, CLIP's text tower.
 *
 * An encoder is built from the tensors of its weight file: their names give the convention (and a
 * prefix), their shapes the sizes. Slots have the names of the file, so nothing is translated.
 */
#ifndef ENCODERS_H
#define ENCODERS_H

#include <plimsoll_recipe.h>
#include <plimsoll_tokens.h>

/* ---- the weight file (checkpoint.c) ------------------------------------------------------- */
typedef struct enc_tensor {
    char *name;
    pl_dtype dtype; /* stored: bf16, f16 or f32; every other type is read as f32 */
    int rank;
    int64_t dim[2]; /* tensors of more dimensions are not used */
} enc_tensor;
typedef struct enc_file {
    const char *path;
    enc_tensor *tensor; /* sorted by name */
    int n, cap;
    bool no_memory;
} enc_file;
pl_status enc_file_read(const char *path, enc_file *f) PL_MUST_USE;
void enc_file_release(enc_file *f);
const enc_tensor *enc_find(const enc_file *f, const char *name); /* NULL: none */
/* Finds a tensor whose name is a prefix and then `tail`; the prefix ends with a dot or is empty. A
 * prefix that ends with `but` does not count (NULL: all do). Writes the prefix. */
const enc_tensor *enc_find_tail(const enc_file *f, const char *tail, const char *but, char *prefix,
                                size_t cap);
/* Returns the number of layers: the first i for which the tensor of that name is missing. format
 * has one %d. */
int enc_layers(const enc_file *f, const char *prefix, const char *format);
/* Sets *text to a key of config.json beside the weights, or of its text_config; the caller frees it
 * with pl_text_free. NULL: no file, or no such key. */
pl_status enc_setting(const enc_file *f, const char *key, char **text) PL_MUST_USE;
pl_status enc_setting_number(const enc_file *f, const char *key, double *value) PL_MUST_USE;

/* ---- an encoder that is being built -------------------------------------------------------- */
typedef struct encoder {
    const enc_file *f;
    const pl_config *c;
    pl_nn *m;
    char prefix[192];
    int64_t batch, length, width, vocabulary;
    int64_t positions; /* most tokens of a text; 0: any number */
    int heads, layers;
    double eps;
    char activation[16]; /* a name of pl_nn_activation, or quick_gelu */
    pl_val ids, mask;    /* i32 and f32 [batch, length]; mask is 1 for tokens, 0 for padding */
} encoder;

/* Reads a weight of the file: name after the prefix; dimensions must be those given, -1: any. The
 * slot keeps the stored type, the value is f32. */
pl_val enc_weight(encoder *e, const char *name, int rank, int64_t rows, int64_t columns);
/* x [.., in] to [.., out] by NAME.weight [out, in] and, with bias, NAME.bias. out -1: any. */
pl_val enc_linear(encoder *e, pl_val x, const char *name, int64_t out, bool bias);
pl_val enc_layer_norm(encoder *e, pl_val x, const char *name, double eps);
pl_val enc_rms_norm(encoder *e, pl_val x, const char *name);
pl_val enc_activation(encoder *e, pl_val x);
/* softmax(q k^T * scale + bias + mask) v of [B,L,H*D]; bias [H,L,L] or PL_NO_VAL. Padding is not
 * attended to. */
pl_val enc_attend(encoder *e, pl_val q, pl_val k, pl_val v, double scale, pl_val bias);
/* Rows of a token table for the ids, as f32: [B,L,W]. */
pl_val enc_embed(encoder *e, const enc_tensor *table);
/* Writes a name of a layer: %d in the format becomes the layer, %c the letter. Returns buf. */
enum { ENC_NAME = 160 };
const char *enc_name(char buf[ENC_NAME], const char *format, int layer, char letter);
/* 0 for tokens, -1e30 for padding: [B,1,1,L]. */
pl_val enc_mask(encoder *e);

/* ---- the encoders -------------------------------------------------------------------------- */
typedef struct enc_kind {
    const char *name;
    pl_tokenizer_kind tokenizer;
    int64_t length; /* default of --length; at most the number of positions */
    /* Fills in sizes and settings from the file. */
    pl_status (*open)(encoder *e);
    /* ids to the result: [B,L,W], or [B,W]. */
    pl_val (*build)(encoder *e);
    bool buckets; /* has the input "buckets", which enc_umt5_buckets fills */
} enc_kind;
extern const enc_kind enc_umt5, enc_distilbert, enc_clip;

/* Writes the bucket of every pair of positions, [length, length]; see umt5.c. */
void enc_umt5_buckets(int64_t buckets, int64_t farthest, int64_t length, int32_t *to);
/* Both from the file, for enc_umt5_buckets. */
pl_status enc_umt5_distances(const enc_file *f, int64_t *buckets, int64_t *farthest) PL_MUST_USE;

#endif
