/* test_open.c - opening a GPU, and the messages where that fails: no GPU, a driver that is too
 * old or does not answer, a GPU that is too old or missing, calls that fail. */
#include "tests/lib/test.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

/* The file under test for this file alone: the simulator has a card of its own. */
#define pl_cuda_failed        card_failed
#define pl_cuda_driver        card_driver
#define pl_cuda_driver_failed card_driver_failed
#define pl_cuda_device_list   card_list
#define pl_cuda_device_open   card_open
#define pl_cuda_device_wait   card_wait
#define pl_cuda_props_get     card_get
#define pl_cuda_stream        card_stream
#define pl_cuda_upload_stream card_upload_stream
#define pl_cuda_set_mode      card_set_mode
#define pl_cuda_tf32          card_tf32
#define pl_cuda_split         card_split
#define pl_cuda_autotune      card_autotune
#define pl_cuda_cache_dir     card_cache_dir
#define pl_cuda_used_begin    card_watch_begin
#define pl_cuda_free_bytes    card_free_bytes
#define pl_cuda_lib_begin     card_lib_begin
#define pl_cuda_lib_wait      card_lib_wait

/* A driver that supports CUDA `version` and has `cards` GPUs of compute capability
 * `major`.`minor`, or answers `count`; the call named `fails` fails. */
static struct {
    cudaError_t count;
    int version, cards, major, minor;
    const char *fails;
} fake;

#define cudaErrorInsufficientDriver ((cudaError_t)35)
#define cudaErrorNoDevice           ((cudaError_t)100)
#define cudaErrorSystemNotReady     ((cudaError_t)802)
enum { CUDART_VERSION = 13000, cudaStreamNonBlocking = 1, cudaEnableDefault = 0 };
enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess,
    cudaDriverEntryPointSymbolNotFound
};
struct cudaDeviceProp {
    char name[64];
    int multiProcessorCount, major, minor, l2CacheSize;
    size_t totalGlobalMem, sharedMemPerBlockOptin;
};

static cudaError_t answer(const char *call)
{
    return fake.fails && strcmp(fake.fails, call) == 0 ? cudaErrorInvalidValue : cudaSuccess;
}

static cudaError_t properties(struct cudaDeviceProp *p)
{
    *p = (struct cudaDeviceProp){
        .name = "Card", .multiProcessorCount = 2, .major = fake.major, .minor = fake.minor};
    return answer("cudaGetDeviceProperties");
}

#define cudaGetLastError()             ((void)0)
#define cudaGetErrorString(rc)         ((rc) == cudaSuccess ? "no error" : "words")
#define cudaGetErrorName(rc)           ((rc) == cudaSuccess ? "cudaSuccess" : "cudaErrorName")
#define cudaGetDeviceCount(n)          (*(n) = fake.cards, fake.count)
#define cudaDriverGetVersion(v)        (*(v) = fake.version)
#define cudaGetDeviceProperties(p, i)  ((void)(i), properties(p))
#define cudaDeviceGetPCIBusId(s, n, i) (snprintf(s, n, "%d", i), answer("cudaDeviceGetPCIBusId"))
#define cudaSetDevice(i)               ((void)(i), answer("cudaSetDevice"))
#define cudaStreamCreateWithFlags(s, f)                                                            \
 (*(s) = NULL, (void)(f), answer("cudaStreamCreateWithFlags"))
#define cudaGetDriverEntryPointByVersion(name, out, v, f, found)                                   \
 (*(out) = NULL, (void)(v), (void)(f), *(found) = cudaDriverEntryPointSymbolNotFound,              \
  (void)(name), cudaSuccess)

#define PL_CUDA_OLDEST 80
#include "cuda/device/open_device.c"

void pl_cuda_used_begin(const char *pci_id)
{
    (void)pci_id;
}

uint64_t pl_cuda_free_bytes(const char *pci_id)
{
    return 5 + (uint64_t)atoi(pci_id);
}

void pl_cuda_lib_begin(void)
{
}
void pl_cuda_lib_wait(void)
{
}

/* Like a process that has not opened a GPU. A thread keeps its opened GPU, so every try is a
 * thread. */
static void *opened(void *index)
{
    pl_status rc = pl_cuda_device_open(*(int *)index);
    return rc == PL_OK && pl_cuda_device_wait() == PL_OK ? index : NULL;
}

