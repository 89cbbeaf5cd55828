/* optim.c - optimiser updates: adam (also AdamW, amsgrad), sgd, lion, rmsprop.
 *
 * One op computes the new weight and the new state from the old ones and the gradient, in one pass.
 *
 *   inputs    lr, scale, step (adam and sgd only), grad, w, state.., key (optional)
 *   outputs   w', state'..   each may overwrite its predecessor's bytes
 *
 * Weights and states may be stored in fewer bits than f32: optim_tiles.h describes this form, and
 * the purpose of the key.
 *
 * scale multiplies the gradient before anything else; when it is not finite nothing changes (a
 * skipped step). The number of outputs is fixed by the op, so rules with and without an optional
 * state are separate ops: adam_max (amsgrad), sgd_momentum, rmsprop_centered, rmsprop_momentum,
 * rmsprop_full.
 *
 * Formulas are those of torch.optim (2.x), with its order of operations; Lion is Algorithm 2 of
 * Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms". Coefficients that depend on
 * the step (bias corrections, SGD's first step) are computed in double at every run. No gradient
 * flows through an update.
 */
#include "base/err.h"
#include "base/threads.h"
#include "cpu/kernels/update.h"
#include "ops/core/attr.h"
#include "ops/core/ops.h"
#include "ops/core/ref.h"
#include "ops/net/optim_tiles.h"

#include <math.h>
#include <string.h>

#define F(field) PL_ATTR(pl_optim_attr, field, FLOAT)
#define B(field) PL_ATTR(pl_optim_attr, field, BOOL)
#define STREAM   PL_ATTR(pl_optim_attr, stream, INT)
static const pl_attr adam_attrs[] = {F(beta1),     F(beta2), F(eps),     F(weight_decay),
                                     B(decoupled), STREAM,   PL_ATTR_END};
static const pl_attr sgd_attrs[] = {F(weight_decay), STREAM, PL_ATTR_END};
static const pl_attr momentum_attrs[] = {F(momentum), F(dampening), F(weight_decay),
                                         B(nesterov), STREAM,       PL_ATTR_END};
static const pl_attr lion_attrs[] = {F(beta1), F(beta2), F(weight_decay), STREAM, PL_ATTR_END};
static const pl_attr rmsprop_attrs[] = {F(alpha),    F(eps), F(weight_decay),
                                        F(momentum), STREAM, PL_ATTR_END};
#undef F
#undef B
#undef STREAM

/* ---- shapes ----------------------------------------------------------------------------- */
static pl_status scalar(const char *what, const pl_type *t, bool integer)
{
    char s[96];
    bool ok = t->rank == 0 && (integer ? t->dtype == PL_I64 : pl_dtype_is_float(t->dtype));
    PL_FAIL_IF(!ok, PL_ERR_SHAPE, "%s is %s; needs %s scalar", what, pl_type_text(t, s, sizeof s),
               integer ? "an i64" : "a float");
    return PL_OK;
}

static bool is_key(const pl_type *t)
{
    return t->dtype == PL_I64 && t->rank == 1 && t->dim[0] == 2;
}

