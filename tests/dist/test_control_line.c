/* test_control_line.c - a rank's end of the control channel, as a process; the hub is real or
 * played by the test. */
#include "base/sys.h"
#include "tests/dist/control_lab.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKEN = 0x1234 };

typedef struct part {
    pl_control_at at;
    int rank, ranks, stay_ms, code;
    double limit;
    const char *fails; /* the error that it reports; NULL: none */
} part;

static void say_doing(void *ctx, char *out, size_t cap)
{
    const part *p = ctx;
    snprintf(out, cap, "training at step 7, all_reduce gradients %d (exchange 41)", p->rank);
}

static void note_signal(int number)
{
    _exit(100 + number);
}

static int be_rank(void *ctx)
{
    part *p = ctx;
    pl_line *l;
    signal(SIGTERM, note_signal);
    signal(SIGUSR1, note_signal);
    if (pl_line_open(&p->at, p->rank, "h", "rank 0 host x", NULL, say_doing, p, &l) != PL_OK)
        return 99;
    if (p->limit > 0) pl_line_set_limit(l, p->limit);
    for (int i = 0; i < p->stay_ms; i += 5) usleep(5000);
    if (p->fails) pl_line_fail(l, p->code, p->fails);
    pl_line_close(l, p->ranks, p->code);
    return p->code;
}

/* A hub that the test plays: it listens, and the rank connects and is welcomed. */
static int play_hub(part *p, ctl_child *c)
{
    p->at = (pl_control_at){.address = {htonl(INADDR_LOOPBACK)}, .token = TOKEN};
    p->ranks = 1;
    int listening = ctl_listen(1, &p->at.port);
    if (listening < 0) return -1;
    ctl_fork(be_rank, p, c);
    int fd = accept(listening, NULL, NULL);
    close(listening);
    if (fd < 0 || !ctl_hear(fd, "\n", 20000)[0]) return -1;
    ctl_say(fd, "welcome 1234\n");
    return ctl_hear(fd, "here\n", 20000)[0] ? fd : -1;
}

/* ---- both ends -------------------------------------------------------------------------- */
/* All ranks connect at the same time, also the rank that runs the hub, and leave at the same
 * time: many times, because races are rare. */
TEST(control_line_holds_in_many_short_worlds)
{
    if (!pl_test_long()) SKIP("long");
    enum { RANKS = 6 };
    int worlds = pl_test_long() ? 300 : 25;
    for (int w = 0; w < worlds; w++) {
        pl_hub *h;
        pl_line *l;
        part own = {.ranks = RANKS}, other[RANKS];
        ctl_child c[RANKS];
        int code;
        CHECK_OK(pl_hub_new(RANKS, false, &h));
        pl_hub_where(h, &own.at);
        for (int i = 1; i < RANKS; i++) {
            other[i] = own;
            other[i].rank = i;
            other[i].stay_ms = (i * w) % 16;
            ctl_fork(be_rank, &other[i], &c[i]);
        }
        CHECK_OK(pl_line_open(&own.at, 0, "h", "own", h, say_doing, &own, &l));
        pl_line_close(l, RANKS, 0);
        CHECK_MSG(!pl_hub_verdict(h, &code)[0] && code == 0, "world %d: %s", w,
                  pl_hub_verdict(h, &code));
        CHECK_INT(pl_hub_left(h), RANKS);
        pl_hub_free(h);
        for (int i = 1; i < RANKS; i++) CHECK_INT(ctl_wait(&c[i], NULL, 3000), 0);
    }
}

/* A rank that sends heartbeats is alive, however long it runs past the limit. */
TEST(control_line_that_beats_is_alive_past_the_limit)
{
    pl_hub *h;
    part p = {.ranks = 1, .stay_ms = 1700, .limit = 1.0};
    ctl_child c;
    int code;
    CHECK_OK(pl_hub_new(1, false, &h));
    pl_hub_where(h, &p.at);
    ctl_fork(be_rank, &p, &c);

    CHECK_INT(ctl_wait(&c, h, 8000), 0);
    CHECK(ctl_tend(h, 1000));
    CHECK_MSG(!pl_hub_verdict(h, &code)[0], "%s", pl_hub_verdict(h, &code));
    pl_hub_free(h);
}

