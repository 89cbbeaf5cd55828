"""Weights of a run (safetensors) back into a module."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import torch

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
          "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
          "BOOL": "bool"}


def read_tensors(path: Union[str, os.PathLike[str]]) -> dict[str, "torch.Tensor"]:
    """Reads all tensors of a safetensors file."""
    import torch

    tensors = {}
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        for name, about in header.items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            file.seek(8 + size + begin)
            data = bytearray(file.read(end - begin))
            kind = getattr(torch, _TYPES[about["dtype"]])
            flat = torch.frombuffer(data, dtype=kind) if data else torch.empty(0, dtype=kind)
            tensors[name] = flat.reshape(about["shape"])
    return tensors


def load_weights(module: "torch.nn.Module", path: Union[str, os.PathLike[str]]) -> list[str]:
    """Loads a model file of a run into the module; returns the names that the file does not have.

    A name of the file that the module does not know is an error: the file is of another module.
    The file lacks second names of tied weights, and buffers that an exporter folded.
    """
    state = module.state_dict()
    found = read_tensors(path)
    unknown = [name for name in found if name not in state]
    if unknown:
        raise KeyError(f"{os.fspath(path)}: the module has no {', '.join(unknown[:5])}"
                       + (f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""))
    missing = [name for name in state if name not in found]
    state.update({name: value.to(state[name].dtype) for name, value in found.items()})
    module.load_state_dict(state, strict=True)
    return missing
