/* image_png.c - PNG through libspng, which decodes into a buffer of the size in the header: excess
 * data are cut off. Chunks that are not pixels are limited to 1 MiB. */
#include "data/image/image_int.h"

#if __has_include(<spng.h>)
# include "base/sys.h"
# include "data/image/spng_table.h"

# include <pthread.h>

/* The functions of the library by name, and as pl_library_load fills them. */
static union {
    pl_spng f;
    void *table[sizeof(pl_spng) / sizeof(void *)];
} lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libspng.so.0", "libspng.so", NULL};
    static const char *const symbols[] = {
# define NAME(f) # f,
        PL_SPNG_FUNCTIONS(NAME)
# undef NAME
    };
    here = pl_library_load(names, symbols, sizeof symbols / sizeof *symbols, lib.table);
}

const pl_spng *pl_spng_get(void)
{
    pthread_once(&once, load);
    return here ? &lib.f : NULL;
}

static bool png_here(void)
{
    return pl_spng_get() != NULL;
}

static pl_status open_png(const void *bytes, size_t n, spng_ctx **out)
{
    enum { CHUNK = 1 << 20, SIDE = 0x7fffffff };
    *out = lib.f.spng_ctx_new(0);
    PL_FAIL_IF(!*out, PL_ERR_MEMORY, "no memory for a PNG decoder");
    lib.f.spng_set_image_limits(*out, SIDE, SIDE);
    lib.f.spng_set_chunk_limits(*out, CHUNK, 4 * CHUNK);
    lib.f.spng_set_png_buffer(*out, bytes, n);
    return PL_OK;
}

static pl_status png_probe(const void *bytes, size_t n, pl_image_info *info)
{
    static const char *const colours[7] = {"grey",       "?", "RGB", "palette",
                                           "grey+alpha", "?", "RGBA"};
    spng_ctx *c;
    struct spng_ihdr h = {0};
    PL_TRY(open_png(bytes, n, &c));
    int rc = lib.f.spng_get_ihdr(c, &h);
    lib.f.spng_ctx_free(c);
    PL_FAIL_IF(rc, PL_ERR_DATA, "PNG header: %s", lib.f.spng_strerror(rc));
    PL_FAIL_IF(h.width > 0x7fffffff || h.height > 0x7fffffff, PL_ERR_DATA,
               "a PNG of %u x %u pixels", h.width, h.height);
    info->width = (int)h.width;
    info->height = (int)h.height;
    info->bits = h.bit_depth;
    info->by_rows = h.interlace_method == SPNG_INTERLACE_NONE;
    info->colour = h.color_type < 7 ? colours[h.color_type] : "?";
    return PL_OK;
}

static pl_status ended(int rc)
{
    PL_FAIL_IF(rc == SPNG_IO_EOF, PL_ERR_DATA, "the PNG data end early");
    PL_FAIL_IF(rc, PL_ERR_DATA, "PNG: %s", lib.f.spng_strerror(rc));
    return PL_OK;
}

static pl_status png_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    spng_ctx *c;
    size_t room = (size_t)info->width * (size_t)info->height * 3, want = 0;
    PL_TRY(open_png(bytes, n, &c));
    int rc = lib.f.spng_decoded_image_size(c, SPNG_FMT_RGB8, &want);
    if (rc == 0)
        rc = want == room ? lib.f.spng_decode_image(c, rgb, room, SPNG_FMT_RGB8, 0) : SPNG_EBUFSIZ;
    lib.f.spng_ctx_free(c);
    return ended(rc);
}

static pl_status png_raw(const void *bytes, size_t n, const pl_image_info *info, uint8_t *raw)
{
    spng_ctx *c;
    size_t room = (size_t)info->width * (size_t)info->height * 3, want = 0;
    PL_TRY(open_png(bytes, n, &c));
    int rc = lib.f.spng_decoded_image_size(c, SPNG_FMT_PNG, &want);
    if (rc == 0)
        rc = want <= room ? lib.f.spng_decode_image(c, raw, want, SPNG_FMT_PNG, 0) : SPNG_EBUFSIZ;
    lib.f.spng_ctx_free(c);
    return ended(rc);
}

static pl_status png_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                          pl_image_row_fn fn, void *ctx)
{
    spng_ctx *c;
    size_t room = (size_t)info->width * 3, want = 0;
    PL_TRY(open_png(bytes, n, &c));
    int rc = lib.f.spng_decoded_image_size(c, SPNG_FMT_RGB8, &want);
    if (rc == 0 && want != room * (size_t)info->height) rc = SPNG_EBUFSIZ;
    if (rc == 0) rc = lib.f.spng_decode_image(c, NULL, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE);
    for (int y = 0; rc == 0 && y < info->height; y++) {
        rc = lib.f.spng_decode_row(c, row, room);
        if (rc == 0 || rc == SPNG_EOI) fn(ctx, y, row);
    }
    lib.f.spng_ctx_free(c);
    return ended(rc == SPNG_EOI ? 0 : rc);
}

const pl_image_codec pl__png_codec = {
    .here = png_here, .probe = png_probe, .decode = png_decode, .raw = png_raw, .rows = png_rows};

#elif !__has_include(<png.h>) /* image_libpng.c otherwise */
const pl_image_codec pl__png_codec = {.here = NULL};
#endif
