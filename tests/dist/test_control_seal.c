/* test_control_seal.c - the control channel with a key: forged, repeated, moved and truncated
 * messages on both ends, and the secret that the key comes from. */
#include "base/sys.h"
#include "base/trust/secret.h"
#include "dist/seal.h"
#include "tests/dist/control_lab.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WANT_SODIUM                                                                                \
 if (pl_keyed_missing()) SKIP(pl_keyed_missing())
#define FORGED "sent a message that does not verify"

static const pl_key run_key = {{1, 2, 3}}, wrong_key = {{1, 2, 4}};

/* A rank by hand, with the key. */
typedef struct speaker {
    int fd;
    pl_seal seal;
    char sealed[1024]; /* the last message */
} speaker;

/* Seals a message as the next one, and counts it. */
static const char *sealed(speaker *s, const char *text)
{
    snprintf(s->sealed, sizeof s->sealed, "%s", text);
    pl_seal_close(&s->seal, s->sealed, sizeof s->sealed);
    pl_seal_sent(&s->seal);
    return s->sealed;
}

/* Connects to a hub with a key; returns the bytes that the rank sent, static; NULL: not welcome. */
static const char *join(pl_hub *h, const pl_key *key, int rank, speaker *s)
{
    static char all[512];
    pl_control_at at;
    char hello[128], welcome[64];
    pl_hub_where(h, &at);
    s->fd = ctl_connect(&at, 0);
    snprintf(hello, sizeof hello, "hello %d %032x %d b", rank, 0x77, 1000000 + rank);
    snprintf(all, sizeof all, "%s\n", hello);
    ctl_say(s->fd, all);
    pl_hub_tend(h, 50);
    pl_hub_tend(h, 50);
    const char *text = ctl_hear(s->fd, "\n", 200);
    if (sscanf(text, "welcome %32s", welcome) != 1) return NULL;
    char said[64];
    snprintf(said, sizeof said, "welcome %s", welcome);
    pl_seal_begin(&s->seal, key, false, hello, said);
    strncat(all, sealed(s, "here"), sizeof all - strlen(all) - 1);
    ctl_say(s->fd, s->sealed);
    pl_hub_tend(h, 50);
    return all;
}

static pl_hub *new_hub(int ranks)
{
    pl_hub *h;
    if (pl_hub_new(ranks, false, &h) != PL_OK) return NULL;
    pl_hub_set_key(h, &run_key);
    return h;
}

TEST(control_with_a_key_accepts_the_messages_of_a_rank_in_order)
{
    WANT_SODIUM;
    pl_hub *h = new_hub(1);
    speaker s;
    int code;

    CHECK(h && join(h, &run_key, 0, &s) && pl_hub_met(h));
    for (int i = 0; i < 100; i++) ctl_say(s.fd, sealed(&s, "beat training at step 7"));
    ctl_say(s.fd, sealed(&s, "bye 75"));
    shutdown(s.fd, SHUT_WR);
    CHECK(ctl_tend(h, 2000));
    CHECK_MSG(!pl_hub_verdict(h, &code)[0] && code == 75, "%s", pl_hub_verdict(h, &code));

    close(s.fd);
    pl_hub_free(h);
}

TEST(control_with_a_key_leaves_out_those_who_do_not_have_it)
{
    WANT_SODIUM;
    pl_hub *h = new_hub(1);
    pl_control_at at;
    speaker s;
    char text[128], code_text[64];
    int code;
    CHECK(h);
    pl_hub_where(h, &at);

    join(h, &wrong_key, 0, &s);
    CHECK_MSG(!pl_hub_met(h), "a rank with another key was let in");
    close(s.fd);
    /* the token alone, which other machines may have seen */
    int fd = ctl_connect(&at, 0);
    snprintf(text, sizeof text, "hello 0 %llx 1000000 b\nhere\n", (unsigned long long)at.token);
    ctl_say(fd, text);
    ctl_tend(h, 50);
    CHECK(!pl_hub_met(h));
    close(fd);
    /* a welcome, and then no hash */
    fd = ctl_connect(&at, 0);
    ctl_say(fd, "hello 0 00000000000000000000000000000077 1000000 b\n");
    ctl_tend(h, 50);
    ctl_say(fd, "here\nbye 0\n");
    ctl_tend(h, 50);
    snprintf(code_text, sizeof code_text, "%s", pl_hub_verdict(h, &code));
    CHECK_MSG(!pl_hub_met(h) && !code_text[0] && !pl_hub_left(h), "%s", code_text);

    close(fd);
    pl_hub_free(h);
}

/* The whole conversation of a rank, recorded and sent again to the same hub and to another hub with
 * the same key. */
