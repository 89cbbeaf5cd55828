/* image_bmp.c - BMP through stb_image, a library that is one header: the only decoder of BMP alone
 * that Debian and Ubuntu have. It is compiled into this file, for BMP and nothing else.
 *
 * stb_image decodes whole pictures. Rows of a BMP do not depend on each other, so a large picture
 * is given to it in strips: the header with another height, and then the rows of the strip.
 */
#include "data/image/image_int.h"

#if __has_include(<stb/stb_image.h>)
# include "base/sys.h"

# include <limits.h>
# include <math.h>
# include <string.h>

/* reported at the end of the file, for functions of other formats */
# pragma GCC diagnostic ignored "-Wunused-function"
# pragma GCC diagnostic push
# pragma GCC diagnostic ignored "-Wconversion"
# pragma GCC diagnostic ignored "-Wsign-conversion"
# pragma GCC diagnostic ignored "-Wshadow"
# pragma GCC diagnostic ignored "-Wcast-qual"
# pragma GCC diagnostic ignored "-Wmissing-prototypes"
# define STB_IMAGE_IMPLEMENTATION
# define STB_IMAGE_STATIC
# define STBI_ONLY_BMP
# define STBI_NO_STDIO
# define STBI_NO_THREAD_LOCALS
# define STBI_ASSERT(x) ((void)(x))
# include <stb/stb_image.h>
# pragma GCC diagnostic pop

static bool bmp_here(void)
{
    return true;
}

static uint32_t number(const uint8_t *at, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)at[i] << (8 * i);
    return v;
}

/* Bytes: of the rows of a strip; before the pixels, of a file that is read in strips. */
enum { STRIP = 1 << 18, MOST_HEAD = 1 << 16 };

/* stb_image fills missing rows of a file with zeros. Rows are padded to 4 bytes. */
static bool is_whole(const uint8_t *b, size_t n, const pl_image_info *info)
{
    if (n < 30) return false;
    uint64_t bits = number(b + (number(b + 14, 4) == 12 ? 24 : 28), 2);
    uint64_t row = ((uint64_t)info->width * bits + 31) / 32 * 4;
    return number(b + 10, 4) + row * (uint64_t)info->height <= n;
}

/* Bytes before the palette: file header, header, masks of colours. */
static uint64_t head_bytes(const uint8_t *b)
{
    uint64_t size = number(b + 14, 4);
    return 14 + size + (size == 40 && number(b + 30, 4) == 3 ? 12 : 0);
}

/* Whether the pixels begin behind the header, so that a strip behind the same header decodes as in
 * the whole file: stb_image reads on behind the header when the pixels begin inside it. */
static bool has_strips(const uint8_t *b, size_t n)
{
    uint64_t at = n < 34 ? 0 : number(b + 10, 4);
    return n >= 34 && at >= head_bytes(b) && at <= MOST_HEAD;
}

/* Every pixel must have a colour in the palette: stb_image takes other colours from memory that it
 * never wrote. In the oldest kind of header it counts four colours too few. */
static pl_status check_palette(const uint8_t *b, size_t n, const pl_image_info *info)
{
    bool old = n >= 34 && number(b + 14, 4) == 12;
    int bits = n >= 34 ? (int)number(b + (old ? 24 : 28), 2) : 0;
    if (bits != 1 && bits != 4 && bits != 8) return PL_OK;
    int64_t at = number(b + 10, 4), first = (int64_t)head_bytes(b);
    int64_t colours = old ? (at - 38) / 3 : (at - first) / 4;
    PL_FAIL_IF(at < first || colours < 1, PL_ERR_DATA, "the BMP file has no palette");
    if (colours >= 1 << bits) return PL_OK;
    size_t row = ((size_t)info->width * (size_t)bits + 31) / 32 * 4;
    for (int y = 0; y < info->height; y++)
        for (int x = 0; x < info->width; x++) {
            size_t bit = (size_t)x * (size_t)bits;
            unsigned byte = b[(size_t)at + (size_t)y * row + bit / 8];
            int colour = (int)(byte >> (8 - (size_t)bits - bit % 8)) & ((1 << bits) - 1);
            PL_FAIL_IF(colour >= colours, PL_ERR_DATA,
                       "a pixel has colour %d of a palette of %d: the BMP data are corrupt, or "
                       "their kind is not supported",
                       colour, (int)colours);
        }
    return PL_OK;
}

static pl_status bmp_probe(const void *bytes, size_t n, pl_image_info *info)
{
    int w = 0, h = 0, channels = 0;
    bool ok = n <= INT_MAX && stbi_info_from_memory(bytes, (int)n, &w, &h, &channels);
    if (ok && h > -INT_MAX && h < 0) h = -h; /* the first row comes first */
    PL_FAIL_IF(!ok || w < 1 || h < 1, PL_ERR_DATA,
               "the BMP header is corrupt, or its kind is not supported");
    info->width = w;
    info->height = h;
    info->by_rows = has_strips(bytes, n);
    info->heap_bytes = info->by_rows ? 0 : (int64_t)fmin(3.0 * w * h, 1e15);
    if (channels == 4) info->colour = "RGBA";
    return PL_OK;
}

