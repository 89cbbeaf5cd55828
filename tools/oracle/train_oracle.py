#!/usr/bin/env python3
"""train_oracle.py - trains the networks of the presets tiny in PyTorch on the same files, for the long tests.

  python3 tools/oracle/train_oracle.py classify DIR STEPS     DIR/train/CLASS/*.png, DIR/eval/...; prints the accuracy
  python3 tools/oracle/train_oracle.py segment DIR STEPS      DIR/train/images, masks, ...; prints the IoU
  python3 tools/oracle/train_oracle.py text FILE STEPS        prints the loss on the last tenth of the text
  python3 tools/oracle/train_oracle.py table FILE STEPS       the last column is the target; prints the mean error

A further number is the seed (1). Optimiser, schedule, sizes and augmentation are those of the presets; the order of samples and all random draws differ.
"""
import glob
import math
import os
import sys

if sys.argv[1:2] in (["-h"], ["--help"]) or len(sys.argv) not in (4, 5):
    print(__doc__.strip())
    sys.exit(0 if len(sys.argv) == 2 else 2)

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from networks import GPT, UNet, resnet

MEAN, STD = (torch.tensor(v).reshape(3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))


def fit(net, steps, lr, warmup, batch_loss, decay=0.01, clip=None):
    plain = [p for k, p in net.named_parameters() if p.dim() < 2]
    other = [p for k, p in net.named_parameters() if p.dim() >= 2]
    opt = torch.optim.AdamW([{"params": plain, "weight_decay": 0}, {"params": other, "weight_decay": decay}], lr=lr)
    rate = lambda n: n / warmup if n < warmup else 0.5 * (1 + math.cos(math.pi * (n - warmup) / (steps - warmup)))
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)
    net.train()
    for _ in range(steps):
        opt.zero_grad()
        batch_loss().backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        schedule.step()
    return net.eval()


def pictures(paths):
    from PIL import Image
    return torch.stack([torch.from_numpy(np.array(Image.open(p).convert("RGB"))).permute(2, 0, 1) for p in paths])


def classify(root, steps):
    from torchvision.transforms import v2
    names = sorted(os.listdir(os.path.join(root, "train")))
    load = lambda part: [(p, k) for k, n in enumerate(names) for p in sorted(glob.glob(f"{root}/{part}/{n}/*.png"))]
    train, held = load("train"), load("eval")
    x, y = pictures([p for p, _ in train]), torch.tensor([k for _, k in train])
    vary = v2.Compose([v2.RandomResizedCrop(x.shape[-1], scale=(0.5, 1), antialias=True), v2.RandomHorizontalFlip()])
    net = resnet("basic", [1, 1, 1, 1], 8, len(names))

    def loss():
        at = torch.randint(len(x), (32,))
        batch = torch.stack([vary(x[i]) for i in at]).float() / 255
        return F.cross_entropy(net((batch - MEAN) / STD), y[at])

    fit(net, steps, 3e-3, 20, loss)
    with torch.no_grad():
        got = net((pictures([p for p, _ in held]).float() / 255 - MEAN) / STD).argmax(1)
    return float((got == torch.tensor([k for _, k in held])).float().mean())


def segment(root, steps):
    from PIL import Image
    masks = lambda paths: torch.stack([torch.from_numpy(np.array(Image.open(p))).long() for p in paths])
    both = lambda part: [f(sorted(glob.glob(f"{root}/{part}/{d}/*.png"))) for f, d in ((pictures, "images"), (masks, "masks"))]
    (x, y), (hx, hy) = both("train"), both("eval")
    net = UNet(3, 8, 2, False)

    def loss():
        at = torch.randint(len(x), (8,))
        flip = torch.rand(8) < 0.5
        bx = torch.where(flip[:, None, None, None], x[at].flip(3), x[at]).float() / 255
        by = torch.where(flip[:, None, None], y[at].flip(2), y[at])
        out = net((bx - MEAN) / STD)
        p, t = out.softmax(1), F.one_hot(by, 3).permute(0, 3, 1, 2).float()
        dice = (2 * (p * t).sum((0, 2, 3)) + 1) / (p.sum((0, 2, 3)) + t.sum((0, 2, 3)) + 1)
        return F.cross_entropy(out, by) + 1 - dice.mean()

    fit(net, steps, 3e-3, 10, loss)
    with torch.no_grad():
        got = net((hx.float() / 255 - MEAN) / STD).argmax(1)
    iou = [((got == k) & (hy == k)).sum() / ((got == k) | (hy == k)).sum() for k in range(3)]
    return float(sum(iou) / 3)


def text(path, steps):
    tokens = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8).long()
    cut, context = len(tokens) - len(tokens) // 10, 64
    net = GPT(256, context, 64, 4, 2)
    for k, p in net.named_parameters():
        if p.dim() > 1:
            nn.init.normal_(p, 0, 0.02 / (2 * 2) ** 0.5 if k.endswith("c_proj.weight") else 0.02)

    def loss():
        at = torch.randint(cut - context - 1, (16,))
        batch = torch.stack([tokens[i:i + context + 1] for i in at])
        return F.cross_entropy(net(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    fit(net, steps, 3e-3, 20, loss, clip=1)
    held = tokens[cut:]
    n = (len(held) - 1) // context
    rows = torch.stack([held[i * context:i * context + context + 1] for i in range(n)])
    with torch.no_grad():
        return float(F.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()))


def table(path, steps):
    import csv
    rows = list(csv.reader(open(path)))[1:]
    columns = list(zip(*rows))
    parts = []
    for c in columns[:-1]:
        try:
            v = torch.tensor([float(f) for f in c])
            parts.append(((v - v.mean()) / v.std(correction=0))[:, None])
        except ValueError:
            names = sorted(set(c))
            parts.append(F.one_hot(torch.tensor([names.index(f) for f in c]), len(names)).float())
    x, y = torch.cat(parts, 1), torch.tensor([float(f) for f in columns[-1]])
    order = torch.randperm(len(y))
    train, held = order[len(y) // 10:], order[:len(y) // 10]
    mean, std = y[train].mean(), y[train].std(correction=0)
    net = nn.Sequential(nn.Linear(x.shape[1], 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))

    def loss():
        at = train[torch.randint(len(train), (64,))]
        return F.mse_loss(net(x[at])[:, 0], (y[at] - mean) / std)

    fit(net, steps, 1e-2, 10, loss)
    with torch.no_grad():
        return float((net(x[held])[:, 0] * std + mean - y[held]).abs().mean())


torch.manual_seed(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
torch.set_num_threads(1)
print({"classify": classify, "segment": segment, "text": text, "table": table}[sys.argv[1]](sys.argv[2], int(sys.argv[3])))
