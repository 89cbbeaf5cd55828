/* fold.c - element by element arithmetic on values that are known while building.
 *
 * Exporters write the arithmetic of shapes as nodes. It is computed here, in whole numbers of 64
 * bits or in double precision, rounded to the type of the node, so that Reshape, Slice, Expand and
 * the like find their arguments. Weights are never folded: they change. */
#include "onnx/host.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

/* NaN is 0, and numbers beyond i64 are its ends. */
static int64_t in_range(double x)
{
    return x >= 9.2e18 ? INT64_MAX : x <= -9.2e18 ? INT64_MIN : x != x ? 0 : (int64_t)x;
}

void pl_ox_host_put(pl_ox_val *v, int64_t k, double x)
{
    if (v->host.i) {
        v->host.i[k] = v->dtype == PL_BOOL ? x != 0 : in_range(x);
        int64_t *i = &v->host.i[k]; /* beyond i32: its ends */
        if (v->dtype == PL_I32) *i = *i > INT32_MAX ? INT32_MAX : *i < INT32_MIN ? INT32_MIN : *i;
        return;
    }
    switch (v->dtype) {
    case PL_F32: x = (double)(float)x; break;
    case PL_F16: x = (double)pl_f16_to_f32(pl_f32_to_f16((float)x)); break;
    case PL_BF16: x = (double)pl_bf16_to_f32(pl_f32_to_bf16((float)x)); break;
    default: break;
    }
    v->host.d[k] = x;
}

void pl_ox_host_strided(pl_ox_val *out, const pl_ox_val *in, int64_t base, const int64_t *stride)
{
    int64_t index[PL_MAX_RANK] = {0}, at = base;
    for (int64_t k = 0; k < out->host.n; k++) {
        pl_ox_host_copy(out, k, in, at);
        for (int d = out->rank - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < out->dim[d]) break;
            at -= stride[d] * index[d];
            index[d] = 0;
        }
    }
}

/* ---- element by element ---------------------------------------------------------------------- */
typedef enum kind {
    ADD,
    SUB,
    MUL,
    DIV,
    MOD,
    FMOD,
    POW,
    MIN,
    MAX,
    EQ,
    LT,
    LE,
    GT,
    GE,
    AND,
    OR,
    XOR,
    NEG,
    ABS,
    FLOOR,
    CEIL,
    ROUND,
    SQRT,
    EXP,
    LOG,
    NOT,
    SIGN,
    RECIPROCAL,
    SIN,
    COS,
    TANH,
    SIGMOID,
    ERF,
    SAME,
    IS_NAN,
    IS_INF,
    RELU,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    BIT_NOT,
    SHIFT_LEFT,
    SHIFT_RIGHT,
} kind;

static const struct {
    const char *op;
    kind what;
    int arity;
    bool truth; /* the result is a truth value */
} table[] = {
    {"Add", ADD, 2, false},
    {"Sub", SUB, 2, false},
    {"Mul", MUL, 2, false},
    {"Div", DIV, 2, false},
    {"Mod", MOD, 2, false},
    {"Pow", POW, 2, false},
    {"Min", MIN, 2, false},
    {"Max", MAX, 2, false},
    {"Sum", ADD, 2, false},
    {"Equal", EQ, 2, true},
    {"Less", LT, 2, true},
    {"LessOrEqual", LE, 2, true},
    {"Greater", GT, 2, true},
    {"GreaterOrEqual", GE, 2, true},
    {"And", AND, 2, true},
    {"Or", OR, 2, true},
    {"Xor", XOR, 2, true},
    {"Neg", NEG, 1, false},
    {"Abs", ABS, 1, false},
    {"Floor", FLOOR, 1, false},
    {"Ceil", CEIL, 1, false},
    {"Round", ROUND, 1, false},
    {"Sqrt", SQRT, 1, false},
    {"Exp", EXP, 1, false},
    {"Log", LOG, 1, false},
    {"Not", NOT, 1, true},
    {"Sign", SIGN, 1, false},
    {"Reciprocal", RECIPROCAL, 1, false},
    {"Sin", SIN, 1, false},
    {"Cos", COS, 1, false},
    {"Tanh", TANH, 1, false},
    {"Sigmoid", SIGMOID, 1, false},
    {"Erf", ERF, 1, false},
    {"Identity", SAME, 1, false},
    {"IsNaN", IS_NAN, 1, true},
    {"IsInf", IS_INF, 1, true},
    {"Relu", RELU, 1, false},
    {"BitwiseNot", BIT_NOT, 1, false},
    {"BitwiseAnd", BIT_AND, 2, false},
    {"BitwiseOr", BIT_OR, 2, false},
    {"BitwiseXor", BIT_XOR, 2, false},
    {"BitShift", SHIFT_LEFT, 2, false},
};

