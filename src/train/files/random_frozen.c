/* random_frozen.c - frozen weights that no file fills: a loss network, an autoencoder or a teacher
 * with random weights computes numbers that mean nothing, and no later step mends them.
 *
 * The recipe's pl_weights rows say which key fills which slots. pl__slot_read marks the slots that
 * a file filled. A frozen slot of a row whose initial value is random and which is not marked stops
 * the run when the data are real. With generated data, and with allow_random_frozen, the run goes
 * on, and pl_run_start_warning tells. Frozen slots without a row are random by design (a fixed
 * projection), or what the user froze.
 */
#include "base/str.h"
#include "base/sys.h"
#include "train/data/source.h"

#include <string.h>

enum { GROUPS = 16 };

/* The slots that one key fills. */
typedef struct group {
    const char *key, *first; /* first: name of the first slot */
    int n;
} group;

/* Rows of keys predict.* are for predictions alone. */
static const pl_weights *row_of(const pl_run *r, const char *slot)
{
    bool predicts = r->purpose.goal == PL_GOAL_PREDICT;
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++)
        if ((predicts || strncmp(w->key, "predict.", 8) != 0) && pl_nn_match(w->slots, slot))
            return w;
    return NULL;
}

/* Returns the row of a slot that has, or before loading will keep, its random initial value; NULL:
 * the slot is another. frozen: by slot. */
static const pl_weights *random_row(const pl_run *r, const bool *frozen, int slot, bool loaded)
{
    const pl_slot *s = pl_store_slot(r->store, slot);
    if (!frozen[slot] || s->init.kind == PL_INIT_CONST) return NULL;
    const pl_weights *w = row_of(r, s->name);
    bool fills = w && (loaded ? r->files.filled[slot] : !pl_config_is_null(r->config, w->key));
    return fills ? NULL : w;
}

/* Lists the random slots by the key that fills them; returns the number of keys. */
static int list_groups(const pl_run *r, const bool *frozen, bool loaded, group *out)
{
    int n = 0;
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_weights *w = random_row(r, frozen, i, loaded);
        int k = 0;
        if (!w) continue;
        while (k < n && strcmp(out[k].key, w->key) != 0) k++;
        if (k == GROUPS) continue;
        if (k == n) out[n++] = (group){.key = w->key, .first = pl_store_slot(r->store, i)->name};
        out[k].n++;
    }
    return n;
}

/* "lpips.weights (31 tensors, lpips.stages.0.0.weight ...), vae.weights (...)" */
static void describe(const group *g, int n, pl_str *text)
{
    for (int i = 0; i < n; i++)
        pl_str_addf(text, "%s%s (%d tensor%s, %s%s)", i ? ", " : "", g[i].key, g[i].n,
                    g[i].n == 1 ? "" : "s", g[i].first, g[i].n == 1 ? "" : ", ...");
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

static pl_status check(pl_run *r, const bool *frozen, bool loaded)
{
    group g[GROUPS];
    /* a model file, a checkpoint or another phase may fill any slot: only loading tells */
    const char *model = r->purpose.goal == PL_GOAL_ENCODE ? "data.cache_model" : "init_from";
    bool others = !pl_config_is_null(r->config, model) || r->files.resume || r->phases.take_from;
    if (!loaded && others) return PL_OK;
    int n = list_groups(r, frozen, loaded, g);
    if (n == 0) return PL_OK;
    pl_str list = PL_STR_INIT;
    describe(g, n, &list);
    const char *data = r->purpose.goal == PL_GOAL_PREDICT ? "--input" : pl_source_real(r);
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
    for (int i = 0; i < graphs->n_step_programs; i++) {
        pl__frozen_unmark(graphs->step_programs[i].run.g, frozen);
        pl__frozen_unmark(graphs->step_programs[i].apply.g, frozen);
    }
    pl_status rc = check(r, frozen, false);
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
    return check(r, r->files.frozen, loaded);
}

const char *pl_run_start_warning(const pl_run *r)
{
    return r->files.warning;
}
