/* image_bmp.c - BMP through stb_image, a library that is one header: the only decoder of BMP alone
 * that Debian and Ubuntu have. It is compiled into this file, for BMP and nothing else. */
#include "data/image/image_int.h"

#if __has_include(<stb/stb_image.h>)
# include <limits.h>
# include <string.h>

/* told at the end of the file, of functions for other formats */
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

/* stb_image reads the rows that a file lacks as zeros. Rows are padded to 4 bytes. */
static bool is_whole(const uint8_t *b, size_t n, const pl_image_info *info)
{
    if (n < 30) return false;
    uint64_t bits = number(b + (number(b + 14, 4) == 12 ? 24 : 28), 2);
    uint64_t row = ((uint64_t)info->width * bits + 31) / 32 * 4;
    return number(b + 10, 4) + row * (uint64_t)info->height <= n;
}

static pl_status bmp_probe(const void *bytes, size_t n, pl_image_info *info)
{
    int w = 0, h = 0, channels = 0;
    PL_FAIL_IF(n > INT_MAX || !stbi_info_from_memory(bytes, (int)n, &w, &h, &channels) || w < 1 ||
                   h < 1,
               PL_ERR_DATA, "the BMP header is corrupt, or its kind is not supported");
    info->width = w;
    info->height = h;
    if (channels == 4) info->colour = "RGBA";
    return PL_OK;
}

static pl_status bmp_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    int w = 0, h = 0, channels = 0;
    PL_FAIL_IF(!is_whole(bytes, n, info), PL_ERR_DATA, "the BMP data end early");
    uint8_t *px = stbi_load_from_memory(bytes, (int)n, &w, &h, &channels, 3);
    PL_FAIL_IF(!px, PL_ERR_DATA, "the BMP data are corrupt");
    bool same = w == info->width && h == info->height;
    if (same) memcpy(rgb, px, (size_t)w * (size_t)h * 3);
    stbi_image_free(px);
    PL_FAIL_IF(!same, PL_ERR_DATA, "the BMP header has two sizes");
    return PL_OK;
}

const pl_image_codec pl__bmp_codec = {.here = bmp_here, .probe = bmp_probe, .decode = bmp_decode};

#else
const pl_image_codec pl__bmp_codec = {.here = NULL};
#endif
