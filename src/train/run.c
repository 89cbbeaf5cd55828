/* run.c - a run from configuration to steps; see plimsoll_train.h.
 *
 * Everything that takes memory happens in build and start; a step reads a batch straight into the
 * program's inputs and runs the program. The order of samples is a pure function of seed and
 * position, so the run's position is one number: the steps done.
 */
#include "base/dtype.h"
#include "base/pool.h"
#include "base/sys.h"
#include "ir/graph.h"
#include "plan/cost_card.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_unstable.h"
#include "rt/device.h"
#include "rt/refit.h"
#include "train/supply.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The card that the run is planned for and that is not here; NULL: the device is. */
static const pl_card *planned_card(const pl_run *r)
{
    const char *device = pl_config_text(r->config, "device");
    return pl_device_profile(device) ? pl_card_find(device) : NULL;
}

/* 0 when none is given. */
static uint64_t budget_of(const pl_run *r)
{
    if (!pl_config_is_null(r->config, "memory")) return (uint64_t)pl_config_size(r->config, "memory");
    const pl_card *card = planned_card(r);
    return card ? card->memory_bytes : 0;
}

/* The device, when its memory is not the host's: the budget is then of that memory. */
static const pl_device *card_of(const pl_run *r)
{
    const pl_device *dev = r->train ? pl_program_device(r->train) : NULL;
    return dev && dev->apart ? dev : NULL;
}

/* Room for stacks of the team, allocator slack and the pages a first step touches, or for what the
 * first run takes on a card. Two processes with the same configuration differ by some pages, so a
 * budget that one of them named must do for the next: a given budget may shrink the margin to two
 * thirds of it. What the host takes between planning and the start comes out of the rest, so that a plan that
 * was found to fit is not refused for a page: a half remains. */
static uint64_t margin_of(const pl_run *r, bool least)
{
    if (planned_card(r)) return 0;
    uint64_t margin = ((uint64_t)12 << 20) + ((uint64_t)192 << 10) * (uint64_t)pl_pool_threads();
    const pl_device *card = card_of(r);
    if (card) margin = card->margin_bytes;
    if (!least) return margin;
    return r->fitted && !card ? margin / 2 : margin / 3 * 2;
}

static uint64_t used_bytes(const pl_run *r)
{
    if (planned_card(r)) return planned_card(r)->overhead_bytes;
    const pl_device *card = card_of(r);
    return card ? card->used_bytes() : pl_sys_rss_bytes();
}

/* ---- opening ---------------------------------------------------------------------------- */
/* Preset texts of a recipe, by "recipe/preset" or, inside the recipe's own files, "preset". */
static const char *preset_text(void *ctx, const char *name)
{
    const pl_recipe *own = ctx;
    const char *slash = strrchr(name, '/');
    const pl_recipe *r = own;
    if (slash) {
        size_t n = (size_t)(slash - name);
        bool is_own = own && strlen(own->name) == n && memcmp(own->name, name, n) == 0;
        for (int i = 0; !is_own && i < pl_recipe_count(); i++)
            if (strlen(pl_recipe_at(i)->name) == n &&
                memcmp(pl_recipe_at(i)->name, name, n) == 0)
                r = pl_recipe_at(i), is_own = true;
        if (!is_own) return NULL;
    }
    const char *preset = slash ? slash + 1 : name;
    for (const pl_preset *p = r ? r->presets : NULL; p && p->name; p++)
        if (strcmp(p->name, preset) == 0) return p->yaml;
    return NULL;
}

static pl_status open_library(pl_run *r, const char *path)
{
    char full[4096];
    bool plain = strchr(path, '/') == NULL;
    int n = snprintf(full, sizeof full, "%s%s", plain ? "./" : "", path);
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof full, PL_ERR_CONFIG, "path too long");
    r->library = dlopen(full, RTLD_NOW | RTLD_LOCAL);
    PL_FAIL_IF(!r->library, PL_ERR_CONFIG, "cannot load recipe %s: %s", path, dlerror());
    pl_recipe_entry_fn entry;
    void *symbol = dlsym(r->library, "pl_recipe_entry");
    PL_FAIL_IF(!symbol, PL_ERR_CONFIG, "%s is not a recipe: it has no pl_recipe_entry", path);
    memcpy(&entry, &symbol, sizeof entry);
    const pl_recipe *recipe = entry();
    PL_FAIL_IF(!recipe || recipe->abi != PL_RECIPE_ABI, PL_ERR_CONFIG,
               "%s was built for recipe interface %d, this program has %d: build it again", path,
               recipe ? recipe->abi : 0, PL_RECIPE_ABI);
    r->recipe = recipe;
    return PL_OK;
}

static bool ends_with(const char *text, size_t n, const char *tail)
{
    size_t m = strlen(tail);
    return n >= m && memcmp(text + n - m, tail, m) == 0;
}

