/* test_narrow.c - mixed precision: which f32 kernels read 16-bit operands as they are stored. */
#include "pass/fuse/fuse.h"
#include "pass/pass.h"
#include "plimsoll_nn.h"
#include "plimsoll_optim.h"
#include "rt/device.h"
#include "tests/lib/test.h"

#include <string.h>

/* A weight that is used once: where the device reads 16-bit gradients, the update gets the
 * product's 16-bit result; elsewhere its f32 form. */
TEST(precision_updates_read_gradients_as_they_are_stored)
{
    for (int tails = 0; tails < 2; tails++) {
        pl_store *store = pl_store_new();
        pl_graph *g = pl_graph_new(store);
        pl_nn *m = pl_nn_new(g, true);
        pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, 8, 64));
        x = pl_silu(g, pl_nn_linear(m, x, "in", 128, (pl_nn_lin){.no_bias = true}));
        pl_optim o = PL_OPTIM_INIT;
        o.clip_norm = 1;
        pl_optim_apply(m, pl_mean(g, pl_square(g, x), PL_AXES_ALL, false), &o, NULL);
        CHECK_OK(pl_nn_finish(m));
        pl_nn_free(m);

        CHECK_OK(pl_passes_run(
            &g, &(pl_pass_opts){.low = PL_BF16, .fuse = &pl_fuse_opts_cpu, .tails = tails}));

        int updates = 0;
        for (uint32_t n = 1; n < g->n_nodes; n++) {
            if (strcmp(g->nodes[n].op->name, "adam") != 0) continue;
            updates++;
            CHECK_INT(pl_type_of(g, pl_node_in(g, n)[3])->dtype, tails ? PL_BF16 : PL_F32);
            CHECK_INT(pl_type_of(g, g->nodes[n].out)->dtype, PL_F32);
        }
        CHECK_INT(updates, 1);
        pl_graph_free(g);
        pl_store_free(store);
    }
}
