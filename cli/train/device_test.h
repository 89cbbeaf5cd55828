/* device_test.h - `plimsoll devices --test NAME`: are the engine's promises kept on this device? */
#ifndef CLI_DEVICE_TEST_H
#define CLI_DEVICE_TEST_H

#include <stdbool.h>

/* A line a promise, ok or FAIL; exit code 0 when all hold, 1 when one does not, 4 when the device
 * cannot be used. */
int device_test(const char *device, bool json);

#endif
