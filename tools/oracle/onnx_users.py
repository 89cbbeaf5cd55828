"""onnx_users.py OUT PROGRAM [NAME ...] - models of PyTorch's libraries through the package for Python, there and back.

For each model and each exporter of torch.onnx: plimsoll.train for five steps of AdamW, whose losses must be PyTorch's within 1e-4 (in f64 for networks that magnify rounding); the trained weights must load
with strict=True; the results of `plimsoll predict` and of ONNX Runtime with the exported file must be those of the module with these weights.
Prints a line per model, "ok" or what differs; the exit code is the number of failures. Models are small and have random weights (MODELS and
OTHERS of onnx_exports.py, and those below, which the importer was not written for). Names: those models only; "list", "others", "new", "zoo", "more", "late", "unseen", "fresh", "held", "drawn", "own", "guest": a group; "timm:NAME": any model of
timm, at 64 pixels.
"""
import copy
import math
import os
import pathlib
import shutil
import sys
import traceback
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
import numpy as np  # noqa: E402
import onnx_exports as models  # noqa: E402
import torch  # noqa: E402
from onnx_exports import First, hugged, images, text_model, timm_model, tokens  # noqa: E402
from onnx_drawn import DRAWN  # noqa: E402
from onnx_fresh import FRESH, HELD  # noqa: E402
from onnx_more import LATE, MORE  # noqa: E402
from onnx_own import OWN  # noqa: E402
from onnx_unseen import GUEST, UNSEEN  # noqa: E402
from onnx_zoo import ZOO  # noqa: E402
from torch import nn  # noqa: E402

warnings.filterwarnings("ignore")


class Video(nn.Module):
    """3-D convolutions with BatchNorm and a transposed one."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv3d(3, 8, 3, (1, 2, 2), 1), nn.Conv3d(8, 16, (3, 1, 1), 1, (1, 0, 0), groups=2)
        self.norm, self.up = nn.BatchNorm3d(8), nn.ConvTranspose3d(16, 4, (1, 2, 2), (1, 2, 2))

    def forward(self, clip):
        x = torch.relu(self.norm(self.a(clip)))
        x = nn.functional.avg_pool3d(self.b(x), (2, 1, 1))
        return self.up(nn.functional.leaky_relu(x, 0.1))


class Messages(nn.Module):
    """A network on a graph: edges gather from nodes and scatter to nodes."""

    def __init__(self):
        super().__init__()
        self.edge, self.node, self.out = nn.Linear(16, 8), nn.GRUCell(8, 8), nn.Linear(8, 3)

    def forward(self, nodes, source, sink):
        b, n, c = nodes.shape
        x = nodes
        for _ in range(2):
            pick = lambda index: torch.gather(x, 1, index.unsqueeze(-1).expand(-1, -1, c))
            message = torch.relu(self.edge(torch.cat((pick(source), pick(sink)), -1)))
            total = torch.zeros_like(x).scatter_add(1, sink.unsqueeze(-1).expand(-1, -1, c), message)
            x = self.node(total.reshape(b * n, c), x.reshape(b * n, c)).reshape(b, n, c)
        return self.out(x.amax(1))


class Rotary(nn.Module):
    """Attention of one's own: RoPE, grouped heads, a window, a learnt bias, a gate."""

    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32, bias=False)
        self.bias, self.gate, self.norm = nn.Parameter(torch.zeros(4, 9, 9)), nn.Linear(32, 32), nn.RMSNorm(32)
        position = torch.arange(9)[:, None] / 100 ** (torch.arange(4) / 4)
        self.register_buffer("cos", position.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", position.sin().repeat(1, 2), persistent=False)
        self.register_buffer("seen", torch.ones(9, 9).tril().triu(-4).bool(), persistent=False)

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat((-b, a), -1) * self.sin

    def forward(self, x):
        n = self.norm(x)
        q = self.q(n).unflatten(-1, (4, 8)).transpose(1, 2)
        k, v = self.kv(n).unflatten(-1, (2, 2, 8)).permute(2, 0, 3, 1, 4).repeat_interleave(2, 2)
        s = self.turn(q) @ self.turn(k).mT / 8 ** 0.5 + self.bias
        p = s.masked_fill(~self.seen, float("-inf")).softmax(-1)
        return x + self.o((p @ v).transpose(1, 2).flatten(2) * torch.sigmoid(self.gate(n)))


class Sequence(nn.Module):
    """GRU and LSTM in both directions, layer norm between them, packed by a mask."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.GRU(6, 10, bidirectional=True, batch_first=True), nn.LSTM(20, 8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(20), nn.Linear(16, 4)

    def forward(self, x, mask):
        y, last = self.a(x)
        z, (h, _) = self.b(self.norm(y) * mask.unsqueeze(-1))
        return self.head(torch.cat((z.mean(1), h[-1]), -1))


class Tied(nn.Module):
    """An autoencoder whose decoder uses the encoder's weights, and a layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(40, 16), nn.Linear(16, 40, bias=False)
        self.head.weight = self.embed.weight
        self.layer = nn.Sequential(nn.Linear(16, 16), nn.Mish())
        self.again = self.layer

    def forward(self, ids):
        return self.head(self.again(self.layer(self.embed(ids))))


class Odd(nn.Module):
    """Uncommon layers: PReLU, instance norm, pixel shuffle, unfold, adaptive pools, grid_sample, einsum, cumsum, top-k."""

    def __init__(self):
        super().__init__()
        self.a, self.act, self.norm = nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect"), nn.PReLU(16), nn.InstanceNorm2d(16, affine=True)
        self.b, self.mix = nn.Conv2d(4, 6, 1), nn.Parameter(torch.randn(6, 6) / 3)
        self.c = nn.Linear(6 * 9, 12)

    def forward(self, x):
        x = nn.functional.pixel_shuffle(self.norm(self.act(self.a(x))), 2)
        x = torch.einsum("nchw,cd->ndhw", self.b(x), self.mix).cumsum(2)
        y = nn.functional.unfold(x, 3, stride=3).mean(2)
        return self.c(y) + torch.topk(x.flatten(2), 2).values.flatten(1)


def diffusion(cls, inputs, names, **keys):
    import diffusers
    return First(getattr(diffusers, cls)(**keys), names, {"return_dict": False}), inputs


def condition_unet():
    return diffusion("UNet2DConditionModel", (torch.randn(2, 4, 16, 16), torch.tensor([3, 7]), torch.randn(2, 5, 12)),
                     ["sample", "timestep", "encoder_hidden_states"], sample_size=16, layers_per_block=1, block_out_channels=(32, 64),
                     cross_attention_dim=12, attention_head_dim=8, norm_num_groups=8,
                     down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))


