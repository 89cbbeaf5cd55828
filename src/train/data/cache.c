/* cache.c - writes the stamp of a cache and compares it with the current configuration and files;
 * see cache.h. */
#include "train/data/cache.h"

#include "base/str.h"
#include "base/sys.h"
#include "train/files/checkpoint.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FORMAT = 1, MAX_STAMP = 64 << 20, PATH = 4096 };

bool pl__cache_wanted(const pl_run *r)
{
    return r->purpose.goal != PL_GOAL_ENCODE && !pl_config_is_null(r->config, "data.cache");
}

/* Returns the stamped part of a key: as its row says or, for a key that only the encoder's pattern
 * names, by its type: a text may be a file, and a file outside of data.* has weights. */
static pl_config_cache role_of(const pl_run *r, const pl_config_entry *row)
{
    const pl_encoder *e = r->recipe->encoder;
    bool by_row = row->cache != PL_CACHE_NO && row->cache != PL_CACHE_SEED;
    if (by_row || !e || !e->keys || !pl_nn_match(e->keys, row->key)) return row->cache;
    if (row->type != PL_CONFIG_TEXT) return PL_CACHE_VALUE;
    return strncmp(row->key, "data.", 5) == 0 ? PL_CACHE_FILE : PL_CACHE_WEIGHTS;
}

pl_status pl__cache_check_config(const pl_run *r)
{
    const pl_config *c = r->config;
    int n;
    const char *random = NULL;
    if (pl_config_is_null(c, "data.cache")) return PL_OK;
    PL_FAIL_IF(!r->recipe->encoder, PL_ERR_CONFIG,
               "data.cache: recipe %s has no encoder whose outputs could be cached",
               r->recipe->name);
    if (strcmp(pl_config_text(c, "data.crop"), "random") == 0) random = "data.crop=random";
    if (pl_config_float(c, "data.flip") > 0) random = "data.flip";
    if (pl_config_float(c, "data.erase") > 0) random = "data.erase";
    if (pl_config_bool(c, "data.balance")) random = "data.balance";
    const double *jitter = pl_config_floats(c, "data.jitter", &n);
    for (int i = 0; i < n; i++)
        if (jitter[i] > 0) random = "data.jitter";
    if (!pl_config_is_null(c, "data.buckets")) random = "data.buckets";
    PL_FAIL_IF(random, PL_ERR_CONFIG,
               "%s cannot be used with data.cache: a cache holds one view of each sample, "
               "in one size, each equally often",
               random);
    return PL_OK;
}

/* ---- files that keys name -------------------------------------------------------------------- */
/* Calls each for every key that names a file of the stamp, where the file exists. */
typedef struct key_walk {
    pl_status (*each)(void *ctx, const char *key, const char *path);
    void *ctx;
    bool weights; /* only files with weights */
} key_walk;

static pl_status each_file(const pl_run *r, const key_walk *w)
{
    const pl_config_entry *tables[2] = {pl_engine_schema, r->recipe->schema};
    for (int t = 0; t < 2; t++)
        for (const pl_config_entry *e = tables[t]; e && e->key; e++) {
            struct stat st;
            pl_config_cache role = role_of(r, e);
            bool named = role == PL_CACHE_WEIGHTS || (role == PL_CACHE_FILE && !w->weights);
            if (!named || pl_config_is_null(r->config, e->key)) continue;
            const char *path = pl_config_text(r->config, e->key);
            if (stat(path, &st) == 0) PL_TRY(w->each(w->ctx, e->key, path));
        }
    return PL_OK;
}

static pl_status count_file(void *ctx, const char *key, const char *path)
{
    (void)key;
    (void)path;
    ++*(int *)ctx;
    return PL_OK;
}

bool pl__cache_seeded(const pl_run *r)
{
    int files = 0;
    return each_file(r, &(key_walk){count_file, &files, true}) == PL_OK && files == 0;
}

const char *pl__cache_weights_key(const pl_run *r)
{
    for (const pl_config_entry *e = r->recipe->schema; e && e->key; e++)
        if (role_of(r, e) == PL_CACHE_WEIGHTS) return e->key;
    return "data.cache_model";
}

static bool matters(const pl_run *r, const char *key)
{
    const pl_config_entry *row = pl_config_row(r->config, key);
    pl_config_cache role = row ? role_of(r, row) : PL_CACHE_NO;
    return role == PL_CACHE_SEED ? pl__cache_seeded(r) : role != PL_CACHE_NO;
}

/* ---- writing ----------------------------------------------------------------------------------
 */
static json_t *hex(uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)v);
    return json_string(text);
}

static json_t *stamp_json(const pl_stamp *s)
{
    json_t *o = json_object();
    json_object_set_new(o, "bytes", json_integer((json_int_t)s->bytes));
    json_object_set_new(o, "time_ns", json_integer((json_int_t)s->time_ns));
    json_object_set_new(o, "xxh64", hex(s->hash));
    return o;
}

