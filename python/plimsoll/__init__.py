"""Trains PyTorch modules and ONNX files within a memory budget.

    import plimsoll
    plimsoll.plan(module, example_inputs, memory="6GB", batch=64)
    plimsoll.train(module, example_inputs, loss="cross_entropy", data="flowers/", memory="6GB",
                   out="runs/1", batch=64, **{"train.steps": 1000})
    plimsoll.last_run().plot()

The package runs the program ``plimsoll``; nothing of the engine is in it. torch is imported when a
module is given. Every further keyword is a key of the configuration (docs/CONFIG.md, docs/TRAIN_ONNX.md):
names with dots go through a dictionary, ``**{"optim.lr": 1e-3}``.
"""

from ._export import export
from ._program import PlimsollError, program
from ._runs import Plan, Run, last_run, plan, train
from ._weights import load_weights, read_tensors

__all__ = ["Plan", "PlimsollError", "Run", "export", "last_run", "load_weights", "plan", "program",
           "read_tensors", "train"]
__version__ = "0.1.0"
