/* pl_loader.c - decoding rate of the image loader relative to the JPEG library alone.
 *
 *   pl_loader DIR [side] [workers] [seconds] [sandbox]     DIR: a folder of JPEGs; sandbox: only
 *                                                          pairs without and with it
 *
 * Both decode the same files from the page cache: libturbojpeg from bytes in memory with one handle
 * per thread; the loader from the folder to batches of 8 images, f32 and then u8. Runs alternate,
 * and the median counts. The ratio is the rate of the loader over the rate of the library; beside
 * it is the ratio of processor time per image, which other programs on the machine disturb less,
 * and for the sandbox the ratio of the least processor times, which they disturb least, and how
 * often a process waits (voluntary context switches), which they do not disturb. Wall times on a
 * busy machine: chrt -f 1 pl_loader ..., as root, runs before all other programs.
 */
#include "base/sys.h"
#include "base/trust/sandbox.h"
#include "data/sets/images_int.h"
#include "data/sets/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCH = 8, ROUNDS = 15 };

typedef struct bench {
    pl_image_set *set;
    int side, workers;
    char **file;
    size_t *bytes;
    int64_t n;
    atomic_llong next, done;
    uint64_t until;
    bool u8; /* outputs: bytes instead of floats */
} bench;

/* One measurement. */
typedef struct rate {
    double wall, cpu; /* images per second, and per second of processor time */
    double waits;     /* voluntary context switches per image, of all processes */
} rate;

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Processor time of this process and of the sandboxes of the set; NULL: none. */
static double cpu_now(const pl_image_set *set)
{
    double sum = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; set && i < set->o.threads; i++) {
        clockid_t clock;
        int pid = pl_decoder_pid(set->threads[i].decoder);
        if (pid > 0 && clock_getcpuclockid(pid, &clock) == 0) sum += seconds_of(clock);
    }
    return sum;
}

static double waits_of(int pid)
{
    char path[64], line[256];
    long n = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) (void)sscanf(line, "voluntary_ctxt_switches: %ld", &n);
    if (f) fclose(f);
    return (double)n;
}

/* Voluntary context switches of this process and of the sandboxes of the set. */
static double waits_now(const pl_image_set *set)
{
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) != 0) return 0;
    double sum = (double)u.ru_nvcsw;
    for (int i = 0; i < set->o.threads; i++) {
        int pid = pl_decoder_pid(set->threads[i].decoder);
        if (pid > 0) sum += waits_of(pid);
    }
    return sum;
}

static void *decode_alone(void *ctx)
{
    bench *b = ctx;
    pl_decoder *d;
    pl_image_limits limits = PL_IMAGE_LIMITS_INIT;
    uint8_t *rgb = malloc((size_t)b->side * (size_t)b->side * 4);
    if (!rgb || pl_decoder_new(&d) != PL_OK) return NULL;
    while (pl_sys_now_ns() < b->until) {
        int64_t i = atomic_fetch_add(&b->next, 1) % b->n;
        pl_image_info info;
        if (pl_image_probe(d, b->file[i], b->bytes[i], &limits, &info) != PL_OK ||
            info.width > b->side || info.height > b->side ||
            pl_image_decode(d, b->file[i], b->bytes[i], &info, info.width, info.height, rgb) !=
                PL_OK)
            break;
        atomic_fetch_add(&b->done, 1);
    }
    pl_decoder_free(d);
    free(rgb);
    return NULL;
}

static rate rate_alone(bench *b, double seconds)
{
    pthread_t t[64];
    atomic_store(&b->done, 0);
    uint64_t t0 = pl_sys_now_ns();
    double c0 = cpu_now(NULL);
    b->until = t0 + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < b->workers; i++) pthread_create(&t[i], NULL, decode_alone, b);
    for (int i = 0; i < b->workers; i++) pthread_join(t[i], NULL);
    double n = (double)atomic_load(&b->done);
    return (rate){n / (1e-9 * (double)(pl_sys_now_ns() - t0)), n / (cpu_now(NULL) - c0), 0};
}

