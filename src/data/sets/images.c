/* images.c - see images.h. */
#include "data/sets/images.h"

#include "base/hash.h"
#include "base/sys.h"
#include "data/sets/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 30, MAX_CAPTION = 1 << 16, MAX_TRIES = 64, PAGE = 4096 };

/* A reserved range of memory whose pages appear when they are touched. */
typedef struct range {
    uint8_t *at;
    size_t bytes;
} range;

typedef struct thread_state {
    pl_decoder *decoder;
    range file, pixels, resized, work;
    char *caption;
} thread_state;

struct pl_image_set {
    pl_image_set_opts o;
    pl_items *items;
    int32_t *index[2]; /* items of a subset: train, eval */
    int64_t n[2];
    double *cumulated; /* weights of training samples up to each; NULL: all equal */
    pl_tar *tars;
    thread_state *threads;
    uint8_t *bad; /* by item */
    int64_t n_bad;
    pthread_mutex_t lock; /* of bad and the quarantine file */
};

/* ---- opening ------------------------------------------------------------------------------ */
static pl_status reserve(range *r, size_t bytes)
{
    void *p;
    PL_TRY(pl_sys_map(bytes, &p));
    (void)madvise(p, bytes, MADV_NOHUGEPAGE); /* only what is touched is to be there */
    *r = (range){p, bytes};
    return PL_OK;
}

/* Gives back what lies past `keep`. */
static void shrink(const range *r, size_t keep, size_t used)
{
    if (used > keep && r->bytes > keep) madvise(r->at + keep, r->bytes - keep, MADV_DONTNEED);
}

/* The strip of a resize is as high as the image: bounded by the longest side there may be. */
static size_t work_bytes(const pl_image_set_opts *o)
{
    return pl_rgb_resize_bytes(o->filter, o->limits.max_side, o->limits.max_side, o->most_w,
                               o->most_h) +
           PAGE;
}

static pl_status open_thread(pl_image_set *s, thread_state *t)
{
    size_t file = (size_t)s->items->max_bytes + PAGE;
    PL_TRY(pl_decoder_new(&t->decoder));
    PL_TRY(reserve(&t->file, file < MAX_FILE ? file : MAX_FILE));
    PL_TRY(reserve(&t->pixels, (size_t)s->o.limits.max_pixels * 4 + PAGE));
    PL_TRY(reserve(&t->resized, (size_t)s->o.most_w * (size_t)s->o.most_h * 3 + PAGE));
    PL_TRY(reserve(&t->work, work_bytes(&s->o)));
    t->caption = pl_sys_alloc(MAX_CAPTION);
    return t->caption ? PL_OK : PL_ERR_MEMORY;
}

static pl_status leave_out(pl_image_set *s)
{
    int64_t begin, end, kept = 0;
    PL_TRY(s->o.leave_out(s->o.leave_out_ctx, s->n[0], &begin, &end));
    s->n[1] = end - begin;
    memcpy(s->index[1], s->index[0] + begin, (size_t)s->n[1] * sizeof *s->index[1]);
    for (int64_t i = 0; i < s->n[0]; i++)
        if (i < begin || i >= end) s->index[0][kept++] = s->index[0][i];
    s->n[0] = kept;
    return PL_OK;
}

static pl_status index_subsets(pl_image_set *s)
{
    for (int e = 0; e < 2; e++) {
        s->index[e] = pl_sys_alloc((size_t)(s->items->n + 1) * sizeof *s->index[e]);
        if (!s->index[e]) return PL_ERR_MEMORY;
    }
    for (int64_t i = 0; i < s->items->n; i++) {
        int e = s->items->item[i].eval;
        s->index[e][s->n[e]++] = (int32_t)i;
    }
    return s->o.leave_out ? leave_out(s) : PL_OK;
}

