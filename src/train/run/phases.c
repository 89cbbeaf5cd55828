/* phases.c - the phases of a run; see phases.h and docs/PHASES.md.
 *
 * Key `phases` is a subtree of the configuration. Each item has its own small schema, so that
 * mistakes in it are reported with line and column, too. The item's `set` is checked against the
 * run's schema when the run is opened, and applied when the phase is entered. A phase with folds is
 * one item, and one entry of r->phases.list for each repetition.
 *
 * A phase hands its state to the next through files: its memory is free before the next takes its
 * own, and a run that is killed between two phases finds the files again.
 */
#include "base/sys.h"
#include "io/config_tree.h"
#include "io/file.h"
#include "train/data/prefetch.h"
#include "train/files/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_PHASES = 1024 };

static const pl_config_entry phase_schema[] = {
    {"name", PL_CONFIG_TEXT, "null", 0, 0, NULL, "Name of the phase."},
    {"start", PL_CONFIG_TEXT, "previous", 0, 0, NULL,
     "Phase whose weights this phase starts from."},
    {"state", PL_CONFIG_CHOICE, "weights", 0, 0, "weights|all", "State that is taken over."},
    {"result", PL_CONFIG_CHOICE, "last", 0, 0, "last|best",
     "Weights that are the result of the phase."},
    {"on_stop", PL_CONFIG_CHOICE, "next", 0, 0, "next|end", "What follows when patience runs out."},
    {"folds", PL_CONFIG_INT, "null", 2, MAX_PHASES, NULL,
     "Number of folds: the phase runs once for each."},
    {"until.steps", PL_CONFIG_INT, "null", 1, 1e12, NULL, "Largest number of steps."},
    {"until.epochs", PL_CONFIG_FLOAT, "null", 1e-9, 1e9, NULL, "Number of passes over the data."},
    {"until.reach", PL_CONFIG_TEXT, "null", 0, 0, NULL, "NAME < X or NAME > X."},
    {"until.patience", PL_CONFIG_INT, "null", 0, 1e9, NULL,
     "Number of evaluations without improvement."},
    {"set", PL_CONFIG_TREE, "null", 0, 0, NULL, "Configuration keys of this phase."},
    {0},
};

/* ---- reading the list ------------------------------------------------------------------- */
static const char *file_of(const pl_run *r)
{
    return pl_config_tree_file(r->config, "phases");
}

static pl_status check_name(const pl_run *r, const pl_yaml *at, const char *name)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strlen(name);
    if (n == 0 || n > 48 || name[strspn(name, good)] || strcmp(name, "previous") == 0 ||
        strcmp(name, "fresh") == 0)
        return pl_config_fail_at(
            file_of(r), at,
            "\"%.60s\" is not a name of a phase: letters, digits, - and _, at most 48, "
            "not previous or fresh",
            name);
    for (int i = 0; i < r->phases.n; i++)
        if (strcmp(r->phases.list[i].name, name) == 0)
            return pl_config_fail_at(file_of(r), at, "there are two phases %s", name);
    return PL_OK;
}

/* Parses until.reach, e.g. "mae_km < 0.3". */
static pl_status read_reach(pl_run *r, const pl_yaml *at, const char *text, pl_phase *p)
{
    size_t n = strcspn(text, "<> \t");
    const char *sign = text + n + strspn(text + n, " \t");
    char *end = NULL;
    double bound = n && (*sign == '<' || *sign == '>') ? strtod(sign + 1, &end) : 0;
    if (!end || end == sign + 1 || *end || !isfinite(bound))
        return pl_config_fail_at(
            file_of(r), at,
            "until.reach is \"%.60s\"; needs NAME < X or NAME > X, e.g. \"loss < 0.1\"", text);
    p->bound = bound;
    p->above = *sign == '>';
    p->metric = pl_arena_strndup(&r->arena, text, n);
    return p->metric ? PL_OK : PL_ERR_MEMORY;
}

