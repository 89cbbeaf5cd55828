/* test_cuda_group_networks.c - generated kernels of whole networks and random graphs, tensors
 * beyond 32-bit indices, and the cache of compiled kernels on disk. */
#include "base/sys.h"
#include "base/trust/secret.h"
#include "cpu/tile/cpu_group.h"
#include "cuda/codegen/codegen_cache.h"
#include "pass/pass.h"
#include "tests/cuda/cuda_group_lab.h"
#include "tests/lib/graphs.h"
#include "tests/lib/test.h"
#include "tests/workloads/workloads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <xxhash.h>

/* ---- beyond 32 bits ---------------------------------------------------------------------- */
enum { FAR_ROWS = 2100, FAR_COLS = 6, FAR_AT = 3 };
static const int64_t FAR_ROW = 1 << 20; /* elements: FAR_ROWS of them are more than 2^31 */

/* The parts of a tensor of 2^31 elements that are read: a few of every row. */
static void far_apart(pl_graph *g)
{
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F32, FAR_ROWS, FAR_ROW));
    pl_val part = pl_slice(g, x, 1, FAR_AT, FAR_AT + FAR_COLS, 1);
    pl_output(g, "map", pl_scale(g, part, 2));
    pl_output(g, "rows", pl_sum(g, part, PL_AXIS(1), false));
    pl_output(g, "cols", pl_sum(g, part, PL_AXIS(0), false));
    pl_output(g, "all", pl_max_over(g, part, PL_AXIS(0) | PL_AXIS(1), false));
}

static float far_value(int64_t row, int64_t col)
{
    return (float)(row % 37 - 2 * col);
}

/* Whether a result of that many elements is one of far_apart's. */
static bool is_far_result(const float *y, int64_t n)
{
    double map = 0, rows = 0, cols = 0, most = -HUGE_VAL;
    for (int64_t r = 0; r < FAR_ROWS; r++)
        for (int64_t c = 0; c < FAR_COLS; c++) {
            float v = far_value(r, c);
            if (n == (int64_t)FAR_ROWS * FAR_COLS)
                map += fabs((double)(y[r * FAR_COLS + c] - 2 * v));
            if (n == FAR_ROWS) rows += (c ? 0 : (double)y[r]) - (double)v;
            if (n == FAR_COLS) cols += (r ? 0 : (double)y[c]) - (double)v;
            most = fmax(most, (double)v);
        }
    return map == 0 && fabs(rows) < 1e-3 && fabs(cols) < 1e-3 && (n != 1 || (double)y[0] == most);
}

/* Every group of a partition, on the simulator; values that inputs name lie at x. */
static void run_far(const group_job *j, int p, text_shop *shop, void *x)
{
    void *at[64] = {NULL};
    int wide = 0;
    CHECK(j->g->n_vals <= 64);
    for (uint32_t i = 0; i < j->units[p]->n; i++) {
        const pl_unit *u = &j->units[p]->unit[i];
        const pl_code *c = &j->code[p][i];
        const void *in[8];
        void *out[8], *work = calloc(1, c->work_bytes + 64);
        CHECK(u->kind == PL_UNIT_GROUP && u->n_in <= 8 && u->n_out <= 8);
        for (uint32_t k = 0; k < c->n_kernels; k++)
            wide += strstr(c->kernel[k].text, "typedef p_i64 I;") != NULL;
        for (uint32_t k = 0; k < u->n_in; k++) in[k] = at[u->in[k]] ? at[u->in[k]] : x;
        for (uint32_t k = 0; k < u->n_out; k++)
            out[k] = at[u->out[k]] =
                aligned_alloc(64, (pl_type_bytes(pl_type_of(j->g, u->out[k])) / 64 + 1) * 64);
        CHECK(text_shop_run(shop, c, in, out, work));
        for (uint32_t k = 0; k < u->n_out; k++) {
            int64_t n = pl_type_elems(pl_type_of(j->g, u->out[k]));
            bool slice = p == 1 && u->n_in == 1 && in[0] == x; /* alone it is only moved */
            CHECK_MSG(slice || is_far_result(out[k], n), "partition %d, a result of %lld elements",
                      p, (long long)n);
        }
        free(work);
    }
    CHECK_MSG(wide > 0, "no kernel has 64-bit indices");
    for (int i = 0; i < 64; i++) free(at[i]);
}

