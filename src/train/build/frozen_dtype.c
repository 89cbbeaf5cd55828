/* frozen_dtype.c - which frozen weights are stored in fewer bits.
 *
 * Frozen is what no program trains or assigns. A rule is a form (all frozen weights), or a pattern
 * with a form (these weights, which must be frozen). Rules come from the recipe
 * (pl_builder_quantize) and from the key frozen.dtype, whose rules count more; of several patterns
 * that match, the first counts. Predictions train nothing, so patterns hold for all weights there,
 * and what optim.frozen froze in training is frozen. Vectors and small tensors are not quantized:
 * they are few bytes, and norms and biases need their accuracy.
 *
 * In an evaluation the programs of the step are built over a separate store (builder.c); that store
 * says what trains.
 */
#include "train/build/builder.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

#define KEY "frozen.dtype"
enum { LEAST = 4096, MAX_RULES = 16, MAX_NAME = 256 };

typedef struct rule {
    char pattern[MAX_NAME]; /* "": every frozen weight */
    pl_quant form;
} rule;

typedef struct rules {
    rule at[MAX_RULES];
    int n, used[MAX_RULES];
} rules;

void pl_builder_quantize(pl_builder *b, const char *pattern, pl_quant form)
{
    if (form == PL_QUANT_NONE) return;
    for (int i = 0; i < b->n_quants; i++) /* once for every program of the recipe */
        if (strcmp(b->quant[i].pattern, pattern) == 0) return;
    if (b->n_quants == PL_MAX_QUANTS) {
        pl_nn_fail(pl_builder_train(b), PL_ERR_UNSUPPORTED,
                   "a recipe quantizes at most %d patterns", PL_MAX_QUANTS);
        return;
    }
    b->quant[b->n_quants].pattern = pattern;
    b->quant[b->n_quants++].form = form;
}

/* ---- the key ---------------------------------------------------------------------------- */
static pl_status read_rule(const char *text, size_t n, rule *out)
{
    const char *equals = memchr(text, '=', n);
    size_t name = equals ? (size_t)(equals - text) : 0, skip = equals ? name + 1 : 0;
    char form[16];
    PL_FAIL_IF(name >= MAX_NAME, PL_ERR_CONFIG, KEY ": a pattern has at most %d characters",
               MAX_NAME - 1);
    snprintf(out->pattern, sizeof out->pattern, "%.*s", (int)name, text);
    snprintf(form, sizeof form, "%.*s", (int)(n - skip), text + skip);
    PL_FAIL_IF(n - skip >= sizeof form || !pl_quant_parse(form, &out->form), PL_ERR_CONFIG,
               KEY ": \"%.*s\" is not a form of storing weights: fp8, int8, nf4 or none, or "
                   "PATTERN=FORM, e.g. 'teacher.*=nf4'",
               (int)n, text);
    PL_FAIL_IF(equals && !name, PL_ERR_CONFIG, KEY ": \"%.*s\" has no pattern before the =", (int)n,
               text);
    return PL_OK;
}

/* The rules of the key, then those of the recipe. */
static pl_status list_rules(const pl_builder *b, rules *out)
{
    const char *text = pl_config_is_null(b->config, KEY) ? "" : pl_config_text(b->config, KEY);
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ","), lead = strspn(at, " ");
        PL_FAIL_IF(out->n == MAX_RULES - PL_MAX_QUANTS, PL_ERR_CONFIG, KEY ": at most %d rules",
                   MAX_RULES - PL_MAX_QUANTS);
        size_t end = n;
        while (end > lead && at[end - 1] == ' ') end--;
        PL_FAIL_IF(end <= lead, PL_ERR_CONFIG, KEY ": an empty rule");
        PL_TRY(read_rule(at + lead, end - lead, &out->at[out->n++]));
        at += n + (at[n] == ',');
    }
    for (int i = 0; i < b->n_quants; i++) {
        rule *to = &out->at[out->n++];
        snprintf(to->pattern, sizeof to->pattern, "%s", b->quant[i].pattern);
        to->form = b->quant[i].form;
    }
    return PL_OK;
}

