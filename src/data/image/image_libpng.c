/* image_libpng.c - PNG through libpng, where libspng's header is missing (Ubuntu 22.04).
 *
 * Pixels come out as those of image_png.c: 16 bits lose their lower byte, alpha and transparent
 * colours are dropped, grey becomes three equal channels. Chunks that are not pixels are limited to
 * 1 MiB. libpng reports errors by longjmp: each call that may fail is inside read_png or
 * pl_png_encode, which own the jmp_buf; variables that change after setjmp are volatile.
 */
#include "data/image/image_int.h"

#if !__has_include(<spng.h>) && __has_include(<png.h>)
# include "base/str.h"
# include "base/sys.h"
# include "data/image/png_write.h"

# include <png.h>
# include <pthread.h>
# include <string.h>

/* clang-format off */
# define FUNCTIONS(X) \
    X(png_create_read_struct) X(png_create_write_struct) X(png_create_info_struct) \
    X(png_destroy_read_struct) X(png_destroy_write_struct) X(png_set_longjmp_fn) X(png_error) \
    X(png_set_read_fn) X(png_set_write_fn) X(png_get_io_ptr) X(png_get_error_ptr) \
    X(png_set_user_limits) X(png_set_chunk_malloc_max) X(png_read_info) X(png_get_IHDR) \
    X(png_set_expand) X(png_set_strip_16) X(png_set_strip_alpha) X(png_set_gray_to_rgb) \
    X(png_set_interlace_handling) X(png_read_update_info) X(png_read_row) X(png_set_IHDR) \
    X(png_set_compression_level) X(png_write_info) X(png_get_rowbytes) X(png_write_row) X(png_write_end)
/* clang-format on */

static union {
    struct {
# define MEMBER(f) __typeof__(&f) f;
        FUNCTIONS(MEMBER)
# undef MEMBER
    };
    void *table[28];
} lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libpng16.so.16", "libpng16.so", NULL};
    static const char *const symbols[] = {
# define NAME(f) # f,
        FUNCTIONS(NAME)
# undef NAME
    };
    _Static_assert(sizeof symbols == sizeof lib, "as many names as places");
    here = pl_library_load(names, symbols, sizeof symbols / sizeof *symbols, lib.table);
}

static bool png_here(void)
{
    pthread_once(&once, load);
    return here;
}

/* Keeps the message of libpng's error, which is freed with the struct. */
typedef struct failure {
    char text[128];
} failure;

static PNG_NORETURN void on_error(png_structp png, png_const_charp text)
{
    failure *f = lib.png_get_error_ptr(png);
    snprintf(f->text, sizeof f->text, "%s", text);
    longjmp(*lib.png_set_longjmp_fn(png, longjmp, sizeof(jmp_buf)), 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

/* ---- reading ---------------------------------------------------------------------------- */

static const char early[] = "the PNG data end early";

typedef struct source {
    const uint8_t *at;
    size_t left;
} source;

static void take(png_structp png, png_bytep to, size_t n)
{
    source *s = lib.png_get_io_ptr(png);
    if (n > s->left) lib.png_error(png, early);
    memcpy(to, s->at, n);
    s->at += n;
    s->left -= n;
}

/* What read_png does after the header: all rows into pixels, or row after row to fn. The image must
 * have the size of info. */
typedef struct reading {
    const pl_image_info *info;
    uint8_t *pixels, *row;
    pl_image_row_fn fn;
    void *ctx;
    bool raw; /* samples of one channel as they are stored */
} reading;

static void read_header(png_structp png, png_infop head, pl_image_info *info)
{
    static const char *const colours[7] = {"grey",       "?", "RGB", "palette",
                                           "grey+alpha", "?", "RGBA"};
    png_uint_32 w = 0, h = 0;
    int bits = 0, colour = 0, interlace = 0;
    lib.png_read_info(png, head);
    lib.png_get_IHDR(png, head, &w, &h, &bits, &colour, &interlace, NULL, NULL);
    info->width = (int)w;
    info->height = (int)h;
    info->bits = bits;
    info->by_rows = interlace == PNG_INTERLACE_NONE;
    info->colour = colour < 7 ? colours[colour] : "?";
}

static void read_pixels(png_structp png, png_infop head, const reading *r)
{
    const size_t w = (size_t)r->info->width;
    const size_t row_bytes = r->raw ? (w * (size_t)r->info->bits + 7) / 8 : w * 3;
    if (!r->raw) {
        lib.png_set_expand(png);
        lib.png_set_strip_16(png);
        lib.png_set_gray_to_rgb(png);
        lib.png_set_strip_alpha(png);
    }
    const int passes = lib.png_set_interlace_handling(png);
    lib.png_read_update_info(png, head);
    if (lib.png_get_rowbytes(png, head) != row_bytes) lib.png_error(png, "rows of another size");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < r->info->height; y++) {
            uint8_t *row = r->fn ? r->row : r->pixels + (size_t)y * row_bytes;
            lib.png_read_row(png, row, NULL);
            if (r->fn) r->fn(r->ctx, y, row);
        }
}

static pl_status read_png(const void *bytes, size_t n, const reading *r, pl_image_info *info)
{
    enum { CHUNK = 1 << 20, SIDE = 0x7fffffff };
    failure f = {{0}};
    source s = {bytes, n};
    png_structp png = lib.png_create_read_struct(PNG_LIBPNG_VER_STRING, &f, on_error, on_warning);
    png_infop head = png ? lib.png_create_info_struct(png) : NULL;
    if (!head) {
        lib.png_destroy_read_struct(&png, NULL, NULL);
        PL_FAIL(PL_ERR_MEMORY, "no memory for a PNG decoder");
    }
    volatile bool good = false;
    if (!setjmp(*lib.png_set_longjmp_fn(png, longjmp, sizeof(jmp_buf)))) {
        lib.png_set_read_fn(png, &s, take);
        lib.png_set_user_limits(png, SIDE, SIDE);
        lib.png_set_chunk_malloc_max(png, CHUNK);
        read_header(png, head, info);
        if (r) read_pixels(png, head, r);
        good = true;
    }
    lib.png_destroy_read_struct(&png, &head, NULL);
    PL_FAIL_IF(!good, PL_ERR_DATA, "%s%s", strcmp(f.text, early) == 0 ? "" : "PNG: ", f.text);
    return PL_OK;
}

static pl_status png_probe(const void *bytes, size_t n, pl_image_info *info)
{
    return read_png(bytes, n, NULL, info);
}

static pl_status png_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    const reading r = {.info = info, .pixels = rgb};
    pl_image_info seen = *info;
    return read_png(bytes, n, &r, &seen);
}

