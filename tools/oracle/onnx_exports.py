"""onnx_exports.py OUT [NAME ...] - models of PyTorch libraries as ONNX files, with their numbers.

Each model is exported by both exporters of torch.onnx, at a small size, with random weights. A folder
OUT/NAME-EXPORTER has the form of the standard's node tests (model.onnx, test_data_set_0/input_K.pb and
output_K.pb: the outputs in evaluation mode), and for training target.pb and losses.txt: the learning rate
and the losses of five steps of AdamW on the mean squared difference between the first output and the target, in training mode
without dropout. tests/onnx/test_onnx_models.c runs them. Without names: all models.

Some networks magnify rounding: PyTorch's losses in f32 change in f64, or when weights change by a millionth (two elements of a max pool's
window change places). Their training is compared in f64, in a folder OUT/NAME-EXPORTER-f64 of the same model in f64; the folder in f32 has no losses.
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


def vgg():
    """With a small classifier: 500 MB of f32 become 38."""
    m, args = torchvision_model("vgg11_bn", 32)
    m.avgpool = torch.nn.AdaptiveAvgPool2d(1)
    m.classifier = torch.nn.Sequential(torch.nn.Linear(512, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    return m, args


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
    return hugging("T5EncoderModel", "T5Config", 99, vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                   eager=True)  # the dynamo exporter fails with scaled_dot_product_attention


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


class Fourier(torch.nn.Module):
    """A neural operator: modes of a cosine basis mixed by einsum."""

    def __init__(self):
        super().__init__()
        n, modes = 16, 6
        grid = torch.arange(n) + 0.5
        self.register_buffer("basis", torch.cos(torch.pi * grid[None] * torch.arange(modes)[:, None] / n) * (2 / n) ** 0.5)
        self.lift, self.drop = torch.nn.Conv2d(1, 8, 1), torch.nn.Conv2d(8, 1, 1)
        self.mix = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(8, 8, modes, modes) / 8) for _ in range(2))
        self.local = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 1) for _ in range(2))

    def forward(self, x):
        x = self.lift(x)
        for mix, local in zip(self.mix, self.local):
            f = torch.einsum("bchw,mh,nw->bcmn", x, self.basis, self.basis)
            f = torch.einsum("bcmn,cdmn->bdmn", f, mix)
            x = torch.nn.functional.gelu(torch.einsum("bdmn,mh,nw->bdhw", f, self.basis, self.basis) + local(x))
        return self.drop(x)


class Flow(torch.nn.Module):
    """All pairs of two feature maps, and steps that look up a warped second map."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.InstanceNorm2d(8), torch.nn.ReLU(),
                                            torch.nn.Conv2d(8, 8, 3, 1, 1))
        self.update = torch.nn.Conv2d(8 + 8 + 2 + 64, 2, 3, padding=1)

    def forward(self, a, b):
        a, b = self.features(a), self.features(b)
        n, c, h, w = a.shape
        pairs = torch.einsum("nchw,ncyx->nyxhw", a, b).reshape(n, h * w, h, w) / c ** 0.5
        y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        flow = torch.zeros(n, 2, h, w)
        for _ in range(2):
            grid = torch.stack((x, y), -1)[None] + flow.permute(0, 2, 3, 1)
            warped = torch.nn.functional.grid_sample(b, grid, align_corners=True, padding_mode="border")
            flow = flow + 0.1 * torch.tanh(self.update(torch.cat((a, warped, flow, pairs), 1)))
        return torch.nn.functional.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=False)


class Signal(torch.nn.Module):
    """A spectrum of overlapping frames, and the determinant of what is made of it."""

    def __init__(self):
        super().__init__()
        self.window = torch.nn.Parameter(torch.hann_window(16) + 0.1)
        self.mix = torch.nn.Linear(9, 4)

    def forward(self, x):
        s = torch.stft(x * 0.3, 16, 6, window=self.window, center=False, return_complex=False)
        y = self.mix((s ** 2).sum(-1).transpose(1, 2))
        return torch.linalg.det(y.transpose(1, 2) @ y / 4 + torch.eye(4))


