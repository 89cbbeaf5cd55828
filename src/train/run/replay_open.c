/* replay_open.c - opens the dump of a PyTorch program, and a run with the dump's configuration. */
#include "base/sys.h"
#include "train/run/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pl_status pl__replay_read_meta(pl_replaying *p)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/meta.json", p->dir);
    char *text;
    size_t len;
    PL_TRY(pl_sys_read_file(path, (size_t)64 << 20, &text, &len));
    json_error_t error;
    p->meta = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    pl_sys_free(text);
    PL_FAIL_IF(!p->meta, PL_ERR_FILE, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    PL_FAIL_IF(!json_is_string(json_object_get(p->meta, "workload")) ||
                   !json_is_object(json_object_get(p->meta, "config")) ||
                   !json_is_array(json_object_get(p->meta, "steps")),
               PL_ERR_FILE, "%s: workload, config and steps are needed", path);
    return PL_OK;
}

static const pl_recipe *recipe_for(const char *workload)
{
    for (int i = 0; i < pl_recipe_count(); i++) {
        const pl_peer *peer = pl_recipe_at(i)->peer;
        for (int k = 0; peer && peer->workloads[k]; k++)
            if (strcmp(peer->workloads[k], workload) == 0) return pl_recipe_at(i);
    }
    return NULL;
}

/* Writes "key=value" for a field of the peer's configuration, in the run's arena; JSON is YAML. */
static pl_status override_text(pl_arena *a, const char *key, const json_t *value, char **out)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text) return PL_ERR_MEMORY;
    *out = pl_arena_printf(a, "%s=%s", key, text);
    free(text);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl__replay_open_file(const pl_replaying *p, const char *name, pl_st_reader **out)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.safetensors", p->dir, name);
    return pl_st_open(path, out);
}

/* Counts the micro-batches of a step of the dump: its inputs are "micro1.x", "micro2.x", ... */
static pl_status count_micros(const pl_replaying *p, int *out)
{
    pl_st_reader *f;
    PL_TRY(pl__replay_open_file(p, "inputs.1", &f));
    *out = 1;
    for (int i = 0; i < pl_st_count(f); i++) {
        int k = 0;
        if (sscanf(pl_st_at(f, i)->name, "micro%d.", &k) == 1 && k > *out) *out = k;
    }
    pl_st_close(f);
    return PL_OK;
}

/* A peer's batch is a micro-batch of ours. The peer decided to split: coupled samples couple within
 * a micro-batch in both programs. */
static pl_status override_accumulate(const pl_replaying *p, pl_arena *a, const char **list, int *n)
{
    int accumulate;
    long long batch =
        json_integer_value(json_object_get(json_object_get(p->meta, "config"), "batch"));
    PL_TRY(count_micros(p, &accumulate));
    if (accumulate == 1 || batch < 1) return PL_OK;
    const char *text[] = {pl_arena_printf(a, "batch=%lld", batch * accumulate),
                          pl_arena_printf(a, "accumulate=%d", accumulate),
                          "accumulate_coupled=true"};
    for (int i = 0; i < 3; i++) {
        if (!text[i]) return PL_ERR_MEMORY;
        list[(*n)++] = text[i];
    }
    return PL_OK;
}

pl_status pl__replay_open_run(pl_replaying *p, const pl_replay_opts *o, pl_arena *a)
{
    const char *workload = json_string_value(json_object_get(p->meta, "workload"));
    const pl_recipe *recipe = recipe_for(workload);
    snprintf(p->report->workload, sizeof p->report->workload, "%s", workload);
    PL_FAIL_IF(!recipe && !o->config, PL_ERR_CONFIG,
               "%s: no built-in recipe has the workload \"%s\"; name a configuration", p->dir,
               workload);
    char preset[160] = "";
    if (!o->config) snprintf(preset, sizeof preset, "%s/%s", recipe->name, recipe->peer->preset);
    const char *config = o->config ? o->config : preset;
    pl_run *probe; /* finds the recipe, and with it the keys */
    PL_TRY(pl_run_open(config, NULL, 0, &probe));
    const pl_recipe *chosen = pl_run_recipe(probe);
    p->peer = chosen->peer;
    snprintf(p->report->recipe, sizeof p->report->recipe, "%s", chosen->name);
    pl_status rc = PL_OK;
    int n = 0;
    const json_t *fields = json_object_get(p->meta, "config");
    int n_keys = 0;
    while (p->peer && p->peer->keys[n_keys].peer) n_keys++;
    const char **list = pl_arena_new(a, const char *, (size_t)n_keys + (size_t)o->n_overrides + 4);
    if (!list) rc = PL_ERR_MEMORY;
    for (const pl_peer_key *k = p->peer ? p->peer->keys : NULL; rc == PL_OK && k && k->peer; k++) {
        const json_t *value = json_object_get(fields, k->peer);
        char *text;
        if (!value) continue;
        rc = override_text(a, k->key, value, &text);
        if (rc == PL_OK) list[n++] = text;
    }
    if (rc == PL_OK) rc = override_accumulate(p, a, list, &n);
    for (int i = 0; rc == PL_OK && i < o->n_overrides; i++) list[n++] = o->overrides[i];
    if (rc == PL_OK && !p->peer)
        rc = pl__fail(PL_ERR_CONFIG, __FILE__, __LINE__, "recipe %s has no PyTorch peer",
                      chosen->name);
    pl_run_free(probe);
    if (rc == PL_OK) rc = pl_run_open(config, list, n, &p->run);
    return rc;
}
