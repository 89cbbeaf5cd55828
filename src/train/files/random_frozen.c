/* random_frozen.c - frozen networks that no file fills: a loss network, an autoencoder, a teacher
 * or a text encoder with random weights computes numbers that mean nothing, and no later step mends
 * them.
 *
 * Such numbers come from three places:
 * - A frozen slot whose initial value is random and which no file filled (pl__slot_read and
 *   own_values.c mark the slots that a file filled). The recipe's pl_weights rows say which key
 *   fills the slot; init_from fills a slot without a row, such as one that the user froze. Slots of
 *   pl_recipe.random are random by design. In predictions nothing trains: every weight counts.
 * - Captions without data.embeddings, where pl_image_feed.encode stands for the text encoder
 *   (random_text).
 * - A cache whose encoder had no weights.
 * A model file notes which of its tensors were random, so that they do not become known by being
 * saved: a run that reads such a tensor, by init_from, by a key of weights, from an earlier phase
 * or from a checkpoint, has a random one. Training on real data stops, evaluations and predictions
 * with such a model warn. With real data each of them stops the run. With generated data, and with
 * allow_random_frozen, the run continues, and pl_run_start_warning returns a warning.
 */
#include "base/str.h"
#include "base/sys.h"
#include "io/safetensors.h"
#include "rt/rt_int.h"
#include "train/data/cache.h"
#include "train/data/images/image_set.h"
#include "train/data/source.h"
#include "train/data/text_set.h"

#include <string.h>

enum { GROUPS = 16 };

/* The slots that one key fills. */
typedef struct group {
    /* first: name of the first slot, or, with n = 0, a text in its place */
    const char *key, *first;
    int n, noted; /* slots; those of them that the model file notes as random */
} group;

/* The key of a model file, which may fill any slot. */
static const char *model_key(const pl_run *r)
{
    return r->purpose.goal == PL_GOAL_ENCODE ? "data.cache_model" : "init_from";
}

/* Returns the key that fills a slot; NULL: none, the slot is random by design. Rows of keys
 * predict.* are for predictions alone. */
static const char *key_of(const pl_run *r, const char *slot)
{
    bool predicts = r->purpose.goal == PL_GOAL_PREDICT;
    if (r->recipe->random && pl_nn_match(r->recipe->random, slot)) return NULL;
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++)
        if ((predicts || strncmp(w->key, "predict.", 8) != 0) && pl_nn_match(w->slots, slot))
            return w->key;
    return model_key(r);
}

/* Returns the key of a slot that has, or before loading will keep, its random initial value; NULL:
 * the slot is another. frozen: by slot. */
static const char *random_key(const pl_run *r, const bool *frozen, int slot, bool loaded)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    bool predicts = r->purpose.goal == PL_GOAL_PREDICT && s->kind == PL_SLOT_PARAM;
    if (!(frozen[slot] || predicts) || s->init.kind == PL_INIT_CONST) return NULL;
    const char *key = key_of(r, s->name);
    bool fills = key && (loaded ? r->files.filled[slot] : !pl_config_is_null(r->config, key));
    return fills ? NULL : key;
}

/* Whether the model file that the run starts from notes the slot as random. */
static bool noted_before(const pl_run *r, const char *slot)
{
    return r->files.random_before && pl_nn_match(r->files.random_before, slot);
}

/* Lists the random slots by the key that fills them; returns the number of keys. */
static int list_slots(const pl_run *r, const bool *frozen, bool loaded, group *out)
{
    int n = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const char *key = random_key(r, frozen, i, loaded),
                   *name = pl_store_slot(r->store, i)->name;
        int k = 0;
        if (!key) continue;
        while (k < n && strcmp(out[k].key, key) != 0) k++;
        if (k == GROUPS) continue;
        if (k == n) out[n++] = (group){.key = key, .first = name};
        out[k].n++;
        out[k].noted += noted_before(r, name);
    }
    return n;
}

/* ---- model files -------------------------------------------------------------------------- */
pl_status pl__random_frozen_tell(const pl_run *r, pl_st_writer *w)
{
    return r->files.random ? pl_st_writer_meta(w, PL_RANDOM_NOTE, r->files.random) : PL_OK;
}