static pl_status fill(void *ctx, int64_t position, void *buffer, int worker)
{
    bench *b = ctx;
    size_t image = (size_t)b->side * (size_t)b->side * 3 * (b->u8 ? 1 : sizeof(float));
    for (int k = 0; k < BATCH; k++) {
        atomic_fetch_add(&b->next, 1);
        pl_pixels to = {.data = (char *)buffer + (size_t)k * image,
                        .bytes = b->u8,
                        .w = b->side,
                        .h = b->side,
                        .channels = 3,
                        .low = -1,
                        .high = 1};
        pl_image_read r = {
            .sample = (position * BATCH + k) % b->n, .thread = worker, .to = &to, .n_to = 1};
        PL_TRY(pl_image_set_read(b->set, &r));
    }
    return PL_OK;
}

static void share(void *ctx, void *buffers, size_t stride, int depth)
{
    bench *b = ctx;
    pl_image_set_use_ring(
        b->set, b->workers,
        &(pl_decoder_ring){
            .at = buffers, .stride = stride, .depth = depth, .pixels = b->u8 ? stride : 0});
}

static rate rate_loader(bench *b, double seconds)
{
    pl_loader *l;
    pl_loader_opts o = {.workers = b->workers,
                        .depth = b->workers + 1,
                        .fill = fill,
                        .ring = share,
                        .ctx = b,
                        .buffer_bytes =
                            (size_t)b->side * (size_t)b->side * 3 * sizeof(float) * BATCH};
    if (pl_loader_new(&o, &l) != PL_OK) return (rate){0};
    void *buffer;
    int64_t p = 0;
    /* pages of the ring appear at their first use, by each worker's sandbox */
    for (; p < 2 * o.workers * o.depth; p++) {
        if (pl_loader_take(l, p, &buffer) != PL_OK) fprintf(stderr, "%s\n", pl_error_text());
        pl_loader_done(l);
    }
    int64_t first = p, next = atomic_load(&b->next);
    double c0 = cpu_now(b->set), w0 = waits_now(b->set);
    uint64_t t0 = pl_sys_now_ns(), until = t0 + (uint64_t)(seconds * 1e9);
    for (; pl_sys_now_ns() < until && pl_loader_take(l, p, &buffer) == PL_OK; p++)
        pl_loader_done(l);
    double n = (double)((p - first) * BATCH), seconds_all = 1e-9 * (double)(pl_sys_now_ns() - t0);
    pl_loader_free(l); /* waits for what is being filled: that time counts, and those images */
    double filled = (double)(atomic_load(&b->next) - next);
    return (rate){n / seconds_all, filled / (cpu_now(b->set) - c0),
                  (waits_now(b->set) - w0) / filled};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Pairs of runs without and with a sandbox for the decoders. */
static void compare_sandbox(bench *b, pl_image_set *apart, double seconds)
{
    double ratio[ROUNDS], plain[ROUNDS], boxed[ROUNDS], cpu[ROUNDS], best[2] = {0}, waits[2] = {0};
    pl_image_set *set = b->set;
    for (int i = 0; i < ROUNDS; i++) {
        b->set = set;
        rate x = rate_loader(b, seconds);
        b->set = apart;
        rate y = rate_loader(b, seconds);
        plain[i] = x.wall;
        boxed[i] = y.wall;
        ratio[i] = y.wall / x.wall;
        cpu[i] = y.cpu / x.cpu;
        if (x.cpu > best[0]) best[0] = x.cpu;
        if (y.cpu > best[1]) best[1] = y.cpu;
        waits[0] += x.waits / ROUNDS;
        waits[1] += y.waits / ROUNDS;
    }
    b->set = set;
    qsort(plain, ROUNDS, sizeof *plain, by_value);
    qsort(boxed, ROUNDS, sizeof *boxed, by_value);
    qsort(cpu, ROUNDS, sizeof *cpu, by_value);
    qsort(ratio, ROUNDS, sizeof *ratio, by_value);
    printf(
        "loader to %s batches %6.0f images/s, with data.sandbox %6.0f images/s, %d threads each: "
        "ratio %.3f (median of %d pairs; %.3f to %.3f), of processor time %.3f, of the least "
        "processor time %.3f; waits per image %.2f and %.2f\n",
        b->u8 ? "u8" : "f32", plain[ROUNDS / 2], boxed[ROUNDS / 2], b->workers, ratio[ROUNDS / 2],
        ROUNDS, ratio[0], ratio[ROUNDS - 1], cpu[ROUNDS / 2], best[1] / best[0], waits[0],
        waits[1]);
}

static bool read_files(bench *b)
{
    const pl_items *items = pl_image_set_items(b->set);
    b->n = items->n;
    b->file = calloc((size_t)b->n, sizeof *b->file);
    b->bytes = calloc((size_t)b->n, sizeof *b->bytes);
    for (int64_t i = 0; i < b->n; i++) {
        char path[4096];
        if (pl_sys_read_file(pl_item_path(items, &items->item[i], path, sizeof path), 1 << 30,
                             &b->file[i], &b->bytes[i]) != PL_OK)
            return false;
    }
    return true;
}

static void compare(bench *b, double seconds)
{
    double alone[ROUNDS], loader[ROUNDS], ratio[ROUNDS], cpu[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        rate x = rate_alone(b, seconds), y = rate_loader(b, seconds);
        alone[i] = x.wall;
        loader[i] = y.wall;
        ratio[i] = y.wall / x.wall;
        cpu[i] = y.cpu / x.cpu;
    }
    qsort(alone, ROUNDS, sizeof *alone, by_value);
    qsort(loader, ROUNDS, sizeof *loader, by_value);
    qsort(ratio, ROUNDS, sizeof *ratio, by_value);
    qsort(cpu, ROUNDS, sizeof *cpu, by_value);
    printf(
        "libturbojpeg alone %6.0f images/s, loader to %s batches %6.0f images/s, %d threads each: "
        "ratio %.3f (median of %d pairs; %.3f to %.3f), of processor time %.3f\n",
        alone[ROUNDS / 2], b->u8 ? "u8" : "f32", loader[ROUNDS / 2], b->workers, ratio[ROUNDS / 2],
        ROUNDS, ratio[0], ratio[ROUNDS - 1], cpu[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    bench b = {.side = argc > 2 ? atoi(argv[2]) : 512, .workers = argc > 3 ? atoi(argv[3]) : 2};
    double seconds = argc > 4 ? atof(argv[4]) : 1;
    pl_image_set_opts o = {.items = {.path = argv[1]},
                           .limits = PL_IMAGE_LIMITS_INIT,
                           .augment = {.scale = {1, 1}},
                           .threads = b.workers + 1,
                           .keep_bytes = 16 << 20,
                           .most_w = b.side,
                           .most_h = b.side};
    if (pl_image_set_open(&o, &b.set) != PL_OK || !read_files(&b)) {
        fprintf(stderr, "%s\n", pl_error_text());
        return 1;
    }
    pl_image_set *apart;
    pl_sandbox_set_mode(PL_SANDBOX_ON);
    if (pl_image_set_open(&o, &apart) != PL_OK) {
        fprintf(stderr, "%s\n", pl_error_text());
        apart = NULL;
    }
    bool only_sandbox = argc > 5 && strcmp(argv[5], "sandbox") == 0;
    for (int u8 = 0; u8 < 2; u8++) {
        b.u8 = u8;
        if (!only_sandbox) compare(&b, seconds);
        if (apart) compare_sandbox(&b, apart, seconds);
    }
    return 0;
}
