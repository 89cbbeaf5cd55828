/* authors.c - the folder, about.json, io.safetensors, and the lines; see authors.h. */
#include "tests/authors/authors.h"

#include "base/dtype.h"
#include "base/sys.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *name;
    void (*check)(authors *a);
} systems[] = {
    {"fluxflow", authors_fluxflow}, {"wandistill", authors_wandistill}, {"cloud", authors_cloud},
    {"lgt", authors_lgt},           {"stablesr", authors_stablesr},
};

/* ---- lines -------------------------------------------------------------------------------- */
static void add(authors *a, const authors_entry *e)
{
    enum { CHUNK = 64 };
    if (a->n_entries % CHUNK == 0) {
        authors_entry *more = pl_arena_new(&a->mem, authors_entry, (size_t)a->n_entries + CHUNK);
        if (!more) return;
        if (a->n_entries) memcpy(more, a->entry, (size_t)a->n_entries * sizeof *more);
        a->entry = more;
    }
    a->entry[a->n_entries++] = *e;
}

void authors_line(authors *a, const char *what, double difference, double tolerance,
                  const char *note)
{
    authors_entry e = {.difference = difference, .tolerance = tolerance};
    snprintf(e.what, sizeof e.what, "%s", what);
    snprintf(e.note, sizeof e.note, "%s", note ? note : "");
    add(a, &e);
}

void authors_fail(authors *a, const char *what, const char *fmt, ...)
{
    authors_entry e = {.failed = true};
    va_list args;
    va_start(args, fmt);
    vsnprintf(e.note, sizeof e.note, fmt, args);
    va_end(args);
    snprintf(e.what, sizeof e.what, "%s", what);
    add(a, &e);
}

static bool within(const authors_entry *e) /* NaN differs */
{
    return !e->failed && e->difference <= e->tolerance;
}

/* The tolerance and the error of the authors' f32, stated or measured in f64. */
static double bound_of(const authors *a, const authors_entry *e, const authors_entry *precise)
{
    return e->tolerance + fmax(authors_stated(a, e->what), precise->moved);
}

/* Whether f64, unmoved or in a draw, has a difference within `by` of this one. */
static bool met(const authors_entry *precise, double difference, double by)
{
    if (fabs(precise->difference - difference) <= by) return true;
    for (int i = 0; i < precise->n_drawn; i++)
        if (fabs(precise->drawn[i] - difference) <= by) return true;
    return false;
}

bool authors_agree(const authors *a, const authors_entry *e, const authors_entry *precise)
{
    if (within(e)) return true;
    if (e->failed || !precise || precise->failed) return false;
    double bound = bound_of(a, e, precise), least = e->tolerance + authors_stated(a, e->what);
    return (precise->difference <= bound || met(precise, 0, least)) &&
           (e->difference <= AUTHORS_ROUNDING * bound || met(precise, e->difference, least));
}

void authors_drawn(authors_entry *precise, const authors_entry *now, bool inputs)
{
    if (now->failed || precise->n_drawn == AUTHORS_DRAWS) return;
    precise->drawn[precise->n_drawn++] = now->difference;
    if (!inputs) precise->moved = fmax(precise->moved, fabs(now->difference - precise->difference));
}

static void print_entry(authors *a, const authors_entry *e, const authors_entry *precise)
{
    char text[96] = "";
    bool ok = authors_agree(a, e, precise);
    if (!within(e) && !e->failed && precise && !precise->failed) {
        double bound = bound_of(a, e, precise);
        bool jump = precise->difference > bound || e->difference > AUTHORS_ROUNDING * bound;
        snprintf(text, sizeof text, "  f64 %.2e of %.2e%s", precise->difference, bound,
                 ok && jump ? ", jump met by a draw" : "");
    }
    a->lines++;
    a->bad += !ok;
    if (ok && a->quiet) return;
    if (e->failed)
        printf("%-10s %-46s DIFFERS  %s\n", a->system, e->what, e->note);
    else
        printf("%-10s %-46s %9.2e  %7.0e  %s%s%s%s\n", a->system, e->what, e->difference,
               e->tolerance, ok ? "ok" : "DIFFERS", text, *e->note ? "  " : "", e->note);
}

