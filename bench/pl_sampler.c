/* pl_sampler.c - a sampling profiler of the main thread, as a library to preload, for machines
 * without one.
 *
 *     SAMPLES=out.txt LD_PRELOAD=build/release/pl_sampler.so pl_step lgt/full 1 device=cuda
 *     bench/samples.py out.txt BUILD    sums by function; BUILD has the programs with their symbols
 *
 * A timer interrupts the main thread every PERIOD_US of wall time, so waiting counts like working.
 * A sample is the return addresses on the stack; the text file has the memory map of the process
 * and then one line of addresses per sample, innermost first.
 */
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_US = 1000, MAX_SAMPLES = 60000, DEPTH = 40, SKIP = 2 };

/* A signal handler can use only globals. */
static void *frames[MAX_SAMPLES][DEPTH];
static unsigned char depth[MAX_SAMPLES];
static volatile int n_samples;
static timer_t timer;

static void take_sample(int sig)
{
    (void)sig;
    if (n_samples == MAX_SAMPLES) return;
    depth[n_samples] = (unsigned char)backtrace(frames[n_samples], DEPTH);
    n_samples = n_samples + 1;
}

static void copy_maps(FILE *out)
{
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "r-xp")) fprintf(out, "map %s", line);
    if (maps) fclose(maps);
}

__attribute__((destructor)) static void write_samples(void)
{
    const char *path = getenv("SAMPLES");
    if (!n_samples || !path) return;
    timer_delete(timer);
    FILE *out = fopen(path, "w");
    if (!out) return;
    fprintf(out, "period_us %d\n", PERIOD_US);
    copy_maps(out);
    for (int i = 0; i < n_samples; i++) {
        for (int k = SKIP; k < depth[i]; k++)
            fprintf(out, "%s%p", k > SKIP ? " " : "", frames[i][k]);
        fprintf(out, "\n");
    }
    fclose(out);
}

__attribute__((constructor)) static void begin_sampling(void)
{
    void *first[4];
    if (!getenv("SAMPLES")) return;
    backtrace(first, 4); /* loads what backtrace needs now, not in the handler */
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_handler = take_sample;
    act.sa_flags = SA_RESTART;
    sigaction(SIGPROF, &act, NULL);
    struct sigevent ev;
    memset(&ev, 0, sizeof ev);
    ev.sigev_notify = SIGEV_THREAD_ID;
    ev.sigev_signo = SIGPROF;
    ev._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &ev, &timer) != 0) return;
    struct itimerspec every = {{0, PERIOD_US * 1000L}, {0, PERIOD_US * 1000L}};
    timer_settime(timer, 0, &every, NULL);
    unsetenv("LD_PRELOAD");
}