static pl_status add_file(void *ctx, const char *key, const char *path)
{
    pl_stamp s;
    PL_TRY(pl__stamp_path(path, true, &s));
    json_object_set_new(ctx, key, stamp_json(&s));
    return PL_OK;
}

static pl_status fill(pl_run *r, const pl_cache_stamp *s, json_t *o)
{
    json_t *files = json_object(), *made = json_array();
    json_object_set_new(o, "plimsoll_cache", json_integer(FORMAT));
    json_object_set_new(o, "finished", json_boolean(s->finished));
    json_object_set_new(o, "recipe", json_string(r->recipe->name));
    json_object_set_new(o, "dtype", json_string(pl_config_text(r->config, "data.cache_dtype")));
    json_object_set_new(o, "weights_xxh64", hex(s->weights));
    json_object_set_new(o, "samples", json_integer((json_int_t)s->samples[0]));
    json_object_set_new(o, "eval_samples", json_integer((json_int_t)s->samples[1]));
    json_object_set_new(o, "files", files);
    json_object_set_new(o, "made", made);
    PL_TRY(each_file(r, &(key_walk){add_file, files, false}));
    if (!pl_config_is_null(r->config, "data.path")) {
        pl_stamp source;
        PL_TRY(pl__stamp_path(pl_config_text(r->config, "data.path"), false, &source));
        json_object_set_new(o, "source", stamp_json(&source));
    }
    for (int i = 0; i < s->n_files; i++) {
        json_t *f = json_object();
        json_object_set_new(f, "name", json_string(s->files[i].name));
        json_object_set_new(f, "bytes", json_integer((json_int_t)s->files[i].bytes));
        json_object_set_new(f, "xxh64", hex(s->files[i].hash));
        json_array_append_new(made, f);
    }
    return PL_OK;
}

static pl_status write_text(const pl_run *r, const char *name, const char *text)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", pl_config_text(r->config, "data.cache"), name);
    PL_FAIL_IF(!text, PL_ERR_MEMORY, "no memory for %s", path);
    return pl_sys_write_file(path, text, strlen(text));
}

/* cache.json marks the folder as a cache, and says whether the files are those of config.yaml: of
 * an unfinished cache it is written first, of a finished one last. A process that is killed in
 * between leaves neither a folder that no cache may use nor old files with a new configuration. */
