/* export_onnx.c - programs of a recipe as ONNX files (`plimsoll export --as onnx`).
 *
 * The run is started on its weights, as for predictions, so every slot has the value with which the
 * program computes: trained weights, frozen networks, tables. Then the recipe builds its graphs a
 * second time, and onnx/write writes them before any pass has changed them. The metadata are those
 * of model files: class names, the values of black and white, facts of the recipe.
 */
#include "base/sys.h"
#include "onnx/write/write_graph.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

static bool is_named(const char *name, const char *is)
{
    return name && strcmp(name, is) == 0;
}

pl_status pl_run_onnx_only(pl_run *r, const char *program)
{
    PL_FAIL_IF(pl__train(r), PL_ERR_ARG, "the run is built already");
    bool eval = is_named(program, "eval") || is_named(program, "sample");
    r->purpose.goal = r->recipe->predict && !eval ? PL_GOAL_PREDICT : PL_GOAL_EVALUATE;
    r->purpose.no_data = true;
    return PL_OK;
}

bool pl_run_has_form(const pl_run *r, const char *form)
{
    for (const pl_export *f = r->recipe->exports; f && f->name; f++)
        if (strcmp(f->name, form) == 0) return true;
    return false;
}

static pl_type slot_type(void *ctx, int slot)
{
    const pl_run *r = ctx;
    return pl__slot_file_type(pl_store_slot(r->store, slot));
}

static pl_status slot_read(void *ctx, int slot, void *to)
{
    pl_run *r = ctx;
    const pl_slot *s = pl_store_slot(r->store, slot);
    size_t bytes = pl_type_bytes(&s->type);
    void *ours = pl_sys_alloc(bytes + 1);
    if (!ours) return PL_ERR_MEMORY;
    pl_status rc = pl_session_read_slot(r->session, slot, 0, ours, bytes);
    if (rc == PL_OK) pl__slot_to_file(s, ours, to);
    pl_sys_free(ours);
    return rc;
}

static pl_status facts(void *ctx, pl_meta_fn put, void *to)
{
    return pl__meta_each(ctx, put, to);
}

typedef struct onnx_export {
    pl_run *r;
    const pl_export_opts *o;
    pl_export_info *info;
} onnx_export;

static pl_status write_graph(const onnx_export *e, const pl_graph *g, const char *path)
{
    pl_ow_info info;
    pl_ow_source source = {.ctx = e->r, .type = slot_type, .read = slot_read, .facts = facts};
    PL_TRY(pl_ow_graph(g, &source, path, 0, &info));
    e->info->files += info.external ? 2 : 1;
    e->info->tensors += info.tensors;
    e->info->bytes += info.bytes;
    e->info->draws += info.draws;
    return PL_OK;
}

/* The names that --program takes. */
static void list_programs(const pl_builder *b, char *text, size_t cap)
{
    bool predicts = b->goal == PL_GOAL_PREDICT;
    int n = snprintf(text, cap, "%s", predicts ? "predict" : "eval");
    for (int i = 1; predicts && i < b->n_step_programs && n > 0 && (size_t)n < cap; i++)
        n += snprintf(text + n, cap - (size_t)n, ", %s", b->step_programs[i].name);
    if (n > 0 && (size_t)n < cap && b->sample.g) snprintf(text + n, cap - (size_t)n, ", sample");
}

static const pl_graph *graph_of(const pl_builder *b, const char *program)
{
    bool predicts = b->goal == PL_GOAL_PREDICT;
    if (!program || is_named(program, predicts ? "predict" : "eval"))
        return b->step_programs[0].run.g;
    if (is_named(program, "sample")) return b->sample.g;
    for (int i = 1; predicts && i < b->n_step_programs; i++)
        if (is_named(b->step_programs[i].name, program)) return b->step_programs[i].run.g;
    return NULL;
}

/* Several programs: each is a file in the folder --out. */
static pl_status write_all(const onnx_export *e, const pl_builder *b)
{
    char path[4096];
    PL_TRY(pl_sys_make_dirs(e->o->out));
    for (int i = 0; i < b->n_step_programs; i++) {
        const char *name = i ? b->step_programs[i].name : "predict";
        int n = snprintf(path, sizeof path, "%s/%s.onnx", e->o->out, name);
        PL_FAIL_IF(n < 0 || (size_t)n >= sizeof path, PL_ERR_IO, "%.100s...: the path is too long",
                   e->o->out);
        PL_TRY(write_graph(e, b->step_programs[i].run.g, path));
    }
    return PL_OK;
}

static bool ends_in_onnx(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".onnx") == 0;
}

static pl_status write_programs(const onnx_export *e, const pl_builder *b)
{
    char names[1024];
    const char *program = e->o->program;
    list_programs(b, names, sizeof names);
    bool several = b->goal == PL_GOAL_PREDICT && b->n_step_programs > 1;
    if (several && !program && !ends_in_onnx(e->o->out)) return write_all(e, b);
    PL_FAIL_IF(
        several && !program, PL_ERR_CONFIG,
        "--out %s: recipe %s predicts with several programs (%s); name one with --program, or "
        "give a folder for all",
        e->o->out, e->r->recipe->name, names);
    PL_FAIL_IF(!ends_in_onnx(e->o->out), PL_ERR_CONFIG, "--out %s: the name ends in .onnx",
               e->o->out);
    const pl_graph *g = graph_of(b, program);
    PL_FAIL_IF(!g, PL_ERR_CONFIG, "--program %s: recipe %s has no such program; it has %s", program,
               e->r->recipe->name, names);
    return write_graph(e, g, e->o->out);
}

pl_status pl__export_onnx(pl_run *r, const pl_export_opts *o, pl_export_info *info)
{
    onnx_export e = {.r = r, .o = o, .info = info};
    PL_FAIL_IF(!r->session, PL_ERR_ARG, "--as onnx: the run is not started");
    PL_FAIL_IF(o->dtype, PL_ERR_CONFIG,
               "--as onnx keeps the number formats of the program: leave out --dtype");
    pl_builder *b = pl_sys_alloc(sizeof *b);
    if (!b) return PL_ERR_MEMORY;
    *b = (pl_builder){.run = r,
                      .config = r->config,
                      .store = r->store,
                      .goal = r->purpose.goal,
                      .batch = r->build->micro,
                      .accumulate = 1};
    pl_status rc = pl__builder_run(b, r->recipe);
    if (rc == PL_OK) {
        rc = write_programs(&e, b);
        pl__builder_release(b);
    }
    pl_sys_free(b);
    return rc;
}
