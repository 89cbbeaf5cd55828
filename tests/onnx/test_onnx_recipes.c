/* test_onnx_recipes.c - the programs of the built-in recipes as ONNX files give the recipes' own
 * numbers: read again by the importer, and (long) in ONNX Runtime. */
#include "base/dtype.h"
#include "io/safetensors.h"
#include "plimsoll_unstable.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"
#include "tests/onnx/model_run.h"
#include "tests/ops/op_case.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A program of a recipe on random weights and inputs. */
typedef struct recipe_run {
    pl_run *run;
    pl_program *program, *extra; /* extra: freed after the run; NULL */
    char model[1100];            /* the ONNX file */
} recipe_run;

static pl_program *program_of(const pl_run *r, const char *name)
{
    const pl_variant *v = r->build->now;
    for (int i = 0; name && i < v->n_step_programs; i++)
        if (v->step_programs[i].name && strcmp(v->step_programs[i].name, name) == 0)
            return v->step_programs[i].run;
    return v->train;
}

/* Replaces the program by one whose draws are outputs, too: ONNX Runtime gets them as inputs. */
static pl_status show_draws(recipe_run *t, const char *program)
{
    pl_run *r = t->run;
    pl_builder *b = calloc(1, sizeof *b);
    *b = (pl_builder){.run = r,
                      .config = r->config,
                      .store = r->store,
                      .goal = r->purpose.goal,
                      .batch = r->build->micro,
                      .accumulate = 1};
    PL_TRY(pl__builder_run(b, r->recipe));
    pl_program_draft *d = &b->step_programs[0];
    for (int i = 1; program && i < b->n_step_programs; i++)
        if (b->step_programs[i].name && strcmp(b->step_programs[i].name, program) == 0)
            d = &b->step_programs[i];
    pl_graph *g = d->run.g;
    bool *needed = calloc(g->n_nodes, sizeof *needed);
    int draws = 0;
    pl_graph_mark_needed(g, needed);
    for (uint32_t n = 1, end = g->n_nodes; n < end; n++) {
        char name[32];
        if (!needed[n] || !(pl_node_get(g, n)->op->flags & PL_OP_RANDOM)) continue;
        snprintf(name, sizeof name, "draw.%d", draws++);
        pl_output(g, name, (pl_val){pl_node_get(g, n)->out});
    }
    pl_compile_opts o = PL_COMPILE_INIT;
    pl_status rc = draws ? pl_compile(g, &o, &t->extra) : PL_OK;
    if (draws) d->run.g = NULL; /* the program's */
    if (draws && rc == PL_OK) rc = pl_session_add(r->session, t->extra);
    if (draws && rc == PL_OK) t->program = t->extra;
    pl__builder_release(b);
    free(b);
    free(needed);
    return rc;
}

/* Writes the program and runs it on noise; whole numbers are 0 and 1. */
static pl_status recipe_run_new(recipe_run *t, const char *config, const char *const *keys, int n,
                                const char *program, const char *dir)
{
    pl_export_info info = {0};
    PL_TRY(pl_run_open(config, keys, n, &t->run));
    PL_TRY(pl_run_onnx_only(t->run, program));
    PL_TRY(pl_run_build(t->run));
    PL_TRY(pl_run_start(t->run));
    snprintf(t->model, sizeof t->model, "%s/%s-%s.onnx", dir, t->run->recipe->name,
             program ? program : "main");
    pl_export_opts o = {.form = "onnx", .out = t->model, .program = program};
    PL_TRY(pl__export_onnx(t->run, &o, &info));
    t->program = program_of(t->run, program);
    PL_TRY(show_draws(t, program));
    uint64_t s = 7;
    for (int i = 0; i < pl_program_input_count(t->program); i++) {
        pl_type type;
        void *to = pl_session_input(t->run->session, t->program,
                                    pl_program_input_name(t->program, i), &type);
        for (int64_t k = 0; k < pl_type_elems(&type); k++) {
            double v = pl_test_noise(&s);
            pl_elem_set(type.dtype, to, k, pl_dtype_is_float(type.dtype) ? v : v > 0);
        }
    }
    return PL_OK;
}

/* Inputs and outputs with their names: a buffer for the inputs, which a run overwrites. */
static pl_status save(recipe_run *t)
{
    pl_st_writer *w;
    char path[1200];
    pl_session *s = t->run->session;
    int n_in = pl_program_input_count(t->program), n_out = pl_program_output_count(t->program);
    void **in = calloc((size_t)n_in + 1, sizeof *in);
    snprintf(path, sizeof path, "%.*s.safetensors", (int)strlen(t->model) - 5, t->model);
    PL_TRY(pl_st_writer_new(path, &w));
    for (int i = 0; i < n_in; i++) {
        pl_type type;
        const char *name = pl_program_input_name(t->program, i);
        const void *from = pl_session_input(s, t->program, name, &type);
        in[i] = malloc(pl_type_bytes(&type) + 1);
        memcpy(in[i], from, pl_type_bytes(&type));
        PL_TRY(pl_st_writer_add(w, name, &type));
    }
    for (int i = 0; i < n_out; i++) {
        pl_type type = pl_program_output_type(t->program, i);
        char name[256];
        const char *own = pl_program_output_name(t->program, i);
        snprintf(name, sizeof name, "%s%s", strncmp(own, "draw.", 5) ? "out." : "", own);
        PL_TRY(pl_st_writer_add(w, name, &type));
    }
    PL_TRY(pl_session_run(s, t->program));
    PL_TRY(pl_st_writer_begin(w));
    for (int k = 0; k < n_in + n_out; k++) {
        int i = pl_st_writer_order(w, k);
        pl_type type = i < n_in ? pl_program_input_type(t->program, i)
                                : pl_program_output_type(t->program, i - n_in);
        const void *from =
            i < n_in ? in[i]
                     : pl_session_output(s, t->program,
                                         pl_program_output_name(t->program, i - n_in), NULL);
        PL_TRY(pl_st_writer_write(w, i, from, pl_type_bytes(&type)));
    }
    PL_TRY(pl_st_writer_finish(w));
    pl_st_writer_free(w);
    for (int i = 0; i < n_in; i++) free(in[i]);
    free(in);
    return PL_OK;
}

