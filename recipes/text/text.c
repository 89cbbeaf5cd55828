/* text.c - the next token of a text: a small GPT over a text file of the user.
 *
 * A sample is a stretch of context + 1 tokens; the network predicts each token from those before
 * it. Tokens are bytes, or those of a vocabulary file (plimsoll_tokens.h). The network is in
 * model.c, the text in data.c, generating in predict.c.
 */
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const pl_config_entry schema[] = {
    {"context", PL_CONFIG_INT, "256", .min = 2, .max = 65536,
     .doc = "Tokens that the network sees at once."},
    {"model.layers", PL_CONFIG_INT, "6", .min = 1, .max = 256, .doc = "Transformer layers."},
    {"model.heads", PL_CONFIG_INT, "6", .min = 1, .max = 256,
     .doc = "Attention heads; model.width must be a multiple of this number."},
    {"model.width", PL_CONFIG_INT, "384", .min = 2, .max = 65536,
     .doc = "Numbers per token inside the network."},
    {"model.dropout", PL_CONFIG_FLOAT, "0", .min = 0, .max = 0.99, .doc = "Dropout probability."},
    {"data.text", PL_CONFIG_TEXT, "null",
     .doc = "Text file to train on; null: generated sentences."},
    {"model.vocabulary", PL_CONFIG_INT, "0", .min = 0, .max = 16777216,
     .doc =
         "Number of tokens of the network: for data.tokens without data.vocabulary, or more than "
         "the vocabulary has; 0: as many as the vocabulary."},
    {"data.tokens", PL_CONFIG_TEXT, "null",
     .doc = "File of token numbers to train on instead of a text: raw, or with llm.c's header."},
    {"data.token_bytes", PL_CONFIG_INT, "2", .min = 2, .max = 4,
     .doc = "Bytes of a number in data.tokens without a header: 2 or 4."},
    {"data.vocabulary", PL_CONFIG_TEXT, "null",
     .doc = "Byte-level BPE: a folder with vocab.json and merges.txt, or a tokenizer.json; null: "
            "tokens are bytes."},
    {"data.samples", PL_CONFIG_INT, "65536", .min = 1, .max = 1e9,
     .doc = "Generated text: number of sentences."},
    {"predict.tokens", PL_CONFIG_INT, "200", .min = 1, .max = 1e9, .resume = PL_RESUME_FREE,
     .doc = "plimsoll predict: tokens to generate after the prompt."},
    {"predict.temperature", PL_CONFIG_FLOAT, "0.8", .min = 0, .max = 100, .resume = PL_RESUME_FREE,
     .doc = "plimsoll predict: below 1 prefers likely tokens; 0 always takes the likeliest."},
    {"predict.top_k", PL_CONFIG_INT, "0", .min = 0, .max = 1e9, .resume = PL_RESUME_FREE,
     .doc = "plimsoll predict: draw from this many of the likeliest tokens; 0: from all."},
    {0},
};

pl_status text_tokens_open(const pl_config *c, pl_tokens **out)
{
    bool bytes = pl_config_is_null(c, "data.vocabulary");
    pl_status rc = pl_tokens_open(bytes ? NULL : pl_config_text(c, "data.vocabulary"), out);
    if (rc == PL_OK || bytes) return rc;
    char text[512];
    snprintf(text, sizeof text, "%s", pl_error_text());
    return pl_fail(rc, "data.vocabulary: %s", text);
}

/* FNV-1a over the tokens and their lengths. */
static uint64_t hash_of(const pl_tokens *t)
{
    uint64_t h = 14695981039346656037u;
    for (int32_t i = 0; i < pl_tokens_count(t); i++) {
        size_t n;
        const char *text = pl_tokens_text(t, i, &n);
        for (size_t k = 0; k < n; k++) h = (h ^ (uint8_t)text[k]) * 1099511628211u;
        h = (h ^ n) * 1099511628211u;
    }
    return h;
}

void text_state_facts(pl_builder *b, const text_sizes *s)
{
    char text[64];
    snprintf(text, sizeof text, "%lld, hash %016llx", (long long)s->vocabulary,
             (unsigned long long)s->tokens);
    pl_builder_fact(b, "tokens", text);
}

