/* classes.h - names of classes: those of a data set, of a model file, of a run. */
#ifndef PL_TRAIN_CLASSES_H
#define PL_TRAIN_CLASSES_H

#include "plimsoll_recipe.h"

#define PL_CLASSES_KEY "plimsoll.classes" /* metadata of model files: a JSON array of names */

/* The names as a JSON array; borrowed until the classes are freed. */
const char *pl__classes_json(const pl_classes *c);

#endif