TEST(cuda_group_indices_beyond_32_bits_are_right)
{
    size_t bytes = (size_t)FAR_ROWS * (size_t)FAR_ROW * sizeof(float);
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (x == MAP_FAILED) SKIP("no room for 8 GiB of addresses");

    for (int64_t r = 0; r < FAR_ROWS; r++)
        for (int64_t c = 0; c < FAR_COLS; c++) x[r * FAR_ROW + FAR_AT + c] = far_value(r, c);
    group_job j = {.name = "far", .arena = PL_ARENA_INIT};
    text_shop *shop = text_shop_new();
    j.store = pl_store_new();
    j.g = pl_graph_new(j.store);
    far_apart(j.g);
    if (group_job_make(&j, shop) && text_shop_build(shop))
        for (int p = 0; p < 2; p++) run_far(&j, p, shop, x);
    text_shop_free(shop);
    group_job_free(&j);
    munmap(x, bytes);
}

/* A row with more elements than the 32-bit division supports is refused, not computed wrong. */
TEST(cuda_group_rows_longer_than_32_bits_are_refused)
{
    pl_store *store = pl_store_new();
    pl_graph *g = pl_graph_new(store);
    pl_arena a = PL_ARENA_INIT;
    pl_val x = pl_input(g, "x", PL_TYPE(PL_F16, 8, 3, 5000000001)),
           s = pl_input(g, "s", PL_TYPE(PL_F16, 3, 1));

    pl_output(g, "y", pl_mul(g, pl_mul(g, x, s), pl_input(g, "z", PL_TYPE(PL_F16, 3, 5000000001))));
    pl_fuse_opts o = PL_FUSE_OPTS_CUDA(NULL);
    pl_units *u = NULL;
    CHECK_OK(pl_fuse(g, &o, &u));
    for (uint32_t i = 0; i < u->n; i++) {
        pl_code code;
        if (u->unit[i].kind != PL_UNIT_GROUP) continue;
        CHECK_INT(pl_code_make(g, &u->unit[i], &a, &code), PL_ERR_UNSUPPORTED);
        CHECK_MSG(strstr(pl_error_text(), "5000000001"), "%s", pl_error_text());
    }
    pl_units_free(u);
    pl_arena_release(&a);
    pl_graph_free(g);
    pl_store_free(store);
}

/* ---- compiled kernels on disk ------------------------------------------------------------ */
TEST(cuda_group_cache_returns_compiled_kernels)
{
    const char *dir = pl_test_dir(), *text = "some text";
    char path[600], data[1000];
    size_t len = 0;

    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7);
    pl_code_key key = pl_code_key_of(text, strlen(text), "sm_90");
    pl_code_key other = pl_code_key_of(text, strlen(text), "sm_80");
    CHECK(key.hi != other.hi || key.lo != other.lo);
    CHECK(!pl_code_cache_read(dir, key, &len));

    pl_code_cache_write(dir, key, data, sizeof data);
    CHECK(!pl_code_cache_read(dir, other, &len));
    char *back = pl_code_cache_read(dir, key, &len);
    CHECK(back && len == sizeof data && memcmp(back, data, len) == 0);
    pl_sys_free(back);
    snprintf(path, sizeof path, "%s/kernel-%016llx%016llx", dir, (unsigned long long)key.hi,
             (unsigned long long)key.lo);
    char *file = NULL;
    CHECK_OK(pl_sys_read_file(path, 1 << 20, &file, &len));
    for (size_t at = 0; at < len; at += 97) { /* any damaged byte is detected */
        file[at] ^= 1;
        CHECK_OK(pl_sys_write_file(path, file, len));
        size_t n = 0;
        CHECK_MSG(!pl_code_cache_read(dir, key, &n), "byte %zu", at);
        file[at] ^= 1;
    }
    CHECK_OK(pl_sys_write_file(path, file, len - 1));
    CHECK(!pl_code_cache_read(dir, key, &len));
    pl_sys_free(file);
    CHECK(!pl_code_cache_read("", key, &len));

    snprintf(path, sizeof path, "%s/no/such/folder", dir);
    pl_code_cache_write(path, key, data, sizeof data);
    CHECK(!pl_code_cache_read(path, key, &len));
    CHECK(access(path, F_OK) != 0);
}

