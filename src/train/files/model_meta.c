/* model_meta.c - what weights mean, in the metadata of their file.
 *
 *     plimsoll.classes      ["cat","dog"]                names of labels, in their order
 *     plimsoll.image.NAME   black -1, white 1            values of an image input
 *     plimsoll.KEY          the text of pl_builder_fact  what the recipe tells
 *     plimsoll.tied         a=b;c=d=e                    names that share one weight
 *
 * Class names are matched where data are opened (train/data/classes.c). Everything else must be
 * equal: the same pixels in other numbers give other results without any message.
 */
#include "io/safetensors.h"
#include "train/data/classes.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

enum { MAX_KEY = 160, MAX_TEXT = 96 };

/* Key and text of an image input; false when the name is too long for a key. */
static bool image_fact(const pl_image_input *in, char key[MAX_KEY], char text[MAX_TEXT])
{
    snprintf(text, MAX_TEXT, "black %.9g, white %.9g", (double)in->low, (double)in->high);
    return snprintf(key, MAX_KEY, "plimsoll.image.%s", in->name) < MAX_KEY;
}

static const pl_image_input *image_inputs(const pl_run *r)
{
    static const pl_image_input none[] = {{NULL, 0, 0}};
    return r->recipe->images && r->recipe->images->images ? r->recipe->images->images : none;
}

pl_status pl__meta_each(pl_run *r, pl_meta_fn put, void *ctx)
{
    char key[MAX_KEY], text[MAX_TEXT];
    if (r->data.classes) PL_TRY(put(ctx, PL_CLASSES_KEY, pl__classes_json(r->data.classes)));
    for (const pl_image_input *in = image_inputs(r); in->name; in++)
        if (image_fact(in, key, text)) PL_TRY(put(ctx, key, text));
    for (int i = 0; i < r->files.n_facts; i++) {
        snprintf(key, sizeof key, "plimsoll.%s", r->files.fact[i].key);
        PL_TRY(put(ctx, key, r->files.fact[i].text));
    }
    return PL_OK;
}

static pl_status put_meta(void *ctx, const char *key, const char *text)
{
    return pl_st_writer_meta(ctx, key, text);
}

pl_status pl__meta_write(pl_run *r, pl_st_writer *w)
{
    return pl__meta_each(r, put_meta, w);
}

static pl_status check_one(const pl_st_reader *f, const char *path, const char *key,
                           const char *ours)
{
    const char *theirs = pl_st_meta_get(f, key);
    PL_FAIL_IF(theirs && strcmp(theirs, ours) != 0, PL_ERR_FILE,
               "%s was trained with %s: \"%s\", this configuration has \"%s\": set the keys that "
               "it was trained with",
               path, key + strlen("plimsoll."), theirs, ours);
    return PL_OK;
}

pl_status pl__meta_check(pl_run *r, const pl_st_reader *f, const char *path)
{
    char key[MAX_KEY], text[MAX_TEXT];
    for (const pl_image_input *in = image_inputs(r); in->name; in++)
        if (image_fact(in, key, text)) PL_TRY(check_one(f, path, key, text));
    for (int i = 0; i < r->files.n_facts; i++) {
        if (strcmp(r->files.fact[i].key, "tied") == 0) continue; /* names, not a meaning */
        snprintf(key, sizeof key, "plimsoll.%s", r->files.fact[i].key);
        PL_TRY(check_one(f, path, key, r->files.fact[i].text));
    }
    return PL_OK;
}

/* ---- tied weights ----------------------------------------------------------------------- */
static const char *tied(const pl_run *r)
{
    for (int i = 0; i < r->files.n_facts; i++)
        if (strcmp(r->files.fact[i].key, "tied") == 0) return r->files.fact[i].text;
    return "";
}

int pl__tied_count(const pl_run *r)
{
    const char *p = tied(r);
    int n = p[0] ? 1 : 0;
    for (; *p; p++) n += *p == '=' || *p == ';';
    return n;
}

/* Whether `name` is one of the names in [p, end). */
static bool is_listed(const char *p, const char *end, const char *name, size_t len)
{
    while (p < end) {
        size_t n = strcspn(p, "=;");
        if (n == len && strncmp(p, name, n) == 0) return true;
        p += n + 1;
    }
    return false;
}

/* A name counts at its first place in the text, so that a damaged text gives no name twice. */
bool pl__tied_name(const pl_run *r, const char *name, int k, char *out, size_t cap)
{
    const char *text = tied(r);
    for (const char *group = text; *group; group += strcspn(group, ";"), group += *group == ';') {
        const char *end = group + strcspn(group, ";");
        if (!is_listed(group, end, name, strlen(name))) continue;
        for (const char *p = group; p < end; p += strcspn(p, "=;") + 1) {
            size_t n = strcspn(p, "=;");
            bool own = n == strlen(name) && strncmp(p, name, n) == 0;
            if (own || !n || n >= cap || is_listed(text, p, p, n) || k-- > 0) continue;
            memcpy(out, p, n);
            out[n] = 0;
            return true;
        }
        return false;
    }
    return false;
}

void pl_builder_fact(pl_builder *b, const char *key, const char *text)
{
    pl_run_files *files = b->run ? &b->run->files : NULL;
    pl_nn *train = pl_builder_train(b);
    int i = 0;
    while (files && i < files->n_facts && strcmp(files->fact[i].key, key) != 0) i++;
    if (!files || (i < files->n_facts && strcmp(files->fact[i].text, text) == 0)) return;
    if (i == PL_MAX_FACTS || strlen(key) > MAX_KEY - sizeof "plimsoll.") {
        pl_nn_fail(train, PL_ERR_UNSUPPORTED,
                   "fact \"%.40s\": at most %d facts, with keys of at most %d bytes", key,
                   PL_MAX_FACTS, MAX_KEY - (int)sizeof "plimsoll.");
        return;
    }
    const char *own =
                   i < files->n_facts ? files->fact[i].key : pl_arena_strdup(&b->run->arena, key),
               *copy = pl_arena_strdup(&b->run->arena, text);
    if (!own || !copy) {
        pl_nn_fail(train, PL_ERR_MEMORY, "no memory for the fact %.40s", key);
        return;
    }
    files->fact[i].key = own;
    files->fact[i].text = copy;
    if (i == files->n_facts) files->n_facts++;
}
