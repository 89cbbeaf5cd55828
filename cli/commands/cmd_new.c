/* cmd_new.c - `plimsoll new NAME`: a folder with a network to start from.
 *
 * The folder holds one C file (model, loss, data), a configuration and a Makefile, made from the
 * templates in cli/commands/new/. `make` there builds NAME.so, which every command accepts in place
 * of a built-in recipe. The network is a small classifier of points on two spirals: it learns
 * within seconds and is short enough to replace. With --from the C files are those of a built-in
 * recipe (pl_recipe.sources).
 */
#include "cli/ui.h"
#include "plimsoll_embed.h"

#include <ctype.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

PL_EMBED(from_entry, "cli/commands/new/entry.c.in");
PL_EMBED(from_config, "cli/commands/new/from.yaml.in");
PL_EMBED(from_makefile, "cli/commands/new/from.mk.in");

/* In the templates @NAME@ is replaced by the network's name, @PLIMSOLL@ by this program's path. */
PL_EMBED(new_source, "cli/commands/new/network.c.in");
PL_EMBED(new_config, "cli/commands/new/config.yaml.in");
PL_EMBED(new_makefile, "cli/commands/new/Makefile.in");

typedef struct word {
    const char *from, *to;
} word;

/* Writes FOLDER/FILE: the text with every word replaced. words ends with {NULL}. */
static bool put_text(const char *folder, const char *file, const char *text, const word *words)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "wxe");
    if (!f) {
        cli_error("cannot write %s: %s", path, strerror(errno));
        return false;
    }
    while (*text) {
        const word *w = words;
        while (w->from && strncmp(text, w->from, strlen(w->from)) != 0) w++;
        if (w->from) {
            fputs(w->to, f);
            text += strlen(w->from);
        } else {
            fputc(*text++, f);
        }
    }
    bool ok = !ferror(f);
    if (fclose(f) != 0) ok = false;
    if (!ok) cli_error("cannot write %s: %s", path, strerror(errno));
    return ok;
}

/* The recipe of --from; NULL: an error was printed. */
static const pl_recipe *find_source(const char *name)
{
    const pl_recipe *r = pl_recipe_find(name);
    char list[256] = "";
    if (r && r->sources) return r;
    for (int i = 0; i < pl_recipe_count(); i++) {
        size_t used = strlen(list);
        if (pl_recipe_at(i)->sources)
            snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                     pl_recipe_at(i)->name);
    }
    cli_error("--from %s: %s; recipes whose source can be copied: %s", name,
              r ? "its source is not part of this program" : "there is no such recipe", list);
    return NULL;
}

/* Copies the source of a recipe. Its files name their own folder for embedded files; here that is
 * the current one. */
static bool put_source(const char *path, const pl_recipe *r, const word *words)
{
    char own[96], line[96], *presets = cli_text("%s/presets", path);
    snprintf(own, sizeof own, "\"recipes/%s/", r->name);
    snprintf(line, sizeof line, "recipe: %s\n", r->name);
    const word copied[] = {{own, "\""}, {line, ""}, {NULL, NULL}};
    bool made = presets && mkdir(presets, 0777) == 0;
    free(presets);
    if (!made) {
        cli_error("cannot make the folder %s/presets: %s", path, strerror(errno));
        return false;
    }
    for (const pl_source_file *f = r->sources; f->name; f++)
        if (!put_text(path, f->name, f->text, copied)) return false;
    return put_text(path, "entry.c", from_entry, words) &&
           put_text(path, "config.yaml", from_config, words) &&
           put_text(path, "Makefile", from_makefile, words);
}

static bool put_template(const char *path, const char *name, const word *words)
{
    char file[128];
    snprintf(file, sizeof file, "%s.c", name);
    return put_text(path, file, new_source, words) &&
           put_text(path, "config.yaml", new_config, words) &&
           put_text(path, "Makefile", new_makefile, words);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* Writes the folder under another name and gives it its name when it is complete. */
static bool put_folder(const char *path, const char *name, const pl_recipe *from, const word *words)
{
    struct stat st;
    char *aside = cli_name_aside(path);
    errno = aside && lstat(path, &st) == 0 ? EEXIST : 0;
    bool made = aside && !errno && mkdir(aside, 0777) == 0;
    if (!made) cli_error("cannot make the folder %s: %s", path, strerror(errno));
    bool ok = made && (from ? put_source(aside, from, words) : put_template(aside, name, words));
    if (ok && rename(aside, path) != 0) {
        cli_error("cannot make the folder %s: %s", path, strerror(errno));
        ok = false;
    }
    if (made && !ok) nftw(aside, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(aside);
    return ok;
}

static bool good_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_') return false;
    return n > 0 && n <= 64 && isalpha((unsigned char)name[0]);
}

typedef struct new_options {
    const char *from;
} new_options;

const cli_help cli_help_new = {
    .usage = "plimsoll new NAME [--from RECIPE]",
    .about = "Writes a folder NAME with a network to start from: C source (model, loss, data), a\n"
             "configuration and a Makefile. --from copies the source of a built-in recipe.",
    .examples = "  plimsoll new my-net && cd my-net && make && plimsoll train config.yaml\n"
                "  plimsoll new my-pets --from classify\n",
    .options =
        (const cli_option[]){
            {"--from", "RECIPE", offsetof(new_options, from),
             "copy the source of this recipe: classify, segment, text, regress"},
            {NULL},
        },
};

int cmd_new(int argc, char **argv)
{
    cli_args a;
    new_options o = {NULL};
    cli_parse(argc, argv, &cli_help_new, &o, &a);
    cli_want(&a, 1, 1, "new", "one name");
    const char *path = a.positional[0], *slash = strrchr(path, '/'),
               *name = slash ? slash + 1 : path;
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = 0;
    if (!good_name(name)) {
        cli_error(
            "\"%s\" is not a valid network name: use letters, digits, - and _, and begin with a letter",
            name);
        return 2;
    }
    const pl_recipe *from = o.from ? find_source(o.from) : NULL;
    if (o.from && !from) return 2;
    const word words[] = {{"@NAME@", name},
                          {"@PLIMSOLL@", program},
                          {"@FROM@", from ? from->name : ""},
                          {"@PRESET@", from ? from->presets[0].name : ""},
                          {NULL, NULL}};
    if (!put_folder(path, name, from, words)) return 1;
    printf("%s/%s.c        model, loss and data: start here\n%s/config.yaml\n%s/Makefile\n\n"
           "next: cd %s && make && plimsoll train config.yaml\n",
           path, from ? from->name : name, path, path, path);
    return 0;
}
