/* inspect_onnx.h - lists the contents of an ONNX file, without building its graph. */
#ifndef CLI_INSPECT_ONNX_H
#define CLI_INSPECT_ONNX_H

/* Prints inputs, outputs and tensors with the names that keys take. Returns the exit code. */
int inspect_onnx(const char *path);

#endif
