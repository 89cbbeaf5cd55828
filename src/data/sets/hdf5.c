/* hdf5.c - HDF5 arrays by rows, through libhdf5.
 *
 * The library is commonly built without thread safety, so one lock is held around every call into
 * it; most of the time goes to the disk. It is opened with the first file, so that runs without
 * HDF5 do not load it.
 *
 * The library trusts its files, and some damaged files crash the process that reads them. So a
 * child process opens each file first and reads rows throughout it: a file that crashes the child
 * is refused. With sandboxes (sandbox.h) this process never opens the file: one sandbox takes the
 * place of that child, and a second one, which can open one file and do nothing else, reads the
 * rows.
 */
#include "plimsoll_hdf5.h"

#include "base/err.h"
#include "base/sys.h"
#include "base/trust/sandbox.h"
#include "data/sets/array.h"

#if __has_include(<hdf5/serial/hdf5.h>)
# include <hdf5/serial/hdf5.h>
# define HAVE_HDF5 1
#elif __has_include(<hdf5.h>)
# include <hdf5.h>
# define HAVE_HDF5 1
#endif

#ifdef HAVE_HDF5

# include <errno.h>
# include <pthread.h>
# include <signal.h>
# include <stdio.h>
# include <string.h>
# include <sys/prctl.h>
# include <sys/stat.h>
# include <sys/wait.h>
# include <unistd.h>

/* clang-format off */
# define FUNCTIONS(X) \
    X(H5open) X(H5Fopen) X(H5Fclose) X(H5Dopen2) X(H5Dclose) X(H5Dget_space) X(H5Dget_type) \
    X(H5Dread) X(H5Sclose) X(H5Screate_simple) X(H5Sget_simple_extent_ndims) \
    X(H5Sget_simple_extent_dims) X(H5Sselect_hyperslab) X(H5Tclose) X(H5Tget_class) \
    X(H5Tget_size) X(H5Eset_auto2) X(H5Fcreate) X(H5Gcreate2) X(H5Gclose) X(H5Dcreate2) X(H5Dwrite) \
    X(H5Dget_create_plist) X(H5Pget_external_count) X(H5Pget_layout) X(H5Pclose) X(H5Fget_name)
# define TYPES(X) \
    X(H5T_NATIVE_FLOAT_g) X(H5T_NATIVE_DOUBLE_g) X(H5T_NATIVE_INT32_g) X(H5T_NATIVE_INT64_g) \
    X(H5T_NATIVE_UINT8_g)
/* clang-format on */

/* The header's H5F_ACC_RDONLY and H5F_ACC_TRUNC call into the library, which is not linked. */
enum { N_FUNCTIONS = 27, N_TYPES = 5, READ_ONLY = 0, TRUNCATE = 2 };

typedef union hdf5_table {
    struct {
# define MEMBER(f) __typeof__(&f) f;
        FUNCTIONS(MEMBER)
# undef MEMBER
        hid_t *type[N_TYPES];
    };
    void *table[N_FUNCTIONS + N_TYPES];
} hdf5_table;

struct pl_hdf5 {
    char *path, *field;
    hid_t file, set;
    pl_type type;
    pl_sandbox *sandbox; /* reads the rows; NULL: this process does */
    void *row;           /* shared with the sandbox */
    size_t row_bytes;
};

static hdf5_table lib;
static bool here;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void load(void)
{
    static const char *const names[] = {
        "libhdf5_serial.so.310", "libhdf5_serial.so.103", "libhdf5_serial.so", "libhdf5.so.310",
        "libhdf5.so.103",        "libhdf5.so.200",        "libhdf5.so",        NULL};
    static const char *const symbols[] = {
# define NAME(f) # f,
        FUNCTIONS(NAME) TYPES(NAME)
# undef NAME
    };
    here = pl_library_load(names, symbols, N_FUNCTIONS + N_TYPES, lib.table);
    if (!here || lib.H5open() < 0) return;
    lib.H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* our messages report its errors */
}

