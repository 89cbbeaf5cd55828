/* test_sandbox.c - decoders in a process that may only compute: what a decoder that was taken over
 * can do, the same bits with and without, and what happens when a sandbox ends. */
#include "base/sys.h"
#include "base/trust/sandbox.h"
#include "data/sets/images_int.h"
#include "plimsoll_hdf5.h"
#include "tests/datasets/hdf5_file.h"
#include "tests/datasets/made_images.h"
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Skips where the system has no sandboxes; sets the mode. */
#define WANT_SANDBOX()                                                                             \
 do {                                                                                              \
  bool wanted_;                                                                                    \
  pl_sandbox_set_mode(PL_SANDBOX_ON);                                                              \
  if (pl_sandbox_wanted(&wanted_) != PL_OK) {                                                      \
   pl_sandbox_set_mode(PL_SANDBOX_OFF);                                                            \
   SKIP("no sandboxes here");                                                                      \
  }                                                                                                \
 } while (0)

typedef struct question {
    int what, answer;
} question;
enum { DOUBLE, CRASH, HOG, LOOP, FAIL };

static pl_status serve(void *state, void *request)
{
    question *q = request;
    char *volatile p; /* or a compiler leaves the memory out */
    volatile int *volatile nowhere = NULL;
    switch (q->what) {
    case CRASH: *nowhere = 1; break;
    case HOG:
        p = malloc((size_t)1 << 30);
        if (!p) return PL_ERR_MEMORY;
        free(p);
        break;
    case LOOP:
        for (volatile int i = 0;; i++) continue;
    case FAIL: PL_FAIL(PL_ERR_DATA, "the data are odd");
    default: break;
    }
    q->answer = 2 * q->answer + *(int *)state;
    return PL_OK;
}

static pl_status ask(pl_sandbox *s, int what, int *number)
{
    question *q = pl_sandbox_request(s);
    *q = (question){what, *number};
    pl_status rc = pl_sandbox_run(s);
    *number = q->answer;
    return rc;
}

