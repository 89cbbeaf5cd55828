"""onnx_sweep.py OUT SEED COUNT [OP ...] - drawn models of one node, as folders of node tests.

COUNT draws for each op of CASES, with random ranks, sizes, attributes, opsets 13 to 23 and element types; inputs are inputs of the graph or
initializers by chance. The outputs are those of ONNX Runtime, or of onnx's reference evaluator where the runtime has no kernel; a draw that
neither accepts is left out. PL_ONNX_NODES=OUT build/release/pl_test -k onnx_node_tests_of_the_standard runs the folders.
"""
import pathlib
import random
import sys
import warnings

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

warnings.filterwarnings("ignore")
F32, F64, F16, BF16, I32, I64, BOOL = np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.int64, np.bool_
FLOATS, WHOLE = (F32, F32, F64, F16, BF16), (I32, I64)
NAMES = {F32: "float", F64: "double", F16: "half", BF16: "bf16", I32: "i32", I64: "i64", BOOL: "bool"}
r = random.Random()
rng = np.random.default_rng()


def numbers(shape, kind, low=-2.0, high=2.0):
    if kind == BOOL:
        return np.asarray(rng.random(shape) < 0.5)
    if kind in WHOLE:
        return np.asarray(rng.integers(int(low), int(high) + 1, shape)).astype(kind)
    return np.asarray(rng.uniform(low, high, shape)).astype(np.float32).astype(kind)


def shape(low=0, high=4, zero=0.03):
    return [0 if r.random() < zero else r.choice((1, 2, 3, 4, 5)) for _ in range(r.randint(low, high))]


def spread(sizes):
    """A shape that broadcasts to `sizes`."""
    cut = r.randint(0, len(sizes))
    return [1 if r.random() < 0.3 else n for n in sizes[cut:]] if r.random() < 0.6 else list(sizes)


def axis(rank):
    return r.randint(-rank, rank - 1)


def perhaps(**keys):
    return {k: v for k, v in keys.items() if r.random() < 0.5}


class Draw:
    """One node: names of its inputs in order (an empty name: absent), their arrays, which of them are fixed, attributes, number of outputs."""

    def __init__(self, *arrays, fixed=(), outputs=1, opsets=(13, 23), **attributes):
        self.arrays, self.fixed, self.outputs, self.attributes, self.opsets = arrays, set(fixed), outputs, attributes, opsets


def unary(low=-2, high=2, kinds=FLOATS, **attributes):
    return lambda: Draw(numbers(shape(), r.choice(kinds), low, high), **{k: v() for k, v in attributes.items()})


def binary(kinds=FLOATS + WHOLE, low=-3.0, high=3.0, **attributes):
    def draw():
        sizes, kind = shape(), r.choice(kinds)
        pair = [numbers(sizes, kind, low, high), numbers(spread(sizes), kind, low, high)]
        r.shuffle(pair)
        return Draw(*pair, **{k: v() for k, v in attributes.items()})
    return draw


def div():
    sizes, kind = shape(), r.choice(FLOATS + WHOLE)
    return Draw(numbers(sizes, kind, -9, 9), numbers(spread(sizes), kind, 1, 4) * np.array(r.choice((1, -1)), kind))


def mod():
    sizes, kind = shape(), r.choice((F32, I32, I64))
    return Draw(numbers(sizes, kind, -9, 9), numbers(spread(sizes), kind, 1, 4) * np.array(r.choice((1, -1)), kind), fmod=int(kind == F32 or r.random() < 0.5))


def power():
    sizes, kind = shape(), r.choice((F32, F64, F16, I32, I64))
    other = r.choice((kind, F32, I64, I32))
    return Draw(numbers(sizes, kind, 1 if kind in WHOLE else 0.2, 3), numbers(spread(sizes), other, 0 if kind in WHOLE else -2, 3))


def many(kinds=FLOATS + WHOLE):
    def draw():
        sizes, kind = shape(), r.choice(kinds)
        return Draw(*(numbers(spread(sizes), kind) for _ in range(r.randint(1, 4))))
    return draw


def cast():
    a, b = r.choice(FLOATS + WHOLE + (BOOL,)), r.choice(FLOATS + WHOLE + (BOOL,))
    return Draw(numbers(shape(), a, -9, 9), to=helper.np_dtype_to_tensor_dtype(np.dtype(b)))


def clip():
    kind = r.choice(FLOATS + WHOLE)
    bounds = [np.array(-1, kind) if r.random() < 0.7 else None, np.array(1, kind) if r.random() < 0.7 else None]
    return Draw(numbers(shape(), kind), *bounds, fixed=(1, 2) if r.random() < 0.7 else ())


