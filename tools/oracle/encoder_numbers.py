#!/usr/bin/env python3
"""encoder_numbers.py - tiny text encoders, their vocabularies, and the numbers that other libraries give for them.

  python3 tools/oracle/encoder_numbers.py tests/data/encoders

Writes one folder per encoder, each with weights, config.json and the files of its tokenizer, and `reference.safetensors`:
ids i32 [prompts, length] with padding, lengths i32 [prompts] (tokens without padding, before a cut), out f32 [prompts, length, width].
The prompts are the lines of prompts.txt. Models and vocabularies are random or learnt from a few sentences here; numbers are
those of transformers (umt5, distilbert, clip), open_clip (openclip) and sentencepiece (ids of umt5).
Weights are stored as f32 (distilbert), f16 (clip, openclip) and bf16 (umt5), and rounded before the numbers are made.
"""
import gzip
import json
import os
import sys
import tempfile

if sys.argv[1:2] in (["-h"], ["--help"]) or len(sys.argv) != 2:
    print(__doc__.strip())
    sys.exit(0 if len(sys.argv) == 2 else 2)

import open_clip
import sentencepiece
import torch
from open_clip.tokenizer import SimpleTokenizer
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import (CLIPTextConfig, CLIPTextModel, CLIPTokenizer, DistilBertConfig, DistilBertModel, DistilBertTokenizer,
                          UMT5Config, UMT5EncoderModel)

OUT = sys.argv[1]
LEARN = ["a photo of a red fox in the snow", "the quick brown fox jumps over the lazy dog", "a painting of a house by the sea, oil on canvas",
         "two dogs and three cats; 10, 100 and 1000 leaves", "it's theirs, isn't it? they'll say we've won", "naïve café über straße",
         "a man is walking on the beach at sunset with his dog", "猫和狗在花园里", "the words of a tokenizer are learnt from texts"] * 4
PROMPTS = ["a photo of a red fox", "", "A PHOTO of the Red Fox!", "naïve café, ÜBER straße, Ångström, İstanbul", "猫和狗 in the garden 花园",
           "emoji 🙂🙂 👩‍👩‍👧 end", "unbelievablyincomprehensibilities of antidisestablishmentarianism" + "x" * 120, "they'll, it's, I've; we'd 'tis",
           "12345 and 10x, x²+½=1", "  leading  and   inner\tspaces ", "a\u00a0b\u2003c\u200bd\ufeffe", "e\u0301 and \u00e9, \u1e9e, ǅ",
           "Привет, мир; Γειά σου Κόσμε", "한국어 텍스트", "हिन्दी में", "[SEP] [MASK] <|endoftext|> </s>", "$5+3=8 <b>bold</b> &amp; ~^|`",
           "“curly” ‘quotes’ — dashes… ¿qué?", "\ue000 private \U000e0041 tag \U0003fffe none",
           "a very long prompt that does not fit: " + "the quick brown fox jumps over the lazy dog " * 12]


def folder(name):
    path = os.path.join(OUT, name)
    os.makedirs(path, exist_ok=True)
    return path


def stir(model, dtype):
    """Moves every parameter away from its initial value and rounds to the stored type."""
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=g))
            p.copy_(p.to(dtype).float())
    return model.eval()


def tensors(model, dtype, keep=lambda name: True):
    return {k: v.detach().to(dtype).clone().contiguous() for k, v in model.state_dict().items() if keep(k)}


def pad(rows, length, end, fill):
    out, lengths = [], []
    for r in rows:
        lengths.append(len(r))
        r = r if len(r) <= length else r[:length - 1] + [end]
        out.append(r + [fill] * (length - len(r)))
    return torch.tensor(out), torch.tensor(lengths)


def reference(path, ids, lengths, out, **more):
    save_file({"ids": ids.int().contiguous(), "lengths": lengths.int(), "out": out.float().contiguous(),
               **{k: v.float().contiguous() for k, v in more.items()}}, os.path.join(path, "reference.safetensors"))


