/* run_open.c - opens a run: finds the recipe by name, loads its preset or file, and applies the
 * overrides. All keys are checked here, so that later stages only read them. */
#include "base/str.h"
#include "base/sys.h"
#include "base/threads.h"
#include "base/trust/sandbox.h"
#include "rt/device.h"
#include "train/data/prefetch.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Returns a preset's text of a recipe, by "recipe/preset" or, inside the recipe's own files,
 * "preset". */
static const char *preset_text(void *ctx, const char *name)
{
    const pl_recipe *own = ctx;
    const char *slash = strrchr(name, '/');
    const pl_recipe *r = own;
    if (slash) {
        size_t n = (size_t)(slash - name);
        bool is_own = own && strlen(own->name) == n && memcmp(own->name, name, n) == 0;
        for (int i = 0; !is_own && i < pl_recipe_count(); i++)
            if (strlen(pl_recipe_at(i)->name) == n && memcmp(pl_recipe_at(i)->name, name, n) == 0)
                r = pl_recipe_at(i), is_own = true;
        if (!is_own) return NULL;
    }
    const char *preset = slash ? slash + 1 : name;
    for (const pl_preset *p = r ? r->presets : NULL; p && p->name; p++)
        if (strcmp(p->name, preset) == 0) return p->yaml;
    return NULL;
}

/* A compiled recipe has all members that the engine needs. */
static pl_status check_recipe(const pl_recipe *r, const char *path)
{
    PL_FAIL_IF(!r->name || !r->name[0], PL_ERR_CONFIG, "%s: its pl_recipe has no name: set .name",
               path);
    PL_FAIL_IF(!r->build, PL_ERR_CONFIG,
               "%s: recipe %s has no build function: set .build, which makes its programs", path,
               r->name);
    PL_FAIL_IF(r->encoder && !r->encoder->build, PL_ERR_CONFIG,
               "%s: the encoder of recipe %s has no build function", path, r->name);
    const pl_image_feed *f = r->images;
    PL_FAIL_IF(
        f && f->made && (!f->make || !f->make_open || !f->make_close || !f->make_bytes),
        PL_ERR_CONFIG,
        "%s: recipe %s sets made, so it must also set make, make_open, make_close and make_bytes",
        path, r->name);
    for (const pl_preset *p = r->presets; p && p->name; p++)
        PL_FAIL_IF(!p->yaml, PL_ERR_CONFIG, "%s: preset %s of recipe %s has no text", path, p->name,
                   r->name);
    return PL_OK;
}

/* A network in a file that is not a program: the recipe `onnx` reads it; key `recipe` keeps its
 * full path. */
static pl_status open_network(pl_run *r, const char *path)
{
    char *real = realpath(path, NULL);
    PL_FAIL_IF(!real, PL_ERR_CONFIG, "cannot open the network %s: %s", path, strerror(errno));
    r->library.path = pl_arena_strdup(&r->arena, real);
    free(real);
    r->recipe = pl_recipe_find("onnx");
    return r->library.path ? PL_OK : PL_ERR_MEMORY;
}

