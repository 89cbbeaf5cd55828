"""onnx_exports.py OUT [NAME ...] - models of PyTorch libraries as ONNX files, with their numbers.

Each model is exported by both exporters of torch.onnx, at a small size, with random weights. A folder
OUT/NAME-EXPORTER has the form of the standard's node tests (model.onnx, test_data_set_0/input_K.pb and
output_K.pb: the outputs in evaluation mode), and for training target.pb and losses.txt: the learning rate
and the losses of five steps of AdamW on the mean squared difference between the first output and the target, in training mode
without dropout. tests/onnx/test_onnx_models.c runs them. Without names: all models.
"""
import copy
import pathlib
import sys
import warnings

import numpy as np
import onnx
import torch

warnings.filterwarnings("ignore")


def images(size, batch=2):
    return (torch.randn(batch, 3, size, size),)


def tokens(vocab, length=16, batch=2):
    return (torch.randint(0, vocab, (batch, length)),)


class First(torch.nn.Module):
    """The first tensor of a model's output, from named inputs."""

    def __init__(self, model, names, extra=None):
        super().__init__()
        self.model, self.names, self.extra = model, names, extra or {}

    def forward(self, *args):
        out = self.model(**dict(zip(self.names, args)), **self.extra)
        if isinstance(out, torch.Tensor):
            return out
        return (out[0] if not isinstance(out, dict) else next(iter(out.values())))


def torchvision_model(name, size, **keys):
    import torchvision
    return getattr(torchvision.models, name)(weights=None, num_classes=10, **keys), images(size, 4)


def timm_model(name, size, **keys):
    import timm
    return timm.create_model(name, pretrained=False, num_classes=10, **keys), images(size)


def deeplab():
    import torchvision
    m = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    return First(m, ["x"]), images(64)


def unet():
    from diffusers import UNet2DModel
    m = UNet2DModel(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64),
                    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
    return First(m, ["sample", "timestep"], {"return_dict": False}), (torch.randn(2, 3, 16, 16), torch.tensor([3, 7]))


def vae():
    from diffusers import AutoencoderKL
    m = AutoencoderKL(block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
                      up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4)
    return First(m, ["sample"], {"return_dict": False}), images(16)


def hugging(cls, config, vocab, extra=None, **keys):
    import transformers
    c = getattr(transformers, config)(**keys)
    m = getattr(transformers, cls)(c)
    if hasattr(m, "set_attn_implementation"):
        m.set_attn_implementation("eager" if keys.get("eager") else "sdpa")
    return First(m, ["input_ids"], extra), tokens(vocab)


def bert():
    return hugging("BertForSequenceClassification", "BertConfig", 99, vocab_size=99, hidden_size=32, num_hidden_layers=2,
                   num_attention_heads=4, intermediate_size=64, max_position_embeddings=32)


def gpt2():
    return hugging("GPT2LMHeadModel", "GPT2Config", 99, {"use_cache": False}, vocab_size=99, n_embd=32, n_layer=2, n_head=4,
                   n_positions=32)


def llama():
    return hugging("LlamaForCausalLM", "LlamaConfig", 99, {"use_cache": False}, vocab_size=99, hidden_size=32,
                   intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                   max_position_embeddings=32)


def t5():
    return hugging("T5EncoderModel", "T5Config", 99, vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)


def whisper():
    import transformers
    c = transformers.WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
                                   num_mel_bins=16, max_source_positions=24)
    m = transformers.models.whisper.modeling_whisper.WhisperEncoder(c)
    return First(m, ["input_features"]), (torch.randn(2, 16, 48),)


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.lstm = torch.nn.LSTM(16, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(48, 5)

    def forward(self, x):
        return self.head(self.lstm(self.embed(x))[0][:, -1])


class Gru(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(8, 12, num_layers=2)
        self.head = torch.nn.Linear(12, 5)

    def forward(self, x):
        return self.head(self.gru(x)[0])


class Small(torch.nn.Module):
    """A convolution network of a few kB, for the fixtures of `make test`."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.bn2 = torch.nn.BatchNorm2d(8)
        self.fc = torch.nn.Linear(8, 4)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = x + torch.nn.functional.silu(self.bn2(self.conv2(x)))
        return self.fc(x.mean((2, 3)))


class Block(torch.nn.Module):
    """A transformer of a few kB."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(20, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True,
                                                      activation="gelu")
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 20, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.layer(self.embed(x))))


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(6, 10), torch.nn.Linear(10, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


MODELS = {
    "mlp": lambda: (Mlp(), (torch.randn(4, 6),)),
    "small": lambda: (Small(), images(8, 4)),
    "block": lambda: (Block(), tokens(20, 6)),
    "lstm": lambda: (Lstm(), tokens(50, 7)),
    "gru": lambda: (Gru(), (torch.randn(6, 3, 8),)),
    "resnet18": lambda: torchvision_model("resnet18", 64),
    "resnet50": lambda: torchvision_model("resnet50", 64),
    "mobilenet_v3": lambda: torchvision_model("mobilenet_v3_small", 64),
    "efficientnet_b0": lambda: torchvision_model("efficientnet_b0", 64),
    "convnext_tiny": lambda: torchvision_model("convnext_tiny", 32),
    "vgg11": lambda: torchvision_model("vgg11_bn", 64),
    "densenet121": lambda: torchvision_model("densenet121", 64),
    "vit": lambda: timm_model("vit_tiny_patch16_224", 32, img_size=32, depth=3),
    "swin": lambda: torchvision_model("swin_t", 64),
    "deeplab": deeplab, "unet": unet, "vae": vae, "bert": bert, "gpt2": gpt2, "llama": llama, "t5": t5,
    "whisper": whisper,
}


def without_dropout(model):
    for m in model.modules():
        for name in ("p", "dropout", "drop_prob", "attention_dropout", "activation_dropout", "dropout_rate"):
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, 0.0)
    return model


