/* replay.c - trains from a PyTorch program's weights on its inputs and draws, and compares results.
 *
 * A dump folder holds init, inputs.1 .. inputs.N, grads and final (safetensors) and meta.json. The
 * recipe's peer table maps each field of the peer's configuration to one of our keys. Draws are
 * inputs in a replay, so both programs compute with the same numbers.
 *
 * Compared: every loss term of every step; every gradient of step 1 and every parameter and buffer
 * at the end, by norms; all relative to their size, beyond rounding (replay_error.h).
 *
 * Some gradients are zero except for rounding: of a bias before a BatchNorm, or of scores before a
 * softmax. Both programs then have pure noise there, and Adam turns noise of any size into steps of
 * about lr, so the final values have no meaning. A gradient whose norm is below NOISE times the
 * largest counts as noise: ours must be as small, and at the end its parameter, and a running mean
 * that follows it, may differ by what that many steps can change. The report counts these tensors.
 * An element below NOISE_ELEMENT times the norm of its tensor, in both programs, counts the same
 * way.
 *
 * In some settings rounding decides more than the tolerances allow, and two correct programs differ
 * (BatchNorm over two samples; elements whose gradient is all rounding, later in a run). When f32
 * values differ, the replay is repeated from weights moved by one unit in the last place: what
 * those runs differ by is what rounding can do here (replay_rounding.c).
 */
#include "train/run/replay.h"
#include "base/dtype.h"
#include "base/sys.h"
#include "train/run/replay_error.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NOISE         1e-5
#define NOISE_ELEMENT 1e-6
/* Largest step of Adam for an element, in units of lr, with room: bias-corrected m/sqrt(v). */
#define NOISE_STEP 2.0
/* Most runs from nudged weights. One element of a gradient that decides a step of Adam takes the
 * other turn in about one run of 13 (bench/peers/ACCURACY.md). */
#define NUDGES 16

/* ---- tensors ---------------------------------------------------------------------------- */
/* Returns the peer's tensor for one of our slots; NULL if it has none. */
static const pl_st_tensor *peer_tensor(const pl_replaying *p, const pl_st_reader *f,
                                       const char *slot)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", p->peer->prefix ? p->peer->prefix : "", slot);
    return pl_st_find(f, name);
}

/* Reads the tensor of a slot in our layout into *out (caller frees). */
static pl_status read_slot_tensor(const pl_st_reader *f, const pl_st_tensor *t, const pl_slot *s,
                                  void **out)
{
    pl_type want = pl__slot_file_type(s);
    char a[96], b[96];
    PL_FAIL_IF(!t->loadable || !pl_type_equal(&t->type, &want), PL_ERR_FILE,
               "tensor \"%s\" is %s, the model has %s", t->name,
               t->loadable ? pl_type_text(&t->type, a, sizeof a) : "of a foreign dtype",
               pl_type_text(&want, b, sizeof b));
    size_t bytes = pl_type_bytes(&want);
    char *both = pl_sys_alloc(2 * bytes + 1);
    if (!both) return PL_ERR_MEMORY;
    pl_status rc = pl_st_read(f, t, both + bytes, bytes);
    if (rc != PL_OK) {
        pl_sys_free(both);
        return rc;
    }
    pl__slot_from_file(s, both + bytes, both);
    *out = both;
    return PL_OK;
}

/* Finds out whether the peer computed in f64: then this run does too (if the recipe builds on its
 * context's type). */
static pl_status find_precision(pl_replaying *p)
{
    pl_st_reader *f;
    PL_TRY(pl__replay_open_file(p, "init", &f));
    for (int i = 0; i < pl_st_count(f); i++) {
        const pl_st_tensor *t = pl_st_at(f, i);
        p->run->purpose.f64 |= t->loadable && t->type.dtype == PL_F64;
    }
    pl_st_close(f);
    return PL_OK;
}

