/* image_box.c - the decoders in a sandbox (sandbox.h): what image_int.h calls box.
 *
 * The bytes of the file, the pixels and the memory of a resize are shared, so a request is a few
 * numbers. Pixels that lie in the shared part of a ring of batches are decoded there: copying them
 * costs 5 to 7 % of decoding a JPEG. The format of a file is read here, from its first bytes,
 * because its library must be open before the sandbox starts; everything else that the file says
 * comes from the sandbox and is checked: a name of colours by a list, a size against the limits and
 * the room for pixels.
 */
#include "base/trust/sandbox.h"
#include "data/image/image_int.h"

#include "base/sys.h"

#include <string.h>
#ifdef __SSE2__
# include <emmintrin.h>
#endif

typedef enum box_call { CALL_PROBE, CALL_DECODE, CALL_INDICES, CALL_RESIZED } box_call;

/* An image without pointers: colour is an index of `colours`. */
typedef struct plain_info {
    int32_t format, width, height, bits, by_rows, colour;
    int64_t heap_bytes;
} plain_info;

static const char *const colours[] = {"RGB", "grey", "palette", "RGBA", "CMYK", "grey+alpha", "?"};
enum { COLOURS = sizeof colours / sizeof *colours };

typedef struct box_request {
    int32_t call;
    uint64_t n; /* bytes of the file */
    pl_image_limits limits;
    plain_info info;
    int32_t w, h, filter;
    uint64_t to; /* address of the pixels in the ring; 0: memory.pixels */
    pl_crop_box from;
} box_request;

struct pl_image_box {
    pl_decoder_memory m;
    pl_decoder_ring ring;
    pl_decoder decoder; /* of the sandbox */
    pl_sandbox *sandbox;
    uint32_t formats; /* a bit for each format whose library is open in the sandbox */
};

/* ---- in the sandbox --------------------------------------------------------------------- */
static plain_info plain_of(const pl_image_info *i)
{
    plain_info p = {.format = (int32_t)i->format,
                    .width = i->width,
                    .height = i->height,
                    .bits = i->bits,
                    .by_rows = i->by_rows,
                    .heap_bytes = i->heap_bytes,
                    .colour = COLOURS - 1};
    for (int k = 0; k < COLOURS; k++)
        if (strcmp(colours[k], i->colour) == 0) p.colour = k;
    return p;
}

static pl_image_info info_of(const plain_info *p)
{
    return (pl_image_info){.format = (pl_image_format)p->format,
                           .width = p->width,
                           .height = p->height,
                           .colour = colours[p->colour],
                           .bits = p->bits,
                           .by_rows = p->by_rows != 0,
                           .heap_bytes = p->heap_bytes};
}

static pl_status serve(void *state, void *request)
{
    struct pl_image_box *b = state;
    box_request *r = request;
    pl_image_info info = info_of(&r->info);
    size_t n = (size_t)r->n;
    if (r->call == CALL_DECODE)
        return pl_image_decode(&b->decoder, b->m.file, n, &info, r->w, r->h,
                               r->to ? (uint8_t *)(uintptr_t)r->to : b->m.pixels);
    if (r->call == CALL_INDICES)
        return pl_image_indices(&b->decoder, b->m.file, n, &info, b->m.pixels);
    if (r->call == CALL_RESIZED)
        return pl_image_resized(&b->decoder, b->m.file, n, &info, (pl_filter)r->filter, r->from,
                                b->m.pixels, b->m.resized, r->w, r->h, b->m.work);
    PL_TRY(pl_image_probe(&b->decoder, b->m.file, n, &r->limits, &info));
    r->info = plain_of(&info);
    return PL_OK;
}

/* ---- the caller ------------------------------------------------------------------------- */
/* A progressive JPEG holds 6 bytes a pixel, a TIFF 4. */
static uint64_t heap_of(const pl_decoder_memory *m)
{
    return ((uint64_t)64 << 20) + 2 * (uint64_t)m->pixel_bytes;
}

static pl_status start(struct pl_image_box *b)
{
    pl_sandbox_opts o = {.serve = serve,
                         .state = b,
                         .request_bytes = sizeof(box_request),
                         .memory_bytes = heap_of(&b->m)};
    return pl_sandbox_new(&o, &b->sandbox);
}

pl_status pl_decoder_apart(pl_decoder *d, const pl_decoder_memory *memory)
{
    d->box = pl_sys_alloc(sizeof *d->box);
    if (!d->box) return PL_ERR_MEMORY;
    d->box->m = *memory;
    for (int f = 0; f < PL_IMAGE_FORMATS; f++)
        if (memory->formats & 1u << f && !pl_image_missing((pl_image_format)f))
            d->box->formats |= 1u << f;
    return start(d->box);
}

void pl_decoder_use_ring(pl_decoder *d, const pl_decoder_ring *ring)
{
    if (!d->box) return;
    d->box->ring = *ring;
    if (d->box->sandbox) pl_sandbox_rest(d->box->sandbox);
}

int pl_decoder_pid(const pl_decoder *d)
{
    return d->box && d->box->sandbox ? pl_sandbox_pid(d->box->sandbox) : -1;
}

