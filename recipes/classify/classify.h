/* classify.h - declarations that the files of the classify recipe share. */
#ifndef RECIPES_CLASSIFY_H
#define RECIPES_CLASSIFY_H

#include <plimsoll_recipe.h>

/* A network and its sizes. */
typedef struct classify_net {
    const char *name; /* key `network` */
    int64_t width, depths[4], heads, patch;
    int n_depths;
    int64_t classes;
    double drop_path, dropout;
} classify_net;

/* Reads the keys `network` and model.*; where a key is null, the published sizes. classes is not
 * set. PL_ERR_CONFIG names what does not fit together. */
pl_status classify_net_of(const pl_config *c, classify_net *n);
/* networks.c: images [B,H,W,3], normalised, to logits [B,classes]. */
pl_val classify_network(pl_nn *m, const classify_net *n, pl_val x);
/* Names of weights that timm gives to the same networks. */
extern const pl_naming classify_namings[];

/* classify.c: the image input of a program, normalised as the configuration says. */
pl_val classify_image(pl_builder *b, pl_nn *m);
/* Adds the normalisation of pictures and the name of the network to the model file. */
void classify_state_facts(pl_builder *b);
/* Number of classes: key model.classes, else the number of classes of the run. */
pl_status classify_classes(pl_builder *b, int64_t *n);

/* shapes.c: generated pictures, discs, squares and triangles in several colours, and their classes
 */
enum { CLASSIFY_SHAPES = 6 };
pl_status classify_read(void *data, pl_subset subset, const int64_t *sample, int n,
                        pl_batch *batch);
pl_status classify_write(const pl_config *c, pl_subset subset, int64_t sample, const char *dir);

extern const pl_predict classify_predict;
extern const pl_preset classify_presets[];
extern const pl_source_file classify_sources[];

#endif
