/* roles.c - how layers use the tensors of the file: which of them are weights, and how many inputs
 * the layer of a weight has, from which PyTorch draws initial values.
 *
 * A node reads an initializer directly, or a value that other nodes make of it: exporters transpose
 * the weight of a linear layer, and slice and join those of a recurrent one. */
#include "onnx/onnx.h"

#include "plimsoll_nn.h"

#include <string.h>

/* Roles of inputs, by op; an input that is not named has none. */
static const struct {
    const char *op;
    int input;
    pl_ox_role role;
} roles[] = {
    {"Conv", 1, PL_OX_ROLE_CONV},
    {"Conv", 2, PL_OX_ROLE_BIAS},
    {"ConvTranspose", 1, PL_OX_ROLE_CONV},
    {"ConvTranspose", 2, PL_OX_ROLE_BIAS},
    {"Gemm", 0, PL_OX_ROLE_MATRIX},
    {"Gemm", 1, PL_OX_ROLE_MATRIX},
    {"Gemm", 2, PL_OX_ROLE_BIAS},
    {"MatMul", 0, PL_OX_ROLE_MATRIX},
    {"MatMul", 1, PL_OX_ROLE_MATRIX},
    {"Gather", 0, PL_OX_ROLE_TABLE},
    {"BatchNormalization", 1, PL_OX_ROLE_SCALE},
    {"BatchNormalization", 2, PL_OX_ROLE_SHIFT},
    {"BatchNormalization", 3, PL_OX_ROLE_BUFFER},
    {"BatchNormalization", 4, PL_OX_ROLE_BUFFER},
    {"InstanceNormalization", 1, PL_OX_ROLE_SCALE},
    {"InstanceNormalization", 2, PL_OX_ROLE_SHIFT},
    {"GroupNormalization", 1, PL_OX_ROLE_SCALE},
    {"GroupNormalization", 2, PL_OX_ROLE_SHIFT},
    {"LayerNormalization", 1, PL_OX_ROLE_SCALE},
    {"LayerNormalization", 2, PL_OX_ROLE_SHIFT},
    {"SimplifiedLayerNormalization", 1, PL_OX_ROLE_SCALE},
    {"RMSNormalization", 1, PL_OX_ROLE_SCALE},
    {"PRelu", 1, PL_OX_ROLE_SLOPE},
    {"LSTM", 1, PL_OX_ROLE_OTHER},
    {"LSTM", 2, PL_OX_ROLE_OTHER},
    {"LSTM", 3, PL_OX_ROLE_OTHER},
    {"GRU", 1, PL_OX_ROLE_OTHER},
    {"GRU", 2, PL_OX_ROLE_OTHER},
    {"GRU", 3, PL_OX_ROLE_OTHER},
    {"RNN", 1, PL_OX_ROLE_OTHER},
    {"RNN", 2, PL_OX_ROLE_OTHER},
    {"RNN", 3, PL_OX_ROLE_OTHER},
    {"Resize", 1, PL_OX_ROLE_CONSTANT},
    {"Resize", 2, PL_OX_ROLE_CONSTANT},
    {"Upsample", 1, PL_OX_ROLE_CONSTANT},
    {"Clip", 1, PL_OX_ROLE_CONSTANT},
    {"Clip", 2, PL_OX_ROLE_CONSTANT},
    {"Dropout", 1, PL_OX_ROLE_CONSTANT},
    {"Pad", 2, PL_OX_ROLE_CONSTANT},
    {"OneHot", 2, PL_OX_ROLE_CONSTANT},
    {"Range", 0, PL_OX_ROLE_CONSTANT},
    {"Range", 1, PL_OX_ROLE_CONSTANT},
    {"Range", 2, PL_OX_ROLE_CONSTANT},
};

/* Initializers whose elements a value has. */
typedef struct source {
    pl_ox_init *init;
    bool whole;  /* every element, in the order of the file */
    bool turned; /* transposed */
    struct source *next;
} source;

typedef struct finder {
    const pl_onnx *o;
    pl_arena *mem;
    pl_ox_map *made;     /* name of a value to its sources */
    pl_ox_map *products; /* name of a product to the weight in it */
} finder;

