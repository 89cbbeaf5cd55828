/* text_set.c - see text_set.h. */
#include "train/data/text_set.h"

#include "base/sys.h"
#include "data/sets/array.h"
#include "data/sets/items.h"
#include "data/sets/prompts.h"
#include "train/data/cache.h"
#include "train/data/dataset.h"

#include <string.h>

struct pl_texts {
    pl_prompts *prompts;
    pl_array *rows;    /* data.embeddings; NULL */
    int32_t *lines[2]; /* prompts as samples: the line numbers of each subset */
    int64_t n[2];
};

bool pl__prompts_wanted(const pl_run *r)
{
    return !pl__cache_wanted(r) && !pl_config_is_null(r->config, "data.prompts") &&
           pl_config_is_null(r->config, "data.path");
}

/* The type of a row of the text input. */
static pl_status row_type(const pl_run *r, pl_type *row)
{
    const pl_image_feed *f = r->recipe->images;
    PL_FAIL_IF(!f || !f->text, PL_ERR_CONFIG, "recipe %s takes no text: remove data.prompts",
               r->recipe->name);
    pl_type t;
    const char *name;
    for (int i = 0; (name = pl__step_input(r, i, &t)); i++) {
        if (strcmp(name, f->text) != 0 || t.rank < 1) continue;
        *row = pl_type_make(t.dtype, t.rank - 1, t.dim + 1);
        return PL_OK;
    }
    PL_FAIL(PL_ERR_CONFIG, "with this configuration recipe %s has no input \"%s\" for text",
            r->recipe->name, f->text);
}

static pl_status open_rows(pl_run *r, struct pl_texts *t)
{
    pl_type row;
    const char *path = pl_config_text(r->config, "data.embeddings"),
               *name = r->recipe->images->text;
    PL_TRY(row_type(r, &row));
    const char *field =
        pl_config_is_null(r->config, "data.fields")
            ? name
            : pl_dataset_field(&r->arena, pl_config_text(r->config, "data.fields"), name);
    if (!field) return PL_ERR_MEMORY;
    PL_TRY(pl_array_open(&path, 1, name, field, NULL, &row, &t->rows));
    PL_FAIL_IF(pl_array_rows(t->rows) != pl_prompts_count(t->prompts), PL_ERR_DATA,
               "%s has %lld rows, %s has %lld lines: one row a line", path,
               (long long)pl_array_rows(t->rows), pl_config_text(r->config, "data.prompts"),
               (long long)pl_prompts_count(t->prompts));
    return PL_OK;
}

static pl_status split(pl_run *r, struct pl_texts *t)
{
    int64_t n = pl_prompts_count(t->prompts);
    double share =
        pl__eval(r) || r->data.encode_eval ? pl_config_float(r->config, "data.eval_share") : 0;
    for (int e = 0; e < 2; e++)
        if (!(t->lines[e] = pl_sys_alloc((size_t)n * sizeof *t->lines[e]))) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        int e = pl_name_in_share(pl_prompts_at(t->prompts, i), share);
        t->lines[e][t->n[e]++] = (int32_t)i;
    }
    PL_FAIL_IF(r->purpose.goal != PL_GOAL_EVALUATE && t->n[0] == 0, PL_ERR_DATA,
               "%s: no prompt is left for training", pl_config_text(r->config, "data.prompts"));
    return PL_OK;
}

pl_status pl__texts_open(pl_run *r)
{
    const pl_image_feed *f = r->recipe->images;
    bool rows = !pl_config_is_null(r->config, "data.embeddings");
    if (pl_config_is_null(r->config, "data.prompts")) {
        PL_FAIL_IF(rows, PL_ERR_CONFIG,
                   "data.embeddings needs data.prompts, which has the texts of its rows");
        return PL_OK;
    }
    pl_type row;
    PL_TRY(row_type(r, &row));
    PL_FAIL_IF(
        !rows && !f->encode, PL_ERR_CONFIG,
        "recipe %s cannot encode text by itself: set data.embeddings to a file of embeddings",
        r->recipe->name);
    struct pl_texts *t = r->data.texts = pl_sys_alloc(sizeof *t);
    if (!t) return PL_ERR_MEMORY;
    PL_TRY(pl_prompts_open(pl_config_text(r->config, "data.prompts"), &t->prompts));
    if (rows) PL_TRY(open_rows(r, t));
    return pl__prompts_wanted(r) ? split(r, t) : PL_OK;
}

void pl__texts_close(pl_run *r)
{
    struct pl_texts *t = r->data.texts;
    if (!t) return;
    pl_prompts_close(t->prompts);
    pl_array_close(t->rows);
    pl_sys_free(t->lines[0]);
    pl_sys_free(t->lines[1]);
    pl_sys_free(t);
    r->data.texts = NULL;
}

int64_t pl__prompts_size(const pl_run *r, pl_subset subset)
{
    return r->data.texts->n[subset == PL_SUBSET_EVAL];
}

static pl_status write_row(pl_run *r, const char *caption, int64_t line, void *to,
                           const pl_type *row)
{
    const struct pl_texts *t = r->data.texts;
    if (t && t->rows) return pl_array_read(t->rows, line, to);
    return r->recipe->images->encode(r->config, caption, to, row);
}

pl_status pl__prompts_read(pl_run *r, pl_subset subset, const int64_t *sample, int n,
                           pl_batch *batch)
{
    pl_type t;
    char *to = pl_batch_input(batch, r->recipe->images->text, &t);
    if (!to) return PL_OK;
    pl_type row = pl_type_make(t.dtype, t.rank - 1, t.dim + 1);
    for (int i = 0; i < n; i++) {
        int64_t line = r->data.texts->lines[subset == PL_SUBSET_EVAL][sample[i]];
        PL_TRY(write_row(r, pl_prompts_at(r->data.texts->prompts, line), line,
                         to + (size_t)i * pl_type_bytes(&row), &row));
    }
    return PL_OK;
}

pl_status pl__text_write(pl_run *r, const char *caption, int64_t i, pl_batch *batch)
{
    const pl_image_feed *f = r->recipe->images;
    pl_type t;
    char *to = f->text ? pl_batch_input(batch, f->text, &t) : NULL;
    if (!to) return PL_OK;
    bool rows = r->data.texts && r->data.texts->rows;
    int64_t line = rows ? pl_prompts_find(r->data.texts->prompts, caption) : -1;
    PL_FAIL_IF(rows && line < 0, PL_ERR_DATA,
               "the caption \"%.80s\" is not a line of %s, so data.embeddings has no row for it",
               caption, pl_config_text(r->config, "data.prompts"));
    PL_FAIL_IF(!rows && !f->encode, PL_ERR_CONFIG,
               "recipe %s cannot encode captions by itself: set data.prompts and data.embeddings",
               r->recipe->name);
    pl_type row = pl_type_make(t.dtype, t.rank - 1, t.dim + 1);
    return write_row(r, caption, line, to + (size_t)i * pl_type_bytes(&row), &row);
}
