"""onnx_cases.py OUT [NAME ...] - nodes of opsets 19 to 28, and of 6 and 8, with random numbers of our own, as folders of node tests.

Each folder has the form of the standard's tests (model.onnx, test_data_set_0/input_K.pb, output_K.pb); the outputs are those of onnx's reference
evaluator, or of ONNX Runtime. tests/data/onnx_nodes has them for `make test`; tools/oracle/onnx_nodes.py writes the standard's own tests.
"""
import copy
import pathlib
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

rng = np.random.default_rng(7)
I64 = np.int64


def f32(*shape):
    return rng.normal(0, 1, shape).astype(np.float32)


def value(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def unknown(name, dtype=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def loop():
    """Five rounds known at import; the state grows by the number of the round, each round's state is kept."""
    body = helper.make_graph(
        [helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["s", "weight"], ["m"]),
         helper.make_node("Add", ["m", "f"], ["s2"]), helper.make_node("Identity", ["s2"], ["kept"]),
         helper.make_node("Less", ["i", "three"], ["on2"])], "body",
        [unknown("i", TensorProto.INT64, []), unknown("on", TensorProto.BOOL, []), unknown("s")],
        [unknown("on2", TensorProto.BOOL, []), unknown("s2"), unknown("kept")],
        [numpy_helper.from_array(np.array(3, I64), "three")])
    nodes = [helper.make_node("Loop", ["rounds", "start", "x"], ["last", "all"], body=body)]
    fixed = {"rounds": np.array(9, I64), "start": np.array(True), "weight": f32(3)}
    return nodes, {"x": f32(2, 3)}, ["last", "all"], fixed


def scan():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["s2"]), helper.make_node("Tanh", ["s2"], ["kept"])], "body",
        [unknown("s"), unknown("e")], [unknown("s2"), unknown("kept")])
    nodes = [helper.make_node("Scan", ["start", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1],
                              scan_input_directions=[1], scan_output_axes=[1])]
    return nodes, {"start": f32(2, 3), "x": f32(2, 5, 3)}, ["last", "all"], {}


def one(op, inputs, outputs, fixed=None, domain="", **attributes):
    names = attributes.pop("names", None) or [*inputs, *(fixed or {})]
    return [helper.make_node(op, names, outputs, domain=domain, **attributes)], inputs, outputs, fixed or {}


def flex():
    mod = helper.make_graph([helper.make_node("Add", ["a", "slope"], ["b"])], "mod", [unknown("a")], [unknown("b")],
                            [numpy_helper.from_array(f32(4, 6), "slope")])
    return one("FlexAttention", {"q": f32(2, 4, 4, 3), "k": f32(2, 2, 6, 3), "v": f32(2, 2, 6, 5)}, ["y"], domain="ai.onnx.preview",
               score_mod=mod)


def matrices():
    """Random, singular, with zeros on the diagonal, and a permutation."""
    x = f32(2, 2, 5, 5)
    x[0, 1, 3] = x[0, 1, 1]
    x[1, 0][np.arange(5), np.arange(5)] = 0
    x[1, 1] = np.eye(5, dtype=np.float32)[[2, 0, 1, 4, 3]]
    return x


