/* launchers.c - starts ranks on this machine: mpirun starts them, this process is the hub and
 * reports last.
 *
 * mpirun gets its own process group, so that Ctrl-C reaches this process alone: signals go to the
 * ranks through the control channel, and all ranks stop at the end of the same step. A signal that
 * arrives from several sides within a moment (torchrun signals all its processes) counts as one.
 *
 * No process survives the process that started it: the kernel signals mpirun when this process
 * ends, and kills each rank when mpirun ends. That holds for suspended processes, too: a stop
 * continues mpirun and the ranks, the guard continues this process when mpirun has ended, and the
 * kernel continues processes of torchrun when torchrun ends.
 *
 * mpirun writes into pipes, and a separate process copies them to the outputs of this process:
 * mpirun crashes when the program that reads its output has ended.
 */
#include "base/str.h"
#include "base/sys.h"
#include "dist/control.h"
#include "dist/copier.h"
#include "dist/env.h"
#include "dist/segments.h"
#include "plimsoll_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Environment variable of ranks: process number of the mpirun that this program started. */
#define PARENT "PLIMSOLL_MPIRUN"

/* the signal that stops, and how often it came: handlers must not do more */
static volatile sig_atomic_t asked, times;
/* SIGUSR1 and SIGUSR2, which do not stop: how often they came */
static volatile sig_atomic_t saves, memories;
/* how often SIGTSTP came */
static volatile sig_atomic_t suspensions;

/* Ranks know four signals that stop; SIGXCPU of this process stops them as SIGTERM does. */
static void note_signal(int signal_number)
{
    asked = signal_number == SIGXCPU ? SIGTERM : signal_number;
    times = times + 1;
}

static void note_request(int signal_number)
{
    if (signal_number == SIGUSR1)
        saves = saves + 1;
    else
        memories = memories + 1;
}

static void note_suspension(int signal_number)
{
    (void)signal_number;
    suspensions = suspensions + 1;
}

/* The program that reads the output has ended: stops as a signal does, once, since every further
 * write sends SIGPIPE again. */
static void note_lost_reader(int signal_number)
{
    if (times == 0) note_signal(signal_number);
}

static void listen_to(int signal_number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    if (sigaction(signal_number, NULL, &old) == 0 && old.sa_handler == SIG_IGN) return; /* nohup */
    sigaction(signal_number, &action, NULL);
}

/* A caller may have blocked the signals, so that none is lost between its handlers and these. */
static void listen_to_signals(void)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ};
    sigset_t blocked;
    sigemptyset(&blocked);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sigaddset(&blocked, all[i]);
    listen_to(SIGINT, note_signal);
    listen_to(SIGTERM, note_signal);
    listen_to(SIGHUP, note_signal);
    listen_to(SIGXCPU, note_signal);
    listen_to(SIGUSR1, note_request);
    listen_to(SIGUSR2, note_request);
    listen_to(SIGPIPE, note_lost_reader);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

/* Settings for mpirun, unless the user's environment has them. Ranks share cores: they must not be
 * bound to one core each, nor spin while they wait. Open MPI 5 reads the names with PRTE; its hwloc
 * calls a /sys that is not mounted an error. */
static void set_environment(const pl_control_at *at)
{
    static const char *const rows[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
        {"HWLOC_HIDE_ERRORS", "2"},
        {"OMPI_MCA_mpi_yield_when_idle", "1"},
        {"OMPI_MCA_orte_execute_quiet", "1"},
        {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
    };
    static const char *const torch[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
    char text[192];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) setenv(rows[i][0], rows[i][1], 0);
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++) unsetenv(torch[i]);
    if (getuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    pl_control_print(at, text, sizeof text);
    setenv("PLIMSOLL_CONTROL", text, 1);
}

/* The kernel sends this process the signal when the process that started it ends. */
static void die_with(pid_t parent, int signal_number)
{
    prctl(PR_SET_PDEATHSIG, signal_number);
    if (getppid() != parent) _exit(8); /* it ended before the kernel knew */
}

/* Reads the name of a process, its state (T: suspended, Z: ended) and the number of its parent. */
static bool look_at(pid_t pid, char name[32], char *state, pid_t *parent)
{
    char path[32], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC), ppid = 0;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    const char *end = n > 0 ? strrchr(text, ')') : NULL; /* PID (NAME) STATE PARENT */
    if (!end || sscanf(text, "%*d (%31[^)]", name) != 1 ||
        sscanf(end, ") %c %d", state, &ppid) != 2)
        return false;
    *parent = ppid;
    return true;
}