static pl_status unknown_recipe(const char *name)
{
    const char *nearest = NULL;
    int best = 4;
    char list[256] = "";
    for (int i = 0; i < pl_recipe_count(); i++) {
        const pl_recipe *r = pl_recipe_at(i);
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", r->name);
        int d = strncmp(r->name, name, strlen(r->name)) == 0 ? 0 : 3;
        if (d < best) best = d, nearest = r->name;
    }
    if (nearest && best == 0)
        PL_FAIL(PL_ERR_CONFIG, "recipe %s has no preset of that name in \"%s\" (plimsoll recipes "
                               "lists them)", nearest, name);
    PL_FAIL(PL_ERR_CONFIG,
            "no recipe, preset or file \"%s\"; built-in recipes: %s (plimsoll recipes lists their "
            "presets)", name, list);
}

/* Finds the recipe a name stands for and the preset to load; *preset points into static text. */
static pl_status resolve_recipe(pl_run *r, const char *name, const char **preset)
{
    size_t n = strlen(name);
    const char *slash = strrchr(name, '/');
    *preset = NULL;
    if (ends_with(name, n, ".so")) {
        PL_TRY(open_library(r, name));
    } else if (slash && ends_with(name, (size_t)(slash - name), ".so")) {
        char *path = pl_arena_strndup(&r->arena, name, (size_t)(slash - name));
        if (!path) return PL_ERR_MEMORY;
        PL_TRY(open_library(r, path));
        *preset = slash + 1;
    } else {
        size_t m = slash ? (size_t)(slash - name) : n;
        for (int i = 0; i < pl_recipe_count(); i++)
            if (strlen(pl_recipe_at(i)->name) == m &&
                memcmp(pl_recipe_at(i)->name, name, m) == 0)
                r->recipe = pl_recipe_at(i);
        if (slash) *preset = slash + 1;
    }
    if (!r->recipe) return unknown_recipe(name);
    if (!*preset && r->recipe->presets) *preset = r->recipe->presets[0].name;
    if (*preset && !preset_text(pl__unconst(r->recipe), *preset)) return unknown_recipe(name);
    return PL_OK;
}

pl_status pl__run_config_new(pl_run *r, pl_config **out)
{
    const pl_config_entry *tables[3] = {pl_engine_schema, r->recipe->schema};
    int n = r->recipe->schema ? 2 : 1;
    if (r->recipe->optims && !(tables[n++] = pl__optim_schema(&r->arena, r->recipe->optims)))
        return PL_ERR_MEMORY;
    PL_TRY(pl_config_new(tables, n, out));
    pl_config_set_presets(*out, preset_text, pl__unconst(r->recipe));
    return PL_OK;
}

static pl_status make_config(pl_run *r)
{
    return pl__run_config_new(r, &r->config);
}

pl_status pl__run_config_copy(pl_run *r, pl_config **out)
{
    char *text;
    PL_TRY(pl__run_config_new(r, out));
    PL_TRY(pl_config_print(r->config, &text));
    pl_status rc = pl_config_load_text(*out, "the run's configuration", text, strlen(text));
    pl_text_free(text);
    return rc;
}

static bool is_file(const char *name)
{
    size_t n = strlen(name);
    return ends_with(name, n, ".yaml") || ends_with(name, n, ".yml") || ends_with(name, n, ".json");
}

static pl_status open_file(pl_run *r, const char *path)
{
    char *recipe = NULL;
    const char *preset;
    PL_TRY(pl_config_peek(path, "recipe", preset_text, NULL, &recipe));
    PL_FAIL_IF(!recipe, PL_ERR_CONFIG,
               "%s: the key `recipe` is missing: which network is this for? (recipe: cloud)", path);
    /* A compiled recipe is found beside the file that names it. */
    const char *slash = strrchr(path, '/');
    bool beside = slash && strstr(recipe, ".so") && recipe[0] != '/';
    char *name = beside ? pl_arena_printf(&r->arena, "%.*s%s", (int)(slash - path) + 1, path, recipe)
                        : pl_arena_strdup(&r->arena, recipe);
    pl_text_free(recipe);
    if (!name) return PL_ERR_MEMORY;
    PL_TRY(resolve_recipe(r, name, &preset));
    PL_TRY(make_config(r));
    if (strchr(name, '/') && !ends_with(name, strlen(name), ".so"))
        PL_TRY(pl_config_load_text(r->config, preset, preset_text(pl__unconst(r->recipe), preset),
                                   strlen(preset_text(pl__unconst(r->recipe), preset))));
    return pl_config_load(r->config, path);
}

static pl_status open_named(pl_run *r, const char *name)
{
    const char *preset;
    PL_TRY(resolve_recipe(r, name, &preset));
    PL_TRY(make_config(r));
    return preset ? pl_config_load(r->config, preset) : PL_OK;
}

static enum pl_compile_mode mode_of(const char *text)
{
    return strcmp(text, "eager") == 0             ? PL_MODE_EAGER
           : strcmp(text, "max-autotune") == 0    ? PL_MODE_MAX_AUTOTUNE
           : strcmp(text, "reduce-overhead") == 0 ? PL_MODE_REDUCE_OVERHEAD
                                                  : PL_MODE_DEFAULT;
}

