/* naming.h - from our names of slots to published names of tensors (pl_naming). */
#ifndef PL_TRAIN_NAMING_H
#define PL_TRAIN_NAMING_H

#include "plimsoll_recipe.h"

/* Writes the published tensor of a slot, its name with the prefix. false: the naming has no rule
 * for the slot. A name that stays empty: their files have no such tensor. */
bool pl__naming_find(const pl_naming *naming, const pl_config *c, const pl_slot *slot,
                     pl_published *to);
/* Whether the type in a file is the slot's: equal except for dimensions of 1, or, with to->rows,
 * except for the number of rows. */
bool pl__naming_shape(const pl_published *to, const pl_type *file, const pl_type *slot);

#endif
