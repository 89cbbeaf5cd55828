/* sandbox.c - see sandbox.h.
 *
 * The filter of system calls is a short list, written as the instructions that the kernel reads
 * (seccomp(2)): a library would have to be installed for forty lines.
 */
#include "base/trust/sandbox.h"

#include "base/sys.h"

#include <errno.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SECCOMP_RET_KILL_PROCESS
# define SECCOMP_RET_KILL_PROCESS 0x80000000u
#endif
#ifndef MADV_POPULATE_WRITE
# define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
# define MADV_COLLAPSE 25
#endif
/* Sanitizers make further system calls. */
#if defined(__has_feature)
# if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#  define SANITIZED
# endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(SANITIZED)
# define FAKE /* pl_sandbox_set_answer works */
#elif defined(__x86_64__)
# define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
# define ARCH AUDIT_ARCH_AARCH64
#endif

/* LOOK_MS: between two looks at a sandbox that does not answer. */
enum { LOOK_MS = 20, MESSAGE = 512, PAGE = 4096, LARGE_PAGE = 2 << 20 };
enum { TURN_CALLER, TURN_SANDBOX, TURN_END };

/* The shared memory: this, then the request. */
typedef struct board {
    _Atomic uint32_t turn;
    int32_t status;
    char message[MESSAGE];
} board;

struct pl_sandbox {
    pl_sandbox_opts o;
    board *board;
    size_t mapped;
    pid_t pid;     /* -1: none */
    pid_t owner;   /* the process that uses it: a forked process gets a separate sandbox */
    bool killed;   /* another process ended it, not its input */
    void *request; /* copy: a sandbox that is replaced gets the same request */
};

static void *request_of(board *b)
{
    return (char *)b + PAGE;
}

/* ---- the sandbox's side ----------------------------------------------------------------- */
#ifdef ARCH
# define LOAD(member)  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
# define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))
# define ALLOW(call)   BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), RETURN(SECCOMP_RET_ALLOW)
# define REFUSE(call)                                                                              \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), RETURN(SECCOMP_RET_ERRNO | EPERM)
# define LOW(n) args[n] /* the lower half: x86-64 and arm64 are little endian */

/* With a file: it may be opened once (RLIMIT_NOFILE is 1, and close does nothing) and read. */
static bool lock_down(bool file)
{
    static const struct sock_filter reads[] = {
        ALLOW(__NR_getcwd),  ALLOW(__NR_openat),      ALLOW(__NR_read),   ALLOW(__NR_pread64),
        ALLOW(__NR_lseek),   ALLOW(__NR_newfstatat),  ALLOW(__NR_fstat),  ALLOW(__NR_flock),
        REFUSE(__NR_close),  REFUSE(__NR_readlinkat), REFUSE(__NR_fcntl),
# ifdef __NR_open
        ALLOW(__NR_open),
# endif
# ifdef __NR_access
        REFUSE(__NR_access), REFUSE(__NR_readlink),
# endif
    };
    static const struct sock_filter always[] = {
        ALLOW(__NR_futex),        ALLOW(__NR_munmap),          ALLOW(__NR_mremap),
        ALLOW(__NR_brk),          ALLOW(__NR_madvise),         ALLOW(__NR_exit),
        ALLOW(__NR_exit_group),   ALLOW(__NR_restart_syscall), ALLOW(__NR_clock_gettime),
        ALLOW(__NR_gettimeofday), ALLOW(__NR_sched_yield),     ALLOW(__NR_getrandom),
        REFUSE(__NR_write),       REFUSE(__NR_rt_sigaction),   REFUSE(__NR_rt_sigprocmask),
    };
    static const struct sock_filter head[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
    };
    /* Memory may not become code; mappings have no file. */
    static const struct sock_filter tail[] = {
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 0, 3),
        LOAD(LOW(2)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 6, 0),
        RETURN(SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 0, 4),
        LOAD(LOW(2)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 2, 0),
        LOAD(LOW(3)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 1, 0),
        RETURN(SECCOMP_RET_KILL_PROCESS),
        RETURN(SECCOMP_RET_ALLOW),
    };
    struct sock_filter all[128];
    unsigned short n = 0;
# define ADD(part)                                                                                 \
  memcpy(all + n, part, sizeof part), n = (unsigned short)(n + sizeof part / sizeof *part)
    ADD(head);
    ADD(always);
    if (file) ADD(reads);
    ADD(tail);