def umt5():
    path, length = folder("umt5"), 24
    with tempfile.TemporaryDirectory() as tmp:
        with open(os.path.join(tmp, "text"), "w") as f:
            f.write("\n".join(LEARN))
        sentencepiece.SentencePieceTrainer.train(
            input=os.path.join(tmp, "text"), model_prefix=os.path.join(tmp, "spiece"), vocab_size=400, model_type="unigram",
            normalization_rule_name="identity", byte_fallback=True, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
            hard_vocab_limit=False)
        with open(os.path.join(tmp, "spiece.model"), "rb") as f, open(os.path.join(path, "spiece.model"), "wb") as to:
            to.write(f.read())
    sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(path, "spiece.model"))
    ids, lengths = pad([sp.encode(t) + [1] for t in PROMPTS], length, 1, 0)
    torch.manual_seed(1)
    m = stir(UMT5EncoderModel(UMT5Config(vocab_size=sp.get_piece_size() + 6, d_model=24, d_kv=10, d_ff=40, num_layers=2, num_heads=3,
                                         relative_attention_num_buckets=8, relative_attention_max_distance=20)), torch.bfloat16)
    mask = torch.arange(length)[None] < lengths[:, None]
    with torch.no_grad():
        out = m(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    reference(path, ids, lengths, out * mask[..., None])
    m.config.save_pretrained(path)
    have = tensors(m, torch.bfloat16, lambda k: k != "encoder.embed_tokens.weight")
    names = sorted(have)
    half = {n: f"model-{1 + (i >= len(names) // 2):05d}-of-00002.safetensors" for i, n in enumerate(names)}
    for f in sorted(set(half.values())):
        save_file({n: have[n] for n in names if half[n] == f}, os.path.join(path, f), metadata={"format": "pt"})
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": half}, f)
    # the same under the names of Wan's own file
    wan = {"token_embedding.weight": have["shared.weight"], "norm.weight": have["encoder.final_layer_norm.weight"]}
    for i in range(2):
        a, b, to = f"encoder.block.{i}.layer.0.", f"encoder.block.{i}.layer.1.", f"blocks.{i}."
        wan |= {to + f"attn.{k}.weight": have[a + f"SelfAttention.{k}.weight"] for k in "qkvo"}
        wan |= {to + "pos_embedding.embedding.weight": have[a + "SelfAttention.relative_attention_bias.weight"],
                to + "norm1.weight": have[a + "layer_norm.weight"], to + "norm2.weight": have[b + "layer_norm.weight"],
                to + "ffn.gate.0.weight": have[b + "DenseReluDense.wi_0.weight"], to + "ffn.fc1.weight": have[b + "DenseReluDense.wi_1.weight"],
                to + "ffn.fc2.weight": have[b + "DenseReluDense.wo.weight"]}
    save_file(wan, os.path.join(folder("umt5-wan"), "model.safetensors"))
    m.config.save_pretrained(os.path.join(OUT, "umt5-wan"))


class Bezier(torch.nn.Module):
    """FluxFlow's activation: five neighbouring channels t, p0..p3 become one."""

    def forward(self, x):
        t, p0, p1, p2, p3 = x.unflatten(-1, (-1, 5)).unbind(-1)
        t = torch.sigmoid(t)
        return (1 - t) ** 3 * p0 + 3 * (1 - t) ** 2 * t * p1 + 3 * (1 - t) * t ** 2 * p2 + t ** 3 * p3


def distilbert():
    path, length = folder("distilbert"), 32
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(LEARN, trainers.WordPieceTrainer(vocab_size=220, special_tokens=special, initial_alphabet=list(
        "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'$+=<>&/²½приветмсγεια…“”—")))
    vocab = sorted(t.get_vocab(), key=t.get_vocab().get)
    with open(os.path.join(path, "vocab.txt"), "w") as f:
        f.write("\n".join(vocab) + "\n")
    hf = DistilBertTokenizer(vocab={w: i for i, w in enumerate(vocab)})
    ids, lengths = pad([hf(p).input_ids for p in PROMPTS], length, 3, 0)
    save = folder("distilbert-json")
    hf.backend_tokenizer.no_truncation()
    hf.backend_tokenizer.save(os.path.join(save, "tokenizer.json"), pretty=False)
    torch.manual_seed(2)
    m = stir(DistilBertModel(DistilBertConfig(vocab_size=len(vocab), dim=20, n_layers=2, n_heads=4, hidden_dim=36,
                                              max_position_embeddings=length)), torch.float32)
    mask = (torch.arange(length)[None] < lengths[:, None]).long()
    with torch.no_grad():
        out = m(input_ids=ids, attention_mask=mask).last_hidden_state
    head = stir(torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.LayerNorm(30), Bezier(), torch.nn.Linear(6, 40), torch.nn.LayerNorm(40),
                                    Bezier()), torch.float32)
    with torch.no_grad():
        vector = head(out.mean(1))
    means = (out * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    reference(path, ids, lengths, out, vector=vector, mean=means)
    m.config.save_pretrained(path)
    save_file(tensors(m, torch.float32), os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    both = {"language_model." + k: v for k, v in tensors(m, torch.float32).items()}
    both |= {"ouput_layer." + k: v for k, v in tensors(head, torch.float32).items()}
    flux = folder("fluxflow")
    save_file(both, os.path.join(flux, "text_encoder.safetensors"))
    with open(os.path.join(flux, "config.json"), "w") as f:
        json.dump({"n_heads": 4}, f)


def clip_vocabulary(path):
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Lowercase()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.train_from_iterator([x.replace(" ", "\n") for x in LEARN], trainers.BpeTrainer(
        vocab_size=460, end_of_word_suffix="</w>", initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    merges = [tuple(x) for x in json.loads(t.to_str())["model"]["merges"] if not any("Ċ" in p for p in x)]
    chars = [b for b in list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))]
    chars = [chr(b) for b in chars] + [chr(256 + k) for k in range(68)]
    words = chars + [c + "</w>" for c in chars]
    kept = []
    for a, b in merges:
        if a in words and b in words and a + b not in words:
            kept.append((a, b))
            words.append(a + b)
    words += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {w: i for i, w in enumerate(words)}
    with open(os.path.join(path, "vocab.json"), "w") as f:
        json.dump(vocab, f, ensure_ascii=False)
    with open(os.path.join(path, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in kept))
    with open(os.path.join(path, "special_tokens_map.json"), "w") as f:
        json.dump({"pad_token": "!"}, f)
    return vocab, kept


def clip():
    path, length = folder("clip"), 20
    vocab, merges = clip_vocabulary(path)
    hf = CLIPTokenizer(vocab=vocab, merges=merges, pad_token="!")
    ids, lengths = pad([hf(p).input_ids for p in PROMPTS], length, vocab["<|endoftext|>"], 0)
    hf.backend_tokenizer.save(os.path.join(folder("clip-json"), "tokenizer.json"), pretty=False)
    sizes = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=length)
    torch.manual_seed(3)
    m = stir(CLIPTextModel(CLIPTextConfig(vocab_size=len(vocab), hidden_act="gelu", eos_token_id=vocab["<|endoftext|>"],
                                          bos_token_id=vocab["<|startoftext|>"], **sizes)), torch.float16)
    with torch.no_grad():
        o = m(input_ids=ids, output_hidden_states=True)
        norm = getattr(m, "text_model", m).final_layer_norm
        before = norm(o.hidden_states[-2])
    reference(path, ids, lengths, o.last_hidden_state, penultimate=before)
    m.config.save_pretrained(path)
    got = tensors(m, torch.float16, lambda k: "position_ids" not in k)
    save_file({k if k.startswith("text_model.") else "text_model." + k: v for k, v in got.items()},
              os.path.join(path, "model.safetensors"), metadata={"format": "pt"})

    # open_clip: the list of merges alone, joined projections, a prefix as in Stable Diffusion's checkpoints
    path = folder("openclip")
    with open(os.path.join(path, "bpe_simple_vocab.txt"), "w") as f:
        f.write('"bpe_simple_vocab_16e6.txt#version: 0.2\n' + "\n".join(f"{a} {b}" for a, b in merges))
    with tempfile.TemporaryDirectory() as tmp:
        name = os.path.join(tmp, "v.txt.gz")
        with open(os.path.join(path, "bpe_simple_vocab.txt"), "rb") as f, gzip.open(name, "wb") as to:
            to.write(f.read())
        t = SimpleTokenizer(bpe_path=name, context_length=length)
    assert list(t.encoder)[:-2] == list(vocab)[:-2] and len(t.encoder) == len(vocab), "vocabularies differ"
    # open_clip also repairs texts (ftfy) and resolves HTML entities; the tokens here are of the texts as they are
    plain = CLIPTokenizer(vocab=vocab, merges=merges)
    ids, lengths = pad([plain(p).input_ids for p in PROMPTS], length, vocab["<|endoftext|>"], 0)
    for p, row in zip(PROMPTS, ids.tolist()):
        if t([p])[0].tolist() != row:
            print("open_clip changes this text first:", repr(p))
    torch.manual_seed(4)
    c = open_clip.model.CLIP(embed_dim=32, vision_cfg=open_clip.CLIPVisionCfg(layers=1, width=64, image_size=32, patch_size=16),
                             text_cfg=open_clip.CLIPTextCfg(context_length=length, vocab_size=len(vocab), width=32, heads=2, layers=3))
    stir(c, torch.float16)
    with torch.no_grad():
        for p in c.transformer.parameters():
            p.mul_(0.25).copy_(p.half().float())
        hidden, x = [], c.token_embedding(ids) + c.positional_embedding
        for block in c.transformer.resblocks:
            hidden.append(x)
            x = block(x, attn_mask=c.attn_mask)
        last, before = c.ln_final(x), c.ln_final(hidden[-1])
    reference(path, ids, lengths, before, last=last)
    keep = ("token_embedding", "positional_embedding", "transformer.", "ln_final", "text_projection")
    save_file({"cond_stage_model.model." + k: v for k, v in tensors(c, torch.float16, lambda k: k.startswith(keep)).items()},
              os.path.join(path, "model.safetensors"))


os.makedirs(OUT, exist_ok=True)
with open(os.path.join(OUT, "prompts.txt"), "w", newline="") as f:
    f.write("\n".join(PROMPTS) + "\n")
umt5()
distilbert()
clip()