/* Somebody who can write the file, but does not have the secret of the user, plants a kernel with
 * the hash that needs no secret; or the file can be written by others. */
TEST(cuda_group_cache_refuses_a_planted_kernel)
{
    if (pl_keyed_missing()) SKIP(pl_keyed_missing());
    enum { HASH = 32, DATA = 48 }; /* offsets in the file */
    const char *dir = pl_test_dir();
    char path[600], *file = NULL;
    size_t len = 0, n = 0;
    pl_code_key key = pl_code_key_of("text", 4, "sm_90");
    pl_code_cache_write(dir, key, "the kernel", 10);
    snprintf(path, sizeof path, "%s/kernel-%016llx%016llx", dir, (unsigned long long)key.hi,
             (unsigned long long)key.lo);

    CHECK_OK(pl_sys_read_file(path, 1 << 20, &file, &len));
    CHECK_INT(len, DATA + 10);
    file[DATA] = 'T';
    XXH128_hash_t h = XXH3_128bits_withSeed(file + DATA, 10, key.lo);
    memcpy(file + HASH, &h, sizeof h);
    CHECK_OK(pl_sys_write_file(path, file, len));
    CHECK_MSG(!pl_code_cache_read(dir, key, &n), "a planted kernel is used");
    pl_sys_free(file);

    pl_code_cache_write(dir, key, "the kernel", 10);
    chmod(dir, 0755);
    chmod(path, 0666);
    CHECK_MSG(!pl_code_cache_read(dir, key, &n), "a file that others can write is used");
    chmod(path, 0600);
    file = pl_code_cache_read(dir, key, &n);
    CHECK(file && n == 10);
    pl_sys_free(file);
    chmod(dir, 0700);
}

/* Files in the folder that are not kernels: left behind by writers. */
static int left_behind(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += strstr(e->d_name, ".tmp-") != NULL;
    if (d) closedir(d);
    return n;
}

/* Processes write the same kernel while others read it: no reader sees half a kernel. */
TEST(cuda_group_cache_serves_processes_at_once)
{
    enum { WRITERS = 4, TIMES = 60, BYTES = 40000 };
    static char data[BYTES];
    const char *dir = pl_test_dir();
    pl_code_key key = pl_code_key_of("text", 4, "sm_90");
    pid_t child[WRITERS];
    int whole = 0, code;

    for (size_t i = 0; i < BYTES; i++) data[i] = (char)(i * 7);
    for (int w = 0; w < WRITERS; w++)
        if ((child[w] = fork()) == 0) {
            for (int i = 0; i < TIMES; i++) pl_code_cache_write(dir, key, data, BYTES);
            _exit(0);
        }
    for (int ended = 0; ended < WRITERS;) {
        size_t len = 0;
        char *back = pl_code_cache_read(dir, key, &len);
        CHECK(!back || (len == BYTES && memcmp(back, data, BYTES) == 0));
        CHECK_MSG(back || !whole, "a kernel that was there is not");
        whole += back != NULL;
        pl_sys_free(back);
        pid_t who = waitpid(-1, &code, WNOHANG);
        for (int w = 0; w < WRITERS; w++) ended += who == child[w];
    }
    size_t len = 0;
    char *back = pl_code_cache_read(dir, key, &len);

    CHECK(back && len == BYTES);
    pl_sys_free(back);
    CHECK_INT(left_behind(dir), 0);
}