/* Parses `start`: the number of a phase, -1 for fresh. before: the phase that `previous` means. */
static pl_status read_start(const pl_run *r, const pl_yaml *at, const char *text, int before,
                            int *out)
{
    *out = before;
    if (strcmp(text, "previous") == 0) return PL_OK;
    *out = -1;
    if (strcmp(text, "fresh") == 0) return PL_OK;
    for (int i = 0; i < r->phases.n; i++)
        if (strcmp(r->phases.list[i].name, text) == 0) *out = i;
    if (*out >= 0) return PL_OK;
    return pl_config_fail_at(
        file_of(r), at,
        "start: there is no earlier phase \"%.60s\"; it must be previous, fresh or a name (of a "
        "repeated phase: NAME-0, ...)",
        text);
}

/* Rejects keys in `set` that apply to the whole process. */
static pl_status check_set(pl_run *r, const pl_yaml *set)
{
    static const char *const whole[] = {"recipe", "phases", "threads", "extends"};
    for (const pl_yaml *v = set ? set->first : NULL; v; v = v->next)
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
            size_t n = strlen(whole[i]);
            if (v->key && strncmp(v->key->text, whole[i], n) == 0 &&
                (!v->key->text[n] || v->key->text[n] == '.'))
                return pl_config_fail_at(file_of(r), v->key,
                                         "%s is of the whole run: a phase cannot set it", whole[i]);
        }
    if (set && set->kind != PL_YAML_MAPPING)
        return pl_config_fail_at(file_of(r), set, "set: a mapping of keys is expected, this is %s",
                                 pl_yaml_kind_text(set));
    return set ? pl_config_apply(r->config, file_of(r), set, true) : PL_OK;
}

static pl_status read_members(pl_run *r, const pl_yaml *at, const pl_config *c, pl_phase *p)
{
    p->steps = pl_config_is_null(c, "until.steps") ? 0 : pl_config_int(c, "until.steps");
    p->epochs = pl_config_is_null(c, "until.epochs") ? 0 : pl_config_float(c, "until.epochs");
    p->ends_run = strcmp(pl_config_text(c, "on_stop"), "end") == 0;
    p->all_state = strcmp(pl_config_text(c, "state"), "all") == 0;
    p->best = strcmp(pl_config_text(c, "result"), "best") == 0;
    p->folds = pl_config_is_null(c, "folds") ? 0 : (int)pl_config_int(c, "folds");
    PL_TRY(read_start(r, at, pl_config_text(c, "start"), r->phases.n - 1, &p->start));
    if (!pl_config_is_null(c, "until.reach"))
        PL_TRY(read_reach(r, at, pl_config_text(c, "until.reach"), p));
    return check_set(r, pl_config_tree(c, "set"));
}

static pl_status add_repetitions(pl_run *r, const pl_yaml *at, const char *name, pl_phase p)
{
    int n = p.folds ? p.folds : 1;
    if (r->phases.n + n > MAX_PHASES)
        return pl_config_fail_at(file_of(r), at, "there are more than %d phases", MAX_PHASES);
    for (p.fold = 0; p.fold < n; p.fold++) {
        p.name = p.folds ? pl_arena_printf(&r->arena, "%s-%d", name, p.fold)
                         : pl_arena_strdup(&r->arena, name);
        if (!p.name) return PL_ERR_MEMORY;
        PL_TRY(check_name(r, at, p.name));
        r->phases.list[r->phases.n++] = p;
    }
    return PL_OK;
}

/* Reads one phase: an item of a list, or a value of a mapping whose keys are names. */
static pl_status read_item(pl_run *r, const pl_yaml *item)
{
    const pl_config_entry *table = phase_schema;
    const pl_yaml *at = item->key ? item->key : item;
    char name[64];
    if (item->key && strchr(item->key->text, '.'))
        return pl_config_fail_at(file_of(r), at, "there is no phase \"%.*s\"",
                                 (int)strcspn(item->key->text, "."), item->key->text);
    if (item->kind != PL_YAML_MAPPING)
        return pl_config_fail_at(file_of(r), item,
                                 "a phase is a mapping (name: ..., until: ..., set: ...), "
                                 "this is %s",
                                 pl_yaml_kind_text(item));
    pl_config *c = NULL;
    PL_TRY(pl_config_new(&table, 1, &c));
    int number = r->phases.n_keys;
    r->phases.keys[r->phases.n_keys++] = c;
    pl_phase p = {0};
    PL_TRY(pl_config_apply(c, file_of(r), item, false));
    snprintf(name, sizeof name, "phase-%d", number);
    if (item->key) snprintf(name, sizeof name, "%.60s", item->key->text);
    if (!pl_config_is_null(c, "name"))
        snprintf(name, sizeof name, "%.60s", pl_config_text(c, "name"));
    PL_TRY(check_name(r, at, name));
    PL_TRY(read_members(r, at, c, &p));
    return add_repetitions(r, at, name, p);
}