/* data.balance: a sample weighs one over the size of its class. */
static pl_status weigh(pl_image_set *s)
{
    bool equal = true;
    int most = 0;
    const pl_item *item = s->items->item;
    for (int64_t k = 0; k < s->n[0]; k++) {
        const pl_item *i = &item[s->index[0][k]];
        equal &= i->weight == 1;
        if (i->label > most) most = i->label;
    }
    if (equal && !s->o.balance) return PL_OK;
    PL_FAIL_IF(most > 1 << 24, PL_ERR_DATA, "label %d: too many classes to balance", most);
    int64_t *count = pl_sys_alloc(((size_t)most + 1) * sizeof *count);
    s->cumulated = pl_sys_alloc((size_t)(s->n[0] + 1) * sizeof *s->cumulated);
    if (!count || !s->cumulated) {
        pl_sys_free(count);
        return PL_ERR_MEMORY;
    }
    for (int64_t k = 0; k < s->n[0]; k++) count[item[s->index[0][k]].label]++;
    double sum = 0;
    for (int64_t k = 0; k < s->n[0]; k++) {
        const pl_item *i = &item[s->index[0][k]];
        sum += (double)i->weight / (s->o.balance ? (double)count[i->label] : 1);
        s->cumulated[k] = sum;
    }
    pl_sys_free(count);
    PL_FAIL_IF(!(sum > 0), PL_ERR_DATA, "%s: every sample has weight 0", s->items->root);
    return PL_OK;
}

static pl_status open_tars(pl_image_set *s)
{
    s->tars = pl_sys_alloc((size_t)(s->items->n_shards + 1) * sizeof *s->tars);
    if (!s->tars) return PL_ERR_MEMORY;
    for (int i = 0; i < s->items->n_shards; i++) s->tars[i].fd = -1;
    for (int i = 0; i < s->items->n_shards; i++)
        PL_TRY(pl_tar_open(s->items->shards[i], &s->tars[i]));
    return PL_OK;
}

/* Names in the quarantine file are bad from the start. */
static pl_status read_quarantine(pl_image_set *s)
{
    char *text, path[4096];
    size_t len;
    if (s->o.on_bad != PL_BAD_QUARANTINE || access(s->o.quarantine, R_OK) != 0) return PL_OK;
    PL_TRY(pl_sys_read_file(s->o.quarantine, MAX_FILE, &text, &len));
    for (int64_t i = 0; i < s->items->n; i++) {
        const char *name = pl_item_path(s->items, &s->items->item[i], path, sizeof path);
        size_t n = strlen(name);
        for (const char *at = text; (at = strstr(at, name)); at++)
            if ((at == text || at[-1] == '\n') && (at[n] == '\n' || at[n] == 0)) {
                s->bad[i] = 1;
                s->n_bad++;
                break;
            }
    }
    pl_sys_free(text);
    return PL_OK;
}

static pl_status open_set(pl_image_set *s)
{
    PL_TRY(pl_items_open(&s->o.items, &s->items));
    PL_TRY(index_subsets(s));
    PL_TRY(weigh(s));
    PL_TRY(open_tars(s));
    s->bad = pl_sys_alloc((size_t)s->items->n);
    s->threads = pl_sys_alloc((size_t)s->o.threads * sizeof *s->threads);
    if (!s->bad || !s->threads) return PL_ERR_MEMORY;
    for (int i = 0; i < s->o.threads; i++) PL_TRY(open_thread(s, &s->threads[i]));
    return read_quarantine(s);
}

pl_status pl_image_set_open(const pl_image_set_opts *o, pl_image_set **out)
{
    pl_image_set *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    s->o = *o;
    pthread_mutex_init(&s->lock, NULL);
    pl_status rc = open_set(s);
    if (rc != PL_OK) {
        pl_image_set_close(s);
        return rc;
    }
    *out = s;
    return PL_OK;
}

static void close_thread(thread_state *t)
{
    const range *ranges[4] = {&t->file, &t->pixels, &t->resized, &t->work};
    pl_decoder_free(t->decoder);
    for (int i = 0; i < 4; i++)
        if (ranges[i]->at) pl_sys_unmap(ranges[i]->at, ranges[i]->bytes);
    pl_sys_free(t->caption);
}

void pl_image_set_close(pl_image_set *s)
{
    if (!s) return;
    for (int i = 0; s->threads && i < s->o.threads; i++) close_thread(&s->threads[i]);
    for (int i = 0; s->tars && i < s->items->n_shards; i++) pl_tar_close(&s->tars[i]);
    pl_sys_free(s->threads);
    pl_sys_free(s->tars);
    pl_sys_free(s->bad);
    pl_sys_free(s->index[0]);
    pl_sys_free(s->index[1]);
    pl_sys_free(s->cumulated);
    pl_items_close(s->items);
    pthread_mutex_destroy(&s->lock);
    pl_sys_free(s);
}

