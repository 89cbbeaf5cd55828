/* cmd_inspect.c - `plimsoll inspect`: lists the contents of a configuration, a model file, a run
 * folder or a data set. */
#include "cli/inspect_onnx.h"
#include "cli/plan/plan_view.h"
#include "plimsoll_checkpoint.h"
#include "plimsoll_json.h"
#include "plimsoll_onnx.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- model files ------------------------------------------------------------------------ */
typedef struct totals {
    uint64_t bytes;
    int64_t elems;
    int n;
} totals;

static void print_tensor(void *ctx, const pl_tensor_info *t)
{
    totals *sum = ctx;
    char shape[128] = "[";
    int64_t elems = 1;
    for (int i = 0; i < t->rank; i++) {
        size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, i ? ",%lld" : "%lld", (long long)t->dim[i]);
        elems *= t->dim[i];
    }
    strncat(shape, "]", sizeof shape - strlen(shape) - 1);
    int n = (int)strlen(t->name);
    fputs("  ", stdout);
    cli_put(stdout, t->name);
    cli_say("%*s %-6s %-22s %12s\n", n < 48 ? 48 - n : 0, "", t->dtype, shape, cli_bytes(t->bytes));
    sum->bytes += t->bytes;
    sum->elems += elems;
    sum->n++;
}

static void print_meta(void *ctx, const char *key, const char *value)
{
    (void)ctx;
    fputs("  ", stdout);
    cli_put(stdout, key);
    fputs(" = ", stdout);
    cli_put(stdout, value);
    putchar('\n');
}

static int inspect_file(const char *path)
{
    totals sum = {0};
    pl_status rc = pl_model_file_list(path, print_tensor, print_meta, &sum);
    if (rc != PL_OK) return cli_fail(rc);
    cli_say("%d tensors, %s elements, %s\n", sum.n, cli_count(sum.elems), cli_bytes(sum.bytes));
    return 0;
}

static bool is_inside(const char *folder, const char *name)
{
    char *path = cli_text("%s/%s", folder, name);
    bool is = path && access(path, F_OK) == 0;
    free(path);
    return is;
}

/* ---- checkpoints and run folders -------------------------------------------------------- */
/* Prints the end of a line that reports a fault. */
static void PL_PRINTF(1, 2) print_red(const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    fputs(cli_red(stdout), stdout);
    if (n >= 0) cli_put(stdout, text);
    puts(cli_plain(stdout));
    free(text);
}

/* Prints one line about a checkpoint; returns false when the checkpoint is damaged. */
static bool print_checkpoint(const char *dir, int64_t step, const char *mark)
{
    pl_checkpoint *c = cli_new(sizeof *c);
    bool whole = pl_checkpoint_verify(dir, c) == PL_OK, misnamed = whole && c->step != step;
    if (misnamed)
        print_red("  %s  misnamed: holds step %s; a run would not resume from it", dir,
                  cli_count(c->step));
    else if (whole)
        cli_say("  %s  step %s%s%s, %s, written %s%s\n", dir, cli_count(c->step),
                c->phase < 0 ? "" : ", phase ", c->phase_name, cli_bytes(c->bytes), c->written,
                mark);
    else
        print_red("  %s  damaged: %s", dir, pl_error_text());
    free(c);
    return whole && !misnamed;
}

static void print_contents(const pl_checkpoint *c)
{
    cli_say("checkpoint of recipe %s: %s steps done, all checksums match\n", c->recipe,
            cli_count(c->step));
    if (c->phase >= 0)
        cli_say("  phase %s (number %d), %s steps of it done\n", c->phase_name, c->phase,
                cli_count(c->phase_step));
    cli_say("  written %s by version %s on %s with %d threads\n", c->written, c->version, c->device,
            c->threads);
    cli_say("  training samples: %s, micro-batches per step: %lld\n",
            c->samples ? cli_count(c->samples) : "unlimited", (long long)c->accumulate);
    for (int i = 0; i < c->n_files; i++)
        cli_say("  %-24s %12s  xxh64 %016llx\n", c->file[i].name, cli_bytes(c->file[i].bytes),
                (unsigned long long)c->file[i].hash);
    for (int i = 0; i < c->n_notes; i++)
        cli_say("  %-24s %.9g\n", c->note[i].key, c->note[i].value);
}

static int inspect_checkpoint(const char *dir)
{
    pl_checkpoint *c = cli_new(sizeof *c);
    pl_status rc = pl_checkpoint_verify(dir, c);
    if (rc == PL_OK) print_contents(c);
    free(c);
    return rc == PL_OK ? 0 : cli_fail(rc);
}

