/* checkpoint_manifest.c - manifest.json: the files of a checkpoint, and proof that it is complete.
 * RUN/finished.json is a manifest, too: of the results of a run.
 *
 * One JSON object on one line. Its last member, "check", is the XXH64 of all bytes before it, so a
 * truncated manifest, or one with a changed bit, is rejected. It lists every file with length and
 * XXH64. The reader trusts nothing: members are checked one by one, texts are cut to their buffers,
 * and file names may not leave the folder.
 */
#include "base/sys.h"
#include "io/file.h"
#include "io/json.h"
#include "train/files/checkpoint.h"

#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_STATIC_LINKING_ONLY /* the state of a hash on the stack */
#include <xxhash.h>

enum { MAX_MANIFEST = 1 << 20, TAIL = 29 }; /* ,"check":"0123456789abcdef"}\n */

void pl_checkpoint_note(pl_checkpoint *c, const char *key, double value)
{
    int i = 0;
    while (i < c->n_notes && strcmp(c->note[i].key, key) != 0) i++;
    if (!isfinite(value)) {
        if (i < c->n_notes) c->note[i] = c->note[--c->n_notes];
        return;
    }
    if (i == PL_MAX_NOTES || strlen(key) >= sizeof c->note[0].key) return;
    if (i == c->n_notes) c->n_notes++;
    snprintf(c->note[i].key, sizeof c->note[i].key, "%s", key);
    c->note[i].value = value;
}

double pl_checkpoint_noted(const pl_checkpoint *c, const char *key, double fallback)
{
    for (int i = 0; i < c->n_notes; i++)
        if (strcmp(c->note[i].key, key) == 0) return c->note[i].value;
    return fallback;
}

/* ---- writing ---------------------------------------------------------------------------- */
static void write_files(pl_json *j, const pl_checkpoint *c)
{
    char hash[32];
    pl_json_array(j, "files");
    for (int i = 0; i < c->n_files; i++) {
        pl_json_object(j, NULL);
        pl_json_string(j, "name", c->file[i].name);
        pl_json_uint(j, "bytes", c->file[i].bytes);
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)c->file[i].hash);
        pl_json_string(j, "xxh64", hash);
        pl_json_end(j);
    }
    pl_json_end(j);
}

static void write_members(pl_json *j, const pl_checkpoint *c)
{
    pl_json_object(j, NULL);
    pl_json_int(j, "plimsoll_checkpoint", PL_CHECKPOINT_FORMAT);
    pl_json_int(j, "step", c->step);
    if (c->phase >= 0) {
        pl_json_int(j, "phase", c->phase);
        pl_json_int(j, "phase_step", c->phase_step);
        pl_json_string(j, "phase_name", c->phase_name);
    }
    pl_json_int(j, "samples", c->samples);
    pl_json_int(j, "accumulate", c->accumulate);
    if (c->host_updates) pl_json_bool(j, "host_updates", true);
    pl_json_int(j, "threads", c->threads);
    pl_json_string(j, "recipe", c->recipe);
    pl_json_string(j, "version", c->version);
    pl_json_string(j, "device", c->device);
    pl_json_string(j, "written", c->written);
    pl_json_uint(j, "log_bytes", c->log_bytes);
    pl_json_bool(j, "evaluated", c->evaluated);
    write_files(j, c);
    pl_json_object(j, "notes");
    for (int i = 0; i < c->n_notes; i++) pl_json_float(j, c->note[i].key, c->note[i].value);
    pl_json_end(j);
    pl_json_end(j);
}

/* Replaces the "}\n" at the end of the line by the member "check". */
static void seal(const char *line, pl_str *out)
{
    size_t n = strlen(line);
    while (n && line[n - 1] != '}') n--;
    pl_str_addn(out, line, n ? n - 1 : 0);
    if (out->failed) return;
    pl_str_addf(out, ",\"check\":\"%016llx\"}\n",
                (unsigned long long)XXH64(out->text, out->len, 0));
}

pl_status pl__manifest_write(const char *path, const pl_checkpoint *c)
{
    pl_str text = PL_STR_INIT;
    pl_json *j = pl_json_new(NULL);
    if (!j) return PL_ERR_MEMORY;
    write_members(j, c);
    pl_status rc = pl_json_finish(j);
    if (rc == PL_OK) seal(pl_json_text(j), &text);
    if (rc == PL_OK && text.failed) rc = PL_ERR_MEMORY;
    if (rc == PL_OK) rc = pl_sys_write_file(path, text.text, text.len);
    pl_str_release(&text);
    pl_json_free(j);
    return rc;
}