static bool opens(int index, char *why, size_t cap)
{
    pthread_t t;
    void *ok = NULL;
    self.begun = false;
    self.rc = PL_OK;
    self.error[0] = 0;
    if (pthread_create(&t, NULL, opened, &index) != 0 || pthread_join(t, &ok) != 0) return false;
    snprintf(why, cap, "%s", self.error);
    return ok != NULL;
}

TEST(cuda_card_that_cannot_be_used_says_why)
{
    static const struct {
        cudaError_t count;
        int version, cards, major, minor, index;
        const char *fails, *words;
    } bad[] = {
        {cudaErrorInsufficientDriver, 12040, 1, 9, 0, 0, NULL,
         "too old: it knows CUDA 12.4, this plug-in is built with CUDA 13.0; install a newer driver"},
        {cudaErrorNoDevice, 13000, 0, 9, 0, 0, NULL,
         "an NVIDIA driver is installed, but it finds no GPU (CUDA_VISIBLE_DEVICES="},
        {cudaSuccess, 13000, 0, 9, 0, 0, NULL, "finds no GPU"},
        {cudaErrorSystemNotReady, 13000, 0, 9, 0, 0, NULL,
         "the NVIDIA driver does not answer: words (cudaErrorName)"},
        {cudaSuccess, 13000, 2, 9, 0, 2, NULL,
         "there is no GPU 2: the machine has 2, counted from 0"},
        {cudaSuccess, 13000, 2, 9, 0, -1, NULL, "there is no GPU -1"},
        {cudaSuccess, 13000, 1, 7, 0, 0, NULL,
         "Card is too old for this plug-in: compute capability 7.0; at least 7.5 is needed"},
        {cudaSuccess, 13000, 1, 7, 5, 0, NULL,
         "compute capability 7.5; build the plug-in with make CUDA_ARCHS=75"},
        {cudaSuccess, 13000, 1, 9, 0, 0, "cudaStreamCreateWithFlags",
         "cudaStreamCreateWithFlags(&self.stream"},
        {cudaSuccess, 13000, 1, 9, 0, 0, "cudaSetDevice",
         "cudaSetDevice(index): words (cudaErrorName)"},
    };
    char why[512];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fake.count = bad[i].count, fake.version = bad[i].version, fake.cards = bad[i].cards;
        fake.major = bad[i].major, fake.minor = bad[i].minor, fake.fails = bad[i].fails;
        CHECK_MSG(!opens(bad[i].index, why, sizeof why) && strstr(why, bad[i].words),
                  "%s instead of %s", why, bad[i].words);
    }
    fake.fails = NULL, fake.major = 8, fake.minor = 0;

    CHECK_MSG(opens(0, why, sizeof why), "%s", why);
    CHECK_INT(pl_cuda_props_get()->arch, 80);
    CHECK_INT(pl_cuda_device_open(1), PL_ERR_DEVICE);
    CHECK_MSG(strstr(pl_error_text(), "one process drives one GPU"), "%s", pl_error_text());
}

TEST(cuda_cards_are_listed_with_their_memory_and_use)
{
    pl_device_info d[2];
    int n = 0;
    fake.count = cudaSuccess, fake.cards = 3, fake.major = 7, fake.minor = 2, fake.fails = NULL;
    CHECK_OK(pl_cuda_device_list(d, 2, &n));

    CHECK_INT(n, 3);
    CHECK(strcmp(d[0].name, "cuda") == 0 && strcmp(d[1].name, "cuda:1") == 0 &&
          d[1].free_bytes == 6);
    CHECK(!d[0].usable && strstr(d[0].why_not, "compute capability 7.2; at least 7.5 is needed"));

    fake.major = 8;
    CHECK_OK(pl_cuda_device_list(d, 2, &n));
    CHECK(d[0].usable);

    void *entry;
    CHECK_INT(pl_cuda_driver("cuMemCreate", 10020, &entry), PL_ERR_DEVICE);
    CHECK_MSG(strstr(pl_error_text(), "the NVIDIA driver has no cuMemCreate: it is too old"), "%s",
              pl_error_text());
    CHECK_INT(pl_cuda_driver_failed(CUDA_ERROR_UNKNOWN, "cuMemMap", __FILE__, __LINE__),
              PL_ERR_DEVICE);
    CHECK_MSG(strstr(pl_error_text(), "cuMemMap: error (999)"), "%s", pl_error_text());
}