/* A rank that has left does not end before the others have left: mpirun would end them. */
TEST(control_line_waits_until_all_ranks_have_left)
{
    pl_hub *h;
    part p = {.rank = 1, .ranks = 2, .code = 75};
    ctl_child c;
    int code, status;
    CHECK_OK(pl_hub_new(2, false, &h));
    pl_hub_where(h, &p.at);
    int other = ctl_rank(h, 0, "b");
    ctl_fork(be_rank, &p, &c);

    for (int ms = 0; ms < 3000; ms += 20) {
        CHECK(!ctl_tend(h, 20));
        CHECK_MSG(waitpid(c.pid, &status, WNOHANG) == 0, "it ended after about %d ms", ms);
    }
    CHECK_INT(pl_hub_left(h), 1);
    ctl_say(other, "bye 75\n");
    CHECK_INT(ctl_wait(&c, h, 5000), 75);
    CHECK_MSG(!pl_hub_verdict(h, &code)[0] && code == 75, "%s", pl_hub_verdict(h, &code));

    close(other);
    pl_hub_free(h);
}

static int be_rank_with_hub(void *ctx)
{
    part *p = ctx;
    pl_hub *h;
    pl_line *l;
    p->ranks = 1;
    if (pl_hub_new(2, false, &h) != PL_OK) return 98;
    pl_hub_where(h, &p->at);
    if (pl_line_open(&p->at, 0, "h", "own", h, say_doing, p, &l) != PL_OK) return 99;
    pl_line_fail(l, p->code, p->fails);
    return 97;
}

/* The hub is in the rank that fails: its message is printed once, with rank and host, and its exit
 * code is used. */
TEST(control_line_reports_its_own_failure_once)
{
    part p = {.code = 6, .fails = "no such file"};
    ctl_child c;
    ctl_fork(be_rank_with_hub, &p, &c);
    CHECK_INT(ctl_wait(&c, NULL, 3000), 6);
    CHECK_MSG(strcmp(ctl_err(&c), "plimsoll: [rank 0 host h] no such file\n") == 0, "%s",
              ctl_err(&c));
}

/* A message of any length, with line ends, becomes one line, cut, with the exit code. */
TEST(control_line_fails_with_any_text)
{
    pl_hub *h;
    static char text[3000];
    for (size_t length = 880; length < 900; length += 1) {
        part p = {.ranks = 1, .code = 5, .fails = text};
        ctl_child c;
        int code;
        memset(text, 'x', sizeof text);
        text[length == 899 ? sizeof text - 1 : length] = 0;
        text[10] = '\n';
        CHECK_OK(pl_hub_new(1, false, &h));
        pl_hub_where(h, &p.at);
        ctl_fork(be_rank, &p, &c);
        CHECK_INT(ctl_wait(&c, h, 3000), 5);
        ctl_tend(h, 100);
        const char *v = pl_hub_verdict(h, &code);
        CHECK_MSG(strncmp(v, "[rank 0 host h] xxxxxxxxxx xxx", 30) == 0 && strlen(v) > 800, "%s",
                  v);
        CHECK_INT(code, 5);
        pl_hub_free(h);
    }
}

/* ---- what a rank hears ------------------------------------------------------------------ */
static const struct {
    const char *said;
    int code; /* the rank's */
} words[] = {
    {"end 3\n", 3},
    {"end 8\n", 8},
    {"end 0\n", 8},
    {"end 999\n", 8},
    {"end -4\n", 8},
    {"stop 15\n", 100 + 15},
    {"ask 10\n", 100 + 10},
    {"ask 9\nask 15\nend 3\n", 3},
    {"stop 9\nend 3\n", 3},
    {"stop 19\nend 3\n", 3},
    {"stop\nend 3\n", 3},
    {"end\nend x\nend 3\n", 3},
    {"\n\n\nend 3\n", 3},
    {"fail 5 x\nend 3\n", 3},
    {"beat\nbeat\nend 3\n", 3},
    {"welcome 1234\nhello 0 1 2 3\nend 3\n", 3},
};

