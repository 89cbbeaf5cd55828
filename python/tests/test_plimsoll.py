"""Tests of the package against the program and torch: plan, train, weights back."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import plimsoll  # noqa: E402

import numpy  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402


class Small(nn.Module):
    """A convolution with BatchNorm and Dropout, so that all kinds of state are in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.head(self.drop(x))


def samples(n=96):
    """Pictures that are bright in a third of their rows; the class is the third."""
    rng = numpy.random.default_rng(0)
    label = numpy.arange(n) % 3
    x = rng.normal(0, 0.1, (n, 1, 9, 9)).astype("float32")
    for i, k in enumerate(label):
        x[i, 0, :, :] += float(k)
    return {"x": x, "label": label}


class Package(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.module = Small()
        self.example = torch.zeros(2, 1, 9, 9)
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def test_a_plan_tells_bytes_and_whether_they_fit(self):
        small = plimsoll.plan(self.module, self.example, batch=8, loss="cross_entropy")
        none = plimsoll.plan(self.module, self.example, batch=8, memory="1MB")
        self.assertTrue(small.fits)
        self.assertGreater(small.total_bytes, 1 << 20)
        self.assertEqual(small.parameters, sum(p.numel() for p in self.module.parameters()))
        self.assertFalse(none.fits)
        self.assertIn("does not fit", str(none))

    def test_training_loads_the_weights_back(self):
        data = samples()
        before = {k: v.clone() for k, v in self.module.state_dict().items()}
        run = plimsoll.train(self.module, self.example, loss="cross_entropy", data=data,
                             out=os.path.join(self.dir.name, "run"), batch=24,
                             **{"train.steps": 120, "optim.lr": 0.02, "data.eval_share": 0.25})
        self.module.eval()
        with torch.no_grad():
            got = self.module(torch.from_numpy(data["x"])).argmax(1).numpy()
        self.assertGreater((got == data["label"]).mean(), 0.9)
        self.assertFalse(torch.equal(before["conv.weight"], self.module.conv.weight))
        self.assertFalse(torch.equal(before["norm.running_mean"], self.module.norm.running_mean))
        self.assertGreater(run.evaluations[-1]["accuracy"], 0.9)
        self.assertIn("<svg", plimsoll.last_run().plot().svg)

    def test_frozen_parameters_and_buffers_keep_their_values(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)
                self.a.weight.requires_grad_(False)
                self.register_buffer("basis", torch.linspace(0.5, 1.5, 8))

            def forward(self, x):
                return self.b(torch.tanh(self.a(x)) * self.basis)

        module = Scaled()
        before = {k: v.clone() for k, v in module.state_dict().items()}
        data = {"x": torch.randn(32, 4), "target": torch.randn(32, 2)}

        plimsoll.train(module, torch.zeros(2, 4), loss="mse", data=data, batch=8,
                       out=os.path.join(self.dir.name, "frozen"), **{"train.steps": 5})

        after = module.state_dict()
        for name in ("a.weight", "basis"):
            self.assertTrue(torch.equal(before[name], after[name]), name)
        for name in ("a.bias", "b.weight"):
            self.assertFalse(torch.equal(before[name], after[name]), name)

    def test_predictions_equal_the_module_with_the_trained_weights(self):
        data = samples()
        out = os.path.join(self.dir.name, "run")
        run = plimsoll.train(self.module, self.example, loss="cross_entropy", data=data, out=out,
                             batch=24, **{"train.steps": 5})
        numpy.save(os.path.join(self.dir.name, "x.npy"), data["x"])
        made = run.predict(os.path.join(self.dir.name, "x.npy"),
                           os.path.join(self.dir.name, "y.npy"))
        self.module.eval()
        with torch.no_grad():
            want = self.module(torch.from_numpy(data["x"])).numpy()
        self.assertLess(abs(numpy.load(made) - want).max(), 1e-4)

    def test_the_export_leaves_the_module_as_it_was(self):
        before = {k: v.clone() for k, v in self.module.state_dict().items()}
        self.module.eval()
        plimsoll.export(self.module, self.example, os.path.join(self.dir.name, "m.onnx"))
        self.assertFalse(self.module.training)
        for name, value in self.module.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)

    def test_a_mistake_is_reported_with_the_message_of_the_program(self):
        with self.assertRaises(plimsoll.PlimsollError) as caught:
            plimsoll.plan(self.module, self.example, loss="crossentropy")
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("cross_entropy", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
