"""The few protobuf messages of an ONNX file that the package reads and adds to; the file stays where it is."""

from __future__ import annotations

import contextlib
import mmap
import os
from typing import TYPE_CHECKING, Iterator, Mapping

if TYPE_CHECKING:
    import torch

GRAPH, METADATA = 7, 14  # of ModelProto
NODE, INITIALIZER = 1, 5  # of GraphProto
TYPES = {"float32": 1, "uint8": 2, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11, "bfloat16": 16}


@contextlib.contextmanager
def opened(path: str) -> Iterator[mmap.mmap]:
    """The bytes of a file, mapped."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield data


def _number(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message data[at:end]: number, begin of the field, begin and end of its contents."""
    while at < end:
        begin = at
        tag, body = _number(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _number(data, body)
        else:
            size, body = ({1: 8, 5: 4}[kind], body) if kind in (1, 5) else _number(data, body)
            at = body + size
        yield tag >> 3, begin, body, at


def graphs(data: mmap.mmap) -> list[tuple[int, int, int]]:
    """Begin of the field, begin and end of the contents of each graph of the model: one, as a rule."""
    return [part[1:] for part in fields(data, 0, len(data)) if part[0] == GRAPH]


def numbers(data: mmap.mmap, at: int, end: int) -> Iterator[int]:
    """Signed whole numbers, one after the other."""
    while at < end:
        value, at = _number(data, at)
        yield value - (1 << 64) if value >> 63 else value


def number(value: int) -> bytes:
    """A number as protobuf writes it."""
    out = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(tag: int, data: bytes) -> bytes:
    """A field of bytes."""
    return number(tag << 3 | 2) + number(len(data)) + data


def tensor(name: str, value: "torch.Tensor") -> bytes:
    """A TensorProto: dims, data_type, name, raw_data."""
    import torch

    flat = value.detach().cpu().contiguous().reshape(-1)
    raw = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    dims = b"".join(number(1 << 3) + number(size) for size in value.shape)
    kind = number(2 << 3) + number(TYPES[str(value.dtype).rpartition(".")[2]])
    return dims + kind + field(8, name.encode()) + field(9, raw)


def initializers(path: str) -> set[str]:
    """The names of the initializers."""
    with opened(path) as data:
        return {data[body:end].decode() for graph in graphs(data) for n, _, at, stop in fields(data, *graph[1:]) if n == INITIALIZER
                for key, _, body, end in fields(data, at, stop) if key == 8}


# Fields of a message that hold names, and fields that hold messages: kind of message to {field: kind of its contents}.
_NAMES = {
    "graph": {NODE: "node", INITIALIZER: "tensor", 11: "info", 12: "info", 13: "info"},
    "node": {1: "name", 2: "name", 5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
    "tensor": {8: "name"},
    "info": {1: "name"},
}


def _renamed(data: mmap.mmap, at: int, end: int, kind: str, names: Mapping[str, str]) -> list[bytes]:
    """The message data[at:end] with other names of values."""
    if kind == "name":
        old = data[at:end]
        return [names.get(old.decode(), "").encode() or old]
    out, copied = [], at
    for number_, begin, body, stop in fields(data, at, end):
        inner = _NAMES[kind].get(number_)
        if inner:
            parts = _renamed(data, body, stop, inner, names)
            out += [data[copied:begin], number(number_ << 3 | 2) + number(sum(map(len, parts))), *parts]
            copied = stop
    return [*out, data[copied:end]]


def rename(path: str, names: Mapping[str, str]) -> None:
    """Gives values of the graph and of its subgraphs other names."""
    with opened(path) as data, open(path + ".new", "wb") as out:
        begin, body, end = graphs(data)[0]
        parts = _renamed(data, body, end, "graph", names)
        out.write(data[:begin] + number(GRAPH << 3 | 2) + number(sum(map(len, parts))))
        out.writelines([*parts, data[end:]])
    os.replace(path + ".new", path)


def add_metadata(path: str, key: str, value: str) -> None:
    """Adds an entry of ModelProto.metadata_props: fields behind the end of a message belong to it."""
    with open(path, "ab") as file:
        file.write(field(METADATA, field(1, key.encode()) + field(2, value.encode())))


def add_initializers(path: str, tensors: Mapping[str, "torch.Tensor"]) -> None:
    """Appends initializers to the graph. The graph begins with its length, so the file is written anew."""
    more = b"".join(field(INITIALIZER, tensor(name, value)) for name, value in tensors.items())
    with opened(path) as data, open(path + ".new", "wb") as out:
        begin, body, end = graphs(data)[0]
        out.write(data[:begin] + number(GRAPH << 3 | 2) + number(end - body + len(more)))
        for at in range(body, end, 1 << 24):
            out.write(data[at : min(at + (1 << 24), end)])
        out.write(more + data[end:])
    os.replace(path + ".new", path)