static pl_status open_library(pl_run *r, const char *path)
{
    char full[4096];
    bool plain = strchr(path, '/') == NULL;
    int n = snprintf(full, sizeof full, "%s%s", plain ? "./" : "", path);
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof full, PL_ERR_CONFIG, "path too long");
    struct stat st; /* dlopen waits for a pipe */
    PL_FAIL_IF(stat(full, &st) == 0 && !S_ISREG(st.st_mode), PL_ERR_CONFIG,
               "cannot load recipe %s: not a regular file", path);
    r->library.handle = dlopen(full, RTLD_NOW | RTLD_LOCAL);
    PL_FAIL_IF(!r->library.handle, PL_ERR_CONFIG, "cannot load recipe %s: %s", path, dlerror());
    pl_recipe_entry_fn entry;
    void *symbol = dlsym(r->library.handle, "pl_recipe_entry");
    PL_FAIL_IF(!symbol, PL_ERR_CONFIG, "%s is not a recipe: it has no pl_recipe_entry", path);
    memcpy(&entry, &symbol, sizeof entry);
    const pl_recipe *recipe = entry();
    PL_FAIL_IF(!recipe || recipe->abi != PL_RECIPE_ABI, PL_ERR_CONFIG,
               "%s was built for recipe interface %d, this program has %d: build it again", path,
               recipe ? recipe->abi : 0, PL_RECIPE_ABI);
    PL_TRY(check_recipe(recipe, path));
    r->recipe = recipe;
    char *real = realpath(full, NULL);
    r->library.path = real ? pl_arena_strdup(&r->arena, real) : NULL;
    free(real);
    return r->library.path || errno != ENOMEM ? PL_OK : PL_ERR_MEMORY;
}

static bool ends_with(const char *text, size_t n, const char *tail)
{
    size_t m = strlen(tail);
    return n >= m && memcmp(text + n - m, tail, m) == 0;
}

/* Writes "; did you mean X?" for the recipe (NULL: all) whose name or preset is nearest, or "". */
static void suggest_recipe(const pl_recipe *only, const char *name, char *buf, size_t cap)
{
    enum { MOST = 256, LONGEST = 96 };
    static _Thread_local char text[MOST][LONGEST];
    const char *names[MOST];
    int n = 0;
    for (int i = only ? -1 : 0; i < (only ? 0 : pl_recipe_count()); i++) {
        const pl_recipe *r = only ? only : pl_recipe_at(i);
        if (n < MOST) snprintf(text[n++], LONGEST, "%s", r->name);
        for (const pl_preset *p = r->presets; p && p->name && n < MOST; p++)
            snprintf(text[n++], LONGEST, "%s/%s", r->name, p->name);
    }
    for (int i = 0; i < n; i++) names[i] = text[i];
    int best = pl_text_nearest(name, names, n);
    buf[0] = 0;
    if (best >= 0) snprintf(buf, cap, "; did you mean %s?", names[best]);
}

/* Fails if the name is not a recipe, or if the recipe r has no such preset. */
static pl_status unknown_recipe(const pl_recipe *r, const char *name)
{
    char list[512] = "", near[128];
    suggest_recipe(r, name, near, sizeof near);
    for (const pl_preset *p = r ? r->presets : NULL; p && p->name; p++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", p->name);
    }
    for (int i = 0; !r && i < pl_recipe_count(); i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", pl_recipe_at(i)->name);
    }
    PL_FAIL_IF(r, PL_ERR_CONFIG, "recipe %s has no preset \"%s\"%s (its presets: %s)", r->name,
               name, near, list[0] ? list : "none");
    PL_FAIL(
        PL_ERR_CONFIG,
        "no recipe, preset or file \"%s\"%s (built-in recipes: %s; plimsoll recipes lists their "
        "presets)",
        name, near, list);
}

/* Finds the recipe of a name and the preset to load; *preset points into static text. */
static pl_status resolve_recipe(pl_run *r, const char *name, const char **preset)
{
    size_t n = strlen(name);
    const char *slash = strrchr(name, '/');
    *preset = NULL;
    if (ends_with(name, n, ".onnx")) return open_network(r, name);
    if (ends_with(name, n, ".so")) {
        PL_TRY(open_library(r, name));
    } else if (slash && ends_with(name, (size_t)(slash - name), ".so")) {
        char *path = pl_arena_strndup(&r->arena, name, (size_t)(slash - name));
        if (!path) return PL_ERR_MEMORY;
        PL_TRY(open_library(r, path));
        *preset = slash + 1;
    } else {
        const char *plain = pl_arena_strndup(&r->arena, name, slash ? (size_t)(slash - name) : n);
        if (!plain) return PL_ERR_MEMORY;
        r->recipe = pl_recipe_find(plain);
        if (slash) *preset = slash + 1;
    }
    if (!r->recipe) return unknown_recipe(NULL, name);
    if (!*preset && r->recipe->presets) *preset = r->recipe->presets[0].name;
    if (*preset && !preset_text(pl__unconst(r->recipe), *preset))
        return unknown_recipe(r->recipe, name);
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
    pl_config_set_hints(*out, pl__foreign_hint, pl__unconst(r->recipe));
    return PL_OK;
}

