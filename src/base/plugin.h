/* plugin.h - finding and opening the program's plug-ins (CUDA, MPI).
 *
 * A plug-in lies beside the program, in ../lib/plimsoll, or where an environment variable says; the
 * variable, if it is set, names the only place.
 */
#ifndef PL_BASE_PLUGIN_H
#define PL_BASE_PLUGIN_H

#include <stddef.h>

/* Opens the first file that is there, with dlopen's flags, and writes its path. NULL with path "":
 * no place has it. NULL with a path: dlopen refuses it, and dlerror() says why. */
void *pl_plugin_open(const char *file, const char *variable, int flags, char *path, size_t cap);
/* The places that are searched, as text: "a or b". */
void pl_plugin_places(const char *file, const char *variable, char *out, size_t cap);

#endif
