/* image_gif.c - GIF through giflib: still pictures, on a canvas whose background is the first
 * colour of the palette.
 *
 * Lines are decoded one after the other. An interlaced picture has them in another order: its
 * numbers, a byte a pixel, are collected first.
 */
#include "data/image/image_int.h"

#if __has_include(<gif_lib.h>)
# include "base/sys.h"

# include <gif_lib.h>
# include <pthread.h>
# include <string.h>

typedef union gif_table {
    struct {
        __typeof__(&DGifOpen) open;
        __typeof__(&DGifCloseFile) close;
        __typeof__(&DGifGetRecordType) record;
        __typeof__(&DGifGetImageDesc) picture;
        __typeof__(&DGifGetLine) line;
        __typeof__(&DGifGetExtension) extension;
        __typeof__(&DGifGetExtensionNext) more;
    };
    void *table[7];
} gif_table;

static gif_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libgif.so.7", "libgif.so", NULL};
    static const char *const symbols[] = {
        "DGifOpen",    "DGifCloseFile",    "DGifGetRecordType",    "DGifGetImageDesc",
        "DGifGetLine", "DGifGetExtension", "DGifGetExtensionNext",
    };
    here = pl_library_load(names, symbols, 7, lib.table);
}

static bool gif_here(void)
{
    pthread_once(&once, load);
    return here;
}

typedef struct memory {
    const uint8_t *bytes;
    size_t n, at;
} memory;

static int read_memory(GifFileType *f, GifByteType *to, int n)
{
    memory *m = f->UserData;
    size_t left = m->n - m->at, k = n > 0 && (size_t)n < left ? (size_t)n : n > 0 ? left : 0;
    memcpy(to, m->bytes + m->at, k);
    m->at += k;
    return (int)k;
}

static pl_status open_gif(memory *m, GifFileType **out)
{
    int error = 0;
    *out = lib.open(m, read_memory, &error);
    PL_FAIL_IF(!*out, PL_ERR_DATA, "GIF header: error %d", error);
    return PL_OK;
}

/* Reads the blocks of an extension. */
static bool skip_extension(GifFileType *f)
{
    int code;
    GifByteType *block;
    bool ok = lib.extension(f, &code, &block) == GIF_OK;
    while (ok && block) ok = lib.more(f, &block) == GIF_OK;
    return ok;
}

/* Reads up to the first picture and its description. */
static bool find_picture(GifFileType *f)
{
    GifRecordType type = EXTENSION_RECORD_TYPE;
    while (lib.record(f, &type) == GIF_OK && type == EXTENSION_RECORD_TYPE)
        if (!skip_extension(f)) return false;
    return type == IMAGE_DESC_RECORD_TYPE && lib.picture(f) == GIF_OK;
}

static pl_status gif_probe(const void *bytes, size_t n, pl_image_info *info)
{
    memory m = {bytes, n, 0};
    GifFileType *f;
    int error;
    PL_TRY(open_gif(&m, &f));
    info->width = f->SWidth;
    info->height = f->SHeight;
    info->colour = "palette";
    info->by_rows = true;
    if (find_picture(f) && f->Image.Interlace)
        info->heap_bytes = (int64_t)f->Image.Width * f->Image.Height;
    lib.close(f, &error);
    PL_FAIL_IF(info->width < 1 || info->height < 1, PL_ERR_DATA, "the GIF header has no size");
    return PL_OK;
}

/* ---- rows --------------------------------------------------------------------------------- */
/* A picture that is being read. */
typedef struct canvas {
    const pl_image_info *info;
    uint8_t *row; /* 3 bytes per pixel of the canvas */
    pl_image_row_fn fn;
    void *ctx;
    GifPixelType *numbers; /* a line, or all lines of an interlaced picture */
} canvas;

/* Writes one pixel by its number in the palette; a number past its end is black. */
static void put_colour(const ColorMapObject *map, int k, uint8_t *rgb)
{
    bool in = map && k < map->ColorCount;
    rgb[0] = in ? map->Colors[k].Red : 0;
    rgb[1] = in ? map->Colors[k].Green : 0;
    rgb[2] = in ? map->Colors[k].Blue : 0;
}

/* Passes rows [y, end) of the canvas on, where the picture is not: the background. */
static void pass_background(const GifFileType *f, const canvas *c, int y, int end)
{
    for (int x = 0; x < c->info->width; x++)
        put_colour(f->SColorMap, f->SBackGroundColor, c->row + 3 * x);
    for (; y < end; y++) c->fn(c->ctx, y, c->row);
}

/* Passes line y of the picture on, if it lies on the canvas. */
static void pass_line(const GifFileType *f, const canvas *c, int y, const GifPixelType *numbers)
{
    const GifImageDesc *d = &f->Image;
    const ColorMapObject *map = d->ColorMap ? d->ColorMap : f->SColorMap;
    if (d->Top + y >= c->info->height) return;
    for (int x = 0; x < c->info->width; x++) {
        int from = x - d->Left;
        bool in = from >= 0 && from < d->Width;
        put_colour(in ? map : f->SColorMap, in ? numbers[from] : f->SBackGroundColor,
                   c->row + 3 * x);
    }
    c->fn(c->ctx, d->Top + y, c->row);
}