static pl_status make_config(pl_run *r)
{
    return pl__run_config_new(r, &r->config);
}

pl_status pl__run_config_copy(pl_run *r, const pl_config *from, pl_config **out)
{
    char *text;
    PL_TRY(pl__run_config_new(r, out));
    PL_TRY(pl_config_print(from, &text));
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
    PL_FAIL_IF(
        !recipe, PL_ERR_CONFIG,
        "%s: the key `recipe` is missing: which network is this for? (recipe: cloud); `plimsoll "
        "convert` reads configurations of other programs",
        path);
    /* A compiled recipe or a network is searched in the folder of the file that names it. */
    const char *slash = strrchr(path, '/');
    bool network = ends_with(recipe, strlen(recipe), ".onnx");
    bool beside = slash && (network || strstr(recipe, ".so")) && recipe[0] != '/';
    char *name = beside
                     ? pl_arena_printf(&r->arena, "%.*s%s", (int)(slash - path) + 1, path, recipe)
                     : pl_arena_strdup(&r->arena, recipe);
    pl_text_free(recipe);
    if (!name) return PL_ERR_MEMORY;
    PL_TRY(resolve_recipe(r, name, &preset));
    PL_TRY(make_config(r));
    if (strchr(name, '/') && !network && !ends_with(name, strlen(name), ".so"))
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
    r->compile.fp32 = strcmp(pl_config_text(r->config, "compile.fp32"), "plain") == 0
                          ? PL_FP32_PLAIN
                          : PL_FP32_SPLIT;
}

/* The recipe decides which keys exist, so the configuration chooses it, not an override. */
static pl_status check_override(const pl_run *r, const char *assignment)
{
    const char *name = assignment + strlen("recipe=");
    if (strncmp(assignment, "recipe=", strlen("recipe=")) != 0) return PL_OK;
    PL_FAIL_IF(strcmp(name, r->recipe->name) != 0, PL_ERR_CONFIG,
               "%s: an override cannot change the recipe, which is %s; name another configuration "
               "instead (plimsoll recipes lists them)",
               assignment, r->recipe->name);
    return PL_OK;
}

static pl_status override(pl_run *r, const char *assignment)
{
    PL_TRY(check_override(r, assignment));
    PL_TRY(pl_config_override(r->config, assignment));
    return pl__phases_yield(r->config);
}

/* Replaces the name of a compiled recipe or of a network by its full path, so that the
 * configuration that a run folder keeps works from any folder. */
static pl_status place_library(pl_run *r)
{
    const char *path = r->library.path;
    if (!path) return PL_OK;
    char *text = pl_arena_new(&r->arena, char, 2 * strlen(path) + 16), *to = text;
    if (!text) return PL_ERR_MEMORY;
    to += sprintf(to, "recipe=\"");
    for (; *path; path++) {
        if (*path == '"' || *path == '\\') *to++ = '\\';
        *to++ = *path;
    }
    memcpy(to, "\"", 2);
    return pl_config_override(r->config, text);
}

static pl_status call_adapt(void *ctx)
{
    pl_run *r = ctx;
    pl_recipe *own = pl_arena_new(&r->arena, pl_recipe, 1);
    if (!own) return PL_ERR_MEMORY;
    *own = *r->recipe;
    r->recipe = own;
    return own->adapt(r->config, own);
}

/* Key `card`: where the GPU of the configuration cannot be used, a profile of the card that the
 * configuration is meant for takes its place, which can be planned for. A device that the caller
 * names is not replaced. */