void authors_term(authors *a, const char *what, double got, double want, double tolerance)
{
    char note[96];
    double size = fabs(want) > 0 ? fabs(want) : 1;
    snprintf(note, sizeof note, "%.9g, authors %.9g", got, want);
    double d = fabs(got - want) / size;
    authors_line(a, what, d, tolerance, d <= tolerance ? NULL : note);
}

/* ---- about.json --------------------------------------------------------------------------- */
json_t *authors_at(const authors *a, const char *path)
{
    json_t *v = a->about;
    char key[128];
    while (v && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        v = json_is_array(v) ? json_array_get(v, (size_t)strtoul(key, NULL, 10))
                             : json_object_get(v, key);
        path += n + (path[n] == '.');
    }
    return v;
}

double authors_number(authors *a, const char *path)
{
    json_t *v = authors_at(a, path);
    if (json_is_number(v)) return json_number_value(v);
    authors_fail(a, path, "about.json has no such number");
    return 0;
}

int64_t authors_int(authors *a, const char *path)
{
    return (int64_t)llround(authors_number(a, path));
}

const char *authors_text(authors *a, const char *path)
{
    const char *text = json_string_value(authors_at(a, path));
    if (!text) authors_fail(a, path, "about.json has no such text");
    return text ? text : "";
}

/* Whether the list has KIND/NAME, or NAME, which is of every kind. */
static bool lists(const json_t *list, const char *kind, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i)), *slash = s ? strchr(s, '/') : s;
        if (!s || strcmp(slash ? slash + 1 : s, name) != 0) continue;
        if (!kind || !slash ||
            (strlen(kind) == (size_t)(slash - s) && strncmp(s, kind, strlen(kind)) == 0))
            return true;
    }
    return false;
}

/* float64.WHERE.NAME.relative, or float64.WHERE.NAME; 0: it is not stated. */
static double stated_error(const authors *a, const char *where, const char *name, size_t n)
{
    char key[256];
    snprintf(key, sizeof key, "%.*s", (int)n, name);
    json_t *v = json_object_get(json_object_get(json_object_get(a->about, "float64"), where), key);
    return json_number_value(json_is_object(v) ? json_object_get(v, "relative") : v);
}

double authors_stated(const authors *a, const char *what)
{
    static const char *const where[] = {"tensors", "scalars"};
    const char *last = strrchr(what, ' ') ? strrchr(what, ' ') + 1 : what;
    double error = 0;
    for (int i = 0; i < 2; i++) {
        error = fmax(error, stated_error(a, where[i], what, strlen(what)));
        error = fmax(error, stated_error(a, where[i], what, strcspn(what, "/ ")));
        error = fmax(error, stated_error(a, where[i], last, strlen(last)));
    }
    return error;
}

bool authors_is_rounding(const authors *a, const char *kind, const char *name)
{
    char path[128];
    const char *end = kind && strncmp(kind, "grad_", 5) == 0 ? kind + 4 : "";
    snprintf(path, sizeof path, "float64.rounding_only%s", end);
    json_t *own = *end ? authors_at(a, path) : NULL; /* of gradients of this kind */
    return lists(own ? own : authors_at(a, "float64.rounding_only"), kind, name);
}

/* ---- tensors ------------------------------------------------------------------------------ */
/* Moves dimension 1 of [N, C, s..] to the end. */
static void to_channels_last(const double *x, double *y, pl_type *t)
{
    int64_t n = t->dim[0], c = t->dim[1], area = 1;
    for (int i = 2; i < t->rank; i++) area *= t->dim[i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t j = 0; j < area; j++) y[(i * area + j) * c + k] = *x++;
    for (int i = 1; i + 1 < t->rank; i++) t->dim[i] = t->dim[i + 1];
    t->dim[t->rank - 1] = c;
}