def where():
    sizes, kind = shape(), r.choice(FLOATS + WHOLE)
    return Draw(numbers(spread(sizes), BOOL), numbers(spread(sizes), kind), numbers(sizes, kind))


def logic():
    sizes = shape()
    return Draw(numbers(sizes, BOOL), numbers(spread(sizes), BOOL))


def prelu():
    sizes, kind = shape(1), r.choice((F32, F64, F16))
    return Draw(numbers(sizes, kind), numbers(spread(sizes), kind))


def reduction(axes_as_input):
    def draw():
        sizes, kind = shape(0, 4, 0), r.choice(FLOATS + WHOLE)
        n = len(sizes)
        axes = sorted(r.sample(range(n), r.randint(0, n)))
        axes = [a - n if r.random() < 0.4 else a for a in axes]
        keep = perhaps(keepdims=r.randint(0, 1))
        low = 0.5 if kind in FLOATS else 1
        if axes_as_input:
            more = [np.array(axes, I64)] if axes or r.random() < 0.5 else []
            return Draw(numbers(sizes, kind, low, 3), *more, fixed=(1,), opsets=axes_as_input, **keep, **perhaps(noop_with_empty_axes=r.randint(0, 1)))
        return Draw(numbers(sizes, kind, low, 3), opsets=(13, 17), **keep, **({"axes": axes} if axes else {}))
    return draw


def either(a, b):
    return lambda: r.choice((a, b))()


def softmax():
    sizes = shape(1, 4, 0)
    return Draw(numbers(sizes, r.choice(FLOATS), -4, 4), **perhaps(axis=axis(len(sizes))))


def arg():
    sizes = shape(1, 4, 0)
    return Draw(numbers(sizes, r.choice((F32, F64, I32, I64)), -3, 3), **perhaps(axis=axis(len(sizes)), keepdims=r.randint(0, 1), select_last_index=r.randint(0, 1)))


def topk():
    sizes = shape(1, 4, 0)
    a = axis(len(sizes))
    x = rng.permutation(int(np.prod(sizes))).reshape(sizes).astype(r.choice((F32, F64, I64, I32)))
    return Draw(x, np.array([r.randint(1, sizes[a])], I64), fixed=(1,), outputs=2, axis=a, sorted=1, **perhaps(largest=r.randint(0, 1)))


def cumsum():
    sizes = shape(1, 4, 0)
    return Draw(numbers(sizes, r.choice((F32, F64, I32, I64))), np.array(axis(len(sizes)), r.choice((I32, I64))), fixed=(1,),
                **perhaps(exclusive=r.randint(0, 1), reverse=r.randint(0, 1)))


def transpose():
    sizes = shape(0, 5)
    perm = r.sample(range(len(sizes)), len(sizes))
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE + (BOOL,))), **(perhaps(perm=perm) if perm else {}))


def reshape():
    sizes = shape(0, 4)
    whole = int(np.prod(sizes, dtype=np.int64))
    choices = [[-1], [1, -1], [-1, 1]] if whole else [[0 if s == 0 else s for s in sizes[::-1]]]
    if whole:
        choices.append(sizes[::-1])
        if len(sizes) > 1:
            choices.append([0, -1])
    to = r.choice(choices)
    zero = {"allowzero": 1} if 0 in sizes and r.random() < 0.8 else {}
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE + (BOOL,))), np.array(to, I64), fixed=(1,), opsets=(14, 23), **zero)


def flatten():
    sizes = shape(0, 4)
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE)), **perhaps(axis=r.randint(-len(sizes), len(sizes))))


def squeeze():
    sizes = [1 if r.random() < 0.5 else n for n in shape(0, 5)]
    ones = [i for i, n in enumerate(sizes) if n == 1]
    axes = r.sample(ones, r.randint(0, len(ones)))
    axes = [a - len(sizes) if r.random() < 0.4 else a for a in axes]
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE)), *([np.array(axes, I64)] if axes else []), fixed=(1,))


def unsqueeze():
    sizes = shape(0, 3)
    n = r.randint(1, 3)
    axes = r.sample(range(len(sizes) + n), n)
    axes = [a - len(sizes) - n if r.random() < 0.4 else a for a in axes]
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE)), np.array(axes, I64), fixed=(1,))


def slices():
    sizes = shape(1, 4)
    n = r.randint(1, len(sizes))
    axes = r.sample(range(len(sizes)), n)
    at = lambda: r.choice((0, 1, 2, -1, -2, 9, -9, 2 ** 31, -2 ** 31))
    parts = [np.array([at() for _ in axes]), np.array([at() for _ in axes])]
    steps = np.array([r.choice((1, 1, 2, -1, -2, 3)) for _ in axes])
    signed = np.array([a - len(sizes) if r.random() < 0.4 else a for a in axes])
    more = [signed, steps] if r.random() < 0.7 else [signed]
    kind = r.choice((I64, I32))
    limit = np.iinfo(kind)
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE)), *(np.clip(p, limit.min, limit.max).astype(kind) for p in parts + more), fixed=(1, 2, 3, 4))


