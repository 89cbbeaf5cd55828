/* image_webp.c - WebP through libwebp; still images, lossy or lossless. */
#include "data/image/image_int.h"

#if __has_include(<webp/decode.h>)
# include "base/sys.h"

# include <pthread.h>
# include <webp/decode.h>

typedef union webp_table {
    struct {
        __typeof__(&WebPGetFeaturesInternal) features;
        __typeof__(&WebPDecodeRGBInto) decode;
    };
    void *table[2];
} webp_table;

static webp_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libwebp.so.7", "libwebp.so.6", "libwebp.so", NULL};
    static const char *const symbols[] = {"WebPGetFeaturesInternal", "WebPDecodeRGBInto"};
    here = pl_library_load(names, symbols, 2, lib.table);
}

static bool webp_here(void)
{
    pthread_once(&once, load);
    return here;
}

static pl_status webp_probe(const void *bytes, size_t n, pl_image_info *info)
{
    WebPBitstreamFeatures f = {0};
    VP8StatusCode rc = lib.features(bytes, n, &f, WEBP_DECODER_ABI_VERSION);
    PL_FAIL_IF(rc == VP8_STATUS_NOT_ENOUGH_DATA, PL_ERR_DATA, "the WebP data end early");
    PL_FAIL_IF(rc != VP8_STATUS_OK, PL_ERR_DATA, "WebP header: error %d", (int)rc);
    PL_FAIL_IF(f.has_animation, PL_ERR_DATA, "an animated WebP: only still images are read");
    info->width = f.width;
    info->height = f.height;
    if (f.has_alpha) info->colour = "RGBA";
    return PL_OK;
}

static pl_status webp_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    size_t row = (size_t)info->width * 3;
    PL_FAIL_IF(!lib.decode(bytes, n, rgb, row * (size_t)info->height, (int)row), PL_ERR_DATA,
               "the WebP data end early or are corrupt");
    return PL_OK;
}

const pl_image_codec pl__webp_codec = {
    .here = webp_here, .probe = webp_probe, .decode = webp_decode};

#else
const pl_image_codec pl__webp_codec = {.here = NULL};
#endif