bool pl__random_frozen_noted(const pl_st_reader *f, const char *tensor)
{
    const char *note = pl_st_meta_get(f, PL_RANDOM_NOTE);
    return note && pl_nn_match(note, tensor);
}

pl_status pl__random_frozen_recall(pl_run *r, const char *note)
{
    if (!note) return PL_OK;
    r->files.random_before = pl_arena_strdup(&r->arena, note);
    return r->files.random_before ? PL_OK : PL_ERR_MEMORY;
}

/* Whether the first n characters of a random slot's name, a part up to a dot, match random slots
 * only. Constant initial values are never random: they may be among them. */
static bool stands_for_random(const pl_run *r, const bool *frozen, const char *name, size_t n)
{
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        if (!pl__slot_in_model(s) || strncmp(s->name, name, n) != 0) continue;
        bool constant = s->init.kind == PL_INIT_CONST && frozen[i] && !r->files.filled[i];
        if (!constant && !random_key(r, frozen, i, true)) return false;
    }
    return true;
}

/* Adds a pattern for the slot: its name, or the shortest "part.*" that matches random slots
 * only. */
static void add_pattern(const pl_run *r, const bool *frozen, const char *name, pl_str *list)
{
    const char *dot = strchr(name, '.');
    while (dot && !stands_for_random(r, frozen, name, (size_t)(dot + 1 - name)))
        dot = strchr(dot + 1, '.');
    const char *comma = list->text ? "," : "";
    if (dot)
        pl_str_addf(list, "%s%.*s*", comma, (int)(dot + 1 - name), name);
    else
        pl_str_addf(list, "%s%s", comma, name);
}

/* Keeps patterns of the random slots for model files. */
static pl_status note_slots(pl_run *r, const bool *frozen)
{
    pl_str list = PL_STR_INIT;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const char *name = pl_store_slot(r->store, i)->name;
        bool known = list.text && pl_nn_match(list.text, name);
        if (!known && random_key(r, frozen, i, true)) add_pattern(r, frozen, name, &list);
    }
    r->files.random = list.text ? pl_arena_strdup(&r->arena, list.text) : NULL;
    pl_status rc = list.text && !r->files.random ? PL_ERR_MEMORY : PL_OK;
    pl_str_release(&list);
    return rc;
}

/* Whether a trained model is used as it was trained, random networks included. */
static bool as_trained(const pl_run *r, const group *g, int n)
{
    bool uses = r->purpose.goal == PL_GOAL_PREDICT || r->purpose.goal == PL_GOAL_EVALUATE;
    for (int i = 0; i < n && uses; i++) uses = g[i].n > 0 && g[i].noted == g[i].n;
    return uses;
}

/* ---- texts, caches ------------------------------------------------------------------------ */
static bool has_input(const pl_graph *g, const char *name)
{
    for (uint32_t k = 1; g && name && k < g->n_nodes; k++) {
        bool source = pl_node_get(g, k)->op->flags & PL_OP_SOURCE && pl_node_slot(g, k) < 0;
        const char *own = source ? pl_node_name(g, k) : NULL;
        if (own && strcmp(own, name) == 0) return true;
    }
    return false;
}

/* Name of the input of texts; NULL: the recipe has none. */
static const char *text_of(const pl_run *r)
{
    return r->recipe->images ? r->recipe->images->text : NULL;
}

/* Whether the programs read text vectors that no file has and that mean nothing. */
static bool encodes_words(const pl_run *r, bool reads_text)
{
    bool captions = pl__images_wanted(r) || pl__prompts_wanted(r);
    return reads_text && captions && r->purpose.goal != PL_GOAL_PREDICT &&
           r->recipe->images->random_text && pl_config_is_null(r->config, "data.embeddings");
}

/* Whether the samples are outputs of an encoder that had no weights. */
static bool cache_is_random(const pl_run *r)
{
    return r->purpose.goal != PL_GOAL_PREDICT && pl__cache_wanted(r) && pl__cache_seeded(r);
}