static pl_status load_init(pl_replaying *p)
{
    pl_st_reader *f;
    PL_TRY(pl__replay_open_file(p, "init", &f));
    pl_status rc = PL_OK;
    pl_store *store = p->run->store;
    for (int i = 0; i < pl_store_count(store) && rc == PL_OK; i++) {
        const pl_slot *s = pl_store_slot(store, i);
        if (s->kind != PL_SLOT_PARAM && s->kind != PL_SLOT_BUFFER) continue;
        const pl_st_tensor *t = peer_tensor(p, f, s->name);
        void *data = NULL;
        rc = t ? read_slot_tensor(f, t, s, &data)
               : pl__fail(PL_ERR_FILE, __FILE__, __LINE__,
                          "init.safetensors has no tensor for our \"%s\"", s->name);
        if (rc == PL_OK)
            rc = pl_session_write_slot(p->run->session, i, 0, data, pl_type_bytes(&s->type));
        pl_sys_free(data);
    }
    pl_st_close(f);
    return rc;
}

/* Converts [N, C, s..] of the peer to our [N, s.., C]; false when the types are not such a pair.
 * With as many channels as positions both types are equal: `named` says that it is a pair. */
static bool channels_last(const pl_type *from, const void *src, const pl_type *to, void *dst,
                          bool named)
{
    int r = from->rank;
    if (r < 3 || to->rank != r || from->dtype != to->dtype || (pl_type_equal(from, to) && !named))
        return false;
    if (from->dim[0] != to->dim[0] || from->dim[1] != to->dim[r - 1]) return false;
    int64_t area = 1, channels = from->dim[1];
    for (int i = 2; i < r; i++) {
        if (from->dim[i] != to->dim[i - 1]) return false;
        area *= from->dim[i];
    }
    size_t size = pl_type_bytes(from) / (size_t)(pl_type_elems(from) ? pl_type_elems(from) : 1);
    const char *x = src;
    char *y = dst;
    for (int64_t n = 0; n < from->dim[0]; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < area; i++, x += size)
                memcpy(y + (size_t)((n * area + i) * channels + c) * size, x, size);
    return true;
}

/* Converts an input that is f32 even in a program of f64, in place. Fails when a number of the dump
 * is not an f32 number. */
static pl_status narrow(const char *name, pl_type *t, void *data)
{
    double *from = data;
    float *to = data;
    for (int64_t i = 0; i < pl_type_elems(t); i++) {
        double x = from[i];
        to[i] = (float)x;
        PL_FAIL_IF(!isnan(x) && (double)to[i] != x, PL_ERR_FILE,
                   "input \"%s\" is f32 here, the dump's %.17g is not", name, x);
    }
    t->dtype = PL_F32;
    return PL_OK;
}

static pl_status load_input(pl_replaying *p, const pl_program *to, const pl_st_reader *f,
                            int micro_batch, const char *name)
{
    char file_name[256], a[96], b[96];
    snprintf(file_name, sizeof file_name, "micro%d.%s", micro_batch, name);
    const pl_st_tensor *t = pl_st_find(f, file_name);
    PL_FAIL_IF(!t || !t->loadable, PL_ERR_FILE, "the dump has no usable input \"%s\"", file_name);
    pl_type type;
    void *dst = pl_session_input(p->run->session, to, name, &type);
    if (!dst) return PL_OK;
    size_t bytes = pl_type_bytes(&t->type);
    bool named = p->peer->channels_first && pl_nn_match(p->peer->channels_first, name);
    void *src = pl_sys_alloc(bytes + 1);
    if (!src) return PL_ERR_MEMORY;
    pl_type from = t->type;
    pl_status rc = pl_st_read(f, t, src, bytes);
    if (rc == PL_OK && from.dtype == PL_F64 && type.dtype == PL_F32) rc = narrow(name, &from, src);
    if (rc == PL_OK && p->peer->convert && p->peer->convert(name, &from, src, &type, dst)) {
    } else if (rc == PL_OK && channels_last(&from, src, &type, dst, named)) {
    } else if (rc == PL_OK && from.dtype == type.dtype &&
               pl_type_bytes(&from) == pl_type_bytes(&type)) {
        memcpy(dst, src, pl_type_bytes(&from));
    } else if (rc == PL_OK) {
        rc = pl__fail(PL_ERR_FILE, __FILE__, __LINE__, "input \"%s\" is %s, the program needs %s",
                      name, pl_type_text(&t->type, a, sizeof a), pl_type_text(&type, b, sizeof b));
    }
    pl_sys_free(src);
    return rc;
}