/* scalars: 2 (lr, scale) or 3 (with step); then grad, w, the states and perhaps the key. */
static pl_status infer_any(const pl_type *in, int n_in, int scalars, int states, pl_type *out)
{
    PL_TRY(scalar("lr", &in[0], false));
    PL_TRY(scalar("scale", &in[1], false));
    if (scalars == 3) PL_TRY(scalar("step", &in[2], true));
    const pl_type *w = &in[scalars + 1];
    int end = scalars + 2 + states;
    bool small = n_in > end, f64 = false;
    char s[96], t[96];
    PL_FAIL_IF(n_in > end && !is_key(&in[end]), PL_ERR_SHAPE, "the key is %s; needs i64[2]",
               pl_type_text(&in[end], s, sizeof s));
    for (int i = scalars; i < end; i++) {
        bool same = in[i].rank == w->rank && memcmp(in[i].dim, w->dim, sizeof w->dim) == 0;
        bool packed = i > scalars + 1 && pl_optim_is_packed(&in[i], w);
        PL_FAIL_IF(!packed && (!same || !pl_dtype_is_float(in[i].dtype)), PL_ERR_SHAPE,
                   "%s is %s, the weight is %s", i == scalars ? "the gradient" : "a state",
                   pl_type_text(&in[i], s, sizeof s), pl_type_text(w, t, sizeof t));
        small |= packed;
        f64 |= in[i].dtype == PL_F64;
    }
    PL_FAIL_IF(small && f64, PL_ERR_SHAPE,
               "an update in f64 takes neither 8-bit states nor a key for random rounding");
    for (int k = 0; k < 1 + states; k++) out[k] = in[scalars + 1 + k];
    return PL_OK;
}

/* ---- coefficients ----------------------------------------------------------------------- */
/* All of them in double; the f32 loops round each once. */
typedef struct coeffs {
    double scale, decay, keep, rate, beta1, beta2, mix1, mix2, eps, root;
} coeffs;

typedef struct values {
    double lr, scale, step;
} values;

static coeffs adam_coeffs(const pl_optim_attr *a, values v)
{
    double c1 = 1 - pow(a->beta1, v.step), c2 = 1 - pow(a->beta2, v.step);
    return (coeffs){.scale = v.scale,
                    .decay = a->decoupled ? 0 : a->weight_decay,
                    .keep = a->decoupled ? 1 - v.lr * a->weight_decay : 1,
                    .rate = v.lr / c1,
                    .beta2 = a->beta2,
                    .mix1 = 1 - a->beta1,
                    .mix2 = 1 - a->beta2,
                    .eps = a->eps,
                    .root = sqrt(c2)};
}

/* The first step stores the gradient itself in the buffer, without dampening. Nesterov's look-ahead
 * uses the momentum, kept in beta2, at every step. */
static coeffs sgd_coeffs(const pl_optim_attr *a, values v)
{
    bool first = v.step <= 1;
    return (coeffs){.scale = v.scale,
                    .decay = a->weight_decay,
                    .rate = v.lr,
                    .beta1 = first ? 0 : a->momentum,
                    .mix1 = first ? 1 : 1 - a->dampening,
                    .beta2 = a->momentum};
}

static coeffs lion_coeffs(const pl_optim_attr *a, values v)
{
    return (coeffs){.scale = v.scale,
                    .keep = 1 - v.lr * a->weight_decay,
                    .rate = v.lr,
                    .beta1 = a->beta1,
                    .beta2 = a->beta2,
                    .mix1 = 1 - a->beta1,
                    .mix2 = 1 - a->beta2};
}

static coeffs rmsprop_coeffs(const pl_optim_attr *a, values v)
{
    return (coeffs){.scale = v.scale,
                    .decay = a->weight_decay,
                    .rate = v.lr,
                    .beta1 = a->momentum,
                    .beta2 = a->alpha,
                    .mix2 = 1 - a->alpha,
                    .eps = a->eps};
}

/* ---- reference rules: one element; s is the state in and out, the new weight is returned - */
static double adam_rule(const coeffs *c, double g, double w, double *s, int n)
{
    g = g * c->scale + c->decay * w;
    s[0] += (g - s[0]) * c->mix1;
    s[1] = s[1] * c->beta2 + c->mix2 * g * g;
    double top = s[1];
    if (n == 3) top = s[2] = s[2] > s[1] ? s[2] : s[1];
    return w * c->keep - c->rate * (s[0] / (sqrt(top) / c->root + c->eps));
}

static double sgd_rule(const coeffs *c, double g, double w, double *s, int n)
{
    (void)s, (void)n;
    return w - c->rate * (g * c->scale + c->decay * w);
}

