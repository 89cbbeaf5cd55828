/* watch.c - see watch.h.
 *
 * One thread does everything: it runs the library's loop, and between two rounds closes connections
 * that are too old. A connection serves one request (Connection: close), so its age also bounds a
 * client that sends or reads slowly.
 */
#include "watch.h"

#include "cli/ui.h"
#include "report.h"
#include "watch_state.h"

#if __has_include(<microhttpd.h>)
# include <microhttpd.h>
#endif

/* MHD_run_wait came with this version; Debian 11 has an older one. */
#if defined MHD_VERSION && MHD_VERSION >= 0x00097206
# include <arpa/inet.h>
# include <dlfcn.h>
# include <errno.h>
# include <fcntl.h>
# include <stdlib.h>
# include <string.h>
# include <sys/random.h>
# include <sys/socket.h>
# include <sys/stat.h>
# include <unistd.h>

enum { CONNECTIONS = 16, IDLE_S = 5, AGE_S = 20, REQUEST_BYTES = 16 << 10, TURN_MS = 200 };
enum { TOKEN = 32, PICTURE_BYTES = 64 << 20 };

/* ---- the library ------------------------------------------------------------------------ */
/* clang-format off */
# define FUNCTIONS(X) \
    X(MHD_start_daemon) X(MHD_stop_daemon) X(MHD_run_wait) X(MHD_get_daemon_info) \
    X(MHD_get_connection_info) X(MHD_lookup_connection_value) X(MHD_add_response_header) \
    X(MHD_create_response_from_buffer) X(MHD_create_response_from_fd64) X(MHD_queue_response) \
    X(MHD_destroy_response)
/* clang-format on */

static union {
    struct {
# define MEMBER(f) __typeof__(&f) f;
        FUNCTIONS(MEMBER)
# undef MEMBER
    };
    void *table[11];
} lib;

static bool open_library(void)
{
    static const char *const names[] = {"libmicrohttpd.so.12", "libmicrohttpd.so"};
    static const char *const symbols[] = {
# define NAME(f) # f,
        FUNCTIONS(NAME)
# undef NAME
    };
    void *so = NULL;
    for (int i = 0; !so && i < 2; i++) so = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; so && i < sizeof symbols / sizeof *symbols; i++)
        if (!(lib.table[i] = dlsym(so, symbols[i]))) so = NULL;
    return so != NULL;
}

const char *watch_missing(void)
{
    return open_library()
               ? NULL
               : "libmicrohttpd 0.9.72 or later is not installed (apt-get install libmicrohttpd12)";
}

/* ---- answers ---------------------------------------------------------------------------- */
typedef struct client {
    int fd;
    double since; /* clock, seconds */
} client;

struct watch {
    const char *dir;
    char token[TOKEN + 1];
    report r;
    bool read; /* r holds the run */
    char stamp[80];
    client client[CONNECTIONS + 1];
};

static enum MHD_Result send_response(struct MHD_Connection *c, unsigned status,
                                     struct MHD_Response *r, const char *type)
{
    static const char *const headers[][2] = {
        {"Cache-Control", "no-store"},
        {"Connection", "close"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
         "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'"},
    };
    if (!r) return MHD_NO;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        lib.MHD_add_response_header(r, headers[i][0], headers[i][1]);
    lib.MHD_add_response_header(r, "Content-Type", type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) lib.MHD_add_response_header(r, "Allow", "GET, HEAD");
    enum MHD_Result rc = lib.MHD_queue_response(c, status, r);
    lib.MHD_destroy_response(r);
    return rc;
}

static enum MHD_Result send_text(struct MHD_Connection *c, unsigned status, const char *text)
{
    struct MHD_Response *r = lib.MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    return send_response(c, status, r, "text/plain; charset=utf-8");
}

