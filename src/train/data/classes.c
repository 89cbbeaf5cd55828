/* classes.c - which number a class has: by name, in training and in every later use of the weights.
 *
 * The names of a run's labels come from the model that the run starts from, where its file has
 * them, else from the data. The labels of the data are then numbered by these names, so that a
 * folder with fewer classes, or in another order, gets the right labels. A class that the model
 * does not have stops the run. Names are looked up in a sorted copy.
 */
#include "train/data/classes.h"

#include "base/sys.h"
#include "io/safetensors.h"
#include "train/data/cache.h"
#include "train/data/images/image_set.h"
#include "train/files/checkpoint.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, LISTED = 8 };

typedef struct by_name {
    const char *name;
    int at;
} by_name;

struct pl_classes {
    pl_arena mem;
    const char **name;
    by_name *sorted;
    int n;
    const char *json;
};

int pl_classes_count(const pl_classes *c)
{
    return c ? c->n : 0;
}

const char *pl_classes_name(const pl_classes *c, int i)
{
    return c->name[i];
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const by_name *)a)->name, ((const by_name *)b)->name);
}

int pl_classes_find(const pl_classes *c, const char *name)
{
    by_name key = {name, 0};
    const by_name *hit =
        c ? bsearch(&key, c->sorted, (size_t)c->n, sizeof *c->sorted, compare) : NULL;
    return hit ? hit->at : -1;
}

void pl_classes_free(pl_classes *c)
{
    if (!c) return;
    pl_arena_release(&c->mem);
    pl_sys_free(c);
}

const char *pl__classes_json(const pl_classes *c)
{
    return c->json;
}

/* ---- making ------------------------------------------------------------------------------- */
static pl_status write_json(pl_classes *c, const char *from)
{
    json_t *list = json_array();
    char *text = NULL;
    pl_status rc = list ? PL_OK : PL_ERR_MEMORY;
    for (int i = 0; i < c->n && rc == PL_OK; i++) {
        json_t *name = json_string(c->name[i]);
        if (!name || json_array_append_new(list, name) != 0)
            rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__,
                          "%s: the name of class %d is not UTF-8: rename it", from, i);
    }
    if (rc == PL_OK && !(text = json_dumps(list, JSON_COMPACT))) rc = PL_ERR_MEMORY;
    if (rc == PL_OK && !(c->json = pl_arena_strdup(&c->mem, text))) rc = PL_ERR_MEMORY;
    free(text);
    json_decref(list);
    return rc;
}

static pl_status fill(pl_classes *c, const char *const *name, int n, const char *from)
{
    c->name = pl_arena_new(&c->mem, const char *, (size_t)n + 1);
    c->sorted = pl_arena_new(&c->mem, by_name, (size_t)n + 1);
    if (!c->name || !c->sorted) return PL_ERR_MEMORY;
    for (c->n = 0; c->n < n; c->n++) {
        c->name[c->n] = pl_arena_strdup(&c->mem, name[c->n]);
        if (!c->name[c->n]) return PL_ERR_MEMORY;
        c->sorted[c->n] = (by_name){c->name[c->n], c->n};
    }
    qsort(c->sorted, (size_t)n, sizeof *c->sorted, compare);
    for (int i = 1; i < n; i++)
        PL_FAIL_IF(strcmp(c->sorted[i - 1].name, c->sorted[i].name) == 0, PL_ERR_FILE,
                   "%s names the class \"%s\" twice", from, c->sorted[i].name);
    return write_json(c, from);
}

static pl_status make(const char *const *name, int n, const char *from, pl_classes **out)
{
    pl_classes *c = pl_sys_alloc(sizeof *c);
    pl_status rc = c ? fill(c, name, n, from) : PL_ERR_MEMORY;
    if (rc == PL_OK)
        *out = c;
    else
        pl_classes_free(c);
    return rc;
}

static pl_status classes_of_items(const pl_items_opts *o, pl_classes **out)
{
    pl_items *items;
    PL_TRY(pl_items_open(o, &items));
    pl_status rc = items->unlabelled
                       ? pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "%s", items->unlabelled)
                       : make(items->classes, items->n_classes, o->path, out);
    pl_items_close(items);
    return rc;
}

pl_status pl_data_classes(const char *path, pl_classes **out)
{
    return classes_of_items(&(pl_items_opts){.path = path, .only_classes = true}, out);
}

