/* link_rates.h - measured rates of the links between levels, kept in the cache folder.
 *
 * Owners: a GPU by its model, for the link to host memory; a file system by its device number, for
 * the disk below it. `plimsoll devices --calibrate` measures; planning reads.
 */
#ifndef PL_RT_LINK_RATES_H
#define PL_RT_LINK_RATES_H

#include "rt/device.h"

typedef struct pl_link_rates {
    double up, down; /* bytes per second: to the device (read), from it (written) */
} pl_link_rates;

/* Names the owner of a link; cap of at least 160. _disk: false: the folder cannot be looked at. */
void pl_link_owner(const pl_device *dev, char *out, size_t cap);
bool pl_link_disk_owner(const char *folder, char *out, size_t cap);

/* Copies blocks through the host link of a device with its own memory, or through a file of the
 * folder. Takes about 0.2 s, on disks longer. */
pl_status pl_link_measure(const pl_device *dev, pl_link_rates *out) PL_MUST_USE;
pl_status pl_link_measure_disk(const char *folder, pl_link_rates *out) PL_MUST_USE;

/* Returns whether rates of that owner are kept. */
bool pl_link_rates_find(const char *owner, pl_link_rates *out);
/* Keeps the rates, in place of older ones of that owner. */
pl_status pl_link_rates_put(const char *owner, const pl_link_rates *rates) PL_MUST_USE;

#endif
