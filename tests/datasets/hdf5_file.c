/* hdf5_file.c - see hdf5_file.h. */
#include "tests/datasets/hdf5_file.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int64_t id;

static void *symbol(const char *name)
{
    void *lib = dlopen("libhdf5_serial.so.310", RTLD_NOW);
    if (!lib) lib = dlopen("libhdf5_serial.so.103", RTLD_NOW);
    return lib ? dlsym(lib, name) : NULL;
}

#define BIND(f, name) (*(void **)(void *)&(f) = symbol(name))

/* Creates the folder of a field when the first field needs it. */
static void folder_of(const hdf5_field *field, int i, char *out, size_t cap)
{
    const char *slash = strchr(field[i].name, '/');
    snprintf(out, cap, "%.*s", slash ? (int)(slash - field[i].name) : 0, field[i].name);
    for (int k = 0; k < i; k++)
        if (out[0] && strncmp(field[k].name, out, strlen(out)) == 0 &&
            field[k].name[strlen(out)] == '/')
            out[0] = 0;
}

/* Returns the properties of an array whose numbers lie in another file; 0: the default. */
static id external_list(const char *elsewhere)
{
    id (*create)(id), *class = symbol("H5P_CLS_DATASET_CREATE_ID_g");
    int (*external)(id, const char *, long, uint64_t);
    if (!elsewhere || !class || !BIND(create, "H5Pcreate") || !BIND(external, "H5Pset_external"))
        return 0;
    id list = create(*class);
    return external(list, elsewhere, 0, UINT64_MAX) >= 0 ? list : 0;
}

bool hdf5_file_write(const char *path, const hdf5_field *field, int n)
{
    int (*open_lib)(void), (*put)(id, id, id, id, id, const void *), (*close_file)(id),
        (*close_one)(id);
    id (*create)(const char *, unsigned, id, id), (*group)(id, const char *, id, id, id),
        (*space)(int, const uint64_t *, const uint64_t *),
        (*set)(id, const char *, id, id, id, id, id);
    if (!BIND(open_lib, "H5open") || !BIND(create, "H5Fcreate") || !BIND(group, "H5Gcreate2") ||
        !BIND(space, "H5Screate_simple") || !BIND(set, "H5Dcreate2") || !BIND(put, "H5Dwrite") ||
        !BIND(close_file, "H5Fclose") || !BIND(close_one, "H5Oclose"))
        return false;
    enum { TRUNCATE = 2 };
    open_lib();
    id file = create(path, TRUNCATE, 0, 0);
    bool ok = file >= 0;
    for (int i = 0; ok && i < n; i++) {
        char folder[128];
        id *type = symbol(field[i].type);
        folder_of(field, i, folder, sizeof folder);
        /* a file stays open as long as an object in it is open */
        if (folder[0]) close_one(group(file, folder, 0, 0, 0));
        id d = type ? set(file, field[i].name, *type, space(field[i].rank, field[i].dim, NULL), 0,
                          external_list(field[i].elsewhere), 0)
                    : -1;
        ok = d >= 0 && put(d, *type, 0, 0, 0, field[i].data) >= 0;
        if (d >= 0) close_one(d);
    }
    if (file >= 0) close_file(file);
    return ok;
}
