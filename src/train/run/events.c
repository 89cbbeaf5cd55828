/* events.c - writes TensorBoard event files; see plimsoll_events.h.
 *
 * A file is a sequence of records: length (8 bytes), masked CRC-32C of the length, an Event in the
 * protocol-buffer encoding, masked CRC-32C of the Event. The five messages that are needed have a
 * dozen fields together, so they are encoded by hand: a protocol-buffer library would be larger
 * than this file.
 */
#include "plimsoll_events.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"
#include "base/sys.h"
#include "data/image/image.h"
#include "data/image/png_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct pl_events {
    int fd;
    pl_str values, record, part; /* gathered Summary, the record, scratch of a value */
    pl_str png;
    pl_status image; /* the first failure to encode one since the last record */
    char path[4096];
};

/* ---- checksums -------------------------------------------------------------------------- */
/* TensorFlow's mask: a CRC of data that contain CRCs is weak, so stored CRCs are rotated and
 * offset.
 */
static uint32_t masked(const void *bytes, size_t n)
{
    uint32_t c = pl_crc(PL_CRC32C, bytes, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* ---- protocol buffers ------------------------------------------------------------------- */
enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(pl_str *s, uint64_t v)
{
    char out[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) out[n++] = (char)(v | 0x80);
    out[n++] = (char)v;
    pl_str_addn(s, out, n);
}

static void put_key(pl_str *s, unsigned field, enum wire w)
{
    put_varint(s, field << 3 | (unsigned)w);
}

static void put_int(pl_str *s, unsigned field, int64_t v)
{
    put_key(s, field, VARINT);
    put_varint(s, (uint64_t)v);
}

static void put_bytes(pl_str *s, unsigned field, const char *bytes, size_t n)
{
    put_key(s, field, BYTES);
    put_varint(s, n);
    pl_str_addn(s, bytes, n);
}

static void put_little(pl_str *s, uint64_t v, int n)
{
    char out[8];
    for (int i = 0; i < n; i++) out[i] = (char)(v >> (8 * i));
    pl_str_addn(s, out, (size_t)n);
}

static void put_double(pl_str *s, unsigned field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(s, field, FIXED64);
    put_little(s, bits, 8);
}

static void put_float(pl_str *s, unsigned field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(s, field, FIXED32);
    put_little(s, bits, 4);
}

/* Fields of the messages, as TensorFlow's event.proto and summary.proto number them. */
enum { EVENT_TIME = 1, EVENT_STEP, EVENT_VERSION, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SCALAR = 2, VALUE_IMAGE = 4 };
enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH, IMAGE_COLOURS, IMAGE_BYTES };
enum { SESSION_STATUS = 1, SESSION_START = 1 };

/* ---- records ---------------------------------------------------------------------------- */
static pl_status write_whole(pl_events *e, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t did = write(e->fd, bytes, n);
        if (did < 0 && errno == EINTR) continue;
        PL_FAIL_IF(did < 0, PL_ERR_IO, "cannot write %s: %s", e->path, strerror(errno));
        bytes += did;
        n -= (size_t)did;
    }
    return PL_OK;
}

/* Appends the record of one Event; body is its only field beside time and step. */
static pl_status write_event(pl_events *e, int64_t step, unsigned field, const char *body, size_t n)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    pl_str *r = &e->record;
    r->len = 0;
    put_little(r, 0, 8); /* length and its checksum, known below */
    put_little(r, 0, 4);
    put_double(r, EVENT_TIME, (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec);
    if (step) put_int(r, EVENT_STEP, step);
    put_bytes(r, field, body, n);
    PL_FAIL_IF(r->failed, PL_ERR_MEMORY, "out of memory for a record of %s", e->path);
    uint64_t len = r->len - 12;
    for (int i = 0; i < 8; i++) r->text[i] = (char)(len >> (8 * i));
    uint32_t c = masked(r->text, 8);
    for (int i = 0; i < 4; i++) r->text[8 + i] = (char)(c >> (8 * i));
    put_little(r, masked(r->text + 12, len), 4);
    PL_FAIL_IF(r->failed, PL_ERR_MEMORY, "out of memory for a record of %s", e->path);
    return write_whole(e, r->text, r->len);
}