def split():
    sizes = shape(1, 4, 0)
    a = axis(len(sizes))
    sizes[a] = r.randint(2, 7)
    cut = r.randint(1, sizes[a] - 1)
    x = numbers(sizes, r.choice(FLOATS + WHOLE))
    if r.random() < 0.5:
        return Draw(x, np.array([cut, sizes[a] - cut], I64), fixed=(1,), outputs=2, axis=a)
    n = r.randint(2, min(3, sizes[a]))
    return Draw(x, opsets=(18, 23), outputs=n, axis=a, num_outputs=n)


def concat():
    sizes = shape(1, 4)
    a, kind, parts = axis(len(sizes)), r.choice(FLOATS + WHOLE + (BOOL,)), []
    for _ in range(r.randint(1, 4)):
        one = list(sizes)
        one[a] = r.randint(0, 4)
        parts.append(numbers(one, kind))
    return Draw(*parts, axis=a)


def expand():
    sizes = [1 if r.random() < 0.4 else n for n in shape(0, 4)]
    to = [r.choice((1, 2, 3)) if n == 1 else r.choice((n, 1)) for n in sizes]
    to = [r.choice((1, 2)) for _ in range(r.randint(0, 2))] + to if r.random() < 0.5 else to[r.randint(0, len(to)):]
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE + (BOOL,))), np.array(to, I64), fixed=(1,))


def tile():
    sizes = shape(1, 4)
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE)), np.array([r.choice((1, 1, 2, 3, 0) if r.random() < 0.1 else (1, 1, 2, 3)) for _ in sizes], I64), fixed=(1,))


def pad():
    sizes = [n + 2 for n in shape(1, 4, 0)]
    mode = r.choice(("constant", "reflect", "edge", "wrap"))
    low = -1 if r.random() < 0.3 else 0
    some = len(sizes) > 1 and r.random() < 0.4
    axes = r.sample(range(len(sizes)), r.randint(1, len(sizes))) if some else list(range(len(sizes)))
    pads = [r.randint(low, 2) for _ in axes] * 2
    kind = r.choice((F32, F64, I32, I64, F16))
    value = np.array(3, kind) if mode == "constant" and r.random() < 0.5 else None
    more = [value, np.array(axes, I64)] if some else [value]
    return Draw(numbers(sizes, kind), np.array(pads, I64), *more, fixed=(1, 2, 3), opsets=(19 if mode == "wrap" else 18, 23), mode=mode)


def depth():
    b = r.choice((2, 3))
    x = numbers([r.randint(1, 2), b * b * r.randint(1, 3), r.randint(1, 3), r.randint(1, 3)], r.choice((F32, F64, F16)))
    return Draw(x, blocksize=b, **perhaps(mode=r.choice(("DCR", "CRD"))))


def space():
    b = r.choice((2, 3))
    return Draw(numbers([r.randint(1, 2), r.randint(1, 3), b * r.randint(1, 2), b * r.randint(1, 2)], r.choice((F32, F64))), blocksize=b)


def matmul():
    kind, lead = r.choice(FLOATS + WHOLE), shape(0, 2, 0)
    m, k, n = (r.randint(1, 5) for _ in range(3))
    a = [k] if r.random() < 0.15 else [*(spread(lead) if r.random() < 0.3 else lead), m, k]
    b = [k] if r.random() < 0.15 else [*spread(lead), k, n]
    return Draw(numbers(a, kind), numbers(b, kind))


def gemm():
    kind = r.choice(FLOATS + WHOLE)
    m, k, n, ta, tb = *(r.randint(1, 5) for _ in range(3)), r.randint(0, 1), r.randint(0, 1)
    more = [numbers(spread([m, n]), kind)] if r.random() < 0.7 else []
    scale = perhaps(alpha=0.5, beta=1.5) if kind in FLOATS else {}
    return Draw(numbers([k, m] if ta else [m, k], kind), numbers([n, k] if tb else [k, n], kind), *more, transA=ta, transB=tb, **scale)