static double real(kind k, double a, double b)
{
    switch (k) {
    case ADD: return a + b;
    case SUB: return a - b;
    case MUL: return a * b;
    case DIV: return a / b;
    case MOD: return a - floor(a / b) * b;
    case FMOD: return fmod(a, b);
    case POW: return pow(a, b);
    case MIN: return a != a || a < b ? a : b;
    case MAX: return a != a || a > b ? a : b;
    case EQ: return a == b;
    case LT: return a < b;
    case LE: return a <= b;
    case GT: return a > b;
    case GE: return a >= b;
    case AND: return a != 0 && b != 0;
    case OR: return a != 0 || b != 0;
    case XOR: return (a != 0) != (b != 0);
    case NEG: return -a;
    case ABS: return fabs(a);
    case FLOOR: return floor(a);
    case CEIL: return ceil(a);
    case ROUND: return nearbyint(a);
    case SQRT: return sqrt(a);
    case EXP: return exp(a);
    case LOG: return log(a);
    case NOT: return a == 0;
    case SIGN: return (a > 0) - (a < 0);
    case RECIPROCAL: return 1 / a;
    case SIN: return sin(a);
    case COS: return cos(a);
    case TANH: return tanh(a);
    case SIGMOID: return 1 / (1 + exp(-a));
    case ERF: return erf(a);
    case IS_NAN: return a != a;
    case IS_INF: return isinf(a) != 0;
    case RELU: return a > 0 || a != a ? a : 0;
    default: return a;
    }
}

/* Bits that are shifted out are lost; a count outside the width leaves the sign alone. */
static int64_t shift(kind k, int64_t a, int64_t by)
{
    bool out = by < 0 || by > 63;
    if (k == SHIFT_LEFT) return out ? 0 : (int64_t)((uint64_t)a << by);
    if (out) return a < 0 ? -1 : 0;
    return a < 0 ? ~(~a >> by) : a >> by;
}

/* Whole numbers wrap around; a division by zero is 0. */
static int64_t whole(kind k, int64_t a, int64_t b)
{
    switch (k) {
    case ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case SUB: return (int64_t)((uint64_t)a - (uint64_t)b);
    case MUL: return (int64_t)((uint64_t)a * (uint64_t)b);
    case DIV: return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    case FMOD: return b == 0 || b == -1 ? 0 : a % b;
    case MOD: {
        if (b == 0 || b == -1) return 0;
        int64_t r = a % b;
        return r && (r < 0) != (b < 0) ? r + b : r;
    }
    case MIN: return a < b ? a : b;
    case MAX: return a > b ? a : b;
    case EQ: return a == b;
    case LT: return a < b;
    case LE: return a <= b;
    case GT: return a > b;
    case GE: return a >= b;
    case NEG: return (int64_t)(0 - (uint64_t)a);
    case ABS: return a < 0 ? (int64_t)(0 - (uint64_t)a) : a;
    case FLOOR:
    case CEIL:
    case ROUND:
    case SAME: return a;
    case RELU: return a > 0 ? a : 0;
    case BIT_AND: return a & b;
    case BIT_OR: return a | b;
    case BIT_XOR: return a ^ b;
    case BIT_NOT: return ~a;
    case SHIFT_LEFT:
    case SHIFT_RIGHT: return shift(k, a, b);
    default: return in_range(real(k, (double)a, (double)b));
    }
}

