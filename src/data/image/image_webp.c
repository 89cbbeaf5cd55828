/* image_webp.c - WebP through libwebp; still images, lossy or lossless.
 *
 * The library writes a whole picture. Its incremental decoder, which takes a part of the file at a
 * time and says how many rows are done, writes it over address space whose pages are released as
 * soon as their rows were read: a large picture takes a few megabytes. A lossless one takes 4 bytes
 * per pixel inside the library.
 */
#include "data/image/image_int.h"

#if __has_include(<webp/decode.h>)
# include "base/sys.h"

# include <pthread.h>
# include <sys/mman.h>
# include <webp/decode.h>

typedef union webp_table {
    struct {
        __typeof__(&WebPGetFeaturesInternal) features;
        __typeof__(&WebPDecodeRGBInto) decode;
        __typeof__(&WebPINewRGB) begin;
        __typeof__(&WebPIUpdate) update;
        __typeof__(&WebPIDecGetRGB) done;
        __typeof__(&WebPIDelete) end;
    };
    void *table[6];
} webp_table;

static webp_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libwebp.so.7", "libwebp.so.6", "libwebp.so", NULL};
    static const char *const symbols[] = {
        "WebPGetFeaturesInternal", "WebPDecodeRGBInto", "WebPINewRGB", "WebPIUpdate",
        "WebPIDecGetRGB",          "WebPIDelete"};
    here = pl_library_load(names, symbols, 6, lib.table);
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
    info->by_rows = true;
    /* A lossless picture, or the lossless alpha of a lossy one with the plane that it fills, stays
     * in the library; format 1 is lossy. */
    int64_t pixels = (int64_t)f.width * f.height;
    info->heap_bytes = f.format != 1 ? 4 * pixels : f.has_alpha ? 5 * pixels : 0;
    return PL_OK;
}

static pl_status webp_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    size_t row = (size_t)info->width * 3;
    PL_FAIL_IF(!lib.decode(bytes, n, rgb, row * (size_t)info->height, (int)row), PL_ERR_DATA,
               "the WebP data end early or are corrupt");
    return PL_OK;
}

/* Passes rows [from, to) on and releases the pages before them. */
static void pass_rows(uint8_t *rgb, size_t stride, int from, int to, pl_image_row_fn fn, void *ctx)
{
    enum { PAGE = 65536 }; /* a multiple of every page size */
    for (int y = from; y < to; y++) fn(ctx, y, rgb + (size_t)y * stride);
    size_t begin = (size_t)from * stride / PAGE * PAGE, end = (size_t)to * stride / PAGE * PAGE;
    if (end > begin) (void)madvise(rgb + begin, end - begin, MADV_DONTNEED);
}

static bool pass_parts(WebPIDecoder *d, const void *bytes, size_t n, const pl_image_info *info,
                       uint8_t *rgb, pl_image_row_fn fn, void *ctx)
{
    enum { PARTS = 256, LEAST = 8192 };
    size_t part = n / PARTS < LEAST ? LEAST : n / PARTS, given = 0;
    int done = 0;
    while (done < info->height && given < n) {
        given = n - given < part ? n : given + part;
        VP8StatusCode rc = lib.update(d, bytes, given);
        int rows = 0;
        if (rc != VP8_STATUS_OK && rc != VP8_STATUS_SUSPENDED) return false;
        if (!lib.done(d, &rows, NULL, NULL, NULL) || rows <= done) continue;
        if (rows > info->height) return false;
        pass_rows(rgb, (size_t)info->width * 3, done, rows, fn, ctx);
        done = rows;
    }
    return done == info->height;
}

static pl_status webp_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                           pl_image_row_fn fn, void *ctx)
{
    size_t stride = (size_t)info->width * 3, all = stride * (size_t)info->height;
    void *rgb;
    (void)row;
    PL_TRY(pl_sys_map(all, &rgb));
    (void)madvise(rgb, all, MADV_NOHUGEPAGE); /* pages must come and go one by one */
    WebPIDecoder *d = lib.begin(MODE_RGB, rgb, all, (int)stride);
    bool ok = d && pass_parts(d, bytes, n, info, rgb, fn, ctx);
    if (d) lib.end(d);
    pl_sys_unmap(rgb, all);
    PL_FAIL_IF(!d, PL_ERR_MEMORY, "no memory for a WebP decoder");
    PL_FAIL_IF(!ok, PL_ERR_DATA, "the WebP data end early or are corrupt");
    return PL_OK;
}

const pl_image_codec pl__webp_codec = {
    .here = webp_here, .probe = webp_probe, .decode = webp_decode, .rows = webp_rows};

#else
const pl_image_codec pl__webp_codec = {.here = NULL};
#endif