def dit():
    return diffusion("DiTTransformer2DModel", (torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.tensor([1, 0])),
                     ["hidden_states", "timestep", "class_labels"], num_attention_heads=2, attention_head_dim=8, in_channels=4,
                     num_layers=2, sample_size=8, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=8)


def transformer2d():
    return diffusion("Transformer2DModel", (torch.randn(2, 16, 8, 8), torch.randn(2, 5, 12)), ["hidden_states", "encoder_hidden_states"],
                     num_attention_heads=2, attention_head_dim=8, in_channels=16, num_layers=1, cross_attention_dim=12, norm_num_groups=8)


def vq():
    return diffusion("VQModel", images(16), ["sample"], block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
                     up_block_types=("UpDecoderBlock2D",) * 2, num_vq_embeddings=24, norm_num_groups=8)


def unet1d():
    return diffusion("UNet1DModel", (torch.randn(2, 14, 16), torch.tensor([3, 7])), ["sample", "timestep"], sample_size=16, in_channels=14,
                     out_channels=14, block_out_channels=(16, 32), down_block_types=("DownResnetBlock1D",) * 2, up_block_types=("UpResnetBlock1D",),
                     mid_block_type="MidResTemporalBlock1D", out_block_type="OutConv1DBlock", time_embedding_type="positional", norm_num_groups=8,
                     use_timestep_embedding=True, act_fn="mish")


def dinov2():
    return hugged("Dinov2ForImageClassification", "Dinov2Config", images(28), ["pixel_values"], hidden_size=32, num_hidden_layers=2,
                  num_attention_heads=4, image_size=28, patch_size=7, mlp_ratio=2, num_labels=4)


def vision(cls, config, size, **keys):
    return hugged(cls, config, images(size), ["pixel_values"], hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                  intermediate_size=64, **{"image_size": size, **keys})


