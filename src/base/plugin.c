/* plugin.c - finds and opens the plug-ins of the program; see sys.h. */
#include "base/sys.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The n-th place to look; false: there are no more. */
static bool place(const char *file, const char *variable, int n, char *path, size_t cap)
{
    static const char *const folders[] = {"", "/../lib/plimsoll"};
    const char *given = getenv(variable);
    char self[4096];
    if (given && given[0]) {
        snprintf(path, cap, "%s", given);
        return n == 0;
    }
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len <= 0 || n >= 2) return false;
    self[len] = 0;
    char *slash = strrchr(self, '/');
    if (!slash) return false;
    *slash = 0;
    snprintf(path, cap, "%s%s/%s", self, folders[n], file);
    return true;
}

void *pl_plugin_open(const char *file, const char *variable, int flags, char *path, size_t cap)
{
    for (int n = 0; place(file, variable, n, path, cap); n++)
        if (access(path, R_OK) == 0) return dlopen(path, flags);
    path[0] = 0;
    return NULL;
}

void pl_plugin_places(const char *file, const char *variable, char *out, size_t cap)
{
    char path[2048];
    size_t used = 0;
    out[0] = 0;
    for (int n = 0; used < cap && place(file, variable, n, path, sizeof path); n++)
        used += (size_t)snprintf(out + used, cap - used, "%s%s", n ? " or " : "", path);
}