/* Whether this process is below the mpirun that this program started, or below a daemon of Open
 * MPI. A rank whose mpirun has ended belongs to another process. */
static bool has_mpirun(pid_t mpirun)
{
    enum { MOST = 64 };
    char name[32], state;
    pid_t at = getppid(), next;
    for (int i = 0; i < MOST && at > 0; i++, at = next) {
        if (at == mpirun) return true;
        if (!look_at(at, name, &state, &next)) return at != 1; /* hidden */
        if (strcmp(name, "orted") == 0 || strncmp(name, "prte", 4) == 0) return true;
    }
    return false;
}

/* A rank ends with mpirun, for any reason. PARENT names mpirun where this program started it:
 * mpirun may have ended before this process began. */
static void die_with_mpirun(void)
{
    const char *text = getenv(PARENT);
    long mpirun = text ? strtol(text, NULL, 10) : 0;
    die_with(getppid(), SIGKILL);
    if (mpirun > 1 && access("/proc/self/stat", R_OK) == 0 && !has_mpirun((pid_t)mpirun)) _exit(8);
}

/* Waits for a process that leads a group; kills the group when the time is over. */
static int wait_for(pid_t pid, int milliseconds)
{
    int status = 0;
    for (int i = 0; i < milliseconds / 10; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) return status;
        usleep(10000);
    }
    kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
    return status;
}

static pl_status start(int ranks, char **argv, const pl_copier *c, pid_t *out)
{
    char count[16], self[4096];
    enum { MOST = 256 };
    char *args[MOST];
    int n = 0;
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    PL_FAIL_IF(
        len <= 0, PL_ERR_PEER,
        "cannot find the file of this program: /proc/self/exe cannot be read (is /proc mounted?)");
    self[len] = 0;
    snprintf(count, sizeof count, "%d", ranks);
    args[n++] = (char[]){"mpirun"};
    args[n++] = (char[]){"-n"};
    args[n++] = count;
    args[n++] = self;
    for (int i = 1; argv[i] && n < MOST - 1; i++) args[n++] = argv[i];
    args[n] = NULL;
    pid_t parent = getpid(), pid = fork();
    PL_FAIL_IF(pid < 0, PL_ERR_PEER, "cannot start mpirun: %s", strerror(errno));
    if (pid == 0) {
        setpgid(0, 0);
        pl_copier_use(c);
        die_with(parent, SIGTERM); /* mpirun then kills its ranks and removes its files */
        snprintf(count, sizeof count, "%d", (int)getpid());
        setenv(PARENT, count, 1); /* this process becomes mpirun */
        snprintf(count, sizeof count, "%d", ranks);
        execvp("mpirun", args);
        _exit(127);
    }
    *out = pid;
    return PL_OK;
}

/* ---- mpirun that does not end ------------------------------------------------------------- */
/* A process that outlives this one for a moment: mpirun gets SIGTERM when this process ends, and
 * does not always end then. While this process lives, the guard looks whether it is suspended. */
typedef struct guard {
    pid_t pid;
    int line; /* closes when this process ends */
} guard;

/* Nobody waits for a run whose mpirun has ended but the program that started the launcher: a
 * suspended launcher continues, and reports the exit code. */
static void continue_launcher(pid_t launcher, pid_t mpirun)
{
    char name[32], state;
    pid_t parent;
    if (look_at(mpirun, name, &state, &parent) && state == 'Z' &&
        look_at(launcher, name, &state, &parent) && state == 'T')
        kill(launcher, SIGCONT);
}

/* Kills mpirun if it has not ended by itself when the line has been closed for PATIENCE_MS. */
static _Noreturn void keep_guard(pid_t launcher, pid_t mpirun, int line)
{
    enum { PATIENCE_MS = 2000, LOOK_MS = 50, LAUNCHER_MS = 1000 };
    sigset_t all;
    char byte;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "plimsoll-guard");
    setpgid(0, 0);
    dup2(line, 0); /* no reader waits for the end of an output that this process has */
    for (int fd = 1; fd < 1024; fd++) close(fd);
    struct pollfd open = {.fd = 0, .events = POLLIN};
    while (poll(&open, 1, LAUNCHER_MS) <= 0 || read(0, &byte, 1) != 0)
        continue_launcher(launcher, mpirun);
    for (int t = 0; t < PATIENCE_MS; t += LOOK_MS) {
        if (kill(mpirun, 0) != 0) _exit(0);
        usleep(LOOK_MS * 1000);
    }
    kill(mpirun, SIGKILL);
    _exit(0);
}

