/* fuzz_image.c - any bytes are refused or are an image of the size that its header says. */
#include "data/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 4); /* exactly: the sanitizer sees what is past it */
    if (rgb && pl_image_decode(d, data, size, &info, w, h, rgb) == PL_OK) {
        volatile uint8_t last = rgb[(size_t)w * (size_t)h * 3 - 1];
        (void)last;
    }
    free(rgb);
    return 0;
}
