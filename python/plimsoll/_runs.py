"""Plans and runs."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional, TypeVar, Union

from . import _data, _export, _program, _proto, _weights

if TYPE_CHECKING:
    import torch

Path = Union[str, "os.PathLike[str]"]
Model = Union["torch.nn.Module", Path]
_Result = TypeVar("_Result")


def _size(bytes_: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if bytes_ < 1024 or unit == "GiB":
            return f"{bytes_:.1f} {unit}" if unit != "B" else f"{int(bytes_)} B"
        bytes_ /= 1024
    return ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a run will take: bytes of the whole process, predicted time of a step."""

    fits: bool
    total_bytes: int
    minimum_bytes: Optional[int]
    step_ms: float
    parameters: int
    details: Mapping[str, Any] = dataclasses.field(repr=False)

    def __str__(self) -> str:
        need = f"{_size(self.total_bytes)} for the whole process, {self.step_ms:.1f} ms per step"
        if self.fits:
            return f"fits: {need}, {self.parameters} parameters"
        least = f"; smallest budget {_size(self.minimum_bytes)}" if self.minimum_bytes else ""
        return f"does not fit: {need}{least}"


class Plot:
    """A drawing of the losses: shown by notebooks, written by save."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: Path) -> None:
        """Writes an SVG file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