/* Reads the file with the importer, runs it on the same inputs, compares all outputs. */
static pl_status read_back(recipe_run *t)
{
    enum { MOST = 16 };
    pl_onnx *o;
    pl_onnx_value out[MOST] = {{0}};
    char why[256];
    PL_TRY(pl_onnx_open(t->model, &o));
    model_run r = model_run_new(o, false);
    int n = pl_onnx_output_count(o);
    if (n > MOST) return pl_fail(PL_ERR_ARG, "%d outputs", n);
    for (int i = 0; i < n; i++) out[i].name = pl_onnx_output(o, i)->name;
    pl_status rc = pl_onnx_build(o, r.nn, NULL, 0, NULL, n, out);
    for (int i = 0; i < n && rc == PL_OK; i++) pl_output(r.nn->g, out[i].name, out[i].value);
    PL_TRY(model_run_start(&r, rc));
    for (int i = 0; i < pl_program_input_count(t->program); i++) {
        pl_type type, here;
        const char *name = pl_program_input_name(t->program, i);
        const void *from = pl_session_input(t->run->session, t->program, name, &type);
        void *to = pl_session_input(r.session, r.program, name, &here);
        for (int64_t k = 0; to && k < pl_type_elems(&type); k++)
            pl_elem_set(here.dtype, to, k, pl_elem_get(type.dtype, from, k));
    }
    PL_TRY(pl_session_run(t->run->session, t->program));
    PL_TRY(pl_session_run(r.session, r.program));
    for (int i = 0; i < n; i++) {
        pl_type type, here;
        const char *name = out[i].name;
        const void *want = pl_session_output(t->run->session, t->program,
                                             strncmp(name, "out.", 4) ? name : name + 4, &type);
        const void *got = pl_session_output(r.session, r.program, name, &here);
        if (!want || !got || disagreement(&here, got, &type, want, why, sizeof why) > 5)
            return pl_fail(PL_ERR_NUMERIC, "%s: output %s: %s", t->model, name, why);
    }
    model_run_free(&r);
    return PL_OK;
}

/* The weights are those of a new run, which programs for predictions take for frozen ones. */
static const char *const keys[] = {"allow_random_frozen=true", "batch=2", "data.samples=8",
                                   "data.eval_samples=4"};

TEST(onnx_programs_of_recipes_are_written_and_read_again)
{
    static const struct {
        const char *config, *program;
        int keys;
    } cases[] = {{"regress/tiny", NULL, 2},
                 {"regress/tiny", "eval", 2},
                 {"classify/tiny", NULL, 2},
                 {"cloud/tiny", "eval", 2}};
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        recipe_run t = {NULL};
        CHECK_OK(recipe_run_new(&t, cases[i].config, keys, cases[i].keys, cases[i].program,
                                pl_test_dir()));
        CHECK_OK(read_back(&t));
        pl_run_free(t.run);
        pl_program_free(t.extra);
    }
}

/* All tiny presets; programs that a recipe does not have are not in the list. */
TEST(onnx_runtime_computes_programs_of_recipes_as_the_engine_does)
{
    static const struct {
        const char *config, *program;
    } cases[] = {
        {"regress/tiny", NULL},
        {"regress/tiny", "eval"},
        {"classify/tiny", NULL},
        {"classify/tiny", "eval"},
        {"segment/tiny", NULL},
        {"segment/tiny", "eval"},
        {"text/tiny", NULL},
        {"text/tiny", "eval"},
        {"cloud/tiny", NULL},
        {"cloud/tiny", "eval"},
        {"fluxflow/tiny", NULL},
        {"fluxflow/tiny", "eval"},
        {"fluxflow/flow-tiny", "eval"},
        {"lgt/tiny", NULL},
        {"lgt/tiny", "eval"},
        {"wandistill/tiny", "eval"},
        {"stablesr/tiny", "eval"},
    };
    int written = 0;
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    if (!pl_test_long()) SKIP("a long test");
    WANT_PYTHON(python, "onnxruntime");
    const char *dir = pl_test_dir();
    char command[2600];
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        recipe_run t = {NULL};
        pl_status rc = recipe_run_new(&t, cases[i].config, keys, 2, cases[i].program, dir);
        if (rc == PL_OK) rc = save(&t);
        if (rc != PL_OK)
            pl_test_fail(__FILE__, __LINE__, "%s %s: %s", cases[i].config,
                         cases[i].program ? cases[i].program : "", pl_error_text());
        written += rc == PL_OK;
        pl_run_free(t.run);
        pl_program_free(t.extra);
    }
    snprintf(command, sizeof command, "%s tools/oracle/onnx_runtime.py %s > %s/log 2>&1", python,
             dir, dir);
    int rc = system(command);
    snprintf(command, sizeof command, "cat %s/log", dir);
    if (rc) CHECK_INT(system(command), 0);
    CHECK_INT(rc, 0);
    CHECK(written > 10);
}