TEST(control_with_a_key_does_not_accept_a_recorded_conversation)
{
    WANT_SODIUM;
    char all[600];
    for (int same = 0; same < 2; same++) {
        pl_hub *h = new_hub(2), *again = same ? h : new_hub(2);
        pl_control_at at;
        speaker s;
        const char *sent = join(h, &run_key, 0, &s);
        CHECK(sent && again);
        snprintf(all, sizeof all, "%s%s", sent, sealed(&s, "bye 0"));
        if (same) ctl_say(s.fd, s.sealed), shutdown(s.fd, SHUT_WR), ctl_tend(h, 50);
        pl_hub_where(again, &at);

        int fd = ctl_connect(&at, 0);
        ctl_say(fd, all);
        ctl_tend(again, 100);
        CHECK_INT(pl_hub_left(again), same);
        CHECK_INT(pl_hub_pid(again, 0) != 0, same);

        close(fd);
        close(s.fd);
        pl_hub_free(h);
        if (!same) pl_hub_free(again);
    }
}

typedef void attack(speaker *s);
static void forge(speaker *s)
{
    ctl_say(s->fd, "bye 0 00000000000000000000000000000000\n");
}
static void leave_out_hash(speaker *s)
{
    ctl_say(s->fd, "bye 0\n");
}
static void change(speaker *s)
{
    sealed(s, "fail 3 text");
    s->sealed[5] = '1';
    ctl_say(s->fd, s->sealed);
}
static void repeat(speaker *s)
{
    ctl_say(s->fd, sealed(s, "beat one"));
    ctl_say(s->fd, s->sealed);
}
static void reorder(speaker *s)
{
    char first[1024];
    snprintf(first, sizeof first, "%s", sealed(s, "beat one"));
    ctl_say(s->fd, sealed(s, "beat two"));
    ctl_say(s->fd, first);
}
static void withhold(speaker *s)
{
    sealed(s, "fail 7 the loss is not finite");
    ctl_say(s->fd, sealed(s, "bye 0"));
}
static void truncate_hash(speaker *s)
{
    sealed(s, "bye 0");
    s->sealed[strlen(s->sealed) - 3] = '\n';
    s->sealed[strlen(s->sealed) - 2] = 0;
    ctl_say(s->fd, s->sealed);
}
static void truncate_message(speaker *s)
{
    sealed(s, "bye 75");
    memmove(s->sealed + 5, s->sealed + 6, strlen(s->sealed + 5)); /* bye 7 */
    ctl_say(s->fd, s->sealed);
}
/* What the hub said, back to the hub. */
static void reflect(speaker *s)
{
    ctl_say(s->fd, ctl_hear(s->fd, "\n", 1000));
}

TEST(control_with_a_key_ends_the_run_at_a_message_that_does_not_verify)
{
    WANT_SODIUM;
    static const struct {
        const char *name;
        attack *fn;
    } rows[] = {{"forged", forge},
                {"without hash", leave_out_hash},
                {"changed", change},
                {"repeated", repeat},
                {"reordered", reorder},
                {"withheld", withhold},
                {"short hash", truncate_hash},
                {"shortened", truncate_message},
                {"reflected", reflect}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pl_hub *h = new_hub(2);
        speaker s, other;
        int code;
        CHECK(h && join(h, &run_key, 1, &s) && join(h, &run_key, 0, &other));

        ctl_tend(h, rows[i].fn == reflect ? 300 : 0);
        rows[i].fn(&s);
        ctl_tend(h, 60);
        const char *v = pl_hub_verdict(h, &code);
        CHECK_MSG(strncmp(v, "[rank 1 host b] " FORGED, 16 + strlen(FORGED)) == 0, "%s: \"%s\"",
                  rows[i].name, v);
        CHECK_INT(code, 8);
        CHECK_INT(pl_hub_left(h), 0);

        close(s.fd);
        close(other.fd);
        pl_hub_free(h);
    }
}

/* A message whose end never comes is the end of the rank, not a message. */
TEST(control_with_a_key_does_not_accept_half_a_message)
{
    WANT_SODIUM;
    pl_hub *h = new_hub(1);
    speaker s;
    int code;
    CHECK(h && join(h, &run_key, 0, &s));

    sealed(&s, "bye 0");
    s.sealed[strlen(s.sealed) - 1] = 0;
    ctl_say(s.fd, s.sealed);
    shutdown(s.fd, SHUT_WR);
    ctl_tend(h, 100);
    CHECK_MSG(strstr(pl_hub_verdict(h, &code), "is gone"), "%s", pl_hub_verdict(h, &code));
    CHECK_INT(code, 8);

    close(s.fd);
    pl_hub_free(h);
}

/* ---- the rank's end --------------------------------------------------------------------- */
typedef struct part {
    pl_control_at at;
    int stay_ms;
} part;

static void note_signal(int number)
{
    _exit(100 + number);
}

static int be_rank(void *ctx)
{
    part *p = ctx;
    pl_line *l;
    signal(SIGTERM, note_signal);
    if (pl_line_open(&p->at, 0, "h", "rank 0 host x", NULL, NULL, NULL, &l) != PL_OK) return 99;
    usleep((useconds_t)p->stay_ms * 1000);
    pl_line_close(l, 1, 0);
    return 0;
}

/* A hub that the test plays, with that key; the rank has run_key. Returns whether the rank has
 * answered the welcome. */