static void guard_begin(guard *g, pid_t mpirun)
{
    int line[2];
    pid_t launcher = getpid();
    *g = (guard){.pid = -1, .line = -1};
    if (pipe2(line, O_CLOEXEC) != 0) return;
    g->pid = fork();
    if (g->pid == 0) {
        close(line[1]);
        keep_guard(launcher, mpirun, line[0]);
    }
    close(line[0]);
    g->line = line[1];
}

static void guard_end(const guard *g)
{
    if (g->pid > 0) kill(g->pid, SIGKILL);
    if (g->line >= 0) close(g->line);
    if (g->pid > 0) waitpid(g->pid, NULL, 0);
}

/* Signals the ranks that have come. */
static void signal_ranks(const pl_hub *hub, int ranks, int signal_number)
{
    for (int i = 0; i < ranks; i++)
        if (pl_hub_pid(hub, i) > 0) kill(pl_hub_pid(hub, i), signal_number);
}

static int own_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What has been passed on. */
typedef struct passed {
    int stops, saves, memories, suspensions;
    uint64_t first; /* time of the first signal that stops; 0: none */
    bool lost;      /* it was SIGPIPE: the next signal counts as the first */
    bool decided;   /* the ranks have got the order to stop or to end */
    pid_t parent;   /* torchrun; 0: another program started this process */
} passed;

/* Ranks that train stop at the end of a step. Ranks that have not begun to train end: starting MPI
 * and planning take seconds on a busy machine, and there is nothing to save. The reports that the
 * signal requested decide; a rank that has not answered after HEARD counts as not training. */
static void pass_stop(pl_hub *hub, passed *p, uint64_t now)
{
    enum { HEARD = 700000000 }; /* ns */
    if (pl_hub_begun(hub))
        pl_hub_stop(hub, (int)asked);
    else if (pl_hub_has_reports(hub) || now - p->first > HEARD)
        pl_hub_fail(hub, 128 + (int)asked,
                    "stopped by a signal before training began, nothing was saved");
    else
        return;
    p->decided = true;
}

/* Ctrl-Z reaches this process alone. Ranks that continue would end, because they get no message
 * from it. The default action suspends this process, unless no shell could continue it. */
static void suspend(const pl_hub *hub, int ranks, pid_t mpirun)
{
    kill(mpirun, SIGSTOP);
    signal_ranks(hub, ranks, SIGSTOP);
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP);
    listen_to(SIGTSTP, note_suspension);
    kill(mpirun, SIGCONT);
    signal_ranks(hub, ranks, SIGCONT);
}

/* The first signal stops the ranks; a later signal does not wait for the end of a step. Suspended
 * processes are continued, so that they stop, too. */
static void pass_signals(pl_hub *hub, int ranks, pid_t mpirun, passed *p)
{
    uint64_t now = pl_sys_now_ns();
    /* torchrun has ended: no process waits for the ranks */
    if (p->parent && getppid() != p->parent) {
        p->parent = 0;
        note_signal(SIGTERM);
    }
    if (saves != p->saves) pl_hub_ask(hub, SIGUSR1);
    if (memories != p->memories) pl_hub_ask(hub, SIGUSR2);
    p->saves = saves;
    p->memories = memories;
    if (p->first && !p->decided) pass_stop(hub, p, now);
    if (suspensions != p->suspensions && pl_hub_met(hub)) {
        suspend(hub, ranks, mpirun);
        p->suspensions = suspensions;
    }
    if (times == p->stops) return;
    p->stops = times;
    pl_hub_request_reports(hub);
    kill(mpirun, SIGCONT);
    signal_ranks(hub, ranks, SIGCONT);
    if (p->first == 0 || p->lost) {
        p->lost = asked == SIGPIPE;
        p->first = now;
        pass_stop(hub, p, now);
    } else if (now - p->first > 1000000000u) {
        pl_hub_fail(hub, 128 + (int)asked, "stopped by a second signal, nothing was saved");
    }
}

/* mpirun has ended, and no rank has said why. */
static void explain_mpirun(pl_hub *hub, int code)
{
    char text[192];
    if (code == 127)
        snprintf(text, sizeof text,
                 "mpirun is not found: install openmpi-bin, or start the ranks yourself (if mpirun "
                 "is there, it lacks a library: mpirun --version names it)");
    else
        snprintf(text, sizeof text, "mpirun ended with code %d before its ranks %s", code,
                 pl_hub_met(hub)
                     ? "ended; the same command resumes from the last complete checkpoint"
                     : "connected");
    pl_hub_fail(hub, code && code < 127 ? code : 8, text);
}