def window(n, size, transposed=False):
    kernel = [r.randint(1, 3) for _ in range(n)]
    keys = perhaps(strides=[r.randint(1, 3) for _ in range(n)], dilations=[r.randint(1, 2) for _ in range(n)])
    if r.random() < 0.25:
        keys["auto_pad"] = r.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
        if keys["auto_pad"] != "VALID":
            keys.pop("dilations", None)
    elif r.random() < 0.6:
        keys["pads"] = [r.randint(0, k // 2 + 0) for k in kernel] * 2 if r.random() < 0.5 else [r.randint(0, k - 1) for k in kernel + kernel]
    if transposed and "strides" in keys and r.random() < 0.5:
        keys["output_padding"] = [r.randint(0, s - 1) for s in keys["strides"]]
    return kernel, keys


def conv(transposed=False):
    def draw():
        n, g = r.choice((1, 2, 2, 3)), r.choice((1, 1, 2, 3))
        c, o = g * r.randint(1, 3), g * r.randint(1, 3)
        kernel, keys = window(n, 6, transposed)
        kind = r.choice((F32, F32, F64, F16))
        x = numbers([r.randint(1, 2), c, *(r.randint(5, 8) for _ in range(n))], kind)
        w = numbers([c, o // g, *kernel] if transposed else [o, c // g, *kernel], kind)
        more = [numbers([o], kind)] if r.random() < 0.6 else []
        return Draw(x, w, *more, group=g, fixed=() if r.random() < 0.3 else (1, 2), **keys, **perhaps(kernel_shape=kernel))
    return draw


def pool(kind_of):
    def draw():
        n = r.choice((1, 2, 2, 3))
        kernel, keys = window(n, 6)
        if kind_of != "max":
            keys.pop("dilations", None)
        kind = r.choice((F32, F32, F64, F16) if kind_of != "lp" else (F32,))
        x = numbers([r.randint(1, 2), r.randint(1, 3), *(r.randint(5, 8) for _ in range(n))], kind)
        more = perhaps(ceil_mode=r.randint(0, 1)) if kind_of != "lp" and "auto_pad" not in keys else {}
        if kind_of == "average":
            more.update(perhaps(count_include_pad=r.randint(0, 1)))
        if kind_of == "lp":
            more.update(perhaps(p=r.choice((1, 2, 3))))
        if kind_of == "max" and r.random() < 0.2:
            more["storage_order"] = 1
        return Draw(x, kernel_shape=kernel, opsets=(18, 23) if kind_of == "lp" else (13, 23),
                    outputs=2 if kind_of == "max" and r.random() < 0.4 else 1, **keys, **more)
    return draw


def whole_pool():
    return Draw(numbers(shape(3, 5, 0), r.choice((F32, F64, F16)), 0.1, 2))


def norm(op):
    def draw():
        kind = r.choice((F32, F32, F64, F16))
        sizes = [r.randint(1, 3), r.choice((2, 4, 6)), *shape(0 if op == "BatchNormalization" else 1, 2, 0)]
        if op == "instance":
            sizes.append(5)
        c = sizes[1]
        x, eps = numbers(sizes, kind), perhaps(epsilon=1e-3)
        if op == "batch":
            return Draw(x, *(numbers([c], kind) for _ in range(3)), numbers([c], kind, 0.5, 2), fixed=(1, 2, 3, 4), opsets=(15, 23), **eps)
        if op == "instance":
            return Draw(x, numbers([c], kind), numbers([c], kind), **eps)
        if op == "group":
            return Draw(x, numbers([c], kind), numbers([c], kind), num_groups=2, opsets=(21, 23), **eps)
        a = r.randint(-len(sizes), len(sizes) - 1)
        tail = sizes[a:]
        more = [numbers(tail, kind)] if op == "rms" else [numbers(tail, kind)] + ([numbers(tail, kind)] if r.random() < 0.7 else [])
        return Draw(x, *more, axis=a, opsets=(23, 23) if op == "rms" else (17, 23), **eps)
    return draw


def lrn():
    return Draw(numbers([2, r.randint(1, 6), *shape(1, 2, 0)], F32), size=r.randint(1, 5), **perhaps(alpha=0.1, beta=0.5, bias=2.0))


def lp_norm():
    sizes = shape(1, 4, 0)
    return Draw(numbers(sizes, r.choice((F32, F64)), 0.1, 2), **perhaps(axis=axis(len(sizes)), p=r.choice((1, 2))))


def gather():
    sizes = shape(1, 4, 0)
    a = axis(len(sizes))
    index = rng.integers(-sizes[a], sizes[a], shape(0, 3, 0.1)).astype(r.choice(WHOLE))
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE + (BOOL,))), index, **perhaps(axis=a) if a == 0 else {"axis": a})


def gather_elements():
    sizes = shape(1, 4, 0)
    a = axis(len(sizes))
    to = [r.randint(1, n) for n in sizes]
    to[a] = r.randint(1, 6)
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE)), rng.integers(-sizes[a], sizes[a], to).astype(r.choice(WHOLE)), axis=a)