/* Loads the inputs of one micro-batch; the first is 1. */
static pl_status load_inputs(pl_replaying *p, const pl_program *to, int step, int micro_batch)
{
    char file[32];
    snprintf(file, sizeof file, "inputs.%d", step);
    pl_st_reader *f;
    PL_TRY(pl__replay_open_file(p, file, &f));
    pl_status rc = PL_OK;
    for (int i = 0; i < pl_program_input_count(to) && rc == PL_OK; i++)
        rc = load_input(p, to, f, micro_batch, pl_program_input_name(to, i));
    pl_st_close(f);
    return rc;
}

/* ---- comparisons ------------------------------------------------------------------------ */
static void note(double err, const char *name, double *worst, char *worst_name, size_t cap)
{
    if (!(err <= *worst)) { /* NaN counts as worst */
        *worst = isnan(err) ? (double)INFINITY : err;
        snprintf(worst_name, cap, "%s", name);
    }
}

static json_t *terms_of(const pl_replaying *p, int step)
{
    return json_array_get(json_object_get(p->meta, "steps"), (size_t)step - 1);
}

/* Adds a micro-batch's share of the terms that a program computed to the step's means. The loss of
 * a program other than the training program is not a term of the step. */
static void add_losses(pl_replaying *p, const pl_step_program *from, int step)
{
    const char *name;
    json_t *value;
    int i = 0;
    json_object_foreach(terms_of(p, step), name, value)
    {
        pl_type t;
        if (i == PL_MAX_METRICS) return;
        bool other = from->name && strcmp(name, "loss") == 0;
        const void *x = other ? NULL : pl_session_output(p->run->session, from->run, name, &t);
        if (x) {
            p->loss[i] += pl_elem_get(t.dtype, x, 0) / (double)p->run->build->accumulate;
            p->known[i] = true;
        }
        i++;
    }
}

static pl_status compare_losses(pl_replaying *p, int step)
{
    pl_replay_report *r = p->report;
    const pl_type scalar = {.dtype = PL_F64};
    const char *name;
    json_t *value;
    int i = 0;
    json_object_foreach(terms_of(p, step), name, value)
    {
        if (i == PL_MAX_METRICS) break;
        double want = json_number_value(value), got = p->known[i] ? p->loss[i] : (double)NAN;
        i++;
        char label[128];
        snprintf(label, sizeof label, "step %d %s: %.9g, peer %.9g", step, name, got, want);
        double scale = fmax(1, fabs(want)); /* losses are sums of numbers around 1 */
        double distance = fabs(got - want);
        double err = pl__replay_error(distance, fabs(want), scale, p->run->purpose.f64);
        note(err, label, &r->worst_loss, r->worst_loss_name, sizeof r->worst_loss_name);
        r->losses++;
        snprintf(label, sizeof label, "step %d %s", step, name);
        PL_TRY(pl__rounding_record(p, label, &scalar, &got, distance, !(err <= p->loss_tol)));
    }
    return PL_OK;
}

static double norm_of(const pl_type *t, const void *x)
{
    double s = 0;
    for (int64_t i = 0; i < pl_type_elems(t); i++) {
        double v = pl_elem_get(t->dtype, x, i);
        s += v * v;
    }
    return sqrt(s);
}

static double distance(const pl_type *t, const void *x, const void *y)
{
    double s = 0;
    for (int64_t i = 0; i < pl_type_elems(t); i++) {
        double v = pl_elem_get(t->dtype, x, i) - pl_elem_get(t->dtype, y, i);
        s += v * v;
    }
    return sqrt(s);
}

/* The value of a slot in both programs. */
typedef struct tensor_pair {
    const pl_slot *slot;
    int index;
    void *want; /* the peer's, in our layout */
} tensor_pair;

typedef pl_status (*visit_fn)(pl_replaying *p, const tensor_pair *t, void *ctx);