/* Shape of n operands together; false: they do not broadcast. */
static bool broadcast_shape(int n, pl_ox_val *const *in, int *rank, int64_t *dim)
{
    *rank = 0;
    for (int i = 0; i < n; i++)
        if (in[i]->rank > *rank) *rank = in[i]->rank;
    for (int d = 0; d < *rank; d++) {
        dim[d] = 1;
        for (int i = 0; i < n; i++) {
            int own = d - (*rank - in[i]->rank);
            int64_t size = own < 0 ? 1 : in[i]->dim[own];
            if (size != 1 && dim[d] != 1 && size != dim[d]) return false;
            if (size != 1) dim[d] = size;
        }
    }
    return true;
}

/* The element of v for element k of a result of this shape. */
static int64_t source(const pl_ox_val *v, int rank, const int64_t *dim, int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int d = rank - 1; d >= 0; d--) {
        int own = d - (rank - v->rank);
        int64_t i = k % dim[d];
        k /= dim[d];
        if (own < 0) break;
        if (v->dim[own] != 1) at += i * stride;
        stride *= v->dim[own];
    }
    return at;
}

static pl_ox_val *result(pl_ox_call *c, pl_dtype dtype, int rank, const int64_t *dim)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || (dim[i] && n > PL_OX_HOST_ELEMS / dim[i])) return NULL;
        n *= dim[i];
    }
    return pl_ox_host_new(c->b, dtype, rank, dim);
}

static pl_ox_val *combine(pl_ox_call *c, kind k, bool truth, pl_ox_val *a, pl_ox_val *b)
{
    pl_ox_val *in[] = {a, b ? b : a};
    int rank;
    int64_t dim[PL_MAX_RANK];
    if (!broadcast_shape(2, in, &rank, dim)) return NULL;
    pl_ox_val *y = result(c, truth ? PL_BOOL : a->dtype, rank, dim);
    if (!y) return NULL;
    bool whole_numbers = a->host.i && in[1]->host.i;
    for (int64_t i = 0; i < y->host.n; i++) {
        int64_t p = source(a, rank, dim, i), q = source(in[1], rank, dim, i);
        if (whole_numbers)
            y->host.i[i] = whole(k, a->host.i[p], in[1]->host.i[q]);
        else
            pl_ox_host_put(y, i, real(k, pl_ox_host_real(a, p), pl_ox_host_real(in[1], q)));
        if (whole_numbers && y->dtype == PL_I32) y->host.i[i] = (int32_t)y->host.i[i];
    }
    return y;
}

static pl_status fold_scalar(pl_ox_call *c, bool *done)
{
    size_t r = 0;
    while (strcmp(table[r].op, c->op) != 0) r++;
    kind k = table[r].what;
    if (k == MOD && pl_ox_attr_int(c, "fmod", 0)) k = FMOD;
    if (k == SHIFT_LEFT && pl_ox_attr_is(c, "direction", "LEFT", "RIGHT")) k = SHIFT_RIGHT;
    if (c->n_in < table[r].arity) return PL_OK;
    bool bits = k >= BIT_AND;
    for (int i = 0; i < table[r].arity && bits; i++)
        if (!c->in[i]->host.i || (c->in[i]->narrow && k >= BIT_NOT)) return PL_OK;
    pl_ox_val *y = combine(c, k, table[r].truth, c->in[0], table[r].arity > 1 ? c->in[1] : NULL);
    for (int i = 2; i < c->n_in && y && (k == MIN || k == MAX || k == ADD); i++)
        y = combine(c, k, false, y, c->in[i]);
    if (!y) return PL_OK;
    *done = true;
    return pl_ox_set_val(c, 0, y);
}

