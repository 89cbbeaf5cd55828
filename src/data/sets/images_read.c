/* images_read.c - see images.h: reads one sample of a set, from its bytes to the outputs, and
 * handles files that cannot be read. */
#include "base/hash.h"
#include "base/sys.h"
#include "data/sets/images_int.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TRIES = 64 }; /* replacements tried for a bad sample */

/* ---- bytes ---------------------------------------------------------------------------------- */
/* Opens a plain file; anything else (a pipe, a device) is refused without waiting for it. */
static pl_status open_plain(const char *path, int *fd)
{
    struct stat st;
    *fd = pl_sys_open(path, O_RDONLY, 0);
    PL_FAIL_IF(*fd < 0, PL_ERR_DATA, "%s", strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) return PL_OK;
    close(*fd);
    PL_FAIL(PL_ERR_DATA, "not a plain file");
}

/* Reads the bytes of a file behind the first *n, up to `most` in all. */
static pl_status read_more(const char *path, void *to, size_t most, size_t *n)
{
    int fd;
    PL_TRY(open_plain(path, &fd));
    ssize_t got;
    do {
        got = pread(fd, (char *)to + *n, most - *n, (off_t)*n);
        if (got > 0) *n += (size_t)got;
    } while ((got > 0 && *n < most) || (got < 0 && errno == EINTR));
    int why = errno;
    close(fd);
    PL_FAIL_IF(got < 0, PL_ERR_DATA, "%s", strerror(why));
    return PL_OK;
}

/* Reads the first bytes of an image, at most `most`. */
static pl_status read_head(pl_image_set *s, const pl_item *i, pl_image_thread *t, size_t most,
                           size_t *n)
{
    char path[4096];
    if (i->shard >= 0) {
        *n = (size_t)i->bytes < most ? (size_t)i->bytes : most;
        return pl_tar_read(&s->tars[i->shard], i->offset, t->file.at, *n);
    }
    *n = 0;
    return read_more(pl_item_path(s->items, i, path, sizeof path), t->file.at, most, n);
}

/* Returns the bytes of a file, at most `most`; `most` if the system does not report it. */
static size_t file_size(const pl_image_set *s, const pl_item *i, size_t most)
{
    char path[4096];
    struct stat st;
    int64_t bytes = i->bytes;
    if (i->shard < 0)
        bytes = stat(pl_item_path(s->items, i, path, sizeof path), &st) == 0 ? st.st_size : -1;
    return bytes >= 0 && (uint64_t)bytes < most ? (size_t)bytes : most;
}

/* Bytes of a file that are read for every picture: metadata, and small pictures. */
enum { ANY_PICTURE = 16 << 20, PIXEL_BYTES = 8 };

/* Returns how much of a large file its picture can need, by the first n bytes; more is padding or
 * a second content, which would only take memory. A TIFF may have its table at the end. */
static size_t most_needed(const pl_image_set *s, const pl_image_thread *t, size_t n)
{
    pl_image_info info;
    const uint8_t *head = t->file.at;
    bool tiff = n > 4 && (memcmp(head, "II*", 4) == 0 || memcmp(head, "MM\0*", 4) == 0);
    int64_t pixels = s->o.limits.max_pixels;
    if (pl_image_probe(t->decoder, head, n, &s->o.limits, &info) == PL_OK)
        pixels = (int64_t)info.width * info.height;
    else if (!tiff)
        return n;
    return ANY_PICTURE + PIXEL_BYTES * (size_t)pixels;
}

