/* product.h - a group that begins with a matrix product.
 *
 * pass/fuse/fuse_product.c moves a product (pl_op.product) into the group that reads its result
 * first, for devices whose kernels can do what follows a product before the result is stored: sums
 * over rows (statistics of norms, gradients of biases), gradients of activations, other maps. Such
 * a unit is a group whose nodes include the product. Its results may include the product's own, the
 * last of them; otherwise the product's result is not stored.
 *
 * The group without the product, `behind`, is an ordinary group, which fused.h describes: the
 * product's result is its last input, after all inputs of the unit.
 */
#ifndef PL_IR_GROUP_PRODUCT_H
#define PL_IR_GROUP_PRODUCT_H

#include "ir/group/fused.h"

PL_SHARED_BEGIN

/* Returns the product that a group begins with; 0: none. */
uint32_t pl_group_product(const pl_graph *g, const pl_unit *u);
/* Makes the group without its product, in the arena. */
pl_status pl_group_behind(const pl_graph *g, const pl_unit *u, pl_arena *a,
                          pl_unit *behind) PL_MUST_USE;
/* Makes the in-place table of the unit (inplace.h) from the table of `behind`: nothing may
 * overwrite an operand of the product. */
pl_status pl_group_product_inplace(const pl_graph *g, const pl_unit *u, const pl_unit *behind,
                                   const bool *may, pl_arena *a, bool **out) PL_MUST_USE;

PL_SHARED_END

#endif
