#!/usr/bin/env python3
"""augment_numbers.py - writes tests/data/augment.json: what torchvision's transforms make of a picture.

    augment_numbers.py > tests/data/augment.json

Each row has a transform, its drawn values and the FNV-1a hash of the bytes that it gives for the picture of
tests/datasets/test_augment.c: RandAugment's operations on PIL images, Resize with CenterCrop, RandomResizedCrop with
the drawn part. Rows of mixup and CutMix have the first numbers of each mixed picture and the labels' shares."""
import json
import sys
from unittest import mock

if sys.argv[1:2] in (["-h"], ["--help"]):
    print(__doc__.strip())
    sys.exit(0)

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment, functional as F, v2


def picture(w, h, seed):
    y, x, c = np.meshgrid(np.arange(h), np.arange(w), np.arange(3), indexing="ij")
    v = (x * (5 + c) + y * (3 + 2 * c) + (x * y) // 7 * (1 + c) + seed * 40 + (x * 7 + y * 13) % 11 * 4) % 317
    return np.minimum(v, 255 - v // 4).clip(0, 255).astype(np.uint8)


def fnv(data):
    h = 2166136261
    for b in bytes(data):
        h = ((h ^ b) * 16777619) & 0xFFFFFFFF
    return h


def rand_rows(w, h):
    spaces = autoaugment.RandAugment()._augmentation_space(31, (h, w))
    image = Image.fromarray(picture(w, h, 1))
    for index, (op, (bins, signed)) in enumerate(spaces.items()):
        for strength in (0, 1, 4, 9, 14, 15, 21, 30):
            for negative in (False, True) if signed else (False,):
                m = float(bins[strength].item()) if bins.ndim > 0 else 0.0
                m = -m if negative else m
                out = autoaugment._apply_op(image, op, m, InterpolationMode.NEAREST, None)
                yield {"what": "rand", "w": w, "h": h, "op": index, "strength": strength, "negative": negative,
                       "hash": fnv(out.tobytes())}


def crop_rows():
    for w, h, resize, side in ((61, 47, 32, 28), (47, 61, 33, 28), (64, 64, 40, 31), (90, 31, 32, 32), (40, 41, 64, 56)):
        image = Image.fromarray(picture(w, h, 2))
        out = F.center_crop(F.resize(image, resize), [side, side])
        yield {"what": "center", "w": w, "h": h, "resize": resize, "side": side, "hash": fnv(out.tobytes())}
    for w, h, x, y, cw, ch, side in ((61, 47, 3, 5, 40, 30, 28), (47, 61, 0, 20, 47, 41, 24), (64, 64, 11, 2, 28, 28, 28)):
        out = F.resized_crop(Image.fromarray(picture(w, h, 2)), y, x, ch, cw, [side, side])
        yield {"what": "resized", "w": w, "h": h, "x": x, "y": y, "cw": cw, "ch": ch, "side": side,
               "hash": fnv(out.tobytes())}


def mix_rows():
    batch = torch.stack([torch.from_numpy(picture(12, 10, s)).permute(2, 0, 1).float() / 255 for s in range(4)])
    labels = torch.arange(4)
    for share in (0.3, 0.85):
        mix = v2.MixUp(num_classes=4)
        mix._dist = mock.Mock(sample=lambda shape: torch.tensor(share, dtype=torch.float64))
        out, target = mix(batch, labels)
        yield {"what": "mixup", "share": share, "sums": out.double().sum((1, 2, 3)).tolist(),
               "first": out[:, 0, 0, :3].tolist(), "target": target[0].tolist()}
    for share, x, y in ((0.3, 3, 7), (0.85, 11, 0), (0.05, 6, 5)):
        cut = v2.CutMix(num_classes=4)
        cut._dist = mock.Mock(sample=lambda shape: torch.tensor(share, dtype=torch.float64))
        with mock.patch("torch.randint", side_effect=[torch.tensor([x]), torch.tensor([y])]):
            out, target = cut(batch, labels)
        yield {"what": "cutmix", "share": share, "x": x, "y": y, "sums": out.double().sum((1, 2, 3)).tolist(),
               "target": target[0].tolist()}


rows = list(rand_rows(37, 29)) + list(rand_rows(24, 40)) + list(crop_rows()) + list(mix_rows())
sys.stdout.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