static double momentum_rule(const coeffs *c, double g, double w, double *s, int n)
{
    (void)n;
    g = g * c->scale + c->decay * w;
    s[0] = c->beta1 * s[0] + c->mix1 * g;
    return w - c->rate * s[0];
}

static double nesterov_rule(const coeffs *c, double g, double w, double *s, int n)
{
    double d = g * c->scale + c->decay * w;
    momentum_rule(c, g, w, s, n);
    return w - c->rate * (d + c->beta2 * s[0]);
}

static double lion_rule(const coeffs *c, double g, double w, double *s, int n)
{
    (void)n;
    g *= c->scale;
    double mixed = c->beta1 * s[0] + c->mix1 * g;
    s[0] = c->beta2 * s[0] + c->mix2 * g;
    return w * c->keep - c->rate * (double)((mixed > 0) - (mixed < 0));
}

static double rmsprop_step(const coeffs *c, double *g, double w, double *s, double *mean)
{
    *g = *g * c->scale + c->decay * w;
    s[0] = c->beta2 * s[0] + c->mix2 * *g * *g;
    if (mean) *mean += (*g - *mean) * c->mix2;
    return *g / (sqrt(s[0] - (mean ? *mean * *mean : 0)) + c->eps);
}

static double rmsprop_rule(const coeffs *c, double g, double w, double *s, int n)
{
    (void)n;
    return w - c->rate * rmsprop_step(c, &g, w, s, NULL);
}

static double centered_rule(const coeffs *c, double g, double w, double *s, int n)
{
    (void)n;
    return w - c->rate * rmsprop_step(c, &g, w, s, &s[1]);
}

static double rms_momentum_rule(const coeffs *c, double g, double w, double *s, int n)
{
    (void)n;
    s[1] = c->beta1 * s[1] + rmsprop_step(c, &g, w, s, NULL);
    return w - c->rate * s[1];
}

static double rms_full_rule(const coeffs *c, double g, double w, double *s, int n)
{
    (void)n;
    s[2] = c->beta1 * s[2] + rmsprop_step(c, &g, w, s, &s[1]);
    return w - c->rate * s[2];
}

/* ---- running ---------------------------------------------------------------------------- */
typedef double (*rule_fn)(const coeffs *c, double g, double w, double *s, int n);

static values values_of(const pl_call *c, int scalars)
{
    return (values){ref_get(c->in_type[0].dtype, c->in[0], 0),
                    ref_get(c->in_type[1].dtype, c->in[1], 0),
                    scalars == 3 ? (double)*(const int64_t *)c->in[2] : 1};
}

/* A scale that is not finite: nothing changes. */
static bool skipped(const pl_call *c, int scalars, coeffs k)
{
    if (isfinite(k.scale)) return false;
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i] != c->in[scalars + 1 + i])
            memcpy(c->out[i], c->in[scalars + 1 + i], pl_type_bytes(&c->out_type[i]));
    return true;
}

static pl_status run_ref(const pl_call *c, int scalars, coeffs k, rule_fn rule)
{
    if (skipped(c, scalars, k)) return PL_OK;
    int64_t n = pl_type_elems(&c->out_type[0]);
    int states = c->n_out - 1;
    for (int64_t i = 0; i < n; i++) {
        double s[3] = {0}, x[2];
        for (int j = 0; j < 2; j++)
            x[j] = ref_get(c->in_type[scalars + j].dtype, c->in[scalars + j], i);
        for (int j = 0; j < states; j++)
            s[j] = ref_get(c->in_type[scalars + 2 + j].dtype, c->in[scalars + 2 + j], i);
        ref_set(c->out_type[0].dtype, c->out[0], i, rule(&k, x[0], x[1], s, states));
        for (int j = 0; j < states; j++) ref_set(c->out_type[1 + j].dtype, c->out[1 + j], i, s[j]);
    }
    return PL_OK;
}

enum { CHUNK = 16384 };
typedef struct job {
    pl_update u;
    pl_update_fn fn;
    int64_t n;
} job;