/* Reads the lines of an interlaced picture to their places. */
static bool read_interlaced(GifFileType *f, const canvas *c)
{
    static const int first[4] = {0, 4, 2, 1}, step[4] = {8, 8, 4, 2};
    const GifImageDesc *d = &f->Image;
    for (int k = 0; k < 4; k++)
        for (int y = first[k]; y < d->Height; y += step[k])
            if (lib.line(f, c->numbers + (size_t)y * (size_t)d->Width, d->Width) != GIF_OK)
                return false;
    return true;
}

static bool pass_picture(GifFileType *f, const canvas *c)
{
    const GifImageDesc *d = &f->Image;
    int last = d->Top + d->Height;
    pass_background(f, c, 0, d->Top < c->info->height ? d->Top : c->info->height);
    if (d->Interlace && !read_interlaced(f, c)) return false;
    for (int y = 0; y < d->Height; y++) {
        GifPixelType *numbers = c->numbers + (d->Interlace ? (size_t)y * (size_t)d->Width : 0);
        if (!d->Interlace && lib.line(f, numbers, d->Width) != GIF_OK) return false;
        pass_line(f, c, y, numbers);
    }
    pass_background(f, c, last < c->info->height ? last : c->info->height, c->info->height);
    return true;
}

static pl_status read_picture(GifFileType *f, canvas *c)
{
    PL_FAIL_IF(lib.picture(f) != GIF_OK, PL_ERR_DATA, "the GIF data end early or are corrupt");
    const GifImageDesc *d = &f->Image;
    PL_FAIL_IF(
        d->Width < 1 || d->Height < 1 || d->Left < 0 || d->Top < 0 ||
            (d->Interlace && (int64_t)d->Width * d->Height > c->info->heap_bytes + (1 << 20)),
        PL_ERR_DATA, "the GIF data are corrupt: a frame of %d x %d pixels", d->Width, d->Height);
    c->numbers = pl_sys_alloc((size_t)d->Width * (d->Interlace ? (size_t)d->Height : 1));
    if (!c->numbers) return PL_ERR_MEMORY;
    bool ok = pass_picture(f, c);
    pl_sys_free(c->numbers);
    PL_FAIL_IF(!ok, PL_ERR_DATA, "the GIF data end early or are corrupt");
    return PL_OK;
}

/* Reads records up to the end of the file: one of them must be a picture. */
static pl_status read_records(GifFileType *f, canvas *c)
{
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    int pictures = 0;
    PL_FAIL_IF(f->SWidth != c->info->width || f->SHeight != c->info->height, PL_ERR_DATA,
               "the GIF header has two sizes");
    while (type != TERMINATE_RECORD_TYPE) {
        bool ok = lib.record(f, &type) == GIF_OK;
        if (ok && type == IMAGE_DESC_RECORD_TYPE) {
            PL_FAIL_IF(pictures++, PL_ERR_DATA, "an animated GIF: only still images are read");
            PL_TRY(read_picture(f, c));
        }
        if (ok && type == EXTENSION_RECORD_TYPE) ok = skip_extension(f);
        PL_FAIL_IF(!ok, PL_ERR_DATA, "the GIF data end early or are corrupt");
    }
    PL_FAIL_IF(!pictures, PL_ERR_DATA, "the GIF holds no picture");
    return PL_OK;
}

static pl_status gif_rows(const void *bytes, size_t n, const pl_image_info *info, uint8_t *row,
                          pl_image_row_fn fn, void *ctx)
{
    memory m = {bytes, n, 0};
    canvas c = {.info = info, .row = row, .fn = fn, .ctx = ctx};
    GifFileType *f;
    int error;
    PL_TRY(open_gif(&m, &f));
    pl_status rc = read_records(f, &c);
    lib.close(f, &error);
    return rc;
}

typedef struct whole {
    uint8_t *rgb;
    size_t stride;
} whole;

static void copy_row(void *ctx, int y, const uint8_t *row)
{
    const whole *w = ctx;
    memcpy(w->rgb + (size_t)y * w->stride, row, w->stride);
}

static pl_status gif_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    whole w = {rgb, (size_t)info->width * 3};
    uint8_t *row = pl_sys_alloc(w.stride);
    if (!row) return PL_ERR_MEMORY;
    pl_status rc = gif_rows(bytes, n, info, row, copy_row, &w);
    pl_sys_free(row);
    return rc;
}

const pl_image_codec pl__gif_codec = {
    .here = gif_here, .probe = gif_probe, .decode = gif_decode, .rows = gif_rows};

#else
const pl_image_codec pl__gif_codec = {.here = NULL};
#endif
