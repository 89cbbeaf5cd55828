/* image_tiff.c - TIFF through libtiff: the first picture of a file, of any kind that libtiff turns
 * into RGB.
 *
 * A picture whose first row is its top row is read in bands: a strip, or a row of tiles. A writer
 * may put the whole picture into one strip: then all of it is one band.
 *
 * libtiff reads through callbacks over the bytes in memory. Messages of libtiff, which it would
 * print, are dropped: the file is named by the caller.
 */
#include "data/image/image_int.h"

#if __has_include(<tiffio.h>)
# include "base/sys.h"

# include <math.h>
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
        __typeof__(&TIFFReadRGBAStrip) strip;
        __typeof__(&TIFFReadRGBATile) tile;
        __typeof__(&TIFFIsTiled) tiled;
        __typeof__(&TIFFStripSize64) strip_size;
        __typeof__(&TIFFTileSize64) tile_size;
        __typeof__(&TIFFGetFieldDefaulted) get_or_default;
    };
    void *table[14];
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
                                          "TIFFRGBAImageOK",
                                          "TIFFReadRGBAStrip",
                                          "TIFFReadRGBATile",
                                          "TIFFIsTiled",
                                          "TIFFStripSize64",
                                          "TIFFTileSize64",
                                          "TIFFGetFieldDefaulted"};
    here = pl_library_load(names, symbols, 14, lib.table);
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

/* Size of the parts that libtiff reads: strips as wide as the picture, or tiles. */
static void part_size(TIFF *t, uint32_t w, uint32_t h, uint32_t *part_w, uint32_t *part_h)
{
    *part_w = w;
    *part_h = h;
    if (lib.tiled(t)) {
        (void)lib.get(t, TIFFTAG_TILEWIDTH, part_w);
        (void)lib.get(t, TIFFTAG_TILELENGTH, part_h);
        return;
    }
    (void)lib.get_or_default(t, TIFFTAG_ROWSPERSTRIP, part_h);
    if (*part_h > h) *part_h = h;
}

/* Sets by_rows and heap_bytes. A part is held as it is stored (the parts of all planes), as pixels
 * of 4 bytes, and, of tiles, as pixels of the whole band. */
static void plan_bands(TIFF *t, pl_image_info *info)
{
    uint32_t w, h;
    uint16_t turned = ORIENTATION_TOPLEFT, planes = 1, samples = 1;
    (void)lib.get_or_default(t, TIFFTAG_ORIENTATION, &turned);
    (void)lib.get_or_default(t, TIFFTAG_PLANARCONFIG, &planes);
    (void)lib.get_or_default(t, TIFFTAG_SAMPLESPERPIXEL, &samples);
    part_size(t, (uint32_t)info->width, (uint32_t)info->height, &w, &h);
    double stored = (double)(lib.tiled(t) ? lib.tile_size(t) : lib.strip_size(t));
    if (planes == PLANARCONFIG_SEPARATE) stored *= samples;
    double pixels = 4.0 * h * (lib.tiled(t) ? (double)w + info->width : (double)w);
    info->by_rows = turned == ORIENTATION_TOPLEFT && w > 0 && h > 0;
    info->heap_bytes = (int64_t)fmin(2 * stored + (info->by_rows ? pixels : 0), 1e15);
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
    plan_bands(t, info);
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

/* Opens a file whose size is known from probe. */
static pl_status open_again(memory *m, const pl_image_info *info, TIFF **out)
{
    TIFF *t;
    PL_TRY(open_tiff(m, &t));
    pl_image_info now = {0};
    pl_status rc = read_header(t, &now);
    bool same = rc == PL_OK && now.width == info->width && now.height == info->height &&
                now.by_rows == info->by_rows;
    if (rc == PL_OK && !same)
        rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "the TIFF header has two sizes");
    if (rc != PL_OK) {
        lib.close(t);
        return rc;
    }
    /* Alpha of no declared kind is left apart; libtiff multiplies the colours by any other. */
    uint16_t extra = EXTRASAMPLE_UNSPECIFIED;
    if (strcmp(now.colour, "RGBA") == 0) (void)lib.set(t, TIFFTAG_EXTRASAMPLES, 1, &extra);
    *out = t;
    return PL_OK;
}