/* Elements in the order of the file. */
static double *read_tensor(authors *a, const char *name, pl_type *type)
{
    for (int k = 0; k < pl_st_count(a->io); k++) {
        const pl_st_tensor *t = pl_st_at(a->io, k);
        if (strcmp(t->name, name) != 0 || !t->loadable) continue;
        int64_t n = pl_type_elems(&t->type);
        size_t bytes = pl_type_bytes(&t->type);
        char *raw = pl_arena_alloc(&a->mem, bytes + 1);
        double *x = pl_arena_new(&a->mem, double, (size_t)n + 1);
        if (!raw || !x || pl_st_read(a->io, t, raw, bytes) != PL_OK) return NULL;
        for (int64_t i = 0; i < n; i++) x[i] = pl_elem_get(t->type.dtype, raw, i);
        a->used[k] = true;
        *type = t->type;
        return x;
    }
    return NULL;
}

double *authors_tensor(authors *a, const char *name, authors_layout layout, pl_type *type)
{
    double *x = read_tensor(a, name, type);
    if (!x || layout == AUTHORS_PLAIN || type->rank < 3) return x;
    double *y = pl_arena_new(&a->mem, double, (size_t)pl_type_elems(type) + 1);
    if (y) to_channels_last(x, y, type);
    return y;
}

double authors_difference(const double *got, const double *want, int64_t n)
{
    double d = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(got[i]) || !isfinite(want[i])) return (double)INFINITY;
        d = fmax(d, fabs(got[i] - want[i]));
        most = fmax(most, fabs(want[i]));
    }
    return most > 0 ? d / most : d;
}

