/* test_choice.c - choices that several processes make at the same time: each choice is made
 * once, for all of them; and how candidates are timed. */
#include "cuda/device/lib.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* The file under test for this file alone: the simulator's library has choices of its own. */
#define pl_cuda_choice_get choice_get
#define pl_cuda_time_few   choice_time_few
#define pl_cuda_choice_put choice_put
#define pl_cuda_time       choice_time
#define pl_cuda_time_left  choice_time_left
#define pl_cuda_autotune   choice_autotune
#define pl_cuda_cache_dir  choice_dir
#define pl_cuda_props_get  choice_card
#define cublasLtGetVersion choice_lt
#define cudnnGetVersion    choice_dnn

/* A GPU whose kernel takes `kernel` and whose host takes `host` to enqueue it, unless it is part
 * of a graph. */
typedef double *cudaEvent_t;
typedef int cudaStreamCaptureMode;
typedef int *cudaGraph_t, *cudaGraphExec_t;
enum { cudaStreamCaptureModeRelaxed };
static struct {
    double now, kernel, host, at[2];
    bool captures, refuses;
    int events, nodes, graphs, runs;
} sim_card;
#define cudaEventCreate(e)            (*(e) = &sim_card.at[sim_card.events++ % 2], cudaSuccess)
#define cudaEventRecord(e, s)         (*(e) = sim_card.now, (void)(s), cudaSuccess)
#define cudaEventSynchronize(e)       ((void)(e), cudaSuccess)
#define cudaEventElapsedTime(t, a, b) (*(t) = (float)(*(b) - *(a)), cudaSuccess)
#define cudaEventDestroy(e)           ((void)(e))
#define cudaStreamBeginCapture(s, m)                                                               \
 ((void)(s), sim_card.captures = true, sim_card.nodes = 0, cudaSuccess)
#define cudaStreamEndCapture(s, g)                                                                 \
 ((void)(s), sim_card.captures = false, *(g) = &sim_card.nodes,                                    \
  sim_card.refuses ? cudaErrorInvalidValue : cudaSuccess)
#define cudaGraphInstantiate(x, g, f) (*(x) = (g), sim_card.graphs++, cudaSuccess)
#define cudaGraphLaunch(x, s)                                                                      \
 (sim_card.now += sim_card.nodes * sim_card.kernel, (void)(x), (void)(s), cudaSuccess)
#define cudaGraphDestroy(g)     ((void)(g))
#define cudaGraphExecDestroy(x) ((void)(x), sim_card.graphs--)
size_t choice_lt(void);
size_t choice_dnn(void);
const char *choice_dir(void);
const pl_cuda_props *choice_card(void);
bool choice_autotune(void);
#include "cuda/device/choice.c"

static bool sim_autotune;
bool choice_autotune(void)
{
    return sim_autotune;
}

const char *choice_dir(void)
{
    return pl_test_dir();
}

const pl_cuda_props *choice_card(void)
{
    static const pl_cuda_props card = {.name = "A card/1", .arch = 90};
    return &card;
}

size_t choice_lt(void)
{
    return 13;
}

size_t choice_dnn(void)
{
    return 9;
}

/* As a process that has not read the file. */
static void forget(void)
{
    pl_str_release(&table);
    loaded = false;
    known = 0;
}

/* n separate keys and one common key; the exit code is the choice for the common key. */
static void choose(int who, int n)
{
    char key[32], value[16];
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof key, "k%d.%d", who, i);
        snprintf(value, sizeof value, "%d", i);
        choice_put(key, value, sizeof value);
    }
    snprintf(value, sizeof value, "%d", who);
    choice_put("all", value, sizeof value);
    _exit(atoi(value));
}

TEST(cuda_choices_of_parallel_processes_are_made_once)
{
    enum { N = 6, KEYS = 40 };
    pid_t child[N];
    int code[N];
    char key[32], value[16];
    forget();

    CHECK(!choice_get("all", value, sizeof value)); /* the file is read, and there is none */
    for (int i = 0; i < N; i++)
        if ((child[i] = fork()) == 0) choose(i + 1, KEYS);
    for (int i = 0; i < N; i++)
        CHECK(waitpid(child[i], &code[i], 0) == child[i] && WIFEXITED(code[i]));

    /* a process that looked before the others chose uses their choice */
    snprintf(value, sizeof value, "77");
    choice_put("all", value, sizeof value);
    int all = atoi(value);
    CHECK_MSG(all >= 1 && all <= N, "%s", value);
    for (int i = 0; i < N; i++) CHECK_INT(WEXITSTATUS(code[i]), all);

    forget();
    for (int i = 0; i < N * KEYS; i++) {
        snprintf(key, sizeof key, "k%d.%d", i / KEYS + 1, i % KEYS);
        CHECK_MSG(choice_get(key, value, sizeof value) && atoi(value) == i % KEYS, "%s is lost",
                  key);
    }
    forget();
}

