/* cmd_doctor.c - `plimsoll doctor`: what this machine has, what is missing, what to install.
 *
 * Each check is one row: "ok", "missing" (a feature is off; nothing else is) or "FAIL" (training
 * does not work). The packages to install are collected from the reasons that the engine gives,
 * which end in "(apt-get install NAME, ...)", so that a new data format needs no change here.
 */
#include "cli/commands/parts.h"
#include "cli/ui.h"
#include "plimsoll_json.h"
#include "plimsoll_unstable.h"

#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 5, TEXT = 768 };
static const char network[] = "cloud/tiny";

typedef struct doctor {
    pl_json *json;
    int failed;
    char packages[TEXT]; /* each with a space before it */
    char path[4200];     /* of a plug-in */
} doctor;

typedef struct doctor_options {
    bool json;
} doctor_options;

const cli_help cli_help_doctor = {
    .usage = "plimsoll doctor",
    .about =
        "Checks this machine: processor, memory, optional libraries (data formats, tokenizers, "
        "watch),\nseveral ranks, GPU and driver, and trains a small network for a few steps. Says "
        "what is missing\nand how to install it. Exit code 1: training does not work here.",
    .examples = "  plimsoll doctor\n  plimsoll doctor --json\n",
    .options =
        (const cli_option[]){
            {"--json", NULL, offsetof(doctor_options, json),
             "print one JSON object: ok, install, checks[{name, state, detail}]"},
            {NULL},
        },
};

/* ---- rows -------------------------------------------------------------------------------- */
typedef enum row_state { OK, MISSING, FAILED } row_state;

static void print_row(doctor *d, const char *name, row_state state, const char *detail)
{
    static const char *const words[] = {"ok", "missing", "FAIL"};
    if (state == FAILED) d->failed++;
    if (!d->json) {
        printf("  %s%-8s%s %-14s %s\n", state == FAILED ? cli_red(stdout) : "", words[state],
               state == FAILED ? cli_plain(stdout) : "", name, detail);
        fflush(stdout);
        return;
    }
    pl_json_object(d->json, NULL);
    pl_json_string(d->json, "name", name);
    pl_json_string(d->json, "state", state == FAILED ? "failed" : words[state]);
    pl_json_string(d->json, "detail", detail);
    pl_json_end(d->json);
}

/* Adds packages, separated by spaces, that are not in the list yet; of "a or b", the first. */
static void want_packages(doctor *d, const char *names, size_t n)
{
    bool other = false; /* the word before is "or" */
    for (size_t i = 0; i < n;) {
        char name[96];
        size_t len = strcspn(names + i, " ");
        if (len > n - i) len = n - i;
        snprintf(name, sizeof name, " %.*s", (int)len, names + i);
        const char *at = strstr(d->packages, name);
        size_t used = strlen(d->packages);
        bool joins = strcmp(name, " or") == 0;
        if (len && !joins && !other && !(at && strchr(" ", at[strlen(name)])))
            snprintf(d->packages + used, sizeof d->packages - used, "%s", name);
        other = joins;
        i += len + 1;
    }
}

/* Prints a missing part, and adds the packages that its reason names to the list. */
static void print_missing(doctor *d, const char *name, const char *why)
{
    static const char mark[] = "apt-get install ";
    const char *at = strstr(why, mark);
    if (at) {
        at += sizeof mark - 1;
        want_packages(d, at, strcspn(at, ",);"));
    }
    print_row(d, name, MISSING, why);
}

/* ---- checks ------------------------------------------------------------------------------ */
static void check_processor(doctor *d)
{
    char text[TEXT];
    pl_device_info cpu;
    pl_device_list(&cpu, 1);
    snprintf(text, sizeof text, "%s; kernels use %d threads", cpu.about, pl_threads());
    print_row(d, "processor", OK, text);
    snprintf(text, sizeof text, "%s free of %s", cli_bytes(cpu.free_bytes),
             cli_bytes(cpu.total_bytes));
    print_row(d, "memory", OK, text);
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "version %d.%d.%d", v->major, v->minor, v->patch);
    print_row(d, "oneDNN", OK, text);
}