enum { MOST_SOURCES = 16 };

static source *sources_of(const finder *f, const char *name)
{
    if (!name || !name[0]) return NULL;
    pl_ox_init *t = pl_ox_map_get(f->o->inits, name);
    if (!t) return pl_ox_map_get(f->made, name);
    source *s = pl_arena_new(f->mem, source, 1);
    if (s) *s = (source){t, true, false, NULL};
    return s;
}

/* The tensor that input k of a node reads as it is. */
static pl_ox_init *read_by(const finder *f, const pl_ox_node *n, size_t k)
{
    const source *s = k < n->n_input ? sources_of(f, n->input[k]) : NULL;
    return s && s->whole ? s->init : NULL;
}

static int64_t whole_number(const pl_ox_node *n, const char *name)
{
    for (size_t i = 0; i < n->n_attribute; i++)
        if (n->attribute[i]->name && strcmp(n->attribute[i]->name, name) == 0)
            return n->attribute[i]->i;
    return 0;
}

static bool is_one_of(const char *op, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(op, *words) == 0) return true;
    return false;
}

static bool has_source(const source *s, const pl_ox_init *t)
{
    while (s && s->init != t) s = s->next;
    return s != NULL;
}

/* Remembers what a node makes of initializers by moving their elements. */
static pl_status follow(finder *f, const pl_ox_node *n)
{
    static const char *const keep[] = {"Cast", "Identity", NULL};
    static const char *const move[] = {"Transpose", "Reshape", "Squeeze", "Unsqueeze",
                                       "Slice",     "Split",   "Concat",  NULL};
    bool keeps = is_one_of(n->op_type, keep), turns = strcmp(n->op_type, "Transpose") == 0;
    if (!keeps && !is_one_of(n->op_type, move)) return PL_OK;
    size_t n_read = strcmp(n->op_type, "Concat") == 0 ? n->n_input : 1, found = 0;
    source *all = NULL;
    for (size_t i = 0; i < n_read && i < n->n_input; i++)
        for (const source *s = sources_of(f, n->input[i]); s; s = s->next) {
            if (has_source(all, s->init)) continue;
            source *copy = pl_arena_new(f->mem, source, 1);
            if (!copy) return PL_ERR_MEMORY;
            *copy = (source){s->init, s->whole && keeps, s->turned != turns, all};
            all = copy;
            if (++found > MOST_SOURCES) return PL_OK;
        }
    for (size_t i = 0; all && i < n->n_output; i++)
        if (n->output[i] && n->output[i][0]) PL_TRY(pl_ox_map_put(f->made, n->output[i], all));
    return PL_OK;
}

/* ---- the number of inputs of a layer --------------------------------------------------------- */
/* Gives the weight and the bias of a layer the number of inputs of the layer. */
static void set_fan(const pl_ox_node *n, pl_ox_init *w, pl_ox_init *bias)
{
    if (!w || w->about.type.rank < 2) return;
    const pl_type *t = &w->about.type;
    double fan = w->role == PL_OX_ROLE_CONV ? (double)pl_type_elems(t) / (double)t->dim[0]
                                            : (double)t->dim[t->rank - 2];
    if (w->role == PL_OX_ROLE_MATRIX && whole_number(n, "transB")) fan = (double)t->dim[1];
    w->fan_in = fan;
    if (bias) bias->fan_in = fan;
}

/* A linear layer of three dimensions and more: a product with a transposed weight, then a sum. */
static pl_status set_linear(finder *f, const pl_ox_node *n)
{
    if (strcmp(n->op_type, "MatMul") == 0 && n->n_input == 2 && n->n_output == 1) {
        source *s = sources_of(f, n->input[1]);
        if (!s || s->next || s->init->about.type.rank != 2) return PL_OK;
        s->init->fan_in = (double)s->init->about.type.dim[s->turned ? 1 : 0];
        return pl_ox_map_put(f->products, n->output[0], s->init);
    }
    for (size_t k = 0; strcmp(n->op_type, "Add") == 0 && n->n_input == 2 && k < 2; k++) {
        const pl_ox_init *w = n->input[k] ? pl_ox_map_get(f->products, n->input[k]) : NULL;
        pl_ox_init *bias = read_by(f, n, 1 - k);
        if (w && bias && bias->about.type.rank == 1 && bias->fan_in <= 0) bias->fan_in = w->fan_in;
    }
    return PL_OK;
}

