/* images.c - see images.h: opening and closing a set, its subsets and weights. */
#include "base/str.h"
#include "base/sys.h"
#include "base/trust/sandbox.h"
#include "data/sets/images_int.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 30, PAGE = 4096 };

/* ---- opening ------------------------------------------------------------------------------ */
/* Says which limit of this process does not allow a range that is reserved for pictures. */
static pl_status explain_limit(size_t bytes, int which, size_t taken, const char *text)
{
    struct rlimit r;
    PL_FAIL_IF(
        getrlimit(which, &r) == 0 && r.rlim_cur < taken + bytes, PL_ERR_FIT,
        "a thread that reads pictures reserves %.1f MB, most of it for data.max_pixels; %s is "
        "%.1f MB, of which %.1f MB are taken: raise the limit, or lower data.max_pixels",
        1e-6 * (double)bytes, text, 1e-6 * (double)r.rlim_cur, 1e-6 * (double)taken);
    return PL_OK;
}

static pl_status reserve(pl_image_range *r, size_t bytes, bool shared)
{
    void *p;
    pl_status rc = shared ? pl_sandbox_map(bytes, &p) : pl_sys_map(bytes, &p);
    if (rc == PL_ERR_MEMORY) {
        PL_TRY(explain_limit(bytes, RLIMIT_AS, pl_sys_mapped_bytes(),
                             "the limit of address space (ulimit -v)"));
        if (!shared)
            PL_TRY(explain_limit(bytes, RLIMIT_DATA, pl_sys_data_bytes(),
                                 "the limit of data (ulimit -d)"));
    }
    PL_TRY(rc);
    (void)madvise(p, bytes, MADV_NOHUGEPAGE); /* only touched pages should be resident */
    *r = (pl_image_range){p, bytes, shared};
    return PL_OK;
}

/* The strip of a resize is as high as the image: bounded by the longest allowed side. RandAugment
 * needs a second picture. */
static size_t work_bytes(const pl_image_set_opts *o)
{
    size_t resize = pl_rgb_resize_bytes(o->filter, o->limits.max_side, o->limits.max_side,
                                        o->most_w, o->most_h),
           picture = 3 * (size_t)o->most_w * (size_t)o->most_h;
    return (resize > picture ? resize : picture) + PAGE;
}

/* Returns a bit for each format that the names of the items promise. */
static uint32_t formats_of(const pl_items *items)
{
    static const struct {
        const char *end;
        pl_image_format format;
    } rows[] = {{".jpg", PL_IMAGE_JPEG},  {".jpeg", PL_IMAGE_JPEG}, {".png", PL_IMAGE_PNG},
                {".webp", PL_IMAGE_WEBP}, {".bmp", PL_IMAGE_BMP},   {".tif", PL_IMAGE_TIFF},
                {".tiff", PL_IMAGE_TIFF}, {".gif", PL_IMAGE_GIF}};
    uint32_t formats = 0;
    for (int64_t i = 0; i < items->n; i++) {
        const char *dot = strrchr(items->item[i].name, '.');
        for (size_t k = 0; dot && k < sizeof rows / sizeof *rows; k++)
            if (strcasecmp(dot, rows[k].end) == 0) formats |= 1u << rows[k].format;
        if (items->item[i].mask) formats |= 1u << PL_IMAGE_PNG;
    }
    return formats;
}

static pl_status open_thread(pl_image_set *s, pl_image_thread *t, bool apart, uint32_t formats)
{
    size_t file = (size_t)s->items->max_bytes + PAGE;
    PL_TRY(pl_decoder_new(&t->decoder));
    PL_TRY(reserve(&t->file, file < MAX_FILE ? file : MAX_FILE, apart));
    PL_TRY(reserve(&t->pixels, (size_t)s->o.limits.max_pixels * 4 + PAGE, apart));
    PL_TRY(reserve(&t->resized, (size_t)s->o.most_w * (size_t)s->o.most_h * 3 + PAGE, apart));
    PL_TRY(reserve(&t->work, work_bytes(&s->o), apart));
    t->caption = pl_sys_alloc(PL_IMAGE_CAPTION);
    if (!t->caption) return PL_ERR_MEMORY;
    pl_decoder_memory m = {.file = t->file.at,
                           .pixels = t->pixels.at,
                           .resized = t->resized.at,
                           .work = t->work.at,
                           .file_bytes = t->file.bytes,
                           .pixel_bytes = t->pixels.bytes,
                           .resized_bytes = t->resized.bytes,
                           .work_bytes = t->work.bytes,
                           .formats = formats};
    return apart ? pl_decoder_apart(t->decoder, &m) : PL_OK;
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

/* data.balance: the weight of a sample is one over the size of its class. */
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
    PL_FAIL_IF(most > 1 << 24, PL_ERR_DATA,
               "label %d is too large: data.balance has no room for so many classes", most);
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

/* Returns how many tars stay open: a quarter of the files that this process may have open. */
static int most_open(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0 || r.rlim_cur == RLIM_INFINITY) return 1024;
    return r.rlim_cur / 4 < 1024 ? (int)(r.rlim_cur / 4) : 1024;
}

static pl_status open_tars(pl_image_set *s)
{
    s->tars = pl_sys_alloc((size_t)(s->items->n_shards + 1) * sizeof *s->tars);
    if (!s->tars) return PL_ERR_MEMORY;
    for (int i = 0; i < s->items->n_shards; i++) s->tars[i].fd = -1;
    for (int i = 0; i < s->items->n_shards; i++) {
        PL_TRY(pl_tar_open(s->items->shards[i], &s->tars[i]));
        if (i >= most_open()) pl_tar_rest(&s->tars[i]);
    }
    return PL_OK;
}