void pl__run_target(pl_run *r)
{
    r->compile.device = pl_config_text(r->config, "device");
    r->compile.mode = mode_of(pl_config_text(r->config, "compile.mode"));
    r->compile.fp32 = strcmp(pl_config_text(r->config, "compile.fp32"), "plain") == 0 ? PL_FP32_PLAIN : PL_FP32_SPLIT;
}

static pl_status override(pl_run *r, const char *assignment)
{
    PL_TRY(pl_config_override(r->config, assignment));
    return pl__phases_yield(r->config);
}

pl_status pl_run_open(const char *config, const char *const *overrides, int n, pl_run **out)
{
    pl_run *r = pl_sys_alloc(sizeof *r);
    if (!r) return PL_ERR_MEMORY;
    r->compile = (pl_compile_opts)PL_COMPILE_INIT;
    r->phase = -1;
    pl_status rc = is_file(config) ? open_file(r, config) : open_named(r, config);
    for (int i = 0; i < n && rc == PL_OK; i++) rc = override(r, overrides[i]);
    if (rc == PL_OK) rc = pl_config_check(r->config);
    if (rc == PL_OK) rc = pl__phases_read(r);
    if (rc == PL_OK && !(r->store = pl_store_new())) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl__stage_open(r);
    if (rc != PL_OK) {
        pl_run_free(r);
        return rc;
    }
    pl__run_target(r);
    int threads = (int)pl_config_int(r->config, "threads");
    if (threads) pl_pool_set_threads(threads);
    *out = r;
    return PL_OK;
}

void pl_run_free(pl_run *r)
{
    if (!r) return;
    pl_supply_close(r);
    pl_session_free(r->session);
    pl__turns_free(r);
    pl_store_free(r->store);
    pl__phases_free(r);
    pl_config_free(r->config);
    pl_sys_free(r->stage);
    pl_sys_free(r->whole);
    pl_sys_free(r->grids);
    if (r->library) dlclose(r->library);
    pl_arena_release(&r->arena);
    pl_sys_free(r);
}

const pl_config *pl_run_config(const pl_run *r)
{
    return r->config;
}

const pl_recipe *pl_run_recipe(const pl_run *r)
{
    return r->recipe;
}

pl_store *pl_run_store(const pl_run *r)
{
    return r->store;
}

pl_session *pl_run_session(pl_run *r)
{
    return r->session;
}

/* ---- planning --------------------------------------------------------------------------- */
void pl_run_set_compile(pl_run *r, const pl_compile_opts *o)
{
    r->compile = *o;
}

/* The largest of the programs' smallest arenas. */
static pl_status find_minimum(pl_run *r, uint64_t *arena)
{
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    PL_TRY(pl_program_find_minimum(r->train, arena));
    for (int i = 0; i < n; i++) {
        uint64_t least = 0;
        if (programs[i] == r->train || pl_program_plan(programs[i])->arena_bytes <= *arena) continue;
        PL_TRY(pl_program_find_minimum(programs[i], &least));
        if (least > *arena) *arena = least;
    }
    return PL_OK;
}

/* The largest of the programs' arenas; least: of the smallest ones found. */
static uint64_t arena_of(const pl_run *r, bool least)
{
    uint64_t most = 0;
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    for (int i = 0; i < n; i++) {
        const pl_plan_info *p = pl_program_plan(programs[i]);
        uint64_t arena = least && p->minimum_bytes ? p->minimum_bytes : p->arena_bytes;
        if (arena > most) most = arena;
    }
    return most;
}

/* What the host takes for the search of smaller plans and for what they are longer: a budget that is told as the
 * smallest must do for the process that is given it. */
static uint64_t replan_bytes(const pl_run *r)
{
    enum { A_NODE = 256 };
    uint64_t bytes = 0;
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = card_of(r) || planned_card(r) ? 0 : pl__run_programs(r, programs);
    for (int i = 0; i < n; i++) {
        const pl_plan_info *p = pl_program_plan(programs[i]);
        if (p->minimum_bytes && p->minimum_bytes < p->arena_bytes) bytes += (uint64_t)p->nodes * A_NODE;
    }
    return bytes;
}

/* Plans for what the budget leaves to the arena. A budget for which no plan is found leaves the
 * last plans as they are: pl_run_memory_get tells that they do not fit. */
static pl_status fit_arena(pl_run *r, uint64_t arena)
{
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    for (int i = 0; i < n; i++) {
        if (pl_program_plan(programs[i])->arena_bytes <= arena) continue;
        PL_TRY(pl_program_refit(programs[i], arena ? arena : 1));
    }
    return PL_OK;
}

/* Bytes on the card that inputs pass through. */
static uint64_t stage_of(const pl_run *r)
{
    uint64_t most = 0;
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    for (int i = 0; i < n; i++)
        if (pl_program_stage_bytes(programs[i]) > most) most = pl_program_stage_bytes(programs[i]);
    return most;
}