const char *pl_hdf5_missing(void)
{
    pthread_once(&once, load);
    return here ? NULL : "libhdf5 is not installed (apt-get install libhdf5-dev, then build again)";
}

static bool memory_type(pl_dtype d, hid_t *out)
{
    int i = d == PL_F32   ? 0
            : d == PL_F64 ? 1
            : d == PL_I32 ? 2
            : d == PL_I64 ? 3
            : d == PL_U8  ? 4
                          : -1;
    if (i < 0) return false;
    *out = *lib.type[i];
    return true;
}

static pl_status read_type(pl_hdf5 *h, const char *field)
{
    hid_t type = lib.H5Dget_type(h->set), space = lib.H5Dget_space(h->set);
    H5T_class_t class = lib.H5Tget_class(type);
    size_t size = lib.H5Tget_size(type);
    int rank = lib.H5Sget_simple_extent_ndims(space);
    hsize_t dim[32] = {0};
    if (rank > 0 && rank <= 32) lib.H5Sget_simple_extent_dims(space, dim, NULL);
    lib.H5Tclose(type);
    lib.H5Sclose(space);
    PL_FAIL_IF(class != H5T_FLOAT && class != H5T_INTEGER, PL_ERR_DATA,
               "%s: \"%s\" does not hold numbers", h->path, field);
    PL_FAIL_IF(rank < 1 || rank > PL_MAX_RANK, PL_ERR_DATA, "%s: \"%s\" has %d dimensions", h->path,
               field, rank);
    h->type.dtype = class == H5T_FLOAT ? (size == 8 ? PL_F64 : PL_F32)
                                       : (size == 8   ? PL_I64
                                          : size == 1 ? PL_U8
                                                      : PL_I32);
    h->type.rank = rank;
    for (int i = 0; i < rank; i++) {
        PL_FAIL_IF(dim[i] > (hsize_t)1 << 48, PL_ERR_DATA, "%s: \"%s\" has a dimension of %llu",
                   h->path, field, (unsigned long long)dim[i]);
        h->type.dim[i] = (int64_t)dim[i];
    }
    return PL_OK;
}

/* An array whose numbers lie in other files would make the reader open any path that the file
 * names: such arrays are refused. */
static pl_status check_inside(const pl_hdf5 *h, const char *field)
{
    char name[4096] = "";
    hid_t list = lib.H5Dget_create_plist(h->set);
    bool external = list < 0 || lib.H5Pget_external_count(list) != 0,
         virtual = list >= 0 && lib.H5Pget_layout(list) == H5D_VIRTUAL;
    if (list >= 0) lib.H5Pclose(list);
    bool linked = lib.H5Fget_name(h->set, name, sizeof name) <= 0 || strcmp(name, h->path) != 0;
    PL_FAIL_IF(external || virtual || linked, PL_ERR_DATA,
               "%s: the numbers of \"%s\" lie in other files (%s), which are not read; copy them "
               "into the file (h5repack, h5py)",
               h->path, field,
               external  ? "external storage"
               : virtual ? "virtual storage"
                         : "an external link");
    return PL_OK;
}

static pl_status open_locked(pl_hdf5 *h, const char *field)
{
    h->file = lib.H5Fopen(h->path, READ_ONLY, H5P_DEFAULT);
    PL_FAIL_IF(h->file < 0, PL_ERR_DATA, "%s is not an HDF5 file that can be read", h->path);
    h->set = lib.H5Dopen2(h->file, field, H5P_DEFAULT);
    PL_FAIL_IF(h->set < 0, PL_ERR_DATA,
               "%s has no array \"%s\" (data.fields can give it another name: INPUT=folder/array)",
               h->path, field);
    PL_TRY(check_inside(h, field));
    return read_type(h, field);
}

static bool read_locked(const pl_hdf5 *h, int64_t row, hid_t type, void *to)
{
    hsize_t start[PL_MAX_RANK] = {(hsize_t)row}, count[PL_MAX_RANK] = {1};
    for (int i = 1; i < h->type.rank; i++) count[i] = (hsize_t)h->type.dim[i];
    hid_t file = lib.H5Dget_space(h->set), memory = lib.H5Screate_simple(h->type.rank, count, NULL);
    bool ok = file >= 0 && memory >= 0 &&
              lib.H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
              lib.H5Dread(h->set, type, memory, file, H5P_DEFAULT, to) >= 0;
    if (file >= 0) lib.H5Sclose(file);
    if (memory >= 0) lib.H5Sclose(memory);
    return ok;
}

