/* images.c - see images.h. */
#include "tests/datasets/made_images.h"

#include "base/sys.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Fine detail, as a photograph has; -9 to 9. */
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
static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
    }
    return ~c;
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void put_chunk(uint8_t **at, const char *type, const uint8_t *data, size_t n)
{
    put32(*at, (uint32_t)n);
    memcpy(*at + 4, type, 4);
    if (n) memcpy(*at + 8, data, n);
    put32(*at + 8 + n, crc_of(*at + 4, n + 4));
    *at += n + 12;
}

/* zlib's format with stored blocks. */
static uint8_t *stored(const uint8_t *raw, size_t n, size_t *len)
{
    uint8_t *z = malloc(n + n / 65535 * 5 + 16), *p = z;
    uint32_t a = 1, b = 0;
    *p++ = 0x78;
    *p++ = 1;
    for (size_t at = 0; at < n || at == 0;) {
        size_t m = n - at < 65535 ? n - at : 65535;
        *p++ = at + m == n;
        *p++ = (uint8_t)m;
        *p++ = (uint8_t)(m >> 8);
        *p++ = (uint8_t)~m;
        *p++ = (uint8_t)(~m >> 8);
        memcpy(p, raw + at, m);
        p += m;
        at += m;
        if (m == 0) break;
    }
    for (size_t i = 0; i < n; i++) {
        a = (a + raw[i]) % 65521;
        b = (b + a) % 65521;
    }
    put32(p, b << 16 | a);
    *len = (size_t)(p + 4 - z);
    return z;
}

void image_png(const uint8_t *px, int w, int h, int colour, int bits, int say_w, int say_h,
               uint8_t **out, size_t *n)
{
    size_t ch = colour == 0 ? 1 : colour == 2 ? 3 : 4, wide = bits / 8, row = (size_t)w * ch;
    size_t raw_n = (size_t)h * (row * wide + 1), z_n;
    uint8_t *raw = malloc(raw_n), *p = raw;
    for (int y = 0; y < h; y++) {
        *p++ = 0;
        for (size_t i = 0; i < row; i++)
            for (size_t k = 0; k < wide; k++) *p++ = px[(size_t)y * row + i];
    }
    uint8_t *z = stored(raw, raw_n, &z_n), head[13] = {0};
    *out = p = malloc(z_n + 128);
    memcpy(p, "\x89PNG\r\n\x1a\n", 8);
    p += 8;
    put32(head, (uint32_t)say_w);
    put32(head + 4, (uint32_t)say_h);
    head[8] = (uint8_t)bits;
    head[9] = (uint8_t)colour;
    put_chunk(&p, "IHDR", head, 13);
    put_chunk(&p, "IDAT", z, z_n);
    put_chunk(&p, "IEND", NULL, 0);
    *n = (size_t)(p - *out);
    free(raw);
    free(z);
}

/* `n` zeros as a zlib stream of n / 158 bytes: one literal, then copies of 258 bytes from one back,
 * each the 13 bits 11000101 00000 of the fixed code. */
static uint8_t *zeros_packed(size_t n, size_t *len)
{
    size_t copies = (n - 1) / 258;
    uint8_t *z = calloc(copies * 13 / 8 + 32, 1), *p = z + 2;
    uint64_t at = 0;
    z[0] = 0x78;
    z[1] = 0x9c;
#define BIT(b) (p[at / 8] |= (uint8_t)((b) << at % 8), at++)
    BIT(1), BIT(1), BIT(0);                          /* the last block, fixed codes */
    for (int i = 7; i >= 0; i--) BIT(0x30 >> i & 1); /* literal 0 */
    for (size_t k = 0; k < copies; k++)
        for (int i = 12; i >= 0; i--) BIT(0xC5 << 5 >> i & 1);
    for (int i = 0; i < 7; i++) BIT(0); /* end */
#undef BIT
    n = copies * 258 + 1;
    p += (at + 7) / 8;
    put32(p, (uint32_t)(n % 65521) << 16 | 1);
    *len = (size_t)(p + 4 - z);
    return z;
}

void image_png_zeros(int w, int h, size_t zeros, bool in_profile, uint8_t **out, size_t *n)
{
    uint8_t *p, head[13] = {0}, small[200] = {0}, *fine;
    size_t z_n, fine_n;
    uint8_t *z = zeros_packed(zeros, &z_n);
    fine = stored(small, sizeof small, &fine_n);
    *out = p = malloc(z_n + fine_n + 256);
    memcpy(p, "\x89PNG\r\n\x1a\n", 8);
    p += 8;
    put32(head, (uint32_t)w);
    put32(head + 4, (uint32_t)h);
    head[8] = 8;
    head[9] = 2;
    put_chunk(&p, "IHDR", head, 13);
    if (in_profile) {
        uint8_t *profile = malloc(z_n + 8);
        memcpy(profile, "name\0\0", 6);
        memcpy(profile + 6, z, z_n);
        put_chunk(&p, "iCCP", profile, z_n + 6);
        free(profile);
    }
    put_chunk(&p, "IDAT", in_profile ? fine : z, in_profile ? fine_n : z_n);
    put_chunk(&p, "IEND", NULL, 0);
    *n = (size_t)(p - *out);
    free(z);
    free(fine);
}

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
