/* test_watch.c - `plimsoll watch` over real connections: the token, broken and slow clients, and
 * the state of a run that trains, ends, fails or is cut. */
#include "tests/lib/cli_run.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct server {
    pid_t pid;
    int port;
    char token[40], url[128];
} server;

static const char *run_dir(void)
{
    return pl_test_path("run");
}

/* Starts the command and reads the address that it prints. */
static bool start(server *s)
{
    int fd[2];
    char line[256] = "";
    if (pipe(fd) != 0) return false;
    s->pid = fork();
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failing test leaves no server behind */
        dup2(fd[1], 1);
        close(fd[0]);
        close(fd[1]);
        execl(cli_bin(), cli_bin(), "watch", run_dir(), (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    FILE *f = fdopen(fd[0], "r");
    bool ok = f && fgets(line, sizeof line, f) &&
              sscanf(line, "http://127.0.0.1:%d/%32[0-9a-f]/", &s->port, s->token) == 2 &&
              strlen(s->token) == 32;
    if (f) fclose(f);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/%s/", s->port, s->token);
    return ok;
}

/* Ends the server as Ctrl-C does; returns its exit code. */
static int stop(server *s)
{
    int status = -1;
    kill(s->pid, SIGINT);
    waitpid(s->pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int dial(const server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)s->port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
    close(fd);
    return -1;
}

/* Reads until the server closes, at most a minute. */
static size_t drain(int fd, char *out, size_t cap)
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (n + 1 < cap && poll(&p, 1, 60000) == 1) {
        ssize_t got = recv(fd, out + n, cap - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
    }
    out[n] = 0;
    return n;
}

static char answer[1 << 20];

/* Sends bytes as they are; returns the status of the answer, 0: closed without an answer. */
static int send_raw(const server *s, const char *bytes, size_t n)
{
    int fd = dial(s), code = 0;
    answer[0] = 0;
    if (fd < 0) return -1;
    (void)!send(fd, bytes, n, MSG_NOSIGNAL);
    drain(fd, answer, sizeof answer);
    close(fd);
    return sscanf(answer, "HTTP/1.%*d %d", &code) == 1 ? code : 0;
}

static int ask(const server *s, const char *method, const char *path)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path);
    return send_raw(s, text, (size_t)n);
}

/* A page under the token. */
static int get(const server *s, const char *page)
{
    char path[512];
    snprintf(path, sizeof path, "/%s/%s", s->token, page);
    return ask(s, "GET", path);
}

static bool train(void)
{
    return cli_run("cd %s && $P train " CLI_SMALL "train.steps=4 eval.every=2 --quiet --out run",
                   pl_test_dir())
               .code == 0;
}

static bool library_here(void)
{
    cli_result r =
        cli_run("timeout 20 $P watch /dev/null/none; timeout -s INT 3 $P watch %s", pl_test_dir());
    return !strstr(r.err, "libmicrohttpd");
}

#define WANT_SERVER(s)                                                                             \
 server s = {0};                                                                                   \
 WANT_BIN();                                                                                       \
 CHECK(train());                                                                                   \
 if (!start(&s)) SKIP("no libmicrohttpd")

TEST(watch_answers_only_with_the_token)
{
    WANT_SERVER(s);
    char path[256];

    cli_result before = cli_run("cd %s && find . -printf '%%p %%s %%T@\n'", run_dir());
    static char listed[16384];
    snprintf(listed, sizeof listed, "%s", before.out);
    CHECK_INT(get(&s, ""), 200);
    CHECK(strstr(answer, "id=\"run\"") && strstr(answer, "Content-Security-Policy:"));
    CHECK_INT(get(&s, "run.json"), 200);
    CHECK(strstr(answer, "\"state\":\"ended\"") && strstr(answer, "\"rows\":[[1,"));

    static const char *const without[] = {"/",
                                          "/favicon.ico",
                                          "/run.json",
                                          "//",
                                          "/..",
                                          "/%2e%2e/",
                                          "/0123456789abcdef0123456789abcdef/"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        CHECK_MSG(ask(&s, "GET", without[i]) == 403 && !strstr(answer, "rows"), "%s: %s",
                  without[i], answer);
    snprintf(path, sizeof path, "/%.31s/", s.token);
    CHECK_INT(ask(&s, "GET", path), 403);

    snprintf(path, sizeof path, "/%sx/", s.token);
    CHECK_INT(ask(&s, "GET", path), 403);
    static const char *const nothing[] = {"config.yaml",
                                          "../run/config.yaml",
                                          "samples/",
                                          "samples/../config.yaml",
                                          "samples/%2e%2e/config.yaml",
                                          "samples//etc/passwd",
                                          "run.json/",
                                          "..%2f..%2f"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++)
        CHECK_MSG(get(&s, nothing[i]) == 404, "%s: %.200s", nothing[i], answer);
    snprintf(path, sizeof path, "/%s/", s.token);
    CHECK_INT(ask(&s, "POST", path), 405);
    CHECK_INT(ask(&s, "DELETE", path), 405);
    CHECK_INT(ask(&s, "POST", "/"), 403);
    CHECK_INT(stop(&s), 0);

    cli_result after = cli_run("cd %s && find . -printf '%%p %%s %%T@\n'", run_dir());
    CHECK_MSG(strcmp(listed, after.out) == 0, "the run folder changed:\n%s%s", listed, after.out);
}

/* After any input, the server answers the next client. */
TEST(watch_survives_broken_clients)
{
    WANT_SERVER(s);
    static char large[200000];

    memset(large, 'a', sizeof large);
    memcpy(large, "GET /", 5);
    CHECK(send_raw(&s, large, sizeof large) != 200);
    memcpy(large, "GET / HTTP/1.1\r\nX: ", 19);
    CHECK(send_raw(&s, large, sizeof large) != 200);

    uint64_t noise = 7;
    for (int i = 0; i < 20; i++) {
        char bytes[256];
        for (size_t k = 0; k < sizeof bytes - 4; k++)
            bytes[k] = (char)(127 * pl_test_noise(&noise));
        memcpy(bytes + sizeof bytes - 4, "\r\n\r\n", 4);
        CHECK(send_raw(&s, bytes, sizeof bytes) != 200);
    }
    static const char *const odd[] = {"\r\n\r\n",
                                      "GET\r\n\r\n",
                                      "GET / HTTP/9.9\r\n\r\n",
                                      "GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                                      "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                                      "POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\nx"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        CHECK_MSG(send_raw(&s, odd[i], strlen(odd[i])) != 200, "%s", odd[i]);
    int fd = dial(&s); /* sends a request and disconnects */
    (void)!send(fd, "GET / HT", 8, MSG_NOSIGNAL);
    close(fd);
    CHECK_INT(get(&s, ""), 200);
    CHECK_INT(stop(&s), 0);
}

/* Silent clients are closed, clients beyond the limit are refused, others are served. */
TEST(watch_closes_silent_clients)
{
    WANT_SERVER(s);
    int idle[40];
    char rest[64];

    for (int i = 0; i < 8; i++) CHECK((idle[i] = dial(&s)) >= 0);
    (void)!send(idle[0], "GET /", 5, MSG_NOSIGNAL);
    CHECK_INT(get(&s, ""), 200);
    for (int i = 8; i < 40; i++) idle[i] = dial(&s);
    for (int i = 0; i < 40; i++) {
        if (idle[i] < 0) continue;
        size_t n = drain(idle[i], rest, sizeof rest); /* returns when the server has closed */
        CHECK_MSG(n == 0 || strncmp(rest, "HTTP/1.1 4", 10) == 0, "client %d: %s", i, rest);
        close(idle[i]);
    }
    int code = 0; /* the last connections may still count for a moment */
    for (int i = 0; i < 300 && code != 200; i++) {
        if (i) usleep(100000);
        code = get(&s, "");
    }

    CHECK_INT(code, 200);
    CHECK_INT(stop(&s), 0);
}

/* One byte per second keeps a connection active, but the server closes it anyway. */
TEST(watch_closes_slow_clients)
{
    if (!pl_test_long()) SKIP("long");
    WANT_SERVER(s);
    int fd = dial(&s), sent = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (sent < 120 && send(fd, "x", 1, MSG_NOSIGNAL) == 1 && poll(&p, 1, 1000) == 0) sent++;
    CHECK_MSG(sent > 5 && sent < 60, "%d bytes", sent);
    close(fd);
    CHECK_INT(stop(&s), 0);
}

/* The server reads new lines of the log, and the whole log after a run cut it. */
TEST(watch_follows_a_run)
{
    WANT_BIN();
    server s = {0};

    CHECK(train());
    const char *d = pl_test_dir();
    CHECK_INT(cli_run("cd %s && mv run whole && mkdir run", d).code, 0);
    if (!start(&s)) SKIP("no libmicrohttpd");
    CHECK_INT(get(&s, ""), 200);
    CHECK_MSG(strstr(answer, "Waiting for the run"), "%s", answer);
    CHECK_INT(get(&s, "run.json"), 503);
    CHECK_INT(cli_run("cd %s && cp whole/plan.json whole/config.yaml run && "
                      "grep -v '\"event\":\"end\"' whole/log.jsonl > run/log.jsonl",
                      d)
                  .code,
              0);
    CHECK_INT(get(&s, "run.json"), 200);
    CHECK_MSG(strstr(answer, "\"state\":\"running\"") && strstr(answer, "\"steps\":4,") &&
                  strstr(answer, "\"last_step\":4"),
              "%s", strstr(answer, "\"live\""));

    const char *seen = strstr(answer, "\"seen\":");
    char page[64];
    snprintf(page, sizeof page, "run.json?seen=%ld", seen ? atol(seen + 7) : 0);
    CHECK_INT(get(&s, page), 200);
    CHECK(strstr(answer, "{\"live\":{") && !strstr(answer, "\"rows\""));
#define APPEND(text)                                                                               \
 CHECK(cli_run("cd %s && printf '%%s\\n' '" text "' >> run/log.jsonl", d).code == 0)

    APPEND("{\"event\":\"step\",\"step\":5,\"loss\":2.5,\"step_ms\":1}");
    CHECK_INT(get(&s, page), 200);
    CHECK(strstr(answer, "\"steps\":5,") && strstr(answer, "[5,2.5,null,null,1,null,null]"));

    APPEND("{\"event\":\"error\",\"code\":7,\"message\":\"the loss is not finite\"}");
    CHECK_INT(get(&s, "run.json"), 200);
    CHECK(strstr(answer, "\"state\":\"failed\"") && strstr(answer, "the loss is not finite"));

    APPEND("{\"event\":\"step\",\"step\":6,\"loss\":1,\"step_ms\":1}");
    APPEND("{\"event\":\"end\",\"steps\":6,\"wall_s\":1,\"stopped\":true}");
    CHECK_INT(get(&s, "run.json"), 200);
    CHECK(strstr(answer, "\"state\":\"stopped\""));
    /* resumed from an earlier checkpoint: the log is cut, and longer than before when it is read */
    CHECK_INT(
        cli_run("cd %s && grep -v '\"event\":\"end\"' whole/log.jsonl > run/log.jsonl", d).code, 0);

    for (int i = 0; i < 4; i++)
        APPEND(
            "{\"event\":\"step\",\"step\":5,\"loss\":9.25,\"step_ms\":1,\"other\":\"another line\"}");
    CHECK_INT(get(&s, "run.json"), 200);
    CHECK(strstr(answer, "\"state\":\"running\"") && strstr(answer, "[5,9.25,") &&
          !strstr(answer, "[5,2.5,"));
    CHECK_INT(cli_run("cd %s && touch -d '10 minutes ago' run/log.jsonl", d).code, 0);
    CHECK_INT(get(&s, "run.json"), 200);
    CHECK(strstr(answer, "\"state\":\"stalled\""));
    CHECK_INT(stop(&s), 0);
}

TEST(watch_refuses_bad_arguments)
{
    WANT_BIN();
    CHECK_RUN(cli_run("$P watch %s/none", pl_test_dir()), 1, "is not a folder");
    CHECK_RUN(cli_run("$P watch"), 2, "one run folder");
    CHECK_RUN(cli_run("$P watch %s --port 70000", pl_test_dir()), 2, "from 1 to 65535");
    CHECK_RUN(cli_run("$P watch %s --port 8x", pl_test_dir()), 2, "from 1 to 65535");
    if (!library_here()) SKIP("no libmicrohttpd");
    CHECK(train());
    server s = {0};
    CHECK(start(&s));
    CHECK_RUN(cli_run("$P watch %s --port %d", pl_test_dir(), s.port), 1, "cannot listen on");
    CHECK_INT(stop(&s), 0);
}

/* ---- in a browser ------------------------------------------------------------------------- */
/* The page after its scripts ran; messages of its console are on stderr. */
static cli_result browse(const char *url)
{
    return cli_run("chromium --headless=new --no-sandbox --disable-gpu --user-data-dir=%s/profile "
                   "--enable-logging=stderr --virtual-time-budget=3000 --dump-dom '%s'",
                   pl_test_dir(), url);
}

#define CHECK_PAGE(r, part)                                                                        \
 do {                                                                                              \
  cli_result r_ = (r);                                                                             \
  CHECK_MSG(r_.code == 0 && strstr(r_.out, part), "no %s: %d %s", part, r_.code, r_.err);          \
  CHECK_MSG(!strstr(r_.err, "CONSOLE"), "%s", r_.err);                                             \
 } while (0)

TEST(watch_in_a_browser_has_no_errors)
{
    if (cli_run("command -v chromium").code != 0) SKIP("no chromium");
    WANT_SERVER(s);
    char file[600], bare[64];

    CHECK_PAGE(browse(s.url), "<b>finished</b>");
    snprintf(bare, sizeof bare, "http://127.0.0.1:%d/", s.port);
    cli_result r = browse(bare);
    CHECK_MSG(strstr(r.out, "needs the token"), "%s", r.out);
    CHECK_INT(stop(&s), 0);

    if (!pl_test_long()) return;
    CHECK_RUN(
        cli_run("cd %s && $P report run && $P report run run --out c.html && $P plan " CLI_SMALL
                "--timeline p.html",
                pl_test_dir()),
        0, "");
    static const struct {
        const char *file, *part;
    } page[] = {{"run/report.html", "Training report: "},
                {"c.html", "The configurations are equal."},
                {"p.html", "Memory of one training step: "}};
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "file://%s/%s", pl_test_dir(), page[i].file);
        CHECK_PAGE(browse(file), page[i].part);
    }
}