TEST(control_line_understands_every_message)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        part p = {.stay_ms = 5000};
        ctl_child c;
        int fd = play_hub(&p, &c);
        CHECK(fd >= 0);
        ctl_say(fd, words[i].said);
        int code = ctl_wait(&c, NULL, 3000);
        CHECK_MSG(code == words[i].code, "\"%s\": exit %d", words[i].said, code);
        close(fd);
    }
}

/* A rank that is asked what it does answers at once; its regular reports are 250 ms apart. */
TEST(control_line_reports_when_asked)
{
    part p = {.stay_ms = 9000};
    ctl_child c;
    int fd = play_hub(&p, &c);
    CHECK(fd >= 0);
    uint64_t began = pl_sys_now_ns();
    for (int i = 0; i < 20; i++) {
        ctl_say(fd, "report\n");
        CHECK(ctl_hear(fd, "beat training at step 7, all_reduce gradients 0 (exchange 41)\n",
                       3000)[0]);
    }
    double seconds = 1e-9 * (double)(pl_sys_now_ns() - began);
    CHECK_MSG(seconds < 3.5, "20 reports took %.1f s", seconds);
    ctl_say(fd, "end 3\n");
    CHECK_INT(ctl_wait(&c, NULL, 3000), 3);
    close(fd);
}

/* Random bytes, and a line longer than the buffer: the rank survives, and reads the next
 * message. */
TEST(control_line_survives_random_bytes)
{
    part p = {.stay_ms = 20000};
    ctl_child c;
    uint64_t state = 3;
    char text[700];
    int fd = play_hub(&p, &c);

    CHECK(fd >= 0);
    for (int i = 0; i < 100; i++) {
        for (size_t k = 0; k < sizeof text; k++) text[k] = (char)(int)(127 * pl_test_noise(&state));
        CHECK(send(fd, text, sizeof text, MSG_NOSIGNAL) == sizeof text);
    }
    ctl_say(fd, "\nend 3\n");
    CHECK_INT(ctl_wait(&c, NULL, 5000), 3);
    close(fd);
}

TEST(control_line_reports_a_hub_that_is_gone)
{
    part p = {.stay_ms = 20000};
    ctl_child c;
    int fd = play_hub(&p, &c);

    CHECK(fd >= 0);
    close(fd);
    CHECK_INT(ctl_wait(&c, NULL, 3000), 8);
    CHECK_MSG(strstr(ctl_err(&c), "[rank 0 host h] rank 0 host x is gone") &&
                  strstr(ctl_err(&c), "all_reduce gradients 0"),
              "%s", ctl_err(&c));
}

/* The hub is silent; time during which the rank itself is suspended does not count. */
TEST(control_line_reports_a_hub_that_is_silent)
{
    if (!pl_test_long()) SKIP("long");
    part p = {.stay_ms = 20000, .limit = 1.2};
    ctl_child c;
    int fd = play_hub(&p, &c);

    CHECK(fd >= 0 && ctl_hear(fd, "limit 1.200\n", 20000)[0]);
    kill(c.pid, SIGSTOP);
    usleep(1700000);
    kill(c.pid, SIGCONT);
    for (int i = 0; i < 6; i++) {
        usleep(100000);
        ctl_say(fd, "beat\n");
    }
    CHECK_MSG(kill(c.pid, 0) == 0 && ctl_err(&c)[0] == 0, "%s", ctl_err(&c));
    CHECK_INT(ctl_wait(&c, NULL, 4000), 8);
    CHECK_MSG(strstr(ctl_err(&c), "[rank 0 host h] rank 0 host x has sent nothing within"), "%s",
              ctl_err(&c));

    close(fd);
}

/* The rank sends its state four times a second, and its bye arrives though it read nothing from
 * the hub. */
TEST(control_line_delivers_beats_and_the_last_message)
{
    part p = {.stay_ms = 1200, .code = 75};
    ctl_child c;
    uint64_t began = pl_sys_now_ns();
    int fd = play_hub(&p, &c), beats = 0;

    CHECK(fd >= 0);
    usleep(900000);
    /* until after its end, without a pause */
    for (uint64_t end = pl_sys_now_ns() + 700000000u; pl_sys_now_ns() < end;)
        ctl_say(fd, "beat\nbeat\nbeat\nbeat\nbeat\nbeat\nbeat\nbeat\n");
    const char *text = ctl_hear(fd, "bye 75\n", 20000);
    CHECK(text[0]);

    for (const char *b = text;
         (b = strstr(b, "beat training at step 7, all_reduce gradients 0 (exchange 41)\n")); b++)
        beats++;
    double seconds = 1e-9 * (double)(pl_sys_now_ns() - began);
    CHECK_MSG(beats >= 3 && beats <= 4 * seconds + 2, "%d beats in %.1f s", beats, seconds);

    close(fd);
    CHECK_INT(ctl_wait(&c, NULL, 3000), 75);
}

