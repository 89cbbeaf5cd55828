/* output_file.c - a file that a command writes appears under its name complete, or not at all. */
#include "cli/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *cli_name_aside(const char *path)
{
    const char *slash = strrchr(path, '/');
    int dir = slash ? (int)(slash - path + 1) : 0;
    return cli_text("%.*s.%.200s.%d.tmp", dir, path, path + dir, (int)getpid());
}

/* Pipes, devices and links are written directly: a rename would replace them. */
bool cli_file_open(cli_file *f, const char *path)
{
    struct stat st;
    bool there = lstat(path, &st) == 0;
    *f = (cli_file){.path = path};
    if (there && !S_ISREG(st.st_mode)) {
        f->f = fopen(path, "we");
        return f->f != NULL;
    }
    f->aside = cli_name_aside(path);
    if (!f->aside) return false;
    int fd = open(f->aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                  there ? st.st_mode & 0777 : 0666);
    f->f = fd < 0 ? NULL : fdopen(fd, "w");
    if (f->f) return true;
    int err = errno;
    if (fd >= 0) close(fd), unlink(f->aside);
    free(f->aside);
    errno = err;
    return false;
}

bool cli_file_close(cli_file *f, bool ok)
{
    ok = ok && fflush(f->f) == 0 && !ferror(f->f);
    if (f->aside) ok = ok && fsync(fileno(f->f)) == 0;
    int err = errno;
    if (fclose(f->f) != 0 && ok) ok = false, err = errno;
    if (f->aside && ok && rename(f->aside, f->path) != 0) ok = false, err = errno;
    if (f->aside && !ok) unlink(f->aside);
    free(f->aside);
    errno = err;
    return ok;
}