static void run_chunk(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const job *j = ctx;
    int64_t lo = task * CHUNK, hi = lo + CHUNK < j->n ? lo + CHUNK : j->n;
    j->fn(&j->u, lo, hi);
}

static pl_update update_of(coeffs k)
{
    return (pl_update){.scale = (float)k.scale,
                       .decay = (float)k.decay,
                       .keep = (float)k.keep,
                       .rate = (float)k.rate,
                       .beta1 = (float)k.beta1,
                       .beta2 = (float)k.beta2,
                       .mix1 = (float)k.mix1,
                       .mix2 = (float)k.mix2,
                       .eps = (float)k.eps,
                       .root = (float)k.root};
}

static pl_status run_fast(const pl_call *c, int scalars, coeffs k, pl_update_rule rule)
{
    if (skipped(c, scalars, k)) return PL_OK;
    job j = {.u = update_of(k), .fn = pl_update_best(rule), .n = pl_type_elems(&c->out_type[0])};
    j.u.grad = c->in[scalars];
    j.u.w = c->in[scalars + 1];
    j.u.w_out = c->out[0];
    for (int i = 0; i + 1 < c->n_out; i++) {
        j.u.s[i] = c->in[scalars + 2 + i];
        j.u.s_out[i] = c->out[1 + i];
    }
    pl_threads_for((j.n + CHUNK - 1) / CHUNK, run_chunk, &j);
    return PL_OK;
}

/* ---- tiles ------------------------------------------------------------------------------ */
/* Which states of a rule are never negative. */
static uint32_t positive_of(pl_update_rule rule)
{
    static const uint8_t bits[PL_N_UPDATES] = {
        [PL_UPDATE_ADAM] = 2,
        [PL_UPDATE_ADAM_MAX] = 6,
        [PL_UPDATE_RMSPROP] = 1,
        [PL_UPDATE_RMSPROP_CENTERED] = 1,
        [PL_UPDATE_RMSPROP_MOMENTUM] = 1,
        [PL_UPDATE_RMSPROP_FULL] = 1,
    };
    return bits[rule];
}

static void fast_tile(const void *ctx, const float *grad, float *w, float *const s[PL_OPTIM_STATES],
                      int n)
{
    const job *j = ctx;
    pl_update u = j->u;
    u.grad = grad;
    u.w = u.w_out = w;
    for (int i = 0; i < PL_OPTIM_STATES; i++) u.s[i] = u.s_out[i] = s[i];
    j->fn(&u, 0, n);
}

static pl_status run_tiles(const pl_call *c, int scalars, coeffs k, pl_update_rule rule)
{
    job j = {.u = update_of(k), .fn = pl_update_best(rule)};
    if (!skipped(c, scalars, k))
        pl_optim_run_tiles(c, &(pl_optim_tiles){fast_tile, &j, scalars, positive_of(rule)});
    return PL_OK;
}

/* Codes and random rounding are step functions of an f32 number: the reference takes it too. */
static pl_status run_slow(const pl_call *c, int scalars, coeffs k, pl_update_rule rule, rule_fn fn)
{
    return pl_optim_is_small(c, scalars) ? run_tiles(c, scalars, k, rule)
                                         : run_ref(c, scalars, k, fn);
}

static bool no_f64(const pl_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in_type[i].dtype == PL_F64) return false;
    return true;
}

static pl_cost cost(const pl_call *c)
{
    return (pl_cost){15 * (double)pl_type_elems(&c->out_type[0]), operand_bytes(c)};
}

