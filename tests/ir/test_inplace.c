/* test_inplace.c - the in-place rule (ir/group/inplace.h): when output k of a unit may take over
 * the bytes of input i. */
#include "tests/lib/test.h"

#include "base/arena.h"
#include "ir/group/inplace.h"
#include "plimsoll_ops.h"

/* y = x + b over [4,3], x dense, b one value per column. */
static pl_fused_operand in[2];
static pl_fused_output out[1];
static pl_fused sum_group(void)
{
    in[0] = (pl_fused_operand){.in = 0, .dtype = PL_F32, .stride = {3, 1}};
    in[1] = (pl_fused_operand){.in = 1, .dtype = PL_F32, .stride = {0, 1}};
    out[0] = (pl_fused_output){.kind = PL_FUSED_STORE, .dtype = PL_F32, .out2 = -1};
    return (pl_fused){.rank = 2, .dim = {4, 3}, .n_in = 2, .n_out = 1, .in = in, .out = out};
}

TEST(inplace_output_takes_the_operand_that_is_read_at_its_own_position)
{
    pl_fused f = sum_group();
    CHECK(pl_inplace_operand(&f, 0, 0));
    CHECK(!pl_inplace_operand(&f, 1, 0)); /* a broadcast is read at other positions too */
}

TEST(inplace_output_takes_no_operand_that_another_position_still_reads)
{
    pl_fused f = sum_group();
    in[0].offset = 1;
    CHECK(!pl_inplace_operand(&f, 0, 0));
    f = sum_group();
    in[0].stride[0] = 1, in[0].stride[1] = 4; /* transposed */
    CHECK(!pl_inplace_operand(&f, 0, 0));
    f = sum_group();
    in[1].in = 0; /* the same input is read in a second way */
    CHECK(!pl_inplace_operand(&f, 0, 0));
}

TEST(inplace_elements_are_equally_wide_and_not_bits)
{
    pl_fused f = sum_group();
    in[0].dtype = PL_I32;
    CHECK(pl_inplace_operand(&f, 0, 0));
    in[0].dtype = PL_F16;
    CHECK(!pl_inplace_operand(&f, 0, 0));
    in[0].dtype = out[0].dtype = PL_BOOL;
    CHECK(pl_inplace_operand(&f, 0, 0));
    in[0].bits = out[0].bits = true;
    CHECK(!pl_inplace_operand(&f, 0, 0));
    f = sum_group();
    out[0].kind = PL_FUSED_REDUCE;
    CHECK(!pl_inplace_operand(&f, 0, 0));
}

TEST(inplace_table_leaves_out_operands_that_a_later_kernel_reads)
{
    pl_fused f = sum_group();
    pl_unit u = {.kind = PL_UNIT_GROUP, .n_in = 2, .n_out = 1};
    pl_arena a = PL_ARENA_INIT;
    bool *may = NULL;
    CHECK_OK(pl_inplace_group(&f, &u, NULL, &a, &may));
    CHECK(pl_inplace_unit(NULL, &u, may, 0, 0) && !pl_inplace_unit(NULL, &u, may, 0, 1));
    CHECK(!pl_inplace_unit(NULL, &u, NULL, 0, 0));
    CHECK_OK(pl_inplace_group(&f, &u, (const bool[]){true, false}, &a, &may));
    CHECK(!pl_inplace_unit(NULL, &u, may, 0, 0));
    pl_arena_release(&a);
}

/* A kernel's op says which operands may be overwritten; a value that is two operands needs both. */
TEST(inplace_kernel_needs_the_word_of_every_operand_that_is_the_value)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 4, 4)), w = pl_input(g, "w", PL_TYPE(PL_F32, 4, 4));
    pl_val y = pl_exp(g, x), z = pl_matmul(g, x, w, false, false);

    pl_output(g, "y", y), pl_output(g, "z", z);
    CHECK_OK(pl_graph_status(g));
    pl_units *us = NULL;
    CHECK_OK(pl_units_single(g, &us));

    CHECK_INT((int)us->n, 2);
    CHECK(pl_inplace_unit(g, &us->unit[0], NULL, 0, 0));  /* exp */
    CHECK(!pl_inplace_unit(g, &us->unit[1], NULL, 0, 0)); /* a product reads its rows again */
    pl_units_free(us);
    pl_graph_free(g);
    pl_store_free(store);
}
