/* jpeg_round.c - JPEG artefacts: compresses and decompresses a picture in memory. */
#include "data/image/degrade.h"
#include "data/image/image.h"

#if __has_include(<turbojpeg.h>)
# include "base/sys.h"
# include "data/image/turbojpeg_table.h"

# include <math.h>

struct pl_jpeg_round {
    const pl_turbojpeg *lib;
    tjhandle in, out;
    uint8_t *rgb, *file;
    int w, h;
    unsigned long room;
};

/* Returns the library's own bound, without calling the library: whole blocks of 16 x 16, and a
 * header. */
static uint64_t bound(int w, int h)
{
    return (uint64_t)((w + 15) / 16 * 16) * (uint64_t)((h + 15) / 16 * 16) * 6 + 4096;
}

uint64_t pl_jpeg_round_bytes(int w, int h)
{
    return (uint64_t)w * (uint64_t)h * 3 + bound(w, h) + sizeof(pl_jpeg_round) + (1 << 18);
}

pl_status pl_jpeg_round_new(int w, int h, pl_jpeg_round **out)
{
    const pl_turbojpeg *lib = pl_turbojpeg_get();
    PL_FAIL_IF(!lib, PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_JPEG));
    pl_jpeg_round *j = pl_sys_alloc(sizeof *j);
    if (!j) return PL_ERR_MEMORY;
    *j = (pl_jpeg_round){.lib = lib, .w = w, .h = h, .room = (unsigned long)bound(w, h)};
    j->rgb = pl_sys_alloc((size_t)w * (size_t)h * 3);
    j->file = pl_sys_alloc(j->room);
    j->in = lib->tjInitCompress();
    j->out = lib->tjInitDecompress();
    if (!j->rgb || !j->file || !j->in || !j->out) {
        pl_jpeg_round_free(j);
        return PL_ERR_MEMORY;
    }
    *out = j;
    return PL_OK;
}

void pl_jpeg_round_free(pl_jpeg_round *j)
{
    if (!j) return;
    if (j->in) j->lib->tjDestroy(j->in);
    if (j->out) j->lib->tjDestroy(j->out);
    pl_sys_free(j->rgb);
    pl_sys_free(j->file);
    pl_sys_free(j);
}

pl_status pl_jpeg_round_run(pl_jpeg_round *j, float *px, int w, int h, int quality)
{
    size_t n = (size_t)w * (size_t)h * 3;
    unsigned long bytes = j->room;
    PL_FAIL_IF(w > j->w || h > j->h || j->lib->tjBufSize(w, h, TJSAMP_420) > j->room, PL_ERR_ARG,
               "%d x %d pixels; there is room for %d x %d", w, h, j->w, j->h);
    for (size_t i = 0; i < n; i++) j->rgb[i] = (uint8_t)lrintf(px[i] * 255);
    PL_FAIL_IF(j->lib->tjCompress2(j->in, j->rgb, w, 0, h, TJPF_RGB, &j->file, &bytes, TJSAMP_420,
                                   quality, TJFLAG_NOREALLOC) != 0,
               PL_ERR_DATA, "JPEG: %s", j->lib->tjGetErrorStr2(j->in));
    PL_FAIL_IF(j->lib->tjDecompress2(j->out, j->file, bytes, j->rgb, w, 0, h, TJPF_RGB, 0) != 0,
               PL_ERR_DATA, "JPEG: %s", j->lib->tjGetErrorStr2(j->out));
    for (size_t i = 0; i < n; i++) px[i] = (float)j->rgb[i] / 255;
    return PL_OK;
}

#else

uint64_t pl_jpeg_round_bytes(int w, int h)
{
    (void)w, (void)h;
    return 0;
}

pl_status pl_jpeg_round_new(int w, int h, pl_jpeg_round **out)
{
    (void)w, (void)h, (void)out;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_JPEG));
}

void pl_jpeg_round_free(pl_jpeg_round *j)
{
    (void)j;
}

pl_status pl_jpeg_round_run(pl_jpeg_round *j, float *px, int w, int h, int quality)
{
    (void)j, (void)px, (void)w, (void)h, (void)quality;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_JPEG));
}
#endif