def gather_nd():
    sizes = shape(2, 4, 0)
    b = r.randint(0, len(sizes) - 1)
    k = r.randint(1, len(sizes) - b)
    lead = sizes[:b] + shape(0, 2, 0)
    index = np.stack([rng.integers(-sizes[b + i], sizes[b + i], lead) for i in range(k)], -1).astype(I64)
    return Draw(numbers(sizes, r.choice(FLOATS + WHOLE)), index, batch_dims=b) if index.ndim > b else gather_nd()


def scatter_elements():
    sizes = shape(1, 4, 0)
    a = axis(len(sizes))
    to = [r.randint(1, n) for n in sizes]
    index = np.apply_along_axis(lambda _: rng.permutation(sizes[a])[: to[a]], a, np.zeros(to, I64)).astype(r.choice(WHOLE))
    if r.random() < 0.3:
        index = index - sizes[a]
    kind = r.choice((F32, F32, F64, I32, I64))
    return Draw(numbers(sizes, kind), index, numbers(to, kind), axis=a, opsets=(18, 23), **perhaps(reduction=r.choice(("none", "add", "mul", "max", "min"))))


def scatter_nd():
    sizes = shape(1, 4, 0)
    k = r.randint(1, len(sizes))
    whole = int(np.prod(sizes[:k]))
    n = r.randint(1, whole)
    index = np.stack(np.unravel_index(rng.permutation(whole)[:n], sizes[:k]), -1).astype(I64)
    kind = r.choice((F32, F32, F64, I32, I64))
    return Draw(numbers(sizes, kind), index, numbers([n, *sizes[k:]], kind), opsets=(18, 23), **perhaps(reduction=r.choice(("none", "add", "mul", "max", "min"))))


def one_hot():
    sizes, kind = shape(0, 3, 0), r.choice((F32, I64))
    return Draw(rng.integers(-4, 4, sizes).astype(I64), np.array(r.choice((4, 5)), I64), np.array([0, r.choice((1, 3))], kind), fixed=(1,), **perhaps(axis=r.randint(-len(sizes) - 1, len(sizes))))


def trilu():
    return Draw(numbers(shape(2, 4, 0), r.choice((F32, F64, I64))), *([np.array(r.randint(-6, 6), I64)] if r.random() < 0.7 else []), fixed=(1,), opsets=(14, 23), **perhaps(upper=r.randint(0, 1)))


def reverse_sequence():
    t, b = r.randint(1, 5), r.randint(1, 4)
    first = r.random() < 0.5
    x = numbers([b, t, *shape(0, 2, 0)] if first else [t, b, *shape(0, 2, 0)], r.choice((F32, F64, I64)))
    return Draw(x, rng.integers(1, t + 1, b).astype(I64), batch_axis=int(not first), time_axis=int(first))


def compress():
    sizes = shape(1, 3, 0)
    a = axis(len(sizes))
    if r.random() < 0.3:
        return Draw(numbers(sizes, F32), numbers([r.randint(1, int(np.prod(sizes)))], BOOL), fixed=(1,))
    return Draw(numbers(sizes, F32), numbers([r.randint(1, sizes[a])], BOOL), fixed=(1,), axis=a)


def resize():
    mode = r.choice(("nearest", "linear", "cubic"))
    n = 2 if mode == "cubic" else r.choice((1, 2, 2, 3))
    sizes = [r.randint(1, 2), r.randint(1, 3), *(r.randint(2, 7) for _ in range(n))]
    keys = perhaps(coordinate_transformation_mode=r.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")))
    if mode == "nearest":
        keys.update(perhaps(nearest_mode=r.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))))
    if mode == "cubic":
        keys.update(perhaps(cubic_coeff_a=-0.5, exclude_outside=r.randint(0, 1)))
    if mode != "nearest" and r.random() < 0.3:
        keys["antialias"] = 1
    x = numbers(sizes, F32)
    if r.random() < 0.5:
        return Draw(x, None, np.array([1, 1, *(r.choice((0.5, 0.6, 1, 1.5, 2, 2.7)) for _ in range(n))], F32), fixed=(2,), mode=mode, opsets=(19, 23), **keys)
    return Draw(x, None, None, np.array(sizes[:2] + [r.randint(1, 9) for _ in range(n)], I64), fixed=(3,), mode=mode, opsets=(19, 23), **keys)


def grid_sample():
    mode = r.choice(("linear", "nearest", "cubic"))
    n = 2 if mode == "cubic" else r.choice((2, 2, 3))
    b = r.randint(1, 2)
    x = numbers([b, r.randint(1, 3), *(r.randint(2, 6) for _ in range(n))], F32)
    grid = numbers([b, *(r.randint(1, 4) for _ in range(n)), n], F32, -1.3, 1.3)
    return Draw(x, grid, mode=mode, opsets=(20, 23), **perhaps(padding_mode=r.choice(("zeros", "border", "reflection")), align_corners=r.randint(0, 1)))


