/* predict.c - generates text: token by token, each drawn from the distribution that the network
 * gives after all tokens so far (at most `context` of them).
 *
 * Token k is drawn with number k of the seed, so the same seed, model and prompt give the same
 * text. Each token costs one forward pass over the context.
 */
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pl_status build(pl_builder *b)
{
    text_sizes s;
    pl_status rc = text_sizes_of(pl_builder_config(b), &s);
    if (rc != PL_OK) return rc;
    text_state_facts(b, &s);
    pl_nn *m = pl_builder_predict(b, NULL);
    pl_val tokens = pl_input(m->g, "tokens", PL_TYPE(PL_I32, 1, s.context));
    pl_val last = pl_input(m->g, "last", PL_TYPE(PL_I32, 1));
    pl_output(m->g, "logits", text_model(m, &s, tokens, last));
    return PL_OK;
}

/* A token and its logit, for sorting. */
typedef struct choice {
    float logit;
    int32_t token;
} choice;

static int by_logit(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

/* Draws a token; u in [0,1). list: room for n choices. */
static int32_t draw(const float *logits, int64_t n, double temperature, int64_t top, double u,
                    choice *list)
{
    for (int64_t i = 0; i < n; i++) list[i] = (choice){logits[i], (int32_t)i};
    qsort(list, (size_t)n, sizeof *list, by_logit);
    if (temperature <= 0) return list[0].token;
    if (top > 0 && top < n) n = top;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(((double)list[i].logit - (double)list[0].logit) / temperature);
    double want = u * sum;
    for (int64_t i = 0; i < n; i++) {
        want -= exp(((double)list[i].logit - (double)list[0].logit) / temperature);
        if (want < 0) return list[i].token;
    }
    return list[n - 1].token;
}

typedef struct writer {
    pl_prediction *p;
    pl_tokens *t;
    int32_t *all; /* tokens so far */
    int64_t n;
    choice *list;
} writer;

/* Fills the network's input with the last tokens and runs it. */
static pl_status next_logits(writer *w, const float **logits, int64_t *vocabulary)
{
    pl_type type;
    int32_t *tokens = pl_predict_set(w->p, NULL, "tokens", &type);
    int32_t *last = pl_predict_set(w->p, NULL, "last", NULL);
    int64_t context = type.dim[1], from = w->n > context ? w->n - context : 0;
    memset(tokens, 0, (size_t)context * sizeof *tokens);
    memcpy(tokens, w->all + from, (size_t)(w->n - from) * sizeof *tokens);
    last[0] = (int32_t)(w->n - from - 1);
    pl_status rc = pl_predict_run(w->p, NULL);
    if (rc != PL_OK) return rc;
    *logits = pl_predict_get(w->p, NULL, "logits", &type);
    *vocabulary = type.dim[1] < pl_tokens_count(w->t) ? type.dim[1] : pl_tokens_count(w->t);
    for (int64_t i = 0; i < *vocabulary; i++)
        if (!isfinite((*logits)[i]))
            return pl_fail(PL_ERR_NUMERIC, "the network's outputs are not finite: its weights are "
                                           "damaged, or its training diverged");
    return PL_OK;
}

static pl_status generate(writer *w)
{
    const pl_config *c = pl_predict_config(w->p);
    int64_t wanted = pl_config_int(c, "predict.tokens");
    uint64_t seed = pl_sample_seed(0x7E47 + (uint64_t)pl_config_int(c, "seed"), PL_SUBSET_TRAIN, 0);
    for (int64_t k = 0; k < wanted; k++) {
        const float *logits;
        int64_t vocabulary;
        pl_status rc = next_logits(w, &logits, &vocabulary);
        if (rc != PL_OK) return rc;
        int32_t token =
            draw(logits, vocabulary, pl_config_float(c, "predict.temperature"),
                 pl_config_int(c, "predict.top_k"), pl_sample_uniform(seed, (uint64_t)k), w->list);
        size_t n;
        const char *text = pl_tokens_text(w->t, token, &n);
        w->all[w->n++] = token;
        rc = pl_predict_write(w->p, NULL, text, n);
        if (rc == PL_OK) rc = pl_predict_progress(w->p, k + 1, wanted);
        if (rc != PL_OK) return rc;
    }
    return pl_predict_write(w->p, NULL, "\n", 1);
}

static pl_status run(pl_prediction *p)
{
    const pl_config *c = pl_predict_config(p);
    const char *prompt = pl_predict_prompt(p);
    bool given = prompt && prompt[0];
    const char *begin = given ? prompt : "\n";
    size_t n = strlen(begin);
    writer w = {.p = p};
    if (!pl_config_is_null(c, "data.tokens") && pl_config_is_null(c, "data.vocabulary"))
        return pl_fail(PL_ERR_CONFIG, "the network was trained on token numbers: set "
                                      "data.vocabulary to write text");
    pl_status rc = text_tokens_open(c, &w.t);
    if (rc != PL_OK) return rc;
    w.all = calloc(n + (size_t)pl_config_int(c, "predict.tokens") + 1, sizeof *w.all);
    w.list = calloc((size_t)pl_tokens_count(w.t), sizeof *w.list);
    if (!w.all || !w.list) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl_tokens_encode(w.t, begin, n, w.all, &w.n);
    if (rc == PL_OK && given) rc = pl_predict_write(p, NULL, prompt, n);
    if (rc == PL_OK) rc = generate(&w);
    free(w.all);
    free(w.list);
    pl_tokens_close(w.t);
    return rc;
}

static uint64_t bytes(const pl_config *c)
{
    return (uint64_t)pl_config_int(c, "predict.tokens") * sizeof(int32_t) +
           (pl_config_is_null(c, "data.vocabulary") ? 1 << 20 : (uint64_t)64 << 20);
}

const pl_predict text_predict = {
    .out = "a text file",
    .build = build,
    .run = run,
    .bytes = bytes,
    .takes_prompt = true,
};
