/* test_control.c - the hub of the control channel, with ranks, strangers and random bytes as
 * clients. */
#include "tests/dist/control_lab.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DOING "beat training at step 7, all_reduce gradients 3 (exchange 41)\n"

static void say_all(const int *fd, int n, const char *text)
{
    for (int i = 0; i < n; i++) ctl_say(fd[i], text);
}

/* A world of n ranks by hand. */
static bool open_world(int n, pl_hub **h, int *fd)
{
    static const char *const host[] = {"a", "b", "c", "d"};
    if (pl_hub_new(n, false, h) != PL_OK) return false;
    for (int i = 0; i < n; i++)
        if ((fd[i] = ctl_rank(*h, i, host[i])) < 0) return false;
    say_all(fd, n, DOING);
    return !ctl_tend(*h, 30);
}

static void close_world(pl_hub *h, const int *fd, int n)
{
    for (int i = 0; i < n; i++) close(fd[i]);
    pl_hub_free(h);
}

/* Closes in order: closing a connection with unread bytes discards the bytes that were sent
 * last. */
static void leave(pl_hub *h, int fd, const char *bye)
{
    ctl_say(fd, bye);
    shutdown(fd, SHUT_WR);
    ctl_tend(h, 20);
    close(fd);
}

/* ---- what ends a world, and what is said of it ------------------------------------------ */
TEST(control_ranks_that_leave_in_order_end_nothing)
{
    pl_hub *h;
    int fd[3], code;

    CHECK(open_world(3, &h, fd));
    leave(h, fd[1], "bye 0\n");
    CHECK_MSG(!ctl_tend(h, 400), "one that leaves in order ends nothing: %s",
              pl_hub_verdict(h, &code));
    CHECK_INT(pl_hub_left(h), 1);

    leave(h, fd[0], "bye 0\n");
    CHECK(!ctl_tend(h, 50));
    leave(h, fd[2], "bye 75\n");
    CHECK(ctl_tend(h, 1000));
    CHECK(!pl_hub_verdict(h, &code)[0]);
    CHECK_INT(code, 75);
    pl_hub_free(h);
}

TEST(control_a_closed_connection_is_a_death)
{
    pl_hub *h;
    int fd[3], code;
    CHECK(open_world(3, &h, fd));
    shutdown(fd[1], SHUT_RDWR);
    ctl_tend(h, 50);
    const char *v = pl_hub_verdict(h, &code);

    CHECK_MSG(strncmp(v, "[rank 1 host b] is gone", 23) == 0 &&
                  strstr(v, "step 7, all_reduce gradients 3"),
              "%s", v);
    CHECK_MSG(strstr(v, "the others were in training at step 7, all_reduce"), "%s", v);
    CHECK_INT(code, 8);
    CHECK(ctl_hear(fd[0], "end 8\n", 500)[0] && ctl_hear(fd[2], "end 8\n", 500)[0]);
    close_world(h, fd, 3);
}

/* One rank has not connected: it may be the reason why the others end, so it is named. */
TEST(control_names_a_rank_that_did_not_connect)
{
    pl_hub *h;
    int code;
    CHECK_OK(pl_hub_new(4, false, &h));
    int a = ctl_rank(h, 1, "a"), b = ctl_rank(h, 3, "b");

    CHECK(!pl_hub_met(h));
    shutdown(b, SHUT_RDWR);
    ctl_tend(h, 50);
    const char *v = pl_hub_verdict(h, &code);
    CHECK_MSG(strncmp(v, "[rank 3 host b] is gone", 23) == 0 &&
                  strstr(v, "a rank died before it connected: rank 0 2;"),
              "%s", v);
    CHECK_INT(code, 8);
    close_world(h, (int[]){a, b}, 2);
}

