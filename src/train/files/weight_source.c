/* weight_source.c - see weight_source.h.
 *
 * A prefix is the text before the published names in these files: the dictionary of a PyTorch file
 * ("state_dict."), a wrapper ("module.", "_orig_mod."), a part of a larger network
 * ("model.diffusion_model."). Candidates come from the files: for some published names, every
 * tensor that ends with one. The candidate that finds most slots wins; if two prefixes find the
 * same number, the prefix that is not a copy of the weights (ema, optimizer), then the shorter
 * prefix.
 */
#include "train/files/weight_source.h"

#include <stdio.h>
#include <string.h>

enum { PROBES = 12, CANDIDATES = 64 };

bool pl__source_wants(const pl_weight_source *s, int slot)
{
    const pl_slot *x = pl_store_slot(s->r->store, slot);
    return pl__slot_in_model(x) && pl_nn_match(s->slots, x->name);
}

/* The published tensor of a slot by a naming, without the files' prefix. */
static bool published(const pl_weight_source *s, const pl_naming *naming, int slot, pl_published *p)
{
    return pl__source_wants(s, slot) &&
           pl__naming_find(naming, s->r->config, pl_store_slot(s->r->store, slot), p) && p->name[0];
}

static const pl_st_tensor *find(const pl_weight_source *s, const char *prefix, const char *name,
                                int *file)
{
    char whole[2 * PL_TENSOR_NAME];
    int n = snprintf(whole, sizeof whole, "%s%s", prefix, name);
    return n > 0 && (size_t)n < sizeof whole ? pl_st_set_find(s->set, whole, file) : NULL;
}

static int slots_found(const pl_weight_source *s, const pl_naming *naming, const char *prefix)
{
    int n = 0, file;
    pl_published p;
    for (int i = 0; i < pl_store_count(s->r->store); i++)
        if (published(s, naming, i, &p)) n += find(s, prefix, p.name, &file) != NULL;
    return n;
}

/* ---- prefixes ----------------------------------------------------------------------------- */
typedef struct candidates {
    const char *text[CANDIDATES];
    int n;
} candidates;

/* Adds the text before `name` in a tensor's name, at a boundary. */
static pl_status add_candidate(pl_weight_source *s, candidates *c, const char *tensor,
                               const char *name)
{
    size_t n = strlen(tensor), m = strlen(name);
    if (n <= m || n - m >= PL_TENSOR_NAME || tensor[n - m - 1] != '.' ||
        strcmp(tensor + n - m, name) != 0 || c->n == CANDIDATES)
        return PL_OK;
    for (int i = 0; i < c->n; i++)
        if (strlen(c->text[i]) == n - m && memcmp(c->text[i], tensor, n - m) == 0) return PL_OK;
    c->text[c->n] = pl_arena_strndup(&s->mem, tensor, n - m);
    return c->text[c->n++] ? PL_OK : PL_ERR_MEMORY;
}

static pl_status find_candidates(pl_weight_source *s, const pl_naming *naming, candidates *c)
{
    pl_published p;
    int wanted = 0, probe = 0;
    for (int i = 0; i < pl_store_count(s->r->store); i++) wanted += published(s, naming, i, &p);
    int step = wanted > PROBES ? wanted / PROBES : 1;
    for (int i = 0; i < pl_store_count(s->r->store); i++) {
        if (!published(s, naming, i, &p) || probe++ % step) continue;
        for (int f = 0; f < pl_st_set_files(s->set); f++)
            for (int k = 0; k < pl_st_count(pl_st_set_file(s->set, f)); k++)
                PL_TRY(add_candidate(s, c, pl_st_at(pl_st_set_file(s->set, f), k)->name, p.name));
    }
    return PL_OK;
}

static bool is_average(const char *prefix)
{
    return strstr(prefix, "ema") != NULL || strstr(prefix, "average") != NULL;
}

static bool is_copy(const char *prefix)
{
    return is_average(prefix) || strstr(prefix, "optim") != NULL;
}

static bool better(int n, const char *prefix, int best, const char *now)
{
    if (n != best) return n > best;
    if (is_copy(prefix) != is_copy(now)) return is_copy(now);
    return n && strlen(prefix) < strlen(now);
}

static const pl_naming own = {.name = "this engine's"};

/* Tries one naming with all prefixes; *best is the best result so far. */
static pl_status try_naming(pl_weight_source *s, const pl_naming *naming, int *best)
{
    candidates c = {.n = 0};
    const char *first = s->wanted_prefix ? s->wanted_prefix : "";
    int n = slots_found(s, naming, first);
    if (n > *best || (n == *best && n && s->naming == &own)) {
        *best = n;
        s->naming = naming;
        s->prefix = first;
    }
    if (s->wanted_prefix) return PL_OK;
    PL_TRY(find_candidates(s, naming, &c));
    for (int i = 0; i < c.n; i++) {
        n = slots_found(s, naming, c.text[i]);
        if (!n || !better(n, c.text[i], *best, s->prefix)) continue;
        *best = n;
        s->naming = naming;
        s->prefix = c.text[i];
    }
    return PL_OK;
}

#define FLAT "model_ema."

