/* image_jpeg.c - JPEG through libturbojpeg.
 *
 * The library's scaled transform gives 1/8 to 8/8 of the size; the smallest that is large enough is
 * chosen. A truncated file is an error here, though the library would fill it up with grey; so is a
 * file with corrupt data. Stray bytes between markers are harmless and common.
 */
#include "data/image/image_int.h"

#if __has_include(<turbojpeg.h>)
# include "base/sys.h"
# include "data/image/turbojpeg_table.h"

# include <pthread.h>
# include <string.h>

/* Limits progressive scans, which hostile files repeat without end; from libturbojpeg 2.1 on. */
# ifdef TJFLAG_LIMITSCANS
#  define LIMIT_SCANS TJFLAG_LIMITSCANS
# else
#  define LIMIT_SCANS 0
# endif

static union {
    pl_turbojpeg f;
    void *table[sizeof(pl_turbojpeg) / sizeof(void *)];
} lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char *const names[] = {"libturbojpeg.so.0", "libturbojpeg.so", NULL};
    static const char *const symbols[] = {
# define NAME(f) # f,
        PL_TURBOJPEG_FUNCTIONS(NAME)
# undef NAME
    };
    here = pl_library_load(names, symbols, sizeof symbols / sizeof *symbols, lib.table);
}

const pl_turbojpeg *pl_turbojpeg_get(void)
{
    pthread_once(&once, load);
    return here ? &lib.f : NULL;
}

bool pl__jpeg_here(void)
{
    return pl_turbojpeg_get() != NULL;
}

void pl__jpeg_close(pl_decoder *d)
{
    if (d->jpeg) lib.f.tjDestroy(d->jpeg);
    d->jpeg = NULL;
}

/* A failed header leaves the handle in the middle of a file: the next file gets a new handle. */
static pl_status give_up(pl_decoder *d, const char *what)
{
    const char *why = lib.f.tjGetErrorStr2(d->jpeg);
    pl_status rc = strstr(why, "remature end")
                       ? pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "the JPEG data end early")
                       : pl__fail(PL_ERR_DATA, __FILE__, __LINE__, "%s: %s", what, why);
    pl__jpeg_close(d);
    return rc;
}

/* Whether the picture comes in several scans, each of which changes all of it: progressive, or one
 * component after the other. The library then holds every coefficient. Walks the markers up to the
 * first scan. */
static bool in_scans(const uint8_t *b, size_t n)
{
    int components = 0;
    for (size_t at = 2; at + 10 <= n && b[at] == 0xff;) {
        int marker = b[at + 1];
        if (marker == 0xff) { /* a fill byte */
            at++;
            continue;
        }
        if (marker == 0xc2 || marker == 0xc6 || marker == 0xca || marker == 0xce) return true;
        if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc)
            components = b[at + 9];
        if (marker == 0xda) return b[at + 4] < components;
        at += 2 + ((size_t)b[at + 2] << 8 | b[at + 3]);
    }
    return false;
}

/* Reads the header of a plain JPEG: one interleaved scan of a grey or a colour picture of 8 bits,
 * in a usual subsampling. Returns false for anything else, which the library reads. In a sandbox
 * this saves one of two requests for a picture. */
static bool plain_header(const uint8_t *b, size_t n, pl_image_info *info)
{
    int components = 0;
    for (size_t at = 2; at + 20 <= n && b[at] == 0xff;) {
        int marker = b[at + 1];
        size_t len = (size_t)b[at + 2] << 8 | b[at + 3];
        const uint8_t *f = b + at + 4;
        if (len < 2 || len > n - at - 2) return false;
        if (marker == 0xda) return components > 0 && f[0] == components;
        if (marker == 0xc0 || marker == 0xc1) {
            if (components || f[0] != 8 || (f[5] != 1 && f[5] != 3) || len != 8 + 3u * f[5])
                return false;
            components = f[5];
            int h = f[7] >> 4, v = f[7] & 15;
            bool usual = components == 1 ? h == 1 && v == 1
                                         : f[10] == 0x11 && f[13] == 0x11 &&
                                               ((h <= 2 && v <= 2 && h && v) || (h == 4 && v == 1));
            if (components == 1) info->colour = "grey";
            info->height = f[1] << 8 | f[2];
            info->width = f[3] << 8 | f[4];
            if (!usual || !info->height || !info->width) return false;
        } else if (marker != 0xdb && marker != 0xc4 && marker != 0xdd && marker != 0xfe &&
                   (marker & 0xf0) != 0xe0) {
            return false;
        }
        at += 2 + len;
    }
    return false;
}