/* ---- descriptors ------------------------------------------------------------------------ */
#define UPDATE_OP(op, scalars, states, table, coeff, fast_rule, slow_rule, list)                   \
 static pl_status op##_infer(const pl_type *in, int n_in, void *attr, pl_type *out)                \
 {                                                                                                 \
  (void)attr;                                                                                      \
  return infer_any(in, n_in, scalars, states, out);                                                \
 }                                                                                                 \
 static pl_status op##_run(const pl_call *c)                                                       \
 {                                                                                                 \
  const pl_optim_attr *a = c->attr;                                                                \
  return run_fast(c, scalars, coeff(a, values_of(c, scalars)), fast_rule);                         \
 }                                                                                                 \
 static pl_status op##_tiles(const pl_call *c)                                                     \
 {                                                                                                 \
  const pl_optim_attr *a = c->attr;                                                                \
  return run_tiles(c, scalars, coeff(a, values_of(c, scalars)), fast_rule);                        \
 }                                                                                                 \
 static pl_status op##_ref(const pl_call *c)                                                       \
 {                                                                                                 \
  const pl_optim_attr *a = c->attr;                                                                \
  return run_slow(c, scalars, coeff(a, values_of(c, scalars)), fast_rule, slow_rule);              \
 }                                                                                                 \
 static bool op##_plain(const pl_call *c)                                                          \
 {                                                                                                 \
  return all_f32(c) && !pl_optim_is_small(c, scalars);                                             \
 }                                                                                                 \
 static const pl_kernel op##_kernels[] = {{"fused", op##_plain, NULL, NULL, op##_run},             \
                                          {"tiles", no_f64, NULL, NULL, op##_tiles},               \
                                          {"ref", NULL, NULL, NULL, op##_ref},                     \
                                          PL_KERNEL_END};                                          \
 const pl_op pl_op_##op = {                                                                        \
     .name = #op,                                                                                  \
     .min_in = scalars + 2 + states,                                                               \
     .max_in = scalars + 3 + states,                                                               \
     .n_out = 1 + states,                                                                          \
     .flags = PL_OP_NO_GRAD,                                                                       \
     .inplace = {1 << (scalars + 1), states > 0 ? 1 << (scalars + 2) : 0,                          \
                 states > 1 ? 1 << (scalars + 3) : 0, states > 2 ? 1 << (scalars + 4) : 0},        \
     .attr_bytes = sizeof(pl_optim_attr),                                                          \
     .attrs = table,                                                                               \
     .infer = op##_infer,                                                                          \
     .cost = cost,                                                                                 \
     .cpu = op##_kernels,                                                                          \
     .cases = list,                                                                                \
 };

/* lr in 0.01..0.1, scale around 1, step 1..9, second moments positive */
#define LR                                                                                         \
 {                                                                                                 \
  0.01, 0.1, false                                                                                 \
 }
#define SCALE                                                                                      \
 {                                                                                                 \
  0.5, 1.5, false                                                                                  \
 }
/* not a number: the update changes nothing */
#define NO_SCALE                                                                                   \
 {                                                                                                 \
  (double)NAN, (double)NAN, false                                                                  \
 }
#define STEP                                                                                       \
 {                                                                                                 \
  1, 9, false                                                                                      \
 }
#define ANY                                                                                        \
 {                                                                                                 \
  -1, 1, false                                                                                     \
 }
#define POS                                                                                        \
 {                                                                                                 \
  0.5, 1, false                                                                                    \
 }
/* bytes of packed blocks: as a scale they are between 0.18 and 0.75 */
#define BYTES                                                                                      \
 {                                                                                                 \
  62, 63, false                                                                                    \
 }
