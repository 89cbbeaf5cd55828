/* find_plugin.c - says where a plug-in of the program is; see ui.h. */
#include "ui.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cli_find_plugin(const char *file, const char *variable, char *path, size_t cap)
{
    static const char *const folders[] = {"", "/../lib/plimsoll"};
    const char *given = getenv(variable);
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    bool only_given = given && given[0];
    for (int i = 0; i < (only_given ? 1 : 2); i++) {
        if (only_given)
            snprintf(path, cap, "%s", given);
        else
            snprintf(path, cap, "%s%s/%s", self, folders[i], file);
        if (access(path, R_OK) == 0) return true;
    }
    path[0] = 0;
    return false;
}