pl_status pl__phases_read(pl_run *r)
{
    const pl_yaml *list = pl_config_tree(r->config, "phases");
    if (!list) return PL_OK;
    if (!list->first) return pl_config_fail_at(file_of(r), list, "phases: the list is empty");
    r->phases.keys = pl_arena_new(&r->arena, pl_config *, list->n_items);
    r->phases.list = pl_arena_new(&r->arena, pl_phase, MAX_PHASES);
    if (!r->phases.keys || !r->phases.list) return PL_ERR_MEMORY;
    for (const pl_yaml *item = list->first; item; item = item->next) {
        pl_status rc = read_item(r, item);
        if (rc == PL_ERR_MEMORY) return rc;
        if (rc != PL_OK) return pl__fail_prefix(rc, "phases");
    }
    return PL_OK;
}

void pl__phases_free(pl_run *r)
{
    for (int i = 0; i < r->phases.n_keys; i++) pl_config_free(r->phases.keys[i]);
    r->phases.n_keys = r->phases.n = 0;
}

/* ---- overrides -------------------------------------------------------------------------- */
/* Returns the key of the run that a member of a phase sets; NULL: none. */
static const char *key_of_member(const char *path)
{
    if (strcmp(path, "until.steps") == 0) return "train.steps";
    if (strcmp(path, "until.patience") == 0) return "stop.patience";
    return strncmp(path, "set.", 4) == 0 ? path + 4 : NULL;
}

/* Removes the members below `mapping`, whose path is `prefix`, whose key the last override set. */
static void drop_newest(const pl_config *c, pl_yaml *mapping, const char *prefix)
{
    for (pl_yaml **at = &mapping->first; *at;) {
        char path[256];
        snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "." : "", (*at)->key->text);
        const char *key = key_of_member(path);
        if (key && pl_config_is_newest(c, key)) {
            *at = (*at)->next;
            mapping->n_items--;
            continue;
        }
        if ((*at)->kind == PL_YAML_MAPPING) drop_newest(c, *at, path);
        at = &(*at)->next;
    }
}

pl_status pl__phases_yield(pl_config *c)
{
    if (!pl_config_tree(c, "phases") || pl_config_is_newest(c, "phases")) return PL_OK;
    pl_yaml *list = pl_config_tree_edit(c, "phases");
    if (!list) return PL_ERR_MEMORY;
    for (pl_yaml *item = list->first; item; item = item->next)
        if (item->kind == PL_YAML_MAPPING) drop_newest(c, item, "");
    return PL_OK;
}

/* ---- one of them ------------------------------------------------------------------------ */
int pl_run_phase_count(const pl_run *r)
{
    return r->phases.n;
}

const pl_phase *pl_run_phase_at(const pl_run *r, int i)
{
    return &r->phases.list[i];
}

int pl_run_phase_find(const pl_run *r, const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);
    for (int i = 0; i < r->phases.n; i++)
        if (strcmp(r->phases.list[i].name, name) == 0) return i;
    return *name && !*end && number >= 0 && number < r->phases.n ? (int)number : -1;
}

int pl_run_phase(const pl_run *r)
{
    return r->phases.now;
}

int64_t pl_run_steps_before(const pl_run *r)
{
    return r->phases.steps_before;
}

/* Returns the number of the item of the list that phase i belongs to. */
static int item_of(const pl_run *r, int i)
{
    int item = 0;
    for (int k = 1; k <= i; k++) item += r->phases.list[k].fold == 0;
    return item;
}

int pl__phase_item(const pl_run *r)
{
    return r->phases.now < 0 ? 0 : item_of(r, r->phases.now);
}

