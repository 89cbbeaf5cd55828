/* weights.c - weights of frozen parts from files of other projects (pl_recipe.weights).
 *
 * A naming is a list of rules that translate our names to theirs. The naming that finds the most
 * slots is chosen. Then the check is strict: every slot must be found, every tensor must belong to
 * a slot or be allowed by the naming, and every shape must equal the slot's except for dimensions
 * of 1 (other programs store a linear layer as a 1 x 1 convolution).
 */
#include "base/str.h"
#include "base/sys.h"
#include "io/st_set.h"
#include "train/files/naming.h"
#include "train/run/run.h"

#include <string.h>

enum { LISTED = 6 };

/* ---- what is where ------------------------------------------------------------------------ */
typedef struct source {
    pl_run *r;
    const pl_weights *w;
    pl_st_set *set;
    const pl_naming *naming;
    const char *path;
    pl_arena mem;
    /* by slot, once the naming is chosen: the tensor of the file; NULL: the slot is not of this
     * file */
    const pl_published **from;
    const pl_start *start; /* pl__weights_start: what may be missing or differ; else NULL */
    bool others;           /* the file may have other tensors */
} source;

static bool wants(const source *s, int slot)
{
    const pl_slot *x = pl_store_slot(s->r->store, slot);
    return pl__slot_in_model(x) && pl_nn_match(s->w->slots, x->name);
}

static int slots_wanted(const source *s)
{
    int n = 0;
    for (int i = 0; i < pl_store_count(s->r->store); i++) n += wants(s, i);
    return n;
}

static int slots_found(const source *s, const pl_naming *naming)
{
    int n = 0, file;
    pl_published p;
    for (int i = 0; i < pl_store_count(s->r->store); i++)
        if (wants(s, i) && pl__naming_find(naming, s->r->config, pl_store_slot(s->r->store, i), &p))
            n += pl_st_set_find(s->set, p.name, &file) != NULL;
    return n;
}

/* Fills in the tensors by the chosen naming; a slot without a rule keeps its own name. */
static pl_status make_names(source *s)
{
    int n = pl_store_count(s->r->store);
    pl_published p;
    s->from = pl_arena_new(&s->mem, const pl_published *, (size_t)n + 1);
    if (!s->from) return PL_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        const pl_slot *x = pl_store_slot(s->r->store, i);
        if (!wants(s, i)) continue;
        if (!pl__naming_find(s->naming, s->r->config, x, &p)) {
            memset(&p, 0, sizeof p);
            PL_FAIL_IF(strlen(x->name) >= sizeof p.name, PL_ERR_FILE,
                       "the name of slot %.40s... has more than %zu characters", x->name,
                       sizeof p.name - 1);
            memcpy(p.name, x->name, strlen(x->name));
        }
        if (!p.name[0]) continue; /* their files have no such tensor */
        pl_published *kept = pl_arena_new(&s->mem, pl_published, 1);
        if (!kept) return PL_ERR_MEMORY;
        *kept = p;
        s->from[i] = kept;
    }
    return PL_OK;
}

static const pl_naming own = {.name = "this engine's"};

static void choose_naming(source *s)
{
    int best = slots_found(s, &own);
    s->naming = &own;
    for (const pl_naming *k = s->w->naming; k && k->name; k++) {
        int n = slots_found(s, k);
        if (n < best || (n == best && s->naming != &own)) continue;
        best = n;
        s->naming = k;
    }
}

/* ---- strictness --------------------------------------------------------------------------- */
/* Counts a name, and adds it to the text if it is one of the first few. */
static void list(pl_str *text, int *n, const char *name)
{
    if (*n < LISTED) pl_str_addf(text, "%s%s", *n ? ", " : "", name);
    if ((*n)++ == LISTED) pl_str_addf(text, ", ...");
}

/* Whether a slot may keep its initial value. */
static bool may_lack(const source *s, const char *pattern, int slot)
{
    return s->start && pattern && pl_nn_match(pattern, pl_store_slot(s->r->store, slot)->name);
}