/* Reads a file, or as much of it as its picture can need. */
static pl_status read_whole(pl_image_set *s, const pl_item *i, pl_image_thread *t, size_t *n)
{
    size_t room = t->file.bytes, most = room < ANY_PICTURE ? room : ANY_PICTURE;
    PL_TRY(pl__image_room_take(s, t, file_size(s, i, most)));
    PL_TRY(read_head(s, i, t, most, n));
    if (*n < most) return PL_OK;
    PL_FAIL_IF(most == room && i->shard < 0, PL_ERR_DATA,
               "the file has grown since the set was listed");
    size_t need = most_needed(s, t, *n);
    if (need > room) need = room;
    if (need <= *n) return PL_OK;
    PL_TRY(pl__image_room_take(s, t, file_size(s, i, need)));
    if (i->shard >= 0) return read_head(s, i, t, need, n);
    char path[4096];
    return read_more(pl_item_path(s->items, i, path, sizeof path), t->file.at, need, n);
}

static pl_status read_bytes(pl_image_set *s, const pl_item *i, pl_image_thread *t, size_t *n)
{
    PL_TRY(read_whole(s, i, t, n));
    PL_FAIL_IF((int64_t)*n < s->o.limits.min_bytes, PL_ERR_DATA,
               "%zu bytes: fewer than data.min_bytes (%lld)", *n, (long long)s->o.limits.min_bytes);
    return PL_OK;
}

/* Returns the text of a sample: from a list, from the tar, or from the .txt file of the same
 * name. */
static const char *read_caption(pl_image_set *s, const pl_item *i, pl_image_thread *t)
{
    size_t n = 0;
    if (i->caption) return i->caption;
    t->caption[0] = 0;
    if (i->shard >= 0) {
        n = i->text_bytes < PL_IMAGE_CAPTION ? (size_t)i->text_bytes : PL_IMAGE_CAPTION - 1;
        if (pl_tar_read(&s->tars[i->shard], i->text_at, t->caption, n) != PL_OK) n = 0;
    } else {
        char path[4096];
        pl_item_path(s->items, i, path, sizeof path - 4);
        char *dot = strrchr(path, '.');
        if (dot) memcpy(dot, ".txt", 5);
        if (access(path, R_OK) != 0 ||
            read_more(path, t->caption, PL_IMAGE_CAPTION - 1, &n) != PL_OK)
            n = 0;
    }
    while (n && (t->caption[n - 1] == '\n' || t->caption[n - 1] == '\r')) n--;
    t->caption[n] = 0;
    return t->caption;
}

/* ---- one sample ------------------------------------------------------------------------------ */
/* Outputs that are computed from one file. */
typedef struct outputs {
    const pl_pixels *to[PL_MAX_OUTPUTS];
    int n;
} outputs;

/* Sets the pixels of the source, after the decoder's own scaling, that the outputs need. */
static void wanted(const outputs *o, const pl_view *v, int *w, int *h)
{
    *w = *h = 1;
    for (int k = 0; k < o->n; k++) {
        int need_w = (int)ceil(o->to[k]->w / v->w - 1e-6),
            need_h = (int)ceil(o->to[k]->h / v->h - 1e-6);
        if (need_w > *w) *w = need_w;
        if (need_h > *h) *h = need_h;
    }
}

/* Returns the view of a sample. A crop with exactly the required number of pixels lies on whole
 * pixels, so that nothing is resampled; evaluation takes the crop in the middle. */
static pl_view view_of(const pl_image_set *s, const pl_image_read *r, const pl_image_info *info)
{
    pl_augment a = s->o.augment;
    double aspect = r->n_to ? (double)r->to[0].w / r->to[0].h : 1, share = 1;
    bool pixels = a.crop == PL_CROP_PIXELS && !a.resize, random = a.crop == PL_CROP_PIXELS;
    bool resized = a.resize && r->n_to && a.crop != PL_CROP_STRETCH &&
                   (r->eval || random || a.crop == PL_CROP_CENTER);
    if (pixels && r->n_to) {
        share = fmin(1, fmax((double)r->to[0].w / info->width, (double)r->to[0].h / info->height));
        a.crop = PL_CROP_RANDOM;
        a.scale[0] = a.scale[1] = share;
    }
    pl_view v =
        r->eval ? pl_view_center(&a, info->width, info->height, aspect)
                : pl_view_draw(&a, r->seed, r->epoch, r->sample, info->width, info->height, aspect);
    if (resized)
        pl_view_resized(&v, &a, random && !r->eval, r->seed, r->epoch, r->sample, info->width,
                        info->height, r->to[0].w, r->to[0].h);
    if (!pixels || share == 1) return v;
    if (r->eval) {
        v.x += v.w * (1 - share) / 2;
        v.y += v.h * (1 - share) / 2;
        v.w *= share;
        v.h *= share;
    }
    v.x = floor(v.x * info->width) / info->width;
    v.y = floor(v.y * info->height) / info->height;
    return v;
}