def _line(points: list[tuple[float, float]], box: tuple[float, float, float, float],
          colour: str) -> str:
    """A curve in a box (first and last step, lowest and highest loss) of 600 x 240."""
    x0, x1, y0, y1 = box
    at = " ".join(f"{50 + 540 * (x - x0) / ((x1 - x0) or 1):.1f},"
                  f"{220 - 200 * (y - y0) / ((y1 - y0) or 1):.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{at}"/>'


class Run:
    """A folder that ``plimsoll train --out`` writes."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"Run({self.path!r})"

    def _table(self, name: str) -> list[dict[str, float]]:
        path = os.path.join(self.path, name)
        if not os.path.exists(path):
            return []
        with open(path, newline="", encoding="utf-8") as file:
            return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]

    @property
    def model(self) -> str:
        """The trained weights, a safetensors file."""
        return os.path.join(self.path, "model.safetensors")

    @property
    def steps(self) -> list[dict[str, float]]:
        """One dictionary for each step: step, loss, lr, ..."""
        return self._table("metrics.csv")

    @property
    def evaluations(self) -> list[dict[str, float]]:
        """One dictionary for each evaluation: step, loss, accuracy, ..."""
        return self._table("eval.csv")

    def plot(self) -> Plot:
        """Draws the training loss (grey) and the loss of evaluations (blue) over the steps."""
        train = [(r["step"], r["loss"]) for r in self.steps if "loss" in r]
        held_out = [(r["step"], r["loss"]) for r in self.evaluations if "loss" in r]
        both = train + held_out
        if not both:
            raise ValueError(f"{self.path} has no losses yet")
        xs, ys = [p[0] for p in both], [p[1] for p in both]
        box = (min(xs), max(xs), min(ys), max(ys))
        return Plot(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 260" font-size="11" '
            'font-family="sans-serif"><rect width="600" height="260" fill="white"/>'
            + _line(train, box, "#999") + _line(held_out, box, "#06c")
            + f'<text x="4" y="24">{box[3]:.4g}</text><text x="4" y="222">{box[2]:.4g}</text>'
            f'<text x="50" y="245">{box[0]:g}</text>'
            f'<text x="590" y="245" text-anchor="end">step {box[1]:g}</text></svg>')

    def load(self, module: "torch.nn.Module") -> list[str]:
        """Loads the trained weights into a module; returns the names that the file lacks."""
        return _weights.load_weights(module, self.model)

    def predict(self, data: Path, out: Path, **keys: Any) -> str:
        """Runs ``plimsoll predict`` and returns the path of the results."""
        _program.ask(["predict", self.path, "--input", os.fspath(data), "--out", os.fspath(out),
                      *_program.settings(keys)])
        return os.fspath(out)


_last: Optional[Run] = None


def last_run() -> Run:
    """The last run that train started in this process."""
    if _last is None:
        raise ValueError("no run was started: call plimsoll.train first, or plimsoll.Run(folder)")
    return _last


def _fixed_inputs(model: Model, example_inputs: Optional[_export.Example], given: Mapping[str, Any],
                  data: Mapping[str, Any]) -> dict[str, Any]:
    """Values of inputs that have no batch: those of `inputs`, of the data, or else of the example."""
    fixed = dict(given)
    if isinstance(model, (str, os.PathLike)) or example_inputs is None:
        return fixed
    for name, value in _export.without_batch(model, example_inputs, list(given)).items():
        if name not in fixed:
            fixed[name] = data.get(name, value)
            print(f"plimsoll: input {name}, {list(value.shape)}, has no batch: its value in "
                  f"{'the data' if name in data else 'the example'} stands for all samples "
                  f'(inputs={{"{name}": ...}} sets another)', file=sys.stderr)
    return fixed


def _write_inputs(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Fixed values for key inputs: arrays become files."""
    import numpy

    texts: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, (str, bool, int, float, os.PathLike)):
            texts[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
            continue
        array = _data.array(value)
        if array.ndim == 0:
            texts[name] = array.item()
            continue
        os.makedirs(folder, exist_ok=True)
        path = os.path.abspath(os.path.join(folder, f"{name}.npy"))
        numpy.save(path, array)
        texts[name] = path
    return texts


def _file_of(model: Model, example_inputs: Optional[_export.Example], folder: Path,
             dims: Optional[Mapping[str, Mapping[int, str]]], exporter: str,
             fixed: Mapping[str, Any]) -> str:
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if example_inputs is None:
        raise ValueError("example_inputs are needed: the arguments of the module's forward")
    return _export.export(model, example_inputs, os.path.join(folder, "model.onnx"), dims,
                          exporter, list(fixed))


def _frozen(model: Model, path: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys, with what the module does not train in `frozen`: its ONNX file does not tell that."""
    if isinstance(model, (str, os.PathLike)) or "trainable" in keys:
        return dict(keys)
    names = [n for n, p in model.named_parameters() if not p.requires_grad]
    names += [n for n, b in model.named_buffers() if b.is_floating_point()
              and not n.endswith(("running_mean", "running_var"))]
    if names:
        there = _proto.initializers(path)
        names = [name for name in names if name in there]
    asked = [keys["frozen"]] if keys.get("frozen") else []
    return {**keys, "frozen": ",".join([*asked, *names])} if names else dict(keys)


def _options(memory: Optional[str], device: Optional[str]) -> list[str]:
    chosen = [] if memory is None else ["--memory", str(memory)]
    return chosen if device is None else [*chosen, "--device", device]


def _either(model: Model, exporter: str, attempt: Callable[[str], _Result]) -> _Result:
    """attempt(exporter). Where the program refuses the file that "auto" has written, attempt("dynamo"):
    TorchScript writes graphs of some modules that are not valid."""
    try:
        return attempt(exporter)
    except _program.PlimsollError as error:
        if exporter != "auto" or isinstance(model, (str, os.PathLike)) or error.code not in (1, 6):
            raise
        refused = error
    print(f"{refused}\nplimsoll: the module is exported again, with dynamo", file=sys.stderr)
    try:
        return attempt("dynamo")
    except RuntimeError as error:
        raise refused from error


def plan(model: Model, example_inputs: Optional[_export.Example] = None, *,
         memory: Optional[str] = None, device: Optional[str] = None,
         dynamic: Optional[Mapping[str, Mapping[int, str]]] = None, exporter: str = "auto",
         inputs: Optional[Mapping[str, Any]] = None, **keys: Any) -> Plan:
    """Plans a training run without starting it.

    model: a module, or an ONNX file. memory: budget of the whole process, "6GB". device: "cpu",
    "cuda", or a GPU that is not here, "rtx3090". dynamic: further dynamic dimensions of the export,
    {"input_ids": {1: "seq"}}, whose sizes the key dims gives, dims={"seq": 128}. exporter: see export.
    inputs: fixed values of inputs, see train.
    """
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        fixed = _fixed_inputs(model, example_inputs, inputs or {}, {})
        if fixed:
            keys["inputs"] = _write_inputs(fixed, folder)

        def attempt(way: str) -> str:
            path = _file_of(model, example_inputs, folder, dynamic, way, fixed)
            return _program.ask(["plan", path, "--json", *_options(memory, device),
                                 *_program.settings(_frozen(model, path, keys))], accept=(0, 3))

        text = _either(model, exporter, attempt)
    p = json.loads(text)
    return Plan(p["fits"], p["total_bytes"], p.get("minimum_bytes"), p["predicted_step_ms"],
                p["parameters"], p)


def _inputs_of(model: Model, example_inputs: Optional[_export.Example], fixed: Mapping[str, Any]) -> list[str]:
    """The names of forward's parameters that data fill, in order."""
    if isinstance(model, (str, os.PathLike)) or example_inputs is None:
        return []
    return [name for name in _export.input_names(model, example_inputs) if name not in fixed]


def train(model: Model, example_inputs: Optional[_export.Example] = None, *,
          data: Any, out: Path, loss: str = "auto",
          memory: Optional[str] = None, device: Optional[str] = None,
          dynamic: Optional[Mapping[str, Mapping[int, str]]] = None, exporter: str = "auto",
          inputs: Optional[Mapping[str, Any]] = None, **keys: Any) -> Run:
    """Trains a module within a memory budget and loads the trained weights back into it.

    data: a folder of class folders, arrays, a table (docs/DATA.md); or a dictionary of arrays with
    the names of the inputs and of the targets ("label" for classes, "target" for numbers); or a tuple
    of arrays, a Dataset or a DataLoader of torch, whose samples are dictionaries, or tuples of
    forward's inputs and the target. Samples from Python are written to OUT/data first. out:
    folder of the run; an existing run in it is resumed. loss: docs/TRAIN_ONNX.md. inputs: values of
    inputs that have no batch, the same for all samples, {"timestep": 3, "img_ids": tensor}; those that
    are not named keep their values of the data or of the example. The program's progress is printed.
    """
    global _last
    out = os.fspath(out)
    os.makedirs(out, exist_ok=True)
    arrays = data if isinstance(data, Mapping) else {}
    fixed = _fixed_inputs(model, example_inputs, inputs or {}, arrays)
    if fixed:
        keys["inputs"] = _write_inputs(fixed, os.path.join(out, "inputs"))
    place = (_data.write(data, _inputs_of(model, example_inputs, fixed), loss, fixed, os.path.join(out, "data"))
             if _data.is_data(data) else os.fspath(data))
    run = Run(out)
    _last = run

    def attempt(way: str) -> None:
        path = _file_of(model, example_inputs, out, dynamic, way, fixed)
        _program.follow(["train", path, f"loss={loss}", f"data.path={place}", "--out", out,
                         *_options(memory, device), *_program.settings(_frozen(model, path, keys))])

    _either(model, exporter, attempt)
    if not isinstance(model, (str, os.PathLike)):
        run.load(model)
    return run