static pl_status parse(const char *json, const char *file, pl_classes **out)
{
    json_t *list = json_loads(json, 0, NULL);
    size_t n = json_array_size(list);
    const char **name = n && n <= MOST ? pl_sys_alloc(n * sizeof *name) : NULL;
    pl_status rc = PL_OK;
    bool ok = name != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = (name[i] = json_string_value(json_array_get(list, i))) != NULL;
    if (n && n <= MOST && !name)
        rc = PL_ERR_MEMORY;
    else if (!ok)
        rc = pl__fail(PL_ERR_FILE, __FILE__, __LINE__,
                      "%s: its metadata \"" PL_CLASSES_KEY "\" is not a list of names", file);
    if (rc == PL_OK) rc = make(name, (int)n, file, out);
    pl_sys_free(name);
    json_decref(list);
    return rc;
}

pl_status pl_model_classes(const char *file, pl_classes **out)
{
    pl_st_reader *f;
    PL_TRY(pl_st_open(file, &f));
    const char *json = pl_st_meta_get(f, PL_CLASSES_KEY);
    pl_classes *c = NULL;
    pl_status rc = json ? parse(json, file, &c) : PL_OK;
    if (rc == PL_OK) *out = c;
    pl_st_close(f);
    return rc;
}

/* ---- of a run ------------------------------------------------------------------------------- */
/* Writes the model file that the run starts from; false: there is none. */
static bool model_of(const pl_run *r, char path[PL_PATH_BYTES])
{
    if (r->purpose.goal == PL_GOAL_ENCODE) return false;
    const char *folder = r->files.resume ? r->files.resume : r->phases.take_from;
    if (folder) return snprintf(path, PL_PATH_BYTES, "%s/model.safetensors", folder) > 0;
    bool own = r->purpose.goal != PL_GOAL_EVALUATE &&
               strcmp(pl_config_text(r->config, "data.classes"), "data") == 0;
    if (own || pl_config_is_null(r->config, "init_from")) return false;
    return snprintf(path, PL_PATH_BYTES, "%s", pl_config_text(r->config, "init_from")) > 0;
}

static pl_status of_data(const pl_run *r, pl_classes **out)
{
    const pl_config *c = r->config;
    pl_items_opts o = {.path = pl_config_text(c, "data.path"),
                       .captions = pl_config_is_null(c, "data.captions")
                                       ? NULL
                                       : pl_config_text(c, "data.captions"),
                       .only_classes = true};
    return classes_of_items(&o, out);
}

pl_status pl__classes_find(pl_run *r)
{
    char path[PL_PATH_BYTES];
    const pl_image_feed *f = r->recipe->images;
    if (r->data.classes_known || !f || !f->label) return PL_OK;
    if (model_of(r, path)) {
        pl_status rc = pl_model_classes(path, &r->data.classes);
        if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_FILE, "%s", pl_error_text());
        PL_TRY(rc);
    }
    if (!r->data.classes && (pl__images_wanted(r) || pl__cache_wanted(r)))
        PL_TRY(of_data(r, &r->data.classes));
    r->data.classes_known = true;
    return PL_OK;
}

pl_status pl_builder_classes(pl_builder *b, const pl_classes **out)
{
    if (b->run) PL_TRY(pl__classes_find(b->run));
    *out = b->run ? b->run->data.classes : NULL;
    return PL_OK;
}

pl_status pl_builder_own_classes(pl_builder *b, const char *json, const char *from)
{
    pl_run *r = b->run;
    char path[PL_PATH_BYTES];
    if (!r || r->data.classes || model_of(r, path)) return PL_OK;
    bool uses = r->purpose.goal == PL_GOAL_EVALUATE || r->purpose.goal == PL_GOAL_PREDICT;
    return uses ? parse(json, from, &r->data.classes) : PL_OK;
}

void pl_builder_outputs(pl_builder *b, int64_t classes)
{
    if (b->run) b->run->data.outputs = classes;
}

bool pl_builder_pictures(const pl_builder *b)
{
    return b->run && pl__images_wanted(b->run);
}

const pl_classes *pl_run_classes(const pl_run *r)
{
    return r->data.classes;
}