/* ---- telling ------------------------------------------------------------------------------ */
/* "lpips.weights (31 tensors, lpips.stages.0.0.weight ...), vae.weights (...)" */
static void describe(const group *g, int n, pl_str *text)
{
    for (int i = 0; i < n; i++) {
        pl_str_addf(text, "%s%s", i ? ", " : "", g[i].key);
        if (g[i].n == 0)
            pl_str_addf(text, " (%s)", g[i].first);
        else
            pl_str_addf(text, " (%d tensor%s, %s%s%s)", g[i].n, g[i].n == 1 ? "" : "s", g[i].first,
                        g[i].n == 1 ? "" : ", ...",
                        g[i].noted ? "; random in the model that this run starts from" : "");
    }
}

static pl_status tell(pl_run *r, const char *data, const char *list)
{
    bool allowed = pl_config_bool(r->config, "allow_random_frozen");
    PL_FAIL_IF(data && !allowed, PL_ERR_CONFIG,
               "frozen weights would be random, and the data are real (%s): set %s; "
               "allow_random_frozen=true trains with random weights",
               data, list);
    r->files.warning =
        pl_arena_printf(&r->arena, "frozen weights are random, results mean little: set %s", list);
    return r->files.warning ? PL_OK : PL_ERR_MEMORY;
}

/* frozen: by slot. reads_text: a program has the input of texts. */
static pl_status check(pl_run *r, const bool *frozen, bool reads_text, bool loaded)
{
    group g[GROUPS + 2];
    /* a model file, a checkpoint, another phase or the recipe may fill a slot: loading reports
     * it */
    bool others = !pl_config_is_null(r->config, model_key(r)) || r->files.resume ||
                  r->phases.take_from || r->recipe->value;
    int n = loaded || !others ? list_slots(r, frozen, loaded, g) : 0;
    if (loaded) PL_TRY(note_slots(r, frozen));
    if (encodes_words(r, reads_text))
        g[n++] = (group){"data.embeddings",
                         "text vectors of the captions, which plimsoll embed writes", 0};
    if (cache_is_random(r))
        g[n++] = (group){pl__cache_weights_key(r), "of the encoder that filled data.cache", 0};
    if (n == 0) return PL_OK;
    pl_str list = PL_STR_INIT;
    describe(g, n, &list);
    const char *data = r->purpose.goal == PL_GOAL_PREDICT ? "--input" : pl_source_real(r);
    if (as_trained(r, g, n)) data = NULL;
    pl_status rc = list.text ? tell(r, data, list.text) : PL_ERR_MEMORY;
    pl_str_release(&list);
    return rc;
}

pl_status pl__random_frozen_foresee(pl_run *r, const pl_builder *graphs)
{
    bool goal = r->purpose.goal == PL_GOAL_TRAIN || r->purpose.goal == PL_GOAL_ENCODE;
    if (!r->purpose.starts || !goal) return PL_OK;
    bool *frozen = pl_sys_alloc((size_t)pl_store_count(r->store) + 1);
    if (!frozen) return PL_ERR_MEMORY;
    pl__frozen_start(r, frozen);
    bool reads_text = false;
    for (int i = 0; i < graphs->n_step_programs; i++) {
        pl__frozen_unmark(graphs->step_programs[i].run.g, frozen);
        pl__frozen_unmark(graphs->step_programs[i].apply.g, frozen);
        reads_text |= has_input(graphs->step_programs[i].run.g, text_of(r));
    }
    pl_status rc = check(r, frozen, reads_text, false);
    pl_sys_free(frozen);
    return rc;
}

pl_status pl__random_frozen_check(pl_run *r, bool loaded)
{
    int slots = pl_store_count(r->store);
    if (r->purpose.goal == PL_GOAL_REPLAY) return PL_OK;
    PL_TRY(pl__frozen_list(r));
    if (!r->files.filled) r->files.filled = pl_arena_new(&r->arena, bool, (size_t)slots + 1);
    if (!r->files.filled) return PL_ERR_MEMORY;
    int n;
    bool reads_text = false;
    pl_program *const *programs = pl__run_programs(r, &n);
    for (int i = 0; i < n; i++) reads_text |= has_input(programs[i]->base_graph, text_of(r));
    return check(r, r->files.frozen, reads_text, loaded);
}

const char *pl_run_start_warning(const pl_run *r)
{
    return r->files.warning ? r->files.warning : r->data.warning;
}