/* Sets the keys for the members other than `set`. */
static pl_status apply_members(pl_run *r, const pl_phase *p, const pl_config *c)
{
    char text[256], name[96];
    int n = 0;
    text[0] = '\0';
    if (p->steps) n += snprintf(text, sizeof text, "train.steps: %lld\n", (long long)p->steps);
    if (!pl_config_is_null(c, "until.patience"))
        n += snprintf(text + n, sizeof text - (size_t)n, "stop.patience: %lld\n",
                      (long long)pl_config_int(c, "until.patience"));
    if (p->folds)
        n += snprintf(text + n, sizeof text - (size_t)n, "data.folds: %d\ndata.fold: %d\n",
                      p->folds, p->fold);
    snprintf(name, sizeof name, "phase %s", p->name);
    return n ? pl_config_load_text(r->config, name, text, (size_t)n) : PL_OK;
}

static pl_status check_rules(const pl_run *r, const pl_phase *p)
{
    bool looks = p->metric || pl_config_int(r->config, "stop.patience") > 0;
    PL_FAIL_IF(looks && pl_config_int(r->config, "eval.every") == 0, PL_ERR_CONFIG,
               "phase %s: evaluations decide when it ends, and eval.every is 0: set it, e.g. "
               "phases.%s.set.eval.every=100",
               p->name, p->name);
    PL_FAIL_IF(p->best && pl_config_is_null(r->config, "checkpoint.best"), PL_ERR_CONFIG,
               "phase %s: result: best needs checkpoint.best, the evaluation output that decides",
               p->name);
    return PL_OK;
}

pl_status pl_run_enter(pl_run *r, int i, int64_t before)
{
    PL_FAIL_IF(i < 0 || i >= r->phases.n || r->phases.now >= 0 || pl__train(r), PL_ERR_ARG,
               "phase %d of %d cannot be entered: there is no such phase, or the run is in a phase "
               "already",
               i, r->phases.n);
    const pl_phase *p = &r->phases.list[i];
    const pl_config *keys = r->phases.keys[item_of(r, i)];
    const pl_yaml *set = pl_config_tree(keys, "set");
    if (set) PL_TRY(pl_config_apply(r->config, file_of(r), set, false));
    PL_TRY(apply_members(r, p, keys));
    PL_TRY(check_rules(r, p));
    pl__run_target(r);
    r->phases.now = i;
    r->phases.steps_before = before;
    return PL_OK;
}

pl_status pl__phase_check_data(pl_run *r)
{
    const pl_phase *p = r->phases.now < 0 ? NULL : &r->phases.list[r->phases.now];
    PL_FAIL_IF(p && p->epochs > 0 && pl__run_samples(r) <= 0, PL_ERR_CONFIG,
               "phase %s: until.epochs is %g, but its data never end: set until.steps", p->name,
               p->epochs);
    PL_FAIL_IF(p && p->metric && !pl__eval(r), PL_ERR_CONFIG,
               "phase %s: until.reach looks at evaluations, and recipe %s has none", p->name,
               r->recipe->name);
    return PL_OK;
}

int64_t pl_run_last_step(const pl_run *r)
{
    int64_t steps = pl_config_int(r->config, "train.steps");
    const pl_phase *p = r->phases.now < 0 ? NULL : &r->phases.list[r->phases.now];
    if (p && p->epochs > 0 && r->session) {
        int64_t size = pl__run_samples((pl_run *)(uintptr_t)r);
        double n = ceil(p->epochs * (double)size / (double)pl__run_batch(r) - 1e-9);
        if (n < 1) n = 1;
        if (n < (double)steps) steps = (int64_t)n;
    }
    return r->phases.steps_before + steps;
}

bool pl__phase_reached(const pl_run *r, const pl_eval_info *info)
{
    const pl_phase *p = r->phases.now < 0 ? NULL : &r->phases.list[r->phases.now];
    for (int i = 0; p && p->metric && i < info->n; i++)
        if (strcmp(info->name[i], p->metric) == 0)
            return p->above ? info->value[i] > p->bound : info->value[i] < p->bound;
    return false;
}

/* ---- handing on ------------------------------------------------------------------------- */
/* Without the slot of stop.*: every phase counts its own evaluations. */
static bool in_handed_state(const pl_slot *s)
{
    return pl__slot_in_state(s) && strcmp(s->name, "stop") != 0;
}