NEW = {
    "edgenext": lambda: timm_model("edgenext_xx_small", 64),
    "ghostnet": lambda: timm_model("ghostnet_050", 64),
    "levit": lambda: timm_model("levit_128s", 224),
    "poolformer": lambda: timm_model("poolformerv2_s12", 64),
    "coat": lambda: timm_model("coat_lite_tiny", 64, img_size=64),
    "xcit": lambda: timm_model("xcit_nano_12_p16_224", 32, img_size=32, depth=2),
    "nfnet": lambda: timm_model("nf_regnet_b0", 64),
    "resnest": lambda: timm_model("resnest14d", 64),
    "cait": lambda: timm_model("cait_xxs24_224", 32, img_size=32, depth=2),
    "twins": lambda: timm_model("twins_svt_small", 64, img_size=64, depths=(1, 1, 2, 1)),
    "focalnet": lambda: timm_model("focalnet_tiny_srf", 64),
    "fastvit": lambda: timm_model("fastvit_t8", 64),
    "davit": lambda: timm_model("davit_tiny", 64),
    "hrnet": lambda: timm_model("hrnet_w18_small", 64),
    "electra": lambda: text_model("ElectraForTokenClassification", "ElectraConfig", embedding_size=16, num_labels=3),
    "bloom": lambda: text_model("BloomForCausalLM", "BloomConfig", n_layer=2, n_head=4),
    "phi": lambda: text_model("PhiForCausalLM", "PhiConfig", partial_rotary_factor=0.5),
    "falcon": lambda: text_model("FalconForCausalLM", "FalconConfig", alibi=False, multi_query=True),
    "deberta": lambda: text_model("DebertaV2ForSequenceClassification", "DebertaV2Config", relative_attention=True, position_buckets=8,
                                  pos_att_type=["p2c", "c2p"], max_relative_positions=16),
    "mamba": lambda: text_model("MambaForCausalLM", "MambaConfig", state_size=4, expand=2, conv_kernel=3, time_step_rank=4),
    "bart": lambda: hugged("BartForConditionalGeneration", "BartConfig", tokens(99) + tokens(99, 8), ["input_ids", "decoder_input_ids"],
                           vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                           decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32),
    "dinov2": dinov2, "dit": dit, "unet_condition": condition_unet, "transformer2d": transformer2d, "vq": vq, "unet1d": unet1d,
    "yolos": lambda: vision("YolosForObjectDetection", "YolosConfig", 32, image_size=[32, 32], patch_size=8, num_detection_tokens=3),
    "siglip": lambda: vision("SiglipVisionModel", "SiglipVisionConfig", 32, patch_size=8),
    "video": lambda: (Video(), (torch.randn(2, 3, 4, 8, 8),)),
    "messages": lambda: (Messages(), (torch.randn(3, 7, 8), torch.randint(0, 7, (3, 12)), torch.randint(0, 7, (3, 12)))),
    "rotary": lambda: (Rotary(), (torch.randn(2, 9, 32),)),
    "sequence": lambda: (Sequence(), (torch.randn(2, 6, 6), torch.ones(2, 6))),
    "tied": lambda: (Tied(), tokens(40, 7)),
    "odd": lambda: (Odd(), images(6)),
}
# gru reads time first: its rows are no samples.
GROUPS = {"list": {k: v for k, v in models.MODELS.items() if k != "gru"}, "others": models.OTHERS, "new": NEW, "zoo": ZOO, "more": MORE, "late": LATE,
          "unseen": UNSEEN, "fresh": FRESH, "held": HELD, "drawn": DRAWN, "own": OWN,
          "guest": GUEST}


def prepare(name):
    """The module, its keyword arguments, the name of its first output, the output, all without dropout."""
    torch.manual_seed(0)
    every = {name: make for group in GROUPS.values() for name, make in group.items()}
    module, args = every[name]() if name in every else timm_model(name.removeprefix("timm:"), 64)
    if isinstance(module, First):  # the library's module itself, as a user has it
        inner = module.model
        example = dict(zip(module.names, args))
        if hasattr(inner, "config") and hasattr(inner.config, "use_cache"):
            inner.config.use_cache = False
        module = inner
    else:
        import inspect
        example = dict(zip(inspect.signature(module.forward).parameters, args))
    module = models.without_dropout(module).eval()
    with torch.no_grad():
        result = module(**example)
    from plimsoll._export import _flat, _outputs
    return module, example, _outputs(module, (), example)[0], _flat(result)[0]


