"""What a module does in training only: dropout, and buffers that forward changes. A file has one form for training and evaluation, in which only
the op Dropout knows the mode."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Iterator

Module = Any  # torch.nn.Module: torch is imported when a module is given


def say(kinds: Any, what: str, names: list[str]) -> None:
    """One line about modules, by kind, with the name of the first."""
    print(f"plimsoll: {', '.join(sorted(kinds))} {what} ({len(names)} module{'s' if len(names) > 1 else ''}, "
          f"the first is {names[0] or 'the module itself'})", file=sys.stderr)


def hold_changing_buffers(module: Module, run: Any) -> None:
    """Puts modules whose buffers of numbers change in a forward pass of training (spectral norm, moving averages of one's own) into evaluation,
    and says so. BatchNorm's statistics are the importer's."""
    import torch

    own = torch.nn.modules.batchnorm._NormBase
    watched = [(name, m, {k: b.clone() for k, b in m.named_buffers(recurse=False) if b.is_floating_point()})
               for name, m in module.named_modules() if not isinstance(m, own)]
    try:
        with torch.no_grad():
            run()
    except Exception:  # pylint: disable=broad-except
        return  # a module that cannot compute with this example in training tells so when it is exported
    changed = [(name, m) for name, m, before in watched
               if any(not torch.equal(b, before[k]) for k, b in m.named_buffers(recurse=False) if k in before)]
    for _, m in changed:
        m.training = False
    if changed:
        say({type(m).__name__ for _, m in changed},
            "changes buffers in training: exported as in evaluation, and the buffers keep their values", [name for name, _ in changed])


def lost_dropout(module: Module, run: Any) -> None:
    """Says which dropout is not in a file of the dynamo exporter: that of functions. nn.Dropout and its kin are in the file."""
    import torch
    from torch.overrides import TorchFunctionMode

    found: dict[str, None] = {}

    class Calls(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            keys = kwargs or {}
            name = getattr(func, "__name__", "")
            if name == "multi_head_attention_forward":
                share = args[10] if len(args) > 10 and keys.get("training", True) else 0.0
            elif name == "scaled_dot_product_attention":
                share = keys.get("dropout_p", args[4] if len(args) > 4 else 0.0)
            elif "dropout" in name:
                share = keys.get("p", args[1] if len(args) > 1 else 0.5) if keys.get("training", True) else 0.0
            else:
                share = 0.0
            if isinstance(share, float) and share > 0:
                found[name] = None
            return func(*args, **keys)

    was = {m: m.training for m in module.modules()}
    module.train()
    for m in module.modules():
        if stays(m):
            m.training = False
        elif isinstance(m, torch.nn.RNNBase) and m.dropout > 0:
            found[f"dropout of nn.{type(m).__name__}"] = None
    try:
        with torch.no_grad(), Calls():
            run()
    except Exception:  # pylint: disable=broad-except
        pass
    for m, mode in was.items():
        m.training = mode
    if found:
        print(f"plimsoll: the exporter leaves out {', '.join(found)}: nothing is dropped there in training. Modules nn.Dropout stay; the key dropout "
              'adds dropout behind nodes by name, dropout={"*fc1*": 0.1}', file=sys.stderr)


def stays(m: Module) -> bool:
    """Whether a module's dropout is in the file."""
    from torch import nn

    return isinstance(m, (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d))


@contextlib.contextmanager
def channels_by_ones(module: Module) -> Iterator[None]:
    """nn.Dropout1d, 2d and 3d as a dropout of ones, [N, C, 1, ...], times x: exporters lack them, or write random numbers that predictions draw, too."""
    import torch
    from torch import nn

    def forward(m: Module) -> Any:
        return lambda x: x * torch.nn.functional.dropout(x.new_ones(x.shape[:2] + (1,) * (x.dim() - 2)), m.p, m.training)

    changed = [m for m in module.modules() if isinstance(m, (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)) and "forward" not in m.__dict__]
    for m in changed:
        setattr(m, "forward", forward(m))
    try:
        yield
    finally:
        for m in changed:
            del m.forward
