/* png_write.c - see png_write.h. libspng encodes (libpng where its header is missing:
 * image_libpng.c); the file arrives in pieces, so beside the growing text only the library's window
 * of some hundred kibibytes is held. Level 1 of zlib: a picture is written between two steps, and
 * training waits for it. */
#include "data/image/png_write.h"

#include "base/sys.h"
#include "data/image/image.h"
#include "plimsoll_events.h"

bool pl_png_fits(int width, int height, int channels)
{
    return width > 0 && height > 0 && channels > 0 && channels <= 4 &&
           (size_t)width * (size_t)channels * (size_t)height <= (size_t)1 << 30;
}

#if __has_include(<spng.h>)
# include "data/image/spng_table.h"

static int append(spng_ctx *c, void *out, void *bytes, size_t n)
{
    (void)c;
    pl_str_addn(out, bytes, n);
    return ((pl_str *)out)->failed ? SPNG_IO_ERROR : 0;
}

pl_status pl_png_put(pl_str *out, int width, int height, int channels, const uint8_t *pixels)
{
    static const uint8_t kind[] = {0, SPNG_COLOR_TYPE_GRAYSCALE, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA,
                                   SPNG_COLOR_TYPE_TRUECOLOR, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
    const pl_spng *lib = pl_spng_get();
    PL_FAIL_IF(!lib, PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_PNG));
    spng_ctx *c = lib->spng_ctx_new(SPNG_CTX_ENCODER);
    PL_FAIL_IF(!c, PL_ERR_MEMORY, "no memory for a PNG encoder");
    struct spng_ihdr head = {.width = (uint32_t)width,
                             .height = (uint32_t)height,
                             .bit_depth = 8,
                             .color_type = kind[channels]};
    size_t n = (size_t)width * (size_t)channels * (size_t)height;
    int rc = lib->spng_set_png_stream(c, append, out);
    if (rc == 0) rc = lib->spng_set_option(c, SPNG_IMG_COMPRESSION_LEVEL, 1);
    if (rc == 0) rc = lib->spng_set_ihdr(c, &head);
    if (rc == 0) rc = lib->spng_encode_image(c, pixels, n, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
    lib->spng_ctx_free(c);
    PL_FAIL_IF(out->failed || rc == SPNG_EMEM, PL_ERR_MEMORY, "out of memory for a PNG of %d x %d",
               width, height);
    PL_FAIL_IF(rc, PL_ERR_ARG, "PNG of %d x %d with %d channels: %s", width, height, channels,
               lib->spng_strerror(rc));
    return PL_OK;
}

#elif !__has_include(<png.h>) /* image_libpng.c otherwise */

pl_status pl_png_put(pl_str *out, int width, int height, int channels, const uint8_t *pixels)
{
    (void)out, (void)width, (void)height, (void)channels, (void)pixels;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_PNG));
}
#endif

pl_status pl_png_save(const char *path, int width, int height, int channels, const uint8_t *pixels)
{
    pl_str png = PL_STR_INIT;
    PL_FAIL_IF(!pl_png_fits(width, height, channels), PL_ERR_ARG,
               "%s: cannot write a picture of %d x %d with %d channels", path, width, height,
               channels);
    const char *missing = pl_image_missing(PL_IMAGE_PNG);
    PL_FAIL_IF(missing, PL_ERR_UNSUPPORTED, "%s: %s", path, missing);
    pl_status rc = pl_png_put(&png, width, height, channels, pixels);
    if (rc == PL_OK) rc = pl_sys_write_file(path, png.text, png.len);
    pl_str_release(&png);
    return rc;
}
