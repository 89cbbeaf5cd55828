/* weights.c - weights of a run from files: init_from, and the keys of pl_recipe.weights.
 *
 * The files are matched with the slots (weight_source.h). Then every slot is one of: loaded,
 * missing, of another shape. What may be missing is decided before the first byte is read:
 *
 *     a slot that                                            may be missing
 *     a file of the recipe's weight keys gives               yes
 *     the recipe's pl_start.missing or .fresh matches        yes
 *     init_from.missing matches ("allow": any)               yes
 *     a checkpoint leaves out, because it is frozen          yes (frozen.c compares the checksum)
 *     counts batches (num_batches_tracked)                   yes
 *     any other                                              no: PL_ERR_FILE, and the message lists
 *                                                            the names
 *
 * Another shape is allowed by pl_start.fresh and by a pattern in init_from.missing. Tensors of the
 * files that no slot takes are counted and allowed; in a file of a recipe's key those after the
 * prefix that was found are not. The counts become a table (pl_run_start_note).
 */
#include "base/str.h"
#include "train/files/checkpoint.h"
#include "train/files/weight_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 6 };

/* The counts of a row of the table: a number, and the first names. */
typedef struct row {
    int n;
    pl_str names;
} row;

typedef struct loading {
    pl_weight_source s;
    const char *fresh, *missing;  /* of the recipe; NULL: none */
    const char *allowed;          /* init_from.missing; NULL: none */
    bool any_missing;             /* init_from.missing=allow */
    const pl_st_reader *lacks;    /* the file of a checkpoint that leaves frozen weights out */
    bool start;                   /* init_from, not a key of the recipe */
    int wanted, loaded, averages; /* wanted: slots that the naming has a tensor for */
    row absent, differs, over;
    row refused, misfits; /* of absent and of differs: the names that are not allowed */
    int odd_types;        /* of misfits: those whose number format is not converted */
    row unknown;          /* of over: the names that no key of the recipe allows */
} loading;

/* Counts a name, and adds it to the text if it is one of the first few. */
static void count(row *r, const char *name)
{
    if (r->n < LISTED) pl_str_addf(&r->names, "%s%s", r->n ? ", " : "", name);
    if (r->n++ == LISTED) pl_str_addf(&r->names, ", ...");
}

static const char *names_of(const row *r)
{
    return r->names.text ? r->names.text : "";
}

static bool matches(const char *pattern, const char *name)
{
    return pattern && pl_nn_match(pattern, name);
}

static const char *slot_name(const loading *l, int slot)
{
    return pl_store_slot(l->s.r->store, slot)->name;
}

/* ---- which -------------------------------------------------------------------------------- */
static bool is_real(pl_dtype d)
{
    return d == PL_F32 || d == PL_BF16 || d == PL_F16 || d == PL_F64;
}

/* Whether the tensor's number format is the slot's or is converted to it. */
static bool is_convertible(const pl_st_tensor *t, pl_dtype want)
{
    return t->loadable && (t->type.dtype == want || (is_real(t->type.dtype) && is_real(want)));
}

/* Whether the tensor can fill the slot. */
static bool fits(const loading *l, int slot, const pl_st_tensor *t)
{
    pl_type want = pl__slot_file_type(pl_store_slot(l->s.r->store, slot));
    return is_convertible(t, want.dtype) && pl__naming_shape(l->s.from[slot], &t->type, &want);
}

/* Whether the run takes all weights from one model file, and weight keys fill the tensors that the
 * file does not have. */
static bool takes_one_file(const pl_run *r)
{
    return r->purpose.goal == PL_GOAL_PREDICT || r->purpose.goal == PL_GOAL_EVALUATE;
}

/* Whether the row says that the model itself has the slots. */
static bool of_model(const pl_weights *w)
{
    return strcmp(w->key, "init_from") == 0;
}

/* Returns whether a slot that a model file does not have comes from a file of pl_recipe.weights. A
 * frozen slot whose key is null is the business of random_frozen.c, except in evaluations and
 * predictions, which fail with the key to set. */