static bool play_hub(part *p, const pl_key *key, ctl_child *c, speaker *s)
{
    char hello[256], said[64];
    p->at = (pl_control_at){
        .address = {htonl(INADDR_LOOPBACK)}, .token = 5, .keyed = true, .key = run_key};
    int listening = ctl_listen(1, &p->at.port);
    ctl_fork(be_rank, p, c);
    s->fd = accept(listening, NULL, NULL);
    close(listening);
    snprintf(hello, sizeof hello, "%s", ctl_hear(s->fd, "\n", 20000));
    hello[strcspn(hello, "\n")] = 0;
    snprintf(said, sizeof said, "welcome %032x", 0x99);
    pl_seal_begin(&s->seal, key, true, hello, said);
    ctl_say(s->fd, sealed(s, said));
    return ctl_hear(s->fd, "here ", 1000)[0] != 0;
}

TEST(control_line_with_a_key_obeys_only_the_hub)
{
    WANT_SODIUM;
    static const char *const orders[] = {"end 0", "stop 15", "end 3"};
    for (int i = 0; i < 3; i++) {
        part p = {.stay_ms = 3000};
        ctl_child c;
        speaker s;
        char text[128];
        CHECK(play_hub(&p, &run_key, &c, &s));
        if (i < 2) { /* forged */
            snprintf(text, sizeof text, "%s %032x\n", orders[i], 0x55);
            ctl_say(s.fd, text);
            CHECK_INT(ctl_wait(&c, NULL, 5000), 8);
            CHECK_MSG(strstr(ctl_err(&c), FORGED), "%s", ctl_err(&c));
        } else {
            ctl_say(s.fd, sealed(&s, orders[i]));
            CHECK_INT(ctl_wait(&c, NULL, 5000), 3);
        }
        close(s.fd);
    }
}

TEST(control_line_with_a_key_does_not_join_another_hub)
{
    WANT_SODIUM;
    part p = {.stay_ms = 3000};
    ctl_child c;
    speaker s;

    CHECK(!play_hub(&p, &wrong_key, &c, &s));
    kill(c.pid, SIGKILL);
    ctl_wait(&c, NULL, 1000);

    close(s.fd);
}

/* ---- where the key comes from ----------------------------------------------------------- */
TEST(control_keys_read_back_from_text)
{
    pl_control_at at = {.address = {0x0100007f}, .port = 4711, .token = 77, .keyed = true}, back;
    char text[192], cut[192];
    at.key = run_key;
    pl_control_print(&at, text, sizeof text);

    CHECK(pl_control_parse(text, &back) && back.keyed && back.token == 77);
    CHECK(memcmp(&back.key, &at.key, sizeof at.key) == 0);
    for (size_t n = strlen(text) - 1; text[n] != ':'; n--) {
        snprintf(cut, sizeof cut, "%.*s", (int)n, text);
        CHECK_MSG(!pl_control_parse(cut, &back), "\"%s\"", cut);
    }
}

TEST(secret_is_created_once_for_the_user_alone)
{
    char folder[512], path[600], text[700];
    pl_key a, b;
    struct stat s;
    snprintf(folder, sizeof folder, "%s/config", pl_test_dir());
    snprintf(path, sizeof path, "%s/plimsoll/secret", folder);
    char *given = strdup(getenv("PLIMSOLL_SECRET"));
    unsetenv("PLIMSOLL_SECRET_FILE");
    unsetenv("PLIMSOLL_SECRET");
    setenv("XDG_CONFIG_HOME", folder, 1);

    CHECK_OK(pl_secret_read(&a));
    CHECK_OK(pl_secret_read(&b));
    CHECK(memcmp(&a, &b, sizeof a) == 0);
    CHECK(stat(path, &s) == 0 && (s.st_mode & 0777) == 0600);
    snprintf(text, sizeof text, "%s/plimsoll", folder);
    CHECK(stat(text, &s) == 0 && (s.st_mode & 0777) == 0700);

    /* readable for others, empty, a link */
    chmod(path, 0640);
    CHECK(pl_secret_read(&b) == PL_ERR_IO && strstr(pl_error_text(), "mode 0600"));
    chmod(path, 0600);
    CHECK(truncate(path, 63) == 0);
    CHECK(pl_secret_read(&b) == PL_ERR_IO && strstr(pl_error_text(), "64 hexadecimal digits"));
    snprintf(text, sizeof text, "%s/other", folder);
    CHECK(rename(path, text) == 0 && symlink(text, path) == 0);
    CHECK(pl_secret_read(&b) == PL_ERR_IO && strstr(pl_error_text(), "link"));
    unlink(path);
    CHECK_OK(pl_secret_read(&b));
    CHECK_MSG(memcmp(&a, &b, sizeof a) != 0, "a new secret is the old one");

    /* from the environment */
    setenv("PLIMSOLL_SECRET", "00", 1);
    CHECK(pl_secret_read(&b) == PL_ERR_IO);
    pl_hex_print(run_key.byte, sizeof run_key.byte, text);
    setenv("PLIMSOLL_SECRET", text, 1);
    CHECK_OK(pl_secret_read(&b));
    CHECK(memcmp(&b, &run_key, sizeof b) == 0);
    setenv("PLIMSOLL_SECRET", given, 1);
    unsetenv("XDG_CONFIG_HOME");
    free(given);
}
