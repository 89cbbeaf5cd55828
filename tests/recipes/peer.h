/* peer.h - numbers shared with PyTorch without storing tensors.
 *
 * Both sides make parameters and inputs from a hash of a name and an index; what comes out is
 * compared by its norm and four sign projections (tools/oracle/peer_numbers.py writes them).
 * Elements are counted in the order of PyTorch's files.
 */
#ifndef PL_TESTS_PEER_H
#define PL_TESTS_PEER_H

#include "plimsoll.h"

#include <jansson.h>

uint64_t peer_hash(const char *name);
double peer_uniform(uint64_t hash, int64_t i); /* [0,1) */
double peer_noise(uint64_t hash, int64_t i);   /* mean 0, variance 1 */

typedef struct peer_summary {
    double norm, p[4];
} peer_summary;
peer_summary peer_summarise(const double *x, int64_t n);
/* Largest deviation from [norm, p0..p3], divided by the norm (at least floor_norm). */
double peer_deviation(peer_summary got, json_t *want, double floor_norm);

/* For each element in file order, its index in our memory, where file dimension i is our
 * dimension perm[i]. The caller frees the list with pl_sys_free. */
int64_t *peer_file_order(int rank, const int64_t *dim, const int *perm, int64_t *n);
int64_t *peer_slot_order(const pl_slot *s, int64_t *n);
/* Whether files store the slot with this shape. */
bool peer_same_shape(const pl_slot *s, json_t *shape);

#endif