def torch_losses(module, example, target, rate):
    from plimsoll._export import _flat
    module = copy.deepcopy(module).train()
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=rate, weight_decay=0.01)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = ((_flat(module(**example))[0] - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def evaluate(module, example):
    from plimsoll._export import _flat
    with torch.no_grad():
        return _flat(module.eval()(**example))[0].numpy()


def differ(got, want):
    """The largest difference, relative to the size of the numbers."""
    return float(np.abs(got - want).max() / max(1.0, np.abs(want).max())) if got.shape == want.shape else math.inf


def strict(module, path):
    from safetensors.torch import load_file
    found = module.state_dict()  # MNASNet wants the versions that a state_dict has beside its tensors
    found.clear()
    found.update(load_file(path))
    module.load_state_dict(found, strict=True)


def try_model(name, exporter, out, wide=False):
    """Faults and a note. Where PyTorch's own losses in f32 depend on rounding, training is compared in f64."""
    import onnxruntime
    import plimsoll
    module, example, output, value = prepare(name)
    if wide:
        module = models.widened(module)
        example, value = {k: models.double((v,))[0] for k, v in example.items()}, value.double()
    start = copy.deepcopy(module)
    alone = plimsoll._export.without_batch(module, example)
    batch = next(v for k, v in example.items() if k not in alone).shape[0]
    norms = any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())
    rate = 2.0 ** -13 if norms else 2.0 ** -10  # numbers of f32
    target = torch.randn_like(value)
    want = torch_losses(start, example, target, rate)
    while wide and rate > 2.0 ** -20 and models.unstable(want, torch_losses(models.nudged(start, 0), example, target, rate)):
        rate /= 4  # five steps of Adam's size can leave the region in which PyTorch itself repeats its losses
        want = torch_losses(start, example, target, rate)
    shaky = not wide and models.unstable(want, *(torch_losses(models.nudged(start, i), example, target, rate) for i in range(1)))
    folder = out / f"{name.replace(':', '_')}-{exporter}{'-f64' if wide else ''}"
    shutil.rmtree(folder, ignore_errors=True)  # a run in it would be resumed
    folder.mkdir(parents=True)
    wanted = "target" if "target" not in example else "wanted"
    run = plimsoll.train(module, example, loss=f"mse({output}, {wanted})", data={**example, wanted: target}, out=folder, batch=batch,
                         exporter=exporter, **{"train.steps": 5, "train.log_every": 1, "optim.lr": rate, "data.eval_share": 0, "eval.batches": 1})
    have = [row["loss"] for row in run.steps]
    faults = []
    worst = max(abs(a - b) / max(1, abs(b)) for a, b in zip(have, want))
    note = f"losses within {worst:.1g}{' in f64' if wide else ''}"
    if shaky:
        wider, note = try_model(name, exporter, out, True)
        faults += [f"in f64: {fault}" for fault in wider]
    if len(have) != 5 or worst > 1e-4 and not shaky:
        faults.append(f"losses {have}, PyTorch {want}")
    fresh = copy.deepcopy(start)
    try:
        strict(fresh, run.model)
    except Exception as error:
        faults.append(f"strict: {str(error)[:300]}")
        fresh = module
    expected = evaluate(fresh, example)
    plimsoll._program.ask(["export", str(folder), "--as", "onnx", "--out", str(folder / "trained.onnx")])
    if not wide:  # ONNX Runtime has no convolutions in f64
        onnxruntime.set_default_logger_severity(3)
        options = onnxruntime.SessionOptions()  # the optimiser of 1.31 crashes on some files, torch's own too
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(str(folder / "trained.onnx"), options, providers=["CPUExecutionProvider"])
            given = {i.name: example[i.name].numpy() for i in session.get_inputs()}
            away = differ(session.run([output], given)[0], expected)
            if away > 1e-4:
                faults.append(f"ONNX Runtime differs by {away:.2g}")
        except Exception as error:
            if "NOT_IMPLEMENTED" not in str(error):  # it has no products in bf16
                raise
            note += ", not compared with ONNX Runtime, which lacks an op or type"
    inputs = folder / "data"
    (inputs / f"{wanted}.npy").unlink()
    run.predict(inputs, folder / "results", batch=batch)
    away = differ(np.load(folder / "results" / f"{output}.npy"), expected)
    if away > 1e-4:
        faults.append(f"predict differs by {away:.2g}")
    return faults, note


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    os.environ["PLIMSOLL"] = sys.argv[2]
    exporters = [a for a in sys.argv[3:] if a in ("dynamo", "torchscript")] or ["dynamo", "torchscript"]
    wanted = [a for a in sys.argv[3:] if a not in exporters] or ["new"]
    names = [n for a in wanted for n in (GROUPS[a] if a in GROUPS else [a])]
    bad = 0
    console = sys.stdout
    for name in names:
        for exporter in exporters:
            with open(out / f"{name.replace(':', '_')}-{exporter}.txt", "w", encoding="utf-8") as log:
                sys.stdout = log
                try:
                    faults, note = try_model(name, exporter, out)
                except Exception as error:
                    traceback.print_exc(file=log)
                    faults, note = [f"{type(error).__name__}: {str(error)[:600]}"], ""
                sys.stdout = console
            bad += bool(faults)
            print(f"{name} {exporter}: {'; '.join(faults) or 'ok, ' + note}", flush=True)
    sys.exit(min(bad, 99))


main()