/* A rank that leaves first ends when the other has left too, because mpirun kills the others on an
 * exit code. */
TEST(control_line_ends_when_all_have_left)
{
    pl_hub *h;

    CHECK_OK(pl_hub_new(2, false, &h));
    part p[2] = {{.rank = 0, .ranks = 2, .stay_ms = 50, .code = 143},
                 {.rank = 1, .ranks = 2, .stay_ms = 900, .code = 143}};
    ctl_child c[2];
    for (int i = 0; i < 2; i++) {
        pl_hub_where(h, &p[i].at);
        ctl_fork(be_rank, &p[i], &c[i]);
    }
    CHECK(!ctl_tend(h, 500));
    CHECK_INT(pl_hub_left(h), 1);

    siginfo_t ended = {0};
    CHECK(waitid(P_PID, (id_t)c[0].pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          ended.si_pid == 0);
    CHECK_INT(ctl_wait(&c[0], h, 2000), 143);
    CHECK_INT(pl_hub_left(h), 2);
    CHECK_INT(ctl_wait(&c[1], h, 2000), 143);
    pl_hub_free(h);
}

/* Rank and hub are both suspended between hello and welcome, for longer than the rank's time
 * limit. */
TEST(control_line_survives_a_pause_in_the_greeting)
{
    part p = {.ranks = 1, .at = {.address = {htonl(INADDR_LOOPBACK)}, .token = TOKEN}};
    ctl_child c;
    int listening = ctl_listen(1, &p.at.port);
    if (!pl_test_long()) SKIP("long");

    ctl_fork(be_rank, &p, &c);
    int fd = accept(listening, NULL, NULL);
    CHECK(ctl_hear(fd, "hello 0 1234", 20000)[0]);
    kill(c.pid, SIGSTOP);
    usleep(11000000);
    kill(c.pid, SIGCONT);
    usleep(300000);
    ctl_say(fd, "welcome 1234\n");
    CHECK(ctl_hear(fd, "bye 0\n", 20000)[0]);

    close(fd);
    CHECK_INT(ctl_wait(&c, NULL, 3000), 0);
    close(listening);
}

/* Another program listens at the first address and answers nonsense; the hub is at the second. */
TEST(control_line_skips_strangers_and_finds_the_hub)
{
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "welcome 1235\n",
                                          "\n", ""};
    for (int i = 0; i < 4; i++) {
        part p = {.ranks = 1, .stay_ms = 10};
        ctl_child c;
        pl_control_at at = {.address = {htonl(INADDR_LOOPBACK), htonl(INADDR_LOOPBACK + 1)},
                            .token = TOKEN};
        int stranger = ctl_listen(1, &at.port), hub = ctl_listen(2, &at.port);
        for (int k = 0; k < 20 && hub < 0; k++) { /* another program has that port there */
            close(stranger);
            at.port = 0;
            stranger = ctl_listen(1, &at.port);
            hub = ctl_listen(2, &at.port);
        }
        CHECK(stranger >= 0 && hub >= 0);
        p.at = at;
        ctl_fork(be_rank, &p, &c);
        int wrong = accept(stranger, NULL, NULL);
        ctl_say(wrong, answers[i]);
        if (!answers[i][0]) close(wrong);
        int fd = accept(hub, NULL, NULL);
        CHECK(ctl_hear(fd, "hello 0 1234", 20000)[0]);
        ctl_say(fd, "welcome 1234\n");
        CHECK(ctl_hear(fd, "bye 0\n", 20000)[0]);
        close(fd);
        CHECK_INT(ctl_wait(&c, NULL, 3000), 0);
        if (answers[i][0]) close(wrong);
        close(stranger);
        close(hub);
    }
}