# undef ADD
    struct sock_fprog program = {.len = n, .filter = all};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
static bool lock_down(bool file)
{
    (void)file;
    errno = ENOSYS;
    return false;
}
#endif

static void wait_for_turn(board *b, uint32_t not_this, int milliseconds)
{
    struct timespec most = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = milliseconds % 1000 * 1000000L};
    syscall(SYS_futex, &b->turn, FUTEX_WAIT, not_this, milliseconds ? &most : NULL, NULL, 0);
}

static void give_turn(board *b, uint32_t turn)
{
    atomic_store(&b->turn, turn);
    syscall(SYS_futex, &b->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void close_all(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 0u, ~0u, 0u) == 0) return;
#endif
    struct rlimit r;
    int most =
        getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < 1 << 16 ? (int)r.rlim_cur : 1 << 16;
    for (int fd = 0; fd < most; fd++) close(fd);
}

static bool limit(int what, rlim_t most)
{
    struct rlimit r;
    if (getrlimit(what, &r) != 0) return false;
    if (r.rlim_max != RLIM_INFINITY && r.rlim_max < most) most = r.rlim_max;
    r.rlim_cur = r.rlim_max = most;
    return setrlimit(what, &r) == 0;
}

/* Returns whether the limits hold; no system call is left to find out later. */
static bool enter(const pl_sandbox_opts *o)
{
    sigset_t all;
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
    sigfillset(&all); /* signals are for the caller, which ends this process */
    sigprocmask(SIG_SETMASK, &all, NULL);
    size_t mapped = pl_sys_mapped_bytes();
    close_all();
    return limit(RLIMIT_AS, mapped + o->memory_bytes) && limit(RLIMIT_CORE, 0) &&
           limit(RLIMIT_FSIZE, 0) && limit(RLIMIT_NOFILE, (rlim_t)o->files) &&
           lock_down(o->files > 0);
}

static _Noreturn void live(const pl_sandbox_opts *o, board *b, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* it does not outlive its parent */
    if (getppid() != parent) _exit(1);
    bool held = enter(o);
    b->status = held ? PL_OK : PL_ERR_UNSUPPORTED;
    if (!held) snprintf(b->message, MESSAGE, "%s", strerror(errno));
    give_turn(b, TURN_CALLER);
    while (held) {
        uint32_t turn = atomic_load(&b->turn);
        if (turn == TURN_END) break;
        if (turn == TURN_CALLER) {
            wait_for_turn(b, TURN_CALLER, 0);
            continue;
        }
        b->status = o->serve(o->state, request_of(b));
        if (b->status != PL_OK) snprintf(b->message, MESSAGE, "%s", pl_error_text());
        give_turn(b, TURN_CALLER);
    }
    _exit(0);
}

/* ---- the caller's side ------------------------------------------------------------------ */
#ifdef FAKE
static pl_sandbox_answer fake;
#else
static const pl_sandbox_answer fake = NULL;
#endif

void pl_sandbox_set_answer(pl_sandbox_answer answer)
{
#ifdef FAKE
    fake = answer;
#else
    (void)answer;
#endif
}

static void end(pl_sandbox *s)
{
    if (s->pid <= 0) return; /* 0: a fuzzer answers */
    if (s->owner != getpid()) {
        s->pid = -1;
        return;
    }
    kill(s->pid, SIGKILL);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) continue;
    s->pid = -1;
}

static uint64_t cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec t;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits for the reply of the sandbox. PL_ERR_DATA: the sandbox has ended, or is ended here. Time
 * counts only while the sandbox runs. */
