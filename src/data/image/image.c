/* image.c - see image.h: recognises formats, checks limits, and calls the decoder. */
#include "data/image/image_int.h"

#include "base/sys.h"

#include <stdio.h>
#include <string.h>

typedef struct format {
    const char *name, *library, *package;
    const pl_image_codec *codec;
} format;

/* JPEG has a decoder with a state and separate calls. */
static const pl_image_codec jpeg_codec = {.here = pl__jpeg_here};
static const format formats[PL_IMAGE_FORMATS] = {
    [PL_IMAGE_OTHER] = {.name = "other"},
    [PL_IMAGE_JPEG] = {"JPEG", "libturbojpeg", "libturbojpeg0-dev", &jpeg_codec},
    [PL_IMAGE_PNG] = {"PNG", "libspng", "libspng-dev or libpng-dev", &pl__png_codec},
    [PL_IMAGE_WEBP] = {"WebP", "libwebp", "libwebp-dev", &pl__webp_codec},
    [PL_IMAGE_BMP] = {"BMP", "stb_image", "libstb-dev", &pl__bmp_codec},
    [PL_IMAGE_TIFF] = {"TIFF", "libtiff", "libtiff-dev", &pl__tiff_codec},
    [PL_IMAGE_GIF] = {"GIF", "giflib", "libgif-dev", &pl__gif_codec},
};

const char *pl_image_format_name(pl_image_format f)
{
    return formats[f].name;
}

const char *pl_image_missing(pl_image_format f)
{
    static _Thread_local char text[128];
    if (f == PL_IMAGE_OTHER) return "only " PL_IMAGE_NAMES " are read";
    const pl_image_codec *c = formats[f].codec;
    if (c->here && c->here()) return NULL;
    snprintf(text, sizeof text, "%s is not installed (apt-get install %s, then build again)",
             formats[f].library, formats[f].package);
    return text;
}

static bool begins(const void *bytes, size_t n, const char *with, size_t m)
{
    return n >= m && memcmp(bytes, with, m) == 0;
}

pl_image_format pl_image_format_of(const void *bytes, size_t n)
{
    if (begins(bytes, n, "\xff\xd8\xff", 3)) return PL_IMAGE_JPEG;
    if (begins(bytes, n, "\x89PNG\r\n\x1a\n", 8)) return PL_IMAGE_PNG;
    if (n >= 12 && begins(bytes, n, "RIFF", 4) && begins((const char *)bytes + 8, 4, "WEBP", 4))
        return PL_IMAGE_WEBP;
    if (begins(bytes, n, "BM", 2)) return PL_IMAGE_BMP;
    if (begins(bytes, n, "II*\0", 4) || begins(bytes, n, "MM\0*", 4) ||
        begins(bytes, n, "II+\0", 4) || begins(bytes, n, "MM\0+", 4))
        return PL_IMAGE_TIFF;
    if (begins(bytes, n, "GIF87a", 6) || begins(bytes, n, "GIF89a", 6)) return PL_IMAGE_GIF;
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
    if (d) pl__box_free(d->box);
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
    PL_FAIL(PL_ERR_DATA, "not a " PL_IMAGE_NAMES " image (it begins with %02x %02x %02x %02x)",
            b[0], b[1], b[2], b[3]);
}

pl_status pl_image_probe(pl_decoder *d, const void *bytes, size_t n, const pl_image_limits *limits,
                         pl_image_info *info)
{
    *info = (pl_image_info){.format = pl_image_format_of(bytes, n), .colour = "RGB", .bits = 8};
    if (info->format == PL_IMAGE_JPEG && pl__jpeg_plain(bytes, n, info))
        return check_limits(info, limits);
    if (d->box) return pl__box_probe(d->box, bytes, n, limits, info);
    if (info->format == PL_IMAGE_OTHER || n < 12) return not_an_image(bytes, n);
    const char *missing = pl_image_missing(info->format);
    PL_FAIL_IF(missing, PL_ERR_UNSUPPORTED, "a %s image, and %s",
               pl_image_format_name(info->format), missing);
    PL_TRY(info->format == PL_IMAGE_JPEG ? pl__jpeg_probe(d, bytes, n, info)
                                         : formats[info->format].codec->probe(bytes, n, info));
    if (info->heap_bytes < 1 << 20) info->heap_bytes = 0;
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
    if (d->box) return pl__box_decode(d->box, bytes, n, info, w, h, rgb);
    if (info->format == PL_IMAGE_OTHER) return not_an_image(bytes, n);
    return info->format == PL_IMAGE_JPEG ? pl__jpeg_decode(d, bytes, n, info, w, h, rgb)
                                         : formats[info->format].codec->decode(bytes, n, info, rgb);
}

pl_status pl_image_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                        pl_image_row_fn fn, void *ctx)
{
    PL_FAIL_IF(!info->by_rows, PL_ERR_ARG, "a %s image is not decoded by rows",
               pl_image_format_name(info->format));
    return formats[info->format].codec->rows(bytes, n, info, row, fn, ctx);
}

static void give_row(void *ctx, int y, const uint8_t *row)
{
    pl_resizer_row(ctx, y, row);
}

pl_status pl_image_resized(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                           pl_filter f, pl_crop_box from, uint8_t *row, uint8_t *out, int w, int h,
                           void *work)
{
    pl_resizer z;
    if (d->box) return pl__box_resized(d->box, bytes, n, info, f, from, w, h);
    pl_resizer_init(&z, f, info->width, info->height, from, out, w, h, work);
    PL_TRY(pl_image_rows(bytes, n, info, row, give_row, &z));
    pl_resizer_finish(&z);
    return PL_OK;
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

pl_status pl_image_indices(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                           uint8_t *out)
{
    if (d->box) return pl__box_indices(d->box, bytes, n, info, out);
    size_t pixels = (size_t)info->width * (size_t)info->height;
    uint8_t *raw = out + pixels;
    bool single = strcmp(info->colour, "grey") == 0 || strcmp(info->colour, "palette") == 0;
    PL_FAIL_IF(info->format != PL_IMAGE_PNG, PL_ERR_DATA,
               "a %s file: masks are PNG files, because other formats change the numbers",
               pl_image_format_name(info->format));
    PL_FAIL_IF(info->bits > 8, PL_ERR_DATA, "%d bits per pixel: masks have at most 8", info->bits);
    if (single) {
        PL_TRY(pl__png_codec.raw(bytes, n, info, raw));
        unpack(raw, info, out);
        return PL_OK;
    }
    PL_TRY(pl__png_codec.decode(bytes, n, info, raw));
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