/* Calls visit for every parameter and buffer that file `name` of the dump has. */
static pl_status each_tensor(pl_replaying *p, const char *name, visit_fn visit, void *ctx)
{
    pl_st_reader *f;
    PL_TRY(pl__replay_open_file(p, name, &f));
    pl_status rc = PL_OK;
    pl_store *store = p->run->store;
    for (int i = 0; i < pl_store_count(store) && rc == PL_OK; i++) {
        tensor_pair t = {.slot = pl_store_slot(store, i), .index = i};
        const pl_st_tensor *file = peer_tensor(p, f, t.slot->name);
        if (!file || (t.slot->kind != PL_SLOT_PARAM && t.slot->kind != PL_SLOT_BUFFER)) continue;
        rc = read_slot_tensor(f, file, t.slot, &t.want);
        if (rc == PL_OK) rc = visit(p, &t, ctx);
        pl_sys_free(t.want);
    }
    pl_st_close(f);
    return rc;
}

static pl_status survey_gradient(pl_replaying *p, const tensor_pair *t, void *ctx)
{
    (void)p;
    peer_gradients *all = ctx;
    double norm = norm_of(&t->slot->type, t->want);
    if (norm > all->largest) all->largest = norm;
    all->n++;
    return PL_OK;
}

/* Marks the elements that are noise in a gradient that is not noise as a whole. */
static pl_status mark_noise(pl_replaying *p, const tensor_pair *t, const pl_type *type,
                            const void *got, double norm)
{
    int64_t n = pl_type_elems(type), marked = 0;
    double most = NOISE_ELEMENT * norm;
    uint8_t *mark = pl_sys_alloc((size_t)n + 1);
    if (!mark) return PL_ERR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        double ours = pl_elem_get(type->dtype, got, i),
               theirs = pl_elem_get(t->slot->type.dtype, t->want, i);
        mark[i] = fabs(ours) < most && fabs(theirs) < most;
        marked += mark[i];
    }
    pl_sys_free(p->noisy[t->index]);
    p->noisy[t->index] = marked ? mark : NULL;
    if (!marked) pl_sys_free(mark);
    return PL_OK;
}

static pl_status compare_gradient(pl_replaying *p, const tensor_pair *t, void *ctx)
{
    pl_replay_report *r = p->report;
    const peer_gradients *all = ctx;
    const double largest = all->largest;
    char name[512];
    snprintf(name, sizeof name, "grad.%s", t->slot->name);
    pl_type type;
    const void *got =
        pl_session_output(p->run->session, pl__step_program_updater(all->program), name, &type);
    if (!got) return PL_OK; /* the gradient belongs to another program */
    double norm = norm_of(&t->slot->type, t->want), far = distance(&type, got, t->want), err;
    bool noise = norm < NOISE * largest;
    if (noise)
        err = norm_of(&type, got) <= NOISE * largest ? 0 : (double)INFINITY;
    else
        err = pl__replay_error(far, norm, largest, p->run->purpose.f64);
    PL_TRY(pl__rounding_record(p, name, &type, got, far, !(err <= p->grad_tol)));
    note(err, t->slot->name, &r->worst_grad, r->worst_grad_name, sizeof r->worst_grad_name);
    r->gradients++;
    p->noise[t->index] = noise;
    p->n_noise += noise;
    return noise ? PL_OK : mark_noise(p, t, &type, got, norm);
}

/* Returns the distance over the elements that are not noise; noisy elements may differ by `step`
 * each. */
static double sound_distance(const pl_type *t, const void *x, const void *y, const uint8_t *noise,
                             double step)
{
    double s = 0;
    for (int64_t i = 0; i < pl_type_elems(t); i++) {
        double v = pl_elem_get(t->dtype, x, i) - pl_elem_get(t->dtype, y, i);
        if (!noise[i] || fabs(v) > step) s += v * v;
    }
    return sqrt(s);
}

