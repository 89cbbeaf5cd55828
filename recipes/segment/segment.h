/* segment.h - what the files of the segment recipe share. */
#ifndef RECIPES_SEGMENT_H
#define RECIPES_SEGMENT_H

#include <plimsoll_recipe.h>

/* Sizes of the network. */
typedef struct segment_net {
    int64_t classes, width, levels, rows, columns; /* rows, columns: of a picture */
    bool bilinear;
} segment_net;

/* Reads the sizes. PL_ERR_CONFIG names what does not fit together. */
pl_status segment_net_of(const pl_config *c, segment_net *n);
/* unet.c: images [B,H,W,3], normalised, to logits [B,H,W,classes]. */
pl_val segment_network(pl_nn *m, const segment_net *n, pl_val x);
/* segment.c: the image input of a program, normalised as the configuration says. */
pl_val segment_image(pl_builder *b, pl_nn *m, const segment_net *n);

/* blobs.c: generated pictures of discs and bars with their masks */
pl_status segment_read(void *data, pl_subset subset, const int64_t *sample, int n, pl_batch *batch);
pl_status segment_write(const pl_config *c, pl_subset subset, int64_t sample, const char *dir);

extern const pl_predict segment_predict;
extern const pl_preset segment_presets[];
extern const pl_source_file segment_sources[];

#endif