/* The file was cut off within a line, or a byte of a line changed: that choice is made again, the
 * others are kept. */
TEST(cuda_choices_of_a_file_that_was_cut_off_are_made_again)
{
    char path[4096], value[16] = "9 0.5", a[32] = "a 1", c[32] = "c 7", b[32] = "b 9 0.5", all[128];
    char *text = NULL;
    size_t len = 0;
    CHECK(pl_cache_seal(a, sizeof a) && pl_cache_seal(b, sizeof b) && pl_cache_seal(c, sizeof c));
    c[2] = '8';
    forget();

    CHECK(path_of(path, sizeof path));
    snprintf(all, sizeof all, "%s\n%s\nb 23", a, c);
    CHECK_OK(pl_sys_write_file(path, all, strlen(all)));
    CHECK(!choice_get("c", value, sizeof value));
    CHECK(choice_get("a", value, sizeof value) && atoi(value) == 1);
    CHECK(!choice_get("b", value, sizeof value));

    snprintf(value, sizeof value, "9 0.5");
    choice_put("b", value, sizeof value);
    CHECK(strcmp(value, "9 0.5") == 0);

    for (int fresh = 0; fresh < 2; fresh++) {
        CHECK(choice_get("b", value, sizeof value) && strcmp(value, "9 0.5") == 0);
        CHECK(choice_get("a", value, sizeof value) && atoi(value) == 1);
        forget();
    }
    CHECK_OK(pl_sys_read_file(path, 1 << 20, &text, &len));
    snprintf(all, sizeof all, "%s\n%s\n%s\n", a, c, b);
    CHECK_MSG(strcmp(text, all) == 0, "%s", text);
    pl_sys_free(text);

    /* random bytes: every choice can be made and is remembered */
    CHECK_OK(pl_sys_write_file(path, "\0\n\377 \n\0\0", 7));
    choice_put("c", value, sizeof value);
    CHECK_INT(atoi(value), 1);

    /* a file that cannot be opened */
    forget();
    CHECK(unlink(path) == 0 && mkdir(path, 0777) == 0);

    snprintf(value, sizeof value, "5");
    choice_put("d", value, sizeof value);
    CHECK(choice_get("d", value, sizeof value) && atoi(value) == 5);
    CHECK(rmdir(path) == 0);
    forget();
}

static pl_status run_kernel(void *ctx)
{
    (void)ctx;
    sim_card.runs++;
    if (sim_card.captures)
        sim_card.nodes++;
    else
        sim_card.now += fmax(sim_card.kernel, sim_card.host);
    return PL_OK;
}

/* Host time does not count, except for kernels that cannot be part of a graph; long kernels run
 * a few times only. */
TEST(cuda_choices_are_timed_as_in_a_step)
{
    static const struct {
        double kernel, host, want;
        bool refuses;
    } list[] = {
        {0.003, 0.011, 0.003, false}, {0.003, 0.011, 0.011, true}, {0.7, 0.011, 0.7, false}};
    for (int i = 0; i < 3; i++) {
        float ms = 0;
        memset(&sim_card, 0, sizeof sim_card);
        sim_card.kernel = list[i].kernel;
        sim_card.host = list[i].host;
        sim_card.refuses = list[i].refuses;
        CHECK_OK(choice_time(run_kernel, NULL, &ms));
        CHECK_NEAR(ms, list[i].want, 1e-5);
        CHECK_INT(sim_card.graphs, 0);
        CHECK(i < 2 || sim_card.runs < 10);
    }
}

/* A process measures for some seconds, except where the user asked for all measurements. */
TEST(cuda_choices_have_a_limit_of_time)
{
    float ms = 0;
    int n = 0;
    memset(&sim_card, 0, sizeof sim_card);
    sim_card.kernel = 800;
    spent_ms = 0;
    while (pl_cuda_time_left() && n < 100) {
        CHECK_OK(pl_cuda_time_few(run_kernel, NULL, &ms));
        n++;
    }
    CHECK_INT(n, 7); /* 1.6 s each */
    sim_autotune = true;
    CHECK(pl_cuda_time_left());
    sim_autotune = false;
    spent_ms = 0;
}
