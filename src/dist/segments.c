/* segments.c - see segments.h. */
#include "dist/segments.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE "/dev/shm"

/* Removes a folder of this user with the files in it. A link or another user's folder stays. */
static void remove_folder(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return;
    DIR *d = fstat(fd, &st) == 0 && st.st_uid == geteuid() ? fdopendir(fd) : NULL;
    if (!d) {
        close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

/* Whether the process that made the folder has ended. */
static bool is_left_over(const char *name)
{
    unsigned uid;
    int pid, end = 0;
    if (sscanf(name, "plimsoll-%u-%d%n", &uid, &pid, &end) != 2 || name[end]) return false;
    return uid == geteuid() && pid > 1 && kill(pid, 0) != 0 && errno == ESRCH;
}

static void remove_old(void)
{
    char path[sizeof PLACE + 1 + sizeof((struct dirent *)0)->d_name];
    DIR *d = opendir(PLACE);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!is_left_over(e->d_name)) continue;
        snprintf(path, sizeof path, PLACE "/%s", e->d_name);
        remove_folder(path);
    }
    if (d) closedir(d);
}

void pl_segments_begin(pl_segments *s)
{
    remove_old();
    snprintf(s->path, sizeof s->path, PLACE "/plimsoll-%u-%d", (unsigned)geteuid(), (int)getpid());
    if (mkdir(s->path, 0700) != 0) {
        s->path[0] = 0;
        return;
    }
    setenv("OMPI_MCA_btl_vader_backing_directory", s->path, 0); /* Open MPI 4 */
    setenv("OMPI_MCA_btl_sm_backing_directory", s->path, 0);    /* and 5 */
}

void pl_segments_end(const pl_segments *s)
{
    if (s->path[0]) remove_folder(s->path);
}