/* n pixels of 4 bytes become 3 bytes; to may be the bytes of px. */
static void drop_alpha(const uint32_t *px, size_t n, uint8_t *to)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t p;
        memcpy(&p, (const uint8_t *)px + 4 * i, 4);
        to[3 * i] = (uint8_t)TIFFGetR(p);
        to[3 * i + 1] = (uint8_t)TIFFGetG(p);
        to[3 * i + 2] = (uint8_t)TIFFGetB(p);
    }
}

static pl_status tiff_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    memory m = {bytes, n, 0};
    TIFF *t;
    PL_TRY(open_again(&m, info, &t));
    bool ok = lib.read(t, (uint32_t)info->width, (uint32_t)info->height, (uint32_t *)(void *)rgb,
                       ORIENTATION_TOPLEFT, 1);
    lib.close(t);
    PL_FAIL_IF(!ok, PL_ERR_DATA, "the TIFF data end early or are corrupt");
    drop_alpha((const uint32_t *)(void *)rgb, (size_t)info->width * (size_t)info->height, rgb);
    return PL_OK;
}

/* ---- bands -------------------------------------------------------------------------------- */
typedef struct bands {
    TIFF *t;
    uint32_t w, h;           /* of the picture */
    uint32_t part_w, part_h; /* of a strip or tile */
    uint32_t *part;          /* the lowest row first, as libtiff gives it */
    uint32_t *band;          /* the tiles of a band side by side; NULL: strips */
} bands;

static bool read_band(const bands *b, uint32_t y, uint32_t rows)
{
    if (!b->band) return lib.strip(b->t, y, b->part);
    for (uint32_t x = 0; x < b->w; x += b->part_w) {
        uint32_t columns = b->w - x < b->part_w ? b->w - x : b->part_w;
        if (!lib.tile(b->t, x, y, b->part)) return false;
        for (uint32_t k = 0; k < rows; k++)
            memcpy(b->band + (size_t)k * b->w + x,
                   b->part + (size_t)(b->part_h - 1 - k) * b->part_w, (size_t)columns * 4);
    }
    return true;
}
/* Returns row k of a band of so many rows. A strip has the rows of the picture only; a tile always
 * has part_h rows, and read_band has put those in order. */
static const uint32_t *row_of(const bands *b, uint32_t k, uint32_t rows)
{
    return b->band ? b->band + (size_t)k * b->w : b->part + (size_t)(rows - 1 - k) * b->w;
}

static pl_status pass_bands(bands *b, uint8_t *row, pl_image_row_fn fn, void *ctx)
{
    bool tiled = lib.tiled(b->t);
    b->part = pl_sys_alloc((size_t)b->part_w * b->part_h * 4);
    b->band = tiled ? pl_sys_alloc((size_t)b->w * b->part_h * 4) : NULL;
    bool ok = b->part && (b->band || !tiled);
    pl_status rc = ok ? PL_OK : PL_ERR_MEMORY;
    for (uint32_t y = 0; ok && y < b->h; y += b->part_h) {
        uint32_t rows = b->h - y < b->part_h ? b->h - y : b->part_h;
        ok = read_band(b, y, rows);
        for (uint32_t k = 0; ok && k < rows; k++) {
            drop_alpha(row_of(b, k, rows), b->w, row);
            fn(ctx, (int)(y + k), row);
        }
    }
    pl_sys_free(b->part);
    pl_sys_free(b->band);
    if (rc == PL_OK && !ok)
        rc = pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "the TIFF data end early or are corrupt");
    return rc;
}

static pl_status tiff_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                           pl_image_row_fn fn, void *ctx)
{
    memory m = {bytes, n, 0};
    bands b = {.w = (uint32_t)info->width, .h = (uint32_t)info->height};
    PL_TRY(open_again(&m, info, &b.t));
    part_size(b.t, b.w, b.h, &b.part_w, &b.part_h);
    pl_status rc = pass_bands(&b, row, fn, ctx);
    lib.close(b.t);
    return rc;
}

const pl_image_codec pl__tiff_codec = {
    .here = tiff_here, .probe = tiff_probe, .decode = tiff_decode, .rows = tiff_rows};

#else
const pl_image_codec pl__tiff_codec = {.here = NULL};
#endif