void pl__box_free(struct pl_image_box *b)
{
    if (b) pl_sandbox_free(b->sandbox);
    pl_sys_free(b);
}

/* Opens the library of a format that no file had so far, and starts the sandbox again, with it. */
static pl_status want_format(struct pl_image_box *b, size_t n)
{
    pl_image_format f = pl_image_format_of(b->m.file, n);
    if (f == PL_IMAGE_OTHER || b->formats & 1u << f || pl_image_missing(f)) return PL_OK;
    b->formats |= 1u << f;
    pl_sandbox_free(b->sandbox);
    b->sandbox = NULL;
    return start(b);
}

/* Fills the common part of a request. */
static pl_status begin(struct pl_image_box *b, box_call call, const void *bytes, size_t n,
                       const pl_image_info *info, box_request **out)
{
    if (bytes != b->m.file || n > b->m.file_bytes) PL_BUG("a file outside the sandbox's memory");
    if (!b->sandbox) PL_TRY(start(b));
    PL_TRY(want_format(b, n));
    box_request *r = pl_sandbox_request(b->sandbox);
    *r = (box_request){.call = call, .n = n};
    if (info) r->info = plain_of(info);
    *out = r;
    return PL_OK;
}

pl_status pl__box_probe(struct pl_image_box *b, const void *bytes, size_t n,
                        const pl_image_limits *limits, pl_image_info *info)
{
    box_request *r;
    *info = (pl_image_info){.colour = "RGB", .bits = 8};
    PL_TRY(begin(b, CALL_PROBE, bytes, n, NULL, &r));
    r->limits = *limits;
    r->info = plain_of(info);
    PL_TRY(pl_sandbox_run(b->sandbox));
    plain_info p = r->info; /* the sandbox may change its copy at any time */
    PL_FAIL_IF(p.format != (int32_t)pl_image_format_of(bytes, n) || p.colour < 0 ||
                   p.colour >= COLOURS || p.width < 1 || p.height < 1 || p.bits < 1 ||
                   p.bits > 64 || p.heap_bytes < 0,
               PL_ERR_DATA, "its decoder returned an impossible header");
    PL_FAIL_IF((int64_t)p.width * p.height > limits->max_pixels || p.width > limits->max_side ||
                   p.height > limits->max_side,
               PL_ERR_DATA, "its decoder returned a size that data.max_pixels does not allow");
    *info = info_of(&p);
    return PL_OK;
}

/* Copies a picture that is not read soon: past the caches, which the decoder needs. */
static void copy_past(uint8_t *to, const uint8_t *from, size_t n)
{
#ifdef __SSE2__
    size_t head = (16 - (uintptr_t)to % 16) % 16;
    head = head < n ? head : n;
    memcpy(to, from, head);
    for (; head + 16 <= n; head += 16)
        _mm_stream_si128((__m128i *)(void *)(to + head),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + head)));
    _mm_sfence();
    to += head;
    from += head;
    n -= head;
#endif
    memcpy(to, from, n);
}

/* Whether n bytes lie in the shared part of a buffer of the ring. */
static bool in_ring(const pl_decoder_ring *r, const uint8_t *to, size_t n)
{
    if (!r->pixels || to < r->at || to >= r->at + r->stride * (size_t)r->depth) return false;
    size_t in_buffer = (size_t)(to - r->at) % r->stride;
    return in_buffer + n <= r->pixels;
}

pl_status pl__box_decode(struct pl_image_box *b, const void *bytes, size_t n,
                         const pl_image_info *info, int w, int h, uint8_t *rgb)
{
    box_request *r;
    if ((size_t)w * (size_t)h * 4 > b->m.pixel_bytes) PL_BUG("no room for %d x %d pixels", w, h);
    PL_TRY(begin(b, CALL_DECODE, bytes, n, info, &r));
    r->w = w;
    r->h = h;
    bool there = in_ring(&b->ring, rgb, (size_t)w * (size_t)h * 3);
    if (there) r->to = (uintptr_t)rgb;
    PL_TRY(pl_sandbox_run(b->sandbox));
    if (!there && rgb != b->m.pixels) copy_past(rgb, b->m.pixels, (size_t)w * (size_t)h * 3);
    return PL_OK;
}

pl_status pl__box_indices(struct pl_image_box *b, const void *bytes, size_t n,
                          const pl_image_info *info, uint8_t *out)
{
    box_request *r;
    if (out != b->m.pixels) PL_BUG("a mask outside the sandbox's memory");
    PL_TRY(begin(b, CALL_INDICES, bytes, n, info, &r));
    return pl_sandbox_run(b->sandbox);
}

pl_status pl__box_resized(struct pl_image_box *b, const void *bytes, size_t n,
                          const pl_image_info *info, pl_filter f, pl_crop_box from, int w, int h)
{
    box_request *r;
    if ((size_t)w * (size_t)h * 3 > b->m.resized_bytes) PL_BUG("no room for %d x %d pixels", w, h);
    PL_TRY(begin(b, CALL_RESIZED, bytes, n, info, &r));
    r->filter = (int32_t)f;
    r->from = from;
    r->w = w;
    r->h = h;
    return pl_sandbox_run(b->sandbox);
}