/* The first pattern that matches; without one, the first rule for all. -1: none. */
static int rule_of(const rules *r, const char *name)
{
    int all = -1;
    for (int i = 0; i < r->n; i++) {
        if (r->at[i].pattern[0] && pl_nn_match(r->at[i].pattern, name)) return i;
        if (!r->at[i].pattern[0] && all < 0) all = i;
    }
    return all;
}

/* ---- the slots --------------------------------------------------------------------------- */
static bool graph_assigns(const pl_graph *g, int slot)
{
    for (uint32_t n = 1; g && n < g->n_nodes; n++)
        if (pl_node_slot(g, n) == slot && g->nodes[n].op->flags & PL_OP_EFFECT) return true;
    return false;
}

static bool is_assigned(const pl_builder *b, int slot)
{
    bool any = graph_assigns(b->eval.g, slot) || graph_assigns(b->sample.g, slot);
    for (int i = 0; i < b->n_step_programs && !any; i++)
        any = graph_assigns(b->step_programs[i].run.g, slot) ||
              graph_assigns(b->step_programs[i].apply.g, slot);
    return any;
}

/* Whether training freezes a weight by its name. A prediction has no optimizers, which would mark
 * its slots. */
static bool freezes(const pl_builder *b, const char *name)
{
    const char *key = "optim.frozen";
    return !pl_config_is_null(b->config, key) && pl_nn_match(pl_config_text(b->config, key), name);
}

static bool is_trained(const pl_builder *b, const pl_slot *s)
{
    if (b->goal == PL_GOAL_PREDICT && freezes(b, s->name)) return false;
    int other = b->aside ? pl_store_find(b->aside, s->name) : -1;
    return (other < 0 ? s : pl_store_slot(b->aside, other))->trainable;
}

static bool is_large(const pl_slot *s)
{
    return s->kind == PL_SLOT_PARAM && pl_dtype_is_float(s->type.dtype) && s->type.rank > 1 &&
           pl_type_elems(pl_slot_type(s)) >= LEAST;
}

/* Stores slot i as its rule says. */
static pl_status apply(pl_builder *b, rules *r, int i)
{
    const pl_slot *s = pl_store_slot(b->store, i);
    int k = s->kind == PL_SLOT_PARAM ? rule_of(r, s->name) : -1;
    if (k < 0) return PL_OK;
    bool trained = is_trained(b, s), named = r->at[k].pattern[0];
    PL_FAIL_IF(trained && named && r->at[k].form && b->goal != PL_GOAL_PREDICT, PL_ERR_CONFIG,
               KEY ": %s matches %s, which is trained; only frozen weights are quantized "
                   "(optim.frozen freezes weights)",
               r->at[k].pattern, s->name);
    if (trained && !named) return PL_OK;
    if (!s->shards && (!is_large(s) || is_assigned(b, i))) return PL_OK;
    r->used[k]++;
    PL_FAIL_IF(s->shards && r->at[k].form, PL_ERR_CONFIG,
               KEY ": %s is sharded across ranks, and sharded weights are not quantized; "
                   "shard=optimizer keeps weights whole",
               s->name);
    pl_store_set_quant(b->store, i, r->at[k].form);
    return PL_OK;
}

pl_status pl__frozen_dtype(pl_builder *b)
{
    rules r = {.n = 0};
    PL_TRY(list_rules(b, &r));
    for (int i = 0; i < pl_store_count(b->store) && r.n; i++) PL_TRY(apply(b, &r, i));
    for (int k = 0; k < r.n - b->n_quants; k++)
        PL_FAIL_IF(!r.used[k] && b->goal == PL_GOAL_TRAIN, PL_ERR_CONFIG,
                   KEY ": no frozen weight %s%s has %d or more elements in two or more dimensions; "
                       "plimsoll inspect CONFIG lists weights",
                   r.at[k].pattern[0] ? "like " : "of this network", r.at[k].pattern, LEAST);
    return PL_OK;
}