static pl_status write_head(pl_events *e, int64_t from)
{
    static const char version[] = "brain.Event:2";
    PL_TRY(write_event(e, 0, EVENT_VERSION, version, sizeof version - 1));
    if (from <= 0) return PL_OK;
    const char start[] = {SESSION_STATUS << 3 | VARINT, SESSION_START};
    return write_event(e, from + 1, EVENT_SESSION, start, sizeof start);
}

static pl_status open_file(pl_events *e, const char *dir)
{
    struct timespec ts;
    char host[64] = "";
    clock_gettime(CLOCK_REALTIME, &ts);
    if (gethostname(host, sizeof host - 1) != 0) host[0] = 0;
    snprintf(e->path, sizeof e->path, "%s/events.out.tfevents.%010lld.%09ld.%s", dir,
             (long long)ts.tv_sec, ts.tv_nsec, host);
    e->fd = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    PL_FAIL_IF(e->fd < 0, PL_ERR_IO, "cannot write %s: %s", e->path, strerror(errno));
    return PL_OK;
}

pl_status pl_events_open(const char *dir, int64_t from, pl_events **out)
{
    *out = NULL;
    pl_events *e = pl_sys_alloc(sizeof *e);
    PL_FAIL_IF(!e, PL_ERR_MEMORY, "out of memory for the events of %s", dir);
    e->fd = -1;
    pl_status rc = open_file(e, dir);
    if (rc == PL_OK) rc = write_head(e, from);
    if (rc == PL_OK)
        *out = e;
    else
        pl_events_close(e);
    return rc;
}

pl_status pl_events_sync(pl_events *e)
{
    if (!e) return PL_OK;
    PL_FAIL_IF(fsync(e->fd) != 0, PL_ERR_IO, "cannot write %s: %s", e->path, strerror(errno));
    return PL_OK;
}

void pl_events_close(pl_events *e)
{
    if (!e) return;
    if (e->fd >= 0) close(e->fd);
    pl_str_release(&e->values);
    pl_str_release(&e->record);
    pl_str_release(&e->part);
    pl_str_release(&e->png);
    pl_sys_free(e);
}

void pl_events_scalar(pl_events *e, const char *tag, double value)
{
    if (!e) return;
    e->part.len = 0;
    put_bytes(&e->part, VALUE_TAG, tag, strlen(tag));
    put_float(&e->part, VALUE_SCALAR, (float)value);
    put_bytes(&e->values, SUMMARY_VALUE, e->part.text, e->part.len);
}

pl_status pl_events_write(pl_events *e, int64_t step)
{
    if (!e) return PL_OK;
    bool lost = e->values.failed || e->part.failed || e->png.failed;
    size_t n = e->values.len;
    e->values.len = 0;
    PL_FAIL_IF(lost, PL_ERR_MEMORY, "out of memory for the values of step %lld", (long long)step);
    if (n) PL_TRY(write_event(e, step, EVENT_SUMMARY, e->values.text, n));
    pl_status image = e->image;
    e->image = PL_OK;
    PL_FAIL_IF(image == PL_ERR_UNSUPPORTED, image, "images of step %lld: %s", (long long)step,
               pl_image_missing(PL_IMAGE_PNG));
    PL_FAIL_IF(image != PL_OK, image, "an image of step %lld cannot be encoded", (long long)step);
    return PL_OK;
}

/* ---- images ----------------------------------------------------------------------------- */
void pl_events_image(pl_events *e, const char *tag, int width, int height, int channels,
                     const uint8_t *pixels)
{
    if (!e || !pl_png_fits(width, height, channels)) return;
    pl_str *image = &e->record; /* free between records */
    e->part.len = image->len = e->png.len = 0;
    pl_status rc = pl_png_put(&e->png, width, height, channels, pixels);
    if (rc != PL_OK && e->image == PL_OK) e->image = rc;
    if (rc != PL_OK) return;
    put_int(image, IMAGE_HEIGHT, height);
    put_int(image, IMAGE_WIDTH, width);
    put_int(image, IMAGE_COLOURS, channels);
    put_bytes(image, IMAGE_BYTES, e->png.text, e->png.len);
    e->part.len = 0;
    put_bytes(&e->part, VALUE_TAG, tag, strlen(tag));
    put_bytes(&e->part, VALUE_IMAGE, image->text, image->len);
    put_bytes(&e->values, SUMMARY_VALUE, e->part.text, e->part.len);
}
