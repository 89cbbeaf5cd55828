/* image_gif.c - GIF through giflib: still pictures, on a canvas whose background is the first
 * colour of the palette. */
#include "data/image/image_int.h"

#if __has_include(<gif_lib.h>)
# include "base/sys.h"

# include <gif_lib.h>
# include <pthread.h>
# include <string.h>

typedef union gif_table {
    struct {
        __typeof__(&DGifOpen) open;
        __typeof__(&DGifSlurp) slurp;
        __typeof__(&DGifCloseFile) close;
    };
    void *table[3];
} gif_table;

static gif_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libgif.so.7", "libgif.so", NULL};
    static const char *const symbols[] = {"DGifOpen", "DGifSlurp", "DGifCloseFile"};
    here = pl_library_load(names, symbols, 3, lib.table);
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

static pl_status gif_probe(const void *bytes, size_t n, pl_image_info *info)
{
    memory m = {bytes, n, 0};
    GifFileType *f;
    int error;
    PL_TRY(open_gif(&m, &f));
    info->width = f->SWidth;
    info->height = f->SHeight;
    info->colour = "palette";
    lib.close(f, &error);
    PL_FAIL_IF(info->width < 1 || info->height < 1, PL_ERR_DATA, "the GIF header has no size");
    return PL_OK;
}

/* Writes one pixel by its number in the palette; a number past its end is black. */
static void put_colour(const ColorMapObject *map, int k, uint8_t *rgb)
{
    bool in = map && k < map->ColorCount;
    rgb[0] = in ? map->Colors[k].Red : 0;
    rgb[1] = in ? map->Colors[k].Green : 0;
    rgb[2] = in ? map->Colors[k].Blue : 0;
}

/* DGifSlurp puts the rows of interlaced files in order. */
static void draw(const GifFileType *f, const pl_image_info *info, uint8_t *rgb)
{
    const SavedImage *s = &f->SavedImages[0];
    const GifImageDesc *d = &s->ImageDesc;
    const ColorMapObject *map = d->ColorMap ? d->ColorMap : f->SColorMap;
    size_t pixels = (size_t)info->width * (size_t)info->height;
    for (size_t i = 0; i < pixels; i++) put_colour(f->SColorMap, f->SBackGroundColor, rgb + 3 * i);
    for (int y = 0; y < d->Height; y++)
        for (int x = 0; x < d->Width; x++) {
            int to_x = d->Left + x, to_y = d->Top + y;
            if (to_x < 0 || to_y < 0 || to_x >= info->width || to_y >= info->height) continue;
            put_colour(map, s->RasterBits[(size_t)y * (size_t)d->Width + (size_t)x],
                       rgb + 3 * ((size_t)to_y * (size_t)info->width + (size_t)to_x));
        }
}

static pl_status decode(GifFileType *f, const pl_image_info *info, uint8_t *rgb)
{
    PL_FAIL_IF(lib.slurp(f) != GIF_OK, PL_ERR_DATA, "the GIF data end early or are corrupt");
    PL_FAIL_IF(f->ImageCount < 1 || !f->SavedImages[0].RasterBits, PL_ERR_DATA,
               "the GIF holds no picture");
    PL_FAIL_IF(f->ImageCount > 1, PL_ERR_DATA, "an animated GIF: only still images are read");
    PL_FAIL_IF(f->SWidth != info->width || f->SHeight != info->height, PL_ERR_DATA,
               "the GIF header has two sizes");
    draw(f, info, rgb);
    return PL_OK;
}

static pl_status gif_decode(const void *bytes, size_t n, const pl_image_info *info, uint8_t *rgb)
{
    memory m = {bytes, n, 0};
    GifFileType *f;
    int error;
    PL_TRY(open_gif(&m, &f));
    pl_status rc = decode(f, info, rgb);
    lib.close(f, &error);
    return rc;
}

const pl_image_codec pl__gif_codec = {.here = gif_here, .probe = gif_probe, .decode = gif_decode};

#else
const pl_image_codec pl__gif_codec = {.here = NULL};
#endif