/* Only the silent rank is named, after the limit and not much later. */
TEST_ALONE(control_names_a_silent_rank_after_the_limit)
{
    pl_hub *h;
    int fd[2], code, ms = 0;
    bool over = false;

    CHECK(open_world(2, &h, fd));
    say_all(fd, 2, "limit 1.000\n");
    for (; !over && ms < 3000; ms += 50) {
        ctl_say(fd[0], DOING);
        if (ms < 500) ctl_say(fd[1], DOING);
        over = ctl_tend(h, 50) || pl_hub_verdict(h, &code)[0];
    }
    const char *v = pl_hub_verdict(h, &code);
    CHECK_MSG(strncmp(v, "[rank 1 host b] has sent nothing for 1.", 39) == 0, "after %d ms: %s", ms,
              v);
    CHECK_MSG(ms > 1300 && ms < 2500, "after %d ms", ms);
    CHECK(strstr(v, "all_reduce gradients 3"));
    CHECK_INT(code, 8);
    CHECK(ctl_hear(fd[0], "end 8\n", 500)[0]);

    close_world(h, fd, 2);
}

/* The hub itself was suspended for longer than the limit: no rank counts as silent. */
TEST(control_a_suspended_hub_does_not_count_as_silence)
{
    pl_hub *h;
    int fd[2], code;

    CHECK(open_world(2, &h, fd));
    say_all(fd, 2, "limit 1.200\n");
    CHECK(!ctl_tend(h, 50));
    usleep(2000000);
    pl_hub_tend(h, 0);
    CHECK_MSG(!pl_hub_verdict(h, &code)[0], "%s", pl_hub_verdict(h, &code));

    for (int i = 0; i < 12; i++) {
        say_all(fd, 2, DOING);
        CHECK_MSG(!ctl_tend(h, 50), "%s", pl_hub_verdict(h, &code));
    }
    CHECK(!pl_hub_verdict(h, &code)[0]);

    close_world(h, fd, 2);
}

TEST(control_the_first_failure_counts)
{
    pl_hub *h;
    int fd[3], code;

    CHECK(open_world(3, &h, fd));
    ctl_say(fd[2], "fail 5 image 17 is no image\n");
    ctl_tend(h, 30);
    ctl_say(fd[0], "fail 2 something that follows\n");
    close(fd[1]);
    ctl_tend(h, 30);
    const char *v = pl_hub_verdict(h, &code);
    CHECK_MSG(strcmp(v, "[rank 2 host c] image 17 is no image") == 0, "%s", v);
    CHECK_INT(code, 5);
    CHECK(ctl_hear(fd[0], "end 5\n", 500)[0]);
    pl_hub_free(h);
    close(fd[0]);
    close(fd[2]);
}

/* A rank whose neighbour died reports a failed exchange: the death is reported as the cause, if
 * there is one. */
TEST(control_a_death_explains_a_failed_exchange)
{
    pl_hub *h;
    int fd[3], code;
    for (int dead = 0; dead < 2; dead++) {
        CHECK(open_world(3, &h, fd));
        ctl_say(fd[0], "fail 8 cannot exchange all_reduce\n");
        CHECK(!ctl_tend(h, 50));
        if (dead) shutdown(fd[1], SHUT_RDWR);
        ctl_tend(h, 600);
        const char *v = pl_hub_verdict(h, &code);
        CHECK_MSG(strncmp(v, dead ? "[rank 1 host b] is gone" : "[rank 0 host a] cannot exchange",
                          23) == 0,
                  "%s", v);
        CHECK_INT(code, 8);
        CHECK(ctl_hear(fd[2], "end 8\n", 500)[0]);
        close_world(h, fd, 3);
    }
}

/* The hub does not wait for ranks that hang after the order to end. */
TEST(control_does_not_wait_forever)
{
    if (!pl_test_long()) SKIP("long");
    pl_hub *h;
    int fd[2], code;
    CHECK(open_world(2, &h, fd));
    pl_hub_fail(h, 3, "enough");

    CHECK(!ctl_tend(h, 1000));
    CHECK(ctl_tend(h, 4000));
    CHECK(strcmp(pl_hub_verdict(h, &code), "enough") == 0 && code == 3);
    close_world(h, fd, 2);
}

TEST(control_stop_reaches_ranks_that_connect_later)
{
    pl_hub *h;
    int fd[2];
    CHECK_OK(pl_hub_new(2, false, &h));
    fd[0] = ctl_rank(h, 0, "a");
    pl_hub_stop(h, 15);

    CHECK(ctl_hear(fd[0], "stop 15\n", 500)[0]);
    fd[1] = ctl_rank(h, 1, "b");
    CHECK(ctl_hear(fd[1], "stop 15\n", 500)[0]);
    close_world(h, fd, 2);
}