static pl_status list_missing(const source *s, pl_str *text, int *n)
{
    int file;
    for (int i = 0; i < pl_store_count(s->r->store); i++) {
        bool elsewhere = false;
        if (!s->from[i] || pl_st_set_find(s->set, s->from[i]->name, &file) ||
            (s->start && (may_lack(s, s->start->missing, i) || may_lack(s, s->start->fresh, i))))
            continue;
        if (s->start)
            PL_TRY(
                pl__weights_lack(s->r, s->path, pl_store_slot(s->r->store, i)->name, &elsewhere));
        if (!elsewhere) list(text, n, s->from[i]->name);
    }
    return PL_OK;
}

static bool is_taken(const source *s, const char *tensor)
{
    for (int i = 0; i < pl_store_count(s->r->store); i++)
        if (s->from[i] && strcmp(s->from[i]->name, tensor) == 0) return true;
    return false;
}

/* Whether a tensor follows from the configuration, so that no slot holds it. */
static bool is_constant(const source *s, const char *tensor)
{
    const pl_naming *n = s->naming;
    size_t skip = n->prefix ? strlen(n->prefix) : 0;
    char name[PL_TENSOR_NAME];
    pl_type type;
    if (!n->constant || (skip && strncmp(tensor, n->prefix, skip) != 0)) return false;
    for (int i = 0; n->constant(s->r->config, i, name, &type, NULL); i++)
        if (strcmp(name, tensor + skip) == 0) return true;
    return false;
}

static void list_unknown(const source *s, pl_str *text, int *n)
{
    for (int f = 0; f < pl_st_set_files(s->set); f++)
        for (int i = 0; i < pl_st_count(pl_st_set_file(s->set, f)); i++) {
            const char *name = pl_st_at(pl_st_set_file(s->set, f), i)->name;
            if (s->naming->ignored && pl_nn_match(s->naming->ignored, name)) continue;
            if (!is_taken(s, name) && !is_constant(s, name)) list(text, n, name);
        }
}

static pl_status check_names(const source *s)
{
    pl_str missing = PL_STR_INIT, unknown = PL_STR_INIT;
    int n_missing = 0, n_unknown = 0;
    pl_status rc = list_missing(s, &missing, &n_missing);
    if (!s->others) list_unknown(s, &unknown, &n_unknown);
    if (rc == PL_OK && (n_missing || n_unknown))
        rc = pl__fail(PL_ERR_FILE, __FILE__, __LINE__,
                      "%s=%s, read with %s names: %d tensor%s missing%s%s; %d not known%s%s",
                      s->w->key, s->path, s->naming->name, n_missing,
                      n_missing == 1 ? " is" : "s are", n_missing ? ": " : "",
                      missing.text ? missing.text : "", n_unknown, n_unknown ? ": " : "",
                      unknown.text ? unknown.text : "");
    pl_str_release(&missing);
    pl_str_release(&unknown);
    return rc;
}

static bool is_real(pl_dtype d)
{
    return d == PL_F32 || d == PL_BF16 || d == PL_F16 || d == PL_F64;
}

static pl_status load_slot(const source *s, int slot)
{
    const pl_slot *x = pl_store_slot(s->r->store, slot);
    char a[96], b[96];
    int file = 0;
    const pl_st_tensor *t = pl_st_set_find(s->set, s->from[slot]->name, &file);
    pl_type want = pl__slot_file_type(x);
    bool known = t && t->loadable &&
                 (t->type.dtype == want.dtype || (is_real(t->type.dtype) && is_real(want.dtype)));
    PL_FAIL_IF(!known || !pl__naming_shape(s->from[slot], &t->type, &want), PL_ERR_FILE,
               "%s: tensor \"%s\" is %s, the model's %s wants %s", pl_st_set_path(s->set, file),
               s->from[slot]->name,
               t && t->loadable ? pl_type_text(&t->type, b, sizeof b) : "of another kind", x->name,
               pl_type_text(&want, a, sizeof a));
    return pl__slot_read(s->r, pl_st_set_file(s->set, file), t, slot, true, s->from[slot]);
}

static pl_status load_open(source *s)
{
    PL_TRY(pl_st_set_open(s->path, &s->set));
    choose_naming(s);
    PL_TRY(make_names(s));
    PL_TRY(check_names(s));
    for (int i = 0; i < pl_store_count(s->r->store); i++)
        if (s->from[i]) PL_TRY(load_slot(s, i));
    return PL_OK;
}

