/* cuda_text.c - see cuda_text.h. */
#include "tests/cuda/cuda_text.h"

#include "base/str.h"
#include "base/sys.h"
#include "tests/lib/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVRTC ------------------------------------------------------------------------------ */
typedef struct nvrtc_api {
    void *lib;
    int (*create)(void **, const char *, const char *, int, const char *const *,
                  const char *const *);
    int (*compile)(void *, int, const char *const *);
    int (*log_size)(void *, size_t *);
    int (*log)(void *, char *);
    int (*cubin_size)(void *, size_t *);
    int (*destroy)(void **);
} nvrtc_api;

static void *symbol(void *lib, const char *name, void *to)
{
    void *at = dlsym(lib, name);
    memcpy(to, &at, sizeof at);
    return at;
}

/* Loaded once: the library cannot be closed and opened again. */
static const nvrtc_api *nvrtc(void)
{
    static nvrtc_api api;
    static bool tried;
    if (tried) return api.lib ? &api : NULL;
    tried = true;
    static const char *const names[] = {"libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    void *lib = NULL;
    for (size_t i = 0; !lib && i < sizeof names / sizeof *names; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (lib && symbol(lib, "nvrtcCreateProgram", &api.create) &&
        symbol(lib, "nvrtcCompileProgram", &api.compile) &&
        symbol(lib, "nvrtcGetProgramLogSize", &api.log_size) &&
        symbol(lib, "nvrtcGetProgramLog", &api.log) &&
        symbol(lib, "nvrtcGetCUBINSize", &api.cubin_size) &&
        symbol(lib, "nvrtcDestroyProgram", &api.destroy))
        api.lib = lib;
    return api.lib ? &api : NULL;
}

bool nvrtc_here(void)
{
    return nvrtc() != NULL;
}

bool nvrtc_accepts(const char *text, int arch, size_t *cubin_bytes)
{
    const nvrtc_api *n = nvrtc();
    char target[32];
    snprintf(target, sizeof target, "-arch=sm_%d", arch);
    const char *opts[] = {target, "--fmad=false", "-std=c++17", "-w"};
    void *prog = NULL;
    if (!n || n->create(&prog, text, "group.cu", 0, NULL, NULL)) return false;
    bool ok = n->compile(prog, 4, opts) == 0 && n->cubin_size(prog, cubin_bytes) == 0;
    size_t bytes = 0;
    if (!ok && n->log_size(prog, &bytes) == 0) {
        char *log = pl_sys_alloc(bytes + 1);
        n->log(prog, log);
        fprintf(stderr, "%s\n", log);
        pl_sys_free(log);
    }
    n->destroy(&prog);
    return ok;
}

bool nvrtc_accepts_by_turns(const char *text)
{
    static int turn;
    size_t bytes;
    int arch = turn++ % 2 ? 75 : 90;
    return nvrtc_accepts(text, arch, &bytes) &&
           (!pl_test_long() || nvrtc_accepts(text, 75 + 90 - arch, &bytes));
}

int nvrtc_stack_bytes(const char *text, int arch)
{
    const nvrtc_api *n = nvrtc();
    char target[32];
    snprintf(target, sizeof target, "-arch=sm_%d", arch);
    const char *opts[] = {target, "--fmad=false", "-std=c++17", "-w", "--ptxas-options=-v"};
    void *prog = NULL;
    int stack = -1;
    if (!n || n->create(&prog, text, "group.cu", 0, NULL, NULL)) return -1;
    size_t bytes = 0;
    if (n->compile(prog, 5, opts) == 0 && n->log_size(prog, &bytes) == 0) {
        char *log = pl_sys_alloc(bytes + 1);
        n->log(prog, log);
        const char *at = strstr(log, " bytes stack frame");
        while (at && at > log && at[-1] >= '0' && at[-1] <= '9') at--;
        if (at) stack = atoi(at);
        pl_sys_free(log);
    }
    n->destroy(&prog);
    return stack;
}

/* ---- the simulator ---------------------------------------------------------------------- */
typedef void (*launch_fn)(const void *args, unsigned grid, unsigned x, unsigned y, unsigned shared);

typedef struct entry {
    const char *text;
    size_t len;
    launch_fn fn;
} entry;

struct text_shop {
    entry *e;
    int n, cap;
    void *lib;
};

text_shop *text_shop_new(void)
{
    return pl_sys_alloc(sizeof(text_shop));
}

void text_shop_free(text_shop *s)
{
    if (!s) return;
    if (s->lib) dlclose(s->lib);
    pl_sys_free(s->e);
    pl_sys_free(s);
}

int text_shop_count(const text_shop *s)
{
    return s->n;
}

const char *text_shop_text(const text_shop *s, int i)
{
    return s->e[i].text;
}

static int find(const text_shop *s, const pl_code_kernel *k)
{
    for (int i = 0; i < s->n; i++)
        if (s->e[i].len == k->len && memcmp(s->e[i].text, k->text, k->len) == 0) return i;
    return -1;
}

void text_shop_add(text_shop *s, const pl_code *code)
{
    for (uint32_t i = 0; i < code->n_kernels; i++) {
        const pl_code_kernel *k = &code->kernel[i];
        if (find(s, k) >= 0) continue;
        if (s->n == s->cap) {
            size_t was = sizeof(entry) * (size_t)s->cap;
            s->cap = s->cap ? 2 * s->cap : 64;
            s->e = pl_sys_realloc(s->e, was, sizeof(entry) * (size_t)s->cap);
        }
        s->e[s->n++] = (entry){k->text, k->len, NULL};
    }
}

/* One file: the common beginning of all texts once, each kernel in a separate namespace. */
static bool write_source(const text_shop *s, const char *path, size_t prelude)
{
    FILE *f = fopen(path, "w");
    if (!f) return false;
    fprintf(f, "#include \"cudasim.h\"\n%.*s\n", (int)prelude, s->n ? s->e[0].text : "");
    for (int i = 0; i < s->n; i++) {
        fprintf(f, "#define " PL_CODE_ENTRY " kernel_%d\nnamespace n%d {\n%s}\n", i, i,
                s->e[i].text + prelude);
        fprintf(f,
                "#undef " PL_CODE_ENTRY
                "\nPL_SIM_API void run_%d(const void *a, unsigned g, unsigned x, "
                "unsigned y, unsigned s)\n{ pl_sim_call(dim3(g), dim3(x, y), s, n%d::kernel_%d, "
                "*static_cast<const n%d::p_args *>(a)); }\n",
                i, i, i, i);
    }
    return fclose(f) == 0;
}

static size_t common_prefix(const text_shop *s)
{
    const char *end = s->n ? strstr(s->e[0].text, "typedef int I;") : NULL;
    if (!end && s->n) end = strstr(s->e[0].text, "typedef p_i64 I;");
    return end ? (size_t)(end - s->e[0].text) : 0;
}

bool text_shop_build(text_shop *s)
{
    if (s->n == 0) return true;
    if (system("g++ --version > /dev/null 2>&1") != 0) {
        pl_test_skip("no g++");
        return false;
    }
    char src[512], lib[512], line[2048];
    snprintf(src, sizeof src, "%s/groups.cpp", pl_test_dir());
    snprintf(lib, sizeof lib, "%s/groups.so", pl_test_dir());
    const char *keep = getenv("PL_TEST_KEEP_TEXT");
    snprintf(line, sizeof line,
             "g++ -x c++ -std=c++17 -Og -D_GNU_SOURCE -fPIC -shared -fvisibility=hidden "
             "-ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fno-threadsafe-statics "
             "-fwrapv -Wno-unknown-pragmas %s -Itests/cudasim -Iinclude -Isrc -o %s %s",
#if defined(__SANITIZE_ADDRESS__)
             "-fsanitize=address,undefined -fno-sanitize-recover=all",
#else
             "",
#endif
             lib, keep ? keep : src);
    if (!write_source(s, keep ? keep : src, common_prefix(s)) || system(line) != 0) {
        pl_test_fail(__FILE__, __LINE__, "the C++ compiler refuses generated kernels");
        return false;
    }
    s->lib = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
    if (!s->lib) {
        pl_test_fail(__FILE__, __LINE__, "%s", dlerror());
        return false;
    }
    for (int i = 0; i < s->n; i++) {
        char name[32];
        snprintf(name, sizeof name, "run_%d", i);
        if (!symbol(s->lib, name, &s->e[i].fn)) return false;
    }
    return true;
}

const char *pl_sim_error(void);
int cudaGetLastError(void);

bool text_shop_run(text_shop *s, const pl_code *code, const void *const *in, void *const *out,
                   void *work)
{
    static uint64_t args[PL_CODE_ARGS / 8];
    for (uint32_t i = 0; i < code->n_kernels; i++) {
        const pl_code_kernel *k = &code->kernel[i];
        if (!pl_code_bind(k, in, out, work, args)) {
            pl_test_fail(__FILE__, __LINE__, "a pointer is aligned less than the text wants");
            return false;
        }
        s->e[find(s, k)].fn(args, k->grid, k->block_x, k->block_y, k->shared);
        if (cudaGetLastError() != 0) {
            pl_test_fail(__FILE__, __LINE__, "kernel %u: %s", i, pl_sim_error());
            return false;
        }
    }
    return true;
}