def recurrent(op, gates):
    def draw():
        t, b, i, h, both = r.randint(1, 4), r.randint(1, 3), r.randint(1, 4), r.randint(1, 4), r.choice(("forward", "reverse", "bidirectional"))
        d = 2 if both == "bidirectional" else 1
        arrays = [numbers([t, b, i], F32), numbers([d, gates * h, i], F32, -1, 1), numbers([d, gates * h, h], F32, -1, 1)]
        arrays.append(numbers([d, 2 * gates * h], F32, -1, 1) if r.random() < 0.7 else None)
        arrays.append(rng.integers(1, t + 1, b).astype(I32) if r.random() < 0.3 else None)
        arrays.append(numbers([d, b, h], F32) if r.random() < 0.5 else None)
        keys = {"linear_before_reset": r.randint(0, 1)} if op == "GRU" else {}
        if op == "LSTM" and r.random() < 0.5:
            arrays.append(numbers([d, b, h], F32))
            if r.random() < 0.5:
                arrays.append(numbers([d, 3 * h], F32, -1, 1))
        if r.random() < 0.2:
            keys["clip"] = 0.5
        if r.random() < 0.2 and op == "RNN":
            keys["activations"] = [r.choice(("Relu", "Tanh", "Sigmoid"))] * d
        return Draw(*arrays, fixed=(1, 2, 3), outputs=r.randint(1, 3 if op == "LSTM" else 2), opsets=(14, 23), hidden_size=h, direction=both, **keys)
    return draw