static pl_status compare_final(pl_replaying *p, const tensor_pair *t, void *ctx)
{
    (void)ctx;
    pl_replay_report *r = p->report;
    const pl_type *type = &t->slot->type;
    size_t bytes = pl_type_bytes(type);
    void *got = pl_sys_alloc(bytes + 1);
    pl_status rc =
        got ? pl_session_read_slot(p->run->session, t->index, 0, got, bytes) : PL_ERR_MEMORY;
    double step = NOISE_STEP * pl_config_float(p->run->config, "optim.lr") * r->steps;
    double d = rc == PL_OK ? distance(type, got, t->want) : 0, sound = d;
    if (rc == PL_OK && p->noisy[t->index])
        sound = sound_distance(type, got, t->want, p->noisy[t->index], step);
    double scale = sqrt((double)pl_type_elems(type)), norm = norm_of(type, t->want);
    double least = fmax(norm, 1e-12), reach = step * scale; /* weights are numbers around 1 */
    double err = pl__replay_error(d, norm, scale, p->run->purpose.f64);
    bool follows = p->noise[t->index] || (t->slot->kind == PL_SLOT_BUFFER && p->n_noise > 0);
    bool noise = err > p->final_tol && ((follows && d <= reach) || sound / least <= p->final_tol);
    if (rc == PL_OK)
        rc = pl__rounding_record(p, t->slot->name, type, got, d, !noise && !(err <= p->final_tol));
    pl_sys_free(got);
    PL_TRY(rc);
    r->tensors++;
    r->noise += noise;
    if (!noise)
        note(err, t->slot->name, &r->worst_final, r->worst_final_name, sizeof r->worst_final_name);
    return PL_OK;
}

/* Gradients are compared at once: the next program reuses the memory of outputs. */
static pl_status replay_program(pl_replaying *p, const pl_step_program *t, int step)
{
    pl_session *session = p->run->session;
    for (int micro_batch = 1; micro_batch <= (int)p->run->build->accumulate; micro_batch++) {
        PL_TRY(load_inputs(p, t->run, step, micro_batch));
        PL_TRY(pl_session_run(session, t->run));
        add_losses(p, t, step);
    }
    if (t->apply) PL_TRY(pl_session_run(session, t->apply));
    if (step > 1) return PL_OK;
    p->gradients.program = t;
    return each_tensor(p, "grads", compare_gradient, &p->gradients);
}

static pl_status replay_step(pl_replaying *p, int step)
{
    memset(p->loss, 0, sizeof p->loss);
    memset(p->known, 0, sizeof p->known);
    for (int i = 0; i < p->run->build->now->n_step_programs; i++)
        if (pl__step_program_runs(&p->run->build->now->step_programs[i], step - 1))
            PL_TRY(replay_program(p, &p->run->build->now->step_programs[i], step));
    return PL_OK;
}

/* Copies every slot from the session, or back: the state before step 1. */
static pl_status copy_start(pl_replaying *p, bool back)
{
    pl_store *store = p->run->store;
    char *at = p->start;
    for (int i = 0; i < pl_store_count(store); i++) {
        size_t bytes = pl_type_bytes(&pl_store_slot(store, i)->type);
        PL_TRY(back ? pl_session_write_slot(p->run->session, i, 0, at, bytes)
                    : pl_session_read_slot(p->run->session, i, 0, at, bytes));
        at += bytes;
    }
    return PL_OK;
}

static pl_status prepare(pl_replaying *p)
{
    PL_TRY(find_precision(p));
    PL_TRY(pl_run_build(p->run));
    PL_TRY(pl_run_start(p->run));
    PL_TRY(load_init(p));
    pl_store *store = p->run->store;
    size_t slots = (size_t)pl_store_count(store), bytes = 0;
    for (int i = 0; i < (int)slots; i++) bytes += pl_type_bytes(&pl_store_slot(store, i)->type);
    p->noise = pl_sys_alloc(slots + 1);
    p->noisy = pl_sys_alloc((slots + 1) * sizeof *p->noisy);
    p->start = pl_sys_alloc(bytes + 1);
    if (!p->noise || !p->noisy || !p->start) return PL_ERR_MEMORY;
    PL_TRY(copy_start(p, false));
    return each_tensor(p, "grads", survey_gradient, &p->gradients);
}