static bool state_wanted(const pl_run *r)
{
    bool wanted = false;
    for (int i = r->phases.now + 1; i < r->phases.n; i++)
        wanted |= r->phases.list[i].start == r->phases.now && r->phases.list[i].all_state;
    return wanted;
}

/* Writes the model last: if it exists, the hand-over is complete. */
pl_status pl_run_hand_on(pl_run *r, const char *dir, const char *best)
{
    char path[PL_PATH_BYTES], *text;
    uint64_t bytes, hash;
    PL_FAIL_IF(r->phases.now < 0 || !r->session, PL_ERR_ARG, "the run is not a started phase");
    PL_FAIL_IF(mkdir(dir, 0777) != 0 && errno != EEXIST, PL_ERR_IO, "cannot make folder %s: %s",
               dir, strerror(errno));
    PL_TRY(pl__path(path, dir, "config.yaml"));
    PL_TRY(pl_config_print(r->config, &text));
    pl_status rc = pl_sys_write_file(path, text, strlen(text));
    pl_text_free(text);
    PL_TRY(rc);
    PL_TRY(pl__path(path, dir, "state.safetensors"));
    if (state_wanted(r))
        PL_TRY(pl__slots_write(r, path, false, in_handed_state, false, &bytes, &hash));
    PL_TRY(pl__path(path, dir, "model_ema.safetensors"));
    /* best belongs to another step than the averages */
    if (pl_run_has_averages(r) && !best) PL_TRY(pl_run_save_averages(r, path));
    PL_TRY(pl__path(path, dir, "model.safetensors"));
    return best ? pl_file_copy(best, path, r->files.stage, PL_STAGE_BYTES)
                : pl__slots_write(r, path, true, pl__slot_in_model, false, &bytes, &hash);
}

pl_status pl_run_take_over(pl_run *r, const char *dir)
{
    PL_FAIL_IF(r->session, PL_ERR_ARG, "the run is started already");
    r->phases.take_from = pl_arena_strdup(&r->arena, dir);
    return r->phases.take_from ? PL_OK : PL_ERR_MEMORY;
}

void pl_run_taken(const pl_run *r, int *taken, int *of)
{
    *taken = r->phases.taken;
    *of = r->phases.taken_of;
}

pl_status pl__phase_take(pl_run *r)
{
    char path[PL_PATH_BYTES];
    int taken, of;
    const pl_phase *p = &r->phases.list[r->phases.now];
    PL_TRY(pl__path(path, r->phases.take_from, "model.safetensors"));
    PL_TRY(pl__slots_take(r, path, true, pl__slot_in_model, &r->phases.taken, &r->phases.taken_of));
    PL_FAIL_IF(r->phases.taken == 0 && r->phases.taken_of > 0, PL_ERR_CONFIG,
               "phase %s: none of its %d tensors is in %s, the model that it starts with; "
               "set start: fresh, or another phase",
               p->name, r->phases.taken_of, path);
    if (!p->all_state) return PL_OK;
    PL_TRY(pl__path(path, r->phases.take_from, "state.safetensors"));
    return pl__slots_take(r, path, false, in_handed_state, &taken, &of);
}

/* ---- resuming --------------------------------------------------------------------------- */
static const pl_yaml *item_at(const pl_config *c, int n)
{
    const pl_yaml *list = pl_config_tree(c, "phases"), *item = list ? list->first : NULL;
    while (item && n--) item = item->next;
    return item;
}

bool pl__phases_same(const pl_config *a, const pl_config *b, int n)
{
    bool same = true;
    for (int i = 0; i < n && same; i++) {
        const pl_yaml *x = item_at(a, i), *y = item_at(b, i);
        char *s = NULL, *t = NULL;
        same = x && y && pl_yaml_print(x, &s) == PL_OK && pl_yaml_print(y, &t) == PL_OK &&
               strcmp(s, t) == 0 && (!x->key) == (!y->key) &&
               (!x->key || strcmp(x->key->text, y->key->text) == 0);
        pl_text_free(s);
        pl_text_free(t);
    }
    return same;
}
