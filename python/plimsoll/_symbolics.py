"""Ops that torch's TorchScript exporter lacks or leaves out, as ONNX nodes."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Iterator

_DETACH_SEED = 6579572  # src/onnx/emit/emit_source.c
# torch's number of a dtype in a TorchScript graph: ONNX's.
_CAST = {0: 2, 1: 3, 2: 5, 3: 6, 4: 7, 5: 10, 6: 1, 7: 11, 11: 9, 15: 16}


def _constant(graph: Any, *values: int) -> Any:
    import torch

    return graph.op("Constant", value_t=torch.tensor(values))


def _number(value: Any) -> int:
    return int(value.node().t("value"))


def _cumprod(graph: Any, x: Any, axis: Any, kind: Any) -> Any:
    """Products of 2, 4, 8, ... neighbours: ONNX has no CumProd before opset 26."""
    helper = importlib.import_module("torch.onnx.symbolic_helper")
    along = _number(axis)
    size = helper._get_tensor_dim_size(x, along)
    if size is None:
        return helper._unimplemented("cumprod", "the size of the dimension is not known")
    if not kind.node().mustBeNone():
        x = graph.op("Cast", x, to_i=_CAST[_number(kind)])
    place, reach = _constant(graph, along), 1
    while reach < size:
        first = graph.op("Slice", x, _constant(graph, 0), _constant(graph, reach), place)
        later = graph.op("Slice", x, _constant(graph, reach), _constant(graph, size), place)
        earlier = graph.op("Slice", x, _constant(graph, 0), _constant(graph, size - reach), place)
        x = graph.op("Concat", first, graph.op("Mul", later, earlier), axis_i=along)
        reach *= 2
    return x


def _smallest(graph: Any, x: Any, which: int, along: int, keep: bool) -> tuple[Any, Any]:
    """The number at place `which` of the sorted dimension, from 1, and its index."""
    import torch

    values, indices = graph.op("TopK", x, _constant(graph, which), axis_i=along, largest_i=0, sorted_i=1, outputs=2)
    at = _constant(graph, which - 1) if keep else graph.op("Constant", value_t=torch.tensor(which - 1))
    return graph.op("Gather", values, at, axis_i=along), graph.op("Gather", indices, at, axis_i=along)


def _kthvalue(graph: Any, x: Any, which: Any, axis: Any, keep: Any) -> tuple[Any, Any]:
    return _smallest(graph, x, _number(which), _number(axis), bool(_number(keep)))


def _median(graph: Any, x: Any, axis: Any = None, keep: Any = None) -> Any:
    helper = importlib.import_module("torch.onnx.symbolic_helper")
    flat = axis is None
    along = 0 if flat else _number(axis)
    sizes = [helper._get_tensor_dim_size(x, i) for i in range(x.type().dim())] if flat else [helper._get_tensor_dim_size(x, along)]
    if None in sizes:
        return helper._unimplemented("median", "the number of elements is not known")
    count = 1
    for size in sizes:
        count *= size
    x = graph.op("Reshape", x, _constant(graph, -1)) if flat else x
    found = _smallest(graph, x, (count + 1) // 2, along, not flat and bool(_number(keep)))
    return found[0] if flat else found


def _searchsorted(graph: Any, table: Any, x: Any, narrow: Any, right: Any, side: Any, sorter: Any) -> Any:
    """How many elements of a table of one dimension are smaller: a count of comparisons."""
    helper = importlib.import_module("torch.onnx.symbolic_helper")
    if table.type().dim() != 1 or not sorter.node().mustBeNone():
        return helper._unimplemented("searchsorted", "a table of several dimensions, or a sorter")
    behind = _number(right) or helper._maybe_get_const(side, "s") == "right"
    value = graph.op("Unsqueeze", x, _constant(graph, -1))
    counts = graph.op("LessOrEqual" if behind else "Less", table, value)
    total = graph.op("Cast", counts, to_i=_CAST[4])
    total = graph.op("ReduceSum", total, _constant(graph, -1), keepdims_i=0)
    return graph.op("Cast", total, to_i=_CAST[3 if _number(narrow) else 4])


def _bilinear(graph: Any, x: Any, y: Any, weight: Any, bias: Any) -> Any:
    z = graph.op("Einsum", x, weight, y, equation_s="...i,oij,...j->...o")
    return z if bias.node().mustBeNone() else graph.op("Add", z, bias)


def _take_along_dim(graph: Any, x: Any, index: Any, axis: Any) -> Any:
    if axis.node().mustBeNone():
        return graph.op("Gather", graph.op("Reshape", x, _constant(graph, -1)), graph.op("Reshape", index, _constant(graph, -1)))
    return graph.op("GatherElements", x, index, axis_i=_number(axis))


def _feature_dropout(graph: Any, x: Any, share: Any, train: Any) -> Any:
    """Drops whole channels: a Dropout of ones, [N, C, 1, ...], times x."""
    import torch

    first = graph.op("Slice", graph.op("Shape", x), _constant(graph, 0), _constant(graph, 2))
    rest = _constant(graph, *[1] * (x.type().dim() - 2))
    ones = graph.op("ConstantOfShape", graph.op("Concat", first, rest, axis_i=0), value_t=torch.ones(1))
    ratio = graph.op("Constant", value_t=torch.tensor(float(share.node().t("value"))))
    mode = graph.op("Constant", value_t=torch.tensor(bool(_number(train))))
    return graph.op("Mul", x, graph.op("CastLike", graph.op("Dropout", ones, ratio, mode), x))


def _dot(graph: Any, x: Any, y: Any) -> Any:
    return graph.op("MatMul", x, y)


_MORE = {"aten::cumprod": _cumprod, "aten::kthvalue": _kthvalue, "aten::median": _median, "aten::searchsorted": _searchsorted,
         "aten::bilinear": _bilinear, "aten::take_along_dim": _take_along_dim, "aten::feature_dropout": _feature_dropout, "aten::vdot": _dot}


@contextlib.contextmanager
def more_ops(opset: int) -> Iterator[None]:
    """Registers the ops of this file while the block runs. x.detach() becomes a Dropout of nothing, whose seed tells the importer
    that no gradient flows back; torch.diff, with which transformers looks for packed sequences, becomes slices; torch.cumsum counts
    truth values, which ONNX's CumSum does not take; RMSNorm becomes the nodes that the importer recognises; index_put and index_add
    add where an index occurs twice, and torch writes a scatter that overwrites."""
    import torch

    exporter: Any = torch.onnx  # torch's own annotations leave out some of its functions

    def detach(graph: Any, x: Any) -> Any:
        if x.type().scalarType() not in ("Float", "Double", "Half", "BFloat16"):
            return x
        ratio = graph.op("Constant", value_t=torch.tensor(0.0))
        return graph.op("Dropout", x, ratio, seed_i=_DETACH_SEED)

    def diff(graph: Any, x: Any, times: Any, axis: Any, before: Any, behind: Any) -> Any:
        parts = [part for part in (before, x, behind) if not part.node().mustBeNone()]
        along = _number(axis)
        x = graph.op("Concat", *parts, axis_i=along) if len(parts) > 1 else x
        for _ in range(_number(times)):
            place = _constant(graph, along)
            later = graph.op("Slice", x, _constant(graph, 1), _constant(graph, 2**62), place)
            x = graph.op("Sub", later, graph.op("Slice", x, _constant(graph, 0), _constant(graph, -1), place))
        return x

    def cumsum(graph: Any, x: Any, axis: Any, kind: Any) -> Any:
        if not kind.node().mustBeNone():
            x = graph.op("Cast", x, to_i=_CAST[int(kind.node().t("value"))])
        elif x.type().scalarType() == "Bool":
            x = graph.op("Cast", x, to_i=_CAST[4])
        return graph.op("CumSum", x, graph.op("Constant", value_t=axis.node().t("value")))

    def rms_norm(graph: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
        axes = list(range(-len(exporter.symbolic_helper._maybe_get_const(shape, "is")), 0))
        small = torch.finfo(torch.float32).eps if eps.node().mustBeNone() else float(eps.node().t("value"))
        square = graph.op("Pow", x, graph.op("Constant", value_t=torch.tensor(2.0)))
        mean = (graph.op("ReduceMean", square, axes_i=axes, keepdims_i=1) if opset < 18 else
                graph.op("ReduceMean", square, graph.op("Constant", value_t=torch.tensor(axes)), keepdims_i=1))
        size = graph.op("Sqrt", graph.op("Add", mean, graph.op("Constant", value_t=torch.tensor(small))))
        y = graph.op("Div", x, size)
        return y if weight.node().mustBeNone() else graph.op("Mul", y, weight)

    def index_put(graph: Any, x: Any, indices: Any, values: Any, accumulate: Any) -> Any:
        result = importlib.import_module("torch.onnx.symbolic_opset11").index_put(graph, x, indices, values, accumulate)
        last = result.node()
        for node in [value.node() for value in last.inputs()] if last.kind() == "onnx::Add" else []:
            if node.kind() == "onnx::ScatterND":  # into zeros
                node.s_("reduction", "add")
        return result

    def index_add(graph: Any, x: Any, axis: Any, index: Any, values: Any, factor: Any) -> Any:
        along, rank = int(axis.node().t("value")), values.type().dim()
        ones = graph.op("Constant", value_t=torch.tensor([i for i in range(rank) if i != along % rank]))
        index = graph.op("Expand", graph.op("Unsqueeze", index, ones), graph.op("Shape", values))
        if not factor.node().mustBeNone() and factor.node().t("value") != 1:
            values = graph.op("Mul", values, graph.op("CastLike", factor, values))
        return graph.op("ScatterElements", x, index, values, axis_i=along, reduction_s="add")

    def repeat_interleave(graph: Any, x: Any, repeats: Any, axis: Any, size: Any = None) -> Any:
        """torch's own adds the rank to a negative axis in place, and other nodes read the same constant -1."""
        if not axis.node().mustBeNone():
            axis = graph.op("Constant", value_t=axis.node().t("value").clone())
        return importlib.import_module("torch.onnx.symbolic_opset13").repeat_interleave(graph, x, repeats, axis, size)

    ops = {"aten::detach": detach, "aten::repeat_interleave": repeat_interleave, "aten::diff": diff, "aten::cumsum": cumsum, "aten::rms_norm": rms_norm,
           "aten::index_put": index_put, "aten::index_add": index_add, **_MORE}
    for name, symbolic in ops.items():
        exporter.register_custom_op_symbolic(name, symbolic, 13)
    try:
        yield
    finally:
        for name in ops:
            exporter.unregister_custom_op_symbolic(name, 13)