def small_types():
    """Initializers of 2 and 4 bits, once in int32_data and once as raw bytes."""
    nodes, fixed = [], []
    for name, kind, numbers in (("a", TensorProto.INT4, [-8, 7, 3]), ("b", TensorProto.UINT4, [0, 15, 9]),
                                ("c", TensorProto.INT2, [-2, 1, -1]), ("d", TensorProto.UINT2, [3, 0, 2])):
        plain = helper.make_tensor(name, kind, [3], numbers)
        raw = helper.make_tensor(name + "r", kind, [3], numbers)
        bits = 4 if "4" in TensorProto.DataType.Name(kind) else 2
        packed = sum((n & ((1 << bits) - 1)) << (i * bits) for i, n in enumerate(numbers))
        raw.ClearField("int32_data")
        raw.raw_data = packed.to_bytes((3 * bits + 7) // 8, "little")
        for t in (plain, raw):
            nodes.append(helper.make_node("Cast", [t.name], ["f" + t.name], to=TensorProto.FLOAT))
            fixed.append(t)
    nodes.append(helper.make_node("Sum", ["x", *("f" + t.name for t in fixed)], ["y"]))
    return nodes, {"x": f32(3)}, ["y"], fixed


def bits():
    """Bits of numbers that are known at import; their results are added to the input."""
    i32 = np.int32
    fixed = {"a": np.array([12, -7, 1 << 30], i32), "b": np.array([10, 3, -1], i32), "by": np.array([1, 40, -2], i32), "n": np.array([5, -5, 1 << 40], I64)}
    make = helper.make_node
    nodes = [make("BitwiseAnd", ["a", "b"], ["and"]), make("BitwiseOr", ["a", "b"], ["or"]), make("BitwiseXor", ["a", "b"], ["xor"]),
             make("BitwiseNot", ["n"], ["not"]), make("BitShift", ["a", "by"], ["left"], direction="LEFT"),
             make("BitShift", ["a", "by"], ["right"], direction="RIGHT")]
    names = ["and", "or", "xor", "not", "left", "right"]
    nodes += [make("Cast", [n], ["f" + n], to=TensorProto.FLOAT) for n in names] + [make("Add", ["x", "f" + n], ["y" + n]) for n in names]
    return nodes, {"x": f32(3)}, ["y" + n for n in names], fixed


def optional():
    """A value that is there, and a branch that asks whether it is."""
    make = helper.make_node
    branch = lambda op: helper.make_graph([make(op, ["x"], [op])], op, [], [unknown(op)])
    nodes = [make("Optional", ["x"], ["o"]), make("OptionalHasElement", ["o"], ["there"]), make("OptionalGetElement", ["o"], ["v"]),
             make("If", ["there"], ["b"], then_branch=branch("Neg"), else_branch=branch("Exp")), make("Sub", ["v", "b"], ["y"])]
    return nodes, {"x": f32(2, 3)}, ["y"], {}


def repeats():
    """Repeats of a Tile that TorchScript computes with OneHot, as of a tensor whose axis grows."""
    make = helper.make_node
    nodes = [make("Concat", ["one", "depth"], ["values"], axis=0), make("OneHot", ["axis", "three", "values"], ["hot"]),
             make("Reshape", ["hot", "flat"], ["by"]), make("Tile", ["x", "by"], ["y"])]
    fixed = {"one": np.array([1], I64), "depth": np.array([4], I64), "axis": np.array([1], I64), "three": np.array(3, I64), "flat": np.array([-1], I64)}
    return nodes, {"x": f32(2, 3, 2)}, ["y"], fixed


def zero_bias():
    """Conv3d without a bias as torch's dynamo exporter writes it: computed zeros of the shape [C, 2]. The numbers are those without them."""
    make = helper.make_node
    nodes = [make("Shape", ["w"], ["c"], start=0, end=1), make("Concat", ["c", "two"], ["shape"], axis=0), make("Expand", ["val_0", "shape"], ["bias"]),
             make("Conv", ["x", "w", "bias"], ["y"], pads=[1] * 6)]
    return nodes, {"x": f32(2, 3, 4, 3, 5)}, ["y"], {"w": f32(4, 3, 3, 3, 3), "two": np.array([2], I64), "val_0": np.array(0, np.float32)}


def whole_numbers():
    """Products and norms of whole numbers; factors with fractions, whose results are cut; a setting (by) whose name looks like a weight's."""
    i64, i32 = (lambda *s: rng.integers(-9, 9, s)), (lambda *s: rng.integers(-9, 9, s).astype(np.int32))
    make = helper.make_node
    nodes = [make("MatMul", ["a", "b"], ["product"]), make("MatMul", ["row", "b"], ["row_product"]),
             make("Gemm", ["p", "q", "r"], ["gemm"], transA=1, transB=1), make("Gemm", ["p", "q", "r"], ["scaled"], transA=1, transB=1, alpha=0.5, beta=1.5),
             make("Einsum", ["a", "b"], ["einsum"], equation="bij,bjk->bik"), make("ReduceL2", ["a", "axis"], ["norm"], keepdims=0),
             make("PRelu", ["q", "slope"], ["prelu"]), make("Shrink", ["q"], ["shrink"], lambd=1.5, bias=1.5),
             make("Resize", ["map", "", "by"], ["resized"], mode="linear")]
    inputs = {"a": i64(2, 3, 4), "b": i64(2, 4, 5), "row": i64(4), "p": i32(4, 3), "q": i32(5, 4), "r": i32(5),
              "slope": i32(4), "map": i32(1, 2, 4, 4)}
    fixed = {"axis": np.array([1], I64), "by": np.array([1, 1, 0.6, 1.7], np.float32)}
    return nodes, inputs, ["product", "row_product", "gemm", "scaled", "einsum", "norm", "prelu", "shrink", "resized"], fixed


def narrow_samples():
    """Positions in maps of f16 and f64: bicubic samples, regions."""
    half, wide = (lambda *s: f32(*s).astype(np.float16)), (lambda *s: f32(*s).astype(np.float64))
    make = helper.make_node
    nodes = [make("GridSample", ["x", "grid"], ["sampled"], mode="cubic"), make("GridSample", ["x", "fine"], ["mixed"], mode="linear"),
             make("RoiAlign", ["x", "box", "of"], ["half_regions"], output_height=2, output_width=3, sampling_ratio=2),
             make("RoiAlign", ["y", "place", "of"], ["regions"], output_height=2, output_width=3, sampling_ratio=2)]
    box = np.array([[0, 0, 5, 6], [1, 2, 37, 37]], np.float16)
    inputs = {"x": half(2, 3, 40, 40), "grid": np.tanh(half(2, 3, 4, 2)), "fine": np.tanh(f32(2, 3, 4, 2)), "y": wide(2, 3, 40, 40)}
    return nodes, inputs, ["sampled", "mixed", "half_regions", "regions"], {"box": box, "place": box.astype(np.float64), "of": np.array([1, 0], I64)}


def empty_axes():
    """Reductions over no axes: what they compute of each element stays."""
    ops = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
    names = [op.lower() for op in ops]
    return [helper.make_node(op, ["x"], [n], noop_with_empty_axes=1) for op, n in zip(ops, names)], {"x": np.abs(f32(2, 3)) + 0.1}, names, {}


def no_elements():
    """Results without elements."""
    make = helper.make_node
    nodes = [make("Compress", ["x", "never"], ["a"], axis=1), make("Tile", ["x", "times"], ["b"]), make("Concat", ["a", "a"], ["c"], axis=1),
             make("Concat", ["x", "a"], ["d"], axis=1)]
    return nodes, {"x": f32(2, 3)}, ["a", "b", "c", "d"], {"never": np.array([False, False, False]), "times": np.array([2, 0], I64)}


def old_upsample():
    """Opset 8 has the scales as an attribute."""
    x = f32(1, 2, 2, 3)
    return [helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])], {"x": x}, ["y"], {}, 8, [x.repeat(2, 2).repeat(3, 3)]