/* Whether the decoder can write directly to the sample's destination: the whole picture, unchanged,
 * as bytes. CMYK needs more room. */
static bool is_direct(const outputs *o, const pl_view *v, const pl_image_info *info, int w, int h)
{
    const pl_pixels *to = o->to[0];
    bool plain = v->w == 1 && v->h == 1 && !v->flip && !pl_view_changes(v) && v->ew <= 0;
    return o->n == 1 && plain && to->bytes && !to->planar && to->channels == 3 && to->w == w &&
           to->h == h && info->format == PL_IMAGE_JPEG && strcmp(info->colour, "CMYK") != 0;
}

/* Reads a picture that is much larger than required, without holding all of it. */
static pl_status read_by_rows(pl_filter f, pl_image_thread *t, size_t n, const pl_image_info *info,
                              const pl_view *v, const pl_pixels *to)
{
    PL_TRY(pl_image_resized(t->decoder, t->file.at, n, info, f,
                            pl_view_box(v, info->width, info->height), t->pixels.at, t->resized.at,
                            to->w, to->h, t->work.at));
    pl_view_write(v, t->resized.at, 3 * (size_t)to->w, to, t->work.at);
    return PL_OK;
}

/* From the whole picture to every output. */
static void write_outputs(pl_filter f, pl_image_thread *t, const outputs *o, const pl_view *v,
                          int w, int h)
{
    pl_crop_box box = pl_view_box(v, w, h);
    for (int k = 0; k < o->n; k++) {
        const pl_pixels *to = o->to[k];
        uint8_t *rgb = t->resized.at;
        size_t stride = 3 * (size_t)to->w;
        if (pl_crop_box_is_plain(box, to->w, to->h) && !pl_view_changes(v)) {
            stride = 3 * (size_t)w;
            rgb = t->pixels.at + (size_t)box.y0 * stride + 3 * (size_t)box.x0;
        } else {
            pl_rgb_resize(f, t->pixels.at, w, h, box, rgb, to->w, to->h, t->work.at);
        }
        pl_view_write(v, rgb, stride, to, t->work.at);
    }
}

/* Takes room for the file of n bytes, its decoder, the pixels and the work of resizing. */
static pl_status take_room(pl_image_set *s, pl_image_thread *t, size_t n, const pl_image_info *info,
                           size_t pixels, size_t work)
{
    pl_status rc = pl__image_room_take(s, t, n + (size_t)info->heap_bytes + pixels + work);
    return rc == PL_ERR_FIT
               ? pl__fail_prefix(rc, "a %s image of %d x %d pixels",
                                 pl_image_format_name(info->format), info->width, info->height)
               : rc;
}

/* Writes the view of the n bytes of a probed file to the outputs. A JPEG's own scaling is a filter
 * too; for the resize filter to matter, the scaled picture must still be twice as large as required
 * (PIL's reducing_gap). */
