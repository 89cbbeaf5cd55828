/* device_test.h - `plimsoll devices --test NAME`: checks the promises of the engine on a device. */
#ifndef CLI_DEVICE_TEST_H
#define CLI_DEVICE_TEST_H

#include <stdbool.h>

/* Prints one line per promise, ok or FAIL. Returns exit code 0 when all hold, 1 when one does not,
 * 4 when the device cannot be used. */
int device_test(const char *device, bool json);

#endif