/* Whether the file has the slot in another shape, and the recipe allows a fresh start of it. */
static bool starts_fresh(const source *s, int slot)
{
    int file;
    const pl_st_tensor *t = pl_st_set_find(s->set, s->from[slot]->name, &file);
    pl_type want = pl__slot_file_type(pl_store_slot(s->r->store, slot));
    if (!t) return true; /* check_names allowed it */
    return may_lack(s, s->start->fresh, slot) && t->loadable &&
           !pl__naming_shape(s->from[slot], &t->type, &want);
}

/* Loads what the file has and lists what it has not. */
static pl_status start_open(source *s)
{
    pl_str fresh = PL_STR_INIT;
    int n = 0;
    PL_TRY(pl_st_set_open(s->path, &s->set));
    choose_naming(s);
    PL_TRY(make_names(s));
    PL_TRY(check_names(s));
    pl_status rc = PL_OK;
    for (int i = 0; i < pl_store_count(s->r->store) && rc == PL_OK; i++) {
        if (!s->from[i]) continue;
        if (!starts_fresh(s, i))
            rc = load_slot(s, i);
        else if (!may_lack(s, s->start->missing, i))
            list(&fresh, &n, pl_store_slot(s->r->store, i)->name);
    }
    if (rc == PL_OK && n) {
        s->r->files.start_note = pl_arena_printf(
            &s->r->arena, "init_from %s: %d tensor%s not taken from it, initial values: %s",
            s->path, n, n == 1 ? " is" : "s are", fresh.text ? fresh.text : "");
        if (!s->r->files.start_note) rc = PL_ERR_MEMORY;
    }
    pl_str_release(&fresh);
    return rc;
}

pl_status pl__weights_start(pl_run *r, const char *path, bool whole)
{
    pl_start start = *r->recipe->start;
    pl_weights w = {.key = "init_from", .slots = "*", .naming = start.naming};
    source s = {.r = r, .w = &w, .path = path, .start = &start, .others = whole};
    if (whole) start.fresh = NULL;
    /* A prediction with a weight that nobody trained would be a wrong answer. */
    if (r->purpose.goal == PL_GOAL_PREDICT) start.missing = NULL;
    pl_status rc = start_open(&s);
    pl_st_set_close(s.set);
    pl_arena_release(&s.mem);
    return rc;
}

const char *pl_run_start_note(const pl_run *r)
{
    return r->files.start_note;
}

/* Whether the row says that the model itself has the slots. */
static bool of_model(const pl_weights *w)
{
    return strcmp(w->key, "init_from") == 0;
}

pl_status pl__weights_lack(pl_run *r, const char *path, const char *slot, bool *elsewhere)
{
    *elsewhere = false;
    if (r->purpose.goal != PL_GOAL_PREDICT) return PL_OK;
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++) {
        if (of_model(w) || !pl_nn_match(w->slots, slot)) continue;
        PL_FAIL_IF(pl_config_is_null(r->config, w->key), PL_ERR_FILE,
                   "%s has no tensor \"%s\"; %s=FILE names a file that has it", path, slot, w->key);
        r->files.lacking |= UINT64_C(1) << (w - r->recipe->weights);
        *elsewhere = true;
        return PL_OK;
    }
    return PL_OK;
}

pl_status pl__weights_load(pl_run *r)
{
    bool predicts = r->purpose.goal == PL_GOAL_PREDICT;
    bool after_model = predicts && !pl_config_is_null(r->config, "init_from");
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++) {
        if (of_model(w) || pl_config_is_null(r->config, w->key)) continue;
        /* after a model file, only what that file lacks */
        if (after_model && !(r->files.lacking >> (w - r->recipe->weights) & 1)) continue;
        source s = {.r = r, .w = w, .path = pl_config_text(r->config, w->key), .others = predicts};
        if (!slots_wanted(&s)) continue; /* the run's programs do not have that part */
        pl_status rc = load_open(&s);
        pl_st_set_close(s.set);
        pl_arena_release(&s.mem);
        if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_FILE, "%s: %s", w->key, pl_error_text());
        PL_TRY(rc);
    }
    return PL_OK;
}