static pl_status fold_cast(pl_ox_call *c, bool *done)
{
    pl_dtype to;
    pl_ox_val *v = c->in[0];
    bool like = strcmp(c->op, "CastLike") == 0;
    int32_t type = (int32_t)pl_ox_attr_int(c, "to", 0);
    if (like && (!pl_ox_has(c, 1) || c->in[1]->widened)) return PL_OK; /* refused by the op */
    if (!like && (!pl_ox_dtype(type, &to) || pl_ox_type_widened(pl_ox_type_name(type))))
        return PL_OK;
    if (like) to = c->in[1]->dtype;
    pl_ox_val *y = result(c, to, v->rank, v->dim);
    if (!y) return PL_OK;
    for (int64_t i = 0; i < v->host.n; i++) {
        if (v->host.i && y->host.i && to == PL_I64)
            y->host.i[i] = v->host.i[i];
        else
            pl_ox_host_put(y, i, pl_ox_host_real(v, i));
    }
    *done = true;
    return pl_ox_set_val(c, 0, y);
}

static pl_status fold_where(pl_ox_call *c, bool *done)
{
    int rank;
    int64_t dim[PL_MAX_RANK];
    if (c->n_in < 3 || !broadcast_shape(3, c->in, &rank, dim)) return PL_OK;
    pl_ox_val *y = result(c, c->in[1]->dtype, rank, dim);
    if (!y || !c->in[1]->host.i != !c->in[2]->host.i) return PL_OK;
    for (int64_t i = 0; i < y->host.n; i++) {
        const pl_ox_val *from =
            pl_ox_host_int(c->in[0], source(c->in[0], rank, dim, i)) ? c->in[1] : c->in[2];
        pl_ox_host_copy(y, i, from, source(from, rank, dim, i));
    }
    *done = true;
    return pl_ox_set_val(c, 0, y);
}

static pl_status fold_clip(pl_ox_call *c, bool *done)
{
    pl_ox_val *v = c->in[0], *y = result(c, v->dtype, v->rank, v->dim);
    if (!y) return PL_OK;
    double lo = pl_ox_has(c, 1) ? pl_ox_host_real(c->in[1], 0) : -HUGE_VAL;
    double hi = pl_ox_has(c, 2) ? pl_ox_host_real(c->in[2], 0) : HUGE_VAL;
    for (int64_t i = 0; i < v->host.n; i++)
        pl_ox_host_put(y, i, fmin(fmax(pl_ox_host_real(v, i), lo), hi));
    *done = true;
    return pl_ox_set_val(c, 0, y);
}

pl_ox_fold_fn *pl_ox_fold_elementwise(const char *op)
{
    if (strcmp(op, "Cast") == 0 || strcmp(op, "CastLike") == 0) return fold_cast;
    if (strcmp(op, "Where") == 0) return fold_where;
    if (strcmp(op, "Clip") == 0) return fold_clip;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].op, op) == 0) return fold_scalar;
    return NULL;
}

pl_status pl_ox_fold(pl_ox_call *c, bool *done)
{
    pl_ox_fold_fn *fn = pl_ox_fold_elementwise(c->op);
    bool all = fn && fn != fold_clip; /* no input may be absent */
    if (!fn) fn = pl_ox_fold_move(c->op);
    if (!fn || (c->node->domain && c->node->domain[0] && strcmp(c->node->domain, "ai.onnx") != 0))
        return PL_OK;
    if (!c->n_in || !c->in[0] || !c->n_out) return PL_OK;
    int n = strcmp(c->op, "CastLike") == 0 ? 1 : c->n_in; /* its second input gives a type only */
    for (int i = 0; i < c->n_in; i++)
        if (!c->in[i] && all) return PL_OK;
    bool known = true;
    for (int i = 0; i < n; i++) known &= !c->in[i] || pl_ox_known(c->b, c->in[i]);
    if (known) PL_TRY(fn(c, done));
    return *done ? PL_OK : pl_ox_fold_repeated(c, fn, done);
}