/* ---- reading ---------------------------------------------------------------------------- */
static pl_status want_int(const char *name, const json_t *o, const char *key, int64_t max,
                          int64_t *out)
{
    const json_t *v = json_object_get(o, key);
    int64_t n = json_is_integer(v) ? json_integer_value(v) : -1;
    PL_FAIL_IF(n < 0 || n > max, PL_ERR_FILE,
               "%.200s: \"%s\" is missing or not a whole number in range", name, key);
    *out = n;
    return PL_OK;
}

static pl_status want_text(const char *name, const json_t *o, const char *key, char *out,
                           size_t cap)
{
    const char *s = json_string_value(json_object_get(o, key));
    PL_FAIL_IF(!s || strlen(s) >= cap, PL_ERR_FILE,
               "%.200s: \"%s\" is missing or not a text of fewer "
               "than %zu bytes",
               name, key, cap);
    memcpy(out, s, strlen(s) + 1);
    return PL_OK;
}

static pl_status want_hash(const char *name, const char *text, uint64_t *out)
{
    *out = 0;
    bool good = strlen(text) == 16;
    for (int i = 0; good && i < 16; i++) {
        const char *at = strchr("0123456789abcdef", text[i]);
        good = at != NULL;
        if (good) *out = *out << 4 | (uint64_t)(at - "0123456789abcdef");
    }
    PL_FAIL_IF(!good, PL_ERR_FILE, "%.200s: \"%.20s\" is not a checksum", name, text);
    return PL_OK;
}

static pl_status read_one_file(const char *name, const json_t *o, pl_checkpoint *c)
{
    int64_t bytes;
    char hash[32];
    int i = c->n_files;
    PL_TRY(want_text(name, o, "name", c->file[i].name, sizeof c->file[i].name));
    PL_TRY(want_int(name, o, "bytes", (int64_t)1 << 48, &bytes));
    PL_TRY(want_text(name, o, "xxh64", hash, sizeof hash));
    PL_TRY(want_hash(name, hash, &c->file[i].hash));
    PL_FAIL_IF(!c->file[i].name[0] || strchr(c->file[i].name, '/') || c->file[i].name[0] == '.',
               PL_ERR_FILE, "%.200s: \"%s\" is not a file of a checkpoint", name, c->file[i].name);
    c->file[i].bytes = (uint64_t)bytes;
    c->bytes += (uint64_t)bytes;
    c->n_files++;
    return PL_OK;
}

static pl_status read_files(const char *name, const json_t *o, pl_checkpoint *c)
{
    const json_t *files = json_object_get(o, "files");
    size_t n = json_array_size(files), room = sizeof c->file / sizeof *c->file;
    PL_FAIL_IF(n == 0 || n > room, PL_ERR_FILE, "%.200s lists %zu files, a checkpoint has 1 to %zu",
               name, n, room);
    for (size_t i = 0; i < n; i++) PL_TRY(read_one_file(name, json_array_get(files, i), c));
    return PL_OK;
}

static pl_status read_notes(const char *name, json_t *o, pl_checkpoint *c)
{
    const char *key;
    json_t *value, *notes = json_object_get(o, "notes");
    PL_FAIL_IF(!json_is_object(notes), PL_ERR_FILE, "%.200s: \"notes\" is missing", name);
    json_object_foreach(notes, key, value)
    {
        PL_FAIL_IF(!json_is_number(value), PL_ERR_FILE,
                   "%.200s: the note \"%.80s\" is not a number", name, key);
        pl_checkpoint_note(c, key, json_number_value(value));
    }
    return PL_OK;
}

/* Members of runs with phases; others do not have them. */
static pl_status read_phase(const char *name, const json_t *o, pl_checkpoint *c)
{
    int64_t phase;
    c->phase = -1;
    c->phase_step = c->step;
    if (!json_object_get(o, "phase")) return PL_OK;
    PL_TRY(want_int(name, o, "phase", 1 << 20, &phase));
    PL_TRY(want_int(name, o, "phase_step", c->step, &c->phase_step));
    PL_TRY(want_text(name, o, "phase_name", c->phase_name, sizeof c->phase_name));
    c->phase = (int)phase;
    return PL_OK;
}