static pl_status wait_for_sandbox(pl_sandbox *s)
{
    uint64_t begun = 0;
    int state = 0;
    while (atomic_load(&s->board->turn) != TURN_CALLER) {
        wait_for_turn(s->board, TURN_SANDBOX, LOOK_MS);
        if (atomic_load(&s->board->turn) == TURN_CALLER) break;
        pid_t ended = waitpid(s->pid, &state, WNOHANG | WUNTRACED);
        if (ended == s->pid && WIFSTOPPED(state)) { /* the request and the end of the run wait */
            kill(s->pid, SIGCONT);
            continue;
        }
        if (ended == s->pid || (ended < 0 && errno == ECHILD)) {
            s->pid = -1;
            s->killed = ended < 0 || (WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
            PL_FAIL_IF(ended > 0 && WIFSIGNALED(state), PL_ERR_DATA,
                       "its decoder crashed in the sandbox (signal %d%s)", WTERMSIG(state),
                       WTERMSIG(state) == SIGSYS ? ", a system call that decoders do not need"
                                                 : "");
            PL_FAIL(PL_ERR_DATA, "its decoder ended the sandbox");
        }
        uint64_t now = cpu_ns(s->pid);
        if (!begun) begun = now ? now : 1;
        if (now > begun && now - begun > (uint64_t)s->o.cpu_ms * 1000000u) {
            end(s);
            PL_FAIL(PL_ERR_DATA, "its decoder took more than %.1f s of CPU time",
                    1e-3 * s->o.cpu_ms);
        }
    }
    return PL_OK;
}

static pl_status start(pl_sandbox *s)
{
    pid_t parent = getpid();
    const char *tests = getenv("PLIMSOLL_SANDBOX"); /* "none": as if the system had no sandboxes */
    PL_FAIL_IF(tests && strcmp(tests, "none") == 0, PL_ERR_UNSUPPORTED, "PLIMSOLL_SANDBOX=none");
    s->pid = 0;
    if (fake) return PL_OK;
    atomic_store(&s->board->turn, TURN_SANDBOX);
    s->pid = fork();
    if (s->pid == 0) live(&s->o, s->board, parent);
    PL_FAIL_IF(s->pid < 0, PL_ERR_UNSUPPORTED,
               "cannot start a process for decoders: %s (ulimit -u limits processes; "
               "data.sandbox=off needs none)",
               strerror(errno));
    pl_status rc = wait_for_sandbox(s);
    if (rc != PL_OK) rc = PL_ERR_UNSUPPORTED;
    if (rc == PL_OK && s->board->status != PL_OK)
        rc = pl__fail(
            PL_ERR_UNSUPPORTED, __FILE__, __LINE__,
            "the system does not allow a process to give up its system calls (seccomp): %.200s",
            s->board->message);
    if (rc != PL_OK) end(s);
    return rc;
}

pl_status pl_sandbox_map(size_t bytes, void **out)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    PL_FAIL_IF(p == MAP_FAILED, PL_ERR_MEMORY, "cannot map %zu bytes for decoders: %s", bytes,
               strerror(errno));
    *out = p;
    return PL_OK;
}

/* Turns whole runs of small pages into large pages: with small ones, a decoder spends 2 to 4 % of
 * its time on TLB misses. Linux before 6.1 keeps small pages. */
static void use_large_pages(char *at, size_t bytes)
{
    char *begin = at + (LARGE_PAGE - (uintptr_t)at % LARGE_PAGE) % LARGE_PAGE;
    size_t head = (size_t)(begin - at);
    if (head + LARGE_PAGE > bytes) return;
    size_t n = (bytes - head) / LARGE_PAGE * LARGE_PAGE;
    if (madvise(begin, n, MADV_POPULATE_WRITE) == 0) (void)madvise(begin, n, MADV_COLLAPSE);
}

/* The kernel makes a large page only where address and offset in the shared memory are equal
 * modulo its size. A new mapping begins at offset 0, so this maps more and moves the part that is
 * needed. */
