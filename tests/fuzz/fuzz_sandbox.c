/* fuzz_sandbox.c - a sandbox that is taken over answers with any bytes: the caller refuses the
 * reply, or what it takes from it stays inside its own memory.
 *
 * The input is a list of answers: a byte that says whether the process lives, the status, a message
 * and the bytes of the reply, until the input ends. */
#include "base/trust/sandbox.h"
#include "data/image/image.h"
#include "data/sets/array.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 4096, MAX_PIXELS = 64 * 64, PIXEL_BYTES = 4 * MAX_PIXELS };

static const uint8_t *input;
static size_t left;

static void take(void *to, size_t n)
{
    size_t have = n < left ? n : left;
    memcpy(to, input, have);
    input += have;
    left -= have;
}

/* Bytes that the input does not reach stay as the caller has written them. */
static bool answer(void *request, size_t bytes, int32_t *status, char *message, size_t n)
{
    uint8_t first = 0;
    take(&first, 1);
    *status = first & 2 ? PL_OK : first >> 2;
    if (first & 4) take(message, n < 24 ? n : 24);
    if (first & 8) memset(message, 'x', n); /* without an end */
    take(request, bytes);
    return !(first & 1);
}

static void decode(const uint8_t *head)
{
    static pl_decoder_memory m;
    pl_image_limits limits = {MAX_PIXELS, 1, 4096, 0};
    pl_image_info info;
    pl_decoder *d;
    void *at;
    int w, h;
    if (!m.file) {
        size_t bytes[] = {FILE_BYTES, PIXEL_BYTES, PIXEL_BYTES, PIXEL_BYTES};
        uint8_t **to[] = {&m.file, &m.pixels, &m.resized, &m.work};
        for (int i = 0; i < 4; i++) {
            if (pl_sandbox_map(bytes[i], &at) != PL_OK) abort();
            *to[i] = at;
        }
        m.file_bytes = FILE_BYTES;
        m.pixel_bytes = m.resized_bytes = m.work_bytes = PIXEL_BYTES;
    }
    memcpy(m.file, head, 16);
    if (pl_decoder_new(&d) != PL_OK) return;
    uint8_t *rgb = malloc(PIXEL_BYTES);
    if (pl_decoder_apart(d, &m) == PL_OK &&
        pl_image_probe(d, m.file, FILE_BYTES, &limits, &info) == PL_OK) {
        if (info.width < 1 || info.height < 1 || strlen(info.colour) > 16 ||
            (int64_t)info.width * info.height > MAX_PIXELS)
            abort();
        pl_image_scaled(&info, 8, 8, &w, &h);
        if (w < 1 || h < 1 || (int64_t)w * h > MAX_PIXELS) abort();
        pl_status rc = pl_image_decode(d, m.file, FILE_BYTES, &info, w, h, rgb);
        if (rc == PL_OK) rc = pl_image_indices(d, m.file, FILE_BYTES, &info, m.pixels);
        (void)rc;
    }
    free(rgb);
    pl_decoder_free(d);
}

/* The file only has to exist: the caller never reads it. */
static void read_array(void)
{
    static char path[64];
    if (!path[0]) {
        snprintf(path, sizeof path, "/dev/shm/pl_fuzz_sandbox_%d.h5", (int)getpid());
        FILE *f = fopen(path, "wb");
        if (!f) abort();
        fclose(f);
    }
    const char *paths[1] = {path};
    pl_type sample = pl_type_make(PL_F32, 1, (int64_t[]){3});
    pl_array *a = NULL;
    pl_sandbox_set_mode(PL_SANDBOX_AUTO);
    if (pl_array_open(paths, 1, "x", "x", NULL, &sample, &a) == PL_OK) {
        float *row = malloc(3 * sizeof *row); /* exactly: the sanitizer sees what is past it */
        for (int64_t i = 0; i < 3 && i < pl_array_rows(a); i++)
            if (pl_array_read(a, i, row) != PL_OK) break;
        free(row);
        pl_array_close(a);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 17) return 0;
    input = data + 17;
    left = size - 17;
    pl_sandbox_set_answer(answer);
    if (data[0] & 1)
        read_array();
    else
        decode(data + 1);
    return 0;
}