static void print_bad(void *ctx, const char *why)
{
    (void)ctx;
    print_red("    damaged: %s", why);
}

/* Verifies the files that SUMS.xxh64 lists; returns false when one is damaged. */
static bool print_sums(const char *path)
{
    int files;
    if (!is_inside(path, PL_SUMS)) return true; /* an earlier version wrote none */
    bool whole = pl_sums_verify(path, print_bad, NULL, &files) == PL_OK;
    if (whole)
        cli_say("    and %d more in " PL_SUMS "\n", files);
    else
        cli_error("%s has damaged files: %s", path, pl_error_text());
    return whole;
}

/* Prints the results of a run with their checksums; returns false when one is damaged. */
static bool print_results(const char *path)
{
    pl_checkpoint *c = cli_new(sizeof *c);
    if (!is_inside(path, "finished.json")) {
        cli_say("  not finished: no %s/finished.json\n", path);
        free(c);
        return true;
    }
    bool whole = pl_folder_finished(path, false, c) == PL_OK;
    if (whole)
        cli_say("  finished at step %s, all checksums match:\n", cli_count(c->step));
    else
        cli_error("%s is finished, but damaged: %s", path, pl_error_text());
    for (int i = 0; i < c->n_files; i++)
        cli_say("    %-24s %12s  xxh64 %016llx\n", c->file[i].name, cli_bytes(c->file[i].bytes),
                (unsigned long long)c->file[i].hash);
    free(c);
    return print_sums(path) && whole;
}

enum { SHOWN = 256 };
typedef struct shown {
    int64_t steps[SHOWN];
    char at[4096];
} shown;

/* Lists the checkpoints of a run. Returns exit code 6 when something is damaged. */
static int inspect_run(const char *path)
{
    shown *s = cli_new(sizeof *s);
    int64_t best = pl_folder_best(path);
    int n = pl_folder_steps(path, s->steps, SHOWN);
    bool all = true;
    cli_say("run folder %s: %d checkpoint%s\n", path, n, n == 1 ? "" : "s");
    for (int i = 0; i < n && i < SHOWN; i++) {
        pl_folder_checkpoint(path, s->steps[i], s->at, sizeof s->at);
        bool whole = print_checkpoint(s->at, s->steps[i], s->steps[i] == best ? " (best)" : "");
        all = all && whole;
    }
    free(s);
    bool results = print_results(path);
    return all && results ? 0 : pl_status_exit_code(PL_ERR_FILE);
}

/* Returns -1 when the path is neither a checkpoint nor a run folder. */
static int inspect_folder(const char *path)
{
    if (is_inside(path, "manifest.json")) return inspect_checkpoint(path);
    return is_inside(path, "checkpoints") ? inspect_run(path) : -1;
}