static pl_status write_view(pl_image_set *s, pl_image_thread *t, size_t n,
                            const pl_image_info *info, const pl_view *v, const outputs *o)
{
    size_t work = 0;
    int w, h, want_w, want_h;
    pl_filter f = s->o.filter;
    int gap = f == PL_FILTER_LANCZOS ? 2 : 1;
    wanted(o, v, &want_w, &want_h);
    pl_image_scaled(info, gap * want_w, gap * want_h, &w, &h);
    for (int k = 0; k < o->n; k++) {
        size_t bytes = pl_rgb_resize_bytes(f, w, h, o->to[k]->w, o->to[k]->h);
        if (bytes > work) work = bytes;
    }
    PL_FAIL_IF(work > t->work.bytes, PL_ERR_DATA, "%d x %d pixels: a side is too long", w, h);
    bool direct = is_direct(o, v, info, w, h), by_rows = info->by_rows && o->n == 1;
    PL_TRY(take_room(s, t, n, info, direct || by_rows ? 0 : 4 * (size_t)w * (size_t)h, work));
    if (direct) {
        PL_TRY(pl_image_decode(t->decoder, t->file.at, n, info, w, h, o->to[0]->data));
    } else if (by_rows) {
        PL_TRY(read_by_rows(f, t, n, info, v, o->to[0]));
    } else {
        PL_TRY(pl_image_decode(t->decoder, t->file.at, n, info, w, h, t->pixels.at));
        write_outputs(f, t, o, v, w, h);
        pl__image_shrink(&t->pixels, s->o.keep_bytes, (size_t)w * (size_t)h * 4);
    }
    pl__image_shrink(&t->file, PL_IMAGE_FILE_KEPT, n);
    pl__image_shrink(&t->work, s->o.keep_bytes, work);
    return PL_OK;
}

/* The same view of the larger version. */
static pl_status write_larger(pl_image_set *s, const pl_item *i, pl_image_thread *t,
                              const pl_view *v, const outputs *o)
{
    pl_image_info info;
    pl_item larger = *i;
    size_t n;
    larger.name = i->larger;
    pl_status rc = read_bytes(s, &larger, t, &n);
    if (rc == PL_OK) rc = pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, &info);
    if (rc == PL_OK) rc = write_view(s, t, n, &info, v, o);
    return rc == PL_OK ? rc : pl__fail_prefix(rc, "its larger version %s", i->larger);
}

/* Whether an output shows more pixels than the picture's view has. */
static bool is_enlarged(const pl_pixels *to, const pl_view *v, const pl_image_info *info)
{
    return to->w > v->w * info->width + 0.5 || to->h > v->h * info->height + 0.5;
}

/* The numbers of a mask, a byte a pixel, into t->pixels. */
static pl_status decode_mask(pl_image_set *s, const pl_item *i, pl_image_thread *t,
                             pl_image_info *info)
{
    pl_item file = *i;
    size_t n;
    file.name = i->mask;
    PL_TRY(read_whole(s, &file, t, &n));
    PL_TRY(pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, info));
    PL_TRY(take_room(s, t, n, info, 4 * (size_t)info->width * (size_t)info->height, 0));
    return pl_image_indices(t->decoder, t->file.at, n, info, t->pixels.at);
}

/* The same view of the mask, without interpolation. */
static pl_status read_mask(pl_image_set *s, const pl_item *i, pl_image_thread *t, const pl_view *v,
                           const pl_image_info *picture, const pl_mask_read *m)
{
    pl_image_info info;
    PL_TRY(decode_mask(s, i, t, &info));
    PL_FAIL_IF(info.width != picture->width || info.height != picture->height, PL_ERR_DATA,
               "the mask has %d x %d pixels, its picture %d x %d", info.width, info.height,
               picture->width, picture->height);
    pl_crop_box box = pl_view_box(v, info.width, info.height);
    for (int y = 0; y < m->h; y++)
        for (int x = 0; x < m->w; x++) {
            int sx = (int)(box.x0 + (x + 0.5) * (box.x1 - box.x0) / m->w);
            int sy = (int)(box.y0 + (y + 0.5) * (box.y1 - box.y0) / m->h);
            uint8_t value = t->pixels.at[(size_t)sy * (size_t)info.width + (size_t)sx];
            PL_FAIL_IF(m->class_of[value] < 0, PL_ERR_DATA,
                       "the number %d at row %d, column %d is not the value of a class; "
                       "data.mask_values lists the value of each class (now %s)",
                       value, sy, sx, m->known);
            m->to[y * m->w + (v->flip ? m->w - 1 - x : x)] = m->class_of[value];
        }
    pl__image_shrink(&t->pixels, s->o.keep_bytes, (size_t)info.width * (size_t)info.height * 4);
    return PL_OK;
}