/* Serves the ranks until the world ends; *status is mpirun's once it is gone, -1 before. */
static void look_after(pl_hub *hub, int ranks, pid_t pid, int *status)
{
    int state;
    passed p = {.parent = getenv("TORCHELASTIC_RUN_ID") ? getppid() : 0};
    bool over = false;
    *status = -1;
    while (!over) {
        over = pl_hub_tend(hub, 50);
        if (*status < 0) pass_signals(hub, ranks, pid, &p);
        if (*status < 0 && waitpid(pid, &state, WNOHANG) == pid) {
            *status = state;
            for (int i = 0; i < 20 && !over; i++) over = pl_hub_tend(hub, 10); /* last messages */
            int code;
            bool silent = !over && !pl_hub_verdict(hub, &code)[0];
            if (silent) explain_mpirun(hub, own_code(state));
            over = true;
        }
    }
}

/* Returns PL_ERR_FIT when the machine or the container cannot hold the processes of all ranks:
 * thousands of them would take the memory of every other program before the first one plans. RANK
 * is below the overhead of every plan (17 MB or more). Later each rank checks its own plan. */
static pl_status check_memory(int ranks)
{
    enum { RANK = 8 << 20 };
    struct sysinfo s;
    char all[32], most[32];
    const pl_cgroup *c = pl_cgroup_own();
    if (sysinfo(&s) != 0) return PL_OK;
    uint64_t has = ((uint64_t)s.totalram + s.totalswap) * s.mem_unit;
    bool container = c->memory_bytes && c->memory_bytes < has;
    if (container) has = c->memory_bytes;
    PL_FAIL_IF((uint64_t)ranks * RANK > has, PL_ERR_FIT,
               "%d ranks take at least %s before they train, %s has %s: start at most %llu", ranks,
               pl_str_bytes((uint64_t)ranks * RANK, all, sizeof all),
               container ? "the container" : "this machine, with swap,",
               pl_str_bytes(has, most, sizeof most), (unsigned long long)(has / RANK));
    return PL_OK;
}

pl_status pl_ranks_launch(int ranks, char **argv, int *code)
{
    pl_hub *hub;
    pid_t pid;
    int status;
    pl_segments segments;
    listen_to_signals();
    listen_to(SIGTSTP, note_suspension);
    PL_TRY(check_memory(ranks));
    PL_TRY(pl_hub_new(ranks, true, &hub));
    pl_control_at at;
    pl_status rc = pl_hub_draw_key(hub);
    pl_hub_where(hub, &at);
    set_environment(&at);
    pl_segments_begin(&segments);
    pl_copier c = {.pid = -1, .out = -1, .err = -1};
    if (rc == PL_OK) pl_copier_begin(&c);
    if (rc == PL_OK) rc = start(ranks, argv, &c, &pid);
    pl_copier_started(&c);
    if (rc == PL_OK) {
        guard g;
        guard_begin(&g, pid);
        look_after(hub, ranks, pid, &status);
        const char *verdict = pl_hub_verdict(hub, code);
        if (verdict[0]) signal_ranks(hub, ranks, SIGKILL); /* they may be suspended */
        if (verdict[0] && status < 0 && !pl_hub_met(hub)) kill(pid, SIGTERM); /* ranks may come */
        if (status < 0) status = wait_for(pid, verdict[0] ? 3000 : 20000);
        guard_end(&g);
        pl_copier_end(&c);
        /* The work of ranks that have left is done: a failure while exiting changes nothing. */
        if (!verdict[0] && *code == 0 && status != 0)
            fprintf(
                stderr,
                "plimsoll: warning: mpirun ended with code %d after all ranks had left in order\n",
                own_code(status));
        if (verdict[0]) fprintf(stderr, "plimsoll: %s\n", verdict);
    }
    pl_copier_end(&c);
    pl_segments_end(&segments);
    pl_hub_free(hub);
    return rc;
}

/* ---- torchrun --------------------------------------------------------------------------- */
/* Writes the name of a socket that the processes of one torchrun share on a machine. */
static socklen_t torch_name(struct sockaddr_un *at)
{
    const char *id = getenv("TORCHELASTIC_RUN_ID"), *port = getenv("MASTER_PORT");
    const char *again = getenv("TORCHELASTIC_RESTART_COUNT");
    memset(at, 0, sizeof *at);
    at->sun_family = AF_UNIX;
    int n = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "plimsoll-%s-%s-%s", id ? id : "",
                     port ? port : "", again ? again : "");
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* Whether the process at the other end belongs to this user; *pid is its number. The names of
 * abstract sockets are open to everybody on the machine. */