/* Marks names in the quarantine file as bad. */
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
    bool apart;
    PL_TRY(pl_sandbox_wanted(&apart));
    uint32_t formats = apart ? formats_of(s->items) : 0;
    for (int i = 0; i < s->o.threads; i++) PL_TRY(open_thread(s, &s->threads[i], apart, formats));
    return read_quarantine(s);
}

pl_status pl_image_set_open(const pl_image_set_opts *o, pl_image_set **out)
{
    pl_image_set *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    s->o = *o;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->room.changed, NULL);
    s->room.left = o->room_bytes;
    pl_status rc = open_set(s);
    if (rc != PL_OK) {
        pl_image_set_close(s);
        return rc;
    }
    *out = s;
    return PL_OK;
}

void pl_image_set_use_ring(pl_image_set *s, int threads, const pl_decoder_ring *ring)
{
    pl_decoder_ring shared = *ring;
    if (!s->o.threads || !s->threads[0].file.shared) return; /* decoders are in this process */
    for (int i = 0; i < ring->depth; i++) {
        size_t n = pl_sandbox_share(ring->at + (size_t)i * ring->stride, ring->pixels);
        if (n < shared.pixels) shared.pixels = n;
    }
    for (int i = 0; i < threads && i < s->o.threads && shared.pixels; i++)
        pl_decoder_use_ring(s->threads[i].decoder, &shared);
}

static void close_thread(pl_image_thread *t)
{
    const pl_image_range *ranges[4] = {&t->file, &t->pixels, &t->resized, &t->work};
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
    pthread_cond_destroy(&s->room.changed);
    pthread_mutex_destroy(&s->lock);
    pl_sys_free(s);
}

/* ---- room for large images ------------------------------------------------------------------ */
/* The room is shared by all threads of a set. A thread that finds too little of it left releases
 * its share, with its pages, waits until the whole amount is free, and reads its file again. So no
 * thread waits while it holds memory that another thread waits for. */
/* Releases memory past `keep`. Pages that a sandbox shares are released for both. */
void pl__image_shrink(const pl_image_range *r, size_t keep, size_t used)
{
    if (used > keep && r->bytes > keep)
        madvise(r->at + keep, r->bytes - keep, r->shared ? MADV_REMOVE : MADV_DONTNEED);
}

static void give_back(pl_image_set *s, pl_image_thread *t)
{
    s->room.left += t->room;
    t->room = 0;
    pthread_cond_broadcast(&s->room.changed);
}

static void shrink_all(const pl_image_set *s, const pl_image_thread *t)
{
    pl__image_shrink(&t->file, PL_IMAGE_FILE_KEPT, SIZE_MAX);
    pl__image_shrink(&t->pixels, s->o.keep_bytes, SIZE_MAX);
    pl__image_shrink(&t->work, s->o.keep_bytes, SIZE_MAX);
}

void pl__image_room_leave(pl_image_set *s, pl_image_thread *t)
{
    if (!t->room) return;
    shrink_all(s, t);
    pthread_mutex_lock(&s->lock);
    give_back(s, t);
    pthread_mutex_unlock(&s->lock);
}

static pl_status no_room(const pl_image_set *s, size_t bytes, size_t beyond)
{
    char need[32], more[32], room[32];
    pl_str_bytes(bytes, need, sizeof need);
    pl_str_bytes(beyond, more, sizeof more);
    pl_str_bytes(s->o.room_bytes, room, sizeof room);
    PL_FAIL(PL_ERR_FIT,
            "reading it takes %s, %s more than a thread's share of the budget, and the budget "
            "leaves %s for large images: set data.large_memory=%lldMB, which the plan then keeps "
            "free, or make the image smaller",
            need, more, room, (long long)(beyond / 1000000 + 1));
}

pl_status pl__image_room_take(pl_image_set *s, pl_image_thread *t, size_t bytes)
{
    size_t own = s->o.thread_bytes + t->room;
    if (!s->o.bounded || bytes <= own) return PL_OK;
    size_t more = bytes - own, all = bytes - s->o.thread_bytes;
    if (all > s->o.room_bytes) return no_room(s, bytes, all);
    pthread_mutex_lock(&s->lock);
    t->again = more > s->room.left;
    if (t->again) {
        shrink_all(s, t);
        give_back(s, t);
        while (all > s->room.left) pthread_cond_wait(&s->room.changed, &s->lock);
        more = all;
    }
    s->room.left -= more;
    t->room += more;
    pthread_mutex_unlock(&s->lock);
    return t->again ? PL_ERR_MEMORY : PL_OK;
}

/* ---- what is there -------------------------------------------------------------------------- */
const pl_items *pl_image_set_items(const pl_image_set *s)
{
    return s->items;
}

void pl_image_set_relabel(pl_image_set *s, const int32_t *label)
{
    for (int64_t i = 0; i < s->items->n; i++)
        s->items->item[i].label = label[s->items->item[i].label];
}

int64_t pl_image_set_size(const pl_image_set *s, bool eval)
{
    return s->n[eval];
}

bool pl_image_set_weighted(const pl_image_set *s)
{
    return s->cumulated != NULL;
}

int64_t pl_weighted_draw(const double *cumulated, int64_t lo, int64_t hi, double u)
{
    double before = lo ? cumulated[lo - 1] : 0;
    double want = before + u * (cumulated[hi - 1] - before);
    for (hi--; lo < hi;) {
        int64_t mid = (lo + hi) / 2;
        if (cumulated[mid] > want)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

int64_t pl_image_set_draw(const pl_image_set *s, double u)
{
    return pl_weighted_draw(s->cumulated, 0, s->n[0], u);
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