static pl_status try_item(pl_image_set *s, const pl_item *i, pl_image_read *r)
{
    pl_image_thread *t = &s->threads[r->thread];
    pl_image_info info;
    outputs own = {.n = 0}, enlarged = {.n = 0};
    size_t n;
    PL_FAIL_IF(r->n_to > PL_MAX_OUTPUTS, PL_ERR_UNSUPPORTED, "%d outputs of a picture, at most %d",
               r->n_to, PL_MAX_OUTPUTS);
    PL_TRY(read_bytes(s, i, t, &n));
    PL_TRY(pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, &info));
    pl_view v = view_of(s, r, &info);
    for (int k = 0; k < r->n_to; k++) {
        outputs *o = i->larger && is_enlarged(&r->to[k], &v, &info) ? &enlarged : &own;
        o->to[o->n++] = &r->to[k];
    }
    if (own.n || !enlarged.n) PL_TRY(write_view(s, t, n, &info, &v, &own));
    if (enlarged.n) PL_TRY(write_larger(s, i, t, &v, &enlarged));
    if (r->mask && i->mask) {
        pl_status rc = read_mask(s, i, t, &v, &info, r->mask);
        if (rc != PL_OK) return pl__fail_prefix(rc, "its mask %s", i->mask);
    }
    r->label = i->label;
    r->caption = r->want_text ? read_caption(s, i, t) : "";
    return PL_OK;
}

static pl_status read_item(pl_image_set *s, const pl_item *i, pl_image_read *r)
{
    pl_image_thread *t = &s->threads[r->thread];
    pl_status rc;
    do {
        t->again = false;
        rc = try_item(s, i, r);
    } while (rc != PL_OK && t->again);
    pl__image_room_leave(s, t);
    return rc;
}

/* The size is mostly in the first bytes; with long metadata before it (EXIF, ICC) the whole file is
 * read. */
pl_status pl_image_set_look(pl_image_set *s, bool eval, int64_t sample, int thread,
                            pl_image_info *info)
{
    enum { HEAD = 32 << 10 };
    pl_image_thread *t = &s->threads[thread];
    const pl_item *i = &s->items->item[s->index[eval][sample]];
    size_t n, head = HEAD < t->file.bytes ? HEAD : t->file.bytes;
    PL_TRY(read_head(s, i, t, head, &n));
    if (pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, info) == PL_OK) return PL_OK;
    pl_status rc;
    do {
        t->again = false;
        rc = read_bytes(s, i, t, &n);
    } while (rc != PL_OK && t->again);
    if (rc == PL_OK) rc = pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, info);
    pl__image_shrink(&t->file, PL_IMAGE_FILE_KEPT, n);
    pl__image_room_leave(s, t);
    return rc;
}

static void append_line(const char *path, const char *line)
{
    int fd = pl_sys_open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) return; /* the list of bad files has it anyway */
    if (dprintf(fd, "%s\n", line) < 0) errno = 0;
    close(fd);
}

static void note_bad(pl_image_set *s, int32_t item)
{
    char path[4096];
    pthread_mutex_lock(&s->lock);
    if (!s->bad[item]) {
        s->bad[item] = 1;
        s->n_bad++;
        if (s->o.on_bad == PL_BAD_QUARANTINE)
            append_line(s->o.quarantine,
                        pl_item_path(s->items, &s->items->item[item], path, sizeof path));
    }
    pthread_mutex_unlock(&s->lock);
}

static bool known_bad(pl_image_set *s, int32_t item)
{
    pthread_mutex_lock(&s->lock);
    bool is = s->bad[item];
    pthread_mutex_unlock(&s->lock);
    return is;
}