/* ---- other folders ------------------------------------------------------------------------ */
static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static bool is_weight_file(const char *path)
{
    static const char *const tail[] = {
        ".safetensors", ".safetensors.index.json", ".pt", ".pth", ".ckpt", ".bin"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        if (ends_with(path, tail[i])) return true;
    return false;
}

/* nftw has no context: the counts of the walk. */
static struct {
    int files, damaged, without;
} walk;

static void note_sum(void *ctx, const char *key, const char *value)
{
    if (strcmp(key, "checksum") == 0) *(bool *)ctx = strcmp(value, "none") != 0;
}

static void skip_tensor(void *ctx, const pl_tensor_info *t)
{
    (void)ctx;
    (void)t;
}

/* Whether an ONNX file begins with its checksum (docs/WEIGHTS.md), which opening has verified. */
static bool has_sum(const char *path)
{
    static const char key[] = "plimsoll.xxh64";
    char head[4 + sizeof key];
    FILE *f = cli_open_plain(path);
    size_t n = f ? fread(head, 1, sizeof head, f) : 0;
    if (f) fclose(f);
    return n == sizeof head && memcmp(head + 4, key, sizeof key - 1) == 0;
}

/* Prints a line for a model file, with the state of its checksum. */
static int see_model(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    bool onnx = ends_with(path, ".onnx"), sum = onnx && has_sum(path);
    if (type != FTW_F || (!onnx && !is_weight_file(path)) || ends_with(path, ".json")) return 0;
    pl_onnx *o = NULL;
    pl_status rc =
        onnx ? pl_onnx_open(path, &o) : pl_model_file_list(path, skip_tensor, note_sum, &sum);
    pl_onnx_free(o);
    walk.files++;
    walk.damaged += rc != PL_OK;
    walk.without += rc == PL_OK && !sum;
    fputs("  ", stdout);
    cli_put(stdout, path);
    cli_say("  %s", cli_bytes((uint64_t)st->st_size));
    if (rc != PL_OK)
        print_red("  damaged: %s", pl_error_text());
    else
        puts(sum ? "  whole" : "  no checksum");
    return 0;
}

/* Verifies every model file in a folder and below it: an export, a cache, copies. */
static int inspect_models(const char *path)
{
    if (access(path, R_OK | X_OK) != 0 || nftw(path, see_model, 16, FTW_PHYS) != 0) {
        cli_error("cannot read %s: %s", path, strerror(errno));
        return 1;
    }
    cli_say("%d model files, %d damaged, %d without a checksum\n", walk.files, walk.damaged,
            walk.without);
    if (!print_sums(path)) walk.damaged++;
    if (walk.files == 0) {
        cli_error("%s is not a run folder, and has no model file", path);
        return 2;
    }
    return walk.damaged ? pl_status_exit_code(PL_ERR_FILE) : 0;
}

/* ---- programs --------------------------------------------------------------------------- */
static void print_buffers(const pl_program *p)
{
    cli_say("offset,bytes,first,last,label\n");
    for (int i = 0; i < pl_program_plan(p)->buffers; i++) {
        pl_plan_buffer b = pl_program_buffer(p, i);
        cli_say("%llu,%llu,%d,%d,\"%s\"\n", (unsigned long long)b.offset,
                (unsigned long long)b.bytes, b.first, b.last, b.label);
    }
}

static void print_inputs(const pl_program *p)
{
    for (int i = 0; i < pl_program_input_count(p); i++) {
        pl_type t = pl_program_input_type(p, i);
        char type[96];
        cli_say("  %-10s %-48s %-22s %12s\n", "input", pl_program_input_name(p, i),
                pl_type_text(&t, type, sizeof type), cli_bytes(pl_type_bytes(&t)));
    }
}

static const char *const slot_kinds[] = {"param", "buffer", "optimizer", "counter"};

static void print_slots(const pl_run *run)
{
    pl_store *s = pl_run_store(run);
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *t = pl_store_slot(s, i);
        char type[96];
        cli_say("  %-10s %-48s %-22s %12s%s%s\n", slot_kinds[t->kind], t->name,
                pl_type_text(&t->type, type, sizeof type), cli_bytes(pl_slot_bytes(t)),
                t->quant ? " in " : "", t->quant ? pl_quant_name(t->quant) : "");
    }
    cli_say("%s parameters, %s trainable\n", cli_count(pl_run_parameters(run, false)),
            cli_count(pl_run_parameters(run, true)));
}

static void json_tensor(pl_json *j, const char *kind, const char *name, const pl_type *t,
                        uint64_t bytes)
{
    char type[96];
    pl_json_object(j, NULL);
    pl_json_string(j, "kind", kind);
    pl_json_string(j, "name", name);
    pl_json_string(j, "type", pl_type_text(t, type, sizeof type));
    pl_json_uint(j, "bytes", bytes);
    pl_json_end(j);
}

static pl_status json_state(const pl_run *run, const pl_program *p)
{
    pl_store *s = pl_run_store(run);
    pl_json *j = pl_json_new(stdout);
    pl_json_object(j, NULL);
    pl_json_array(j, "tensors");
    for (int i = 0; i < pl_program_input_count(p); i++) {
        pl_type t = pl_program_input_type(p, i);
        json_tensor(j, "input", pl_program_input_name(p, i), &t, pl_type_bytes(&t));
    }
    for (int i = 0; i < pl_store_count(s); i++) {
        const pl_slot *t = pl_store_slot(s, i);
        json_tensor(j, slot_kinds[t->kind], t->name, &t->type, pl_slot_bytes(t));
    }
    pl_json_end(j);
    pl_json_int(j, "parameters", pl_run_parameters(run, false));
    pl_json_int(j, "trainable", pl_run_parameters(run, true));
    pl_json_end(j);
    pl_status rc = pl_json_finish(j);
    pl_json_free(j);
    return rc;
}

/* ---- data sets -------------------------------------------------------------------------- */
enum { MAX_KINDS = 64 };

/* The files of one format and colour. */
typedef struct kind {
    char name[48];
    int64_t files;
    int min_w, min_h, max_w, max_h;
} kind;

typedef struct data_view {
    pl_json *json;
    bool bar;
    int n, percent;
    int64_t bad;
    kind kinds[MAX_KINDS];
} data_view;

