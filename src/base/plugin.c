/* plugin.c - finds and opens the plug-ins of the program, and libraries that are opened on first
 * use; see sys.h. A plug-in NAME is the file libplimsoll_NAME.so. */
#include "base/sys.h"
#include "plimsoll_unstable.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *variable;
} plugins[] = {{"cuda", "PLIMSOLL_PLUGIN"},
               {"mpi", "PLIMSOLL_MPI"},
               {"sentencepiece", "PLIMSOLL_SENTENCEPIECE"}};

static const char *variable_of(const char *name)
{
    for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++)
        if (strcmp(plugins[i].name, name) == 0) return plugins[i].variable;
    return NULL;
}

/* Writes the folder of the program, or of the shared library that has this code; false: unknown, or
 * the program has this code. */
static bool folder_of(bool library, char *folder, size_t cap)
{
    if (library) {
        Dl_info info;
        void *here;
        bool (*self)(bool, char *, size_t) = folder_of;
        memcpy(&here, &self, sizeof here);
        if (!dladdr(here, &info) || !strstr(info.dli_fname, ".so")) return false;
        snprintf(folder, cap, "%s", info.dli_fname);
    } else {
        ssize_t len = readlink("/proc/self/exe", folder, cap - 1);
        if (len <= 0) return false;
        folder[len] = 0;
    }
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    return slash != NULL;
}

/* Writes the n-th place to look for the plug-in; returns false after the last place. */
static bool place(const char *name, int n, char *path, size_t cap)
{
    static const struct {
        bool library; /* beside the shared library, else beside the program */
        const char *folder;
    } places[] = {
        {false, ""}, {false, "/../lib/plimsoll"}, {true, "/plimsoll"}, {true, "/../plimsoll"}};
    const char *variable = variable_of(name), *given = variable ? getenv(variable) : NULL;
    if (given && given[0]) {
        snprintf(path, cap, "%s", given);
        return n == 0;
    }
    if (!variable || n >= (int)(sizeof places / sizeof *places)) return false;
    if (!folder_of(places[n].library, path, cap)) return false;
    size_t used = strlen(path);
    snprintf(path + used, cap - used, "%s/libplimsoll_%s.so", places[n].folder, name);
    return true;
}

bool pl_plugin_find(const char *name, char *path, size_t cap)
{
    for (int n = 0; place(name, n, path, cap); n++)
        if (access(path, R_OK) == 0) return true;
    path[0] = 0;
    return false;
}

void *pl_plugin_open(const char *name, int flags, char *path, size_t cap)
{
    return pl_plugin_find(name, path, cap) ? dlopen(path, flags) : NULL;
}

void pl_plugin_places(const char *name, char *out, size_t cap)
{
    char path[2048];
    size_t used = 0;
    out[0] = 0;
    for (int n = 0; used < cap && place(name, n, path, sizeof path); n++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s", n ? " or " : "", path);
}

bool pl_library_load(const char *const *names, const char *const *symbols, int n, void **table)
{
    void *lib = NULL;
    for (int i = 0; !lib && names[i]; i++) lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; lib && i < n; i++)
        if (!(table[i] = dlsym(lib, symbols[i]))) return false;
    return lib != NULL;
}
