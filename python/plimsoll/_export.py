"""A module as an ONNX file that trains: BatchNorm and Dropout stay, weights keep their names."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Collection, Iterator, Mapping, Sequence, Union

from . import _dropout, _proto
from ._symbolics import more_ops

if TYPE_CHECKING:
    import torch

Example = Union["torch.Tensor", Sequence[Any], Mapping[str, Any]]


def _arguments(module: "torch.nn.Module", example: Example) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, Mapping):
        return (), dict(example)
    return tuple(example), {}


def _names(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The names of the inputs: those of forward's parameters."""
    wanted = list(inspect.signature(module.forward).parameters)[: len(args)]
    return wanted + list(kwargs)


def _flat(value: Any) -> list[Any]:
    """The tensors of a module's result, in the exporter's order."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = [v for v in value.values() if v is not None]
    elif hasattr(value, "to_tuple"):
        value = value.to_tuple()
    return [t for part in value for t in _flat(part)] if isinstance(value, (list, tuple)) else []


def _outputs(module: "torch.nn.Module", args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The names of the outputs: the keys of the result, or output, output0, output1, ..."""
    import torch

    with torch.no_grad():
        result = module(*args, **kwargs)
    taken = {*_names(module, args, kwargs), *module.state_dict()}
    if isinstance(result, Mapping) or hasattr(result, "keys"):
        names = [str(k) for k in result.keys() if isinstance(result[k], torch.Tensor)]
        if len(names) == len(_flat(result)):  # a name of an input or of a weight may not be an output's, too
            return [f"{n}_out" if n in taken else n for n in names]
    count = len(_flat(result))
    return ["output"] if count == 1 else [f"output{i}" for i in range(count)]


def _tied(module: "torch.nn.Module") -> str:
    """The names that share one tensor, "head.weight=embed.weight;...": a file has one of them."""
    names: dict[int, list[str]] = {}
    for name, tensor in [*module.named_parameters(remove_duplicate=False),
                         *module.named_buffers(remove_duplicate=False)]:
        names.setdefault(id(tensor), []).append(name)
    return ";".join("=".join(same) for same in names.values() if len(same) > 1)


def _transient(module: "torch.nn.Module") -> str:
    """Buffers that are not in the state_dict (register_buffer(..., persistent=False))."""
    kept = module.state_dict()
    return ";".join(name for name, _ in module.named_buffers() if name not in kept)


def _padding(module: "torch.nn.Module") -> str:
    """The rows of embeddings that get no gradient (padding_idx), "embed.weight=0;...": the op Gather does not know them."""
    import torch

    return ";".join(f"{name}.weight".lstrip(".") + f"={m.padding_idx}" for name, m in module.named_modules(remove_duplicate=False)
                    if isinstance(m, torch.nn.Embedding) and m.padding_idx is not None)


def _restore_names(module: "torch.nn.Module", path: str) -> None:
    """torch's TorchScript exporter calls a parameter x.1 when a branch of an If returns it: x becomes the name of the branch's result.
    Both names change places."""
    there, state = _proto.initializers(path), module.state_dict()
    swapped = {}
    for name in there:
        stem, _, digits = name.rpartition(".")
        if digits.isdigit() and name not in state and stem in state and stem not in there:
            swapped[name], swapped[stem] = stem, name
    if swapped:
        _proto.rename(path, swapped)


def _complete(module: "torch.nn.Module", path: str) -> None:
    """Adds to the file what exporters leave out, so that model files have the whole state_dict: parameters that forward never
    uses, masks that became constants. Names of tied weights count as one."""
    there = _proto.initializers(path)
    same = {name: group.split("=") for group in _tied(module).split(";") for name in group.split("=")}
    lacks = {name: value for name, value in module.state_dict().items()
             if hasattr(value, "dtype") and str(value.dtype).rpartition(".")[2] in _proto.TYPES
             and not there.intersection(same.get(name, [name]))}
    if lacks:
        _proto.add_initializers(path, lacks)
    buffers = [name for name, _ in module.named_buffers() if name in module.state_dict()]
    kept = dict.fromkeys([*lacks, *buffers])
    if kept:
        _proto.add_metadata(path, "plimsoll.kept", ";".join(kept))


