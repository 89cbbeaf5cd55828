/* generate_raw.c - writes a recipe's own samples in common file formats: images in folders, prompts
 * in a file.
 *
 *     DIR/train/000000.png, 000000.txt, ...  one image per sample, with its caption if it has one
 *     DIR/eval/...
 *
 *     DIR/prompts.txt, DIR/embeddings.npy    recipes with text only: one line and row per sample
 *
 *     DIR/...                                files that the recipe writes (pl_recipe.data_write)
 *
 * The recipe draws the image (pl_image_feed.draw).
 */
#include "base/str.h"
#include "base/sys.h"
#include "io/npy.h"
#include "plimsoll_events.h"
#include "train/data/dataset.h"

#include <stdio.h>
#include <string.h>

enum { PATH = 4096, CAPTION = 1 << 14 };

typedef struct raw {
    pl_run *r;
    const pl_image_feed *feed;
    const char *dir;
    int64_t count[2]; /* by subset */
    char *caption;
    pl_progress_fn progress;
    void *ctx;
} raw;

/* A quarter larger than the input, so that crops differ. */
static pl_status write_picture(raw *w, pl_subset subset, int64_t i, uint8_t *rgb, int width,
                               int height, char path[PATH])
{
    w->caption[0] = 0;
    PL_TRY(w->feed->draw(w->r->config, subset, i, width, height, rgb, w->caption, CAPTION));
    snprintf(path, PATH, "%s/%s/%06lld.png", w->dir, pl_subset_name(subset), (long long)i);
    PL_TRY(pl_png_save(path, width, height, 3, rgb));
    if (!w->caption[0]) return PL_OK;
    memcpy(path + strlen(path) - 4, ".txt", 4);
    return pl_sys_write_file(path, w->caption, strlen(w->caption));
}

static pl_status write_pictures(raw *w)
{
    const pl_image_feed *f = w->feed;
    PL_FAIL_IF(!f->height || !f->width, PL_ERR_UNSUPPORTED,
               "recipe %s does not define the size of its images", w->r->recipe->name);
    int height = (int)(pl_config_int(w->r->config, f->height) * 5 / 4);
    int width = (int)(pl_config_int(w->r->config, f->width) * 5 / 4);
    if (!width) width = height;
    uint8_t *rgb = pl_sys_alloc((size_t)width * (size_t)height * 3);
    pl_status rc = rgb ? PL_OK : PL_ERR_MEMORY;
    for (int s = 0; s < 2 && rc == PL_OK; s++) {
        char path[PATH]; /* of the folder, then of each picture */
        snprintf(path, sizeof path, "%s/%s", w->dir, pl_subset_name((pl_subset)s));
        if (w->count[s]) rc = pl_sys_make_dirs(path);
        for (int64_t i = 0; i < w->count[s] && rc == PL_OK; i++) {
            rc = write_picture(w, (pl_subset)s, i, rgb, width, height, path);
            if (w->progress) w->progress(w->ctx, (pl_subset)s, i + 1, w->count[s]);
        }
    }
    pl_sys_free(rgb);
    return rc;
}

/* ---- prompts ------------------------------------------------------------------------------ */
/* One row of the text's input. */
typedef struct text_row {
    const char *name;
    pl_type type;
    void *data;
} text_row;

static void *find_text(void *ctx, const char *name, pl_type *type)
{
    const text_row *t = ctx;
    if (strcmp(name, t->name) != 0) return NULL;
    if (type) *type = t->type;
    return t->data;
}