static pl_status lack(pl_run *r, const char *path, int slot, bool *elsewhere)
{
    const char *name = pl_store_slot(r->store, slot)->name;
    *elsewhere = false;
    PL_TRY(pl__frozen_list(r));
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++) {
        bool given = !pl_config_is_null(r->config, w->key);
        if (of_model(w) || !pl_nn_match(w->slots, name)) continue;
        PL_FAIL_IF(takes_one_file(r) && !given, PL_ERR_FILE,
                   "%s has no tensor \"%s\"; %s=FILE names a file that has it", path, name, w->key);
        r->files.lacking |= UINT64_C(1) << (w - r->recipe->weights);
        *elsewhere = given || r->files.frozen[slot];
        return PL_OK;
    }
    return PL_OK;
}

static pl_status may_be_missing(loading *l, int slot, bool *yes)
{
    const char *name = slot_name(l, slot);
    size_t n = strlen(name), m = strlen("num_batches_tracked");
    *yes = false;
    if (l->lacks) PL_TRY(pl__frozen_absent(l->s.r, l->lacks, slot, yes));
    *yes = *yes || (n >= m && strcmp(name + n - m, "num_batches_tracked") == 0) ||
           matches(l->missing, name) || matches(l->fresh, name) || l->any_missing ||
           matches(l->allowed, name);
    return *yes || !l->start ? PL_OK : lack(l->s.r, l->s.path, slot, yes);
}

/* Writes "name: f32[3,4] in the file, f32[3,5] in the model". */
static void describe(const loading *l, int slot, const pl_st_tensor *t, char *to, size_t cap)
{
    char a[96], b[96];
    pl_type want = pl__slot_file_type(pl_store_slot(l->s.r->store, slot));
    snprintf(to, cap, "%s: %s in the file, %s in the model", l->s.from[slot]->name,
             t->loadable ? pl_type_text(&t->type, a, sizeof a) : pl_st_dtype_name(t->dtype),
             pl_type_text(&want, b, sizeof b));
}

/* Decides about one slot; *take: it is to be read. */
static pl_status judge(loading *l, int slot, bool *take)
{
    int file;
    char text[PL_TENSOR_NAME + 256];
    const pl_st_tensor *t = pl__source_find(&l->s, slot, &file);
    bool yes;
    *take = t && fits(l, slot, t);
    if (*take) return PL_OK;
    if (t) {
        describe(l, slot, t, text, sizeof text);
        yes = matches(l->fresh, slot_name(l, slot)) || matches(l->allowed, slot_name(l, slot));
    } else {
        const char *theirs = l->s.from[slot]->name; /* "weight" alone says little */
        bool whole = strchr(theirs, '.') || strcmp(theirs, slot_name(l, slot)) == 0;
        const char *other = pl__source_meta(&l->s, theirs);
        int n = snprintf(text, sizeof text, "%s%s%s%s", theirs, whole ? "" : " (",
                         whole ? "" : slot_name(l, slot), whole ? "" : ")");
        if (other && n > 0 && (size_t)n < sizeof text)
            snprintf(text + n, sizeof text - (size_t)n, " (the file has %.120s)", other);
        PL_TRY(may_be_missing(l, slot, &yes));
    }
    count(t ? &l->differs : &l->absent, text);
    if (!yes) count(t ? &l->misfits : &l->refused, text);
    if (!yes && t)
        l->odd_types += !is_convertible(t, pl_store_slot(l->s.r->store, slot)->type.dtype);
    return PL_OK;
}

/* A file of a recipe's key holds one network: a tensor of that network that no slot takes (one
 * block more than the configuration has) means another network. */
static void count_left_over(loading *l)
{
    size_t n = strlen(l->s.prefix);
    for (int f = 0; f < pl_st_set_files(l->s.set); f++)
        for (int i = 0; i < pl_st_count(pl_st_set_file(l->s.set, f)); i++) {
            const char *name = pl_st_at(pl_st_set_file(l->s.set, f), i)->name;
            if (pl__source_uses(&l->s, name)) continue;
            count(&l->over, name);
            if (!l->start && l->s.r->purpose.goal != PL_GOAL_PREDICT &&
                strncmp(name, l->s.prefix, n) == 0)
                count(&l->unknown, name);
        }
}

/* ---- the table ------------------------------------------------------------------------------ */
static void add_refusal(pl_str *t, const row *r, const char *what)
{
    if (!r->n) return;
    pl_str_addf(t, "%s%d tensor%s %s: %s", t->len ? "; " : "", r->n, r->n == 1 ? "" : "s", what,
                names_of(r));
}