/* ---- what is there -------------------------------------------------------------------------- */
const pl_items *pl_image_set_items(const pl_image_set *s)
{
    return s->items;
}

int64_t pl_image_set_size(const pl_image_set *s, bool eval)
{
    return s->n[eval];
}

bool pl_image_set_weighted(const pl_image_set *s)
{
    return s->cumulated != NULL;
}

int64_t pl_image_set_draw(const pl_image_set *s, double u)
{
    int64_t lo = 0, hi = s->n[0] - 1;
    double want = u * s->cumulated[hi];
    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (s->cumulated[mid] > want)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

double pl_image_set_weight(const pl_image_set *s, int64_t sample)
{
    if (!s->cumulated) return 1;
    return s->cumulated[sample] - (sample ? s->cumulated[sample - 1] : 0);
}

int pl_image_set_threads(const pl_image_set *s)
{
    return s->o.threads;
}

/* ---- bytes ---------------------------------------------------------------------------------- */
/* A whole file into `to`; its size may have changed since the set was listed. */
static pl_status read_file(const char *path, void *to, size_t cap, size_t *n)
{
    int fd = pl_sys_open(path, O_RDONLY, 0);
    PL_FAIL_IF(fd < 0, PL_ERR_DATA, "%s", strerror(errno));
    *n = 0;
    ssize_t got;
    do {
        got = read(fd, (char *)to + *n, cap - *n);
        if (got > 0) *n += (size_t)got;
    } while ((got > 0 && *n < cap) || (got < 0 && errno == EINTR));
    int why = errno;
    close(fd);
    PL_FAIL_IF(got < 0, PL_ERR_DATA, "%s", strerror(why));
    PL_FAIL_IF(*n == cap, PL_ERR_DATA, "the file has grown since the set was listed");
    return PL_OK;
}

/* The first bytes of an image, as many as there are up to `most`. */
static pl_status read_head(pl_image_set *s, const pl_item *i, thread_state *t, size_t most,
                           size_t *n)
{
    char path[4096];
    if (i->shard >= 0) {
        *n = (size_t)i->bytes < most ? (size_t)i->bytes : most;
        return pl_tar_read(&s->tars[i->shard], i->offset, t->file.at, *n);
    }
    int fd = pl_sys_open(pl_item_path(s->items, i, path, sizeof path), O_RDONLY, 0);
    PL_FAIL_IF(fd < 0, PL_ERR_DATA, "%s", strerror(errno));
    ssize_t got = read(fd, t->file.at, most);
    close(fd);
    PL_FAIL_IF(got < 0, PL_ERR_DATA, "cannot be read");
    *n = (size_t)got;
    return PL_OK;
}

static pl_status read_whole(pl_image_set *s, const pl_item *i, thread_state *t, size_t *n)
{
    char path[4096];
    if (i->shard < 0)
        return read_file(pl_item_path(s->items, i, path, sizeof path), t->file.at, t->file.bytes,
                         n);
    *n = (size_t)i->bytes;
    PL_FAIL_IF(*n > t->file.bytes, PL_ERR_DATA, "%zu bytes: too large", *n);
    return pl_tar_read(&s->tars[i->shard], i->offset, t->file.at, *n);
}

static pl_status read_bytes(pl_image_set *s, const pl_item *i, thread_state *t, size_t *n)
{
    PL_TRY(read_whole(s, i, t, n));
    PL_FAIL_IF((int64_t)*n < s->o.limits.min_bytes, PL_ERR_DATA,
               "%zu bytes: fewer than data.min_bytes (%lld)", *n, (long long)s->o.limits.min_bytes);
    return PL_OK;
}

/* The text of a sample: from a list, from the tar, or from the .txt beside the file. */
static const char *read_caption(pl_image_set *s, const pl_item *i, thread_state *t)
{
    size_t n = 0;
    if (i->caption) return i->caption;
    t->caption[0] = 0;
    if (i->shard >= 0) {
        n = i->text_bytes < MAX_CAPTION ? (size_t)i->text_bytes : MAX_CAPTION - 1;
        if (pl_tar_read(&s->tars[i->shard], i->text_at, t->caption, n) != PL_OK) n = 0;
    } else {
        char path[4096];
        pl_item_path(s->items, i, path, sizeof path - 4);
        char *dot = strrchr(path, '.');
        if (dot) memcpy(dot, ".txt", 5);
        if (access(path, R_OK) != 0 || read_file(path, t->caption, MAX_CAPTION, &n) != PL_OK) n = 0;
    }
    while (n && (t->caption[n - 1] == '\n' || t->caption[n - 1] == '\r')) n--;
    t->caption[n] = 0;
    return t->caption;
}

/* ---- one sample ------------------------------------------------------------------------------ */
/* Outputs that are taken from one file. */
typedef struct outputs {
    const pl_pixels *to[PL_MAX_OUTPUTS];
    int n;
} outputs;

/* Pixels of the source, after its own scaling, that the outputs need. */
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

/* The view of a sample. Parts of as many pixels as are wanted lie on whole pixels, so that nothing
 * is resampled; evaluation takes the one in the middle. */
static pl_view view_of(const pl_image_set *s, const pl_image_read *r, const pl_image_info *info)
{
    pl_augment a = s->o.augment;
    double aspect = r->n_to ? (double)r->to[0].w / r->to[0].h : 1, share = 1;
    bool pixels = a.crop == PL_CROP_PIXELS;
    if (pixels && r->n_to) {
        share = fmin(1, fmax((double)r->to[0].w / info->width, (double)r->to[0].h / info->height));
        a.crop = PL_CROP_RANDOM;
        a.scale[0] = a.scale[1] = share;
    }
    pl_view v = pl_view_draw(r->eval ? NULL : &a, r->seed, r->epoch, r->sample, info->width,
                             info->height, aspect);
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

/* Whether the decoder can write where the sample goes: the whole picture, as it is, as bytes. CMYK
 * takes more room on its way. */
static bool is_direct(const outputs *o, const pl_view *v, const pl_image_info *info, int w, int h)
{
    const pl_pixels *to = o->to[0];
    bool plain = v->w == 1 && v->h == 1 && !v->flip && !v->coloured && v->ew <= 0;
    return o->n == 1 && plain && to->bytes && !to->planar && to->channels == 3 && to->w == w &&
           to->h == h && info->format == PL_IMAGE_JPEG && strcmp(info->colour, "CMYK") != 0;
}

static void give_row(void *ctx, int y, const uint8_t *row)
{
    pl_resizer_row(ctx, y, row);
}

/* A picture that is much larger than what is wanted of it, without ever having all of it. */
static pl_status read_by_rows(pl_filter f, thread_state *t, size_t n, const pl_image_info *info,
                              const pl_view *v, const pl_pixels *to)
{
    pl_resizer z;
    pl_resizer_init(&z, f, info->width, info->height, pl_view_box(v, info->width, info->height),
                    t->resized.at, to->w, to->h, t->work.at);
    PL_TRY(pl_image_rows(t->file.at, n, info, t->pixels.at, give_row, &z));
    pl_resizer_finish(&z);
    pl_view_write(v, t->resized.at, 3 * (size_t)to->w, to);
    return PL_OK;
}

/* From the whole picture to every output. */
static void write_outputs(pl_filter f, thread_state *t, const outputs *o, const pl_view *v, int w,
                          int h)
{
    pl_crop_box box = pl_view_box(v, w, h);
    for (int k = 0; k < o->n; k++) {
        const pl_pixels *to = o->to[k];
        uint8_t *rgb = t->resized.at;
        size_t stride = 3 * (size_t)to->w;
        if (pl_crop_box_is_plain(box, to->w, to->h) && !v->coloured) {
            stride = 3 * (size_t)w;
            rgb = t->pixels.at + (size_t)box.y0 * stride + 3 * (size_t)box.x0;
        } else {
            pl_rgb_resize(f, t->pixels.at, w, h, box, rgb, to->w, to->h, t->work.at);
        }
        pl_view_write(v, rgb, stride, to);
    }
}

/* The view of the n bytes of a file, which were probed, to the outputs. A JPEG's own scaling is a
 * filter too; what it leaves must be twice as large for a filter that is to be seen (PIL's
 * reducing_gap). */
static pl_status write_view(pl_image_set *s, thread_state *t, size_t n, const pl_image_info *info,
                            const pl_view *v, const outputs *o)
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
    if (is_direct(o, v, info, w, h)) {
        PL_TRY(pl_image_decode(t->decoder, t->file.at, n, info, w, h, o->to[0]->data));
    } else if (info->by_rows && o->n == 1) {
        PL_TRY(read_by_rows(f, t, n, info, v, o->to[0]));
    } else {
        PL_TRY(pl_image_decode(t->decoder, t->file.at, n, info, w, h, t->pixels.at));
        write_outputs(f, t, o, v, w, h);
        shrink(&t->pixels, s->o.keep_bytes, (size_t)w * (size_t)h * 4);
    }
    shrink(&t->file, s->o.keep_bytes, n);
    shrink(&t->work, s->o.keep_bytes, work);
    return PL_OK;
}

/* The same view of the larger version. */
static pl_status write_larger(pl_image_set *s, const pl_item *i, thread_state *t, const pl_view *v,
                              const outputs *o)
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

static pl_status read_item(pl_image_set *s, const pl_item *i, pl_image_read *r)
{
    thread_state *t = &s->threads[r->thread];
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
    r->label = i->label;
    r->caption = r->want_text ? read_caption(s, i, t) : "";
    return PL_OK;
}

/* Sizes mostly stand in the first bytes; long notes before them (EXIF, ICC) make the whole file
 * needed. */
pl_status pl_image_set_look(pl_image_set *s, bool eval, int64_t sample, int thread,
                            pl_image_info *info)
{
    enum { HEAD = 32 << 10 };
    thread_state *t = &s->threads[thread];
    const pl_item *i = &s->items->item[s->index[eval][sample]];
    size_t n, head = HEAD < t->file.bytes ? HEAD : t->file.bytes;
    PL_TRY(read_head(s, i, t, head, &n));
    if (pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, info) == PL_OK) return PL_OK;
    PL_TRY(read_bytes(s, i, t, &n));
    pl_status rc = pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, info);
    shrink(&t->file, s->o.keep_bytes, n);
    return rc;
}