/* A rank in its start has nothing to save; the first rank that trains has. */
TEST(control_knows_when_training_begins)
{
    pl_hub *h;
    int fd[2];
    CHECK(pl_hub_new(2, false, &h) == PL_OK);
    for (int i = 0; i < 2; i++) CHECK((fd[i] = ctl_rank(h, i, "a")) >= 0);
    CHECK(!pl_hub_begun(h));
    say_all(fd, 2, "beat its start at step 0, no exchange (exchange 0)\n");
    ctl_tend(h, 50);
    CHECK(!pl_hub_begun(h));
    ctl_say(fd[1], "beat training at step 1, no exchange (exchange 4)\n");
    ctl_tend(h, 50);
    CHECK(pl_hub_begun(h));
    close_world(h, fd, 2);
}

/* A signal to stop asks all ranks what they do; ranks that have not come have nothing to report. */
TEST(control_reports_are_complete_when_every_rank_has_answered)
{
    pl_hub *h;
    int fd[2];
    CHECK(open_world(2, &h, fd));
    say_all(fd, 2, "beat its start at step 0, no exchange (exchange 0)\n");
    ctl_tend(h, 50);
    pl_hub_request_reports(h);
    for (int i = 0; i < 2; i++) CHECK(ctl_hear(fd[i], "report\n", 500)[0]);
    ctl_tend(h, 50);
    CHECK(!pl_hub_has_reports(h));
    ctl_say(fd[0], "beat its start at step 0, no exchange (exchange 0)\n");
    ctl_tend(h, 50);
    CHECK(!pl_hub_has_reports(h) && !pl_hub_begun(h));
    ctl_say(fd[1], "beat training at step 1, no exchange (exchange 4)\n");
    ctl_tend(h, 50);
    CHECK(pl_hub_has_reports(h) && pl_hub_begun(h));
    close_world(h, fd, 2);
    CHECK_OK(pl_hub_new(2, false, &h));
    pl_hub_request_reports(h);
    CHECK(pl_hub_has_reports(h));
    pl_hub_free(h);
}

/* A hub of ranks on this machine listens at the loopback address alone. */
TEST(control_of_local_ranks_listens_on_loopback)
{
    pl_hub *h;
    pl_control_at at;
    for (int local = 0; local < 2; local++) {
        CHECK_OK(pl_hub_new(1, local, &h));
        pl_hub_where(h, &at);
        int own = ctl_connect(&at, 0), other = ctl_connect(&at, 2); /* 127.0.0.2 */
        CHECK(own >= 0 && (other >= 0) == !local && (!local || at.address[1] == 0));
        close(own);
        if (other >= 0) close(other);
        pl_hub_free(h);
    }
}

TEST(control_requests_reach_every_rank)
{
    pl_hub *h;
    int fd[2];
    CHECK(open_world(2, &h, fd));
    pl_hub_ask(h, 10);
    for (int i = 0; i < 2; i++) CHECK(ctl_hear(fd[i], "ask 10\n", 500)[0]);
    close_world(h, fd, 2);
}

/* ---- strangers -------------------------------------------------------------------------- */
static const char *const noises[] = {
    "\n",
    "\n\n\n\n",
    "fail 3 boo\n",
    "bye 0\nbye 0\nbye 0\n",
    "limit 0.001\n",
    "beat x\n",
    "end 3\nstop 9\n",
    "here\n",
    "hello\n",
    "hello 0\n",
    "hello 0 1234 4000000 a\n",
    "hello 0 zz 4000000 a\nhere\nfail 3 boo\n",
    "GET / HTTP/1.1\r\n\r\n",
    "hello 99999999999999999999999 1 1 1\n",
    "\x16\x03\x01\x02",
    "hello -1 %s 4000000 a\nhere\nfail 3 boo\n",
    "hello 2 %s 4000000 a\nhere\nfail 3 boo\n",
    "hello 0 %s 0 a\nhere\nfail 3 boo\n",
    "hello 0 %s -1 a\nhere\nfail 3 boo\n",
    "hello 0 %s 1 a\nhere\nfail 3 boo\n",
    "hello 0 %s 4000000 a\nhello 1 %s 4000000 a\nhere\nfail 3 boo\n", /* twice */
    "hello 0 %s 4000000 a\n",                                         /* and never here */
    "hello 0 %s 4000000 a\nhere\nfail 3 boo\n",                       /* rank 0 is taken */
};