static pl_status png_raw(const void *bytes, size_t n, const pl_image_info *info, uint8_t *raw)
{
    const reading r = {.info = info, .pixels = raw, .raw = true};
    pl_image_info seen = *info;
    return read_png(bytes, n, &r, &seen);
}

static pl_status png_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                          pl_image_row_fn fn, void *ctx)
{
    const reading r = {.info = info, .row = row, .fn = fn, .ctx = ctx};
    pl_image_info seen = *info;
    return read_png(bytes, n, &r, &seen);
}

const pl_image_codec pl__png_codec = {
    .here = png_here, .probe = png_probe, .decode = png_decode, .raw = png_raw, .rows = png_rows};

/* ---- writing ---------------------------------------------------------------------------- */

static const char failed_put[] = "the file cannot be written";

static void put(png_structp png, png_bytep bytes, size_t n)
{
    const pl_png_job *j = lib.png_get_io_ptr(png);
    if (!j->put(j->to, bytes, n)) lib.png_error(png, failed_put);
}

static void flush(png_structp png)
{
    (void)png;
}

pl_status pl_png_encode(const pl_png_job *job)
{
    static const int kind[] = {0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                               PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    failure f = {{0}};
    pl_png_job j = *job;
    PL_FAIL_IF(!png_here(), PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_PNG));
    png_structp png = lib.png_create_write_struct(PNG_LIBPNG_VER_STRING, &f, on_error, on_warning);
    png_infop head = png ? lib.png_create_info_struct(png) : NULL;
    if (!head) {
        lib.png_destroy_write_struct(&png, NULL);
        PL_FAIL(PL_ERR_MEMORY, "no memory for a PNG encoder");
    }
    volatile bool good = false;
    if (!setjmp(*lib.png_set_longjmp_fn(png, longjmp, sizeof(jmp_buf)))) {
        lib.png_set_write_fn(png, &j, put, flush);
        lib.png_set_compression_level(png, 1);
        lib.png_set_IHDR(png, head, (png_uint_32)j.width, (png_uint_32)j.height, 8,
                         kind[j.channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                         PNG_FILTER_TYPE_DEFAULT);
        lib.png_write_info(png, head);
        for (int y = 0; y < j.height; y++) lib.png_write_row(png, j.row(j.from, y));
        lib.png_write_end(png, head);
        good = true;
    }
    lib.png_destroy_write_struct(&png, &head);
    if (!good && strcmp(f.text, failed_put) == 0) return PL_ERR_IO; /* put has said why */
    PL_FAIL_IF(!good, PL_ERR_ARG, "PNG of %d x %d with %d channels: %s", j.width, j.height,
               j.channels, f.text);
    return PL_OK;
}

#endif
