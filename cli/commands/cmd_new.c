/* cmd_new.c - `plimsoll new NAME`: a folder with a network to start from.
 *
 * The folder holds one C file (model, loss, data), a configuration and a Makefile, made from the
 * templates in cli/commands/new/. `make` there builds NAME.so, which every command accepts in place
 * of a built-in recipe. The network is a small classifier of points on two spirals: it learns
 * within seconds and is short enough to replace.
 */
#include "cli/ui.h"
#include "plimsoll_embed.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the templates @NAME@ stands for the network's name, @PLIMSOLL@ for this program's path. */
PL_EMBED(new_source, "cli/commands/new/network.c.in");
PL_EMBED(new_config, "cli/commands/new/config.yaml.in");
PL_EMBED(new_makefile, "cli/commands/new/Makefile.in");

static bool put_template(const char *folder, const char *file, const char *text, const char *name,
                         const char *program)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "wxe");
    if (!f) {
        cli_error("cannot write %s: %s", path, strerror(errno));
        return false;
    }
    while (*text) {
        if (strncmp(text, "@NAME@", 6) == 0) {
            fputs(name, f);
            text += 6;
        } else if (strncmp(text, "@PLIMSOLL@", 10) == 0) {
            fputs(program, f);
            text += 10;
        } else {
            fputc(*text++, f);
        }
    }
    bool ok = !ferror(f);
    if (fclose(f) != 0) ok = false;
    if (!ok) cli_error("cannot write %s: %s", path, strerror(errno));
    return ok;
}

static bool good_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_') return false;
    return n > 0 && n <= 64 && isalpha((unsigned char)name[0]);
}

const cli_help cli_help_new = {
    .usage = "plimsoll new NAME",
    .about = "Writes a folder NAME with a network to start from: one C file (model, loss, data),\n"
             "a configuration and a Makefile.",
    .examples = "  plimsoll new my-net && cd my-net && make && plimsoll train config.yaml\n",
};

int cmd_new(int argc, char **argv)
{
    cli_args a;
    cli_parse(argc, argv, &cli_help_new, NULL, &a);
    cli_want(&a, 1, 1, "new", "one name");
    const char *path = a.positional[0], *slash = strrchr(path, '/'),
               *name = slash ? slash + 1 : path;
    char program[PATH_MAX], file[128];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (!good_name(name)) {
        cli_error("\"%s\" is no name for a network: letters, digits, - and _, a letter first",
                  name);
        return 2;
    }
    if (mkdir(path, 0777) != 0) {
        cli_error("cannot make the folder %s: %s", path, strerror(errno));
        return 1;
    }
    snprintf(file, sizeof file, "%s.c", name);
    if (!put_template(path, file, new_source, name, program) ||
        !put_template(path, "config.yaml", new_config, name, program) ||
        !put_template(path, "Makefile", new_makefile, name, program))
        return 1;
    printf("%s/%s        model, loss and data: start here\n%s/config.yaml\n%s/Makefile\n\n"
           "next: cd %s && make && plimsoll train config.yaml\n",
           path, file, path, path, path);
    return 0;
}