static void note_kind(data_view *v, const pl_data_file *f)
{
    char name[48];
    snprintf(name, sizeof name, "%s %s%s", f->format, f->colour, f->bits == 16 ? " 16 bit" : "");
    int i = 0;
    while (i < v->n && strcmp(v->kinds[i].name, name) != 0) i++;
    if (i == MAX_KINDS) return;
    kind *k = &v->kinds[i];
    if (i == v->n) {
        v->n++;
        *k = (kind){.min_w = f->width, .min_h = f->height};
        memcpy(k->name, name, sizeof name);
    }
    k->files++;
    if (f->width < k->min_w) k->min_w = f->width;
    if (f->height < k->min_h) k->min_h = f->height;
    if (f->width > k->max_w) k->max_w = f->width;
    if (f->height > k->max_h) k->max_h = f->height;
}

static void json_bad(pl_json *j, const pl_data_file *f)
{
    pl_json_object(j, NULL);
    pl_json_string(j, "path", f->path);
    pl_json_string(j, "problem", f->problem);
    pl_json_end(j);
}

static void see_file(void *ctx, const pl_data_file *f)
{
    data_view *v = ctx;
    if (!f->problem) {
        note_kind(v, f);
        return;
    }
    v->bad++;
    if (v->json) {
        json_bad(v->json, f);
        return;
    }
    fprintf(stderr, "%s%sbad%s ", v->bar ? "\r\033[K" : "", cli_red(stderr), cli_plain(stderr));
    cli_put(stderr, f->path);
    fputs(": ", stderr);
    cli_put(stderr, f->problem);
    fputc('\n', stderr);
}

static void show_progress(void *ctx, int64_t done, int64_t total)
{
    data_view *v = ctx;
    int percent = (int)(100 * done / total);
    if (!v->bar || (percent == v->percent && done < total)) return;
    v->percent = percent;
    fprintf(stderr, "\r\033[K%s of %s %3d%% |%s%s", cli_count(done), cli_count(total), percent,
            cli_bar((double)done / (double)total, 30), done == total ? "\r\033[K" : "");
    fflush(stderr);
}

static void json_kinds(data_view *v, const pl_data_summary *s)
{
    pl_json *j = v->json;
    pl_json_end(j); /* bad */
    pl_json_array(j, "kinds");
    for (int i = 0; i < v->n; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "kind", v->kinds[i].name);
        pl_json_int(j, "files", v->kinds[i].files);
        pl_json_int(j, "min_width", v->kinds[i].min_w);
        pl_json_int(j, "min_height", v->kinds[i].min_h);
        pl_json_int(j, "max_width", v->kinds[i].max_w);
        pl_json_int(j, "max_height", v->kinds[i].max_h);
        pl_json_end(j);
    }
    pl_json_end(j);
    pl_json_int(j, "files", s->files);
    pl_json_int(j, "bad_files", s->bad);
    pl_json_int(j, "ignored", s->ignored);
    pl_json_string(j, "ignored_kinds", s->skipped);
    pl_json_int(j, "classes", s->classes);
    pl_json_int(j, "shards", s->shards);
    pl_json_uint(j, "bytes", s->bytes);
    pl_json_end(j);
}

static void print_kinds(const data_view *v, const pl_data_summary *s)
{
    cli_say("%-28s %10s  %s\n", "kind", "files", "smallest to largest size");
    for (int i = 0; i < v->n; i++) {
        const kind *k = &v->kinds[i];
        cli_say("%-28s %10s  %d x %d to %d x %d\n", k->name, cli_count(k->files), k->min_w,
                k->min_h, k->max_w, k->max_h);
    }
    cli_say("%s images, %s, %d classes", cli_count(s->files), cli_bytes(s->bytes), s->classes);
    if (s->shards) cli_say(", %d shards", s->shards);
    if (s->ignored)
        cli_say(", %s other files are not read (%s)", cli_count(s->ignored), s->skipped);
    cli_say("; %s bad\n", cli_count(s->bad));
}

/* Decodes every image. Returns exit code 5 if one is bad, as training with data.on_bad=fail does.
 */
static int inspect_data(const char *path, bool json)
{
    data_view v = {.percent = -1, .bar = !json && cli_terminal(stderr)};
    pl_data_scan_opts o = {.each = see_file, .progress = show_progress, .ctx = &v};
    pl_data_summary sum;
    if (json) {
        v.json = pl_json_new(stdout);
        pl_json_object(v.json, NULL);
        pl_json_string(v.json, "path", path);
        pl_json_array(v.json, "bad");
    }
    pl_status rc = pl_data_scan(path, &o, &sum);
    if (rc == PL_OK && json) json_kinds(&v, &sum);
    if (rc == PL_OK && json) rc = pl_json_finish(v.json);
    pl_json_free(v.json);
    if (rc != PL_OK) return cli_fail(rc);
    if (!json) print_kinds(&v, &sum);
    return sum.bad ? pl_status_exit_code(PL_ERR_DATA) : 0;
}