/* Host memory for data, pictures and files, which pl_run_start will take; a card's budget does not count it. */
static uint64_t reading_bytes(const pl_run *r)
{
    return pl_supply_bytes(r) + (card_of(r) ? 0 : pl__sample_bytes(r) + pl__stage_slots_bytes(r));
}

/* What is left for the arena when everything else is taken off; 0 when that is nothing. */
static uint64_t arena_room(const pl_run *r, uint64_t margin)
{
    uint64_t budget = budget_of(r);
    uint64_t taken = pl_program_plan(r->train)->state_bytes + used_bytes(r) + stage_of(r) +
                     reading_bytes(r) + margin;
    return budget > taken ? budget - taken : 0;
}

/* Lets go of what planning alone needs: it is no part of the process that trains. */
static void settle(pl_run *r)
{
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    for (int i = 0; i < n; i++) pl_program_settle(programs[i]);
    pl_sys_trim();
}

/* Room with the whole margin and with the least, and whether the plan fits: of all ranks the least, so
 * that they make the same plan. */
static pl_status look_at_room(pl_run *r, uint64_t room[3])
{
    room[0] = arena_room(r, margin_of(r, false));
    room[1] = arena_room(r, margin_of(r, true));
    room[2] = pl_run_memory_get(r).fits;
    for (int i = 0; i < 3; i++) PL_TRY(pl__ranks_least(r, &room[i]));
    return PL_OK;
}

/* Planning itself takes memory, so what is left is measured again after it. A plan is taken only with
 * the whole margin: the part of it that a budget may shrink is for what changes between this look and
 * the next one. Where no plan leaves the whole margin, a plan that leaves the least does. */
static pl_status fit_budget(pl_run *r)
{
    if (!budget_of(r)) return PL_OK;
    pl_status rc = PL_OK;
    for (int round = 0; round < 4; round++) {
        uint64_t room[3];
        PL_TRY(look_at_room(r, room));
        if (arena_of(r, false) <= room[0]) break;
        rc = fit_arena(r, room[0]);
        bool tight = rc == PL_ERR_FIT;
        if (tight && !room[2]) rc = fit_arena(r, room[1]);
        else if (tight) rc = PL_OK;
        settle(r);
        PL_TRY(look_at_room(r, room));
        if (rc != PL_OK || (tight && room[2])) break;
    }
    if (rc != PL_ERR_FIT) return rc;
    r->unfit = pl_arena_strdup(&r->arena, pl_error_text());
    return r->unfit ? PL_OK : PL_ERR_MEMORY;
}

/* What an earlier build left, its slots too: one that does not accumulate has no accumulators. */
static pl_status drop_build(pl_run *r)
{
    pl__turns_free(r);
    r->unfit = NULL;
    r->fitted = false;
    if (r->parts == 0) return PL_OK;
    pl_store_free(r->store);
    r->store = pl_store_new();
    return r->store ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl__run_build_parts(pl_run *r, int64_t parts)
{
    PL_TRY(drop_build(r));
    r->parts = parts;
    r->micro = pl_config_int(r->config, "batch") / (parts * pl__ranks(r));
    pl_optim unused;
    pl_status rc = pl__variants_build(r);
    if (rc != PL_OK) pl__turns_free(r);
    PL_TRY(rc);
    PL_TRY(pl__optim_from_config(r->config, "optim", &unused, &r->plateau));
    pl_sys_trim();
    /* Compiled kernels are part of what a card holds. */
    if (card_of(r) && card_of(r)->ready) PL_TRY(card_of(r)->ready());
    return fit_budget(r);
}

/* A batch is split only where that changes nothing, or where the user says so. */
static pl_status build_asked(pl_run *r, int64_t parts)
{
    const char *why = NULL;
    if (parts > 1 && !pl_config_bool(r->config, "accumulate_coupled"))
        PL_TRY(pl__run_couples(r, parts, &why));
    PL_FAIL_IF(why, PL_ERR_CONFIG,
               "accumulate: %lld would not train as batch: %lld does, its samples couple (%s); set "
               "accumulate: 1, or accumulate_coupled: true to split it all the same",
               (long long)parts, (long long)pl_config_int(r->config, "batch"), why);
    return pl__run_build_parts(r, parts);
}

/* accumulate: auto of a run that goes on: the split it had, so that it has the same bits, whatever is
 * known by now of the times that kernels take. *fits is false when the budget has become too small. */
static pl_status build_as_before(pl_run *r, bool *fits)
{
    if (pl_config_int(r->config, "batch") % r->resume_parts) return PL_OK;
    PL_TRY(pl__run_build_parts(r, r->resume_parts));
    *fits = pl_run_memory_get(r).fits;
    return PL_OK;
}

static pl_status build(pl_run *r)
{
    int64_t parts;
    PL_TRY(pl__accumulate_asked(r->config, &parts));
    if (r->encode) parts = 1;
    bool fits = false;
    if (!parts && r->resume_parts) PL_TRY(build_as_before(r, &fits));
    while (!fits) {
        PL_TRY(parts ? build_asked(r, parts) : pl__run_build_auto(r));
        fits = !pl__ranks_share_more(r);
    }
    r->fitted = pl_run_memory_get(r).fits;
    return r->fitted ? PL_OK : pl_run_find_minimum(r);
}

typedef struct opening {
    char name[64];
    const pl_device *device; /* NULL: it cannot be opened */
} opening;

/* What fails here fails again, and is told, where the device is needed. */
static void *open_device(void *ctx)
{
    opening *o = ctx;
    if (pl_device_find(o->name, &o->device) != PL_OK) o->device = NULL;
    return NULL;
}

/* A process that ends for another reason must not end while its card is being opened: libraries' own ends would
 * take away what the threads use. The message of that other reason stays. */
static pl_status wait_for_device(const pl_device *device, pl_status rc)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", pl_error_text());
    pl_status ignored = device->ready();
    (void)ignored;
    return pl__fail(rc, __FILE__, __LINE__, "%s", text);
}

