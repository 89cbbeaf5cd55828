/* update.h - optimiser loops: one pass over a weight, its gradient and its moments.
 *
 * Each rule reads every tensor once and writes every new value once; it is bound by memory. Outputs
 * may be the bytes of their inputs. Formulas are PyTorch's; the caller computes the coefficients in
 * double.
 */
#ifndef PL_CPU_UPDATE_H
#define PL_CPU_UPDATE_H

#include <stdint.h>

typedef struct pl_update {
    const float *grad, *w, *s[3]; /* s: the rule's state, in the order of its outputs */
    float *w_out, *s_out[3];
    float scale;                    /* of the gradient */
    float decay;                    /* weight decay added to the gradient */
    float keep;                     /* factor of decoupled decay on the weight; 1 = none */
    float rate;                     /* learning rate, or Adam's step size */
    float beta1, beta2, mix1, mix2; /* mix = 1 - beta */
    float eps, root;                /* root: sqrt of Adam's second bias correction */
} pl_update;

typedef void (*pl_update_fn)(const pl_update *u, int64_t lo, int64_t hi);

typedef enum pl_update_rule {
    PL_UPDATE_ADAM,             /* s: m, v */
    PL_UPDATE_ADAM_MAX,         /* s: m, v, vmax */
    PL_UPDATE_SGD,              /* no state */
    PL_UPDATE_SGD_MOMENTUM,     /* s: buf; beta1 = momentum, mix1 = 1 - dampening */
    PL_UPDATE_SGD_NESTEROV,     /* the same */
    PL_UPDATE_LION,             /* s: m */
    PL_UPDATE_RMSPROP,          /* s: sq; beta2 = alpha, mix2 = 1 - alpha */
    PL_UPDATE_RMSPROP_CENTERED, /* s: sq, mean */
    PL_UPDATE_RMSPROP_MOMENTUM, /* s: sq, buf; beta1 = momentum */
    PL_UPDATE_RMSPROP_FULL,     /* s: sq, mean, buf */
    PL_N_UPDATES
} pl_update_rule;

/* Returns the loop of a rule in the best compiled set that this machine supports. */
pl_update_fn pl_update_best(pl_update_rule rule);

#endif
