/* names.h - names of the recipe's slots in other programs' files: names.c, unet_names.c. */
#ifndef STABLESR_NAMES_H
#define STABLESR_NAMES_H

#include "plimsoll_recipe.h"

/* Prefixes of the parts in a whole checkpoint. */
#define SR_UNET   "model.diffusion_model."
#define SR_STRUCT "structcond_stage_model."
#define SR_VAE    "first_stage_model."

/* Functions of pl_naming.map. The U-Net alone, in the names of published checkpoints without
 * SR_UNET, and of diffusers; everything, in the names of the authors' checkpoints. */
bool sr_published_unet(const pl_config *c, const char *ours, const pl_type *type, pl_published *to);
bool sr_diffusers_unet(const pl_config *c, const char *ours, const pl_type *type, pl_published *to);
bool sr_authors_name(const pl_config *c, const char *ours, const pl_type *type, pl_published *to);
/* pl_naming.constant: the tables of the noise schedule, which checkpoints hold as buffers. */
bool sr_schedule(const pl_config *c, int i, char name[PL_TENSOR_NAME], pl_type *type, void *data);

#endif