class Straight(torch.nn.Module):
    """Codes of a table with a straight-through gradient; only the dynamo exporter keeps detach()."""

    def __init__(self):
        super().__init__()
        self.a, self.codes, self.b = torch.nn.Linear(6, 4), torch.nn.Embedding(8, 4), torch.nn.Linear(4, 3)

    def forward(self, x):
        z = self.a(x)
        nearest = self.codes(((z[:, None] - self.codes.weight.detach()) ** 2).sum(-1).argmin(1))
        return self.b(1.5 * z + 3 * (nearest - z).detach()) - nearest.sum(1, keepdim=True)


class Unet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        conv = lambda i, o: torch.nn.Sequential(torch.nn.Conv2d(i, o, 3, padding=1), torch.nn.GroupNorm(2, o), torch.nn.SiLU())
        self.a, self.b, self.c = conv(3, 8), conv(8, 16), conv(16, 32)
        self.up1, self.up2 = torch.nn.ConvTranspose2d(32, 16, 2, 2), torch.nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.d, self.e = conv(32, 16), conv(16, 8)
        self.head = torch.nn.Conv2d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(torch.nn.functional.avg_pool2d(a, 2))
        c = self.c(torch.nn.functional.max_pool2d(b, 2))
        b = self.d(torch.cat((self.up1(c), b), 1))
        return self.head(self.e(torch.cat((self.up2(b), a), 1)))


def hugged(cls, config, inputs, names, extra=None, **keys):
    import transformers
    m = getattr(transformers, cls)(getattr(transformers, config)(**keys))
    return First(m, names, extra), inputs


SMALL = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             max_position_embeddings=32)


def text_model(cls, config, **keys):
    return hugged(cls, config, tokens(99), ["input_ids"], {"use_cache": False} if "Causal" in cls else None, **{**SMALL, **keys})


def t5_full():
    return hugged("T5ForConditionalGeneration", "T5Config", tokens(99) + tokens(99, 8), ["input_ids", "decoder_input_ids"],
                  {"use_cache": False}, vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                  decoder_start_token_id=0)


def segformer():
    return hugged("SegformerForSemanticSegmentation", "SegformerConfig", images(64), ["pixel_values"], num_labels=4,
                  depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=16)


def wav2vec():
    return hugged("Wav2Vec2ForCTC", "Wav2Vec2Config", (torch.randn(2, 800),), ["input_values"], hidden_size=32, vocab_size=12,
                  num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16), conv_kernel=(10, 3),
                  conv_stride=(5, 2), num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
                  mask_time_prob=0.0, layerdrop=0.0)


def clip_vision():
    return hugged("CLIPVisionModelWithProjection", "CLIPVisionConfig", images(32), ["pixel_values"], hidden_size=32,
                  intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, projection_dim=16)


def clip_text():
    return hugged("CLIPTextModelWithProjection", "CLIPTextConfig", tokens(99), ["input_ids"], hidden_size=32, vocab_size=99,
                  intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32, projection_dim=16,
                  eos_token_id=98)


