/* made_images.c - see made_images.h. */
#include "tests/datasets/made_images.h"

#include "base/hash.h"
#include "base/str.h"
#include "base/sys.h"
#include "data/image/png_write.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Fine detail, as in a photograph; -9 to 9. */
static double grain(int x, int y, int seed)
{
    uint32_t v =
        (uint32_t)x * 0x9E3779B1u ^ (uint32_t)y * 0x85EBCA77u ^ (uint32_t)seed * 0xC2B2AE3Du;
    v = (v ^ (v >> 15)) * 0x2C1B3C6Du;
    return (double)((v >> 16) % 19) - 9;
}

uint8_t *image_made(int w, int h, int seed)
{
    uint8_t *p = malloc((size_t)w * (size_t)h * 3);
    for (int y = 0; p && y < h; y++)
        for (int x = 0; x < w; x++)
            for (int c = 0; c < 3; c++) {
                double u = (double)x / w, v = (double)y / h;
                double s = sin(6 * u * (c + 1) + seed) + cos(5 * v * (3 - c) + 2 * seed) +
                           0.3 * sin(40 * u * v + seed);
                p[3 * ((size_t)y * (size_t)w + (size_t)x) + (size_t)c] =
                    (uint8_t)(127 + 45 * s + (w >= 256 ? grain(x, y, seed) : 0));
            }
    return p;
}

static void *symbol(const char *lib, const char *name)
{
    void *h = dlopen(lib, RTLD_NOW);
    return h ? dlsym(h, name) : NULL;
}

typedef int (*compress_fn)(void *, const unsigned char *, int, int, int, int, unsigned char **,
                           unsigned long *, int, int, int);

static bool encode_jpeg(const uint8_t *px, int w, int h, int format, uint8_t **out, size_t *n)
{
    static const char lib[] = "libturbojpeg.so.0";
    void *(*init)(void);
    compress_fn compress;
    int (*destroy)(void *);
    void *a = symbol(lib, "tjInitCompress"), *b = symbol(lib, "tjCompress2"),
         *c = symbol(lib, "tjDestroy");
    if (!a || !b || !c) return false;
    memcpy(&init, &a, sizeof init);
    memcpy(&compress, &b, sizeof compress);
    memcpy(&destroy, &c, sizeof destroy);
    void *t = init();
    unsigned long size = 0;
    *out = NULL;
    bool ok = t && compress(t, px, w, 0, h, format, out, &size, format == 0 ? 2 : 0, 90, 0) == 0;
    *n = size;
    if (t) destroy(t);
    return ok;
}

bool image_jpeg(const uint8_t *rgb, int w, int h, uint8_t **out, size_t *n)
{
    return encode_jpeg(rgb, w, h, 0, out, n);
}

bool image_jpeg_cmyk(const uint8_t *cmyk, int w, int h, uint8_t **out, size_t *n)
{
    enum { TJPF_CMYK = 11 };
    return encode_jpeg(cmyk, w, h, TJPF_CMYK, out, n);
}

bool image_webp(const uint8_t *rgb, int w, int h, uint8_t **out, size_t *n)
{
    size_t (*encode)(const uint8_t *, int, int, int, uint8_t **);
    void *a = symbol("libwebp.so.7", "WebPEncodeLosslessRGB");
    if (!a) return false;
    memcpy(&encode, &a, sizeof encode);
    *n = encode(rgb, w, h, 3 * w, out);
    return *n > 0;
}

/* ---- PNG ---------------------------------------------------------------------------------- */
static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Overwrites the size in the header, which begins at byte 12, and its checksum. */
static void say_size(uint8_t *png, int w, int h)
{
    put32(png + 16, (uint32_t)w);
    put32(png + 20, (uint32_t)h);
    put32(png + 29, pl_crc(PL_CRC32, png + 12, 17));
}

#if __has_include(<spng.h>)
# include "data/image/spng_table.h"

static int append(spng_ctx *c, void *out, void *bytes, size_t n)
{
    (void)c;
    pl_str_addn(out, bytes, n);
    return 0;
}

/* Encodes with libspng. profile: bytes of zeros in a colour profile. */
static bool encode_png(const uint8_t *px, size_t bytes, struct spng_ihdr head, size_t profile,
                       int say_w, int say_h, uint8_t **out, size_t *n)
{
    const pl_spng *lib = pl_spng_get();
    spng_ctx *c = lib ? lib->spng_ctx_new(SPNG_CTX_ENCODER) : NULL;
    pl_str file = PL_STR_INIT;
    struct spng_iccp zeros = {.profile_name = "zeros", .profile_len = profile};
    if (profile) zeros.profile = calloc(profile, 1);
    *out = NULL;
    bool ok = c && lib->spng_set_png_stream(c, append, &file) == 0 &&
              lib->spng_set_option(c, SPNG_FILTER_CHOICE, SPNG_DISABLE_FILTERING) == 0 &&
              lib->spng_set_ihdr(c, &head) == 0 &&
              (!profile || lib->spng_set_iccp(c, &zeros) == 0) &&
              lib->spng_encode_image(c, px, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE) == 0 &&
              !file.failed && (*out = malloc(file.len)) != NULL;
    if (ok) {
        memcpy(*out, file.text, *n = file.len);
        say_size(*out, say_w, say_h);
    }
    if (c) lib->spng_ctx_free(c);
    free(zeros.profile);
    pl_str_release(&file);
    return ok;
}