/* Reads rows from the first to the last. The caller finds out whether the process survives it. */
static void read_rows(const pl_hdf5 *h)
{
    enum { ROWS = 64 };
    const uint64_t most = (uint64_t)1 << 28;
    hid_t type;
    if (!memory_type(PL_F64, &type)) return;
    uint64_t row = 1;
    for (int i = 1; i < h->type.rank && row <= most; i++) row *= (uint64_t)h->type.dim[i];
    double *to = row <= most ? pl_sys_alloc((size_t)(row ? row : 1) * sizeof *to) : NULL;
    int64_t n = h->type.dim[0], step = n / ROWS > 0 ? n / ROWS : 1;
    bool ok = to != NULL;
    for (int64_t i = 0; ok && i < n; i += step) ok = read_locked(h, i, type, to);
    if (ok && n > 0) (void)read_locked(h, n - 1, type, to);
    pl_sys_free(to);
}

/* Runs in the child. */
static void read_all_over(pl_hdf5 *h, const char *field)
{
    enum { SECONDS = 60 };
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
    alarm(SECONDS);
    if (open_locked(h, field) == PL_OK) read_rows(h);
}

static pl_status row_fails(const pl_hdf5 *h, int64_t row)
{
    PL_FAIL(PL_ERR_DATA,
            "%s: row %lld cannot be read (the file is damaged, or its filter is not installed%s)",
            h->path, (long long)row,
            h->sandbox || h->row ? ", or a plug-in, which data.sandbox=off allows" : "");
}

/* ---- in a sandbox ------------------------------------------------------------------------- */
typedef enum hdf5_call { CALL_TYPE, CALL_ROW } hdf5_call;
typedef struct hdf5_request {
    int32_t call, dtype;
    int64_t row;
    pl_type type; /* reply */
} hdf5_request;

static pl_status serve(void *state, void *request)
{
    pl_hdf5 *h = state;
    hdf5_request *r = request;
    hid_t type;
    if (r->call == CALL_TYPE) {
        PL_TRY(open_locked(h, h->field));
        read_rows(h);
        r->type = h->type;
        return PL_OK;
    }
    if (h->set < 0) PL_TRY(open_locked(h, h->field));
    if (!memory_type((pl_dtype)r->dtype, &type) || !read_locked(h, r->row, type, h->row))
        return row_fails(h, r->row);
    return PL_OK;
}

/* What a reply says of the array must be possible. */
static pl_status take_type(pl_hdf5 *h, const hdf5_request *r)
{
    pl_type t = r->type;
    hid_t ignored;
    bool sound = t.rank >= 1 && t.rank <= PL_MAX_RANK && memory_type(t.dtype, &ignored);
    uint64_t row = 8;
    for (int i = 0; sound && i < t.rank; i++) {
        sound = t.dim[i] >= 0 && t.dim[i] <= (int64_t)1 << 48;
        if (i && t.dim[i] > 0) row = row < (uint64_t)1 << 40 ? row * (uint64_t)t.dim[i] : row;
    }
    PL_FAIL_IF(!sound || row >= (uint64_t)1 << 40, PL_ERR_DATA,
               "%s: the array \"%s\" is too large, or its size cannot be", h->path, h->field);
    h->type = t;
    h->row_bytes = (size_t)row;
    return PL_OK;
}

/* Arrays whose sandboxes run, for the limit of their number: a set may have hundreds of files. */
static struct {
    const pl_hdf5 *array;
    uint64_t used; /* time of the last read, as a count of reads */
} awake[PL_HDF5_AWAKE];
static uint64_t reads;

/* Requires the lock. Notes that the sandbox of the array runs; if there are too many, the process
 * that was idle longest ends. */
