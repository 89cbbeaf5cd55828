/* turbojpeg_table.h - the functions of libturbojpeg, looked up at run time (library.h). */
#ifndef PL_DATA_TURBOJPEG_TABLE_H
#define PL_DATA_TURBOJPEG_TABLE_H

#include <turbojpeg.h>

/* clang-format off */
#define PL_TURBOJPEG_FUNCTIONS(X) \
    X(tjInitDecompress) X(tjDecompressHeader3) X(tjDecompress2) X(tjInitCompress) X(tjCompress2) \
    X(tjBufSize) X(tjGetErrorStr2) X(tjGetErrorCode) X(tjDestroy)
/* clang-format on */

typedef struct pl_turbojpeg {
#define MEMBER(f) __typeof__(&f) f;
    PL_TURBOJPEG_FUNCTIONS(MEMBER)
#undef MEMBER
} pl_turbojpeg;

/* Returns the table, or NULL when the library is not installed. Thread-safe. */
const pl_turbojpeg *pl_turbojpeg_get(void);

#endif