/* A card's libraries take as long to load as graphs take to build, so both are done at once. */
pl_status pl_run_build(pl_run *r)
{
    opening o = {.device = NULL};
    pthread_t opener;
    PL_TRY(pl__ranks_configure(r));
    snprintf(o.name, sizeof o.name, "%s", pl_config_text(r->config, "device"));
    bool card = strncmp(o.name, "cuda", 4) == 0 && pl__ranks(r) == 1;
    bool beside = card && pthread_create(&opener, NULL, open_device, &o) == 0;
    pl_status rc = build(r);
    if (beside) pthread_join(opener, NULL);
    return rc != PL_OK && o.device && o.device->ready ? wait_for_device(o.device, rc) : rc;
}

pl_status pl_run_find_minimum(pl_run *r)
{
    uint64_t arena;
    PL_FAIL_IF(!r->train, PL_ERR_ARG, "the run is not built");
    PL_TRY(find_minimum(r, &arena));
    pl_sys_trim();
    return PL_OK;
}

const pl_program *pl_run_train_program(const pl_run *r)
{
    return r->train;
}

const pl_program *pl_run_eval_program(const pl_run *r)
{
    return r->eval;
}

const pl_program *pl_run_apply_program(const pl_run *r)
{
    return r->apply;
}

pl_run_split pl_run_split_get(const pl_run *r)
{
    return (pl_run_split){r->micro, r->parts, r->micro * r->parts * pl__ranks(r), r->coupled, pl__ranks(r)};
}

double pl_run_predicted_ms(const pl_run *r)
{
    return pl__turns_ms(r, r->turn, r->n_turns);
}

pl_run_memory pl_run_memory_get(const pl_run *r)
{
    pl_run_memory m = {0};
    if (r->session) {
        m.arena = pl_session_arena_bytes(r->session);
        m.state = pl_session_state_bytes(r->session);
    } else if (r->train) {
        m.arena = arena_of(r, false);
        m.state = pl_program_plan(r->train)->state_bytes;
    }
    uint64_t used = used_bytes(r), mapped = r->session ? m.arena + m.state : 0;
    uint64_t base = used > mapped ? used - mapped : 0, planned = m.arena + m.state;
    if (!r->session) base += stage_of(r) + reading_bytes(r);
    m.overhead = base + margin_of(r, false);
    uint64_t least = r->train ? arena_of(r, true) + replan_bytes(r) : 0;
    m.minimum = m.state + m.overhead + (least < m.arena ? least : m.arena);
    m.budget = budget_of(r);
    if (m.budget && m.budget < planned + m.overhead &&
        m.budget >= planned + base + margin_of(r, true))
        m.overhead = m.budget - planned;
    m.total = planned + m.overhead;
    m.fits = m.budget == 0 || m.total <= m.budget;
    return m;
}

/* A driver takes its time to answer, and nothing is allocated between steps: it is asked now and then. */
uint64_t pl_run_used_bytes(pl_run *r)
{
    enum { OFTEN = 200000000 }; /* ns */
    uint64_t now = pl_sys_now_ns();
    if (card_of(r) && r->used_asked && now - r->used_asked < OFTEN) return r->used;
    r->used = used_bytes(r);
    r->used_asked = now;
    if (r->used > r->most_used) r->most_used = r->used;
    return r->used;
}

uint64_t pl_run_peak_used_bytes(pl_run *r)
{
    r->used_asked = 0;
    pl_run_used_bytes(r);
    return card_of(r) ? r->most_used : pl_sys_peak_rss_bytes();
}

int64_t pl_run_parameters(const pl_run *r, bool trainable_only)
{
    return pl_nn_count(r->store, NULL, trainable_only);
}

/* ---- starting --------------------------------------------------------------------------- */
static pl_status seed_random_key(pl_run *r)
{
    int slot = pl_store_find(r->store, "rng");
    int64_t seed = pl_config_int(r->config, "seed");
    return slot < 0 ? PL_OK : pl_session_write_slot(r->session, slot, 0, &seed, sizeof seed);
}