static void stay_awake(const pl_hdf5 *h)
{
    int at = 0;
    for (int i = 0; i < PL_HDF5_AWAKE; i++) {
        bool better = awake[i].used < awake[at].used;
        if (awake[i].array == h || (awake[at].array != h && better)) at = i;
    }
    if (awake[at].array && awake[at].array != h) pl_sandbox_rest(awake[at].array->sandbox);
    awake[at].array = h;
    awake[at].used = ++reads;
}

/* Requires the lock: the array is closed. */
static void forget(const pl_hdf5 *h)
{
    for (int i = 0; i < PL_HDF5_AWAKE; i++)
        if (awake[i].array == h) awake[i].array = NULL, awake[i].used = 0;
}

/* Requires the lock: the sandbox is a copy of this process, and must not find the library in use.
 * Filters that libhdf5 would have to load as plug-ins are not found in it. */
static pl_status open_apart(pl_hdf5 *h)
{
    pl_sandbox_opts o = {.serve = serve,
                         .state = h,
                         .request_bytes = sizeof(hdf5_request),
                         .memory_bytes = (uint64_t)3 << 30,
                         .files = 1};
    pl_sandbox *first;
    PL_TRY(pl_sandbox_new(&o, &first));
    hdf5_request *r = pl_sandbox_request(first);
    *r = (hdf5_request){.call = CALL_TYPE};
    pl_status rc = pl_sandbox_run(first);
    if (rc == PL_OK) rc = take_type(h, r);
    bool crashed = pl_sandbox_pid(first) < 0;
    pl_sandbox_free(first);
    PL_FAIL_IF(crashed, PL_ERR_DATA, "%s is damaged: reading it crashes libhdf5", h->path);
    PL_TRY(rc);
    PL_TRY(pl_sandbox_map(h->row_bytes, &h->row));
    o.memory_bytes = ((uint64_t)512 << 20) + 2 * h->row_bytes;
    PL_TRY(pl_sandbox_new(&o, &h->sandbox));
    stay_awake(h);
    return PL_OK;
}

/* ---- opening and reading ------------------------------------------------------------------ */
/* One process takes its pages (924 to 1,044 kB were measured, with files of a few MB), libhdf5's
 * cache of chunks, 1 MiB, and a row before and after its conversion. */
uint64_t pl_hdf5_process_bytes(int arrays, uint64_t row_bytes)
{
    enum { CHUNKS = 1 << 20 };
    bool apart;
    if (pl_sandbox_wanted(&apart) != PL_OK || !apart) return 0; /* opening a file says why */
    uint64_t n = (uint64_t)(arrays < PL_HDF5_AWAKE ? arrays : PL_HDF5_AWAKE);
    return n * (PL_SANDBOX_BYTES + CHUNKS + 2 * row_bytes);
}

static bool trusted;

void pl_hdf5_trust(void)
{
    trusted = true;
}

/* Requires the lock, so that no other thread is inside the library. If no process can be created,
 * the check is skipped. */
static pl_status try_apart(pl_hdf5 *h, const char *field)
{
    int status = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* the child does not outlive its parent */
        if (getppid() != parent) _exit(1);
        read_all_over(h, field);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    PL_FAIL_IF(pid > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0), PL_ERR_DATA,
               "%s is damaged: reading it crashes libhdf5", h->path);
    return PL_OK;
}

