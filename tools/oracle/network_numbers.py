#!/usr/bin/env python3
"""network_numbers.py - PyTorch's numbers for tests/recipes/test_networks.c: the networks of classify, segment and text.

  python3 tools/oracle/network_numbers.py > tests/data/networks.json

A case is a preset with keys and the same network in PyTorch (torchvision's and timm's classes, with fewer channels).
Weights and inputs come from hashes of names (peer_numbers.py).  Written: the loss with batch statistics and that of
an evaluation, and summaries (norm, four sign projections) of the gradient of every parameter.
"""
import json
import sys

if sys.argv[1:2] in (["-h"], ["--help"]):
    print(__doc__.strip())
    sys.exit(0)

import torch
import torch.nn as nn
import torch.nn.functional as F

from networks import GPT, UNet, resnet, convnext, vit
from peer_numbers import noise, summary, uniform


def numbers(name, shape):
    """Weights of about unit gain; scales of norms and variances near 1."""
    n = 1
    for s in shape:
        n *= s
    x = torch.from_numpy(noise(name, n)).float().reshape(shape)
    if len(shape) > 1:
        return x / float(n // shape[0]) ** 0.5
    return 0.1 * x + (1 if name.endswith((".weight", "running_var")) else 0)


def fill(net):
    for key, v in net.state_dict().items():
        if v.is_floating_point():
            v.copy_(numbers(key, list(v.shape)))


def image(batch, side):
    x = torch.from_numpy(uniform("image", batch * 3 * side * side)).float().reshape(batch, 3, side, side)
    mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    return (x - mean) / std


def ints(label, shape, high):
    n = 1
    for s in shape:
        n *= s
    return torch.from_numpy((uniform(label, n) * high).astype("int64")).reshape(shape)


CASES = []


def case(preset, keys, net, loss, ignored=()):
    """loss(net): of a batch; the network is evaluated before it is trained, so that its statistics are the given ones."""
    fill(net)
    net.eval()
    with torch.no_grad():
        evaluated = float(loss(net, False))
    net.train()
    trained = loss(net, True)
    trained.backward()
    grads = {k: summary(p.grad) for k, p in net.named_parameters() if k not in ignored}
    shapes = {k: list(v.shape) for k, v in net.state_dict().items() if k not in ignored}
    CASES.append({"preset": preset, "keys": keys, "loss": float(trained.detach()), "eval": evaluated, "grads": grads,
                  "shapes": shapes})


def text():
    tokens = ints("tokens", [2, 9], 256)
    net = GPT(vocabulary=256, context=8, width=12, heads=3, layers=2)
    case("text/tiny", ["batch=2", "context=8", "model.width=12", "model.heads=3", "model.layers=2"], net,
         lambda n, train: F.cross_entropy(n(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()))


def classify(name, keys, net, smoothing=0.1):
    batch, side = 4, 32
    x, labels = image(batch, side), ints("label", [batch], 3)
    case("classify/tiny", ["network=" + name, "batch=4", "side=32", "model.classes=3", "loss.smoothing=0.1"] + keys, net,
         lambda n, train: F.cross_entropy(n(x), labels, label_smoothing=smoothing if train else 0))


def segment():
    batch, side = 2, 16
    x, mask = image(batch, side), ints("mask", [batch, side, side], 4)
    mask[mask == 3] = 255
    for keys, bilinear in ((["model.upsample=transposed"], False), (["model.upsample=bilinear"], True)):
        case("segment/tiny", ["batch=2", "height=16", "width=16", "model.classes=3", "model.width=4", "model.levels=3",
                              "loss.dice=0"] + keys, UNet(3, 4, 3, bilinear),
             lambda n, train: F.cross_entropy(n(x), mask, ignore_index=255))


if __name__ == "__main__":
    torch.manual_seed(0)
    text()
    if "--text" not in sys.argv:
        classify("resnet18", ["model.width=4", "model.depths=[2, 1, 1, 1]"], resnet("basic", [2, 1, 1, 1], 4, 3))
        classify("resnet50", ["model.width=4", "model.depths=[1, 1, 1, 1]"], resnet("bottleneck", [1, 1, 1, 1], 4, 3))
        classify("convnext_tiny", ["model.width=4", "model.depths=[1, 1, 2, 1]"], convnext([1, 1, 2, 1], 4, 3))
        classify("vit_small", ["model.width=12", "model.depths=[2]", "model.heads=3", "model.patch=8"],
                 vit(32, 8, 12, 2, 3, 3))
        segment()
    sys.stdout.write("[\n" + ",\n".join(json.dumps(c) for c in CASES) + "\n]\n")
