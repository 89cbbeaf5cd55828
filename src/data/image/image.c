/* image.c - see image.h: formats told apart, limits, and the way to each decoder. */
#include "data/image/image_int.h"

#include "base/sys.h"

#include <string.h>

const char *pl_image_format_name(pl_image_format f)
{
    static const char *const names[PL_IMAGE_FORMATS] = {"other", "JPEG", "PNG", "WebP"};
    return names[f];
}

const char *pl_image_missing(pl_image_format f)
{
    switch (f) {
    case PL_IMAGE_JPEG:
        return pl__jpeg_here()
                   ? NULL
                   : "libturbojpeg is not here (apt-get install libturbojpeg0-dev, then build again)";
    case PL_IMAGE_PNG:
        return pl__png_here()
                   ? NULL
                   : "libspng is not here (apt-get install libspng-dev or libpng-dev, then build again)";
    case PL_IMAGE_WEBP:
        return pl__webp_here()
                   ? NULL
                   : "libwebp is not here (apt-get install libwebp-dev, then build again)";
    default: return "only JPEG, PNG and WebP are read";
    }
}

pl_image_format pl_image_format_of(const void *bytes, size_t n)
{
    if (n >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0) return PL_IMAGE_JPEG;
    if (n >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0) return PL_IMAGE_PNG;
    if (n >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp((const char *)bytes + 8, "WEBP", 4) == 0)
        return PL_IMAGE_WEBP;
    return PL_IMAGE_OTHER;
}

pl_status pl_decoder_new(pl_decoder **out)
{
    *out = pl_sys_alloc(sizeof **out);
    return *out ? PL_OK : PL_ERR_MEMORY;
}

void pl_decoder_free(pl_decoder *d)
{
    if (d) pl__jpeg_close(d);
    pl_sys_free(d);
}

static pl_status check_limits(const pl_image_info *i, const pl_image_limits *l)
{
    int least = i->width < i->height ? i->width : i->height;
    int most = i->width > i->height ? i->width : i->height;
    PL_FAIL_IF(least < l->min_side, PL_ERR_DATA,
               "%d x %d pixels: a side is below data.min_side (%d)", i->width, i->height,
               l->min_side);
    PL_FAIL_IF((int64_t)i->width * i->height > l->max_pixels || most > l->max_side, PL_ERR_DATA,
               "%d x %d pixels: more than data.max_pixels (%lld) allows", i->width, i->height,
               (long long)l->max_pixels);
    return PL_OK;
}

static pl_status not_an_image(const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    PL_FAIL_IF(n == 0, PL_ERR_DATA, "the file is empty");
    PL_FAIL_IF(n < 12, PL_ERR_DATA, "%zu bytes: too short for an image", n);
    PL_FAIL(PL_ERR_DATA, "not a JPEG, PNG or WebP image (it begins with %02x %02x %02x %02x)", b[0],
            b[1], b[2], b[3]);
}

pl_status pl_image_probe(pl_decoder *d, const void *bytes, size_t n, const pl_image_limits *limits,
                         pl_image_info *info)
{
    *info = (pl_image_info){.format = pl_image_format_of(bytes, n), .colour = "RGB", .bits = 8};
    if (info->format == PL_IMAGE_OTHER || n < 12) return not_an_image(bytes, n);
    const char *missing = pl_image_missing(info->format);
    PL_FAIL_IF(missing, PL_ERR_UNSUPPORTED, "a %s image, and %s",
               pl_image_format_name(info->format), missing);
    PL_TRY(info->format == PL_IMAGE_JPEG  ? pl__jpeg_probe(d, bytes, n, info)
           : info->format == PL_IMAGE_PNG ? pl__png_probe(bytes, n, info)
                                          : pl__webp_probe(bytes, n, info));
    return check_limits(info, limits);
}

void pl_image_scaled(const pl_image_info *info, int min_w, int min_h, int *w, int *h)
{
    *w = info->width;
    *h = info->height;
    if (info->format == PL_IMAGE_JPEG && min_w > 0 && min_h > 0)
        pl__jpeg_scaled(info, min_w, min_h, w, h);
}

pl_status pl_image_decode(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                          int w, int h, uint8_t *rgb)
{
    switch (info->format) {
    case PL_IMAGE_JPEG: return pl__jpeg_decode(d, bytes, n, info, w, h, rgb);
    case PL_IMAGE_PNG: return pl__png_decode(bytes, n, info, rgb);
    case PL_IMAGE_WEBP: return pl__webp_decode(bytes, n, info, rgb);
    default: return not_an_image(bytes, n);
    }
}

pl_status pl_image_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                        pl_image_row_fn fn, void *ctx)
{
    PL_FAIL_IF(!info->by_rows, PL_ERR_ARG, "a %s image is not decoded by rows",
               pl_image_format_name(info->format));
    return pl__png_rows(bytes, n, info, row, fn, ctx);
}

/* ---- masks -------------------------------------------------------------------------------- */
/* Numbers of fewer than 8 bits lie side by side in a byte, the first in the highest bits. */
static void unpack(const uint8_t *raw, const pl_image_info *info, uint8_t *out)
{
    size_t stride = ((size_t)info->width * (size_t)info->bits + 7) / 8;
    for (int y = 0; y < info->height; y++)
        for (int x = 0; x < info->width; x++) {
            int bit = x * info->bits;
            int byte = raw[(size_t)y * stride + (size_t)(bit / 8)];
            out[(size_t)y * (size_t)info->width + (size_t)x] =
                (uint8_t)(byte >> (8 - info->bits - bit % 8) & ((1 << info->bits) - 1));
        }
}

pl_status pl_image_indices(const void *bytes, size_t n, const pl_image_info *info, uint8_t *out)
{
    size_t pixels = (size_t)info->width * (size_t)info->height;
    uint8_t *raw = out + pixels;
    bool single = strcmp(info->colour, "grey") == 0 || strcmp(info->colour, "palette") == 0;
    PL_FAIL_IF(info->format != PL_IMAGE_PNG, PL_ERR_DATA,
               "a %s file: masks are PNG files, because other formats change the numbers",
               pl_image_format_name(info->format));
    PL_FAIL_IF(info->bits > 8, PL_ERR_DATA, "%d bits a pixel: masks have at most 8", info->bits);
    if (single) {
        PL_TRY(pl__png_raw(bytes, n, info, raw));
        unpack(raw, info, out);
        return PL_OK;
    }
    PL_TRY(pl__png_decode(bytes, n, info, raw));
    for (size_t i = 0; i < pixels; i++) {
        const uint8_t *p = raw + 3 * i;
        PL_FAIL_IF(p[0] != p[1] || p[1] != p[2], PL_ERR_DATA,
                   "a colour (%d, %d, %d): masks have one number per pixel, a grey value or a "
                   "palette number",
                   p[0], p[1], p[2]);
        out[i] = p[0];
    }
    return PL_OK;
}
