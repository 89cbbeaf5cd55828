/* plimsoll_tasks.h - losses and metrics by name: comparison of a network's output with a target.
 *
 * A configuration names a loss ("cross_entropy") and metrics ("accuracy", "iou"); these functions
 * turn the names into values of a graph. Outputs have the layout of PyTorch: classes along axis 1,
 * [N,K], [N,K,H,W], or along the last axis of a sequence, [N,T,K].
 *
 *     loss              target                                     value
 *     cross_entropy     class numbers, i32, the output's shape     as torch, with its options
 *                       without the axis of classes
 *     dice              the same; one class: 0 to 1, the output's  1 - mean over classes of
 *                       shape                                      (2 |P and T| + 1) / (|P|+|T|+1);
 *                                                                  NaN if a label is not in [0, K)
 *     kl                probabilities, the output's shape          KL(target | softmax(output)),
 *                                                                  mean over rows
 *     mse, l1,          numbers, the output's shape                means over all elements
 *     smooth_l1,
 *     bce_with_logits
 *
 *     metric            needs                                      value
 *     accuracy          class numbers, or 0 and 1                  share that is right
 *     top5              class numbers                              share among the five largest
 *     f1, iou           class numbers, or 0 and 1                  mean over classes
 *     perplexity        class numbers                              e^cross_entropy
 *     mae               numbers                                    mean absolute difference
 *     psnr              numbers                                    mean over samples, in dB
 *
 * f1, iou and perplexity are functions of means over the whole evaluation: pl_task_report adds the
 * means as outputs (both.K and all.K for each class K, nll), and pl_task_derive (pl_recipe.derive)
 * computes the metric. f1 and iou have the same outputs: report one of them, and both are derived.
 * For up to PL_TASK_CLASSES classes the scores are computed over the whole evaluation; for more
 * classes each batch is scored, and the outputs are named f1_batch and iou_batch.
 */
#ifndef PLIMSOLL_TASKS_H
#define PLIMSOLL_TASKS_H

#include "plimsoll_nn.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PL_TASK_CLASSES = 12 };

typedef struct pl_task_opts {
    int axis;         /* of classes; 0: axis 1, or the last axis of an output of rank 3 */
    double smoothing; /* cross_entropy: label smoothing */
    int64_t ignore;   /* class number that is ignored; 0: none, unless ignore_zero */
    double beta;      /* smooth_l1: 0: 1 */
    double peak;      /* psnr: largest possible difference; 0: 1 */
    pl_val weight;    /* cross_entropy: f32 [K], weights of the classes; PL_NO_VAL: all 1 */
    bool ignore_zero; /* class 0 is ignored */
} pl_task_opts;

/* Returns the weights of n classes for pl_task_opts.weight; model files do not have them. Each call
 * needs a different name. */
PL_API pl_val pl_task_class_weights(pl_nn *m, const char *name, int n, const double *weights);

/* The names of all losses and metrics: "cross_entropy|mse|...". */
PL_API const char *pl_task_losses(void);
PL_API const char *pl_task_metrics(void);
PL_API bool pl_task_is_loss(const char *name);
PL_API bool pl_task_is_metric(const char *name);

/* Sets *target to the type of the target that a loss needs for an output of this type. Returns
 * false if the loss cannot be used for the output (cross_entropy of [N]), or if there is no such
 * loss. */
PL_API bool pl_task_target(const char *loss, const pl_type *output, pl_task_opts o,
                           pl_type *target);
/* Returns the loss, an f32 scalar. */
PL_API pl_val pl_task_loss(pl_nn *m, const char *loss, pl_val output, pl_val target,
                           pl_task_opts o);
/* Returns whether a metric can be used for an output and a target of these types. */
PL_API bool pl_task_measures(const char *metric, const pl_type *output, const pl_type *target,
                             pl_task_opts o);
/* Adds the metric to the outputs of an evaluation program, under `name` (NULL: the metric's name);
 * f1, iou and perplexity ignore `name`: once per program. */
PL_API void pl_task_report(pl_nn *m, const char *metric, const char *name, pl_val output,
                           pl_val target, pl_task_opts o);
/* pl_recipe.derive for the metrics above. */
PL_API int pl_task_derive(const char *const *name, const double *mean, int n, const char **new_name,
                          double *new_value, int cap);

#ifdef __cplusplus
}
#endif
#endif
