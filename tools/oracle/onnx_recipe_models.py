"""Writes the small ONNX models of tests/data/onnx, with random weights, through torch's exporter.

    python3 tools/oracle/onnx_recipe_models.py tests/data/onnx

table.onnx: 4 numbers to 3 classes. photo.onnx: pictures of 16 x 16 pixels to 6 classes, with
BatchNorm. words.onnx: tokens to logits of 11 tokens, with a dynamic length. shared.onnx: as table.onnx, with
inputs that have no batch: a scalar, and a table of any number of rows.
"""

import sys

import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, ids):
        return self.head(torch.relu(self.embed(ids)))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 16), nn.Linear(16, 3)

    def forward(self, x, rows, scale):
        return self.b(torch.relu(self.a(x * scale) @ self.a(rows).T @ rows @ self.a.weight.T))


def write(module, example, names, axes, path):
    torch.onnx.export(
        module.train(), example, path, dynamo=False, opset_version=17, input_names=names[:-1],
        output_names=names[-1:], dynamic_axes=axes, do_constant_folding=False,
        training=torch.onnx.TrainingMode.TRAINING)


def main(folder):
    torch.manual_seed(1)
    table = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    write(table, torch.zeros(2, 4), ["x", "logits"],
          {"x": {0: "batch"}, "logits": {0: "batch"}}, f"{folder}/table.onnx")
    photo = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6))
    write(photo, torch.zeros(2, 3, 16, 16), ["input", "logits"],
          {"input": {0: "batch"}, "logits": {0: "batch"}}, f"{folder}/photo.onnx")
    write(Words(), torch.zeros(2, 5, dtype=torch.int64), ["ids", "logits"],
          {"ids": {0: "batch", 1: "seq"}, "logits": {0: "batch", 1: "seq"}},
          f"{folder}/words.onnx")
    write(Shared(), (torch.zeros(2, 4), torch.zeros(5, 4), torch.tensor(1.0)), ["x", "rows", "scale", "logits"],
          {"x": {0: "batch"}, "rows": {0: "count"}, "logits": {0: "batch"}}, f"{folder}/shared.onnx")


if __name__ == "__main__":
    main(sys.argv[1])
