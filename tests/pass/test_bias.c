/* test_bias.c - a vector that is added to a product's columns becomes its operand; other additions
 * stay. */
#include "base/err.h"
#include "pass/pass.h"
#include "plimsoll.h"
#include "plimsoll_ops.h"
#include "tests/lib/test.h"

#include <string.h>

typedef struct net {
    pl_store *store;
    pl_graph *g;
    pl_val y, bias; /* a product of [6,4] and [4,4], and four numbers */
} net;

static net net_new(void)
{
    net n = {.store = pl_store_new()};
    n.g = pl_graph_new(n.store);
    n.bias = pl_input(n.g, "bias", PL_TYPE(PL_F32, 4));
    pl_val x = pl_input(n.g, "x", PL_TYPE(PL_F32, 6, 4));
    pl_val w = pl_input(n.g, "w", PL_TYPE(PL_F32, 4, 4));
    n.y = pl_matmul(n.g, x, w, false, false);
    return n;
}

/* Whether an addition is left after the passes; frees the net. */
static bool adds(net n, pl_val result)
{
    char *text = NULL;
    pl_output(n.g, "result", result);
    bool passed = pl_passes_run(&n.g, NULL) == PL_OK && pl_graph_print(n.g, &text) == PL_OK;
    bool found = text && strstr(text, "add(");
    if (!passed) pl_test_fail(__FILE__, __LINE__, "%s", pl_error_text());
    pl_text_free(text);
    pl_graph_free(n.g);
    pl_store_free(n.store);
    return found;
}

TEST(bias_of_columns_joins_its_product)
{
    net n = net_new();
    CHECK(!adds(n, pl_add(n.g, n.y, n.bias)));

    n = net_new();
    pl_val tokens = pl_reshape(n.g, n.y, PL_DIMS(2, 3, 4));
    CHECK(!adds(n, pl_exp(n.g, pl_add(n.g, n.bias, tokens))));

    n = net_new();
    pl_val many = pl_broadcast(n.g, n.bias, PL_DIMS(6, 4));
    CHECK(!adds(n, pl_add(n.g, many, n.y)));
}

/* A file names the bias behind the product: the importer reads it there. */
TEST(bias_that_is_read_behind_its_product_joins)
{
    net n = net_new();
    CHECK(!adds(n, pl_add(n.g, n.y, pl_input(n.g, "late", PL_TYPE(PL_F32, 4)))));
}

TEST(bias_of_rows_and_of_shared_products_stays)
{
    net n = net_new();
    pl_val rows = pl_reshape(n.g, n.bias, PL_DIMS(4, 1));
    CHECK(adds(n, pl_add(n.g, pl_reshape(n.g, n.y, PL_DIMS(4, 6)), rows)));

    n = net_new();
    CHECK(adds(n, pl_mul(n.g, n.y, pl_add(n.g, n.y, n.bias))));

    n = net_new();
    pl_val later = pl_exp(n.g, n.bias); /* after the product in the program */
    CHECK(adds(n, pl_add(n.g, n.y, later)));

    n = net_new();
    CHECK(adds(n, pl_add(n.g, n.y, n.y)));
}

/* One bias each: a second vector is added as before. */
TEST(bias_joins_once)
{
    net n = net_new();
    pl_val other = pl_input(n.g, "other", PL_TYPE(PL_F32, 4));
    CHECK(adds(n, pl_add(n.g, pl_add(n.g, n.y, n.bias), other)));
}

/* The product with its bias is the product plus the vector. */
TEST(bias_that_joined_is_added_once)
{
    net n = net_new();
    pl_program *p = NULL;
    pl_session *s = NULL;
    pl_output(n.g, "result", pl_add(n.g, n.y, n.bias));
    CHECK_OK(pl_compile(n.g, NULL, &p));
    CHECK_OK(pl_session_new(n.store, 1, &p, &s));
    float *bias = pl_session_input(s, p, "bias", NULL), *x = pl_session_input(s, p, "x", NULL),
          *w = pl_session_input(s, p, "w", NULL);
    for (int i = 0; i < 4; i++) bias[i] = (float)(i + 1);
    for (int i = 0; i < 24; i++) x[i] = (float)(i % 5 - 2);
    for (int i = 0; i < 16; i++) w[i] = (float)(i % 3 - 1);

    CHECK_OK(pl_session_run(s, p));

    const float *got = pl_session_output(s, p, "result", NULL);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++) {
            float want = (float)(j + 1);
            for (int k = 0; k < 4; k++)
                want += (float)((i * 4 + k) % 5 - 2) * (float)((k * 4 + j) % 3 - 1);
            CHECK(got[i * 4 + j] == want);
        }
    pl_session_free(s);
    pl_program_free(p);
    pl_store_free(n.store);
}