/* Returns a program by its name. An unknown name lists the valid ones and returns NULL. */
static const pl_program *program_named(const pl_run *run, const char *name)
{
    char names[512] = "";
    plan_program p;
    size_t n = 0;
    for (int i = 0; (p = plan_program_at(run, i)).program; i++) {
        if (strcmp(p.name, name) == 0) return p.program;
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", p.name);
    }
    cli_error("there is no program %s; the programs are: %s", name, names);
    return NULL;
}

typedef struct inspect_options {
    bool graph, buffers, json;
    const char *program;
} inspect_options;

const cli_help cli_help_inspect = {
    .usage = "plimsoll inspect CONFIG|FILE|RUN [key=value ...]\n"
             "plimsoll inspect data DIR",
    .about =
        "Lists the tensors of a weight file (.safetensors or its index, .pt, .pth, .ckpt, "
        ".bin); the inputs,\noutputs and tensors of an ONNX file; the checkpoints and results of a run "
        "folder, with their checksums\nverified; or the inputs and the state, the graph or the "
        "buffers of a configuration (with keys, of an\nONNX file, too). `inspect data` decodes every "
        "image of a data set and lists the images that cannot\nbe read (exit code 5).",
    .examples = "  plimsoll inspect runs/first\n"
                "  plimsoll inspect runs/first/model.safetensors\n"
                "  plimsoll inspect model.onnx\n"
                "  plimsoll inspect cloud/tiny\n"
                "  plimsoll inspect cloud/tiny --graph\n"
                "  plimsoll inspect fluxflow/tiny --buffers --program disc_r1\n"
                "  plimsoll inspect data photos/\n",
    .options =
        (const cli_option[]){
            {"--graph", NULL, offsetof(inspect_options, graph),
             "print the graph of the training program, after all passes"},
            {"--buffers", NULL, offsetof(inspect_options, buffers),
             "print every buffer of the plan of the training program as CSV"},
            {"--program", "NAME", offsetof(inspect_options, program),
             "use another program: evaluation, sampling, or a program of the step"},
            {"--json", NULL, offsetof(inspect_options, json),
             "print a JSON object (configuration or data set only)"},
            {NULL},
        },
};

int cmd_inspect(int argc, char **argv)
{
    inspect_options o = {.graph = false};
    cli_args a;
    cli_parse(argc, argv, &cli_help_inspect, &o, &a);
    bool data = a.n_positional > 0 && strcmp(a.positional[0], "data") == 0;
    cli_want(&a, 1 + data, 1 + data, "inspect",
             data ? "the folder or .tar of a data set" : "one configuration or file");
    if (data && a.n_overrides) {
        cli_error("inspect data takes no configuration keys: %s", a.overrides[0]);
        return 2;
    }
    struct stat st;
    const char *path = a.positional[data];
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode), file = is_weight_file(path);
    bool other = data || folder || file; /* no configuration */
    if (other && (o.graph || o.buffers || o.program)) {
        cli_error("--graph, --buffers and --program are for configurations, not for %s", path);
        return 2;
    }
    if (o.json && ((other && !data) || o.graph || o.buffers)) {
        cli_error("--json is for the tensors of a configuration and for data sets");
        return 2;
    }
    if (data) return inspect_data(path, o.json);
    if (file) return inspect_file(path);
    int code = inspect_folder(path);
    if (code >= 0) return code;
    if (folder) return inspect_models(path);
    bool built = o.graph || o.buffers || o.program || o.json || a.n_overrides;
    if (ends_with(path, ".onnx") && !built) return inspect_onnx(path);
    pl_run *run = NULL;
    pl_status rc = pl_run_open(path, a.overrides, a.n_overrides, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    const pl_program *p = rc == PL_OK ? program_named(run, o.program ? o.program : "train") : NULL;
    if (rc == PL_OK && !p) {
        pl_run_free(run);
        return 2;
    }
    char *text = NULL;
    if (p && o.graph) rc = pl_program_print(p, &text);
    if (text) fputs(text, stdout);
    pl_text_free(text);
    if (p && o.buffers) print_buffers(p);
    if (p && o.json)
        rc = json_state(run, p);
    else if (p && !o.graph && !o.buffers) {
        print_inputs(p);
        print_slots(run);
    }
    pl_run_free(run);
    return rc == PL_OK ? 0 : cli_fail(rc);
}