def old_broadcast():
    """Opset 6 places the second operand at an axis."""
    x, b, c = f32(2, 3, 3, 3), f32(3), f32(3, 3)
    nodes = [helper.make_node("Mul", ["x", "b"], ["m"], broadcast=1, axis=1), helper.make_node("Sub", ["m", "c"], ["y"], broadcast=1, axis=1)]
    return nodes, {"x": x}, ["y"], {"b": b, "c": c}, 6, [x * b[:, None, None] - c[:, :, None]]


def update(op, states, **attributes):
    """An optimizer's update of two weights."""
    parts = ["x", "g"] + ["v", "h"][:states]
    inputs = {"r": np.array(0.1, np.float32), "t": np.array(3, I64)}
    inputs.update({f"{p}{i}": np.abs(f32(*shape)) for p in parts for i, shape in enumerate(((2,), (3, 2)))})
    outputs = [f"{p}{i}_new" for p in parts if p != "g" for i in (0, 1)]
    return one(op, inputs, outputs, domain="ai.onnx.preview.training", norm_coefficient=0.01, **attributes)


CASES = {
    "loop": loop, "scan": scan, "flex_attention": flex, "small_types": small_types,
    "swiglu": lambda: one("SwiGLU", {"a": f32(2, 5), "b": f32(2, 5)}, ["y"], alpha=1.3),
    "cumprod": lambda: one("CumProd", {"x": f32(2, 4, 3)}, ["y"], {"axis": np.array(1, I64)}, exclusive=1, reverse=1),
    "linear_attention": lambda: one(
        "LinearAttention", {"q": f32(2, 5, 12), "k": f32(2, 5, 6), "v": f32(2, 5, 8), "past": f32(2, 2, 3, 4),
                            "decay": -np.abs(f32(2, 5, 6)), "beta": f32(2, 5, 2)}, ["y", "state"], q_num_heads=4, kv_num_heads=2),
    "causal_conv": lambda: one("CausalConvWithState", {"x": f32(2, 3, 7), "w": f32(3, 1, 4), "b": f32(3), "past": f32(2, 3, 3)},
                               ["y", "state"], activation="silu"),
    "tensor_scatter": lambda: one("TensorScatter", {"cache": f32(2, 6, 3), "new": f32(2, 4, 3)}, ["y"],
                                  {"at": np.array([4, 1], I64)}, mode="circular"),
    "attention_window": lambda: one("Attention", {"q": f32(2, 2, 5, 4), "k": f32(2, 2, 7, 4), "v": f32(2, 2, 7, 4)}, ["y"],
                                    {"length": np.array([7, 3], I64)}, names=["q", "k", "v", "", "", "", "length"],
                                    left_window_size=2, right_window_size=1, is_causal=0),
    "affine_grid": lambda: one("AffineGrid", {"theta": f32(2, 3, 4)}, ["y"], {"size": np.array([2, 1, 3, 4, 2], I64)}),
    "grid_sample_3d": lambda: one("GridSample", {"x": f32(2, 3, 4, 5, 3), "grid": 1.2 * np.tanh(f32(2, 2, 3, 4, 3))}, ["y"],
                                  mode="linear", padding_mode="border"),
    "roi_align": lambda: one("RoiAlign", {"x": f32(2, 3, 8, 8)}, ["y"],
                             {"rois": np.array([[0, 0, 5, 6], [1, 2, 7, 7]], np.float32), "of": np.array([1, 0], I64)},
                             output_height=3, output_width=2, sampling_ratio=2, mode="max"),
    "deform_conv": lambda: one("DeformConv", {"x": f32(2, 4, 6, 5), "w": f32(6, 2, 3, 2), "off": f32(2, 24, 3, 5), "b": f32(6),
                                              "mask": f32(2, 12, 3, 5)}, ["y"], group=2, offset_group=2, pads=[1, 0, 1, 1],
                               strides=[2, 1], kernel_shape=[3, 2]),
    "col2im": lambda: one("Col2Im", {"x": f32(2, 12, 9)}, ["y"], {"image": np.array([7, 6], I64), "block": np.array([3, 2], I64)},
                          strides=[2, 1], pads=[1, 0, 0, 0], dilations=[1, 3]),
    "center_crop_pad": lambda: one("CenterCropPad", {"x": f32(2, 5, 4)}, ["y"], {"to": np.array([8, 3], I64)}, axes=[2, 1]),
    "space_to_depth": lambda: one("SpaceToDepth", {"x": f32(2, 3, 4, 6)}, ["y"], blocksize=2, mode="CRD"),
    "dft": lambda: one("DFT", {"x": f32(2, 7, 3, 2)}, ["y"], {"n": np.array(9, I64), "axis": np.array(1, I64)}, inverse=1),
    "dft_cut": lambda: one("DFT", {"x": f32(2, 3, 10, 1)}, ["y"], {"n": np.array(7, I64)}, onesided=1),
    "dft_real": lambda: one("DFT", {"x": f32(2, 6, 2)}, ["y"], {"n": np.array(9, I64)}, inverse=1, onesided=1),
    "stft": lambda: one("STFT", {"x": f32(2, 37, 2), "w": f32(8)}, ["y"], {"step": np.array(5, I64)}, names=["x", "step", "w"],
                        onesided=0),
    "det": lambda: one("Det", {"x": matrices()}, ["y"]),
    "mel": lambda: one("MelWeightMatrix", {}, ["y"], {"mels": np.array(6, I64), "n": np.array(33, I64), "rate": np.array(8000, I64),
                                                      "low": np.array(20, np.float32), "high": np.array(3900, np.float32)}),
    "empty_axes": empty_axes, "no_elements": no_elements, "old_upsample": old_upsample, "old_broadcast": old_broadcast,
    "bits": bits, "optional": optional, "repeats": repeats,
    "adam": lambda: update("Adam", 2, alpha=0.8, beta=0.9, norm_coefficient_post=0.05),
    "adagrad": lambda: update("Adagrad", 1, decay_factor=0.2), "momentum": lambda: update("Momentum", 1, alpha=0.7, beta=0.6, mode="nesterov"),
    "zero_bias": zero_bias, "whole_numbers": whole_numbers, "narrow_samples": narrow_samples,
}