TEST(sandbox_serves_and_is_replaced_when_it_ends)
{
    WANT_SANDBOX();
    pl_sandbox *s;
    int one = 1, n = 20;
    pl_sandbox_opts o = {.serve = serve,
                         .state = &one,
                         .request_bytes = sizeof(question),
                         .memory_bytes = 64 << 20,
                         .cpu_ms = 100};
    CHECK_OK(pl_sandbox_new(&o, &s));
    int pid = pl_sandbox_pid(s);

    CHECK_OK(ask(s, DOUBLE, &n));
    CHECK_INT(n, 41);
    CHECK_INT(ask(s, FAIL, &n), PL_ERR_DATA);
    CHECK_MSG(strcmp(pl_error_text(), "the data are odd") == 0, "%s", pl_error_text());
    CHECK_INT(ask(s, HOG, &n), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "more memory than its limit of 67 MB"), "%s",
              pl_error_text());
    CHECK_INT(pl_sandbox_pid(s), pid);
    CHECK_INT(ask(s, CRASH, &n), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "crashed in the sandbox (signal 11)"), "%s", pl_error_text());
    CHECK_INT(ask(s, LOOP, &n), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "more than 0.1 s of CPU time"), "%s", pl_error_text());

    n = 1;
    CHECK_OK(ask(s, DOUBLE, &n));
    CHECK_INT(n, 3);
    /* somebody else ends it while it waits: that is not the fault of the next file */
    pid = pl_sandbox_pid(s);
    kill(pid, SIGKILL);
    CHECK_OK(ask(s, DOUBLE, &n));
    CHECK_INT(n, 7);
    CHECK(pl_sandbox_pid(s) != pid);
    /* nor does a process that is suspended hold the caller up */
    kill(pl_sandbox_pid(s), SIGSTOP);
    CHECK_OK(ask(s, DOUBLE, &n));
    CHECK_INT(n, 15);
    /* signals of the caller's group do not end it */
    pid = pl_sandbox_pid(s);
    kill(pid, SIGTERM);
    kill(pid, SIGINT);
    CHECK_OK(ask(s, DOUBLE, &n));
    CHECK_INT(pl_sandbox_pid(s), pid);

    pl_sandbox_free(s);
    CHECK_MSG(kill(pid, 0) != 0 && errno == ESRCH, "the process stays");
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* A caller that is killed leaves no process behind. */
TEST(sandbox_ends_with_its_caller)
{
    WANT_SANDBOX();
    int ends[2], pid = 0, zero = 0;
    CHECK(pipe(ends) == 0);
    pid_t caller = fork();
    if (caller == 0) {
        pl_sandbox *s;
        pl_sandbox_opts o = {.serve = serve, .state = &zero, .request_bytes = sizeof(question)};
        int own = pl_sandbox_new(&o, &s) == PL_OK ? pl_sandbox_pid(s) : -1;
        if (write(ends[1], &own, sizeof own) != sizeof own) _exit(1);
        for (;;) pause();
    }
    CHECK(read(ends[0], &pid, sizeof pid) == sizeof pid && pid > 0);

    kill(caller, SIGKILL);
    waitpid(caller, NULL, 0);
    bool stays = true;
    for (int i = 0; stays && i < 500; i++) {
        char path[64], text[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        int fd = open(path, O_RDONLY);
        if (fd >= 0 && read(fd, text, sizeof text - 1) < 0) text[0] = 0;
        if (fd >= 0) close(fd);
        stays = fd >= 0 && !strstr(text, ") Z ");
        if (stays) usleep(10000);
    }
    CHECK_MSG(!stays, "process %d stays", pid);

    close(ends[0]);
    close(ends[1]);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* A fork asks a sandbox of its own, and neither asks nor ends the parent's. */
TEST(sandbox_of_a_fork_is_its_own)
{
    WANT_SANDBOX();
    pl_sandbox *s;
    int one = 1, n = 1, state = 0;
    pl_sandbox_opts o = {.serve = serve, .state = &one, .request_bytes = sizeof(question)};
    CHECK_OK(pl_sandbox_new(&o, &s));
    int pid = pl_sandbox_pid(s);
    pid_t child = fork();
    if (child == 0) {
        bool good = ask(s, DOUBLE, &n) == PL_OK && n == 3 && pl_sandbox_pid(s) != pid;
        pl_sandbox_free(s);
        _exit(good ? 0 : 1);
    }

    CHECK(waitpid(child, &state, 0) == child);
    CHECK_INT(state, 0);
    CHECK_OK(ask(s, DOUBLE, &n));
    CHECK_INT(n, 3);
    CHECK_INT(pl_sandbox_pid(s), pid);

    pl_sandbox_free(s);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* A ring of two buffers: the sandbox can write the pixels of both, and nothing else of them. */
static pl_status serve_write(void *state, void *request)
{
    (void)state;
    uint8_t *at;
    memcpy(&at, request, sizeof at);
    *at = 77;
    return PL_OK;
}

TEST(sandbox_writes_only_the_shared_pages_of_a_ring)
{
    WANT_SANDBOX();
    enum { PAGE = 4096, STRIDE = 4 * PAGE, PIXELS = 2 * PAGE + 100 };
    void *p;
    pl_sandbox *s;
    pl_sandbox_opts o = {.serve = serve_write, .request_bytes = sizeof p, .memory_bytes = 1 << 24};
    CHECK_OK(pl_sys_map((size_t)2 * STRIDE, &p));
    uint8_t *ring = p;
    for (int i = 0; i < 2; i++) CHECK_INT(pl_sandbox_share(ring + i * STRIDE, PIXELS), 2 * PAGE);
    CHECK_INT(pl_sandbox_share(ring + 100, PAGE), 0);
    CHECK_OK(pl_sandbox_new(&o, &s));

    static const struct {
        int at;
        bool shared;
    } rows[] = {{0, true},           {2 * PAGE - 1, true},      {2 * PAGE, false},
                {STRIDE - 1, false}, {STRIDE + PAGE + 5, true}, {STRIDE + 2 * PAGE, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t *at = ring + rows[i].at;
        memcpy(pl_sandbox_request(s), &at, sizeof at);
        CHECK_INT(pl_sandbox_run(s), rows[i].shared ? PL_OK : PL_ERR_DATA);
        CHECK_INT(*at, rows[i].shared ? 77 : 0);
    }
    pl_sandbox_free(s);
    pl_sys_unmap(p, (size_t)2 * STRIDE);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* Returns the kB of a field of /proc/self/smaps for the mapping at an address; -1: none. */
static long smaps_of(const void *at, const char *field)
{
    char line[512];
    bool here = false;
    long kb = -1;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = begin <= (unsigned long)at && (unsigned long)at < end;
        else if (here && strncmp(line, field, strlen(field)) == 0)
            kb = strtol(strchr(line, ':') + 1, NULL, 10);
    }
    if (f) fclose(f);
    return kb;
}

/* Pixels that fill large pages lie in such, wherever the ring begins: where the kernel can
 * (Linux 6.1), as a mapping of the test's own tells. */
TEST(sandbox_shares_large_pages)
{
    enum { LARGE = 2 << 20, BYTES = 4 * LARGE, COLLAPSE = 25 };
    void *p;
    CHECK_OK(pl_sys_map(BYTES, &p));
    char *own = (char *)p + (LARGE - (uintptr_t)p % LARGE) % LARGE;
    void *q =
        mmap(own, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(q == own);
    memset(own, 1, LARGE);
    bool can = madvise(own, LARGE, COLLAPSE) == 0;
    char *ring = (char *)p + 3 * 4096;
    CHECK_INT(pl_sandbox_share(ring, BYTES - 3 * 4096), BYTES - 3 * 4096);
    ring[0] = ring[BYTES - 3 * 4096 - 1] = 7;
    if (can) CHECK(smaps_of(ring, "ShmemPmdMapped:") >= LARGE / 1024);
    pl_sys_unmap(p, BYTES);
    if (!can) SKIP("the kernel makes no large pages of shared memory");
}

/* ---- pictures --------------------------------------------------------------------------- */
/* JPEGs of the size that a batch wants are decoded where the batch lies; one that reaches beyond
 * the shared pages is copied. The bytes are the same. */
TEST(sandbox_decodes_into_the_ring)
{
    WANT_SANDBOX();
    enum { SIDE = 64, PICTURE = SIDE * SIDE * 3, N = 6, STRIDE = 20 * 4096, PIXELS = 15 * 4096 };
    static uint8_t plain[N][PICTURE];
    char dir[512];
    void *p;
    pl_image_set *s;
    snprintf(dir, sizeof dir, "%s/set", pl_test_dir());
    CHECK(image_folder(dir, N, 1, SIDE, SIDE, 0));
    pl_image_set_opts o = image_set_options(dir, SIDE);
    CHECK_OK(pl_sys_map((size_t)2 * STRIDE, &p));
    uint8_t *ring = p;
    for (int apart = 0; apart < 2; apart++) {
        pl_sandbox_set_mode(apart ? PL_SANDBOX_ON : PL_SANDBOX_OFF);
        CHECK_OK(pl_image_set_open(&o, &s));
        pl_image_set_use_ring(
            s, 1, &(pl_decoder_ring){.at = ring, .stride = STRIDE, .depth = 2, .pixels = PIXELS});
        memset(s->threads[0].pixels.at, 5, PICTURE);
        for (int i = 0; i < N; i++) {
            uint8_t *at = apart ? ring + STRIDE + i * PICTURE : plain[i];
            pl_pixels to = {.data = at, .bytes = true, .w = SIDE, .h = SIDE, .channels = 3};
            pl_image_read r = {.sample = i, .to = &to, .n_to = 1};
            CHECK_OK(pl_image_set_read(s, &r));
            bool copied = apart && memcmp(s->threads[0].pixels.at, plain[i], PICTURE) == 0;
            CHECK_INT(copied, apart && (i + 1) * PICTURE > PIXELS);
            CHECK(memcmp(at, plain[i], PICTURE) == 0);
        }
        pl_image_set_close(s);
    }
    pl_sys_unmap(p, (size_t)2 * STRIDE);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

static void write_fake(const char *name, char what)
{
    FILE *f = fopen(pl_test_path(name), "wb");
    if (!f) return;
    fwrite("RIFF....WEBP", 1, 12, f);
    for (int i = 0; i < 64; i++) fputc(what, f);
    fclose(f);
}

/* Every file of the set takes its decoder over in another way. With the sandbox it is a bad file
 * with its name, whatever it does, and nothing of what it wants happens. */
TEST(sandbox_turns_a_decoder_that_is_taken_over_into_a_bad_file)
{
    WANT_BIN();
    WANT_SANDBOX();
    static const char kinds[] = "cmowkplstx";
    char name[64];
    if (pl_image_missing(PL_IMAGE_WEBP)) SKIP("built without libwebp");
    CHECK(mkdir(pl_test_path("set"), 0700) == 0 && mkdir(pl_test_path("set/a"), 0700) == 0 &&
          mkdir(pl_test_path("set/b"), 0700) == 0);
    for (int i = 0; kinds[i]; i++) {
        snprintf(name, sizeof name, "set/a/%c.webp", kinds[i]);
        write_fake(name, kinds[i]);
    }
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "set/%c/good%d.webp", i % 2 ? 'a' : 'b', i);
        write_fake(name, 'g');
    }

    cli_result r = cli_run(
        "cd %s && LD_LIBRARY_PATH=%s/webp $P train classify/tiny side=16 "
        "data.path=set data.eval_share=0 eval.every=0 batch=6 train.steps=6 data.on_bad=skip "
        "data.sandbox=on --out run",
        pl_test_dir(), cli_fakes());
    CHECK_MSG(r.code == 0, "%d: %s", r.code, r.err);
    for (int i = 0; kinds[i]; i++) {
        snprintf(name, sizeof name, "set/a/%c.webp", kinds[i]);
        /* writing is refused and the picture goes on */
        bool bad = strstr(r.err, name) || strstr(r.out, name);
        CHECK_MSG(bad == (kinds[i] != 'w'), "%s: %s%s", name, r.err, r.out);
    }
    CHECK(!strstr(r.err, "from the decoder") && !strstr(r.out, "from the decoder"));
    CHECK(access(pl_test_path("from-the-decoder"), F_OK) != 0);

    r = cli_run(
        "cd %s && rm set/a/[mowkplstx].webp && LD_LIBRARY_PATH=%s/webp $P train classify/tiny side=16 "
        "data.path=set data.eval_share=0 eval.every=0 batch=6 train.steps=6 data.sandbox=on --out second",
        pl_test_dir(), cli_fakes());
    CHECK_INT(r.code, 5);
    CHECK_MSG(strstr(r.err, "set/a/c.webp: its decoder crashed in the sandbox (signal 11)"), "%s",
              r.err);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* The same model to the bit, with 0 and 2 workers. */
TEST(sandbox_changes_no_bit_of_a_run)
{
    WANT_BIN();
    WANT_SANDBOX();
    cli_result r = cli_run(
        "cd %s && $P generate classify/tiny side=16 --raw --out set --samples 24 --eval-samples 8 "
        "--quiet && for how in off on; do for w in 0 2; do $P train classify/tiny side=16 "
        "data.path=set batch=6 train.steps=5 data.flip=0.5 data.crop=random data.workers=$w "
        "data.sandbox=$how --quiet --out $how$w || exit 1; done; done && cmp off0/model.safetensors "
        "on0/model.safetensors && cmp on0/model.safetensors on2/model.safetensors && cmp "
        "off2/model.safetensors on2/model.safetensors",
        pl_test_dir());
    CHECK_MSG(r.code == 0, "%s", r.err);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* The address space of the sandbox is limited by the system: auto says so in one line and goes on,
 * on stops. */
TEST(sandbox_that_cannot_be_made_is_told_once)
{
    WANT_BIN();
    WANT_SANDBOX();
    cli_result r = cli_run(
        "cd %s && $P generate classify/tiny side=16 --raw --out set --samples 24 --eval-samples 8 "
        "--quiet && PLIMSOLL_SANDBOX=none $P train classify/tiny side=16 data.path=set batch=6 "
        "train.steps=2 --out run",
        pl_test_dir());
    CHECK_INT(r.code, 0);
    const char *line = strstr(r.err, "decoders of images and HDF5 files run inside this process");
    CHECK_MSG(line && !strstr(line + 1, "decoders of images"), "%s", r.err);

    r = cli_run(
        "cd %s && PLIMSOLL_SANDBOX=none $P train classify/tiny side=16 data.path=set batch=6 "
        "train.steps=2 data.sandbox=on --out other",
        pl_test_dir());
    CHECK_MSG(r.code != 0 && strstr(r.err, "data.sandbox=on"), "%d: %s", r.code, r.err);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* ---- HDF5 ------------------------------------------------------------------------------- */
TEST(sandbox_reads_the_rows_of_hdf5_files)
{
    if (pl_hdf5_missing()) SKIP(pl_hdf5_missing());
    WANT_SANDBOX();
    float numbers[64], got[8];
    for (int i = 0; i < 64; i++) numbers[i] = (float)i * 0.5f;
    hdf5_field own = {"x", "H5T_NATIVE_FLOAT_g", 2, {8, 8}, numbers, NULL}, other = own;
    char raw[512];
    pl_hdf5 *h;
    snprintf(raw, sizeof raw, "%s", pl_test_path("raw.bin"));
    other.elsewhere = raw;
    if (!hdf5_file_write(pl_test_path("a.h5"), &own, 1)) SKIP("no libhdf5_serial");
    CHECK(hdf5_file_write(pl_test_path("b.h5"), &other, 1));

    CHECK_OK(pl_hdf5_open(pl_test_path("a.h5"), "x", &h));
    CHECK(pl_hdf5_type(h).rank == 2 && pl_hdf5_type(h).dim[1] == 8);
    for (int64_t row = 7; row >= 0; row--) {
        CHECK_OK(pl_hdf5_read(h, row, PL_F32, got));
        CHECK(memcmp(got, numbers + 8 * row, sizeof got) == 0);
    }
    pl_hdf5_close(h);
    CHECK_INT(pl_hdf5_open(pl_test_path("a.h5"), "y", &h), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "has no array \"y\""), "%s", pl_error_text());
    CHECK_INT(pl_hdf5_open(pl_test_path("b.h5"), "x", &h), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "external storage"), "%s", pl_error_text());
    CHECK_INT(pl_hdf5_open(pl_test_path("raw.bin"), "x", &h), PL_ERR_DATA);
    CHECK_MSG(strstr(pl_error_text(), "is not an HDF5 file"), "%s", pl_error_text());
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
}

/* Children of this process that run. */
static int children(void)
{
    char text[4096] = "", path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    if (f && fread(text, 1, sizeof text - 1, f) == 0) text[0] = 0;
    if (f) fclose(f);
    for (const char *at = text; *at; at++) n += *at == ' ';
    return n;
}

TEST(sandbox_processes_of_many_hdf5_arrays_are_limited)
{
    if (pl_hdf5_missing()) SKIP(pl_hdf5_missing());
    WANT_SANDBOX();
    enum { ARRAYS = 20, MOST = 16 };
    float numbers[16], got[4];
    for (int i = 0; i < 16; i++) numbers[i] = (float)i;
    hdf5_field field = {"x", "H5T_NATIVE_FLOAT_g", 2, {4, 4}, numbers, NULL};
    pl_hdf5 *h[ARRAYS];
    if (!hdf5_file_write(pl_test_path("a.h5"), &field, 1)) SKIP("no libhdf5_serial");
    int before = children();

    for (int i = 0; i < ARRAYS; i++) CHECK_OK(pl_hdf5_open(pl_test_path("a.h5"), "x", &h[i]));
    CHECK_MSG(children() - before <= MOST, "%d processes", children() - before);
    for (int i = 0; i < 2 * ARRAYS; i++) {
        CHECK_OK(pl_hdf5_read(h[i * 7 % ARRAYS], i % 4, PL_F32, got));
        CHECK(memcmp(got, numbers + 4 * (i % 4), sizeof got) == 0);
    }
    CHECK_MSG(children() - before <= MOST, "%d processes", children() - before);
    CHECK(pl_hdf5_process_bytes(ARRAYS, 100) == pl_hdf5_process_bytes(MOST, 100) &&
          pl_hdf5_process_bytes(1, 100) > 1 << 20);
    for (int i = 0; i < ARRAYS; i++) pl_hdf5_close(h[i]);
    CHECK_INT(children(), before);
    pl_sandbox_set_mode(PL_SANDBOX_OFF);
    CHECK_INT(pl_hdf5_process_bytes(1, 100), 0);
}
