/* inspect_images.c - decodes every image of a set once and reports on each, for `inspect data`. The
 * team of threads decodes a chunk at a time; reports come in the order of the samples. */
#include "base/sys.h"
#include "base/threads.h"
#include "data/sets/array.h"
#include "data/sets/images.h"
#include "plimsoll_hdf5.h"
#include "train/run/run.h"

#include <stdio.h>
#include <string.h>

enum { CHUNK = 128, MESSAGE = 512 };

typedef struct result {
    pl_status rc;
    pl_image_info info;
    char message[MESSAGE];
} result;

typedef struct scan {
    pl_image_set *set;
    int64_t first;
    result *results;
    const pl_data_scan_opts *o;
} scan;

static void check_one(void *ctx, int64_t task, int worker)
{
    scan *s = ctx;
    result *r = &s->results[task];
    r->rc = pl_image_set_check(s->set, s->first + task, worker, &r->info);
    if (r->rc != PL_OK) snprintf(r->message, sizeof r->message, "%s", pl_error_text());
}

static void tell(const scan *s, int64_t item, const result *r, pl_data_summary *sum)
{
    char path[4096];
    const pl_items *items = pl_image_set_items(s->set);
    const pl_item *i = &items->item[item];
    pl_data_file f = {.path = pl_item_path(items, i, path, sizeof path),
                      .format = pl_image_format_name(r->info.format),
                      .colour = r->info.colour ? r->info.colour : "?",
                      .label = i->label < items->n_classes ? items->classes[i->label] : NULL,
                      .problem = r->rc == PL_OK ? NULL : r->message,
                      .width = r->info.width,
                      .height = r->info.height,
                      .bits = r->info.bits,
                      .bytes = (uint64_t)i->bytes,
                      .eval = i->eval};
    sum->files++;
    sum->bad += r->rc != PL_OK;
    sum->eval += i->eval;
    sum->bytes += f.bytes;
    if (s->o->each) s->o->each(s->o->ctx, &f);
}

static pl_status scan_all(scan *s, pl_data_summary *sum)
{
    int64_t n = pl_image_set_items(s->set)->n;
    for (s->first = 0; s->first < n; s->first += CHUNK) {
        int64_t m = n - s->first < CHUNK ? n - s->first : CHUNK;
        pl_threads_for(m, check_one, s);
        for (int64_t k = 0; k < m; k++) {
            const result *r = &s->results[k];
            if (r->rc == PL_ERR_MEMORY || r->rc == PL_ERR_UNSUPPORTED)
                PL_FAIL(r->rc, "%s", r->message);
            tell(s, s->first + k, r, sum);
        }
        if (s->o->progress) s->o->progress(s->o->ctx, s->first + m, n);
    }
    return PL_OK;
}

pl_status pl_data_scan(const char *path, const pl_data_scan_opts *o, pl_data_summary *sum)
{
    pl_image_set_opts set = {.items = {.path = path, .eval_share = 0},
                             .limits = PL_IMAGE_LIMITS_INIT,
                             .threads = pl_threads_count(),
                             .keep_bytes = 16 << 20,
                             .most_w = 1,
                             .most_h = 1};
    scan s = {.o = o};
    memset(sum, 0, sizeof *sum);
    if (o->max_pixels > 0) set.limits.max_pixels = o->max_pixels;
    s.results = pl_sys_alloc(CHUNK * sizeof *s.results);
    pl_status rc = s.results ? pl_image_set_open(&set, &s.set) : PL_ERR_MEMORY;
    if (rc == PL_OK) {
        sum->classes = pl_image_set_items(s.set)->n_classes;
        sum->shards = pl_image_set_items(s.set)->n_shards;
        sum->ignored = pl_image_set_items(s.set)->ignored;
        pl_items_skipped(pl_image_set_items(s.set), sum->skipped, sizeof sum->skipped);
        rc = scan_all(&s, sum);
    }
    pl_image_set_close(s.set);
    pl_sys_free(s.results);
    return rc;
}

int pl_data_formats(pl_data_format *out, int cap)
{
    enum { IMAGES = PL_IMAGE_FORMATS - 1 };
    /* names of libraries are asked for once: a later question changes the text of an earlier one */
    static char why[IMAGES][128];
    for (int i = 0; i < IMAGES && i < cap; i++) {
        const char *missing = pl_image_missing((pl_image_format)(i + 1));
        snprintf(why[i], sizeof why[i], "%s", missing ? missing : "");
        out[i] = (pl_data_format){pl_image_format_name((pl_image_format)(i + 1)),
                                  missing ? why[i] : NULL};
    }
    if (IMAGES < cap) out[IMAGES] = (pl_data_format){"HDF5", pl_hdf5_missing()};
    return IMAGES + 1;
}