static pl_status read_members(const char *name, json_t *o, pl_checkpoint *c)
{
    int64_t threads, log_bytes, most = (int64_t)1 << 60;
    PL_TRY(want_int(name, o, "plimsoll_checkpoint", most, &c->format));
    PL_FAIL_IF(c->format > PL_CHECKPOINT_FORMAT, PL_ERR_FILE,
               "%.200s: a newer version of plimsoll wrote it (format %lld, this version reads %d); "
               "use that version, or another folder",
               name, (long long)c->format, PL_CHECKPOINT_FORMAT);
    PL_FAIL_IF(c->format != PL_CHECKPOINT_FORMAT, PL_ERR_FILE,
               "%.200s: written in format %lld, this program reads %d", name, (long long)c->format,
               PL_CHECKPOINT_FORMAT);
    PL_TRY(want_int(name, o, "step", most, &c->step));
    PL_TRY(read_phase(name, o, c));
    PL_TRY(want_int(name, o, "samples", most, &c->samples));
    PL_TRY(want_int(name, o, "accumulate", most, &c->accumulate));
    c->host_updates = json_is_true(json_object_get(o, "host_updates"));
    PL_TRY(want_int(name, o, "threads", 1 << 20, &threads));
    PL_TRY(want_int(name, o, "log_bytes", most, &log_bytes));
    PL_TRY(want_text(name, o, "recipe", c->recipe, sizeof c->recipe));
    PL_TRY(want_text(name, o, "version", c->version, sizeof c->version));
    PL_TRY(want_text(name, o, "device", c->device, sizeof c->device));
    PL_TRY(want_text(name, o, "written", c->written, sizeof c->written));
    c->threads = (int)threads;
    c->log_bytes = (uint64_t)log_bytes;
    c->evaluated = json_is_true(json_object_get(o, "evaluated"));
    PL_TRY(read_files(name, o, c));
    return read_notes(name, o, c);
}

static pl_status check_seal(const char *text, size_t len, const char *name)
{
    char tail[TAIL + 1];
    PL_FAIL_IF(len < TAIL, PL_ERR_FILE, "%.200s has %zu bytes: cut short", name, len);
    snprintf(tail, sizeof tail, ",\"check\":\"%016llx\"}\n",
             (unsigned long long)XXH64(text, len - TAIL, 0));
    PL_FAIL_IF(memcmp(tail, text + len - TAIL, TAIL) != 0, PL_ERR_FILE,
               "%.200s: its checksum does not match: damaged or cut short", name);
    return PL_OK;
}

pl_status pl_checkpoint_parse(const char *text, size_t len, const char *name, pl_checkpoint *out)
{
    memset(out, 0, sizeof *out);
    PL_TRY(check_seal(text, len, name));
    return pl__manifest_members(text, len, name, out);
}

pl_status pl__manifest_members(const char *text, size_t len, const char *name, pl_checkpoint *out)
{
    json_error_t err;
    json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
    PL_FAIL_IF(!o, PL_ERR_FILE, "%.200s is not JSON: %.120s", name, err.text);
    pl_status rc = json_is_object(o) ? read_members(name, o, out)
                                     : pl__fail(PL_ERR_FILE, __FILE__, __LINE__,
                                                "%.200s is not a JSON object", name);
    json_decref(o);
    return rc;
}

pl_status pl__manifest_read(const char *dir, const char *name, const char *what, pl_checkpoint *out)
{
    char path[PL_PATH_BYTES], *text;
    size_t len;
    PL_TRY(pl__path(path, dir, name));
    pl_status rc = pl_sys_read_file(path, MAX_MANIFEST, &text, &len);
    if (rc == PL_ERR_MEMORY) return rc;
    if (rc != PL_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", pl_error_text());
        PL_FAIL(PL_ERR_FILE, "%s is not %s: %s", dir, what, why);
    }
    rc = pl_checkpoint_parse(text, len, path, out);
    pl_sys_free(text);
    return rc;
}

pl_status pl_checkpoint_read(const char *dir, pl_checkpoint *out)
{
    return pl__manifest_read(dir, "manifest.json", "a checkpoint", out);
}

/* ---- checking the files ----------------------------------------------------------------- */
/* The digits of the checksum that a model file carries count as zeros (io/file.h). A file whose own
 * checksum does not match gets another hash than every recorded one. */
static pl_status hash_file(const pl_file *f, char *block, uint64_t *hash)
{
    bool has_sum;
    uint64_t stored;
    PL_TRY(pl_file_sum(f, block, PL_STAGE_BYTES, hash, &has_sum, &stored));
    if (has_sum && stored != *hash) *hash = ~*hash;
    return PL_OK;
}