static bool is_own(int fd, pid_t *pid)
{
    struct ucred peer = {0};
    socklen_t n = sizeof peer;
    bool own = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
    *pid = own ? peer.pid : 0; /* 0, too, in another namespace of processes */
    return own;
}

/* Sends the exit code to a follower, even to a suspended one. */
static void tell(int peer, pid_t pid, int code)
{
    unsigned char byte = (unsigned char)code;
    if (send(peer, &byte, 1, MSG_NOSIGNAL) == 1 && pid > 1) kill(pid, SIGCONT);
}

/* Rank 0 of torchrun starts the world by mpirun; the others wait for its exit code. */
static pl_status lead(int ranks, char **argv, int *code)
{
    struct sockaddr_un at;
    socklen_t n = torch_name(&at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PL_FAIL_IF(fd < 0 || bind(fd, (struct sockaddr *)&at, n) != 0 || listen(fd, 1024) != 0,
               PL_ERR_PEER, "torchrun's ranks cannot connect to each other: %s", strerror(errno));
    PL_TRY(pl_ranks_launch(ranks, argv, code));
    /* They have come by this time, or do not come. Other users' processes get no answer. */
    for (int i = 1, tries = 0; i < ranks && tries < 4 * ranks; i++, tries++) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int peer = poll(&ready, 1, 1000) > 0 ? accept(fd, NULL, NULL) : -1;
        pid_t pid = 0;
        if (peer < 0) continue;
        if (is_own(peer, &pid))
            tell(peer, pid, *code);
        else
            i--;
        close(peer);
    }
    close(fd);
    return PL_OK;
}

/* Returns the exit code; a signal to this process is passed to the process that listens. */
static int hear(int fd, pid_t leader)
{
    int seen = 0, seen_saves = 0, seen_memories = 0;
    pid_t parent = getppid();
    for (;;) {
        unsigned char byte;
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        poll(&ready, 1, 50);
        if (ready.revents) return recv(fd, &byte, 1, 0) == 1 ? byte : 8;
        if (getppid() != parent) return 8; /* torchrun has ended; rank 0 sees it, too */
        if (times > seen && leader > 1) kill(leader, (int)asked);
        if (saves > seen_saves && leader > 1) kill(leader, SIGUSR1);
        if (memories > seen_memories && leader > 1) kill(leader, SIGUSR2);
        seen = times;
        seen_saves = saves;
        seen_memories = memories;
    }
}

static pl_status follow(int *code)
{
    struct sockaddr_un at;
    socklen_t n = torch_name(&at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    listen_to_signals();
    for (int i = 0; i < 300 && fd >= 0; i++) {
        if (connect(fd, (struct sockaddr *)&at, n) == 0) {
            pid_t leader;
            bool own = is_own(fd, &leader);
            if (!own) close(fd);
            PL_FAIL_IF(!own, PL_ERR_PEER,
                       "the socket of torchrun's ranks belongs to another user's process; "
                       "torchrun --rdzv-id NAME gives it another name");
            *code = hear(fd, leader);
            close(fd);
            return PL_OK;
        }
        usleep(100000);
    }
    PL_FAIL(PL_ERR_PEER, "rank 0 of torchrun did not connect");
}

pl_status pl_ranks_start(int asked_ranks, char **argv, int *code)
{
    pl_rank_env env;
    *code = -1;
    PL_TRY(pl_rank_env_read(&env));
    if (env.launcher && strcmp(env.launcher, "torchrun") == 0 && env.size > 1) {
        PL_FAIL_IF(
            env.local_size != env.size, PL_ERR_PEER,
            "torchrun started %d of %d ranks on this machine: across machines, start them with "
            "mpirun or srun",
            env.local_size, env.size);
        prctl(PR_SET_PDEATHSIG, SIGCONT); /* if suspended, it continues when torchrun ends */
        return env.rank == 0 ? lead(env.size, argv, code) : follow(code);
    }
    if (env.launcher && strcmp(env.launcher, "mpirun") == 0) die_with_mpirun();
    if (env.launcher) {
        PL_FAIL_IF(asked_ranks > 1 && env.size != asked_ranks, PL_ERR_ARG,
                   "--ranks %d, but %s started %d ranks", asked_ranks, env.launcher, env.size);
        return PL_OK;
    }
    return asked_ranks > 1 ? pl_ranks_launch(asked_ranks, argv, code) : PL_OK;
}
