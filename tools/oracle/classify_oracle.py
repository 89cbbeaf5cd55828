#!/usr/bin/env python3
"""classify_oracle.py - a network of torchvision or timm with random weights, and its answers, for the long test of classify.

  python3 tools/oracle/classify_oracle.py NETWORK SIDE DIR

Writes DIR/model.safetensors, DIR/pictures/*.png of SIDE pixels and DIR/probability.npy [3, 7].
"""
import os
import sys

if sys.argv[1:2] in (["-h"], ["--help"]) or len(sys.argv) != 4:
    print(__doc__.strip())
    sys.exit(0 if len(sys.argv) == 2 else 2)

import numpy as np
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file

name, side, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.manual_seed(3)
os.makedirs(os.path.join(out, "pictures"), exist_ok=True)
if name == "vit_small":
    net = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=7)
elif name.startswith("timm_"):
    net = timm.create_model(name[5:], pretrained=False, num_classes=7)
else:
    net = getattr(torchvision.models, name)(num_classes=7)
for key, v in net.state_dict().items():  # no value is at its default, so that none can be left out unseen
    if v.is_floating_point():
        v.add_(0.02 * torch.rand_like(v)) if "running_var" in key else v.add_(0.02 * torch.randn_like(v))
    if key.endswith(("layer_scale", "gamma")):
        v.add_(0.3)
mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
pictures = (torch.rand(3, side, side, 3) * 256).to(torch.uint8).numpy()
x = ((torch.from_numpy(pictures).float() / 255 - mean) / std).permute(0, 3, 1, 2)
with torch.no_grad():  # a last layer of moderate size, so that no probability is 0 or 1
    spread = net.eval()(x).std()
    for key, v in net.state_dict().items():
        if key.startswith(("fc.", "head.weight", "head.bias", "head.fc.", "classifier.2.")):
            v.div_(spread)
save_file({k: v.contiguous() for k, v in net.state_dict().items()}, os.path.join(out, "model.safetensors"))
for i, p in enumerate(pictures):
    Image.fromarray(p).save(os.path.join(out, "pictures", f"{i}.png"))
with torch.no_grad():
    p = net(x).softmax(1)
np.save(os.path.join(out, "probability.npy"), p.numpy().astype("f4"))
