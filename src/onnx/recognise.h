/* recognise.h - small graphs that become one op (patterns.def). */
#ifndef PL_ONNX_RECOGNISE_H
#define PL_ONNX_RECOGNISE_H

#include "onnx/onnx.h"

/* Builds the op of a pattern that ends with this node; *done false: there is none. */
pl_status pl_ox_recognise(pl_ox_call *c, bool *done) PL_MUST_USE;
/* Pattern i and its example, for the test; false: there is none. */
bool pl_ox_pattern_get(int i, const char **graph, const char **example);

#endif