/* The random bytes, with the hub's token where they say so. */
static void make_noise(const pl_control_at *at, const char *noise)
{
    char text[512], token[32];
    size_t n = 0;
    int fd = ctl_connect(at, 0);
    if (fd < 0) return;
    snprintf(token, sizeof token, "%llx", (unsigned long long)at->token);
    for (const char *p = noise; *p && n + 32 < sizeof text; p++) {
        if (p[0] == '%' && p[1] == 's')
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", token), p++;
        else
            text[n++] = *p;
    }
    text[n] = 0;
    ctl_say(fd, text);
    close(fd);
}

TEST(control_ignores_strangers)
{
    pl_hub *h;
    int fd[2], code;
    pl_control_at at;

    CHECK(open_world(2, &h, fd));
    pl_hub_where(h, &at);
    for (size_t i = 0; i < sizeof noises / sizeof *noises; i++) {
        make_noise(&at, noises[i]);
        say_all(fd, 2, DOING);
        CHECK_MSG(!ctl_tend(h, 15), "after noise %zu: %s", i, pl_hub_verdict(h, &code));
    }
    CHECK_INT(pl_hub_left(h), 0);

    for (int i = 0; i < 2; i++) leave(h, fd[i], "bye 0\n");
    CHECK(ctl_tend(h, 1000));
    CHECK_MSG(!pl_hub_verdict(h, &code)[0] && code == 0, "%d: %s", code, pl_hub_verdict(h, &code));
    pl_hub_free(h);
}

/* The rank's place is free, and the stranger knows everything except the token. */
TEST(control_refuses_a_rank_without_the_token)
{
    pl_hub *h;
    pl_control_at at, wrong;

    CHECK_OK(pl_hub_new(1, false, &h));
    pl_hub_where(h, &at);
    wrong = at;
    wrong.token ^= 1;
    make_noise(&wrong, "hello 0 %s 4000000 a\nhere\nfail 3 boo\n");
    CHECK(!ctl_tend(h, 50));
    CHECK_INT(pl_hub_pid(h, 0), 0);

    int fd = ctl_rank(h, 0, "a"), code;
    CHECK_INT(pl_hub_pid(h, 0), 1000000);
    leave(h, fd, "bye 0\n");
    CHECK(ctl_tend(h, 1000) && !pl_hub_verdict(h, &code)[0]);
    pl_hub_free(h);
}

/* More silent strangers than places: ranks still connect. */
TEST(control_silent_strangers_do_not_block_ranks)
{
    pl_hub *h;
    int fd[2], crowd[12], code;
    pl_control_at at;

    CHECK_OK(pl_hub_new(2, false, &h));
    pl_hub_where(h, &at);
    for (int i = 0; i < 12; i++) {
        crowd[i] = ctl_connect(&at, 0);
        CHECK(crowd[i] >= 0);
        pl_hub_tend(h, 10);
    }
    for (int i = 0; i < 2; i++) CHECK((fd[i] = ctl_rank(h, i, "a")) >= 0);
    CHECK_INT(pl_hub_pid(h, 0), 1000000);
    CHECK_INT(pl_hub_pid(h, 1), 1000001);

    for (int i = 0; i < 2; i++) leave(h, fd[i], "bye 0\n");
    CHECK(ctl_tend(h, 1000));
    CHECK(!pl_hub_verdict(h, &code)[0] && code == 0);

    for (int i = 0; i < 12; i++) close(crowd[i]);
    pl_hub_free(h);
}

/* Random bytes from strangers and then from ranks: bytes of a rank end the world only if they
 * are a message that does. */
