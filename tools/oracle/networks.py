"""networks.py - the networks of the recipes classify, segment and text in PyTorch, for network_numbers.py and the long tests."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def resnet(kind, depths, width, classes):
    """torchvision's ResNet with `width` channels in the first stage instead of 64."""
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

    block = BasicBlock if kind == "basic" else Bottleneck
    net = ResNet(block, depths, num_classes=classes)
    net.inplanes = width
    net.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    net.bn1 = nn.BatchNorm2d(width)
    for i, n in enumerate(depths):
        setattr(net, f"layer{i + 1}", net._make_layer(block, width << i, n, stride=2 if i else 1))
    net.fc = nn.Linear((width << 3) * block.expansion, classes)
    return net


def convnext(depths, width, classes):
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    settings = [CNBlockConfig(width << i, width << (i + 1) if i < 3 else None, n) for i, n in enumerate(depths)]
    return ConvNeXt(settings, num_classes=classes)


def vit(side, patch, width, depth, heads, classes):
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(img_size=side, patch_size=patch, embed_dim=width, depth=depth, num_heads=heads,
                             num_classes=classes)


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as GPT-2 has it."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.reshape(b, t, self.heads, -1).transpose(1, 2) for p in self.c_attn(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """GPT-2 with the names of the transformers library."""

    def __init__(self, vocabulary, context, width, heads, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for layer in self.h:
            x = layer(x)
        return self.ln_f(x) @ self.wte.weight.T


class DoubleConv(nn.Module):
    def __init__(self, inputs, outputs, middle=None):
        super().__init__()
        middle = middle or outputs
        self.double_conv = nn.Sequential(
            nn.Conv2d(inputs, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, outputs))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, inputs, outputs, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(inputs, outputs, inputs // 2)
        else:
            self.up = nn.ConvTranspose2d(inputs, inputs // 2, 2, stride=2)
            self.conv = DoubleConv(inputs, outputs)

    def forward(self, x, skip):
        return self.conv(torch.cat([skip, self.up(x)], 1))


class UNet(nn.Module):
    """The U-Net of milesial/Pytorch-UNet, whose names many checkpoints have, with `levels` halvings."""

    def __init__(self, classes, width, levels, bilinear):
        super().__init__()
        half = 2 if bilinear else 1
        self.inc = DoubleConv(3, width)
        self.levels = levels
        for i in range(1, levels + 1):
            last = half if i == levels else 1
            setattr(self, f"down{i}", Down(width << (i - 1), (width << i) // last))
        for i in range(1, levels + 1):
            k = levels - i
            setattr(self, f"up{i}", Up(width << (k + 1), (width << k) // (half if k else 1), bilinear))
        self.outc = nn.Module()
        self.outc.conv = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        xs = [self.inc(x)]
        for i in range(1, self.levels + 1):
            xs.append(getattr(self, f"down{i}")(xs[-1]))
        x = xs.pop()
        for i in range(1, self.levels + 1):
            x = getattr(self, f"up{i}")(x, xs.pop())
        return self.outc.conv(x)
