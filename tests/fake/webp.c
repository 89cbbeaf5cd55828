/* webp.c - a libwebp that is taken over by its file. A file is "RIFF....WEBP", then one letter that
 * says what the decoder does with it:
 *   g  gives a grey picture of 16 x 16 pixels       c  crashes
 *   e  never ends                                   m  takes memory without end
 *   o  opens a file                                 w  writes to stdout and stderr
 *   k  kills its parent                             p  starts a program
 *   l  gives a header with an impossible size       s  opens a socket
 *   t  creates a thread                             x  makes memory executable */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct features {
    int width, height, alpha, animated, format;
    uint32_t pad[5];
} features;

#define EXPORT __attribute__((visibility("default")))
EXPORT int WebPGetFeaturesInternal(const uint8_t *data, size_t n, features *f, int version);
EXPORT uint8_t *WebPDecodeRGBInto(const uint8_t *data, size_t n, uint8_t *out, size_t size,
                                  int stride);
EXPORT void *WebPINewRGB(int mode, uint8_t *out, size_t size, int stride);
EXPORT int WebPIUpdate(void *decoder, const uint8_t *data, size_t n);
EXPORT uint8_t *WebPIDecGetRGB(const void *decoder, int *last, int *w, int *h, int *stride);
EXPORT void WebPIDelete(void *decoder);

int WebPGetFeaturesInternal(const uint8_t *data, size_t n, features *f, int version)
{
    (void)version;
    if (n < 13) return 7;
    memset(f, 0, sizeof *f);
    f->width = f->height = data[12] == 'l' ? 1 << 30 : 16;
    return 0;
}

static void *idle(void *unused)
{
    return unused;
}

static void obey(char what)
{
    static const char text[] = "from the decoder\n";
    pthread_t thread;
    volatile int *volatile nowhere = NULL;
    switch (what) {
    case 'c': *nowhere = 1; break;
    case 'e':
        for (volatile int i = 0;; i++) continue;
    case 'm':
        for (volatile char *p; (p = malloc(1 << 20));) /* or a compiler leaves the memory out */
            for (int i = 0; i < 1 << 20; i += 4096) p[i] = 1;
        abort();
    case 'o': (void)!open("/etc/passwd", O_RDONLY); break;
    case 'w': (void)!(write(1, text, sizeof text - 1) + write(2, text, sizeof text - 1)); break;
    case 'k': kill(getppid(), SIGKILL); break;
    case 'p': (void)!system("touch from-the-decoder"); break;
    case 's': socket(AF_INET, SOCK_STREAM, 0); break;
    case 't': pthread_create(&thread, NULL, idle, NULL); break;
    case 'x':
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        break;
    default: break;
    }
}

uint8_t *WebPDecodeRGBInto(const uint8_t *data, size_t n, uint8_t *out, size_t size, int stride)
{
    (void)n, (void)stride;
    obey((char)data[12]);
    memset(out, 128, size);
    return out;
}

/* ---- row after row: all rows come with the first part of the file ---- */
static struct {
    uint8_t *out;
    size_t size;
    int rows;
} only;

void *WebPINewRGB(int mode, uint8_t *out, size_t size, int stride)
{
    (void)mode, (void)stride;
    only.out = out;
    only.size = size;
    only.rows = 0;
    return &only;
}

int WebPIUpdate(void *decoder, const uint8_t *data, size_t n)
{
    (void)decoder;
    WebPDecodeRGBInto(data, n, only.out, only.size, 0);
    only.rows = 16;
    return 0;
}

uint8_t *WebPIDecGetRGB(const void *decoder, int *last, int *w, int *h, int *stride)
{
    (void)decoder, (void)w, (void)h, (void)stride;
    *last = only.rows;
    return only.out;
}

void WebPIDelete(void *decoder)
{
    (void)decoder;
}