static void check_parts(doctor *d)
{
    cli_part p[CLI_PARTS_MAX];
    int n = cli_parts(p);
    for (int i = 0; i < n; i++)
        if (p[i].missing)
            print_missing(d, p[i].name, p[i].why_not);
        else
            print_row(d, p[i].name, OK, p[i].works);
}

/* Returns whether a program is in PATH. */
static bool in_path(const char *program)
{
    bool is = false;
    for (const char *p = getenv("PATH"); p && *p && !is;) {
        size_t n = strcspn(p, ":");
        char *path = cli_text("%.*s/%s", (int)n, p, program);
        is = n && path && access(path, X_OK) == 0;
        free(path);
        p += n + (p[n] == ':');
    }
    return is;
}

static void check_programs(doctor *d)
{
    char text[TEXT];
    bool plugin = pl_plugin_find("mpi", d->path, sizeof d->path);
    if (!plugin)
        print_missing(d, "several ranks",
                      "no MPI plug-in (apt-get install libopenmpi-dev openmpi-bin, then build "
                      "again)");
    else if (!in_path("mpirun"))
        print_missing(d, "several ranks", "no mpirun (apt-get install openmpi-bin)");
    else
        snprintf(text, sizeof text, "mpirun and %.600s", d->path),
            print_row(d, "several ranks", OK, text);
    if (!in_path("cc") || !in_path("make"))
        print_missing(d, "own networks",
                      "plimsoll new writes C, which needs a compiler and make (apt-get install gcc "
                      "libc6-dev make)");
    else
        print_row(d, "own networks", OK, "cc and make were found, for plimsoll new");
}

/* ---- GPU --------------------------------------------------------------------------------- */
/* Writes the versions of the driver and of its CUDA interface, from the management library. False:
 * no driver, or the library is too old to say. */
static bool driver_version(char *text, size_t cap)
{
    typedef int (*init_fn)(void);
    typedef int (*version_fn)(char *out, unsigned cap);
    typedef int (*cuda_fn)(int *out);
    char driver[96] = "";
    int cuda = 0;
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return false;
    init_fn init, shutdown;
    version_fn version;
    cuda_fn cuda_version;
    *(void **)&init = dlsym(lib, "nvmlInit_v2");
    *(void **)&shutdown = dlsym(lib, "nvmlShutdown");
    *(void **)&version = dlsym(lib, "nvmlSystemGetDriverVersion");
    *(void **)&cuda_version = dlsym(lib, "nvmlSystemGetCudaDriverVersion_v2");
    bool ok = init && version && init() == 0;
    if (ok && version(driver, sizeof driver) != 0) driver[0] = 0;
    if (ok && cuda_version && cuda_version(&cuda) != 0) cuda = 0;
    if (ok && shutdown) shutdown();
    dlclose(lib);
    if (!driver[0]) return false;
    snprintf(text, cap, "driver %s, CUDA up to %d.%d", driver, cuda / 1000, cuda % 1000 / 10);
    return true;
}