pl_status pl__cache_stamp_write(pl_run *r, const pl_cache_stamp *s)
{
    char *config = NULL, *text = NULL;
    json_t *o = json_object();
    pl_status rc = fill(r, s, o);
    if (rc == PL_OK) rc = pl_config_print(r->config, &config);
    if (rc == PL_OK) text = json_dumps(o, JSON_INDENT(1));
    if (rc == PL_OK && !s->finished) rc = write_text(r, "cache.json", text);
    if (rc == PL_OK) rc = write_text(r, "config.yaml", config);
    if (rc == PL_OK && s->finished) rc = write_text(r, "cache.json", text);
    json_decref(o);
    free(text);
    pl_text_free(config);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------------------
 */
static pl_stamp stamp_of(const json_t *o)
{
    const char *hash = json_string_value(json_object_get(o, "xxh64"));
    return (pl_stamp){(uint64_t)json_integer_value(json_object_get(o, "bytes")),
                      (int64_t)json_integer_value(json_object_get(o, "time_ns")),
                      hash ? strtoull(hash, NULL, 16) : 0};
}

/* A comparison; why[0] is 0 until something differs. */
typedef struct check {
    pl_run *r;
    const json_t *stamp;
    char *why;
    size_t cap;
    char path[PATH]; /* of path_of */
} check;

/* Writes the path of a file of the cache to c->path. */
static void path_of(check *c, const char *name)
{
    snprintf(c->path, sizeof c->path, "%s/%s", pl_config_text(c->r->config, "data.cache"), name);
}

static void check_key(void *ctx, const char *key, const char *old_value, const char *new_value)
{
    check *c = ctx;
    if (c->why[0] || !matters(c->r, key)) return;
    snprintf(c->why, c->cap, "%s was %s, is %s", key, old_value ? old_value : "not there",
             new_value ? new_value : "not there");
}

static pl_status check_file(void *ctx, const char *key, const char *path)
{
    check *c = ctx;
    const json_t *was = json_object_get(json_object_get(c->stamp, "files"), key);
    pl_stamp stamp = stamp_of(was);
    bool same = false;
    if (c->why[0]) return PL_OK;
    if (was) PL_TRY(pl__stamp_same(path, &stamp, &same));
    if (!same) snprintf(c->why, c->cap, "%s %s has changed", key, path);
    return PL_OK;
}

static pl_status check_config(check *c)
{
    pl_config *old = NULL;
    path_of(c, "config.yaml");
    pl_status rc = pl__run_config_new(c->r, &old);
    if (rc == PL_OK && pl_config_load(old, c->path) != PL_OK)
        snprintf(c->why, c->cap, "%s cannot be read", c->path);
    else if (rc == PL_OK)
        rc = pl_config_diff(old, c->r->config, check_key, c);
    pl_config_free(old);
    return rc;
}

static pl_status check_source(check *c)
{
    const json_t *was = json_object_get(c->stamp, "source");
    pl_stamp stamp = stamp_of(was);
    bool same = false, named = !pl_config_is_null(c->r->config, "data.path");
    if (c->why[0] || (!named && !was)) return PL_OK;
    const char *path = named ? pl_config_text(c->r->config, "data.path") : "";
    if (named && was) PL_TRY(pl__stamp_same(path, &stamp, &same));
    if (!same) snprintf(c->why, c->cap, "files of %s have changed", path);
    return PL_OK;
}

/* ---- files of the cache --------------------------------------------------------------------- */
/* Compares the checksums of the files in the cache with those of the stamp. */
static pl_status check_sums(check *c, const json_t *made)
{
    for (size_t i = 0; i < json_array_size(made) && !c->why[0]; i++) {
        const json_t *f = json_array_get(made, i);
        const char *hash = json_string_value(json_object_get(f, "xxh64"));
        uint64_t bytes, sum;
        path_of(c, json_string_value(json_object_get(f, "name")));
        PL_TRY(pl__file_sum(c->path, &bytes, &sum));
        if (!hash || strtoull(hash, NULL, 16) != sum)
            snprintf(c->why, c->cap, "%s is damaged: its checksum does not match", c->path);
    }
    return PL_OK;
}

/* Reading all files takes long where the cache is large. So the cache notes the state of its files
 * (inode, size, times) after a successful check, and the next run does not check these again. */
#define CHECKED "cache.checked"

static pl_status check_made(check *c)
{
    const json_t *made = json_object_get(c->stamp, "made");
    pl_str state = PL_STR_INIT;
    for (size_t i = 0; i < json_array_size(made) && !c->why[0]; i++) {
        const json_t *f = json_array_get(made, i);
        const char *name = json_string_value(json_object_get(f, "name"));
        struct stat st;
        path_of(c, name ? name : "?");
        if (stat(c->path, &st) != 0 ||
            st.st_size != json_integer_value(json_object_get(f, "bytes"))) {
            snprintf(c->why, c->cap, "%s is missing or has changed", c->path);
            break;
        }
        pl_str_addf(&state, "%s %llu %lld.%09ld %lld.%09ld\n", name, (unsigned long long)st.st_ino,
                    (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec,
                    st.st_ctim.tv_nsec);
    }
    pl_status rc = state.failed ? PL_ERR_MEMORY : PL_OK;
    path_of(c, CHECKED);
    char *text = NULL;
    size_t n = 0;
    bool known = rc == PL_OK && access(c->path, R_OK) == 0 &&
                 pl_sys_read_file(c->path, MAX_STAMP, &text, &n) == PL_OK && n == state.len &&
                 (n == 0 || memcmp(text, state.text, n) == 0);
    pl_sys_free(text);
    if (rc == PL_OK && !c->why[0] && !known) rc = check_sums(c, made);
    path_of(c, CHECKED);
    /* a folder that cannot be written is checked by every run */
    if (rc == PL_OK && !c->why[0] && !known &&
        access(pl_config_text(c->r->config, "data.cache"), W_OK) == 0)
        (void)!pl_sys_write_file(c->path, state.text ? state.text : "", state.len);
    pl_str_release(&state);
    return rc;
}

static pl_status check_all(check *c)
{
    const char *recipe = json_string_value(json_object_get(c->stamp, "recipe"));
    if (json_integer_value(json_object_get(c->stamp, "plimsoll_cache")) != FORMAT || !recipe)
        snprintf(c->why, c->cap, "cache.json has an unknown format");
    else if (!json_is_true(json_object_get(c->stamp, "finished")))
        snprintf(c->why, c->cap, "it was not finished");
    else if (strcmp(recipe, c->r->recipe->name) != 0)
        snprintf(c->why, c->cap, "it belongs to recipe %s", recipe);
    if (c->why[0]) return PL_OK;
    PL_TRY(check_config(c));
    PL_TRY(each_file(c->r, &(key_walk){check_file, c, false}));
    PL_TRY(check_source(c));
    return check_made(c);
}

pl_status pl__cache_fresh(pl_run *r, bool *fresh, char *why, size_t cap)
{
    char *text;
    size_t n;
    check c = {.r = r, .why = why, .cap = cap};
    why[0] = 0;
    *fresh = false;
    path_of(&c, "cache.json");
    if (access(c.path, R_OK) != 0) {
        snprintf(why, cap, "there is no %s", c.path);
        return PL_OK;
    }
    PL_TRY(pl_sys_read_file(c.path, MAX_STAMP, &text, &n));
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    pl_sys_free(text);
    c.stamp = o;
    pl_status rc = PL_OK;
    if (json_is_object(o))
        rc = check_all(&c);
    else
        snprintf(why, cap, "%s is not JSON", c.path);
    json_decref(o);
    *fresh = rc == PL_OK && !why[0];
    return rc;
}
