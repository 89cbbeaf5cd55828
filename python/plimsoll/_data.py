"""Data that live in Python as .npy files: arrays, tensors, data sets and loaders of torch."""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO, Iterable, Iterator, Mapping, Sequence

_HEADER = 256  # bytes before the rows of a file
# Whole numbers that the program does not read, and the type that has all of them.
_WIDER = {"int8": "int32", "int16": "int32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}


def array(value: Any) -> Any:
    """A tensor, a number or a list as a NumPy array of a type that the program reads."""
    import numpy

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    found = numpy.ascontiguousarray(value) if numpy.ndim(value) else numpy.asarray(value)
    return found.astype(_WIDER.get(found.dtype.name, found.dtype), copy=False)


def _column(name: str, value: Any) -> Any:
    """The array of an input or target; the target of mse and of bce_with_logits may be whole numbers here."""
    found = array(value)
    return found.astype("float32") if name == "target" and found.dtype.kind in "iu" else found


class _Column:
    """One .npy file, which grows by rows: the header is written last."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file: BinaryIO = open(path, "wb")  # pylint: disable=consider-using-with
        self.file.write(b" " * _HEADER)
        self.rows = 0
        self.dtype: Any = None
        self.shape: tuple[int, ...] = ()

    def add(self, rows: Any) -> None:
        if self.dtype is None:
            self.dtype, self.shape = rows.dtype, rows.shape[1:]
        if rows.shape[1:] != self.shape:
            raise ValueError(f"sample {self.rows} of {os.path.basename(self.path)[:-4]} has the shape {list(rows.shape[1:])}, "
                             f"sample 0 has {list(self.shape)}: all samples must have one shape")
        self.file.write(rows.astype(self.dtype, copy=False).tobytes())
        self.rows += len(rows)

    def close(self) -> None:
        if self.dtype is not None:
            import numpy

            text = repr({"descr": numpy.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.rows, *self.shape)})
            self.file.seek(0)
            self.file.write(b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.encode().ljust(_HEADER - 11) + b"\n")
        self.file.close()


def _target(value: Any, loss: str) -> str:
    """The name of the only target of a loss."""
    if "cross_entropy" in loss or "dice" in loss:
        return "label"
    return "label" if loss == "auto" and array(value).dtype.kind in "iu" else "target"


def _named(item: Any, inputs: Sequence[str], loss: str) -> dict[str, Any]:
    """The parts of an item: a dictionary as it is; of a tuple, first the inputs of forward, then the target."""
    if isinstance(item, Mapping):
        return {str(k): v for k, v in item.items()}
    parts = list(item) if isinstance(item, (tuple, list)) else [item]
    rest = len(parts) - len(inputs)
    if not inputs or rest not in (0, 1):
        raise TypeError(f"data gives {len(parts)} values for each sample, and forward has {len(inputs)} inputs ({', '.join(inputs)}): "
                        "give dictionaries with the names of the inputs and of the targets")
    found = dict(zip(inputs, parts))
    if rest:
        found[_target(parts[-1], loss)] = parts[-1]
    return found


def _batches(data: Any) -> Iterator[tuple[Any, bool]]:
    """Items of a data set, or batches of a loader, with whether they are batches."""
    loads = hasattr(data, "batch_size") and hasattr(data, "dataset")
    batched = loads and data.batch_size is not None or loads and getattr(data, "batch_sampler", None) is not None
    if loads or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        for item in data:
            yield item, batched
        return
    for i in range(len(data)):
        yield data[i], False


def is_data(data: Any) -> bool:
    """Whether samples come from Python, not from a path."""
    return not isinstance(data, (str, os.PathLike))


def _arrays_of(data: Any, inputs: Sequence[str], loss: str) -> Iterable[dict[str, Any]]:
    """Parts of the data as arrays with one row per sample."""
    import numpy

    if isinstance(data, (tuple, list)) and data and all(hasattr(v, "shape") for v in data):
        yield {k: _column(k, v) for k, v in _named(data, inputs, loss).items()}
    else:
        for item, batched in _batches(data):
            yield {k: _column(k, v) if batched else numpy.expand_dims(_column(k, v), 0) for k, v in _named(item, inputs, loss).items()}


def write(data: Any, inputs: Sequence[str], loss: str, skip: Iterable[str], folder: str) -> str:
    """Writes NAME.npy for each input and target into a folder. inputs: names of forward's parameters, in order."""
    import numpy

    os.makedirs(folder, exist_ok=True)
    if isinstance(data, Mapping):
        for name, value in data.items():
            if name not in skip:
                numpy.save(os.path.join(folder, f"{name}.npy"), _column(name, value))
        return folder
    columns: dict[str, _Column] = {}
    try:
        for part in _arrays_of(data, inputs, loss):
            for name in part.keys() - set(skip):
                if name not in columns:
                    columns[name] = _Column(os.path.join(folder, f"{name}.npy"))
                columns[name].add(part[name])
    finally:
        for column in columns.values():
            column.close()
    if not columns:
        raise ValueError("data has no samples")
    if not isinstance(data, (tuple, list)):
        rows = next(iter(columns.values())).rows
        print(f"plimsoll: {rows} samples of the {type(data).__name__} are in {folder}; training reads them there, so random changes of "
              "pictures stay as they were drawn once", file=sys.stderr)
    return folder
