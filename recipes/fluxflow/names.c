/* names.c - LPIPS weights under the names that other programs give them.
 *
 * Two namings: the lpips package's (all in one module), and torchvision's VGG16 together with the
 * package's linear weights (in one file, or two in a folder). VGG's 13 convolutions are numbered
 * through its list of layers, including rectifiers and pools; ours are numbered in each of five
 * stages.
 */
#include "fluxflow.h"

/* clang-format off */
#define CONVOLUTIONS(X)                                                                        \
    X(1, 0, 0, 0) X(1, 2, 0, 2)                                                                \
    X(2, 5, 1, 1) X(2, 7, 1, 3)                                                                \
    X(3, 10, 2, 1) X(3, 12, 2, 3) X(3, 14, 2, 5)                                               \
    X(4, 17, 3, 1) X(4, 19, 3, 3) X(4, 21, 3, 5)                                               \
    X(5, 24, 4, 1) X(5, 26, 4, 3) X(5, 28, 4, 5)
#define PACKAGE(slice, layer, stage, index) \
    {"net.slice" #slice "." #layer ".*", "lpips.stages." #stage "." #index ".*"},
#define VISION(slice, layer, stage, index) \
    {"features." #layer ".*", "lpips.stages." #stage "." #index ".*"},
#define LINEAR                                                                                 \
    {"lin0.model.1.weight", "lpips.weights.0"}, {"lin1.model.1.weight", "lpips.weights.1"},    \
    {"lin2.model.1.weight", "lpips.weights.2"}, {"lin3.model.1.weight", "lpips.weights.3"},    \
    {"lin4.model.1.weight", "lpips.weights.4"}, {NULL, NULL}

static const pl_rename package[] = {CONVOLUTIONS(PACKAGE) LINEAR};
static const pl_rename vision[] = {CONVOLUTIONS(VISION) LINEAR};
/* clang-format on */

static const pl_naming namings[] = {
    {.name = "lpips", .rules = package, .ignored = "scaling_layer.*,lins.*"},
    {.name = "torchvision", .rules = vision, .ignored = "classifier.*"},
    {.name = NULL},
};

const pl_weights flux_weights[] = {
    {"lpips.weights", "lpips.stages.*,lpips.weights.*", namings},
    {NULL, NULL, NULL},
};
