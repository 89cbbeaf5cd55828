/* png_write.c - see png_write.h. libspng encodes (libpng where its header is missing:
 * image_libpng.c). Rows go in and the bytes of the file come out in pieces: besides them, only the
 * library's window of some hundred kibibytes is allocated, for any size of the picture. Level 1 of
 * zlib: a picture is written between two steps, and training waits for it. */
#include "data/image/png_write.h"

#include "data/image/image.h"
#include "io/file.h"
#include "plimsoll_events.h"

bool pl_png_fits(int width, int height, int channels)
{
    return width > 0 && height > 0 && channels > 0 && channels <= 4 &&
           (size_t)width * (size_t)channels * (size_t)height <= (size_t)1 << 30;
}

#if __has_include(<spng.h>)
# include "data/image/spng_table.h"

static int put(spng_ctx *c, void *job, void *bytes, size_t n)
{
    const pl_png_job *j = job;
    (void)c;
    return j->put(j->to, bytes, n) ? 0 : SPNG_IO_ERROR;
}

/* Returns an error of libspng; 0: none. */
static int encode_rows(const pl_spng *lib, spng_ctx *c, const pl_png_job *j)
{
    const size_t row_bytes = (size_t)j->width * (size_t)j->channels;
    int rc = lib->spng_encode_image(c, NULL, 0, SPNG_FMT_PNG,
                                    SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
    for (int y = 0; y < j->height && rc == 0; y++)
        rc = lib->spng_encode_row(c, j->row(j->from, y), row_bytes);
    return rc == SPNG_EOI ? 0 : rc; /* the last row ends the image */
}

pl_status pl_png_encode(const pl_png_job *job)
{
    static const uint8_t kind[] = {0, SPNG_COLOR_TYPE_GRAYSCALE, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA,
                                   SPNG_COLOR_TYPE_TRUECOLOR, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
    const pl_spng *lib = pl_spng_get();
    pl_png_job j = *job;
    PL_FAIL_IF(!lib, PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_PNG));
    spng_ctx *c = lib->spng_ctx_new(SPNG_CTX_ENCODER);
    PL_FAIL_IF(!c, PL_ERR_MEMORY, "no memory for a PNG encoder");
    struct spng_ihdr head = {.width = (uint32_t)j.width,
                             .height = (uint32_t)j.height,
                             .bit_depth = 8,
                             .color_type = kind[j.channels]};
    int rc = lib->spng_set_png_stream(c, put, &j);
    if (rc == 0) rc = lib->spng_set_option(c, SPNG_IMG_COMPRESSION_LEVEL, 1);
    if (rc == 0) rc = lib->spng_set_ihdr(c, &head);
    if (rc == 0) rc = encode_rows(lib, c, &j);
    lib->spng_ctx_free(c);
    PL_FAIL_IF(rc == SPNG_EMEM, PL_ERR_MEMORY, "out of memory for a PNG of %d x %d", j.width,
               j.height);
    if (rc == SPNG_IO_ERROR) return PL_ERR_IO; /* put has said why */
    PL_FAIL_IF(rc, PL_ERR_ARG, "PNG of %d x %d with %d channels: %s", j.width, j.height, j.channels,
               lib->spng_strerror(rc));
    return PL_OK;
}

#elif !__has_include(<png.h>) /* image_libpng.c otherwise */

pl_status pl_png_encode(const pl_png_job *job)
{
    (void)job;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_PNG));
}
#endif

/* ---- where rows come from and bytes go ----------------------------------------------------- */
typedef struct all_pixels {
    const uint8_t *pixels;
    size_t row_bytes;
} all_pixels;

static const uint8_t *row_of(void *from, int y)
{
    const all_pixels *p = from;
    return p->pixels + (size_t)y * p->row_bytes;
}

static bool put_text(void *to, const void *bytes, size_t n)
{
    pl_str_addn(to, bytes, n);
    return !((pl_str *)to)->failed;
}

pl_status pl_png_put(pl_str *out, int width, int height, int channels, const uint8_t *pixels)
{
    all_pixels from = {pixels, (size_t)width * (size_t)channels};
    pl_png_job j = {.width = width,
                    .height = height,
                    .channels = channels,
                    .row = row_of,
                    .put = put_text,
                    .from = &from,
                    .to = out};
    pl_status rc = pl_png_encode(&j);
    PL_FAIL_IF(out->failed, PL_ERR_MEMORY, "out of memory for a PNG of %d x %d", width, height);
    return rc;
}

static bool put_file(void *to, const void *bytes, size_t n)
{
    return pl_file_writer_write(to, bytes, n) == PL_OK;
}

pl_status pl_png_save_rows(const char *path, int width, int height, int channels,
                           const uint8_t *(*row)(void *from, int y), void *from)
{
    PL_FAIL_IF(!pl_png_fits(width, height, channels), PL_ERR_ARG,
               "%s: cannot write a picture of %d x %d with %d channels", path, width, height,
               channels);
    const char *missing = pl_image_missing(PL_IMAGE_PNG);
    PL_FAIL_IF(missing, PL_ERR_UNSUPPORTED, "%s: %s", path, missing);
    pl_file_writer *to = NULL;
    PL_TRY(pl_file_writer_new(path, &to));
    pl_png_job j = {.width = width,
                    .height = height,
                    .channels = channels,
                    .row = row,
                    .put = put_file,
                    .from = from,
                    .to = to};
    pl_status rc = pl_png_encode(&j);
    if (rc == PL_OK) rc = pl_file_writer_commit(to);
    pl_file_writer_free(to);
    return rc;
}

pl_status pl_png_save(const char *path, int width, int height, int channels, const uint8_t *pixels)
{
    all_pixels from = {pixels, (size_t)width * (size_t)channels};
    return pl_png_save_rows(path, width, height, channels, row_of, &from);
}