/* Whether so few tensors have a known name that the file holds another network, and a prefix or a
 * naming that was found means nothing. */
static bool is_another(const loading *l)
{
    enum { LEAST = 20 }; /* one of so many */
    int named = l->loaded + l->differs.n;
    return !l->s.wanted_prefix && l->wanted >= LEAST && named * LEAST < l->wanted;
}

static pl_status refuse_another(const loading *l)
{
    PL_FAIL(
        PL_ERR_FILE,
        "%s=%s seems to hold another network: of the %d tensors that the model needs, the file has "
        "%d under a known name; the file has %s",
        l->s.key, l->s.path, l->wanted, l->loaded + l->differs.n,
        l->over.n ? names_of(&l->over) : "no other tensors");
}

static const char *misfit_text(const loading *l)
{
    bool one = l->misfits.n == 1;
    if (!l->odd_types) return one ? "has another shape" : "have other shapes";
    if (l->odd_types < l->misfits.n) return "have other shapes or number formats";
    return one ? "has a number format that is not converted (f16, bf16, f32 and f64 are)"
               : "have number formats that are not converted (f16, bf16, f32 and f64 are)";
}

static pl_status refuse(const loading *l)
{
    if (is_another(l)) return refuse_another(l);
    pl_str t = PL_STR_INIT;
    add_refusal(&t, &l->refused, l->refused.n == 1 ? "is missing" : "are missing");
    add_refusal(&t, &l->misfits, misfit_text(l));
    add_refusal(&t, &l->unknown, "not known");
    if (l->start) {
        add_refusal(&t, &l->over, "left over");
        pl_str_addf(&t, "; init_from.missing=%s keeps initial values",
                    l->misfits.n ? "PATTERN,..." : "allow");
    }
    (void)pl__fail(PL_ERR_FILE, __FILE__, __LINE__, "%s=%s, read with %s names%s%s: %s", l->s.key,
                   l->s.path, l->s.naming->name, l->s.prefix[0] ? " after " : "", l->s.prefix,
                   t.text ? t.text : "");
    pl_str_release(&t);
    return PL_ERR_FILE;
}

static void print_row(pl_str *out, const char *what, const row *r)
{
    pl_str_addf(out, "\n  %-14s %6d%s%s", what, r->n, r->n ? "   " : "", names_of(r));
}

static pl_loaded_row row_of(pl_run *r, const row *from)
{
    char *names = pl_arena_strdup(&r->arena, names_of(from));
    return (pl_loaded_row){from->n, names ? names : ""};
}

/* Keeps the table for programs. */
static pl_status record(loading *l)
{
    pl_run *r = l->s.r;
    if (r->files.n_loaded == PL_MAX_LOADED) return PL_OK;
    pl_loaded *to = &r->files.loaded[r->files.n_loaded];
    *to = (pl_loaded){.key = l->s.key,
                      .path = pl_arena_strdup(&r->arena, l->s.path),
                      .naming = l->s.naming->name,
                      .prefix = pl_arena_strdup(&r->arena, l->s.prefix),
                      .loaded = l->loaded,
                      .averages = l->averages,
                      .missing = row_of(r, &l->absent),
                      .differs = row_of(r, &l->differs),
                      .left_over = row_of(r, &l->over)};
    if (!to->path || !to->prefix) return PL_ERR_MEMORY;
    r->files.n_loaded++;
    return PL_OK;
}

/* Adds the table to the run's report of its start. */
static pl_status tell(loading *l)
{
    pl_run *r = l->s.r;
    pl_str t = PL_STR_INIT;
    const char *before = r->files.start_note;
    bool report = r->purpose.goal == PL_GOAL_TRAIN || l->absent.n || l->differs.n;
    PL_TRY(record(l));
    if (!report) return PL_OK;
    pl_str_addf(&t, "%s%s%s %s: %s names", before ? before : "", before ? "\n" : "", l->s.key,
                l->s.path, l->s.naming->name);
    if (l->s.prefix[0]) pl_str_addf(&t, " after \"%s\"", l->s.prefix);
    pl_str_addf(&t, "\n  %-14s %6d", "loaded", l->loaded);
    if (l->averages) pl_str_addf(&t, "   and %d averages after \"%s\"", l->averages, l->s.ema);
    print_row(&t, "missing", &l->absent);
    print_row(&t, "shape differs", &l->differs);
    print_row(&t, "left over", &l->over);
    r->files.start_note = t.failed ? NULL : pl_arena_strdup(&r->arena, t.text);
    pl_str_release(&t);
    return r->files.start_note ? PL_OK : PL_ERR_MEMORY;
}