# Models that the importer was not written for; `others` on the command line exports them.
OTHERS = {
    "regnet": lambda: timm_model("regnety_002", 64),
    "mobilevit": lambda: timm_model("mobilevit_xxs", 64),
    "efficientnetv2": lambda: timm_model("tf_efficientnetv2_b0", 64),
    "maxvit": lambda: timm_model("maxvit_pico_rw_256", 64, img_size=64),
    "swinv2": lambda: timm_model("swinv2_cr_tiny_ns_224", 64, img_size=64, window_size=2, depths=(1, 1, 2, 1), embed_dim=48),
    "deit": lambda: timm_model("deit_tiny_distilled_patch16_224", 32, img_size=32, depth=2),
    "beit": lambda: timm_model("beitv2_base_patch16_224", 32, img_size=32, depth=2, embed_dim=48, num_heads=4),
    "mixer": lambda: timm_model("mixer_s32_224", 64, img_size=64, num_blocks=2, embed_dim=64),
    "coatnet": lambda: timm_model("coatnet_pico_rw_224", 64, img_size=64),
    "convmixer": lambda: timm_model("convmixer_768_32", 56),
    "pvt": lambda: timm_model("pvt_v2_b0", 64),
    "shufflenet": lambda: torchvision_model("shufflenet_v2_x0_5", 64),
    "googlenet": lambda: torchvision_model("googlenet", 64, aux_logits=False, init_weights=False),
    "segformer": segformer, "wav2vec": wav2vec, "clip_vision": clip_vision, "clip_text": clip_text, "t5_full": t5_full,
    "distilbert": lambda: hugged("DistilBertForSequenceClassification", "DistilBertConfig", tokens(99), ["input_ids"],
                                 vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32),
    "roberta": lambda: text_model("RobertaForMaskedLM", "RobertaConfig"),
    "albert": lambda: text_model("AlbertForMaskedLM", "AlbertConfig", embedding_size=16),
    "opt": lambda: text_model("OPTForCausalLM", "OPTConfig", ffn_dim=64, word_embed_proj_dim=32),
    "gptneox": lambda: text_model("GPTNeoXForCausalLM", "GPTNeoXConfig"),
    "mistral": lambda: text_model("MistralForCausalLM", "MistralConfig", num_key_value_heads=2, sliding_window=8),
    "qwen": lambda: text_model("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2),
    "gemma": lambda: text_model("GemmaForCausalLM", "GemmaConfig", num_key_value_heads=1, head_dim=8),
    "fourier": lambda: (Fourier(), (torch.randn(2, 1, 16, 16),)),
    "flow": lambda: (Flow(), (torch.randn(2, 3, 16, 16), torch.randn(2, 3, 16, 16))),
    "unet_plain": lambda: (Unet(), images(16)),
}
MODELS = {
    "mlp": lambda: (Mlp(), (torch.randn(4, 6),)),
    "small": lambda: (Small(), images(8, 4)),
    "block": lambda: (Block(), tokens(20, 6)),
    "lstm": lambda: (Lstm(), tokens(50, 7)),
    "gru": lambda: (Gru(), (torch.randn(6, 3, 8),)),
    "straight": lambda: (Straight(), (torch.randn(5, 6),)),
    "signal": lambda: (Signal(), (torch.randn(3, 60),)),
    "resnet18": lambda: torchvision_model("resnet18", 64),
    "resnet50": lambda: torchvision_model("resnet50", 64),
    "mobilenet_v3": lambda: torchvision_model("mobilenet_v3_small", 64),
    "efficientnet_b0": lambda: torchvision_model("efficientnet_b0", 64),
    "convnext_tiny": lambda: torchvision_model("convnext_tiny", 32),
    "vgg11": vgg,
    "densenet121": lambda: torchvision_model("densenet121", 64),
    "vit": lambda: timm_model("vit_tiny_patch16_224", 32, img_size=32, depth=3),
    "swin": lambda: torchvision_model("swin_t", 64),
    "deeplab": deeplab, "unet": unet, "vae": vae, "bert": bert, "gpt2": gpt2, "llama": llama, "t5": t5,
    "whisper": whisper,
}


def without_dropout(model):
    for m in model.modules():
        for name in ("p", "dropout", "drop_prob", "attention_dropout", "activation_dropout", "dropout_rate", "drop_rate"):
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
    """The learning rate, a number of f32, then the losses. Networks with BatchNorm are chaotic at a rate of 1e-3: f32 and f64 differ."""
    bn = any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in model.modules())
    rate = 2.0 ** -13 if bn else 2.0 ** -10
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


def widened(model):
    """The model in f64, with the epsilons of its ONNX file, which are f32."""
    model = copy.deepcopy(model).double()
    for m in model.modules():
        for name in ("eps", "variance_epsilon"):
            if isinstance(getattr(m, name, None), float):
                setattr(m, name, float(np.float32(getattr(m, name))))
    return model


