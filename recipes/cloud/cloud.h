/* cloud.h - what the files of the cloud recipe share. */
#ifndef CLOUD_H
#define CLOUD_H

#include "plimsoll_recipe.h"

/* The data, see sky.c. */
pl_status cloud_data_open(const pl_config *c, void **data);
void cloud_data_close(void *data);
int64_t cloud_data_size(void *data, pl_subset subset);
pl_status cloud_data_read(void *data, pl_subset subset, const int64_t *sample, int n,
                          pl_batch *batch);

/* Heights are learned standardised: (km - mean) / std of the uniform distribution on the range. */
#define CLOUD_MIN_KM 0.1
#define CLOUD_MAX_KM 2.0
#define CLOUD_MEAN_KM ((CLOUD_MIN_KM + CLOUD_MAX_KM) / 2)
#define CLOUD_STD_KM ((CLOUD_MAX_KM - CLOUD_MIN_KM) / 3.4641016151377544)

extern const pl_preset cloud_presets[];

#endif
