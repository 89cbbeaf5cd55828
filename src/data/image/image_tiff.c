/* image_tiff.c - TIFF through libtiff: the first picture of a file, of any kind that libtiff turns
 * into RGB.
 *
 * libtiff reads through callbacks over the bytes in memory. Messages of libtiff, which it would
 * print, are dropped: the file is named by the caller.
 */
#include "data/image/image_int.h"

#if __has_include(<tiffio.h>)
# include "base/sys.h"

# include <pthread.h>
# include <string.h>
# include <tiffio.h>

typedef union tiff_table {
    struct {
        __typeof__(&TIFFClientOpen) open;
        __typeof__(&TIFFClose) close;
        __typeof__(&TIFFGetField) get;
        __typeof__(&TIFFSetField) set;
        __typeof__(&TIFFReadRGBAImageOriented) read;
        __typeof__(&TIFFSetErrorHandler) errors;
        __typeof__(&TIFFSetWarningHandler) warnings;
        __typeof__(&TIFFRGBAImageOK) can_read;
    };
    void *table[8];
} tiff_table;

static tiff_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libtiff.so.6", "libtiff.so.5", "libtiff.so", NULL};
    static const char *const symbols[] = {"TIFFClientOpen",
                                          "TIFFClose",
                                          "TIFFGetField",
                                          "TIFFSetField",
                                          "TIFFReadRGBAImageOriented",
                                          "TIFFSetErrorHandler",
                                          "TIFFSetWarningHandler",
                                          "TIFFRGBAImageOK"};
    here = pl_library_load(names, symbols, 8, lib.table);
    if (!here) return;
    lib.errors(NULL);
    lib.warnings(NULL);
}

static bool tiff_here(void)
{
    pthread_once(&once, load);
    return here;
}

/* ---- a file in memory ----------------------------------------------------------------------- */
typedef struct memory {
    const uint8_t *bytes;
    size_t n, at;
} memory;

static tmsize_t read_memory(thandle_t h, void *to, tmsize_t n)
{
    memory *m = h;
    size_t left = m->at < m->n ? m->n - m->at : 0, k = n > 0 ? (size_t)n : 0;
    if (k > left) k = left;
    if (k) memcpy(to, m->bytes + m->at, k);
    m->at += k;
    return (tmsize_t)k;
}

static tmsize_t write_memory(thandle_t h, void *from, tmsize_t n)
{
    (void)h, (void)from, (void)n;
    return 0;
}

static toff_t seek_memory(thandle_t h, toff_t to, int from)
{
    memory *m = h;
    size_t base = from == SEEK_SET ? 0 : from == SEEK_CUR ? m->at : m->n;
    m->at = base + (size_t)to; /* a place past the end reads nothing */
    return (toff_t)m->at;
}

static int close_memory(thandle_t h)
{
    (void)h;
    return 0;
}

static toff_t memory_size(thandle_t h)
{
    return ((const memory *)h)->n;
}

/* Without memory mapping ("m"): every read is checked against the bytes that there are. */
static pl_status open_tiff(memory *m, TIFF **out)
{
    *out = lib.open("a TIFF", "rm", m, read_memory, write_memory, seek_memory, close_memory,
                    memory_size, NULL, NULL);
    PL_FAIL_IF(!*out, PL_ERR_DATA, "the TIFF data end early or are corrupt");
    return PL_OK;
}

static pl_status read_header(TIFF *t, pl_image_info *info)
{
    char why[1024];
    uint32_t w = 0, h = 0;
    uint16_t bits = 1, samples = 1, kind = PHOTOMETRIC_RGB;
    PL_FAIL_IF(!lib.get(t, TIFFTAG_IMAGEWIDTH, &w) || !lib.get(t, TIFFTAG_IMAGELENGTH, &h) ||
                   w == 0 || h == 0 || w > INT32_MAX || h > INT32_MAX,
               PL_ERR_DATA, "the TIFF header has no size");
    PL_FAIL_IF(!lib.can_read(t, why), PL_ERR_DATA, "this kind of TIFF is not supported: %.200s",
               why);
    (void)lib.get(t, TIFFTAG_BITSPERSAMPLE, &bits);
    (void)lib.get(t, TIFFTAG_SAMPLESPERPIXEL, &samples);
    (void)lib.get(t, TIFFTAG_PHOTOMETRIC, &kind);
    info->width = (int)w;
    info->height = (int)h;
    info->bits = bits;
    info->colour = kind == PHOTOMETRIC_PALETTE     ? "palette"
                   : kind == PHOTOMETRIC_SEPARATED ? "CMYK"
                   : samples == 1                  ? "grey"
                   : samples == 2                  ? "grey+alpha"
                   : samples == 4                  ? "RGBA"
                                                   : "RGB";
    return PL_OK;
}

static pl_status tiff_probe(const void *bytes, size_t n, pl_image_info *info)
{
    memory m = {bytes, n, 0};
    TIFF *t;
    PL_TRY(open_tiff(&m, &t));
    pl_status rc = read_header(t, info);
    lib.close(t);
    return rc;
}

static pl_status tiff_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    memory m = {bytes, n, 0};
    TIFF *t;
    PL_TRY(open_tiff(&m, &t));
    pl_image_info now = {0};
    pl_status rc = read_header(t, &now);
    bool same = rc == PL_OK && now.width == info->width && now.height == info->height;
    /* Alpha of no declared kind is left apart; libtiff multiplies the colours by any other. */
    uint16_t extra = EXTRASAMPLE_UNSPECIFIED;
    bool alpha = strcmp(now.colour ? now.colour : "", "RGBA") == 0;
    if (same && alpha) (void)lib.set(t, TIFFTAG_EXTRASAMPLES, 1, &extra);
    bool ok = same && lib.read(t, (uint32_t)info->width, (uint32_t)info->height,
                               (uint32_t *)(void *)rgb, ORIENTATION_TOPLEFT, 1);
    lib.close(t);
    PL_TRY(rc);
    PL_FAIL_IF(!ok, PL_ERR_DATA, "the TIFF data end early or are corrupt");
    size_t pixels = (size_t)info->width * (size_t)info->height;
    for (size_t i = 0; i < pixels; i++) { /* 4 bytes a pixel become 3, in place */
        uint32_t px;
        memcpy(&px, rgb + 4 * i, 4);
        rgb[3 * i] = (uint8_t)TIFFGetR(px);
        rgb[3 * i + 1] = (uint8_t)TIFFGetG(px);
        rgb[3 * i + 2] = (uint8_t)TIFFGetB(px);
    }
    return PL_OK;
}

const pl_image_codec pl__tiff_codec = {
    .here = tiff_here, .probe = tiff_probe, .decode = tiff_decode};

#else
const pl_image_codec pl__tiff_codec = {.here = NULL};
#endif