_DRAWS = {b"RandomUniform", b"RandomUniformLike", b"RandomNormal", b"RandomNormalLike", b"Bernoulli", b"Multinomial"}


def _drawing_modules(path: str) -> list[str]:
    """The names of the modules whose nodes draw random numbers, in a file of the TorchScript exporter; "" is the module itself."""
    found: dict[str, None] = {}
    with _proto.opened(path) as data:
        nodes = [part[2:] for graph in _proto.graphs(data) for part in _proto.fields(data, *graph[1:]) if part[0] == _proto.NODE]
        for node in nodes:
            texts = {number: data[body:end] for number, _, body, end in _proto.fields(data, *node) if number in (3, 4)}
            if texts.get(4) not in _DRAWS:
                continue
            names: list[str] = []  # the node's name is /outer/inner/Op; a list's item repeats the name of the list
            for part in texts.get(3, b"").decode().strip("/").split("/")[:-1]:
                if names and part.startswith(names[-1] + "."):
                    names.pop()
                names.append(part)
            found[".".join(names)] = None
    return list(found)


def _check_transposes(path: str) -> None:
    """torch's TorchScript exporter writes movedim(1, -1) with negative dimensions, which ONNX does not allow."""
    with _proto.opened(path) as data:
        nodes = [part[2:] for graph in _proto.graphs(data) for part in _proto.fields(data, *graph[1:]) if part[0] == _proto.NODE]
        for node in nodes:
            parts = list(_proto.fields(data, *node))
            if not any(number == 4 and data[body:end] == b"Transpose" for number, _, body, end in parts):
                continue
            ints = [value for number, _, at, stop in parts if number == 5 for key, _, body, end in _proto.fields(data, at, stop) if key == 8
                    for value in _proto.numbers(data, body, end)]
            if any(value < 0 for value in ints):
                raise RuntimeError(f"torch wrote a Transpose with the dimensions {ints}, which is no valid ONNX")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what torch prints from C++ while it fails: the whole graph."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _positional(module: "torch.nn.Module", names: list[str]) -> Iterator[None]:
    """forward takes the named arguments by position; others keep their defaults, and are no inputs."""
    own, before = module.forward, module.__dict__.get("forward")
    module.forward = lambda *args: own(**dict(zip(names, args)))
    try:
        yield
    finally:
        del module.forward
        if before is not None:
            module.forward = before