/* PL_ERR_FIT when the budget is too small. */
static pl_status check_fits(const pl_run *r)
{
    pl_run_memory m = pl_run_memory_get(r);
    char a[32], b[32];
    if (!m.fits) {
        snprintf(a, sizeof a, "%.2f MiB", (double)m.total / 0x1p20);
        snprintf(b, sizeof b, "%.2f MiB", (double)m.budget / 0x1p20);
        PL_FAIL(PL_ERR_FIT,
                "training needs %s, the budget is %s: the smallest budget is %llu bytes; or lower "
                "batch (now %lld)%s%s%s%s%s",
                a, b, (unsigned long long)m.minimum,
                (long long)pl_config_int(r->config, "batch"), r->unfit ? " (" : "",
                r->unfit ? r->unfit : "", r->unfit ? ")" : "",
                r->coupled ? "; accumulate: auto cannot split the batch, its samples couple: " : "",
                r->coupled ? r->coupled : "");
    }
    return PL_OK;
}

/* On a card making a session loads kernels, and may load more than the margin has room for. What is loaded stays, so a second plan knows it. */
static pl_status open_session(pl_run *r, int n, pl_program *const *programs)
{
    const pl_device *card = card_of(r);
    for (int attempt = 0;; attempt++) {
        PL_TRY(check_fits(r));
        pl_run_memory m = pl_run_memory_get(r);
        for (int i = 0; i < n; i++) pl_program_settle(programs[i]);
        if (card) PL_TRY(card->room(m.arena + m.state + stage_of(r)));
        PL_TRY(pl_session_new(r->store, n, programs, &r->session));
        uint64_t used = card ? card->used_bytes() : 0;
        if (!m.budget || used <= m.budget) return PL_OK;
        pl_session_free(r->session);
        r->session = NULL;
        PL_FAIL_IF(attempt, PL_ERR_FIT,
                   "the card's driver says that this process holds %llu bytes, the budget is %llu",
                   (unsigned long long)used, (unsigned long long)m.budget);
        PL_TRY(fit_budget(r));
    }
}

static pl_status start(pl_run *r)
{
    pl_program *programs[PL_MAX_PROGRAMS];
    int n = pl__run_programs(r, programs);
    PL_TRY(open_session(r, n, programs));
    PL_TRY(pl_session_init(r->session, (uint64_t)pl_config_int(r->config, "seed")));
    PL_TRY(seed_random_key(r));
    PL_TRY(pl__stage_slots(r));
    PL_TRY(pl__sample_start(r));
    const char *from = r->encode ? "data.cache_model" : "init_from";
    if (!r->resume && !pl_config_is_null(r->config, from))
        PL_TRY(pl_run_load_model(r, pl_config_text(r->config, from), r->encode));
    if (!r->resume && !r->replay) PL_TRY(pl__weights_load(r));
    if (r->encode) PL_TRY(pl__cache_check_reader(r));
    if (!r->resume && r->take_from) PL_TRY(pl__phase_take(r));
    if (r->replay) return PL_OK;
    return pl_supply_open(r);
}

pl_status pl_run_start(pl_run *r)
{
    PL_TRY(start(r));
    PL_TRY(pl__phase_check_data(r));
    PL_TRY(pl__ranks_check(r));
    return r->resume ? pl__checkpoint_load(r, r->resume) : PL_OK;
}

int64_t pl__run_samples(pl_run *r)
{
    return pl_supply_size(r, PL_SUBSET_TRAIN);
}

/* ---- steps ------------------------------------------------------------------------------ */
/* NaN if there is no such output. */
static double scalar_output(pl_run *r, pl_program *p, const char *name)
{
    pl_type t;
    const void *x = pl_session_output(r->session, p, name, &t);
    return x ? pl_elem_get(t.dtype, x, 0) : (double)NAN;
}

/* The program that updates from the training program's gradients. */
static pl_program *updater(const pl_run *r)
{
    return r->apply ? r->apply : r->train;
}

/* A model may hide its NaNs from the loss (nan_to_num); the gradient's norm, where it is computed,
 * shows them. */
static pl_status check_numbers(pl_run *r, const pl_step_info *info, double bad)
{
    pl_type t;
    if (info->skipped) {
        float floor = (float)pl_config_float(r->config, "loss_scale.floor");
        PL_FAIL_IF((float)info->loss_scale <= floor, PL_ERR_NUMERIC,
                   "step %lld: gradients are not finite in fp16 though the loss scale is at its floor "
                   "of %g (the loss is %g); lower optim.lr (now %g), or set precision=bf16",
                   (long long)info->step, info->loss_scale, info->loss, info->lr);
        return PL_OK;
    }
    PL_FAIL_IF(bad > 0, PL_ERR_NUMERIC,
               "step %lld: %.0f of the network's outputs are not finite; lower optim.lr (now %g) or "
               "set clip.norm",
               (long long)info->step, bad, info->lr);
    PL_FAIL_IF(!isfinite(info->loss), PL_ERR_NUMERIC,
               "step %lld: the loss is %g; lower optim.lr (now %g) or set clip.norm",
               (long long)info->step, info->loss, info->lr);
    PL_FAIL_IF(!isfinite(info->grad_norm) &&
                   pl_session_output(r->session, updater(r), "grad_norm", &t),
               PL_ERR_NUMERIC,
               "step %lld: the gradient's norm is %g while the loss is %g; lower optim.lr (now %g)",
               (long long)info->step, info->grad_norm, info->loss, info->lr);
    return PL_OK;
}

