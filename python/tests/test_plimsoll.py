"""Tests of the package against the program and torch: plan, train, weights back."""

import contextlib
import io
import os
import signal
import subprocess
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


@torch.jit.script
def resized(table: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    size = 2 * x.shape[0]
    if table.shape[0] != size:
        out = torch.nn.functional.interpolate(table[None, None], [size, 3])[0, 0]
    else:
        out = table
    return out * 2


class Branching(nn.Module):
    """A parameter that one branch of an If returns as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Parameter(torch.randn(4, 3)), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(x + resized(self.table, x).mean(0))


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

    def test_data_sets_and_loaders_train_as_their_arrays_do(self):
        data = samples(40)
        x, label = torch.from_numpy(data["x"]), torch.from_numpy(data["label"])
        pairs = torch.utils.data.TensorDataset(x, label)
        named = [{"x": x[i], "label": label[i].to(torch.int16)} for i in range(40)]
        made = {"dictionary": data, "tuple": (x, label), "set": pairs, "list": named, "loader": torch.utils.data.DataLoader(pairs, batch_size=7),
                "single": torch.utils.data.DataLoader(pairs, batch_size=None)}
        losses = {}
        for name, value in made.items():
            torch.manual_seed(1)
            run = plimsoll.train(Small(), self.example, loss="cross_entropy", data=value, out=os.path.join(self.dir.name, name), batch=8,
                                 **{"train.steps": 3, "train.log_every": 1})
            losses[name] = [row["loss"] for row in run.steps]
        self.assertEqual(len(losses["loader"]), 3)
        for name, found in losses.items():
            self.assertEqual(found, losses["dictionary"], name)
        yes = (label[:, None] == torch.arange(3)).long()  # whole numbers for bce_with_logits
        for name, value in {"pairs": (x, yes), "names": {"x": x, "target": yes}}.items():
            run = plimsoll.train(Small(), self.example, loss="bce_with_logits", data=value, out=os.path.join(self.dir.name, name), batch=8,
                                 **{"train.steps": 1})
            self.assertEqual(len(run.steps), 1)
        with self.assertRaisesRegex(TypeError, "data gives 3 values for each sample, and forward has 1 inputs"):
            plimsoll.train(Small(), self.example, data=(x, label, label), out=os.path.join(self.dir.name, "three"))

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

    def test_names_of_tied_weights_and_buffers_load_strictly(self):
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(11, 4), nn.Linear(4, 11, bias=False)
                self.head.weight = self.embed.weight
                self.register_buffer("order", torch.tensor([2, 0, 1]), persistent=False)

            def forward(self, ids):
                return self.head(torch.tanh(self.embed(ids)[:, self.order]))

        data = {"ids": torch.randint(0, 11, (16, 3)), "target": torch.randn(16, 3, 11)}
        for exporter in ("torchscript", "dynamo"):
            module = Tied()
            run = plimsoll.train(module, data["ids"][:2], loss="mse(output, target)", data=data, batch=4,
                                 exporter=exporter, out=os.path.join(self.dir.name, exporter),
                                 **{"train.steps": 2})
            fresh = Tied()
            fresh.load_state_dict(plimsoll.read_tensors(run.model), strict=True)
            self.assertTrue(torch.equal(fresh.embed.weight, module.embed.weight))

    def test_what_exporters_leave_out_is_in_model_files_and_padding_has_no_gradient(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head, self.unused = nn.Embedding(6, 4, padding_idx=2), nn.Linear(4, 2), nn.Linear(3, 3)
                self.register_buffer("mask", torch.tensor([True, False, True]))
                self.register_buffer("order", torch.tensor([2, 0, 1], dtype=torch.int32))
                self.register_buffer("running_mean", torch.randn(4))  # of a norm that the module computes itself
                self.idle = nn.BatchNorm1d(3)

            def forward(self, ids):
                x = self.embed(ids)[:, self.order.long()] - self.running_mean
                return self.head((x * self.mask[None, :, None]).sum(1))

        ids = torch.tensor([[0, 2, 3], [2, 5, 2]])
        for exporter in ("torchscript", "dynamo"):
            with self.subTest(exporter), tempfile.TemporaryDirectory() as out:
                torch.manual_seed(0)
                module = Words()
                with torch.no_grad():
                    module.embed.weight[2] = 1.0  # a row that matters, and is not trained
                state = {k: v.clone() for k, v in module.state_dict().items()}
                run = plimsoll.train(module, ids, data={"ids": ids.numpy(), "target": numpy.ones((2, 2), "float32")}, out=out, loss="mse",
                                     batch=2, exporter=exporter,
                                     **{"train.steps": 3, "optim.weight_decay": 0, "optim.lr": 0.1, "data.eval_share": 0, "eval.batches": 1})
                found = plimsoll.read_tensors(run.model)
                self.assertEqual(set(found), set(state))
                for name in ("mask", "order", "running_mean", "idle.running_var", "unused.weight", "unused.bias"):
                    self.assertTrue(torch.equal(found[name], state[name]), name)
                self.assertTrue(torch.equal(found["embed.weight"][2], state["embed.weight"][2]))
                self.assertFalse(torch.equal(found["embed.weight"][3], state["embed.weight"][3]))

    def test_modules_that_draw_in_training_are_exported_as_in_evaluation(self):
        class Depth(nn.Module):
            def forward(self, x):
                return x * torch.empty_like(x[:, :1]).bernoulli_(0.5) * 2 if self.training else x

        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.depth = Depth()
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), self.depth, nn.Dropout(0.5)) for _ in range(2))

            def forward(self, x):
                for block in self.blocks:
                    x = x + block(x)
                return x

        for exporter in ("torchscript", "dynamo"):
            path = plimsoll.export(Deep(), torch.zeros(2, 4), os.path.join(self.dir.name, "deep.onnx"), exporter=exporter)
            with open(path, "rb") as file:
                text = file.read()
            self.assertFalse(b"Bernoulli" in text or b"RandomUniform" in text)
            self.assertTrue(exporter == "dynamo" or b"Dropout" in text)

    def test_files_that_are_no_valid_onnx_are_exported_in_the_other_way(self):
        class Moved(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(3, 2)

            def forward(self, x):
                return self.head(x.movedim(1, -1))

        path = os.path.join(self.dir.name, "moved.onnx")
        x = torch.randn(2, 3, 4, 5)
        plimsoll.export(Moved(), x, path)  # TorchScript writes perm [0, -2, -1, 1] where it does not know the rank
        run = plimsoll.train(path, data={"x": x.numpy(), "target": numpy.zeros((2, 4, 5, 2), "float32")}, loss="mse", batch=2,
                             out=os.path.join(self.dir.name, "moved"), **{"train.steps": 1, "data.eval_share": 0, "eval.batches": 1})
        self.assertEqual(len(run.steps), 1)

    def test_inputs_without_a_batch_keep_one_value_for_all_samples(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(3, 2)

            def forward(self, x, table, scale):
                return self.head(x * scale + table.mean(0))

        data = {"x": torch.randn(12, 3), "target": torch.randn(12, 2)}
        table, scale = torch.randn(4, 3), torch.tensor(0.5)
        numpy.save(os.path.join(self.dir.name, "x.npy"), data["x"].numpy())
        keys = {"train.steps": 3, "data.eval_share": 0, "eval.batches": 1}
        for exporter in ("torchscript", "dynamo"):
            with self.subTest(exporter), tempfile.TemporaryDirectory() as out:
                module, example = Shared(), {"x": torch.zeros(2, 3), "table": table, "scale": scale}
                self.assertTrue(plimsoll.plan(module, example, batch=4, exporter=exporter).fits)
                run = plimsoll.train(module, example, loss="mse", data=data, out=out, batch=4, exporter=exporter, **keys)
                made = run.predict(os.path.join(self.dir.name, "x.npy"), os.path.join(out, "y.npy"))
                with torch.no_grad():
                    want = module(data["x"], table, scale).numpy()
                self.assertLess(abs(numpy.load(made) - want).max(), 1e-5)

        # a table of as many rows as the example's batch looks like samples, unless inputs names it
        module, example = Shared(), {"x": torch.zeros(2, 3), "table": table[:2], "scale": scale}
        out = os.path.join(self.dir.name, "named")
        plimsoll.train(module, example, loss="mse", data=data, out=out, batch=4, inputs={"table": table[:2] + 1, "scale": 2}, **keys)
        made = plimsoll.last_run().predict(os.path.join(self.dir.name, "x.npy"), os.path.join(out, "y.npy"))
        with torch.no_grad():
            want = module(data["x"], table[:2] + 1, torch.tensor(2.0)).numpy()
        self.assertLess(abs(numpy.load(made) - want).max(), 1e-5)

    def test_ops_that_torchscript_lacks_are_exported(self):
        class Steps(nn.Module):
            def __init__(self):
                super().__init__()
                self.head, self.norm, self.plain = nn.Linear(5, 2), nn.RMSNorm(5), nn.RMSNorm(5, eps=1e-3, elementwise_affine=False)

            def forward(self, x):
                change = self.plain(self.norm(torch.diff(x, n=2, dim=-1, prepend=x[:, :2])))
                return self.head(change + (x > 0).cumsum(1) * 0.1 + (x > 1).cumsum(1, dtype=torch.float32))

        module, x = Steps(), torch.randn(6, 5)
        out = os.path.join(self.dir.name, "steps")
        numpy.save(os.path.join(self.dir.name, "x.npy"), x.numpy())
        run = plimsoll.train(module, x[:2], loss="mse", data={"x": x, "target": torch.zeros(6, 2)}, out=out, batch=3, exporter="torchscript",
                             **{"train.steps": 2, "data.eval_share": 0, "eval.batches": 1})
        made = run.predict(os.path.join(self.dir.name, "x.npy"), os.path.join(out, "y.npy"))
        with torch.no_grad():
            self.assertLess(abs(numpy.load(made) - module(x).numpy()).max(), 1e-5)

    def test_more_ops_that_torchscript_lacks_give_the_numbers_of_torch(self):
        class Ops(nn.Module):
            def __init__(self):
                super().__init__()
                self.form = nn.Bilinear(5, 5, 3)
                self.register_buffer("bounds", torch.tensor([-1.0, 0.0, 0.5]))

            def forward(self, x):
                order = x.argsort(-1)
                low, at = x.kthvalue(2, dim=1, keepdim=True)
                parts = (x.cumprod(1), low, at * 0.1, x.median(-1)[0][:, None], x.take_along_dim(order, 1),
                         0.1 * torch.searchsorted(self.bounds, x), 0.1 * torch.searchsorted(self.bounds, x.round(), side="right"),
                         torch.searchsorted(self.bounds, x, right=True) * x)
                return torch.cat((*parts, self.form(x, x * 2)), 1) * torch.vdot(x.new_ones(3), self.bounds + 1)

        module, x = Ops(), torch.randn(6, 5)
        out = os.path.join(self.dir.name, "ops")
        numpy.save(os.path.join(self.dir.name, "x.npy"), x.numpy())
        with torch.no_grad():
            wanted = module(x)
        run = plimsoll.train(module, x, loss="mse", data={"x": x, "target": wanted}, out=out, batch=3, exporter="torchscript",
                             **{"train.steps": 1, "data.eval_share": 0, "eval.batches": 1})
        self.assertLess(run.steps[0]["loss"], 1e-9)
        made = run.predict(os.path.join(self.dir.name, "x.npy"), os.path.join(out, "y.npy"))
        with torch.no_grad():
            self.assertLess(abs(numpy.load(made) - module(x).numpy()).max(), 1e-5)

    def test_dropout_stays_in_the_files_of_both_exporters(self):
        class Drops(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.norm = nn.Dropout(0.5), nn.Dropout2d(0.5), nn.BatchNorm2d(3)

            def forward(self, x):
                return nn.functional.dropout(self.b(self.a(self.norm(x))), 0.1, self.training)

        for exporter in ("torchscript", "dynamo"):
            told = io.StringIO()
            with contextlib.redirect_stderr(told):
                path = plimsoll.export(Drops(), torch.randn(4, 3, 2, 2), os.path.join(self.dir.name, "drops.onnx"), exporter=exporter)
            with open(path, "rb") as file:
                text = file.read()
            self.assertEqual(text.count(b"\x22\x07Dropout"), 3 if exporter == "torchscript" else 2)  # nodes, by their type
            self.assertFalse(b"Bernoulli" in text or b"RandomUniform" in text)
            self.assertEqual("leaves out dropout:" in told.getvalue(), exporter == "dynamo")
            self.assertTrue(all(m.training for m in self.module.modules()))

    def test_dropped_channels_are_dropped_as_a_whole(self):
        class Channels(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale, self.drop = nn.Parameter(torch.ones(1)), nn.Dropout2d(0.5)

            def forward(self, x):
                y = self.drop(x * self.scale)
                return {"spread": y.var((2, 3)), "mean": y.mean((2, 3))}

        x = torch.ones(16, 8, 3, 3)
        for exporter in ("torchscript", "dynamo"):
            data = {"x": x, "still": torch.zeros(16, 8), "one": torch.ones(16, 8)}
            loss = {}
            for term in ("mse(spread, still)", "mse(mean, one)"):
                run = plimsoll.train(Channels(), x, loss=term, data=data, out=os.path.join(self.dir.name, exporter + term[4:8]), batch=8,
                                     exporter=exporter, **{"train.steps": 1, "data.eval_share": 0.5, "eval.batches": 1})
                loss[term] = (run.steps[0]["loss"], run.evaluations[-1]["loss"])
            self.assertLess(max(loss["mse(spread, still)"]), 1e-9)
            self.assertAlmostEqual(loss["mse(mean, one)"][0], 1)  # channels are 0 or 2 in training
            self.assertLess(loss["mse(mean, one)"][1], 1e-2)  # and 1, but for the step, in evaluation

    def test_a_module_that_changes_buffers_in_training_says_so(self):
        module = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Flatten())
        for exporter in ("torchscript", "dynamo"):
            told = io.StringIO()
            with contextlib.redirect_stderr(told):
                plimsoll.export(module, torch.randn(2, 4), os.path.join(self.dir.name, "norm.onnx"), exporter=exporter)
            self.assertIn("_SpectralNorm changes buffers in training", told.getvalue())
            self.assertTrue(all(m.training for m in module.modules()))
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            plimsoll.export(self.module, self.example, os.path.join(self.dir.name, "small.onnx"))
        self.assertEqual(told.getvalue(), "")  # BatchNorm's statistics are no such buffers

    def test_where_the_batch_cannot_be_dynamic_it_is_that_of_the_example(self):
        class Kernels(nn.Module):
            def __init__(self):
                super().__init__()
                self.kernel = nn.Parameter(torch.randn(2, 1, 3))

            def forward(self, x):
                b = x.shape[0]
                kernel = (self.kernel[None] * x.mean(1)[:, None, None, None]).reshape(2 * b, 1, 3)
                return nn.functional.conv1d(x[:, None].expand(-1, 2, -1).reshape(1, 2 * b, -1), kernel, groups=2 * b).view(b, 2, -1)

        x, told = torch.randn(6, 7), io.StringIO()
        with contextlib.redirect_stderr(told):
            run = plimsoll.train(Kernels(), x[:3], loss="mse", data={"x": x, "target": torch.zeros(6, 2, 5)}, batch=3,
                                 out=os.path.join(self.dir.name, "kernels"), **{"train.steps": 1, "data.eval_share": 0, "eval.batches": 1})
        self.assertEqual(len(run.steps), 1)
        self.assertIn("the batch of the example, 3", told.getvalue())

    def test_a_module_that_torch_cannot_export_is_told_in_few_lines(self):
        class Digamma(nn.Module):
            def forward(self, x):
                return torch.digamma(x)

        with self.assertRaises(RuntimeError) as caught:
            plimsoll.export(Digamma(), torch.rand(2, 3), os.path.join(self.dir.name, "digamma.onnx"))
        text = str(caught.exception)
        self.assertIn("torchscript exporter: Exporting the operator 'aten::digamma'", text)
        self.assertIn("dynamo exporter: No ONNX function found", text)
        self.assertLess(len(text.splitlines()), 6)

    def test_indices_that_occur_twice_add(self):
        class Add(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.ones(4))
                self.register_buffer("rows", torch.tensor([0, 2, 2, 1, 0, 3]))

            def forward(self, x):
                every = torch.arange(x.shape[0])[:, None]
                put = x.new_zeros(x.shape[0], 4).index_put((every, self.rows[None]), x, accumulate=True)
                return put.index_add(1, self.rows, x, alpha=2) * self.scale

        path = os.path.join(self.dir.name, "add.onnx")
        plimsoll.export(Add(), torch.randn(2, 6), path, exporter="torchscript")
        with open(path, "rb") as file:
            text = file.read()
        self.assertEqual(text.count(b"ScatterND\x2a") + text.count(b"ScatterElements\x2a"), 2)  # both have attributes
        self.assertEqual(text.count(b"reduction\x22\x03add"), 2)

    def test_a_parameter_that_a_branch_returns_keeps_its_name(self):
        module = Branching()
        path = os.path.join(self.dir.name, "branch.onnx")
        plimsoll.export(module, torch.randn(2, 3), path, exporter="torchscript")
        names = plimsoll._proto.initializers(path)
        self.assertEqual(names, {"table", "head.weight", "head.bias"})
        run = plimsoll.train(path, data={"x": torch.randn(4, 3).numpy(), "target": numpy.zeros((4, 2), "float32")}, loss="mse", batch=2,
                             out=os.path.join(self.dir.name, "branch"), **{"train.steps": 1, "data.eval_share": 0, "eval.batches": 1})
        self.assertEqual(plimsoll.load_weights(module, run.model), [])

    def test_zeros_of_the_exporter_are_no_bias(self):
        module = nn.Sequential(nn.Conv3d(1, 2, 1, bias=False), nn.Conv3d(2, 2, 1))
        path = os.path.join(self.dir.name, "bias.onnx")
        plimsoll.export(module, torch.randn(2, 1, 2, 2, 2), path, exporter="dynamo")
        import onnx
        self.assertEqual([[name for name in n.input if name][2:] for n in onnx.load(path).graph.node if n.op_type == "Conv"], [[], ["1.bias"]])

    def test_dynamic_dimensions_keep_their_names(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(11, 4), nn.Linear(4, 11)

            def forward(self, ids):
                return self.head(self.embed(ids))

        for exporter in ("torchscript", "dynamo"):
            made = plimsoll.plan(Words(), torch.zeros(2, 5, dtype=torch.int64), dynamic={"ids": {1: "seq"}}, dims={"seq": 9},
                                 exporter=exporter, batch=3)
            self.assertTrue(made.fits)

    def test_a_file_that_the_program_refuses_is_exported_in_the_other_way(self):
        good = plimsoll._export._WAYS["torchscript"]

        def bad(module, args, kwargs, path, inputs, outputs, axes):
            good(module, args, kwargs, path, inputs, outputs, axes)
            with open(path, "r+b") as file:
                text = file.read().replace(b"ReduceMean", b"ReduceMeen")
                file.seek(0)
                file.write(text)

        plimsoll._export._WAYS["torchscript"] = bad
        try:
            self.assertTrue(plimsoll.plan(self.module, self.example, batch=8).fits)
            with self.assertRaises(plimsoll.PlimsollError) as caught:
                plimsoll.plan(self.module, self.example, batch=8, exporter="torchscript")
            self.assertIn("ReduceMeen", str(caught.exception))
        finally:
            plimsoll._export._WAYS["torchscript"] = good

    def test_outputs_do_not_take_the_names_of_inputs(self):
        class Same(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 3)

            def forward(self, sample):
                return {"sample": self.a(sample)}

        path = plimsoll.export(Same(), torch.zeros(2, 3), os.path.join(self.dir.name, "same.onnx"))
        with open(path, "rb") as file:
            self.assertIn(b"sample_out", file.read())

    def test_a_repeat_along_the_last_axis_leaves_other_constants_alone(self):
        class Repeats(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4)

            def forward(self, sample):
                b, t, _ = sample.shape
                place = torch.arange(t)[None].expand(b, -1)
                turn = torch.stack((sample.sin(), sample.cos()), 1).repeat_interleave(2, dim=-1)
                return self.a(sample) + place[..., None] + turn[:, 0, :, :4] * turn[:, 1, :, 4:]

        module, sample = Repeats().eval(), torch.randn(2, 5, 4)
        path = plimsoll.export(module, sample, os.path.join(self.dir.name, "repeat.onnx"), exporter="torchscript")
        numpy.save(os.path.join(self.dir.name, "sample.npy"), sample.numpy())
        plimsoll._program.ask(["predict", path, "batch=2", "--input", self.dir.name, "--out", os.path.join(self.dir.name, "y.npy")])
        with torch.no_grad():
            want = module(sample).numpy()
        self.assertLess(abs(numpy.load(os.path.join(self.dir.name, "y.npy")) - want).max(), 1e-5)

    def test_outputs_do_not_take_the_names_of_weights_and_inner_values(self):
        class Same(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.scale = nn.Linear(3, 3), nn.Parameter(torch.ones(3))

            def forward(self, sample):
                y = self.a(sample - sample.mean(-1, keepdim=True)) * self.scale
                return {"linear": y.relu(), "mean": y.mean(1, keepdim=True), "scale": y.exp()}

        data = {"sample": torch.randn(8, 3), "target": torch.randn(8, 1)}
        for exporter in ("torchscript", "dynamo"):
            module = Same()
            plimsoll.train(module, torch.zeros(2, 3), loss="mse(mean, target) + mse(scale_out, sample)", data=data, batch=4,
                           out=os.path.join(self.dir.name, exporter), exporter=exporter, **{"train.steps": 2})
            self.assertFalse(torch.equal(module.scale, torch.ones(3)))

    def test_an_interrupt_saves_and_the_next_call_resumes(self):
        out, steps = os.path.join(self.dir.name, "run"), 10**9
        numpy.savez(os.path.join(self.dir.name, "d.npz"), **samples())
        script = f"""
import sys; sys.path[:0] = {sys.path!r}
import plimsoll, torch
from test_plimsoll import Small
def train(steps):
    plimsoll.train(Small(), torch.zeros(2, 1, 9, 9), loss="cross_entropy", data={self.dir.name!r} + "/d.npz",
                   out={out!r}, batch=24, **{{"train.steps": steps, "train.log_every": 1}})
train(int(sys.argv[1]))
"""
        here = os.path.dirname(os.path.abspath(__file__))
        first = subprocess.Popen([sys.executable, "-c", script, str(steps)], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, cwd=here)
        seen = 0
        for line in first.stdout:
            seen += line.startswith("step")
            if seen == 3:
                break
        first.send_signal(signal.SIGINT)
        rest, errors = first.communicate(timeout=120)
        self.assertIn("KeyboardInterrupt", errors)
        done = int(plimsoll.Run(out).steps[-1]["step"])
        self.assertGreater(done, 1)
        again = subprocess.run([sys.executable, "-c", script, str(done + 3)], capture_output=True, text=True,
                               cwd=here, timeout=120, check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(int(plimsoll.Run(out).steps[-1]["step"]), done + 3)

    def test_a_notebook_shows_the_progress_and_the_plot(self):
        try:
            import nbclient
            import nbformat
        except ImportError:
            self.skipTest("nbclient is not installed")
        numpy.savez(os.path.join(self.dir.name, "d.npz"), **samples())
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (
            f"import sys; sys.path[:0] = {sys.path!r}\nimport plimsoll, torch\nfrom test_plimsoll import Small",
            f"print(plimsoll.plan(Small(), torch.zeros(2, 1, 9, 9), batch=8))\n"
            f"run = plimsoll.train(Small(), torch.zeros(2, 1, 9, 9), data={self.dir.name!r} + '/d.npz',"
            f" out={self.dir.name!r} + '/run', batch=24, **{{'train.steps': 5}})",
            "plimsoll.last_run().plot()")])
        nbclient.NotebookClient(notebook, timeout=300, resources={
            "metadata": {"path": os.path.dirname(os.path.abspath(__file__))}}).execute()
        text = "".join(o.get("text", "") for o in notebook.cells[1].outputs)
        self.assertIn("fits:", text)
        self.assertIn("loss", text)
        self.assertIn("<svg", str(notebook.cells[2].outputs[0]["data"]["image/svg+xml"]))

    def test_types_are_right(self):
        found = subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True, check=False)
        if found.returncode:
            self.skipTest("mypy is not installed")
        package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "plimsoll")
        told = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports",
                               "--follow-imports=skip", "--cache-dir", self.dir.name, package],
                              capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stdout)

    def test_a_mistake_is_reported_with_the_message_of_the_program(self):
        with self.assertRaises(plimsoll.PlimsollError) as caught:
            plimsoll.plan(self.module, self.example, loss="crossentropy")
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("cross_entropy", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