static uint64_t mix(uint64_t x)
{
    uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double authors_sign(uint64_t i, uint64_t k)
{
    return mix(i + 0x506C696Du + (k << 40)) >> 63 ? -1 : 1;
}

void authors_sketch(const double *x, int64_t n, double out[4])
{
    double square = 0;
    out[1] = out[2] = out[3] = 0;
    for (int64_t i = 0; i < n; i++) {
        square += x[i] * x[i];
        for (uint64_t k = 0; k < 3; k++) out[k + 1] += authors_sign((uint64_t)i, k) * x[i];
    }
    out[0] = sqrt(square);
}

void authors_output(authors *a, const char *name, authors_layout layout, const pl_type *type,
                    const void *got)
{
    pl_type t;
    const double *want = authors_tensor(a, name, layout, &t);
    if (!want) {
        authors_fail(a, name, "io.safetensors has no such tensor");
        return;
    }
    int64_t n = pl_type_elems(type);
    double *x = pl_arena_new(&a->mem, double, (size_t)n + 1);
    if (!x || pl_type_elems(&t) != n) {
        char p[96], q[96];
        authors_fail(a, name, "is %s, ours is %s", pl_type_text(&t, p, sizeof p),
                     pl_type_text(type, q, sizeof q));
        return;
    }
    for (int64_t i = 0; i < n; i++) x[i] = pl_elem_get(type->dtype, got, i);
    authors_line(a, name, authors_difference(x, want, n), AUTHORS_OUTPUT, NULL);
}

/* ---- the folder --------------------------------------------------------------------------- */
/* Prints a line that differs if a tensor was not asked for; inputs need not be. */
static void check_all_used(authors *a)
{
    int n = 0;
    const char *first = NULL;
    for (int i = 0; i < pl_st_count(a->io); i++) {
        const char *name = pl_st_at(a->io, i)->name;
        if (a->used[i] || strncmp(name, "in/", 3) == 0) continue;
        if (strncmp(name, "sketch/", 7) == 0) name += 7;
        const char *slash = strchr(name, '/');
        if (slash && authors_is_rounding(a, NULL, slash + 1)) continue;
        if (!n++) first = pl_st_at(a->io, i)->name;
    }
    if (n) authors_fail(a, "all tensors", "%d were not compared: %s, ...", n, first);
}

static pl_status open_system(authors *a)
{
    char path[1100], *text;
    size_t len;
    json_error_t error;
    snprintf(path, sizeof path, "%s/about.json", a->dir);
    PL_TRY(pl_sys_read_file(path, (size_t)64 << 20, &text, &len));
    a->about = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    pl_sys_free(text);
    PL_FAIL_IF(!a->about, PL_ERR_FILE, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    snprintf(path, sizeof path, "%s/io.safetensors", a->dir);
    PL_TRY(pl_st_open(path, &a->io));
    a->used = pl_arena_new(&a->mem, bool, (size_t)pl_st_count(a->io) + 1);
    return a->used ? PL_OK : PL_ERR_MEMORY;
}

/* The line of the same name at the same place; NULL: there is none. */
static authors_entry *same_line(authors_entry *entry, int n, int i, const authors_entry *as)
{
    return i < n && strcmp(entry[i].what, as->what) == 0 ? &entry[i] : NULL;
}

/* Compares once more, with new lines; draw: as authors.h says. */
static void check_again(authors *a, void (*check)(authors *a), int draw)
{
    a->entry = NULL;
    a->n_entries = 0;
    a->wide = true;
    a->draw = draw;
    check(a);
}

/* Whether a line of n is beyond its tolerance, and, with lines of f64, does not agree by them. */
static bool is_open(const authors *a, const authors_entry *e, int n, authors_entry *precise, int m)
{
    for (int i = 0; i < n; i++)
        if (!e[i].failed && !authors_agree(a, &e[i], same_line(precise, m, i, &e[i]))) return true;
    return false;
}

/* Prints the lines of the comparison in f32; those beyond their tolerance with f64's. */
static void print_all(authors *a, void (*check)(authors *a))
{
    authors_entry *first = a->entry, *precise = NULL;
    int n = a->n_entries, m = 0;
    if (is_open(a, first, n, NULL, 0)) {
        check_again(a, check, 0);
        precise = a->entry;
        m = a->n_entries;
    }
    for (int draw = 1; draw <= AUTHORS_DRAWS && is_open(a, first, n, precise, m); draw++) {
        check_again(a, check, draw);
        for (int i = 0; i < m; i++) {
            const authors_entry *now = same_line(a->entry, a->n_entries, i, &precise[i]);
            if (now) authors_drawn(&precise[i], now, authors_draw_moves_inputs(draw));
        }
    }
    for (int i = 0; i < n; i++) print_entry(a, &first[i], same_line(precise, m, i, &first[i]));
}

static pl_status check_system(const char *dir, size_t i, bool quiet, int *lines, int *bad)
{
    authors a = {.system = systems[i].name, .mem = PL_ARENA_INIT, .quiet = quiet};
    snprintf(a.dir, sizeof a.dir, "%s/%s", dir, systems[i].name);
    pl_status rc = open_system(&a);
    if (rc == PL_OK) {
        systems[i].check(&a);
        check_all_used(&a);
        print_all(&a, systems[i].check);
        *lines += a.lines;
        *bad += a.bad;
    }
    pl_st_close(a.io);
    json_decref(a.about);
    pl_arena_release(&a.mem);
    return rc;
}

pl_status authors_check(const char *dir, const char *only, bool quiet, int *lines, int *bad)
{
    int found = 0;
    *lines = *bad = 0;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        char path[1100];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, systems[i].name);
        if ((only && strcmp(only, systems[i].name) != 0) || stat(path, &st) != 0) continue;
        PL_TRY(check_system(dir, i, quiet, lines, bad));
        found++;
    }
    PL_FAIL_IF(!found, PL_ERR_ARG, "%s holds no folder of a known system%s%s", dir,
               only ? " named " : "", only ? only : "");
    return PL_OK;
}