/* ---- matching ------------------------------------------------------------------------------- */
/* The first few names, for a message. */
static const char *list_names(const pl_classes *c, char *buf, size_t cap)
{
    size_t at = 0;
    for (int i = 0; i < c->n && i < LISTED && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%.40s", i ? ", " : "", c->name[i]);
    if (c->n > LISTED && at < cap) snprintf(buf + at, cap - at, ", ... (%d in all)", c->n);
    return buf;
}

static pl_status fail_unknown(const pl_run *r, const pl_items *items, const char *name)
{
    char known[512], path[PL_PATH_BYTES];
    bool trains = r->purpose.goal == PL_GOAL_TRAIN && !r->files.resume;
    bool model = model_of(r, path);
    PL_FAIL(PL_ERR_DATA,
            "%s has images of class \"%.80s\", which %s does not know; it knows %s: rename the "
            "class, or leave its images out%s",
            items->root, name, model ? path : "the run",
            list_names(r->data.classes, known, sizeof known),
            trains ? "; data.classes=data trains a new last layer on the classes of the data" : "");
}

/* Whether a program of the run reads labels. */
static bool reads_labels(const pl_run *r)
{
    const char *label = r->recipe->images ? r->recipe->images->label : NULL;
    int n;
    pl_program *const *programs = pl__run_programs(r, &n);
    for (int i = 0; label && i < n; i++)
        for (int k = 0; k < pl_program_input_count(programs[i]); k++)
            if (strcmp(pl_program_input_name(programs[i], k), label) == 0) return true;
    return false;
}

/* The network's outputs are as many as the recipe's key says. */
static pl_status check_count(const pl_run *r, const char *path)
{
    const char *key = r->recipe->images->classes;
    int64_t told = r->data.outputs ? r->data.outputs : INT64_MAX;
    int64_t most = key ? pl_config_int(r->config, key) : told;
    PL_FAIL_IF(!key && pl_classes_count(r->data.classes) > most, PL_ERR_CONFIG,
               "%s has %d classes, the network's output has %lld: make the network with %d outputs",
               path, pl_classes_count(r->data.classes), (long long)most,
               pl_classes_count(r->data.classes));
    PL_FAIL_IF(pl_classes_count(r->data.classes) > most, PL_ERR_CONFIG,
               "%s has %d classes, the network has %lld: set %s=%d", path,
               pl_classes_count(r->data.classes), (long long)most, key,
               pl_classes_count(r->data.classes));
    return PL_OK;
}

/* label[k] becomes the run's number of class k of the set. */
static pl_status match(const pl_run *r, const pl_items *items, int32_t *label)
{
    for (int k = 0; k < items->n_classes; k++)
        label[k] = pl_classes_find(r->data.classes, items->classes[k]);
    bool only_eval = r->purpose.goal == PL_GOAL_EVALUATE && !pl__folded(r);
    for (int64_t i = 0; i < items->n; i++) {
        const pl_item *item = &items->item[i];
        if (label[item->label] < 0 && (item->eval || !only_eval))
            return fail_unknown(r, items, items->classes[item->label]);
    }
    for (int k = 0; k < items->n_classes; k++)
        if (label[k] < 0) label[k] = 0; /* of images that are not read */
    return PL_OK;
}

/* A folder of folders of classes, named one level too high, has one class: its one subfolder. */
static pl_status warn_single(pl_run *r, const pl_items *items)
{
    if (items->n_classes != 1 || r->purpose.goal != PL_GOAL_TRAIN) return PL_OK;
    r->data.warning =
        pl_arena_printf(&r->arena,
                        "all images of %s have one class, \"%.80s\", so the network learns nothing "
                        "from labels: data.path names the folder with one subfolder per class",
                        items->root, items->classes[0]);
    return r->data.warning ? PL_OK : PL_ERR_MEMORY;
}

pl_status pl__classes_match(pl_run *r)
{
    pl_image_set *set = r->data.images->set;
    const pl_items *items = pl_image_set_items(set);
    if (!reads_labels(r)) return PL_OK;
    PL_FAIL_IF(items->unlabelled, PL_ERR_DATA, "%s", items->unlabelled);
    PL_TRY(pl__classes_find(r));
    PL_TRY(check_count(r, items->root));
    PL_TRY(warn_single(r, items));
    int32_t *label = pl_sys_alloc((size_t)items->n_classes * sizeof *label);
    pl_status rc = label ? match(r, items, label) : PL_ERR_MEMORY;
    if (rc == PL_OK) pl_image_set_relabel(set, label);
    pl_sys_free(label);
    return rc;
}

pl_status pl__classes_match_cache(pl_run *r)
{
    pl_classes *data = NULL;
    char known[512];
    if (!reads_labels(r) || pl_config_is_null(r->config, "data.path")) return PL_OK;
    PL_TRY(pl__classes_find(r));
    PL_TRY(check_count(r, pl_config_text(r->config, "data.cache")));
    PL_TRY(of_data(r, &data));
    bool same = strcmp(data->json, r->data.classes->json) == 0;
    pl_classes_free(data);
    PL_FAIL_IF(!same, PL_ERR_DATA,
               "the labels in data.cache %s are numbered by the class folders of %s, the model by "
               "%s: train without data.cache, or set data.classes=data",
               pl_config_text(r->config, "data.cache"), pl_config_text(r->config, "data.path"),
               list_names(r->data.classes, known, sizeof known));
    return PL_OK;
}
