/* png_write.c - see png_write.h. Chunks IHDR, IDAT, IEND; in IDAT one zlib stream of stored blocks,
 * each row with filter 0 before it. */
#include "data/image/png_write.h"

#include "base/hash.h"
#include "base/sys.h"
#include "plimsoll_events.h"

enum { BLOCK = 65535 }; /* bytes of a stored block, at most */

static void put32(pl_str *s, uint32_t v)
{
    const char out[4] = {(char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v};
    pl_str_addn(s, out, 4);
}

/* Returns where the part that the checksum covers begins. */
static size_t open_chunk(pl_str *s, const char *name, size_t bytes)
{
    put32(s, (uint32_t)bytes);
    size_t at = s->len;
    pl_str_addn(s, name, 4);
    return at;
}

static void close_chunk(pl_str *s, size_t at)
{
    if (!s->failed) put32(s, pl_crc(PL_CRC32, s->text + at, s->len - at));
}

/* The zlib stream while it is written: rows arrive in pieces, blocks begin where they are full. */
typedef struct stream {
    pl_str *out;
    size_t left, room;  /* bytes that are to come; that the open block still takes */
    uint32_t low, high; /* Adler's two sums */
} stream;

static void open_block(stream *z)
{
    size_t n = z->left < BLOCK ? z->left : BLOCK;
    const char head[5] = {n == z->left, (char)n, (char)(n >> 8), (char)~n, (char)(~n >> 8)};
    pl_str_addn(z->out, head, 5);
    z->room = n;
}

static void put_bytes(stream *z, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        z->low = (z->low + bytes[i]) % 65521;
        z->high = (z->high + z->low) % 65521;
    }
    while (n > 0) {
        if (z->room == 0) open_block(z);
        size_t some = n < z->room ? n : z->room;
        pl_str_addn(z->out, (const char *)bytes, some);
        bytes += some;
        n -= some;
        z->room -= some;
        z->left -= some;
    }
}

bool pl_png_fits(int width, int height, int channels)
{
    return width > 0 && height > 0 && channels > 0 && channels <= 4 &&
           (size_t)width * (size_t)channels * (size_t)height <= (size_t)1 << 30;
}

void pl_png_put(pl_str *out, int width, int height, int channels, const uint8_t *pixels)
{
    static const char kind[] = {0, 0, 4, 2, 6}; /* grey, grey with alpha, RGB, RGBA */
    const char rest[5] = {8, kind[channels], 0, 0, 0};
    size_t row = (size_t)width * (size_t)channels, total = (row + 1) * (size_t)height;
    pl_str_addn(out, "\x89PNG\r\n\x1a\n", 8);
    size_t at = open_chunk(out, "IHDR", 13);
    put32(out, (uint32_t)width);
    put32(out, (uint32_t)height);
    pl_str_addn(out, rest, 5);
    close_chunk(out, at);
    at = open_chunk(out, "IDAT", total + 5 * ((total + BLOCK - 1) / BLOCK) + 6);
    pl_str_addn(out, "\x78\x01", 2);
    stream z = {.out = out, .left = total, .low = 1};
    for (int y = 0; y < height; y++) {
        put_bytes(&z, &(uint8_t){0}, 1);
        put_bytes(&z, pixels + (size_t)y * row, row);
    }
    put32(out, z.high << 16 | z.low);
    close_chunk(out, at);
    close_chunk(out, open_chunk(out, "IEND", 0));
}

pl_status pl_png_save(const char *path, int width, int height, int channels, const uint8_t *pixels)
{
    pl_str png = PL_STR_INIT;
    PL_FAIL_IF(!pl_png_fits(width, height, channels), PL_ERR_ARG,
               "%s: no picture of %d x %d with %d channels", path, width, height, channels);
    pl_png_put(&png, width, height, channels, pixels);
    pl_status rc = png.failed ? PL_ERR_MEMORY : pl_sys_write_file(path, png.text, png.len);
    pl_str_release(&png);
    return rc;
}
