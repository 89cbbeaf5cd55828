/* png_write.c - see png_write.h. Chunks IHDR, IDAT, IEND; in IDAT one zlib stream of stored blocks,
 * each row with filter 0 before it. */
#include "data/image/png_write.h"

#include "base/sys.h"

#include <string.h>

enum { BLOCK = 65535 };

typedef struct buffer {
    uint8_t *at;
    size_t n;
} buffer;

static void put(buffer *b, const void *bytes, size_t n)
{
    memcpy(b->at + b->n, bytes, n);
    b->n += n;
}

static void put32(buffer *b, uint32_t v)
{
    put(b, (const uint8_t[]){(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v},
        4);
}

/* The CRC of ISO 3309, a bit at a time over a nibble's table. */
static uint32_t crc32_of(const uint8_t *p, size_t n)
{
    uint32_t table[16], c = 0xffffffffu;
    for (uint32_t i = 0; i < 16; i++) {
        table[i] = i;
        for (int k = 0; k < 4; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
    }
    for (size_t i = 0; i < n; i++) {
        c = table[(c ^ p[i]) & 15] ^ c >> 4;
        c = table[(c ^ (uint32_t)(p[i] >> 4)) & 15] ^ c >> 4;
    }
    return ~c;
}

/* Length first, as the chunk's bytes lie behind it; returns where they begin. */
static size_t open_chunk(buffer *b, const char *name)
{
    put32(b, 0);
    put(b, name, 4);
    return b->n;
}

static void close_chunk(buffer *b, size_t from)
{
    buffer length = {b->at + from - 8, 0};
    put32(&length, (uint32_t)(b->n - from));
    put32(b, crc32_of(b->at + from - 4, b->n - from + 4));
}

/* Byte i of the stream that is stored: rows with a 0 before each. */
static uint8_t raw_byte(const uint8_t *rgb, size_t row, size_t i)
{
    size_t y = i / (row + 1), x = i % (row + 1);
    return x ? rgb[y * row + x - 1] : 0;
}

static void put_stream(buffer *b, const uint8_t *rgb, size_t row, size_t total)
{
    uint32_t low = 1, high = 0;
    put(b, (const uint8_t[]){0x78, 0x01}, 2);
    for (size_t at = 0; at < total; at += BLOCK) {
        size_t n = total - at < BLOCK ? total - at : BLOCK;
        uint8_t head[5] = {at + n == total, (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n,
                           (uint8_t)(~n >> 8)};
        put(b, head, 5);
        for (size_t i = 0; i < n; i++) {
            uint8_t v = raw_byte(rgb, row, at + i);
            b->at[b->n++] = v;
            low = (low + v) % 65521;
            high = (high + low) % 65521;
        }
    }
    put32(b, high << 16 | low);
}

pl_status pl_png_write(const char *path, const uint8_t *rgb, int w, int h)
{
    PL_FAIL_IF(w < 1 || h < 1 || (int64_t)w * h > 1 << 28, PL_ERR_ARG,
               "%d x %d: no size of a picture", w, h);
    size_t row = 3 * (size_t)w, total = (row + 1) * (size_t)h;
    buffer b = {pl_sys_alloc(total + total / BLOCK * 5 + 256), 0};
    if (!b.at) return PL_ERR_MEMORY;
    put(&b, "\x89PNG\r\n\x1a\n", 8);
    size_t from = open_chunk(&b, "IHDR");
    put32(&b, (uint32_t)w);
    put32(&b, (uint32_t)h);
    put(&b, (const uint8_t[]){8, 2, 0, 0, 0}, 5);
    close_chunk(&b, from);
    from = open_chunk(&b, "IDAT");
    put_stream(&b, rgb, row, total);
    close_chunk(&b, from);
    close_chunk(&b, open_chunk(&b, "IEND"));
    pl_status rc = pl_sys_write_file(path, b.at, b.n);
    pl_sys_free(b.at);
    return rc;
}