def _trace(module: "torch.nn.Module", args: Any, kwargs: Any, path: str, inputs: list[str],
           outputs: list[str], axes: Mapping[str, Mapping[int, str]]) -> None:
    """Exports with opset 17; where torch needs a newer one for an op, with its newest, 20."""
    import torch

    for opset in (17, 20):
        try:
            with _quiet(), more_ops(opset), _positional(module, inputs):
                torch.onnx.export(
                    module, (*args, *kwargs.values()), path, dynamo=False, opset_version=opset,
                    input_names=inputs, output_names=outputs,
                    dynamic_axes={**axes, **{name: {0: "batch"} for name in outputs}} if axes else {},
                    training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
            return
        except Exception as error:
            if opset == 20 or "opset version" not in str(error):
                raise


def _named(modules: "Mapping[str, torch.nn.Module]", name: str) -> list[str]:
    """The modules that an exporter's name can mean: name_1 is a second call, and a shared module has its first name somewhere else."""
    while name not in modules and name.rpartition("_")[2].isdigit():
        name = name.rpartition("_")[0]
    last = name.rpartition(".")[2]
    return [name] if name in modules else [n for n in modules if n == last or n.endswith("." + last)]


def _old(module: "torch.nn.Module", args: Any, kwargs: Any, path: str, inputs: list[str],
         outputs: list[str], axes: Mapping[str, Mapping[int, str]]) -> None:
    """Exports in training mode, so that dropout stays. A file has one form for training and evaluation, and only the op Dropout
    knows which: modules that draw random numbers otherwise (stochastic depth, dropped labels) are exported as in evaluation."""
    import torch

    recurrent = [(name, m) for name, m in module.named_modules() if isinstance(m, torch.nn.RNNBase) and m.dropout > 0 and m.training]
    for _, m in recurrent:
        m.training = False  # torch refuses dropout between layers
    if recurrent:
        _dropout.say({type(m).__name__ for _, m in recurrent}, "drops between its layers: ONNX has no dropout there, and nothing is dropped",
                     [name for name, _ in recurrent])
    outputs = outputs[: len(_outputs(module, args, kwargs))]  # XLNet's memory is a result of evaluation only
    _trace(module, args, kwargs, path, inputs, outputs, axes)
    _check_transposes(path)
    modules, still = dict(module.named_modules()), []
    for name in _drawing_modules(path):
        for found in _named(modules, name):
            if modules[found].training:
                still.append(found)
                modules[found].training = False
    if still:
        _trace(module, args, kwargs, path, inputs, outputs, axes)
        _dropout.say({type(modules[name]).__name__ for name in still},
                     "draws random numbers in training: exported as in evaluation, because a file has one form for both", still)


def _drop_zero_biases(model: Any) -> None:
    """torch's dynamo exporter writes computed zeros as the bias of a convolution without one; for Conv3d of the shape [C, 2], which ONNX
    does not allow."""
    def maker(value: Any, op: str) -> Any:
        node = value.producer() if value is not None else None
        return node if node is not None and node.op_type == op else None

    for conv in model.graph:
        if conv.op_type not in ("Conv", "ConvTranspose") or len(conv.inputs) < 3:
            continue
        expand = maker(conv.inputs[2], "Expand")
        like = maker(expand.inputs[0], "CastLike") if expand else None
        zero = maker(like.inputs[0], "Constant") if like else None
        if zero is not None and "value" in zero.attributes and not zero.attributes["value"].value.numpy().any():
            conv.replace_input_with(2, None)


def _clear_names(model: Any) -> None:
    """torch's dynamo exporter names values by their ops, "mean", and an output may have the same name: the value gets another."""
    outputs = {value.name: value for value in model.graph.outputs}
    for node in model.graph:
        for value in node.outputs:
            if value.name in outputs and value is not outputs[value.name]:
                value.name = f"{value.name}/inner"


def _new(module: "torch.nn.Module", args: Any, kwargs: Any, path: str, inputs: list[str],
         outputs: list[str], axes: Mapping[str, Mapping[int, str]]) -> None:
    import torch

    _dropout.lost_dropout(module, lambda: module(*args, **kwargs))
    for m in module.modules():
        m.training = _dropout.stays(m)  # BatchNorm stays in the file only as in evaluation
    shapes = {name: dict(axes.get(name, {})) for name in inputs}
    made = torch.onnx.export(
        module, tuple(args), kwargs=dict(kwargs), dynamo=True, optimize=False, verbose=False,
        input_names=inputs, output_names=outputs, dynamic_shapes=shapes)
    if made is None:
        raise RuntimeError("torch.onnx.export returned nothing")
    _drop_zero_biases(made.model)
    _clear_names(made.model)
    made.save(path)


_WAYS = {"torchscript": _old, "dynamo": _new}


def _tensors(module: "torch.nn.Module", example: Example) -> dict[str, "torch.Tensor"]:
    """The tensors among the arguments, by the names of the inputs."""
    import torch

    args, kwargs = _arguments(module, example)
    given = zip(_names(module, args, kwargs), [*args, *kwargs.values()])
    return {name: value for name, value in given if isinstance(value, torch.Tensor)}


def input_names(module: "torch.nn.Module", example_inputs: Example) -> list[str]:
    """The names of the inputs, in the order of forward's parameters."""
    return list(_tensors(module, example_inputs))


def without_batch(module: "torch.nn.Module", example_inputs: Example,
                  fixed: Collection[str] = ()) -> dict[str, "torch.Tensor"]:
    """The inputs that do not begin with the batch: scalars, tensors whose first dimension has another size than the first input's,
    and those of `fixed`."""
    tensors = _tensors(module, example_inputs)
    sizes = [t.shape[0] for name, t in tensors.items() if t.dim() and name not in fixed]
    return {name: t for name, t in tensors.items() if name in fixed or not t.dim() or t.shape[0] != sizes[0]}


def _batch_of(module: "torch.nn.Module", example_inputs: Example, alone: Collection[str]) -> int:
    return next((int(t.shape[0]) for name, t in _tensors(module, example_inputs).items() if name not in alone), 1)


def _cause(error: BaseException) -> str:
    """What went wrong at first, in a line: torch's own messages have a page of advice about torch."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split("[Caused by")[0].split())
    return text if len(text) <= 400 else text[:400] + " ..."


def _note(module: "torch.nn.Module", path: str) -> None:
    """Restores names, adds what the exporter left out, and notes what a file cannot say otherwise."""
    _restore_names(module, path)
    _complete(module, path)
    notes = {"tied": _tied(module), "transient": _transient(module), "padding": _padding(module)}
    for key, text in notes.items():
        if text:
            _proto.add_metadata(path, f"plimsoll.{key}", text)


def export(module: "torch.nn.Module", example_inputs: Example, path: Union[str, os.PathLike[str]],
           dims: Union[Mapping[str, Mapping[int, str]], None] = None, exporter: str = "auto",
           fixed: Collection[str] = ()) -> str:
    """Writes the module to an ONNX file and returns the path.

    example_inputs: the arguments of forward: a tensor, a tuple, or a dictionary of keywords. The
    first dimension of every input is dynamic ("batch") if it has the size of the first input's, else
    fixed; inputs that `fixed` names have no batch. dims names further dynamic dimensions, {"input_ids": {1: "seq"}}. Inputs have the names of forward's parameters, outputs are called
    "output" (or "output0", ...), or have the keys of the result. exporter: "torchscript", "dynamo",
    or "auto", which tries both.
    """
    import torch

    if exporter != "auto" and exporter not in _WAYS:
        raise ValueError(f'exporter "{exporter}": one of auto, {", ".join(_WAYS)}')

    args, kwargs = _arguments(module, example_inputs)
    inputs = _names(module, args, kwargs)
    alone = without_batch(module, example_inputs, fixed)
    axes = {n: {**({} if n in alone else {0: "batch"}), **(dims or {}).get(n, {})}
            for n, t in _tensors(module, example_inputs).items() if t.dim()}
    was = {name: m.training for name, m in module.named_modules()}
    kept = {k: v.clone() for k, v in module.state_dict().items()}
    failed: list[str] = []
    try:
        module.eval()
        outputs = _outputs(module, args, kwargs)
        module.train()
        _dropout.hold_changing_buffers(module, lambda: module(*args, **kwargs))
        modes = {m: m.training for m in module.modules()}
        for sizes in (axes, {}):
            for name, way in _WAYS.items():
                if exporter not in ("auto", name):
                    continue
                for m, mode in modes.items():
                    m.training = mode
                try:
                    with warnings.catch_warnings(), _dropout.channels_by_ones(module):
                        warnings.simplefilter("ignore")
                        way(module, args, kwargs, os.fspath(path), inputs, outputs, sizes)
                    _note(module, os.fspath(path))
                    if not sizes and axes:
                        print("plimsoll: torch cannot export this module with a batch of any size: the file has the batch of the example, "
                              f"{_batch_of(module, example_inputs, alone)}, which key batch needs, too", file=sys.stderr)
                    return os.fspath(path)
                except Exception as error:  # pylint: disable=broad-except
                    failed.append(f"{name} exporter: {_cause(error)}")
            if dims:
                break
        raise RuntimeError("torch cannot export this module to ONNX:\n" + "\n".join(dict.fromkeys(failed)) +
                           "\nWrite what the exporters lack in other ops in forward; torch.onnx.export(module, ...) shows the whole message")
    finally:
        for name, m in module.named_modules():
            m.training = was[name]
        with torch.no_grad():  # a traced forward pass moves running statistics
            for name, value in module.state_dict().items():
                value.copy_(kept[name])