/* Too many replacements were tried: reports the last one; reads it again, as its reason may be of
 * an earlier time. */
static pl_status give_up(pl_image_set *s, const pl_item *i, pl_image_read *r)
{
    char path[4096];
    pl_status rc = read_item(s, i, r);
    if (rc == PL_OK) return rc;
    PL_FAIL(PL_ERR_DATA, "%s: %s; %d images chosen to replace it cannot be read either",
            pl_item_path(s->items, i, path, sizeof path), pl_error_text(), MAX_TRIES - 1);
}

pl_status pl_image_set_read(pl_image_set *s, pl_image_read *r)
{
    int64_t sample = r->sample, n = s->n[r->eval];
    char path[4096];
    for (int try = 1;; try++) {
        int32_t item = s->index[r->eval][sample];
        const pl_item *i = &s->items->item[item];
        pl_status rc = known_bad(s, item) ? PL_ERR_DATA : read_item(s, i, r);
        if (rc == PL_OK || rc == PL_ERR_MEMORY || rc == PL_ERR_UNSUPPORTED || rc == PL_ERR_FIT) {
            if (rc != PL_OK)
                pl__fail_prefix(rc, "%s", pl_item_path(s->items, i, path, sizeof path));
            return rc;
        }
        PL_FAIL_IF(s->o.on_bad == PL_BAD_FAIL, rc,
                   "%s: %s; data.on_bad=skip continues without such files, plimsoll inspect data "
                   "lists them all",
                   pl_item_path(s->items, i, path, sizeof path), pl_error_text());
        note_bad(s, item);
        if (try == MAX_TRIES) return give_up(s, i, r);
        sample = (int64_t)(pl_mix64(pl_mix64((uint64_t)r->sample + ((uint64_t)r->epoch << 40)) +
                                    (uint64_t)try) %
                           (uint64_t)n);
    }
}

pl_status pl_image_set_mask_numbers(pl_image_set *s, int64_t most, bool seen[256])
{
    pl_image_thread *t = &s->threads[0];
    pl_image_info info;
    char path[4096];
    for (int64_t k = 0; k < s->items->n && k < most; k++) {
        const pl_item *i = &s->items->item[k];
        pl_status rc;
        do {
            t->again = false;
            rc = decode_mask(s, i, t, &info);
        } while (rc != PL_OK && t->again);
        if (rc != PL_OK)
            return pl__fail_prefix(rc, "%s: its mask %s",
                                   pl_item_path(s->items, i, path, sizeof path), i->mask);
        size_t pixels = (size_t)info.width * (size_t)info.height;
        for (size_t p = 0; p < pixels; p++) seen[t->pixels.at[p]] = true;
        pl__image_shrink(&t->pixels, s->o.keep_bytes, pixels * 4);
        pl__image_room_leave(s, t);
    }
    return PL_OK;
}

/* ---- bad files --------------------------------------------------------------------------------
 */
int64_t pl_image_set_bad_count(const pl_image_set *s)
{
    return s->n_bad;
}

const char *pl_image_set_bad(const pl_image_set *s, int64_t k, char *buf, size_t cap)
{
    for (int64_t i = 0; i < s->items->n; i++)
        if (s->bad[i] && k-- == 0) return pl_item_path(s->items, &s->items->item[i], buf, cap);
    return NULL;
}

pl_status pl_image_set_check(pl_image_set *s, int64_t item, int thread, pl_image_info *info)
{
    pl_image_thread *t = &s->threads[thread];
    size_t n;
    *info = (pl_image_info){0};
    PL_TRY(read_bytes(s, &s->items->item[item], t, &n));
    PL_TRY(pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, info));
    PL_TRY(
        pl_image_decode(t->decoder, t->file.at, n, info, info->width, info->height, t->pixels.at));
    pl__image_shrink(&t->pixels, s->o.keep_bytes, (size_t)info->width * (size_t)info->height * 4);
    return PL_OK;
}