/* The number of tokens: of the vocabulary, or model.vocabulary where it is larger or alone. */
static pl_status count_tokens(const pl_config *c, text_sizes *s)
{
    int64_t wanted = pl_config_int(c, "model.vocabulary");
    bool numbers = !pl_config_is_null(c, "data.tokens"), named;
    named = !pl_config_is_null(c, "data.vocabulary");
    if (pl_config_int(c, "data.token_bytes") == 3)
        return pl_fail(PL_ERR_CONFIG, "data.token_bytes is 3; needs 2 or 4");
    if (numbers && !pl_config_is_null(c, "data.text"))
        return pl_fail(PL_ERR_CONFIG, "data.tokens and data.text are both set; remove one");
    if (wanted > 0 && !named && numbers) {
        s->vocabulary = wanted;
        return PL_OK;
    }
    if (numbers && !named)
        return pl_fail(PL_ERR_CONFIG,
                       "data.tokens needs the number of tokens: set data.vocabulary, "
                       "or model.vocabulary, e.g. model.vocabulary=50257");
    pl_tokens *t;
    pl_status rc = text_tokens_open(c, &t);
    if (rc != PL_OK) return rc;
    s->vocabulary = pl_tokens_count(t);
    s->tokens = hash_of(t);
    pl_tokens_close(t);
    if (wanted > 0 && wanted < s->vocabulary)
        return pl_fail(PL_ERR_CONFIG,
                       "model.vocabulary is %lld, but the vocabulary has %lld tokens",
                       (long long)wanted, (long long)s->vocabulary);
    if (wanted > 0) s->vocabulary = wanted;
    return PL_OK;
}

pl_status text_sizes_of(const pl_config *c, text_sizes *s)
{
    *s = (text_sizes){.context = pl_config_int(c, "context"),
                      .width = pl_config_int(c, "model.width"),
                      .heads = pl_config_int(c, "model.heads"),
                      .layers = pl_config_int(c, "model.layers"),
                      .dropout = pl_config_float(c, "model.dropout")};
    pl_status rc = count_tokens(c, s);
    if (rc != PL_OK) return rc;
    if (s->width % s->heads)
        return pl_fail(PL_ERR_CONFIG, "model.width (%lld) is not a multiple of model.heads (%lld)",
                       (long long)s->width, (long long)s->heads);
    return PL_OK;
}

/* Logits of all positions, and the tokens that come next. */
static pl_val predict(pl_builder *b, pl_nn *m, const text_sizes *s, pl_val *next)
{
    pl_val all = pl_input(m->g, "tokens", PL_TYPE(PL_I32, pl_builder_batch(b), s->context + 1));
    *next = pl_slice(m->g, all, 1, 1, s->context + 1, 1);
    return text_model(m, s, pl_slice(m->g, all, 1, 0, s->context, 1), PL_NO_VAL);
}

static pl_status build(pl_builder *b)
{
    text_sizes s;
    pl_val next;
    pl_status rc = text_sizes_of(pl_builder_config(b), &s);
    if (rc != PL_OK) return rc;

    pl_nn *m = pl_builder_train(b);
    pl_val logits = predict(b, m, &s, &next);
    pl_builder_minimise(b, pl_loss_cross_entropy(m->g, logits, next));
    text_state_facts(b, &s);

    m = pl_builder_eval(b);
    logits = predict(b, m, &s, &next);
    pl_val right = pl_cast(m->g, pl_eq(m->g, pl_argmax(m->g, logits, 2), next), PL_F32);
    pl_output(m->g, "loss", pl_loss_cross_entropy(m->g, logits, next));
    pl_output(m->g, "accuracy", pl_mean(m->g, right, PL_AXES_ALL, false));
    return PL_OK;
}

/* Perplexity, and the mean number of bits that a token takes. */
static int derive(const char *const *name, const double *mean, int n, const char **new_name,
                  double *new_value, int cap)
{
    int i = 0;
    while (i < n && strcmp(name[i], "loss") != 0) i++;
    if (i == n || cap < 2) return 0;
    new_name[0] = "perplexity";
    new_value[0] = exp(mean[i]);
    new_name[1] = "bits";
    new_value[1] = mean[i] / log(2);
    return 2;
}

/* Files of the transformers library keep masks of attention beside the weights; its language models
 * put a prefix before the names. */
static const pl_rename with_prefix[] = {{"**", "**"}, {NULL, NULL}};
static const pl_naming namings[] = {
    {.name = "GPT-2", .ignored = "h.*.attn.bias,h.*.attn.masked_bias,lm_head.weight"},
    {.name = "GPT2LMHeadModel",
     .prefix = "transformer.",
     .rules = with_prefix,
     .ignored = "*.attn.bias,*.attn.masked_bias,lm_head.weight"},
    {.name = NULL},
};
static const pl_start start = {.naming = namings};

const pl_recipe pl_recipe_text;
const pl_recipe pl_recipe_text = {
    .abi = PL_RECIPE_ABI,
    .name = "text",
    .about = "the next token of a text: a small GPT that learns your own text file and continues "
             "a prompt",
    .schema = schema,
    .presets = text_presets,
    .build = build,
    .data_open = text_data_open,
    .data_close = text_data_close,
    .data_size = text_data_size,
    .data_read = text_data_read,
    .data_bytes = text_data_bytes,
    .derive = derive,
    .metric = "loss",
    .predict = &text_predict,
    .start = &start,
    .sources = text_sources,
};