/* The samples of micro-batch `part` of a step (the first is 0) into a program's inputs. */
static pl_status read_part(pl_run *r, pl_program *p, int64_t step, int64_t part)
{
    return pl_supply_read(r, p, step * r->parts + part);
}

/* While a card works, the next batch is read; one that the workers have not finished is waited for
 * when its turn comes. One that cannot be read is no error of this step: it is read again, and told,
 * when its turn comes. */
static void read_ahead(pl_run *r, const pl_turn *t, int64_t part)
{
    int64_t step = r->steps_done, next = part + 1;
    if (!card_of(r)) return;
    if (next == r->parts) {
        next = 0;
        t = pl__turn_next(r, t, &step);
    }
    pl_program *p = pl__variant_turns(r, pl_supply_bucket(r, step))[t - r->turn].run;
    r->ahead = pl_supply_ready(r, step * r->parts + next) && read_part(r, p, step, next) == PL_OK &&
               pl_session_send(r->session, p) == PL_OK;
}

/* How long a card that was started at `began` and worked for device_ms stood still because the host was
 * reading from `from` to `to`. */
static double waited_ms(uint64_t began, uint64_t from, uint64_t to, double device_ms)
{
    double read = 1e-6 * (double)(to - from), beyond = 1e-6 * (double)(to - began) - device_ms;
    return beyond < 0 ? 0 : beyond < read ? beyond : read;
}

static pl_status micro_step(pl_run *r, const pl_turn *t, int64_t part, pl_step_info *info)
{
    uint64_t t0 = pl_sys_now_ns();
    if (!r->ahead) PL_TRY(read_part(r, t->run, r->steps_done, part));
    r->ahead = false;
    uint64_t began = pl_sys_now_ns();
    info->data_ms += 1e-6 * (double)(began - t0);
    PL_TRY(pl_session_run(r->session, t->run));
    uint64_t from = pl_sys_now_ns();
    read_ahead(r, t, part);
    uint64_t to = pl_sys_now_ns();
    PL_TRY(pl_session_wait(r->session));
    pl__turn_terms(r, t, info);
    double device_ms = pl_session_device_ms(r->session, t->run);
    info->device_ms += device_ms;
    if (card_of(r)) info->data_ms += waited_ms(began, from, to, device_ms);
    return PL_OK;
}

/* All micro-batches of one program, and its update. */
static pl_status take_turn(pl_run *r, const pl_turn *t, pl_step_info *info)
{
    for (int64_t part = 0; part < r->parts; part++) PL_TRY(micro_step(r, t, part, info));
    if (!t->apply) return PL_OK;
    PL_TRY(pl_session_run(r->session, t->apply));
    PL_TRY(pl_session_wait(r->session));
    info->device_ms += pl_session_device_ms(r->session, t->apply);
    return PL_OK;
}

void pl_run_trace_nan(pl_run *r, bool on)
{
    r->trace_nan = on;
    if (r->session) pl_session_watch(r->session, on);
}

/* trace_nan: adds to a numeric failure where it began; weights that are not finite are one. */
static pl_status trace_numbers(pl_run *r, const pl_step_info *info, pl_status rc)
{
    char text[512];
    int slot = -1;
    const char *found = pl_session_found(r->session);
    if (rc == PL_OK && !info->skipped) PL_TRY(pl_session_bad_slot(r->session, &slot));
    if ((rc != PL_OK && rc != PL_ERR_NUMERIC) || (rc == PL_OK && slot < 0)) return rc;
    snprintf(text, sizeof text, "step %lld: %s is not finite after the update",
             (long long)info->step, slot >= 0 ? pl_store_slot(r->store, slot)->name : "");
    if (rc != PL_OK) snprintf(text, sizeof text, "%s", pl_error_text());
    PL_FAIL(PL_ERR_NUMERIC, "%s; the first value that is not finite: %s", text,
            found ? found : "none of this step's own, look at its inputs");
}

/* What the training program's update tells, before a later program takes the arena. */
static void read_update(pl_run *r, pl_step_info *info)
{
    info->lr = scalar_output(r, updater(r), "lr");
    info->grad_norm = scalar_output(r, updater(r), "grad_norm");
    info->loss_scale = scalar_output(r, updater(r), "loss_scale");
    info->skipped = scalar_output(r, updater(r), "skipped") > 0;
}

/* Of all micro-batches; NaN if the training program has no such output. Its terms were read before the update took
 * the arena. */
