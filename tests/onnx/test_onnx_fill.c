/* test_onnx_fill.c - weights of the file in their slots: in the order of the layer, from each type
 * of floats, over the ends of the runs in which they are read. */
#include "base/dtype.h"
#include "base/sys.h"
#include "onnx/onnx.h"
#include "tests/lib/test.h"
#include "tests/onnx/proto_write.h"

#include <stdio.h>
#include <string.h>

/* 79,800 elements, more than are read at once; no size divides a run. */
enum { OUT = 38, IN = 30, HIGH = 10, WIDE = 7, ALL = OUT * IN * HIGH * WIDE };

/* Element k of the file: exact in all types. */
static float value_of(int64_t k)
{
    return (float)(k % 251 - 125) / 64;
}

/* A convolution, or a product of [OUT * HIGH, IN * WIDE], whose weight has this type. */
static pl_str model_with_weight(int type, bool conv)
{
    pl_str g = PL_STR_INIT, n = PL_STR_INIT, t = PL_STR_INIT, raw = PL_STR_INIT;
    put_text(&n, 1, "x");
    put_text(&n, 1, "w");
    put_text(&n, 2, "y");
    put_text(&n, 4, conv ? "Conv" : "MatMul");
    put_message(&g, 1, &n);
    const int64_t dim[] = {OUT, IN, HIGH, WIDE}, flat[] = {OUT * HIGH, IN * WIDE};
    for (int i = 0; i < (conv ? 4 : 2); i++) put_number(&t, 1, (uint64_t)(conv ? dim : flat)[i]);
    put_number(&t, 2, (uint64_t)type);
    put_text(&t, 8, "w");
    for (int64_t k = 0; k < ALL; k++) {
        float x = value_of(k);
        uint16_t half = type == PL_OX_FLOAT16 ? pl_f32_to_f16(x) : pl_f32_to_bf16(x);
        double wide = (double)x;
        if (type == PL_OX_FLOAT)
            pl_str_addn(&raw, (const char *)&x, 4);
        else if (type == PL_OX_DOUBLE)
            pl_str_addn(&raw, (const char *)&wide, 8);
        else
            pl_str_addn(&raw, (const char *)&half, 2);
    }
    put_message(&t, 9, &raw);
    put_message(&g, 5, &t);
    const int64_t picture[] = {1, IN, HIGH, WIDE}, row[] = {1, OUT * HIGH}, one[] = {1};
    put_floats(&g, 11, "x", conv ? 4 : 2, conv ? picture : row);
    put_floats(&g, 12, "y", 1, one);
    return model_of(&g);
}

/* The number of elements of slot w that are not where its layout wants them; -1: not built. */
static int misplaced(const pl_str *model, bool conv)
{
    pl_onnx *o;
    if (pl_ox_open_memory(model->text, model->len, ".", &o) != PL_OK) return -1;
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_nn *m = pl_nn_new(g, true);
    pl_onnx_value out = {.name = "y"};
    pl_status rc = pl_onnx_build(o, m, NULL, 0, NULL, 1, &out); /* types may not agree: a slot is */
    int bad = -1, slot = pl_store_find(store, "w");
    bool known = false;
    float *to = pl_sys_alloc(ALL * 8);
    if (slot >= 0 && to && (rc == PL_OK || rc == PL_ERR_GRAPH || rc == PL_ERR_SHAPE))
        rc = pl_onnx_slot_read(o, pl_store_slot(store, slot), to, &known);
    if (known && rc == PL_OK) bad = 0;
    for (int64_t k = 0; bad >= 0 && k < ALL; k++) {
        int64_t w = k % WIDE, h = k / WIDE % HIGH, i = k / WIDE / HIGH % IN,
                c = k / WIDE / HIGH / IN;
        int64_t at = conv ? ((c * HIGH + h) * WIDE + w) * IN + i : k;
        bool wide = pl_store_slot(store, slot)->type.dtype == PL_F64;
        bad += (wide ? ((double *)to)[at] : (double)to[at]) != (double)value_of(k);
    }
    pl_sys_free(to);
    pl_nn_free(m);
    pl_graph_free(g);
    pl_store_free(store);
    pl_onnx_free(o);
    return bad;
}

TEST(onnx_weights_of_each_type_lie_in_the_order_of_their_layer)
{
    static const int types[] = {PL_OX_FLOAT, PL_OX_FLOAT16, PL_OX_BFLOAT16, PL_OX_DOUBLE};
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    for (int i = 0; i < 4; i++)
        for (int conv = 0; conv < 2; conv++) {
            pl_str m = model_with_weight(types[i], conv != 0);
            CHECK_MSG(misplaced(&m, conv != 0) == 0, "type %d, conv %d: %d misplaced", types[i],
                      conv, misplaced(&m, conv != 0));
            pl_str_release(&m);
        }
}

/* Linear layers of three dimensions are products with transposed weights in the file, and norms may
 * be sums and products. */
TEST(onnx_fresh_weights_are_those_of_pytorchs_layers)
{
    if (pl_onnx_missing()) SKIP(pl_onnx_missing());
    static const struct {
        const char *model, *name;
        pl_init_kind kind;
        double high; /* the highest value, or the constant */
    } wanted[] = {
        {"block-new", "layer.linear1.weight", PL_INIT_UNIFORM, 0.25}, /* 16 inputs */
        {"block-new", "layer.linear1.bias", PL_INIT_UNIFORM, 0.25},
        {"block-new", "layer.linear2.weight", PL_INIT_UNIFORM, 0.1767767}, /* 32 */
        {"block-new", "head.weight", PL_INIT_UNIFORM, 0.25},
        {"block-new", "layer.self_attn.in_proj_weight", PL_INIT_UNIFORM, 0.3061862},
        {"block-new", "layer.self_attn.in_proj_bias", PL_INIT_CONST, 0},
        {"block-new", "norm.weight", PL_INIT_CONST, 1},
        {"block-new", "norm.bias", PL_INIT_CONST, 0},
        {"block-new", "embed.weight", PL_INIT_NORMAL, 1},
        {"small-old", "conv1.weight", PL_INIT_UNIFORM, 0.1924501}, /* 27 */
        {"small-old", "bn1.weight", PL_INIT_CONST, 1},
        {"small-old", "fc.bias", PL_INIT_UNIFORM, 0.3535534}, /* 8 */
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char path[128];
        pl_onnx *o;
        snprintf(path, sizeof path, "tests/data/onnx/%s/model.onnx", wanted[i].model);
        CHECK_OK(pl_onnx_open(path, &o));
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_nn *m = pl_nn_new(g, true);
        pl_onnx_opts opts = {.init = PL_ONNX_INIT_PYTORCH};
        CHECK_OK(pl_onnx_build(o, m, &opts, 0, NULL, 0, NULL));
        int slot = pl_store_find(store, wanted[i].name);
        CHECK_MSG(slot >= 0, "%s", wanted[i].name);
        const pl_init *init = &pl_store_slot(store, slot)->init;
        CHECK_MSG(init->kind == wanted[i].kind, "%s: %d", wanted[i].name, (int)init->kind);
        CHECK_NEAR(init->kind == PL_INIT_CONST ? init->a : init->b, wanted[i].high, 1e-6);
        pl_nn_free(m);
        pl_graph_free(g);
        pl_store_free(store);
        pl_onnx_free(o);
    }
}
