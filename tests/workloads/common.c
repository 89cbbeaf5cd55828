/* common.c - what the workloads share. */
#include "workloads.h"

pl_nn_conv work_conv3(void)
{
    return (pl_nn_conv){.kernel = 3, .pad = 1};
}

pl_nn_conv work_conv3_down(void)
{
    return (pl_nn_conv){.kernel = 3, .stride = 2, .pad = 1};
}

pl_val work_conv1(pl_nn *m, pl_val x, const char *name, int64_t out)
{
    return pl_nn_conv2d(m, x, name, out, (pl_nn_conv){.kernel = 1});
}

static void finish(pl_nn *m, const pl_grads *grads, const pl_optim *o)
{
    for (int i = 0; i < grads->n; i++) {
        const pl_slot *s = pl_store_slot(pl_graph_store(m->g), grads->slot[i]);
        pl_output(m->g, pl_nn_name(m, "grad.%s", s->name), grads->grad[i]);
    }
    pl_optim_update(m, grads, o, NULL);
}

void work_minimise(pl_nn *m, pl_val loss, const pl_optim *o)
{
    pl_grads grads;
    pl_optim_gradients(m, loss, o, &grads);
    finish(m, &grads, o);
}

void work_apply(pl_nn *m, const pl_optim *o)
{
    pl_grads grads;
    pl_optim_accumulated(m, o, &grads);
    finish(m, &grads, o);
}