bool image_png(const uint8_t *px, int w, int h, int colour, int bits, int say_w, int say_h,
               uint8_t **out, size_t *n)
{
    size_t wide = (size_t)bits / 8, count = (size_t)w * (size_t)h *
                                            (colour == 0   ? 1
                                             : colour == 2 ? 3
                                                           : 4);
    uint8_t *raw = malloc(count * wide);
    for (size_t i = 0; i < count * wide; i++) raw[i] = px[i / wide];
    struct spng_ihdr head = {.width = (uint32_t)w,
                             .height = (uint32_t)h,
                             .bit_depth = (uint8_t)bits,
                             .color_type = (uint8_t)colour};
    bool ok = encode_png(raw, count * wide, head, 0, say_w, say_h, out, n);
    free(raw);
    return ok;
}

bool image_png_zeros(int w, int h, size_t zeros, bool in_profile, uint8_t **out, size_t *n)
{
    enum { WIDE = 4096, ROW = WIDE * 3 + 1 };
    struct spng_ihdr head = {.width = WIDE,
                             .height = (uint32_t)((zeros + ROW - 1) / ROW),
                             .bit_depth = 8,
                             .color_type = SPNG_COLOR_TYPE_TRUECOLOR};
    if (in_profile) head.width = head.height = 8;
    size_t bytes = (size_t)head.width * head.height * 3;
    uint8_t *px = calloc(bytes, 1);
    bool ok = encode_png(px, bytes, head, in_profile ? zeros : 0, w, h, out, n);
    free(px);
    return ok;
}

#else

/* Without libspng: pictures of 8 bits, through libpng where the build has it. */
bool image_png(const uint8_t *px, int w, int h, int colour, int bits, int say_w, int say_h,
               uint8_t **out, size_t *n)
{
    pl_str file = PL_STR_INIT;
    const int channels = colour == 0 ? 1 : colour == 2 ? 3 : 4;
    bool ok = bits == 8 && pl_png_put(&file, w, h, channels, px) == PL_OK;
    *out = ok ? malloc(file.len) : NULL;
    if (*out) {
        memcpy(*out, file.text, *n = file.len);
        say_size(*out, say_w, say_h);
    }
    pl_str_release(&file);
    return *out != NULL;
}

bool image_png_zeros(int w, int h, size_t zeros, bool in_profile, uint8_t **out, size_t *n)
{
    (void)w, (void)h, (void)zeros, (void)in_profile, (void)n;
    *out = NULL;
    return false;
}
#endif

size_t image_growth(void (*fn)(void *ctx), void *ctx)
{
    int fd[2];
    size_t growth = SIZE_MAX;
    if (pipe(fd) != 0) return growth;
    pid_t pid = fork();
    if (pid == 0) {
        size_t before = pl_sys_peak_rss_bytes();
        fn(ctx);
        size_t by = pl_sys_peak_rss_bytes() - before;
        _exit(write(fd[1], &by, sizeof by) == sizeof by ? 0 : 1);
    }
    close(fd[1]);
    if (pid > 0 && read(fd[0], &growth, sizeof growth) != sizeof growth) growth = SIZE_MAX;
    close(fd[0]);
    if (pid > 0) waitpid(pid, NULL, 0);
    return growth;
}

/* ---- files --------------------------------------------------------------------------------- */
bool image_write(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    return f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0;
}

bool image_folder(const char *dir, int n, int classes, int w, int h, int bad)
{
    char path[512];
    bool ok = true;
    mkdir(dir, 0777);
    for (int c = 0; c < classes; c++) {
        snprintf(path, sizeof path, "%s/class%d", dir, c);
        mkdir(path, 0777);
    }
    for (int i = 0; ok && i < n; i++) {
        uint8_t *rgb = image_made(w, h, i), *jpeg = NULL;
        size_t len = 0;
        ok = image_jpeg(rgb, w, h, &jpeg, &len);
        if (bad && i % bad == bad - 1) len -= len / 8;
        snprintf(path, sizeof path, "%s/class%d/%04d.jpg", dir, i % classes, i);
        ok = ok && image_write(path, jpeg, len);
        free(rgb);
        free(jpeg);
    }
    return ok;
}

void tar_member(uint8_t **tar, size_t *n, const char *name, char type, const void *bytes,
                size_t len)
{
    size_t body = (len + 511) / 512 * 512;
    *tar = realloc(*tar, *n + 512 + body);
    uint8_t *h = *tar + *n;
    memset(h, 0, 512 + body);
    snprintf((char *)h, 100, "%s", name);
    snprintf((char *)h + 100, 8, "0000644");
    snprintf((char *)h + 124, 12, "%011zo", len);
    snprintf((char *)h + 136, 12, "%011o", 0);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar", 6);
    memcpy(h + 263, "00", 2);
    memset(h + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    if (len) memcpy(h + 512, bytes, len);
    *n += 512 + body;
}

void tar_end(uint8_t **tar, size_t *n)
{
    *tar = realloc(*tar, *n + 1024);
    memset(*tar + *n, 0, 1024);
    *n += 1024;
}

pl_image_set_opts image_set_options(const char *path, int side)
{
    return (pl_image_set_opts){.items = {.path = path},
                               .limits = PL_IMAGE_LIMITS_INIT,
                               .augment = {.scale = {1, 1}},
                               .quarantine = "/dev/null",
                               .threads = 4,
                               .keep_bytes = 1 << 20,
                               .most_w = side,
                               .most_h = side};
}