pl_status pl__file_sum(const char *path, uint64_t *bytes, uint64_t *hash)
{
    pl_file f;
    PL_TRY(pl_file_open(path, PL_ERR_FILE, &f));
    char *block = pl_sys_alloc(PL_STAGE_BYTES);
    pl_status rc = block ? hash_file(&f, block, hash) : PL_ERR_MEMORY;
    pl_sys_free(block);
    *bytes = f.size;
    pl_file_close(&f);
    return rc;
}

pl_status pl__manifest_add(const char *dir, const char *name, pl_checkpoint *c)
{
    char path[PL_PATH_BYTES];
    int i = c->n_files;
    PL_FAIL_IF(i == sizeof c->file / sizeof *c->file || strlen(name) >= sizeof c->file[i].name,
               PL_ERR_ARG, "%s: too many files, or a file name that is too long", name);
    PL_TRY(pl__path(path, dir, name));
    PL_TRY(pl__file_sum(path, &c->file[i].bytes, &c->file[i].hash));
    snprintf(c->file[i].name, sizeof c->file[i].name, "%s", name);
    c->bytes += c->file[i].bytes;
    c->n_files++;
    return PL_OK;
}

static pl_status verify_file(const char *dir, const pl_checkpoint *c, int i, char *block)
{
    char path[PL_PATH_BYTES];
    pl_file f;
    uint64_t hash = 0, size;
    PL_TRY(pl__path(path, dir, c->file[i].name));
    pl_status rc = pl_file_open(path, PL_ERR_FILE, &f);
    if (rc == PL_ERR_IO) return PL_ERR_FILE; /* with its message */
    if (rc != PL_OK) return rc;
    size = f.size;
    if (size == c->file[i].bytes) rc = hash_file(&f, block, &hash);
    if (rc == PL_OK && hash == c->file[i].hash) pl_file_set_verified(&f);
    pl_file_close(&f);
    PL_TRY(rc);
    PL_FAIL_IF(size != c->file[i].bytes, PL_ERR_FILE, "%s has %llu bytes, %llu were written", path,
               (unsigned long long)size, (unsigned long long)c->file[i].bytes);
    PL_FAIL_IF(hash != c->file[i].hash, PL_ERR_FILE,
               "%s: its bytes changed since it was written (checksum %016llx, was %016llx)", path,
               (unsigned long long)hash, (unsigned long long)c->file[i].hash);
    return PL_OK;
}

pl_status pl__manifest_verify(const char *dir, const pl_checkpoint *c, const char *pattern)
{
    char *block = pl_sys_alloc(PL_STAGE_BYTES);
    if (!block) return PL_ERR_MEMORY;
    pl_status rc = PL_OK;
    for (int i = 0; i < c->n_files && rc == PL_OK; i++)
        if (fnmatch(pattern, c->file[i].name, 0) == 0) rc = verify_file(dir, c, i, block);
    pl_sys_free(block);
    return rc;
}

pl_status pl_checkpoint_verify(const char *dir, pl_checkpoint *out)
{
    PL_TRY(pl_checkpoint_read(dir, out));
    return pl__manifest_verify(dir, out, "*");
}

/* Verifies dir/name against the manifest dir/record, if the manifest lists the file. */
static pl_status verify_listed(const char *dir, const char *record, const char *name)
{
    char path[PL_PATH_BYTES];
    PL_TRY(pl__path(path, dir, record));
    if (access(path, F_OK) != 0) return PL_OK;
    pl_checkpoint *c = pl_sys_alloc(sizeof *c);
    if (!c) return PL_ERR_MEMORY;
    pl_status rc = pl__manifest_read(dir, record, "a folder of model files", c);
    for (int i = 0; i < c->n_files && rc == PL_OK; i++)
        if (strcmp(c->file[i].name, name) == 0) rc = pl__manifest_verify(dir, c, name);
    pl_sys_free(c);
    return rc;
}

pl_status pl__recorded_check(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char dir[PL_PATH_BYTES];
    if (strpbrk(name, "*?[\\")) return PL_OK; /* not a name that a manifest has */
    int n = snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    PL_FAIL_IF(n < 0 || (size_t)n >= sizeof dir, PL_ERR_IO, "path too long: %.200s", path);
    if (!dir[0]) snprintf(dir, sizeof dir, "/");
    pl_status rc = verify_listed(dir, PL_FINISHED, name);
    if (rc == PL_OK) rc = verify_listed(dir, "manifest.json", name);
    if (rc != PL_ERR_FILE) return rc;
    char why[512];
    snprintf(why, sizeof why, "%s", pl_error_text());
    PL_FAIL(PL_ERR_FILE, "%s; the same train command makes it again", why);
}