/* Returns whether the PCI bus has a display controller of NVIDIA, with or without a driver. */
static bool has_nvidia_gpu(void)
{
    glob_t found = {0};
    bool has = false;
    if (glob("/sys/bus/pci/devices/*/vendor", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !has; i++) {
            char path[512], vendor[16] = "", class[16] = "";
            snprintf(path, sizeof path, "%.*sclass", (int)strlen(found.gl_pathv[i]) - 6,
                     found.gl_pathv[i]);
            FILE *v = fopen(found.gl_pathv[i], "re"), *c = fopen(path, "re");
            has = v && c && fgets(vendor, sizeof vendor, v) && fgets(class, sizeof class, c) &&
                  strncmp(vendor, "0x10de", 6) == 0 && strncmp(class, "0x03", 4) == 0;
            if (v) fclose(v);
            if (c) fclose(c);
        }
    globfree(&found);
    return has;
}

static void check_gpus(doctor *d, const pl_device_info *list, int n)
{
    char text[TEXT];
    if (driver_version(text, sizeof text))
        print_row(d, "NVIDIA driver", OK, text);
    else if (has_nvidia_gpu())
        print_missing(d, "NVIDIA driver",
                      "this machine has an NVIDIA GPU, but no driver answers (apt-get install "
                      "nvidia-driver, from Debian's non-free)");
    if (pl_plugin_find("cuda", d->path, sizeof d->path)) print_row(d, "CUDA plug-in", OK, d->path);
    for (int i = 1; i < n; i++)
        if (list[i].usable) {
            snprintf(text, sizeof text, "%s; %s free of %s", list[i].about,
                     cli_bytes(list[i].free_bytes), cli_bytes(list[i].total_bytes));
            print_row(d, list[i].name, OK, text);
        } else {
            print_missing(d, list[i].name, list[i].why_not);
        }
}

/* ---- self-test --------------------------------------------------------------------------- */
/* Trains a few steps: the arena must have the planned size and the loss must be finite. */
static void self_test(doctor *d, const char *device)
{
    char where[64], name[64], text[TEXT];
    const char *keys[] = {where, "seed=1", "eval.every=0", "batch=16", "data.samples=64"};
    pl_run *run = NULL;
    pl_step_info first = {0}, last = {0};
    uint64_t planned = 0, mapped = 0;
    double began = cli_seconds();
    snprintf(where, sizeof where, "device=%s", device);
    snprintf(name, sizeof name, "self-test %s", device);
    pl_status rc = pl_run_open(network, keys, 5, &run);
    if (rc == PL_OK) rc = pl_run_build(run);
    if (rc == PL_OK) planned = pl_run_memory_get(run).arena;
    if (rc == PL_OK) rc = pl_run_start(run);
    if (rc == PL_OK) mapped = pl_session_arena_bytes(pl_run_session(run));
    for (int i = 0; rc == PL_OK && i < STEPS; i++) rc = pl_run_step(run, i ? &last : &first);
    pl_run_free(run);
    if (rc != PL_OK) {
        print_row(d, name, FAILED, pl_error_text()[0] ? pl_error_text() : pl_status_text(rc));
        return;
    }
    bool ok = planned == mapped && isfinite(last.loss);
    snprintf(text, sizeof text,
             "%d steps of %s in %.1f s; arena planned %s bytes, allocated %s; loss %.4g, then %.4g",
             STEPS, network, cli_seconds() - began, cli_count((int64_t)planned),
             cli_count((int64_t)mapped), first.loss, last.loss);
    print_row(d, name, ok ? OK : FAILED, text);
}

int cmd_doctor(int argc, char **argv)
{
    doctor_options o = {.json = false};
    doctor *d = cli_new(sizeof *d);
    int n;
    pl_status rc = PL_OK;
    cli_args a;
    cli_parse(argc, argv, &cli_help_doctor, &o, &a);
    cli_want(&a, 0, 0, "doctor", "no arguments");
    if (o.json) {
        d->json = pl_json_new(stdout);
        pl_json_object(d->json, NULL);
        pl_json_string(d->json, "version", pl_version());
        pl_json_array(d->json, "checks");
    } else {
        printf("%splimsoll %s%s\n", cli_bold(stdout), pl_version(), cli_plain(stdout));
    }
    check_processor(d);
    check_parts(d);
    check_programs(d);
    pl_device_info *list = cli_devices(false, &n);
    check_gpus(d, list, n);
    for (int i = 0; i < n; i++)
        if (list[i].usable) self_test(d, list[i].name);
    free(list);
    if (o.json) {
        pl_json_end(d->json);
        pl_json_string(d->json, "install", d->packages + strspn(d->packages, " "));
        pl_json_bool(d->json, "ok", d->failed == 0);
        pl_json_end(d->json);
        rc = pl_json_finish(d->json);
        pl_json_free(d->json);
    } else if (d->packages[0]) {
        printf("To install what is missing:\n  sudo apt-get install%s\n", d->packages);
    }
    int code = rc != PL_OK ? cli_fail(rc) : d->failed ? 1 : 0;
    free(d);
    return code;
}
