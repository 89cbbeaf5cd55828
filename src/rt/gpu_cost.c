/* gpu_cost.c - expected times and scratch on a GPU, from the published figures of its model.
 *
 * Two devices use these functions: the CUDA device, whose model name the driver reports, and the
 * profiles of GPUs to plan for (device_profile.c), whose name is the model. A model without figures
 * is estimated with the figures of a mid-range one.
 */
#include "plan/cost/cost.h"
#include "plan/cost/cost_card.h"
#include "rt/device.h"

#include <stdio.h>

static const pl_card *card_of(const pl_device *dev)
{
    char model[384];
    snprintf(model, sizeof model, "%s", dev->name);
    if (dev->model) dev->model(model, sizeof model);
    const pl_card *card = pl_card_find(model);
    return card ? card : pl_card_find("rtx3090");
}

static pl_card_f32 f32_of(const pl_device_mode *mode)
{
    if (mode->tf32) return PL_CARD_TF32;
    return mode->plain ? PL_CARD_PLAIN : PL_CARD_SPLIT;
}

double pl_gpu_unit_ns(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                      const pl_device_mode *mode)
{
    return pl_card_ns(card_of(dev), cost, dtype, f32_of(mode));
}

double pl_gpu_expected_ns(const pl_device *dev, const pl_graph *g, const pl_unit *u, pl_dtype dtype,
                          const pl_device_mode *mode)
{
    pl_arena scratch = PL_ARENA_INIT;
    pl_cost cost;
    pl_status rc = pl_unit_cost(g, u, &scratch, &cost);
    pl_arena_release(&scratch);
    return rc == PL_OK ? pl_gpu_unit_ns(dev, &cost, dtype, mode) : 0;
}

bool pl_gpu_joins_products(const pl_device *dev)
{
    return card_of(dev)->dnn_attention;
}

void pl_gpu_copy_ns(const pl_device *dev, double *fixed, double *per_byte)
{
    const pl_card *card = card_of(dev);
    *fixed = card->launch_ns;
    *per_byte = 2e9 / (PL_CARD_MOVES * card->bandwidth); /* read and written */
}

uint64_t pl_gpu_scratch_bytes(const pl_device *dev, const pl_cost *cost, pl_dtype dtype,
                              const pl_device_mode *mode)
{
    return pl_card_workspace(card_of(dev), cost, dtype, f32_of(mode));
}