static double nonfinite_outputs(const pl_run *r, const pl_step_info *info)
{
    for (int i = 0; i < info->n_terms; i++)
        if (strcmp(info->term_name[i], "nonfinite") == 0) return info->term[i] * (double)r->parts;
    return (double)NAN;
}

pl_status pl_run_step(pl_run *r, pl_step_info *info)
{
    int64_t size = pl_supply_size(r, PL_SUBSET_TRAIN);
    uint64_t t0 = pl_sys_now_ns();
    memset(info, 0, sizeof *info);
    pl__variant_select(r, pl_supply_bucket(r, r->steps_done));
    if (r->trace_nan) pl_session_watch(r->session, true);
    for (int i = 0; i < r->n_turns; i++) {
        if (!pl__turn_runs(&r->turn[i], r->steps_done)) continue;
        PL_TRY(take_turn(r, &r->turn[i], info));
        if (r->turn[i].run == r->train) read_update(r, info);
    }
    double bad = nonfinite_outputs(r, info);
    r->steps_done++;
    info->step = pl_run_steps_done(r);
    info->epoch = size > 0 ? (double)(r->steps_done * pl__run_batch(r)) / (double)size : 0;
    info->step_ms = 1e-6 * (double)(pl_sys_now_ns() - t0);
    PL_TRY(pl__ranks_terms(r, info, &bad));
    pl_status rc = check_numbers(r, info, bad);
    return r->trace_nan ? trace_numbers(r, info, rc) : rc;
}

/* How many of the `left` last samples a program of `micro` rows takes so that its means are theirs:
 * each stands in it equally often. The largest divisor of micro that is not above left. */
static int64_t rows_at_once(int64_t micro, int64_t left)
{
    int64_t k = micro < left ? micro : left;
    while (micro % k) k--;
    return k;
}

/* The samples of one bucket, of `total` in all: adds their share to the means. */
static pl_status eval_bucket(pl_run *r, int bucket, int64_t total, pl_eval_info *info)
{
    pl_program *p = pl__variant_eval(r, bucket);
    int64_t rows = pl_supply_eval_rows(r, bucket, total);
    int64_t number = 0, ranks = pl__ranks(r); /* ranks take turns; all run the program equally often */
    for (int64_t at = 0, k; at < rows || number % ranks; at += k, number++) {
        PL_FAIL_IF(r->stop && *r->stop, PL_ERR_STOPPED, "the evaluation was stopped");
        k = at < rows ? rows_at_once(r->micro, rows - at) : 0;
        if (number % ranks != r->ranks.rank) continue;
        if (at == 0 || ranks > 1) PL_TRY(pl_supply_eval(r, bucket, k ? at : 0, k ? k : 1));
        PL_TRY(pl_session_run(r->session, p));
        /* A card works on this batch while the next is read. */
        int64_t left = ranks > 1 ? 0 : rows - at - k;
        if (card_of(r) && left) PL_TRY(pl_supply_eval(r, bucket, at + k, rows_at_once(r->micro, left)));
        PL_TRY(pl_session_wait(r->session));
        for (int i = 0; i < info->n; i++)
            info->value[i] += scalar_output(r, p, info->name[i]) * ((double)k / (double)total);
        if (!card_of(r) && left) PL_TRY(pl_supply_eval(r, bucket, at + k, rows_at_once(r->micro, left)));
    }
    return PL_OK;
}

pl_status pl_run_eval(pl_run *r, pl_eval_info *info)
{
    memset(info, 0, sizeof *info);
    if (!r->eval || pl_supply_lacks(r, PL_SUBSET_EVAL)) return PL_OK;
    for (int i = 0; i < pl_program_output_count(r->eval) && i < PL_MAX_METRICS; i++)
        info->name[info->n++] = pl_program_output_name(r->eval, i);
    int64_t batch = pl__run_batch(r), size = pl_supply_size(r, PL_SUBSET_EVAL);
    int64_t total = pl_config_int(r->config, "eval.batches") * batch;
    if (size > 0 && total > size) total = size;
    for (int k = 0; k < pl__variant_count(r); k++) PL_TRY(eval_bucket(r, k, total, info));
    PL_TRY(pl__ranks_sum(r, info->value, info->n));
    info->batches = (int)((total + batch - 1) / batch);
    info->samples = total;
    if (r->recipe->derive)
        info->n += r->recipe->derive(info->name, info->value, info->n, info->name + info->n,
                                     info->value + info->n, PL_MAX_METRICS - info->n);
    return PL_OK;
}

bool pl_run_plateau(pl_run *r, double metric)
{
    int slot = pl_store_find(r->store, "lr.plateau");
    if (slot < 0 || !r->session) return false;
    double state[4];
    if (pl_session_read_slot(r->session, slot, 0, state, sizeof state) != PL_OK) return false;
    bool lowered = pl_plateau_step(&r->plateau, state, metric);
    return pl_session_write_slot(r->session, slot, 0, state, sizeof state) == PL_OK && lowered;
}