bool pl__jpeg_plain(const void *bytes, size_t n, pl_image_info *info)
{
    pl_image_info i = *info;
    if (!pl__jpeg_here() || !plain_header(bytes, n, &i)) return false;
    *info = i;
    return true;
}

/* Bytes of all coefficients, 2 each; the two colours may be stored smaller. */
static int64_t coefficient_bytes(const pl_image_info *info, int sub)
{
    double colours = sub == TJSAMP_444                        ? 2
                     : sub == TJSAMP_422 || sub == TJSAMP_440 ? 1
                     : sub == TJSAMP_420 || sub == TJSAMP_411 ? 0.5
                     : sub == TJSAMP_GRAY                     ? 0
                                                              : 2;
    if (strcmp(info->colour, "CMYK") == 0) colours += 1;
    return (int64_t)(2 * (1 + colours) * info->width * info->height);
}

pl_status pl__jpeg_probe(pl_decoder *d, const void *bytes, size_t n, pl_image_info *info)
{
    int sub, space;
    if (!d->jpeg) d->jpeg = lib.f.tjInitDecompress();
    PL_FAIL_IF(!d->jpeg, PL_ERR_MEMORY, "no memory for a JPEG decoder");
    if (lib.f.tjDecompressHeader3(d->jpeg, bytes, (unsigned long)n, &info->width, &info->height,
                                  &sub, &space) != 0)
        return give_up(d, "JPEG header");
    info->colour = space == TJCS_GRAY                         ? "grey"
                   : space == TJCS_CMYK || space == TJCS_YCCK ? "CMYK"
                                                              : "RGB";
    if (in_scans(bytes, n)) info->heap_bytes = coefficient_bytes(info, sub);
    return PL_OK;
}

void pl__jpeg_scaled(const pl_image_info *info, int min_w, int min_h, int *w, int *h)
{
    for (int eighths = 1; eighths <= 8; eighths++) {
        tjscalingfactor f = {eighths, 8};
        *w = TJSCALED(info->width, f);
        *h = TJSCALED(info->height, f);
        if (*w >= min_w && *h >= min_h) return;
    }
}

/* Adobe's CMYK is stored inverted: full ink is 0. */
static void cmyk_to_rgb(uint8_t *px, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *c = px + 4 * i;
        uint8_t r = (uint8_t)((c[0] * c[3] + 127) / 255), g = (uint8_t)((c[1] * c[3] + 127) / 255),
                b = (uint8_t)((c[2] * c[3] + 127) / 255);
        px[3 * i] = r;
        px[3 * i + 1] = g;
        px[3 * i + 2] = b;
    }
}

pl_status pl__jpeg_decode(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                          int w, int h, uint8_t *rgb)
{
    bool cmyk = strcmp(info->colour, "CMYK") == 0;
    if (!d->jpeg) d->jpeg = lib.f.tjInitDecompress();
    PL_FAIL_IF(!d->jpeg, PL_ERR_MEMORY, "no memory for a JPEG decoder");
    int rc = lib.f.tjDecompress2(d->jpeg, bytes, (unsigned long)n, rgb, w, 0, h,
                                 cmyk ? TJPF_CMYK : TJPF_RGB, LIMIT_SCANS);
    bool harmless = rc != 0 && lib.f.tjGetErrorCode(d->jpeg) == TJERR_WARNING &&
                    strstr(lib.f.tjGetErrorStr2(d->jpeg), "extraneous");
    if (rc != 0 && !harmless) return give_up(d, "JPEG");
    if (cmyk) cmyk_to_rgb(rgb, (int64_t)w * h);
    return PL_OK;
}

#else

bool pl__jpeg_here(void)
{
    return false;
}

void pl__jpeg_close(pl_decoder *d)
{
    (void)d;
}

bool pl__jpeg_plain(const void *bytes, size_t n, pl_image_info *info)
{
    (void)bytes, (void)n, (void)info;
    return false;
}

pl_status pl__jpeg_probe(pl_decoder *d, const void *bytes, size_t n, pl_image_info *info)
{
    (void)d, (void)bytes, (void)n, (void)info;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s", pl_image_missing(PL_IMAGE_JPEG));
}

void pl__jpeg_scaled(const pl_image_info *info, int min_w, int min_h, int *w, int *h)
{
    (void)info, (void)min_w, (void)min_h, (void)w, (void)h;
}

pl_status pl__jpeg_decode(pl_decoder *d, const void *bytes, size_t n, const pl_image_info *info,
                          int w, int h, uint8_t *rgb)
{
    (void)w, (void)h, (void)rgb;
    return pl__jpeg_probe(d, bytes, n, (pl_image_info *)(uintptr_t)info);
}
#endif