static void append_line(const char *path, const char *line)
{
    int fd = pl_sys_open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) return; /* the list of bad files has it all the same */
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

/* Too many were tried: what is wrong with the last, read again as its reason may be of an earlier
 * time. */
static pl_status give_up(pl_image_set *s, const pl_item *i, pl_image_read *r)
{
    char path[4096];
    pl_status rc = read_item(s, i, r);
    if (rc == PL_OK) return rc;
    PL_FAIL(PL_ERR_DATA, "%s: %s; %d others chosen in its place cannot be used either",
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
        if (rc == PL_OK || rc == PL_ERR_MEMORY || rc == PL_ERR_UNSUPPORTED) {
            if (rc != PL_OK)
                pl__fail_prefix(rc, "%s", pl_item_path(s->items, i, path, sizeof path));
            return rc;
        }
        if (s->o.on_bad == PL_BAD_FAIL)
            return pl__fail_prefix(rc, "%s", pl_item_path(s->items, i, path, sizeof path));
        note_bad(s, item);
        if (try == MAX_TRIES) return give_up(s, i, r);
        sample = (int64_t)(pl_mix64(pl_mix64((uint64_t)r->sample + ((uint64_t)r->epoch << 40)) +
                                    (uint64_t)try) %
                           (uint64_t)n);
    }
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
    thread_state *t = &s->threads[thread];
    size_t n;
    *info = (pl_image_info){0};
    PL_TRY(read_bytes(s, &s->items->item[item], t, &n));
    PL_TRY(pl_image_probe(t->decoder, t->file.at, n, &s->o.limits, info));
    PL_TRY(
        pl_image_decode(t->decoder, t->file.at, n, info, info->width, info->height, t->pixels.at));
    shrink(&t->pixels, s->o.keep_bytes, (size_t)info->width * (size_t)info->height * 4);
    return PL_OK;
}