/* Sends what a stream of memory collected; frees it. */
static enum MHD_Result send_made(struct MHD_Connection *c, FILE *f, char **text, size_t *n,
                                 const char *type)
{
    bool ok = f && !ferror(f);
    if (f && fclose(f) != 0) ok = false;
    struct MHD_Response *r =
        ok ? lib.MHD_create_response_from_buffer(*n, *text, MHD_RESPMEM_MUST_FREE) : NULL;
    if (r) return send_response(c, MHD_HTTP_OK, r, type);
    free(*text);
    return send_text(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
}

/* Reads the run, or its new lines. False: the folder has no run yet. */
static bool update(watch *w)
{
    char stamp[80];
    watch_plan_stamp(w->dir, stamp, sizeof stamp);
    if (w->read && strcmp(stamp, w->stamp) == 0) return report_follow(&w->r);
    report_release(&w->r);
    w->r = (report){0};
    w->read = false;
    snprintf(w->stamp, sizeof w->stamp, "%s", stamp);
    char path[4200];
    snprintf(path, sizeof path, "%s/log.jsonl", w->dir);
    if (!stamp[0] || access(path, R_OK) != 0) return false;
    w->read = report_read(&w->r, w->dir);
    if (!w->read) report_release(&w->r);
    if (!w->read) w->r = (report){0};
    return w->read;
}

/* The page before there is a plan: it asks again every two seconds. */
static enum MHD_Result send_waiting(struct MHD_Connection *c)
{
    static const char page[] =
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>Waiting for the run</title>\n"
        "<style>:root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;"
        "max-width:40em;margin:4em auto;padding:0 1em}</style>\n"
        "<h1>Waiting for the run</h1>\n<p role=\"status\">The folder has no plan yet: the run has "
        "not started, or it is being planned. This page shows the run as soon as it trains.</p>\n"
        "<script>'use strict';\nsetTimeout(() => location.reload(), 2000);\n</script>\n";
    struct MHD_Response *r = lib.MHD_create_response_from_buffer(
        sizeof page - 1, (void *)(uintptr_t)page, MHD_RESPMEM_PERSISTENT);
    return send_response(c, MHD_HTTP_OK, r, "text/html; charset=utf-8");
}

static enum MHD_Result send_page(watch *w, struct MHD_Connection *c)
{
    if (!update(w)) return send_waiting(c);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    json_t *live = watch_state(&w->r, w->stamp);
    if (f) report_html(&w->r, live, f);
    json_decref(live);
    return send_made(c, f, &text, &n, "text/html; charset=utf-8");
}

static enum MHD_Result send_data(watch *w, struct MHD_Connection *c)
{
    const char *seen = lib.MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "seen");
    if (!update(w)) return send_text(c, MHD_HTTP_SERVICE_UNAVAILABLE, "the run has not started\n");
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    json_t *live = watch_state(&w->r, w->stamp);
    if (f && seen && strtoll(seen, NULL, 10) == w->r.log.at) {
        fprintf(f, "{\"live\":");
        report_put_json(live, f);
        fputc('}', f);
    } else if (f) {
        report_run_json(&w->r, live, f);
    }
    json_decref(live);
    return send_made(c, f, &text, &n, "application/json");
}

/* Serves a picture only if the report shows it: the name is compared, and never made a path. */
static enum MHD_Result send_picture(watch *w, struct MHD_Connection *c, const char *name)
{
    char file[512], path[4700];
    struct stat s;
    for (size_t i = 0; update(w) && i < json_array_size(w->r.samples); i++) {
        if (!report_shows(&w->r, i, file, sizeof file) || strcmp(file, name) != 0) continue;
        snprintf(path, sizeof path, "%.4000s/%s", w->dir, file);
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_size <= PICTURE_BYTES)
            return send_response(c, MHD_HTTP_OK,
                                 lib.MHD_create_response_from_fd64((uint64_t)s.st_size, fd),
                                 "image/png");
        if (fd >= 0) close(fd);
        break;
    }
    return send_text(c, MHD_HTTP_NOT_FOUND, "no such picture\n");
}

/* Compares all characters, so that the time does not reveal how many are right. */
static bool has_token(const watch *w, const char *url)
{
    unsigned differ = 0;
    if (strlen(url) < TOKEN + 1 || url[0] != '/') return false;
    for (int i = 0; i < TOKEN; i++) differ |= (unsigned)(url[i + 1] ^ w->token[i]);
    return differ == 0 && (url[TOKEN + 1] == '/' || url[TOKEN + 1] == 0);
}