/* ---- reading -------------------------------------------------------------------------------- */
/* Reads the averaged weights that lie beside the weights, where the run keeps averages. */
static pl_status read_average(loading *l, int slot)
{
    char name[2 * PL_TENSOR_NAME];
    int file = 0;
    size_t skip = strlen(l->s.prefix);
    snprintf(name, sizeof name, "ema.%s", slot_name(l, slot));
    int to = pl_store_find(l->s.r->store, name);
    if (l->s.flat_ema) /* of a tensor outside of the averaged module there is none */
        name[0] = 0, (void)pl__flat_average(l->s.from[slot]->name, name, sizeof name);
    else
        snprintf(name, sizeof name, "%s%s", l->s.ema, l->s.from[slot]->name + skip);
    const pl_st_tensor *t = to < 0 ? NULL : pl_st_set_find(l->s.set, name, &file);
    if (!t || !fits(l, slot, t)) return PL_OK;
    l->averages++;
    return pl__slot_read(l->s.r, pl_st_set_file(l->s.set, file), t, to, true, l->s.from[slot]);
}

static pl_status read_slots(loading *l, const bool *take)
{
    int file = 0;
    for (int i = 0; i < pl_store_count(l->s.r->store); i++) {
        if (!take[i]) continue;
        const pl_st_tensor *t = pl__source_find(&l->s, i, &file);
        PL_TRY(pl__slot_read(l->s.r, pl_st_set_file(l->s.set, file), t, i, true, l->s.from[i]));
        if (l->s.ema) PL_TRY(read_average(l, i));
    }
    return PL_OK;
}

static pl_status load(loading *l)
{
    int n = pl_store_count(l->s.r->store);
    PL_TRY(pl__source_open(&l->s));
    for (int f = 0; l->start && f < pl_st_set_files(l->s.set) && !l->lacks; f++)
        if (pl__frozen_left_out(pl_st_set_file(l->s.set, f)))
            l->lacks = pl_st_set_file(l->s.set, f);
    bool *take = pl_arena_new(&l->s.mem, bool, (size_t)n + 1);
    if (!take) return PL_ERR_MEMORY;
    for (int i = 0; i < n; i++) {
        if (l->s.from[i]) PL_TRY(judge(l, i, &take[i]));
        l->wanted += l->s.from[i] != NULL;
        l->loaded += take[i];
    }
    count_left_over(l);
    if (l->refused.n || l->misfits.n || l->unknown.n) return refuse(l);
    PL_FAIL_IF(!l->loaded, PL_ERR_FILE, "%s=%s: none of its %d tensors is one of the model: %s",
               l->s.key, l->s.path, l->over.n, names_of(&l->over));
    PL_TRY(read_slots(l, take));
    return tell(l);
}

static void release(loading *l)
{
    pl__source_close(&l->s);
    pl_str_release(&l->absent.names);
    pl_str_release(&l->differs.names);
    pl_str_release(&l->over.names);
    pl_str_release(&l->refused.names);
    pl_str_release(&l->misfits.names);
    pl_str_release(&l->unknown.names);
}

/* ---- init_from ------------------------------------------------------------------------------ */
/* Adds a row to the table of the loaded weights. */
static pl_status tell_step(loading *l, int64_t step, const char *what)
{
    pl_run *r = l->s.r;
    r->files.start_note = pl_arena_printf(&r->arena, "%s\n  %-14s %6" PRId64 "   %s",
                                          r->files.start_note, "step", step, what);
    return r->files.start_note ? PL_OK : PL_ERR_MEMORY;
}