/* clang-format off */
#define ADAM_TEXT(rest) "beta1=0.9, beta2=0.99, eps=0.00001, weight_decay=0.1, decoupled=" rest
static const pl_case adam_cases[] = {
    {{"f32[]", "f32[]", "i64[]", "f32[3,5]", "f32[3,5]", "f32[3,5]", "f32[3,5]"}, ADAM_TEXT("true"), {LR, SCALE, STEP, ANY, ANY, ANY, POS}},
    {{"f32[]", "f32[]", "i64[]", "f32[3,5]", "f32[3,5]", "f32[3,5]", "f32[3,5]"}, ADAM_TEXT("true"), {LR, NO_SCALE, STEP, ANY, ANY, ANY, POS}},
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]", "f32[35]", "f32[35]"}, ADAM_TEXT("false"), {LR, SCALE, STEP, ANY, ANY, ANY, POS}},
    {{"f32[]", "f32[]", "i64[]", "f32[]", "f32[]", "f32[]", "f32[]"}, ADAM_TEXT("false"), {LR, SCALE, STEP, ANY, ANY, ANY, POS}},
    {{"f32[]", "f32[]", "i64[]", "bf16[3,500]", "bf16[3,500]", "u8[6,260]", "u8[6,260]"}, ADAM_TEXT("true"), {LR, SCALE, STEP, ANY, ANY, BYTES, BYTES}},
    {{"f32[]", "f32[]", "i64[]", "bf16[300]", "bf16[300]", "u8[2,260]", "u8[2,260]"}, ADAM_TEXT("true"), {LR, NO_SCALE, STEP, ANY, ANY, BYTES, BYTES}},
    {{"f32[]", "f32[]", "i64[]", "bf16[300]", "bf16[300]", "bf16[300]", "bf16[300]", "i64[2]"}, ADAM_TEXT("true, stream=7"), {LR, SCALE, STEP, ANY, ANY, ANY, POS, {0, 99, false}}},
    PL_CASE_END};
static const pl_case adam_max_cases[] = {
    {{"f32[]", "f32[]", "i64[]", "f32[37]", "f32[37]", "f32[37]", "f32[37]", "f32[37]"}, ADAM_TEXT("true"), {LR, SCALE, STEP, ANY, ANY, ANY, POS, POS}},
    {{"f32[]", "f32[]", "i64[]", "f32[37]", "f32[37]", "f32[37]", "f32[37]", "f32[37]"}, ADAM_TEXT("true"), {LR, NO_SCALE, STEP, ANY, ANY, ANY, POS, POS}},
    {{"f32[]", "f32[]", "i64[]", "f32[2,3]", "f32[2,3]", "f32[2,3]", "f32[2,3]", "f32[2,3]"}, ADAM_TEXT("false"), {LR, SCALE, STEP, ANY, ANY, ANY, POS, POS}},
    PL_CASE_END};
static const pl_case sgd_cases[] = {
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]"}, "weight_decay=0.1", {LR, SCALE, STEP, ANY, ANY}},
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]"}, "weight_decay=0.1", {LR, NO_SCALE, STEP, ANY, ANY}},
    PL_CASE_END};
static const pl_case momentum_cases[] = {
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]", "f32[35]"}, "momentum=0.9, dampening=0.1, weight_decay=0.1, nesterov=false", {LR, SCALE, {2, 9, false}, ANY, ANY, ANY}},
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]", "f32[35]"}, "momentum=0.9, dampening=0.1, weight_decay=0.1, nesterov=false", {LR, NO_SCALE, {2, 9, false}, ANY, ANY, ANY}},
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]", "f32[35]"}, "momentum=0.9, dampening=0.1, weight_decay=0.1, nesterov=false", {LR, SCALE, {1, 1, false}, ANY, ANY, ANY}},
    PL_CASE_END};
static const pl_case nesterov_cases[] = {
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]", "f32[35]"}, "momentum=0.9, dampening=0, weight_decay=0.1, nesterov=true", {LR, SCALE, STEP, ANY, ANY, ANY}},
    {{"f32[]", "f32[]", "i64[]", "f32[35]", "f32[35]", "f32[35]"}, "momentum=0.9, dampening=0, weight_decay=0.1, nesterov=true", {LR, NO_SCALE, STEP, ANY, ANY, ANY}},
    PL_CASE_END};