def export(model, args, path, exporter):
    names = [f"in{i}" for i in range(len(args))]
    if exporter == "old":
        torch.onnx.export(model, args, path, dynamo=False, opset_version=17, input_names=names, output_names=["out"],
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)
    elif exporter == "oldeval":
        torch.onnx.export(model.eval(), args, path, dynamo=False, opset_version=17, input_names=names, output_names=["out"])
    elif exporter == "new":
        torch.onnx.export(model.eval(), args, path, dynamo=True, input_names=names, output_names=["out"], optimize=False,
                          external_data=False, verbose=False)
    else:
        torch.onnx.export(model.eval(), args, path, dynamo=True, input_names=names, output_names=["out"],
                          external_data=False, verbose=False)


def strip(path):
    """Removes what exporters note beside the graph: small files."""
    m = onnx.load(path)
    for g in [m.graph, *m.functions]:
        for n in g.node:
            n.ClearField("metadata_props")
            n.ClearField("doc_string")
    m.graph.ClearField("value_info")
    m.graph.ClearField("metadata_props")
    m.ClearField("metadata_props")
    for v in [*m.graph.input, *m.graph.output, *m.graph.initializer]:
        v.ClearField("metadata_props")
    onnx.save(m, path)


def save(array, path):
    from onnx import numpy_helper
    path.write_bytes(numpy_helper.from_array(np.ascontiguousarray(array)).SerializeToString())


def losses(model, args, target):
    """The learning rate, then the losses. Networks with BatchNorm at 1e-3 are chaotic: f32 and f64 differ."""
    bn = any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules())
    rate = 1e-4 if bn else 1e-3
    model = without_dropout(copy.deepcopy(model)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    out = [rate]
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((model(*args) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def main():
    out = pathlib.Path(sys.argv[1])
    exporters = ("old", "oldeval", "new", "newopt")
    wanted = [a for a in sys.argv[2:] if a not in exporters] or list(MODELS)
    chosen = [a for a in sys.argv[2:] if a in exporters] or exporters
    for name in wanted:
        torch.manual_seed(0)
        model, args = MODELS[name]()
        model = without_dropout(model).eval()
        for m in model.modules():  # statistics that evaluation notices
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
                m.running_mean.normal_(0, 0.1)
                m.running_var.uniform_(0.5, 1.5)
        with torch.no_grad():
            y = model(*args)
        target = torch.randn_like(y)
        trace = losses(model, args, target)
        for exporter in chosen:
            folder = out / f"{name}-{exporter}"
            data = folder / "test_data_set_0"
            data.mkdir(parents=True, exist_ok=True)
            exported = copy.deepcopy(model)
            try:
                export(exported, args, str(folder / "model.onnx"), exporter)
            except Exception as e:  # the exporter's own limits
                (folder / "skipped.txt").write_text(f"{type(e).__name__}: {str(e)[:300]}\n")
                (folder / "model.onnx").unlink(missing_ok=True)
                print(f"{name}-{exporter}: the exporter fails: {str(e).splitlines()[0][:160]}", flush=True)
                continue
            strip(str(folder / "model.onnx"))
            given = [i.name for i in onnx.load(str(folder / "model.onnx"), load_external_data=False).graph.input]
            for i, a in enumerate(args):
                if f"in{i}" in given:
                    save(a.numpy(), data / f"input_{given.index(f'in{i}')}.pb")
            with torch.no_grad():  # exporting in training mode changes running statistics
                save(exported.eval()(*args).numpy(), data / "output_0.pb")
            save(target.numpy(), data / "target.pb")
            frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
            (folder / "frozen.txt").write_text(",".join(frozen))
            # Optimising exporters fold BatchNorm into convolutions and share initializers of equal values.
            if exporter in ("old", "new"):
                (folder / "losses.txt").write_text("".join(f"{x:.9g}\n" for x in trace))
            print(f"{name}-{exporter}: {(folder / 'model.onnx').stat().st_size} bytes", flush=True)


main()
