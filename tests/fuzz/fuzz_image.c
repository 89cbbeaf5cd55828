/* fuzz_image.c - any bytes are refused or are an image of the size that its header says. */
#include "data/image/image.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What pl_image_decode gave, row by row. */
typedef struct rows {
    const uint8_t *rgb;
    size_t wide;
    int next;
} rows;

static void compare_row(void *ctx, int y, const uint8_t *row)
{
    rows *r = ctx;
    if (y != r->next++ || (r->rgb && memcmp(row, r->rgb + (size_t)y * r->wide, r->wide) != 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pl_decoder *d;
    const pl_image_limits limits = {.max_pixels = 1 << 20, .min_side = 1, .max_side = 65535};
    pl_image_info info;
    int w, h;
    if (!d && pl_decoder_new(&d) != PL_OK) abort();
    if (pl_image_probe(d, data, size, &limits, &info) != PL_OK) return 0;
    if (info.width < 1 || info.height < 1 || (int64_t)info.width * info.height > 1 << 20) abort();
    int want = size % 2 ? 0 : 16;
    pl_image_scaled(&info, want, want, &w, &h);
    /* exactly: the sanitizer sees what is past it */
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 4);
    bool ok = rgb && pl_image_decode(d, data, size, &info, w, h, rgb) == PL_OK;
    if (ok) {
        volatile uint8_t last = rgb[(size_t)w * (size_t)h * 3 - 1];
        (void)last;
    }
    if (info.by_rows) {
        rows r = {ok ? rgb : NULL, (size_t)info.width * 3, 0};
        uint8_t *row = malloc(r.wide);
        pl_status rc = row ? pl_image_rows(data, size, &info, row, compare_row, &r) : PL_ERR_MEMORY;
        if (rc == PL_OK && r.next != info.height) abort();
        free(row);
    }
    free(rgb);
    return 0;
}