def double(args):
    return tuple(a.double() if a.is_floating_point() else a for a in args)


def nudged(model, seed):
    """The model with weights changed by a millionth: as much as gradients differ between kernels."""
    model = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-6 * torch.randn(p.shape, generator=generator))
    return model


def unstable(*traces):
    """Whether rounding changes a loss by more than a third of the tests' tolerance."""
    return any(max(x) - min(x) > 3e-5 * max(1, abs(x[0])) for x in zip(*traces))


def write(folder, model, args, exporter, target, trace):
    """Writes one folder; False: the exporter fails."""
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    (folder / "losses.txt").unlink(missing_ok=True)
    exported = copy.deepcopy(model)
    try:
        export(exported, args, str(folder / "model.onnx"), exporter)
    except Exception as e:  # the exporter's own limits
        (folder / "skipped.txt").write_text(f"{type(e).__name__}: {str(e)[:300]}\n")
        (folder / "model.onnx").unlink(missing_ok=True)
        print(f"{folder.name}: the exporter fails: {str(e).splitlines()[0][:160]}", flush=True)
        return
    strip(str(folder / "model.onnx"))
    given = [i.name for i in onnx.load(str(folder / "model.onnx"), load_external_data=False).graph.input]
    for i, a in enumerate(args):
        if f"in{i}" in given:
            save(a.numpy(), data / f"input_{given.index(f'in{i}')}.pb")
    with torch.no_grad():  # exporting in training mode changes running statistics
        save(exported.eval()(*args).numpy(), data / "output_0.pb")
    save(target.numpy(), data / "target.pb")
    frozen = [n for n, p in model.named_parameters() if not p.requires_grad]
    frozen += [n for n, b in model.named_buffers() if b.is_floating_point() and not n.endswith(("running_mean", "running_var"))]
    (folder / "frozen.txt").write_text(",".join(frozen))
    # Optimising exporters fold BatchNorm into convolutions and share initializers of equal values.
    if exporter in ("old", "new") and trace:
        (folder / "losses.txt").write_text("".join(f"{x:.12g}\n" for x in trace))
    print(f"{folder.name}: {(folder / 'model.onnx').stat().st_size} bytes", flush=True)


def main():
    out = pathlib.Path(sys.argv[1])
    exporters = ("old", "oldeval", "new", "newopt")
    wanted = [a for a in sys.argv[2:] if a not in exporters] or list(MODELS)
    if wanted == ["others"]:
        wanted = list(OTHERS)
    chosen = [a for a in sys.argv[2:] if a in exporters] or exporters
    from onnx_more import LATE, MORE  # they use the functions above
    from onnx_zoo import ZOO
    for name in wanted:
        torch.manual_seed(0)
        try:
            model, args = {**MODELS, **OTHERS, **ZOO, **MORE, **LATE}[name]()
        except Exception as e:  # another version of the library
            print(f"{name}: the library fails: {str(e).splitlines()[0][:160]}", flush=True)
            continue
        model = without_dropout(model).eval()
        for m in model.modules():  # statistics that evaluation notices
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm):
                m.running_mean.normal_(0, 0.1)
                m.running_var.uniform_(0.5, 1.5)
        with torch.no_grad():
            y = model(*args)
        target = torch.randn_like(y)
        trace = losses(model, args, target)
        try:
            wide = widened(model)
            exact = losses(wide, double(args), target.double())
        except RuntimeError:  # a library's code that is f32 only
            exact = trace
        shaky = unstable(trace, exact, *(losses(nudged(model, i), args, target) for i in range(3)))
        for exporter in chosen:
            write(out / f"{name}-{exporter}", model, args, exporter, target, None if shaky else trace)
            if shaky and exporter in ("old", "new"):
                write(out / f"{name}-{exporter}-f64", wide, double(args), exporter, target.double(), exact)


if __name__ == "__main__":
    main()
