/* spng_table.h - the functions of libspng, looked up at run time (library.h). */
#ifndef PL_DATA_SPNG_TABLE_H
#define PL_DATA_SPNG_TABLE_H

#include <spng.h>

/* clang-format off */
#define PL_SPNG_FUNCTIONS(X) \
    X(spng_ctx_new) X(spng_ctx_free) X(spng_set_png_buffer) X(spng_set_png_stream) \
    X(spng_set_image_limits) X(spng_set_chunk_limits) X(spng_get_ihdr) X(spng_set_ihdr) \
    X(spng_set_option) X(spng_set_iccp) X(spng_decode_image) X(spng_decode_row) \
    X(spng_decoded_image_size) X(spng_encode_image) X(spng_encode_row) X(spng_strerror)
/* clang-format on */

typedef struct pl_spng {
#define MEMBER(f) __typeof__(&f) f;
    PL_SPNG_FUNCTIONS(MEMBER)
#undef MEMBER
} pl_spng;

/* Returns the table, or NULL when the library is not installed. Thread-safe. */
const pl_spng *pl_spng_get(void);

#endif