def einsum():
    equation = r.choice(("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "i,j->ij", "...ij,...jk->...ik", "bhid,bhjd->bhij", "abc,cd", "ij,ij->i", "bi,bj,ij->b", "...i->...", "ijk,k->ij"))
    sizes = {c: r.randint(1, 4) for c in "abcdijkh"}
    lead = shape(0, 2, 0)
    left = equation.split("->")[0].replace(" ", "")
    arrays = []
    kind = r.choice((F32, F64))
    for term in left.split(","):
        arrays.append(numbers([*lead, *(sizes[c] for c in term[3:])] if term.startswith("...") else [sizes[c] for c in term], kind))
    return Draw(*arrays, equation=equation)


def attention():
    b, h, kv, q, k, d, v = r.randint(1, 2), 4, r.choice((4, 2, 1)), r.randint(1, 5), r.randint(1, 5), r.choice((2, 4)), r.choice((2, 3))
    three = r.random() < 0.4
    causal = r.randint(0, 1)
    make = lambda n, heads, w: numbers([b, n, heads * w] if three else [b, heads, n, w], F32)
    arrays = [make(q, h, d), make(k, kv, d), make(k, kv, v)]
    if r.random() < 0.5:
        arrays.append(numbers(spread([b, h, q, k]) if r.random() < 0.5 else [q, k], r.choice((F32, BOOL)), -2, 2))
        if arrays[3].ndim < 2:
            arrays[3] = numbers([q, k], F32)
        if arrays[3].dtype == BOOL:
            arrays[3][..., 0] = True
    heads = {"q_num_heads": h, "kv_num_heads": kv} if three else {}
    return Draw(*arrays, opsets=(23, 23), is_causal=causal, **heads, **perhaps(scale=0.3, softcap=2.0))


def rotary():
    b, h, n, d = r.randint(1, 2), r.randint(1, 3), r.randint(1, 4), r.choice((4, 6, 8))
    part = r.choice((0, 0, 2, 4))
    half = (part or d) // 2
    keys = perhaps(interleaved=r.randint(0, 1))
    if part:
        keys["rotary_embedding_dim"] = part
    three = r.random() < 0.4
    if three:
        keys["num_heads"] = h
    x = numbers([b, n, h * d] if three else [b, h, n, d], F32)
    if r.random() < 0.5:
        return Draw(x, numbers([7, half], F32), numbers([7, half], F32), rng.integers(0, 7, [b, n]).astype(I64), opsets=(23, 23), **keys)
    return Draw(x, numbers([b, n, half], F32), numbers([b, n, half], F32), opsets=(23, 23), **keys)


def loss(op):
    def draw():
        b, c, tail = r.randint(1, 3), r.randint(2, 4), shape(0, 2, 0)
        target = rng.integers(0, c, [b, *tail]).astype(r.choice(WHOLE))
        more = [numbers([c], F32, 0.2, 1)] if r.random() < 0.4 else []
        keys = perhaps(reduction=r.choice(("none", "mean", "sum")), ignore_index=r.randint(0, c - 1))
        return Draw(numbers([b, c, *tail], F32), target, *more, outputs=r.randint(1, 2) if op == "soft" else 1, **keys)
    return draw


def eye():
    return Draw(numbers(shape(2, 2, 0), r.choice((F32, I64))), **perhaps(k=r.randint(-2, 2), dtype=r.choice((TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE))))


def crop_pad():
    sizes = shape(1, 4, 0)
    axes = r.sample(range(len(sizes)), r.randint(1, len(sizes)))
    return Draw(numbers(sizes, F32), np.array([r.randint(1, 7) for _ in axes], I64), fixed=(1,), opsets=(18, 23), axes=axes)


def unpool():
    x = numbers([2, 2, 4, 6], F32)
    at = np.stack([rng.permutation(96)[:24].reshape(4, 6)] * 4).reshape(2, 2, 4, 6)
    offset = (np.arange(4) * 96).reshape(2, 2, 1, 1)
    return Draw(x, (at + offset).astype(I64), kernel_shape=[2, 2], strides=[2, 2])


def affine():
    n, b = r.choice((2, 3)), r.randint(1, 2)
    return Draw(numbers([b, n, n + 1], F32), np.array([b, 1, *(r.randint(1, 5) for _ in range(n))], I64), fixed=(1,), opsets=(20, 23), **perhaps(align_corners=r.randint(0, 1)))


def roi():
    k = r.randint(1, 3)
    low = rng.uniform(0, 4, (k, 2))
    boxes = np.concatenate((low, low + rng.uniform(1, 5, (k, 2))), 1).astype(F32)
    return Draw(numbers([2, 3, 9, 8], F32), boxes, rng.integers(0, 2, k).astype(I64), output_height=r.randint(1, 3), output_width=r.randint(1, 3), sampling_ratio=r.randint(1, 3),
                opsets=(16, 23), fixed=(1, 2), **perhaps(mode=r.choice(("avg", "max")), spatial_scale=0.8, coordinate_transformation_mode=r.choice(("half_pixel", "output_half_pixel"))))


def col2im():
    return Draw(numbers([2, 12, 9], F32), np.array([7, 6], I64), np.array([3, 2], I64), fixed=(1, 2), opsets=(18, 23), strides=[2, 1], pads=[1, 0, 0, 0], dilations=[1, 3])


def random_float():
    return r.choice((0.1, 0.5, 1.0, 1.7))


INPUT = (18, 23)
NEWER = ("Gelu", "Mish", "HardSwish")  # ops that opset 13 lacks
CASES = {op: unary() for op in ("Identity", "Neg", "Abs", "Sign", "Floor", "Ceil", "Round", "Exp", "Sin", "Cos", "Sinh", "Cosh", "Tanh", "Asinh", "Erf", "Sigmoid", "Softplus", "Softsign", "Relu", "HardSwish", "Mish", "Atan", "IsNaN")}
CASES.update({op: unary(-0.9, 0.9) for op in ("Asin", "Acos", "Atanh", "Tan")})
CASES.update({op: unary(0.3, 3) for op in ("Reciprocal", "Sqrt", "Log")})
CASES.update({
    "Acosh": unary(1.1, 3), "LeakyRelu": unary(alpha=random_float), "Elu": unary(alpha=random_float), "Celu": unary(kinds=(F32,), alpha=random_float), "Selu": unary(gamma=random_float),
    "HardSigmoid": unary(alpha=random_float), "Gelu": unary(approximate=lambda: r.choice(("none", "tanh"))), "ThresholdedRelu": unary(alpha=random_float), "Shrink": unary(lambd=random_float, bias=random_float),
    "Not": unary(kinds=(BOOL,)), "Size": unary(kinds=FLOATS + WHOLE), "Shape": unary(kinds=FLOATS + WHOLE), "Hardmax": softmax, "Det": lambda: Draw(numbers([*shape(0, 1, 0), *[r.randint(1, 4)] * 2], F32)),
    "Add": binary(), "Sub": binary(), "Mul": binary(), "Div": div, "Mod": mod, "Pow": power, "Min": many(), "Max": many(), "Sum": many(FLOATS), "Mean": many(FLOATS),
    "Equal": binary(FLOATS + WHOLE + (BOOL,)), "Less": binary(), "LessOrEqual": binary(), "Greater": binary(), "GreaterOrEqual": binary(), "And": logic, "Or": logic, "Xor": logic,
    "Where": where, "Cast": cast, "Clip": clip, "PRelu": prelu, "ReduceSum": reduction((13, 23)),
    **{f"Reduce{k}": either(reduction(INPUT), reduction(None)) for k in ("Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")},
    "Softmax": softmax, "LogSoftmax": softmax, "ArgMax": arg, "ArgMin": arg, "TopK": topk, "CumSum": cumsum, "Transpose": transpose, "Reshape": reshape, "Flatten": flatten,
    "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Slice": slices, "Split": split, "Concat": concat, "Expand": expand, "Tile": tile, "Pad": pad, "DepthToSpace": depth, "SpaceToDepth": space,
    "MatMul": matmul, "Gemm": gemm, "Conv": conv(), "ConvTranspose": conv(True), "MaxPool": pool("max"), "AveragePool": pool("average"), "LpPool": pool("lp"), "MaxUnpool": unpool,
    "GlobalAveragePool": whole_pool, "GlobalMaxPool": whole_pool, "GlobalLpPool": whole_pool, "BatchNormalization": norm("batch"), "InstanceNormalization": norm("instance"),
    "GroupNormalization": norm("group"), "LayerNormalization": norm("layer"), "RMSNormalization": norm("rms"), "LRN": lrn, "LpNormalization": lp_norm,
    "MeanVarianceNormalization": lambda: Draw(numbers([2, 3, 4, 5], F32), **perhaps(axes=r.choice(([0, 2, 3], [1], [2, 3])))),
    "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "ScatterElements": scatter_elements, "ScatterND": scatter_nd, "OneHot": one_hot, "Trilu": trilu,
    "ReverseSequence": reverse_sequence, "Compress": compress, "Resize": resize, "GridSample": grid_sample, "AffineGrid": affine, "RoiAlign": roi, "Col2Im": col2im,
    "LSTM": recurrent("LSTM", 4), "GRU": recurrent("GRU", 3), "RNN": recurrent("RNN", 1), "Einsum": einsum, "Attention": attention, "RotaryEmbedding": rotary,
    "NegativeLogLikelihoodLoss": loss("nll"), "SoftmaxCrossEntropyLoss": loss("soft"), "EyeLike": eye, "CenterCropPad": crop_pad,
})


def tensor(array, name):
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    if array.dtype == BF16:
        return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)
    return numpy_helper.from_array(np.asarray(array, order="C"), name)


def model_of(op, draw):
    opset = max(r.randint(*draw.opsets), defs.get_schema(op, 23).since_version if op in NEWER else 0)
    names = ["" if a is None else f"x{i}" for i, a in enumerate(draw.arrays)]
    inputs = {n: a for i, (n, a) in enumerate(zip(names, draw.arrays)) if n and i not in draw.fixed}
    fixed = {n: a for i, (n, a) in enumerate(zip(names, draw.arrays)) if n and i in draw.fixed}
    outputs = [f"y{i}" for i in range(draw.outputs)]
    node = helper.make_node(op, names, outputs, **draw.attributes)
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = helper.make_graph([node], op, ports, results, [tensor(a, n) for n, a in fixed.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), inputs, opset


def evaluate(model, inputs):
    """Arrays of the outputs and their source; ONNX Runtime first, which has no bf16 for numpy."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not any(a.dtype == BF16 for a in inputs.values()):
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, inputs), "runtime"
        except Exception as error:
            if "NOT_IMPLEMENTED" not in str(error):
                return None, str(error)
    try:
        return ReferenceEvaluator(model).run(None, inputs), "reference"
    except Exception as error:
        return None, str(error)


def main():
    out, seed, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    made = left = 0
    onnxruntime.set_default_logger_severity(4)
    for op in sys.argv[4:] or CASES:
        for k in range(count):
            text = f"{seed}/{op}/{k}"
            r.seed(text)
            global rng
            rng = np.random.default_rng([seed, k, *op.encode()])
            draw = CASES[op]()
            model, inputs, opset = model_of(op, draw)
            results, source = evaluate(model, inputs)
            if results is None:
                left += 1
                print(f"left out: {text}: {str(source)[:160]}", flush=True)
                continue
            results = [np.asarray(a) for a in results]
            folder = out / f"{op}_{k}_o{opset}_{source}"
            (folder / "test_data_set_0").mkdir(parents=True, exist_ok=True)
            del model.graph.output[:]
            model.graph.output.extend(helper.make_tensor_value_info(f"y{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for i, a in enumerate(results))
            (folder / "model.onnx").write_bytes(model.SerializeToString())
            for word, arrays in (("input", inputs.values()), ("output", results)):
                for i, a in enumerate(arrays):
                    (folder / "test_data_set_0" / f"{word}_{i}.pb").write_bytes(tensor(np.asarray(a), "").SerializeToString())
            made += 1
    print(f"{made} models, {left} draws left out")


if __name__ == "__main__":
    main()