def repeated_mask(path):
    """Causal attention whose mask is computed for every sample, [batch, 1, tokens, tokens], as transformers exports it. No numbers."""
    make = helper.make_node
    nodes = [make("Shape", ["x"], ["batch"], start=0, end=1), make("Concat", ["batch", "rest"], ["shape"], axis=0),
             make("Expand", ["rows", "shape"], ["row"]), make("LessOrEqual", ["columns", "row"], ["seen"]),
             make("Where", ["seen", "val_0", "val_1"], ["mask"]), make("Transpose", ["x"], ["xt"], perm=[0, 1, 3, 2]),
             make("MatMul", ["x", "xt"], ["scores"]), make("Add", ["scores", "mask"], ["sum"]), make("Softmax", ["sum"], ["p"], axis=-1),
             make("MatMul", ["p", "x"], ["y"])]
    tokens = np.arange(768)
    fixed = {"rest": np.array([1, 768, 1], I64), "rows": tokens.reshape(1, 1, -1, 1), "columns": tokens.reshape(1, 1, 1, -1),
             "val_0": np.array(0, np.float32), "val_1": np.array(-np.inf, np.float32)}
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 1, 768, 2]) for n in "xy"]
    graph = helper.make_graph(nodes, "mask", ports[:1], ports[1:], [numpy_helper.from_array(v, k) for k, v in fixed.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def main():
    repeated_mask(pathlib.Path(sys.argv[1]).parent / "onnx" / "mask.onnx")
    for name, make in CASES.items():
        nodes, inputs, outputs, fixed, *old = make()
        tensors = fixed if isinstance(fixed, list) else [numpy_helper.from_array(v, k) for k, v in fixed.items()]
        graph = helper.make_graph(nodes, name, [value(k, v) for k, v in inputs.items()], [unknown(k) for k in outputs], tensors)
        loops = name in ("loop", "scan", "optional")  # the reference evaluator does not have all of these
        opsets = [helper.make_opsetid("", old[0] if old else 21 if loops else 28), helper.make_opsetid("ai.onnx.preview", 1), helper.make_opsetid("ai.onnx.preview.training", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10 if loops else 13)
        if old:
            results = old[1]
        elif loops:
            results = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
        else:
            truth = copy.deepcopy(model)
            if name == "zero_bias":
                del truth.graph.node[-1].input[2]
            given = inputs
            if name == "narrow_samples":  # positions in f32; the evaluator rounds them to f16
                given = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in inputs.items()}
                truth.graph.initializer[0].CopyFrom(numpy_helper.from_array(fixed["box"].astype(np.float32), "box"))
            results = [r.astype(np.float16) if r.dtype == np.float32 and given is not inputs else r for r in ReferenceEvaluator(truth).run(None, given)]
        folder = pathlib.Path(sys.argv[1]) / name
        (folder / "test_data_set_0").mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        for word, arrays in (("input", inputs.values()), ("output", results)):
            for k, array in enumerate(arrays):
                path = folder / "test_data_set_0" / f"{word}_{k}.pb"
                path.write_bytes(numpy_helper.from_array(np.asarray(array, order="C")).SerializeToString())


if len(sys.argv) > 2:
    CASES = {k: v for k, v in CASES.items() if k in sys.argv[2:]}
main()
