/* numpy.h - small arrays and numbers of numpy in a pickle.
 *
 * numpy pickles an array as a call of _reconstruct whose state has shape, type and bytes, and a
 * single number as a call of scalar with type and bytes. Protocols below 3 have no bytes: they
 * write text, one character per byte, that _codecs.encode would turn into bytes.
 */
#ifndef PL_IO_NUMPY_H
#define PL_IO_NUMPY_H

#include "io/tensors/pickle.h"

enum { PL_NUMPY_MOST = 64 }; /* elements that are read */

/* Writes the numbers of an array or a number of numpy, in the order of its bytes. Returns how many:
 * -1 where v is another value, or an array of more than PL_NUMPY_MOST elements, of texts, objects
 * or big-endian numbers. */
int pl_numpy_numbers(const pl_pickle *v, double out[PL_NUMPY_MOST]);

#endif