/* Continues the count of steps, for schedules, as init_from.step says. */
static pl_status take_step(loading *l)
{
    pl_run *r = l->s.r;
    const char *how = pl_config_text(r->config, "init_from.step"),
               *key = l->s.naming->step ? l->s.naming->step : "global_step",
               *text = pl__source_meta(&l->s, key);
    bool must = strcmp(how, "file") == 0;
    char *end = NULL;
    int64_t step = text ? strtoll(text, &end, 10) : -1,
            most = pl_config_int(r->config, "train.steps");
    bool there = text && !*end && step >= 0;
    if (strcmp(how, "new") == 0 || (!must && (!there || !step))) return PL_OK;
    PL_FAIL_IF(!there, PL_ERR_FILE, "init_from.step=file: %s has no whole number \"%s\"", l->s.path,
               key);
    PL_FAIL_IF(must && step >= most, PL_ERR_CONFIG,
               "init_from.step=file: %s is at step %" PRId64 ", and train.steps is %" PRId64
               ": set train.steps to the step at which training ends",
               l->s.path, step, most);
    if (step >= most) return tell_step(l, step, "is not below train.steps: the count starts at 0");
    PL_TRY(tell_step(l, step, "of the file continues; init_from.step=new starts at 0"));
    for (int i = 0; i < pl_store_count(r->store); i++) {
        const pl_slot *s = pl_store_slot(r->store, i);
        size_t n = strlen(s->name);
        bool counts = s->kind == PL_SLOT_COUNTER && s->type.dtype == PL_I64 &&
                      pl_type_elems(&s->type) == 1 && n > 5 &&
                      strcmp(s->name + n - 5, ".step") == 0;
        if (counts) PL_TRY(pl_session_write_slot(r->session, i, 0, &step, sizeof step));
    }
    r->steps.done = step;
    return PL_OK;
}

pl_status pl__weights_start(pl_run *r, const char *key, const char *path)
{
    const pl_config *c = r->config;
    const pl_start *start = r->recipe->start;
    bool trains = r->purpose.goal == PL_GOAL_TRAIN;
    loading l = {.s = {.r = r, .key = key, .path = path, .slots = "*"}, .start = true};
    if (start) l.s.namings = start->naming;
    /* A result with an untrained weight would be wrong. */
    if (start && r->purpose.goal != PL_GOAL_PREDICT) l.missing = start->missing;
    if (start && trains) l.fresh = start->fresh;
    if (!pl_config_is_null(c, "init_from.prefix"))
        l.s.wanted_prefix = pl_config_text(c, "init_from.prefix");
    if (!pl_config_is_null(c, "init_from.missing"))
        l.allowed = pl_config_text(c, "init_from.missing");
    l.any_missing = l.allowed && strcmp(l.allowed, "allow") == 0;
    pl_status rc = pl__recorded_check(path);
    if (rc == PL_OK) rc = load(&l);
    if (rc == PL_OK) rc = pl__random_frozen_recall(r, pl__source_meta(&l.s, PL_RANDOM_NOTE));
    if (rc == PL_OK && trains) rc = take_step(&l);
    release(&l);
    return rc;
}

const char *pl_run_start_note(const pl_run *r)
{
    return r->files.start_note;
}

const pl_loaded *pl_run_loaded(const pl_run *r, int i)
{
    return i >= 0 && i < r->files.n_loaded ? &r->files.loaded[i] : NULL;
}

/* ---- the recipe's weight files -------------------------------------------------------------- */
static bool any_wanted(const pl_weight_source *s)
{
    for (int i = 0; i < pl_store_count(s->r->store); i++)
        if (pl__source_wants(s, i)) return true;
    return false;
}

pl_status pl__weights_load(pl_run *r)
{
    bool after_model = takes_one_file(r) && !pl_config_is_null(r->config, "init_from");
    for (const pl_weights *w = r->recipe->weights; w && w->key; w++) {
        if (of_model(w) || pl_config_is_null(r->config, w->key)) continue;
        /* after a model file, only tensors that the file does not have */
        if (after_model && !(r->files.lacking >> (w - r->recipe->weights) & 1)) continue;
        loading l = {.s = {.r = r,
                           .key = w->key,
                           .path = pl_config_text(r->config, w->key),
                           .slots = w->slots,
                           .namings = w->naming}};
        if (!any_wanted(&l.s)) continue; /* the run's programs do not have that part */
        pl_status rc = load(&l);
        release(&l);
        if (rc == PL_ERR_IO) PL_FAIL(PL_ERR_FILE, "%s: %s", w->key, pl_error_text());
        PL_TRY(rc);
    }
    return PL_OK;
}
