"""onnx_refused.py OUT - small ONNX files that are wrong in one place each, for tests/onnx/test_onnx_refused.c.

ONNX Runtime refuses them, too, or computes what the standard does not say.
"""
import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(5)
make = helper.make_node
MAP, ROW = [1, 3, 4, 4], [2, 4]


def f32(*shape):
    return rng.normal(0, 1, shape).astype(np.float32)


def i64(*numbers):
    return np.array(numbers, np.int64)


def one(op, shape, fixed=None, outputs=("y",), opset=18, names=None, **attributes):
    """A model of one node: its inputs are x of this shape, then the initializers."""
    fixed = fixed or {}
    return [make(op, names or ["x", *fixed], outputs, **attributes)], shape, fixed, outputs, opset


def text(op, attribute, shape=ROW, fixed=None, opset=18, **more):
    return one(op, shape, fixed, opset=opset, **{attribute: "foo"}, **more)


CONV = {"w": f32(4, 3, 3, 3)}
CELL = {"w": f32(1, 12, 4), "r": f32(1, 12, 3)}
TWICE = {"by": np.array([1, 1, 2, 2], np.float32)}
CASES = {
    "auto_pad": text("Conv", "auto_pad", MAP, CONV), "direction": text("LSTM", "direction", [2, 2, 4], CELL, hidden_size=3),
    "pad_mode": text("Pad", "mode", fixed={"pads": i64(0, 1, 0, 1)}), "resize_mode": one("Resize", MAP, TWICE, names=["x", "", "by"], mode="foo"),
    "resize_coordinates": one("Resize", MAP, TWICE, names=["x", "", "by"], coordinate_transformation_mode="foo"),
    "grid_mode": text("GridSample", "mode", MAP, {"grid": f32(1, 2, 2, 2)}, 20), "blocks": text("DepthToSpace", "mode", [1, 4, 2, 2], blocksize=2),
    "gelu": text("Gelu", "approximate", opset=20), "loss": text("NegativeLogLikelihoodLoss", "reduction", fixed={"label": i64(1, 0)}),
    "strides_real": one("Conv", MAP, CONV, strides=[1.0, 2.0]), "kernel_text": one("Conv", MAP, CONV, kernel_shape="3x3"),
    "axis_real": one("Softmax", ROW, axis=1.5), "alpha_whole": one("Elu", ROW, alpha=2),
    "pad_least": one("Pad", ROW, {"pads": i64(0, -2**63, 0, 0)}),
    "kernel_other": one("Conv", MAP, CONV, kernel_shape=[5, 3]), "kernel_one": one("Conv", MAP, CONV, kernel_shape=[3]),
    "kernel_missing": one("MaxPool", MAP), "group_0": one("Conv", MAP, CONV, group=0), "group_negative": one("Conv", MAP, CONV, group=-3),
    "group_huge": one("Conv", MAP, CONV, group=2 ** 40), "group_of_norm": one("GroupNormalization", MAP, {"s": f32(3), "b": f32(3)}, opset=21, num_groups=0),
    "concat_axis": one("Concat", ROW), "split_short": one("Split", ROW, {"s": i64(1, 1)}, ("y", "z"), axis=1),
    "split_many": one("Split", ROW, {"s": i64(1, 1, 2)}, ("y", "z"), axis=1), "split_negative": one("Split", ROW, {"s": i64(-1, 5)}, ("y", "z"), axis=1),
    "slice_twice": one("Slice", ROW, {"a": i64(0, 1), "b": i64(2, 2), "c": i64(1, 1)}),
    "hidden": one("LSTM", [2, 2, 4], CELL, hidden_size=7), "positions": one("BatchNormalization", [2, 3, 3, 3], {k: np.abs(f32(3, 3, 3)) + 1 for k in "abcd"}, opset=8, spatial=0),
    "scale_nan": one("Resize", MAP, {"by": np.array([1, 1, np.nan, 1], np.float32)}, names=["x", "", "by"]),
    "range_step": ([make("Range", ["a", "b", "c"], ["r"]), make("Add", ["x", "r"], ["y"])], ROW, {"a": np.array(0), "b": np.array(4), "c": np.array(0)}, ("y",), 18),
    "depth": one("OneHot", ROW, {"d": np.array(-3), "v": np.array([0, 1], np.float32)}), "nowhere": ([make("Relu", ["x"], ["z"])], ROW, {}, ("y",), 18),
    "text_tensor": ([make("Equal", ["s", "s"], ["e"]), make("Cast", ["e"], ["c"], to=1), make("Add", ["x", "c"], ["y"])], ROW, {"s": None}, ("y",), 19),
    "sequence": ([make("SequenceAt", ["s", "i"], ["y"])], None, {"i": np.array(0)}, ("y",), 18),
}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, (nodes, shape, fixed, outputs, opset) in CASES.items():
        tensors = [helper.make_tensor(k, TensorProto.STRING, [1], [b"a"]) if v is None else numpy_helper.from_array(v, k) for k, v in fixed.items()]
        sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape) if shape else helper.make_value_info("s", sequence)
        graph = helper.make_graph(nodes, name, [given], [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs], tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        (out / f"{name}.onnx").write_bytes(model.SerializeToString())


main()