static void throw_bytes(int fd, uint64_t *state, bool lines)
{
    static const char *const word[] = {"beat ", "limit ",   "stop ", "end ", "hello ",
                                       "here",  "welcome ", "nan",   "-1",   "\n"};
    char text[640];
    size_t n = 0, most = (size_t)(300 * (1 + pl_test_noise(state)));
    while (n < most) {
        double u = pl_test_noise(state);
        if (lines && u > 0.2) {
            const char *w = word[(int)(5 * (1 + pl_test_noise(state)))];
            memcpy(text + n, w, strlen(w));
            n += strlen(w);
        } else {
            text[n++] = (char)(int)(127 * u);
        }
    }
    if (send(fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

TEST(control_survives_random_bytes)
{
    pl_hub *h;
    int fd[2], code;
    pl_control_at at;
    uint64_t state = 7;

    CHECK(open_world(2, &h, fd));
    pl_hub_where(h, &at);
    for (int i = 0; i < 300; i++) {
        int stranger = ctl_connect(&at, 0);
        for (int k = 0; k < 3 && stranger >= 0; k++) throw_bytes(stranger, &state, i & 1);
        for (int k = 0; k < 2; k++) throw_bytes(fd[k], &state, i & 2);
        CHECK_MSG(!pl_hub_tend(h, 1), "round %d: %s", i, pl_hub_verdict(h, &code));
        if (stranger >= 0) close(stranger);
    }
    say_all(fd, 2, "\nlimit 5\n");
    CHECK_MSG(!ctl_tend(h, 300), "%s", pl_hub_verdict(h, &code));

    for (int i = 0; i < 2; i++) leave(h, fd[i], "\nbye 0\n");
    CHECK(ctl_tend(h, 2000));
    CHECK_MSG(!pl_hub_verdict(h, &code)[0] && code == 0, "%s", pl_hub_verdict(h, &code));
    pl_hub_free(h);
}

/* A rank sends a line longer than any message: the line is skipped, and the next message counts. */
TEST(control_skips_lines_that_are_too_long)
{
    pl_hub *h;
    int fd[1], code;
    char text[4000];
    CHECK(open_world(1, &h, fd));
    memset(text, 'x', sizeof text);
    memcpy(text + sizeof text - 7, "\nbye 0\n", 7);

    CHECK(send(fd[0], text, sizeof text, MSG_NOSIGNAL) == sizeof text);
    ctl_tend(h, 50);
    leave(h, fd[0], "");
    CHECK(ctl_tend(h, 2000));
    CHECK(!pl_hub_verdict(h, &code)[0] && code == 0);
    pl_hub_free(h);
}

TEST(control_ignores_bad_limits)
{
    static const char *const bad[] = {"limit nan\n", "limit -1\n",    "limit 0\n",  "limit\n",
                                      "limit x\n",   "limit 1e300\n", "limit inf\n"};
    pl_hub *h;
    int fd[1], code;
    CHECK(open_world(1, &h, fd));
    pl_hub_set_limit(h, 1.5);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) ctl_say(fd[0], bad[i]);

    CHECK_MSG(!ctl_tend(h, 300), "%s", pl_hub_verdict(h, &code));
    ctl_tend(h, 2000); /* suspends itself for 1.5 s */
    CHECK_MSG(strstr(pl_hub_verdict(h, &code), "has sent nothing for "),
              "one of them has changed the limit");
    close_world(h, fd, 1);
}

TEST(control_addresses_read_back_from_text)
{
    static const char *const bad[] = {
        "", ":", "1.2.3.4", "1.2.3.4:5", "1.2.3:5:6", "1.2.3.4:99999:5", "host:5:6", "1.2.3.4::"};
    pl_control_at at = {.address = {0x0100007f}, .port = 4711, .token = 0xabcdef0123456789u}, back;
    char text[80];
    pl_control_print(&at, text, sizeof text);

    CHECK(pl_control_parse(text, &back));
    CHECK(back.address[0] == at.address[0] && back.port == at.port && back.token == at.token &&
          !back.address[1]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(!pl_control_parse(bad[i], &back), "\"%s\"", bad[i]);
}