bool pl__flat_average(const char *tensor, char *out, size_t cap)
{
    const char *at = strncmp(tensor, "model.", 6) == 0 ? tensor : strstr(tensor, ".model.");
    if (!at || strlen(tensor) + sizeof FLAT >= cap) return false;
    if (at > tensor) at++;
    size_t n = (size_t)(at - tensor);
    memcpy(out, tensor, n);
    memcpy(out + n, FLAT, sizeof FLAT - 1);
    n += sizeof FLAT - 1;
    for (at += strlen("model."); *at; at++)
        if (*at != '.') out[n++] = *at;
    out[n] = 0;
    return true;
}

/* Finds the averaged weights of the same names beside the chosen ones. */
static pl_status find_averages(pl_weight_source *s, int best)
{
    candidates c = {.n = 0};
    PL_TRY(find_candidates(s, s->naming, &c));
    for (int i = 0; i < c.n && !s->ema; i++)
        if (is_average(c.text[i]) && strcmp(c.text[i], s->prefix) != 0 &&
            2 * slots_found(s, s->naming, c.text[i]) > best)
            s->ema = c.text[i];
    for (int i = 0; i < pl_store_count(s->r->store) && !s->ema; i++) {
        char full[2 * PL_TENSOR_NAME], name[2 * PL_TENSOR_NAME];
        pl_published p;
        int file;
        if (!published(s, s->naming, i, &p)) continue;
        snprintf(full, sizeof full, "%s%s", s->prefix, p.name);
        s->flat_ema = pl__flat_average(full, name, sizeof name) &&
                      pl_st_set_find(s->set, name, &file) != NULL;
        if (s->flat_ema) s->ema = FLAT;
    }
    return PL_OK;
}

static pl_status choose(pl_weight_source *s)
{
    int best = 0;
    s->naming = &own;
    s->prefix = s->wanted_prefix ? s->wanted_prefix : "";
    PL_TRY(try_naming(s, &own, &best));
    for (const pl_naming *k = s->namings; k && k->name; k++) PL_TRY(try_naming(s, k, &best));
    return find_averages(s, best);
}

/* ---- tensors ------------------------------------------------------------------------------ */
/* A slot without a rule keeps its own name. */
static pl_status name_slot(pl_weight_source *s, int slot)
{
    const pl_slot *x = pl_store_slot(s->r->store, slot);
    pl_published p;
    if (!pl__naming_find(s->naming, s->r->config, x, &p)) {
        memset(&p, 0, sizeof p);
        PL_FAIL_IF(strlen(x->name) >= sizeof p.name, PL_ERR_FILE,
                   "the name of slot %.40s... has more than %zu characters", x->name,
                   sizeof p.name - 1);
        memcpy(p.name, x->name, strlen(x->name));
    }
    size_t n = strlen(s->prefix), m = strlen(p.name);
    if (!m) return PL_OK; /* their files have no such tensor */
    PL_FAIL_IF(n + m >= sizeof p.name, PL_ERR_FILE, "the name %.40s...%.40s is too long", s->prefix,
               p.name);
    memmove(p.name + n, p.name, m + 1);
    memcpy(p.name, s->prefix, n);
    pl_published *kept = pl_arena_new(&s->mem, pl_published, 1);
    if (!kept) return PL_ERR_MEMORY;
    *kept = p;
    s->from[slot] = kept;
    return PL_OK;
}

pl_status pl__source_open(pl_weight_source *s)
{
    int n = pl_store_count(s->r->store);
    PL_TRY(pl_st_set_open(s->path, &s->set));
    PL_TRY(choose(s));
    s->from = pl_arena_new(&s->mem, const pl_published *, (size_t)n + 1);
    if (!s->from) return PL_ERR_MEMORY;
    for (int i = 0; i < n; i++)
        if (pl__source_wants(s, i)) PL_TRY(name_slot(s, i));
    return PL_OK;
}

void pl__source_close(pl_weight_source *s)
{
    pl_st_set_close(s->set);
    pl_arena_release(&s->mem);
}

const pl_st_tensor *pl__source_find(const pl_weight_source *s, int slot, int *file)
{
    return pl_st_set_find(s->set, s->from[slot]->name, file);
}

/* Whether a tensor follows from the configuration, so that no slot holds it. */
static bool is_constant(const pl_weight_source *s, const char *tensor)
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

bool pl__source_uses(const pl_weight_source *s, const char *tensor)
{
    size_t n = strlen(s->prefix);
    for (int i = 0; i < pl_store_count(s->r->store); i++)
        if (s->from[i] && strcmp(s->from[i]->name, tensor) == 0) return true;
    if (s->ema && strncmp(tensor, s->ema, strlen(s->ema)) == 0) return true;
    if (s->flat_ema && strstr(tensor, "." FLAT)) return true;
    if (strncmp(tensor, s->prefix, n) != 0) return false;
    bool ignored = s->naming->ignored && pl_nn_match(s->naming->ignored, tensor + n);
    return ignored || is_constant(s, tensor + n);
}

const char *pl__source_meta(const pl_weight_source *s, const char *key)
{
    const char *value = NULL;
    for (int f = 0; f < pl_st_set_files(s->set) && !value; f++)
        value = pl_st_meta_get(pl_st_set_file(s->set, f), key);
    return value;
}