static const pl_case lion_cases[] = {
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]"}, "beta1=0.9, beta2=0.99, weight_decay=0.1", {LR, SCALE, ANY, ANY, ANY}},
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]"}, "beta1=0.9, beta2=0.99, weight_decay=0.1", {LR, NO_SCALE, ANY, ANY, ANY}},
    {{"f32[]", "f32[]", "f16[600]", "bf16[600]", "u8[3,260]"}, "beta1=0.9, beta2=0.99, weight_decay=0.1", {LR, SCALE, ANY, ANY, BYTES}},
    {{"f32[]", "f32[]", "bf16[259]", "bf16[259]", "bf16[259]", "i64[2]"}, "beta1=0.9, beta2=0.99, weight_decay=0.1, stream=3", {LR, SCALE, ANY, ANY, ANY, {0, 99, false}}},
    PL_CASE_END};
#define RMS_TEXT "alpha=0.9, eps=0.00001, weight_decay=0.1, momentum=0.8"
static const pl_case rmsprop_cases[] = {
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, SCALE, ANY, ANY, POS}},
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, NO_SCALE, ANY, ANY, POS}},
    PL_CASE_END};
static const pl_case rms_centered_cases[] = {
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, SCALE, ANY, ANY, POS, {-0.4, 0.4, false}}},
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, NO_SCALE, ANY, ANY, POS, {-0.4, 0.4, false}}},
    PL_CASE_END};
static const pl_case rms_momentum_cases[] = {
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, SCALE, ANY, ANY, POS, ANY}},
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, NO_SCALE, ANY, ANY, POS, ANY}},
    PL_CASE_END};
static const pl_case rms_full_cases[] = {
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, SCALE, ANY, ANY, POS, {-0.4, 0.4, false}, ANY}},
    {{"f32[]", "f32[]", "f32[35]", "f32[35]", "f32[35]", "f32[35]", "f32[35]"}, RMS_TEXT, {LR, NO_SCALE, ANY, ANY, POS, {-0.4, 0.4, false}, ANY}},
    PL_CASE_END};

UPDATE_OP(adam, 3, 2, adam_attrs, adam_coeffs, PL_UPDATE_ADAM, adam_rule, adam_cases)
UPDATE_OP(adam_max, 3, 3, adam_attrs, adam_coeffs, PL_UPDATE_ADAM_MAX, adam_rule, adam_max_cases)
UPDATE_OP(sgd, 3, 0, sgd_attrs, sgd_coeffs, PL_UPDATE_SGD, sgd_rule, sgd_cases)
UPDATE_OP(sgd_momentum, 3, 1, momentum_attrs, sgd_coeffs, PL_UPDATE_SGD_MOMENTUM, momentum_rule, momentum_cases)
UPDATE_OP(sgd_nesterov, 3, 1, momentum_attrs, sgd_coeffs, PL_UPDATE_SGD_NESTEROV, nesterov_rule, nesterov_cases)
UPDATE_OP(lion, 2, 1, lion_attrs, lion_coeffs, PL_UPDATE_LION, lion_rule, lion_cases)
UPDATE_OP(rmsprop, 2, 1, rmsprop_attrs, rmsprop_coeffs, PL_UPDATE_RMSPROP, rmsprop_rule, rmsprop_cases)
UPDATE_OP(rmsprop_centered, 2, 2, rmsprop_attrs, rmsprop_coeffs, PL_UPDATE_RMSPROP_CENTERED, centered_rule, rms_centered_cases)
UPDATE_OP(rmsprop_momentum, 2, 2, rmsprop_attrs, rmsprop_coeffs, PL_UPDATE_RMSPROP_MOMENTUM, rms_momentum_rule, rms_momentum_cases)
UPDATE_OP(rmsprop_full, 2, 3, rmsprop_attrs, rmsprop_coeffs, PL_UPDATE_RMSPROP_FULL, rms_full_rule, rms_full_cases)
/* clang-format on */