static char *copy_of(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = pl_sys_alloc(n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

pl_status pl_hdf5_open(const char *path, const char *field, pl_hdf5 **out)
{
    struct stat st;
    PL_FAIL_IF(pl_hdf5_missing(), PL_ERR_UNSUPPORTED, "%s: %s", path, pl_hdf5_missing());
    /* a pipe would be waited for */
    PL_FAIL_IF(stat(path, &st) != 0, PL_ERR_DATA, "%s: %s", path, strerror(errno));
    PL_FAIL_IF(!S_ISREG(st.st_mode), PL_ERR_DATA, "%s is not a plain file", path);
    pl_hdf5 *h = pl_sys_alloc(sizeof *h);
    if (!h) return PL_ERR_MEMORY;
    h->file = h->set = -1;
    h->path = copy_of(path);
    h->field = copy_of(field);
    bool apart = false;
    pl_status rc = h->path && h->field ? pl_sandbox_wanted(&apart) : PL_ERR_MEMORY;
    pthread_mutex_lock(&lock);
    if (rc == PL_OK && apart) rc = open_apart(h);
    if (rc == PL_OK && !apart && !trusted) rc = try_apart(h, field);
    if (rc == PL_OK && !apart) rc = open_locked(h, field);
    pthread_mutex_unlock(&lock);
    if (rc != PL_OK) {
        pl_hdf5_close(h);
        return rc;
    }
    *out = h;
    return PL_OK;
}

void pl_hdf5_close(pl_hdf5 *h)
{
    if (!h) return;
    pthread_mutex_lock(&lock);
    if (h->set >= 0) lib.H5Dclose(h->set);
    if (h->file >= 0) lib.H5Fclose(h->file);
    forget(h);
    pthread_mutex_unlock(&lock);
    pl_sandbox_free(h->sandbox);
    if (h->row) pl_sys_unmap(h->row, h->row_bytes);
    pl_sys_free(h->path);
    pl_sys_free(h->field);
    pl_sys_free(h);
}

pl_type pl_hdf5_type(const pl_hdf5 *h)
{
    return h->type;
}

static pl_status read_apart(const pl_hdf5 *h, int64_t row, pl_dtype dtype, void *to)
{
    pl_type one = h->type;
    one.dim[0] = 1;
    one.dtype = dtype;
    hdf5_request *r = pl_sandbox_request(h->sandbox);
    stay_awake(h);
    *r = (hdf5_request){.call = CALL_ROW, .dtype = (int32_t)dtype, .row = row};
    pl_status rc = pl_sandbox_run(h->sandbox);
    if (rc != PL_OK && pl_sandbox_pid(h->sandbox) < 0)
        return pl__fail_prefix(rc, "%s: row %lld", h->path, (long long)row);
    PL_TRY(rc);
    memcpy(to, h->row, pl_type_bytes(&one));
    return PL_OK;
}

pl_status pl_hdf5_read(const pl_hdf5 *h, int64_t row, pl_dtype dtype, void *to)
{
    hid_t type;
    PL_FAIL_IF(!memory_type(dtype, &type), PL_ERR_DATA, "%s cannot be read as %s", h->path,
               pl_dtype_name(dtype));
    pthread_mutex_lock(&lock);
    pl_status rc = h->sandbox                      ? read_apart(h, row, dtype, to)
                   : read_locked(h, row, type, to) ? PL_OK
                                                   : row_fails(h, row);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- writing ------------------------------------------------------------------------------ */
/* Creates the folders of a field, except those of an earlier field. Creating an existing folder
 * fails, which is harmless. */
static void make_folders(hid_t file, const char *field)
{
    char name[512];
    for (const char *slash = strchr(field, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - field), field);
        hid_t group = lib.H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (group >= 0) lib.H5Gclose(group);
    }
}

static pl_status write_rows(hid_t set, hid_t type, const pl_hdf5_array *a)
{
    hsize_t start[PL_MAX_RANK] = {0}, count[PL_MAX_RANK] = {1};
    pl_type one = a->type;
    one.dim[0] = 1;
    for (int i = 1; i < a->type.rank; i++) count[i] = (hsize_t)a->type.dim[i];
    void *row = pl_sys_alloc(pl_type_bytes(&one) + 1);
    pl_status rc = row ? PL_OK : PL_ERR_MEMORY;
    for (int64_t i = 0; i < a->type.dim[0] && rc == PL_OK; i++) {
        start[0] = (hsize_t)i;
        rc = a->row(a->ctx, i, row);
        pthread_mutex_lock(&lock);
        hid_t file = lib.H5Dget_space(set),
              memory = lib.H5Screate_simple(a->type.rank, count, NULL);
        bool ok = rc != PL_OK ||
                  (lib.H5Sselect_hyperslab(file, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
                   lib.H5Dwrite(set, type, memory, file, H5P_DEFAULT, row) >= 0);
        lib.H5Sclose(file);
        lib.H5Sclose(memory);
        pthread_mutex_unlock(&lock);
        if (!ok)
            rc = pl__fail(PL_ERR_FILE, __FILE__, __LINE__,
                          "\"%s\": row %lld cannot be written (is the disk full?)", a->field,
                          (long long)i);
    }
    pl_sys_free(row);
    return rc;
}

static pl_status write_array(hid_t file, const pl_hdf5_array *a)
{
    hid_t type;
    hsize_t dim[PL_MAX_RANK];
    PL_FAIL_IF(!memory_type(a->type.dtype, &type) || a->type.rank < 1, PL_ERR_ARG,
               "\"%s\" cannot be stored as an HDF5 array", a->field);
    for (int i = 0; i < a->type.rank; i++) dim[i] = (hsize_t)a->type.dim[i];
    pthread_mutex_lock(&lock);
    make_folders(file, a->field);
    hid_t space = lib.H5Screate_simple(a->type.rank, dim, NULL);
    hid_t set = lib.H5Dcreate2(file, a->field, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool ok = set >= 0 &&
              (a->row || lib.H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, a->data) >= 0);
    lib.H5Sclose(space);
    pthread_mutex_unlock(&lock);
    pl_status rc = ok && a->row ? write_rows(set, type, a) : PL_OK;
    pthread_mutex_lock(&lock);
    if (set >= 0) lib.H5Dclose(set);
    pthread_mutex_unlock(&lock);
    PL_FAIL_IF(!ok, PL_ERR_FILE, "\"%s\" cannot be written (is the disk full?)", a->field);
    return rc;
}

pl_status pl_hdf5_write(const char *path, const pl_hdf5_array *array, int n)
{
    PL_FAIL_IF(pl_hdf5_missing(), PL_ERR_UNSUPPORTED, "%s: %s", path, pl_hdf5_missing());
    pthread_mutex_lock(&lock);
    hid_t file = lib.H5Fcreate(path, TRUNCATE, H5P_DEFAULT, H5P_DEFAULT);
    pthread_mutex_unlock(&lock);
    PL_FAIL_IF(file < 0, PL_ERR_FILE, "cannot write %s", path);
    pl_status rc = PL_OK;
    for (int i = 0; i < n && rc == PL_OK; i++) rc = write_array(file, &array[i]);
    pthread_mutex_lock(&lock);
    bool closed = lib.H5Fclose(file) >= 0;
    pthread_mutex_unlock(&lock);
    if (rc != PL_OK) return pl__fail_prefix(rc, "%s", path);
    PL_FAIL_IF(!closed, PL_ERR_FILE, "%s cannot be written (is the disk full?)", path);
    return PL_OK;
}

#else

const char *pl_hdf5_missing(void)
{
    return "this program was built without libhdf5 (apt-get install libhdf5-dev, then build again)";
}

pl_status pl_hdf5_open(const char *path, const char *field, pl_hdf5 **out)
{
    (void)field, (void)out;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s: %s", path, pl_hdf5_missing());
}

void pl_hdf5_close(pl_hdf5 *h)
{
    (void)h;
}

pl_type pl_hdf5_type(const pl_hdf5 *h)
{
    (void)h;
    return (pl_type){0};
}

uint64_t pl_hdf5_process_bytes(int arrays, uint64_t row_bytes)
{
    (void)arrays, (void)row_bytes;
    return 0;
}

pl_status pl_hdf5_read(const pl_hdf5 *h, int64_t row, pl_dtype dtype, void *to)
{
    (void)h, (void)row, (void)dtype, (void)to;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s", pl_hdf5_missing());
}

void pl_hdf5_trust(void)
{
}

pl_status pl_hdf5_write(const char *path, const pl_hdf5_array *array, int n)
{
    (void)array, (void)n;
    PL_FAIL(PL_ERR_UNSUPPORTED, "%s: %s", path, pl_hdf5_missing());
}
#endif