TEST(cuda_group_random_graphs_match_the_cpu)
{
    enum { MOST = 200 };
    static group_job jobs[MOST];
    int n = pl_test_long() ? MOST : 12;
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < n; i++) {
        jobs[i].store = pl_store_new();
        jobs[i].g = random_graph(jobs[i].store, (uint64_t)i + 1, 5 + i % 70);
        jobs[i].name = "random";
    }
    group_jobs_check(jobs, n);
}

/* ---- whole networks --------------------------------------------------------------------- */
typedef struct network {
    const char *name;
    void (*build)(pl_nn *m, const void *config);
    const void *config;
} network;

/* Every group of the network has kernels; NVRTC compiles every step-th of them. */
static bool check_network(const network *w, pl_dtype low, int step)
{
    group_job j = {.store = pl_store_new(), .name = w->name};
    text_shop *shop = text_shop_new();
    j.g = pl_graph_new(j.store);
    pl_nn *m = pl_nn_new(j.g, true);
    w->build(m, w->config);
    bool ok = pl_nn_finish(m) == PL_OK;
    pl_nn_free(m);
    pl_fuse_opts o = {.max_row = 16384,
                      .max_nodes = PL_CODE_NODES,
                      .max_operands = PL_CODE_OPERANDS,
                      .max_instrs = PL_CODE_INSTRS,
                      .max_repeat = 24,
                      .open = true};
    ok = ok &&
         pl_passes_run(&j.g, &(pl_pass_opts){.low = low, .open = true, .fuse = &o}) == PL_OK &&
         pl_fuse(j.g, &o, &j.units[0]) == PL_OK;
    int groups = 0, kernels = 0;
    for (uint32_t i = 0; ok && i < j.units[0]->n; i++) {
        pl_code c;
        if (j.units[0]->unit[i].kind != PL_UNIT_GROUP) continue;
        ok = pl_code_make(j.g, &j.units[0]->unit[i], &j.arena, &c) == PL_OK;
        int before = text_shop_count(shop);
        if (ok) text_shop_add(shop, &c);
        groups++;
        kernels += ok ? (int)c.n_kernels : 0;
        for (int k = before; ok && nvrtc_here() && k < text_shop_count(shop); k++) {
            size_t bytes;
            if (k % step == step - 1) ok = nvrtc_accepts(text_shop_text(shop, k), 90, &bytes);
        }
    }
    if (!ok) pl_test_fail(__FILE__, __LINE__, "%s: %s", w->name, pl_error_text());
    if (getenv("PL_TEST_COUNT"))
        printf("    %s %s: %d groups, %d kernels, %d texts\n", w->name, pl_dtype_name(low), groups,
               kernels, text_shop_count(shop));
    text_shop_free(shop);
    group_job_free(&j);
    return ok;
}

TEST(cuda_group_networks_match_the_cpu)
{
    static const network nets[] = {
        {"lgt", lgt_micro, &lgt_tiny},
        {"wan", wan_step, &wan_tiny},
        {"stablesr", sr_step, &sr_tiny},
        {"fluxflow", flux_generator, &flux_tiny_gan},
        {"fluxflow disc", flux_disc_r1, &flux_tiny_gan},
    };
    static const pl_dtype low[] = {PL_F32, PL_F16, PL_BF16};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        for (int d = 0; d < 3; d++) {
            if (!pl_test_long() && (i % 2 || (int)i % 3 != d)) continue;
            CHECK(check_network(&nets[i], low[d], pl_test_long() ? 1 : 40));
        }
}