static pl_status write_lines(raw *w, text_row *t, pl_str *lines, pl_npy_writer *rows)
{
    pl_batch batch = {.find = find_text, .find_ctx = t};
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < w->count[s]; i++) {
            w->caption[0] = 0;
            PL_TRY(w->feed->draw(w->r->config, (pl_subset)s, i, 0, 0, NULL, w->caption, CAPTION));
            pl_str_addf(lines, "%s\n", w->caption);
            PL_TRY(pl__recipe_data_read(w->r, (pl_subset)s, &i, 1, &batch));
            PL_TRY(pl_npy_writer_write(rows, t->data, pl_type_bytes(&t->type)));
            if (w->progress) w->progress(w->ctx, (pl_subset)s, i + 1, w->count[s]);
        }
    PL_FAIL_IF(lines->failed, PL_ERR_MEMORY, "no memory for the prompts");
    return pl_npy_writer_finish(rows);
}

static pl_status write_prompts(raw *w)
{
    char path[4096];
    text_row t = {.name = w->feed->text};
    pl_type type;
    const char *name;
    for (int i = 0; (name = pl__step_input(w->r, i, &type)); i++)
        if (strcmp(name, t.name) == 0) t.type = type;
    PL_FAIL_IF(t.type.rank < 2, PL_ERR_UNSUPPORTED, "recipe %s reads no text", w->r->recipe->name);
    pl_type all = t.type;
    all.dim[0] = w->count[0] + w->count[1];
    t.type.dim[0] = 1;
    PL_TRY(pl_sys_make_dirs(w->dir));
    pl_npy_writer *rows = NULL;
    pl_str lines = PL_STR_INIT;
    snprintf(path, sizeof path, "%s/embeddings.npy", w->dir);
    t.data = pl_sys_alloc(pl_type_bytes(&t.type));
    pl_status rc = t.data ? pl_npy_writer_new(path, &all, &rows) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = write_lines(w, &t, &lines, rows);
    snprintf(path, sizeof path, "%s/prompts.txt", w->dir);
    if (rc == PL_OK) rc = pl_sys_write_file(path, lines.text ? lines.text : "", lines.len);
    pl_npy_writer_free(rows);
    pl_str_release(&lines);
    pl_sys_free(t.data);
    return rc;
}

/* ---- files that the recipe writes itself ------------------------------------------------ */
static void one_done(void *ctx, pl_subset subset, int64_t sample)
{
    const raw *w = ctx;
    if (w->progress) w->progress(w->ctx, subset, sample + 1, w->count[subset]);
}

static pl_status write_files(raw *w)
{
    const pl_recipe *recipe = w->r->recipe;
    PL_TRY(pl_sys_make_dirs(w->dir));
    if (recipe->data_write_set)
        return recipe->data_write_set(w->r->config, w->r->data.recipe, w->dir, w->count, one_done,
                                      w);
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < w->count[s]; i++) {
            PL_TRY(recipe->data_write(w->r->config, (pl_subset)s, i, w->dir));
            one_done(w, (pl_subset)s, i);
        }
    return PL_OK;
}

pl_status pl_run_generate_raw(pl_run *r, const char *dir, int64_t samples, int64_t eval_samples,
                              pl_progress_fn progress, void *ctx)
{
    const pl_image_feed *f = r->recipe->images;
    bool own = r->recipe->data_write || r->recipe->data_write_set;
    PL_FAIL_IF(
        !own && (!f || !f->draw), PL_ERR_UNSUPPORTED,
        "recipe %s generates no images and no prompts; without --raw, generate writes arrays",
        r->recipe->name);
    PL_FAIL_IF(!pl__train(r), PL_ERR_ARG, "build the run before generating its data");
    PL_TRY(pl__recipe_data_open(r));
    raw w = {.r = r, .feed = f, .dir = dir, .progress = progress, .ctx = ctx};
    PL_TRY(pl__generate_count(r, PL_SUBSET_TRAIN, samples, &w.count[0]));
    if (pl__eval(r)) PL_TRY(pl__generate_count(r, PL_SUBSET_EVAL, eval_samples, &w.count[1]));
    w.caption = pl_sys_alloc(CAPTION);
    if (!w.caption) return PL_ERR_MEMORY;
    pl_status rc = own ? write_files(&w) : f->images ? write_pictures(&w) : write_prompts(&w);
    pl_sys_free(w.caption);
    return rc;
}