/* ---- constructors ----------------------------------------------------------------------- */
/* Builds the node and returns the new values through the pointers that held the old ones. */
static void build(pl_graph *g, const pl_op *op, pl_optim_attr *a, int n_scalars,
                  const pl_val *scalars, pl_val grad, pl_val *const *tensors, int n, pl_val key)
{
    pl_val in[9], out[PL_MAX_OUT];
    bool keyed = pl_val_ok(key);
    for (int i = 0; i < n_scalars; i++) in[i] = scalars[i];
    in[n_scalars] = grad;
    for (int i = 0; i < n; i++) in[n_scalars + 1 + i] = *tensors[i];
    in[n_scalars + 1 + n] = key;
    if (keyed) {
        a->stream = pl_graph_next_stream(g);
        pl_graph_next_stream(g);
    }
    pl_build(g, op, a, n_scalars + 1 + n + keyed, in, out);
    for (int i = 0; i < n; i++) *tensors[i] = out[i];
}

void pl_adam(pl_graph *g, const pl_adam_opts *o, pl_val lr, pl_val step, pl_val scale, pl_val grad,
             pl_val *w, pl_val *m, pl_val *v, pl_val *vmax)
{
    pl_optim_attr a;
    memset(&a, 0, sizeof a);
    a.beta1 = o->beta1;
    a.beta2 = o->beta2;
    a.eps = o->eps;
    a.weight_decay = o->weight_decay;
    a.decoupled = o->decoupled;
    bool max = vmax && pl_val_ok(*vmax);
    build(g, max ? &pl_op_adam_max : &pl_op_adam, &a, 3, (const pl_val[]){lr, scale, step}, grad,
          (pl_val *[]){w, m, v, vmax}, max ? 4 : 3, o->key);
}

void pl_sgd(pl_graph *g, const pl_sgd_opts *o, pl_val lr, pl_val step, pl_val scale, pl_val grad,
            pl_val *w, pl_val *buf)
{
    pl_optim_attr a;
    memset(&a, 0, sizeof a);
    a.weight_decay = o->weight_decay;
    bool keeps = buf && pl_val_ok(*buf);
    const pl_op *op = &pl_op_sgd;
    if (keeps) {
        a.momentum = o->momentum;
        a.dampening = o->dampening;
        a.nesterov = o->nesterov;
        op = o->nesterov ? &pl_op_sgd_nesterov : &pl_op_sgd_momentum;
    }
    build(g, op, &a, 3, (const pl_val[]){lr, scale, step}, grad, (pl_val *[]){w, buf},
          keeps ? 2 : 1, o->key);
}

void pl_lion(pl_graph *g, const pl_lion_opts *o, pl_val lr, pl_val scale, pl_val grad, pl_val *w,
             pl_val *m)
{
    pl_optim_attr a;
    memset(&a, 0, sizeof a);
    a.beta1 = o->beta1;
    a.beta2 = o->beta2;
    a.weight_decay = o->weight_decay;
    build(g, &pl_op_lion, &a, 2, (const pl_val[]){lr, scale}, grad, (pl_val *[]){w, m}, 2, o->key);
}

void pl_rmsprop(pl_graph *g, const pl_rmsprop_opts *o, pl_val lr, pl_val scale, pl_val grad,
                pl_val *w, pl_val *sq, pl_val *mean, pl_val *buf)
{
    pl_optim_attr a;
    memset(&a, 0, sizeof a);
    a.alpha = o->alpha;
    a.eps = o->eps;
    a.weight_decay = o->weight_decay;
    a.momentum = o->momentum;
    bool centered = o->centered && mean, momentum = o->momentum != 0 && buf;
    const pl_op *op = centered ? (momentum ? &pl_op_rmsprop_full : &pl_op_rmsprop_centered)
                               : (momentum ? &pl_op_rmsprop_momentum : &pl_op_rmsprop);
    pl_val *tensors[4] = {w, sq};
    int n = 2;
    if (centered) tensors[n++] = mean;
    if (momentum) tensors[n++] = buf;
    build(g, op, &a, 2, (const pl_val[]){lr, scale}, grad, tensors, n, o->key);
}