static enum MHD_Result answer(void *ctx, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **request)
{
    watch *w = ctx;
    static int seen;
    (void)version, (void)upload;
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    if (!has_token(w, url))
        return send_text(c, MHD_HTTP_FORBIDDEN,
                         "this address needs the token that plimsoll watch "
                         "printed\n");
    if (!get) return send_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only\n");
    if (!*request) { /* the headers are complete; a body, which GET may have, is not read */
        *request = &seen;
        if (*upload_bytes == 0) return MHD_YES;
    }
    if (*upload_bytes) return MHD_NO;
    const char *rest = url + 1 + TOKEN;
    if (strcmp(rest, "/") == 0) return send_page(w, c);
    if (strcmp(rest, "/run.json") == 0) return send_data(w, c);
    if (strncmp(rest, "/samples/", 9) == 0) return send_picture(w, c, rest + 1);
    return send_text(c, MHD_HTTP_NOT_FOUND, "no such page\n");
}

/* ---- connections ------------------------------------------------------------------------ */
static void connected(void *ctx, struct MHD_Connection *c, void **own,
                      enum MHD_ConnectionNotificationCode what)
{
    watch *w = ctx;
    (void)own;
    const union MHD_ConnectionInfo *info =
        lib.MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return;
    for (int i = 0; i <= CONNECTIONS; i++) {
        client *k = &w->client[i];
        bool start = what == MHD_CONNECTION_NOTIFY_STARTED;
        if (start ? k->fd >= 0 : k->fd != info->connect_fd) continue;
        *k = (client){.fd = start ? info->connect_fd : -1, .since = cli_seconds()};
        return;
    }
}

/* The library closes a connection whose socket is shut down. */
static void end_old(const watch *w)
{
    double now = cli_seconds();
    for (int i = 0; i <= CONNECTIONS; i++)
        if (w->client[i].fd >= 0 && now - w->client[i].since > AGE_S)
            shutdown(w->client[i].fd, SHUT_RDWR);
}

static bool make_token(char *out)
{
    unsigned char b[TOKEN / 2];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b) return false;
    for (size_t i = 0; i < sizeof b; i++) snprintf(out + 2 * i, 3, "%02x", b[i]);
    return true;
}

static void quiet(void *ctx, const char *fmt, va_list ap)
{
    (void)ctx, (void)fmt, (void)ap; /* errors of a broken client are not reported */
}

static struct MHD_Daemon *listen_at(watch *w, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return lib.MHD_start_daemon(
        MHD_USE_ERROR_LOG, (uint16_t)port, NULL, NULL, answer, w, MHD_OPTION_EXTERNAL_LOGGER, quiet,
        NULL, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)REQUEST_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
        connected, w, MHD_OPTION_END);
}

static int serve(watch *w, int port, const volatile sig_atomic_t *stop)
{
    struct MHD_Daemon *d = listen_at(w, port);
    if (!d) {
        cli_error("cannot listen on 127.0.0.1:%d: %s; --port N chooses another port, without it a "
                  "free one is used",
                  port, strerror(errno));
        return 1;
    }
    const union MHD_DaemonInfo *info = lib.MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT);
    printf("http://127.0.0.1:%d/%s/\n", info ? info->port : port, w->token);
    fflush(stdout);
    fprintf(stderr, "watching %s; open this address in a browser on this machine, Ctrl-C ends\n",
            w->dir);
    while (!*stop) {
        lib.MHD_run_wait(d, TURN_MS);
        end_old(w);
    }
    lib.MHD_stop_daemon(d);
    return 0;
}

static int serve_run(const char *dir, int port, const volatile sig_atomic_t *stop)
{
    watch w = {.dir = dir};
    if (!make_token(w.token)) {
        cli_error("cannot make a random token: %s", strerror(errno));
        return 1;
    }
    for (int i = 0; i <= CONNECTIONS; i++) w.client[i].fd = -1;
    int code = serve(&w, port, stop);
    report_release(&w.r);
    return code;
}

#else

const char *watch_missing(void)
{
    return "this program was built without libmicrohttpd 0.9.73 or newer (apt-get install "
           "libmicrohttpd-dev, then build again)";
}

static int serve_run(const char *dir, int port, const volatile sig_atomic_t *stop)
{
    (void)dir, (void)port, (void)stop;
    return 1;
}
#endif

int watch_run(const char *dir, int port, const volatile sig_atomic_t *stop)
{
    const char *why_not = watch_missing();
    if (!why_not) return serve_run(dir, port, stop);
    cli_error("watch needs libmicrohttpd: %s; plimsoll report %s writes a page without it", why_not,
              dir);
    return 1;
}