/* PyTorch draws all weights of a recurrent layer from the number of its states. The slopes of a
 * PReLU get further dimensions before the node reads them. */
static void set_derived(const finder *f, const pl_ox_node *n)
{
    static const char *const ops[] = {"LSTM", "GRU", "RNN", NULL};
    double states = (double)whole_number(n, "hidden_size");
    for (size_t k = 1; is_one_of(n->op_type, ops) && k < 4 && k < n->n_input; k++)
        for (source *s = sources_of(f, n->input[k]); s && states > 0; s = s->next)
            s->init->fan_in = states;
    source *slope =
        strcmp(n->op_type, "PRelu") == 0 && n->n_input > 1 ? sources_of(f, n->input[1]) : NULL;
    if (slope && slope->init->role == PL_OX_ROLE_NONE) slope->init->role = PL_OX_ROLE_SLOPE;
}

static void set_role(const finder *f, const pl_ox_node *n)
{
    bool layer = false;
    for (size_t r = 0; r < sizeof roles / sizeof *roles; r++) {
        if (strcmp(roles[r].op, n->op_type) != 0) continue;
        pl_ox_init *t = read_by(f, n, (size_t)roles[r].input);
        if (!t || t->role == PL_OX_ROLE_CONV || !pl_dtype_is_float(t->about.type.dtype) ||
            (roles[r].role == PL_OX_ROLE_CONSTANT && t->role != PL_OX_ROLE_NONE))
            continue;
        t->role = roles[r].role;
        t->conv |= t->role == PL_OX_ROLE_CONV && t->about.type.rank > 2;
        layer |= t->role == PL_OX_ROLE_CONV || t->role == PL_OX_ROLE_MATRIX;
    }
    if (layer) set_fan(n, read_by(f, n, 1), read_by(f, n, 2));
}

/* ---- weights --------------------------------------------------------------------------------- */
/* Patterns of the names that exporters give to buffers and to computed constants. */
static const char no_parameters[] =
    "*::*,/*,val_*,*Constant*,*_output_?,*scalar*,*lifted_tensor*,_tensor_constant*,"
    "*.running_mean,*.running_var,*.num_batches_tracked,*inv_freq,*attn_mask,*.masked_bias,"
    "*position_ids,_?*_const*,const_*,clone*,arange*,ones*,zeros*,full*,mul_*,add_*,sub_*,div_*,"
    "expand*,unsqueeze*,slice*,constant*,__*";

static void set_weights(pl_onnx *o)
{
    for (int i = 0; i < o->n_init; i++) {
        pl_ox_init *t = &o->init[i];
        if (!pl_dtype_is_float(t->about.type.dtype) || t->role == PL_OX_ROLE_BUFFER) continue;
        if (t->kind == PL_OX_KIND_PARAMETER) t->about.weight = true;
        if (t->kind != PL_OX_KIND_UNKNOWN) continue;
        if (t->role == PL_OX_ROLE_CONSTANT) continue;
        t->about.weight = (t->role != PL_OX_ROLE_NONE && t->about.type.rank > 0) ||
                          !pl_nn_match(no_parameters, t->about.name);
    }
}

pl_status pl_ox_set_roles(pl_onnx *o)
{
    const pl_ox_graph *g = o->proto->graph;
    pl_arena mem = PL_ARENA_INIT;
    finder f = {.o = o, .mem = &mem};
    f.made = pl_ox_map_new(&mem);
    f.products = pl_ox_map_new(&mem);
    pl_status rc = f.made && f.products ? PL_OK : PL_ERR_MEMORY;
    for (size_t i = 0; i < g->n_node && rc == PL_OK; i++) {
        const pl_ox_node *n = g->node[i];
        if (!n->op_type) continue;
        set_role(&f, n);
        set_derived(&f, n);
        rc = set_linear(&f, n);
        if (rc == PL_OK) rc = follow(&f, n);
    }
    pl_arena_release(&mem);
    if (rc == PL_OK) set_weights(o);
    return rc;
}