size_t pl_sandbox_share(void *at, size_t bytes)
{
    bytes -= bytes % PAGE;
    if (!bytes || (uintptr_t)at % PAGE) return 0;
    size_t offset = (uintptr_t)at % LARGE_PAGE;
    char *p = mmap(NULL, offset + bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return 0;
    void *moved = mremap(p + offset, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
    munmap(p, moved == MAP_FAILED ? offset + bytes : offset);
    if (moved == MAP_FAILED) return 0;
    use_large_pages(at, bytes);
    return bytes;
}

pl_status pl_sandbox_new(const pl_sandbox_opts *o, pl_sandbox **out)
{
    void *shared;
    pl_sandbox *s = pl_sys_alloc(sizeof *s);
    if (!s) return PL_ERR_MEMORY;
    s->o = *o;
    if (!s->o.cpu_ms) s->o.cpu_ms = 60000;
    s->pid = -1;
    s->owner = getpid();
    s->mapped = PAGE + o->request_bytes;
    s->request = pl_sys_alloc(o->request_bytes);
    pl_status rc = s->request ? pl_sandbox_map(s->mapped, &shared) : PL_ERR_MEMORY;
    if (rc == PL_OK) {
        s->board = shared;
        rc = start(s);
    }
    if (rc != PL_OK) {
        pl_sandbox_free(s);
        return rc;
    }
    *out = s;
    return PL_OK;
}

void pl_sandbox_free(pl_sandbox *s)
{
    if (!s) return;
    end(s);
    if (s->board) pl_sys_unmap(s->board, s->mapped);
    pl_sys_free(s->request);
    pl_sys_free(s);
}

void *pl_sandbox_request(pl_sandbox *s)
{
    return request_of(s->board);
}

void pl_sandbox_rest(pl_sandbox *s)
{
    end(s);
}

int pl_sandbox_pid(const pl_sandbox *s)
{
    return s->pid;
}

static pl_status run_once(pl_sandbox *s)
{
    s->killed = false;
    if (s->pid < 0) PL_TRY(start(s));
    memcpy(request_of(s->board), s->request, s->o.request_bytes);
    if (fake) {
        board *b = s->board;
        bool lives = fake(request_of(b), s->o.request_bytes, &b->status, b->message, MESSAGE);
        if (!lives) s->pid = -1;
        PL_FAIL_IF(!lives, PL_ERR_DATA, "its decoder ended the sandbox");
        return PL_OK;
    }
    give_turn(s->board, TURN_SANDBOX);
    return wait_for_sandbox(s);
}

/* In a fork: leaves board and sandbox to the parent. The new board has the old one's address, so
 * that pointers into the request stay valid. */
static pl_status leave_to_parent(pl_sandbox *s)
{
    if (s->owner == getpid()) return PL_OK;
    void *p = mmap(s->board, s->mapped, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    PL_FAIL_IF(p == MAP_FAILED, PL_ERR_MEMORY, "cannot map %zu bytes for decoders: %s", s->mapped,
               strerror(errno));
    s->pid = -1;
    s->owner = getpid();
    return PL_OK;
}

/* If another process killed the sandbox (perhaps while it was idle, or because memory ran out), the
 * file is not to blame: the request is repeated. */
pl_status pl_sandbox_run(pl_sandbox *s)
{
    char message[MESSAGE];
    memcpy(s->request, request_of(s->board), s->o.request_bytes);
    PL_TRY(leave_to_parent(s));
    pl_status rc = run_once(s);
    if (rc != PL_OK && s->killed) rc = run_once(s);
    PL_TRY(rc);
    int status = s->board->status;
    if (status == PL_OK) return PL_OK;
    memcpy(message, s->board->message, MESSAGE);
    message[MESSAGE - 1] = 0;
    PL_FAIL_IF(status == PL_ERR_MEMORY, PL_ERR_DATA,
               "its decoder needs more memory than its limit of %.0f MB",
               1e-6 * (double)s->o.memory_bytes);
    bool known = status == PL_ERR_UNSUPPORTED || status == PL_ERR_ARG;
    PL_FAIL(known ? (pl_status)status : PL_ERR_DATA, "%s", message);
}

/* ---- whether ---------------------------------------------------------------------------- */
static pl_sandbox_mode mode_now;
static bool tried, works; /* features that the system allows; determined once */
static char warning[384];

static pl_status serve_nothing(void *state, void *request)
{
    (void)state, (void)request;
    return PL_OK;
}

void pl_sandbox_set_mode(pl_sandbox_mode mode)
{
    mode_now = mode;
    if (mode == PL_SANDBOX_OFF) tried = works = false; /* asked again when it is wanted again */
    warning[0] = 0;
}

const char *pl_sandbox_warning(void)
{
    return warning[0] ? warning : NULL;
}

pl_status pl_sandbox_wanted(bool *wanted)
{
    pl_sandbox *s;
    *wanted = mode_now != PL_SANDBOX_OFF && works;
    if (mode_now == PL_SANDBOX_OFF || works || (tried && mode_now == PL_SANDBOX_AUTO)) return PL_OK;
    pl_sandbox_opts o = {.serve = serve_nothing, .request_bytes = 8, .memory_bytes = 1 << 24};
    pl_status rc = pl_sandbox_new(&o, &s);
    tried = true;
    if (rc == PL_OK) {
        pl_sandbox_free(s);
        *wanted = works = true;
    } else if (mode_now == PL_SANDBOX_AUTO) {
        snprintf(warning, sizeof warning, "%s", pl_error_text());
        rc = PL_OK;
    } else {
        rc = pl__fail_prefix(rc, "data.sandbox=on");
    }
    return rc;
}