static pl_status stand_in(pl_run *r, const char *const *overrides, int n)
{
    char text[96];
    uint64_t total, available;
    const char *device = pl_config_text(r->config, "device");
    if (pl_config_is_null(r->config, "card")) return PL_OK;
    const char *card = pl_config_text(r->config, "card");
    PL_FAIL_IF(!pl_device_profile(card), PL_ERR_CONFIG,
               "card: \"%s\" is not a known GPU (plimsoll devices --profiles lists the known ones)",
               card);
    for (int i = 0; i < n; i++)
        if (strncmp(overrides[i], "device=", 7) == 0) return PL_OK;
    if (!pl_device_is_plugged(device) || pl_device_memory(device, &total, &available)) return PL_OK;
    r->absent = pl_arena_strdup(&r->arena, device);
    if (!r->absent) return PL_ERR_MEMORY;
    snprintf(text, sizeof text, "device=%s", card);
    return pl_config_override(r->config, text);
}

pl_status pl_run_open(const char *config, const char *const *overrides, int n, pl_run **out)
{
    pl_run *r = pl_sys_alloc(sizeof *r);
    if (!r) return PL_ERR_MEMORY;
    r->compile = (pl_compile_opts)PL_COMPILE_INIT;
    r->phases.now = -1;
    pl_status rc = is_file(config) ? open_file(r, config) : open_named(r, config);
    for (int i = 0; i < n && rc == PL_OK; i++) rc = override(r, overrides[i]);
    if (rc == PL_OK) rc = place_library(r);
    if (rc == PL_OK) rc = pl_config_check(r->config);
    if (rc == PL_OK && r->recipe->adapt) rc = pl_config_guard(call_adapt, r);
    if (rc == PL_OK) rc = stand_in(r, overrides, n);
    if (rc == PL_OK) rc = pl__phases_read(r);
    if (rc == PL_OK && !(r->store = pl_store_new())) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl__stage_open(r);
    if (rc != PL_OK) {
        pl_run_free(r);
        return rc;
    }
    pl__run_target(r);
    if (!pl_config_is_null(r->config, "memory"))
        pl_str_bytes_follow((uint64_t)pl_config_size(r->config, "memory"));
    int threads = (int)pl_config_int(r->config, "threads");
    if (threads) pl_threads_set(threads);
    const char *apart = pl_config_text(r->config, "data.sandbox");
    pl_sandbox_set_mode(strcmp(apart, "on") == 0    ? PL_SANDBOX_ON
                        : strcmp(apart, "off") == 0 ? PL_SANDBOX_OFF
                                                    : PL_SANDBOX_AUTO);
    *out = r;
    return PL_OK;
}

void pl_run_free(pl_run *r)
{
    if (!r) return;
    const pl_device *device = pl__train(r) ? pl_program_device(pl__train(r)) : NULL;
    pl_prefetch_close(r);
    pl_session_free(r->session);
    pl__build_free(r->build);
    /* otherwise its memory would count against the next plan of this process */
    if (device && device->forget) device->forget();
    pl_store_free(r->store);
    pl_classes_free(r->data.classes);
    pl__phases_free(r);
    pl_config_free(r->config);
    pl_sys_free(r->files.stage);
    pl_sys_free(r->files.whole);
    pl_sys_free(r->grids);
    if (r->recipe && r->recipe->own) r->recipe->own_free(r->recipe->own);
    if (r->library.handle) dlclose(r->library.handle);
    pl_arena_release(&r->arena);
    pl_sys_free(r);
    pl_sys_trim();
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

const char *pl_bytes_text(uint64_t bytes, char *buf, size_t cap)
{
    return pl_str_bytes(bytes, buf, cap);
}

void pl_bytes_follow(uint64_t typed)
{
    pl_str_bytes_follow(typed);
}

bool pl_bytes_decimal(void)
{
    return pl_str_bytes_decimal();
}
