/* library.c - see library.h. */
#include "data/image/library.h"

#include <dlfcn.h>

bool pl_library_load(const char *const *names, const char *const *symbols, int n, void **table)
{
    void *lib = NULL;
    for (int i = 0; !lib && names[i]; i++) lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; lib && i < n; i++)
        if (!(table[i] = dlsym(lib, symbols[i]))) return false;
    return lib != NULL;
}