/* Takes the steps of the dump and compares into p->report. */
static pl_status follow(pl_replaying *p)
{
    pl_replay_report *r = p->report;
    int steps = (int)json_array_size(json_object_get(p->meta, "steps"));
    p->n_noise = 0;
    for (int k = 1; k <= steps; k++) {
        PL_TRY(replay_step(p, k));
        PL_TRY(compare_losses(p, k));
        r->steps = k;
    }
    PL_TRY(each_tensor(p, "final", compare_final, NULL));
    if (r->gradients < p->gradients.n)
        note((double)NAN, "some have no gradient here", &r->worst_grad, r->worst_grad_name,
             sizeof r->worst_grad_name);
    r->agree = r->losses > 0 && r->gradients > 0 && r->tensors > 0 &&
               r->worst_loss <= p->loss_tol && r->worst_grad <= p->grad_tol &&
               r->worst_final <= p->final_tol;
    return PL_OK;
}

static pl_status nudge_weights(pl_replaying *p)
{
    pl_store *store = p->run->store;
    PL_TRY(copy_start(p, true));
    char *at = p->start;
    for (int i = 0; i < pl_store_count(store); i++) {
        const pl_slot *s = pl_store_slot(store, i);
        size_t bytes = pl_type_bytes(&s->type);
        if (s->kind == PL_SLOT_PARAM && s->type.dtype == PL_F32) {
            float *moved = pl_sys_alloc(bytes + 1);
            if (!moved) return PL_ERR_MEMORY;
            memcpy(moved, at, bytes);
            pl__rounding_nudge(p->nudge, i, moved, pl_type_elems(&s->type));
            pl_status rc = pl_session_write_slot(p->run->session, i, 0, moved, bytes);
            pl_sys_free(moved);
            PL_TRY(rc);
        }
        at += bytes;
    }
    return PL_OK;
}

/* Repeats the steps from nudged weights until rounding explains every value that differs, at most
 * NUDGES times. */
static pl_status explain(pl_replaying *p)
{
    pl_replay_report *told = p->report;
    int explained = 0, differ = 0;
    for (p->nudge = 1; p->nudge <= NUDGES; p->nudge++) {
        pl_replay_report ignored = {0};
        p->report = &ignored;
        pl__rounding_rewind(p->rounding);
        PL_TRY(nudge_weights(p));
        PL_TRY(follow(p));
        told->nudged = p->nudge;
        differ = pl__rounding_judge(p->rounding, &explained, told->rounding_name,
                                    sizeof told->rounding_name);
        if (explained == differ) break;
    }
    told->rounding = explained;
    told->agree = explained == differ && told->gradients == p->gradients.n;
    return PL_OK;
}

static pl_status compare_all(pl_replaying *p, const pl_replay_opts *o)
{
    const pl_replay_report *r = p->report;
    p->run->purpose.goal = PL_GOAL_REPLAY;
    if (o->compile) pl_run_set_compile(p->run, o->compile);
    PL_TRY(prepare(p));
    PL_TRY(follow(p));
    bool compared = r->losses > 0 && r->gradients > 0 && r->tensors > 0;
    return compared && !r->agree && !p->run->purpose.f64 ? explain(p) : PL_OK;
}

pl_status pl_replay(const char *dir, const pl_replay_opts *o, pl_replay_report *report)
{
    memset(report, 0, sizeof *report);
    pl_replaying p = {.dir = dir,
                      .report = report,
                      .loss_tol = o->loss_tol > 0 ? o->loss_tol : 1e-5,
                      .grad_tol = o->grad_tol > 0 ? o->grad_tol : 1e-4,
                      .final_tol = o->final_tol > 0 ? o->final_tol : 1e-4,
                      .rounding = pl__rounding_new()};
    pl_arena scratch = PL_ARENA_INIT;
    pl_status rc = p.rounding ? pl__replay_read_meta(&p) : PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl__replay_open_run(&p, o, &scratch);
    if (rc == PL_OK) rc = compare_all(&p, o);
    for (int i = 0; p.noisy && i < pl_store_count(p.run->store); i++) pl_sys_free(p.noisy[i]);
    pl_sys_free(p.noisy);
    pl_sys_free(p.noise);
    pl_sys_free(p.start);
    pl_run_free(p.run);
    pl__rounding_free(p.rounding);
    json_decref(p.meta);
    pl_arena_release(&scratch);
    return rc;
}
