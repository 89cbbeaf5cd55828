/* items_int.h - shared by the files that list images. */
#ifndef PL_DATA_ITEMS_INT_H
#define PL_DATA_ITEMS_INT_H

#include "data/sets/items.h"

/* Adds a new, empty entry; NULL with the message set when out of memory. */
pl_item *pl__items_add(pl_items *s);
/* Whether a name ends like an image that is read. */
bool pl__is_image_name(const char *name);
/* Counts a file that is not read, unless it belongs to images. */
void pl__items_skip(pl_items *s, const char *name);

/* Names of evaluation sets, the first of which that exists is read: eval, val, valid, validation,
 * test; NULL after the last. _find: the number of a name of n bytes, or -1. */
const char *pl__eval_name(int i);
int pl__eval_name_find(const char *name, size_t n);

/* folder.c, tar.c */
pl_status pl__items_folder(pl_items *s, const pl_items_opts *o) PL_MUST_USE;
pl_status pl__items_tar(pl_items *s, const pl_items_opts *o) PL_MUST_USE;
/* captions.c: captions, labels and weights of root/metadata.jsonl and of a file of lines. */
pl_status pl__items_captions(pl_items *s, const char *captions) PL_MUST_USE;
/* A text of the sample's JSON (caption, text or prompt) and its label, a whole number; either may
 * be absent. */
pl_status pl__sample_json(pl_arena *mem, const char *json, size_t n, const char **text,
                          int64_t *label);
/* class_names.c: the label of a class, which is added when it is new. */
pl_status pl__items_class(pl_items *s, const char *name, int32_t *label) PL_MUST_USE;
/* The last step of a list: orders the classes and says whether every image has one. */
pl_status pl__items_settle_classes(pl_items *s) PL_MUST_USE;
/* Lists the names in a folder, sorted by bytes, without hidden ones. */
pl_status pl__list_names(pl_arena *mem, const char *dir, const char ***names, int *n) PL_MUST_USE;

#endif