/* ---- strips ------------------------------------------------------------------------------- */
/* Where the pixels of a whole file are. A strip has no gap between header and pixels: where colours
 * need no palette, some versions of stb_image skip such a gap twice. */
typedef struct layout {
    size_t at, head, row; /* bytes before the pixels: of the file, of a strip; bytes of a row */
    bool upwards;         /* the last row comes first */
} layout;

/* The height is the second of the two numbers behind the size of the header, of 2 bytes in the
 * oldest kind. Below 0 the first row comes first. */
static layout layout_of(const uint8_t *b, const pl_image_info *info)
{
    bool old = number(b + 14, 4) == 12;
    uint64_t bits = number(b + (old ? 24 : 28), 2);
    size_t at = number(b + 10, 4);
    return (layout){.at = at,
                    .head = bits < 16 ? at : (size_t)head_bytes(b),
                    .row = (size_t)(((uint64_t)info->width * bits + 31) / 32 * 4),
                    .upwards = old || (int32_t)number(b + 22, 4) > 0};
}

/* Decodes rows [y, y + h) through buf: the file up to its pixels, with another height, and the
 * rows. */
static pl_status pass_strip(const uint8_t *file, const layout *l, const pl_image_info *info, int y,
                            int h, uint8_t *buf, pl_image_row_fn fn, void *ctx)
{
    bool old = number(file + 14, 4) == 12;
    uint32_t height = l->upwards ? (uint32_t)h : 0u - (uint32_t)h;
    int w = 0, got = 0, channels = 0;
    size_t first = (size_t)(l->upwards ? info->height - y - h : y), rows = (size_t)h * l->row;
    memcpy(buf, file, l->head);
    for (int i = 0; i < 4; i++) buf[10 + i] = (uint8_t)(l->head >> (8 * i));
    for (int i = 0; i < (old ? 2 : 4); i++) buf[(old ? 20 : 22) + i] = (uint8_t)(height >> (8 * i));
    memcpy(buf + l->head, file + l->at + first * l->row, rows);
    uint8_t *px = stbi_load_from_memory(buf, (int)(l->head + rows), &w, &got, &channels, 3);
    PL_FAIL_IF(!px, PL_ERR_DATA, "the BMP data are corrupt");
    bool same = w == info->width && got == h;
    for (int k = 0; same && k < h; k++) fn(ctx, y + k, px + (size_t)k * (size_t)w * 3);
    stbi_image_free(px);
    PL_FAIL_IF(!same, PL_ERR_DATA, "the BMP header has two sizes");
    return PL_OK;
}

static pl_status bmp_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                          pl_image_row_fn fn, void *ctx)
{
    (void)row;
    PL_FAIL_IF(!is_whole(bytes, n, info), PL_ERR_DATA, "the BMP data end early");
    PL_TRY(check_palette(bytes, n, info));
    layout l = layout_of(bytes, info);
    PL_FAIL_IF(l.head < 26 || l.head > MOST_HEAD || l.at < l.head || l.row == 0, PL_ERR_DATA,
               "the BMP header is corrupt");
    int most = l.row > STRIP ? 1 : (int)(STRIP / l.row);
    uint8_t *buf = pl_sys_alloc(l.head + (size_t)most * l.row);
    pl_status rc = buf ? PL_OK : PL_ERR_MEMORY;
    for (int y = 0; rc == PL_OK && y < info->height; y += most) {
        int h = info->height - y < most ? info->height - y : most;
        rc = pass_strip(bytes, &l, info, y, h, buf, fn, ctx);
    }
    pl_sys_free(buf);
    return rc;
}

typedef struct pixels {
    uint8_t *rgb;
    size_t row;
} pixels;

static void keep_row(void *ctx, int y, const uint8_t *row)
{
    const pixels *to = ctx;
    memcpy(to->rgb + (size_t)y * to->row, row, to->row);
}

static pl_status bmp_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    int w = 0, h = 0, channels = 0;
    if (info->by_rows) {
        pixels to = {rgb, (size_t)info->width * 3};
        return bmp_rows(bytes, n, info, NULL, keep_row, &to);
    }
    PL_FAIL_IF(!is_whole(bytes, n, info), PL_ERR_DATA, "the BMP data end early");
    PL_TRY(check_palette(bytes, n, info));
    uint8_t *px = stbi_load_from_memory(bytes, (int)n, &w, &h, &channels, 3);
    PL_FAIL_IF(!px, PL_ERR_DATA, "the BMP data are corrupt");
    bool same = w == info->width && h == info->height;
    if (same) memcpy(rgb, px, (size_t)w * (size_t)h * 3);
    stbi_image_free(px);
    PL_FAIL_IF(!same, PL_ERR_DATA, "the BMP header has two sizes");
    return PL_OK;
}

const pl_image_codec pl__bmp_codec = {
    .here = bmp_here, .probe = bmp_probe, .decode = bmp_decode, .rows = bmp_rows};

#else
const pl_image_codec pl__bmp_codec = {.here = NULL};
#endif
