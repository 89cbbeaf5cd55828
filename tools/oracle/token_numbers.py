#!/usr/bin/env python3
"""token_numbers.py - a small byte-level BPE vocabulary and the tokens of some texts, by the tokenizers library.

  python3 tools/oracle/token_numbers.py tests/data/tokens

Writes vocab.json, merges.txt, tokenizer.json and texts.json: [{"text": ..., "tokens": [...]}, ...].
"""
import json
import os
import sys

if sys.argv[1:2] in (["-h"], ["--help"]) or len(sys.argv) != 2:
    print(__doc__.strip())
    sys.exit(0 if len(sys.argv) == 2 else 2)

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LEARN = ["the cat sat on the mat and the dog sat on the log", "they'll say that it's theirs, won't they?",
         "numbers: 10, 100, 1000, 12345", "  two spaces and\na new line\n\n", "naïve café über straße",
         "for (int i = 0; i < n; i++) { total += i; }"]
TEXTS = ["the cat that sat", "they'll, it's, I've; we'd 'tis", "12345 and 10x", "  leading  and   inner spaces ",
         "line one\n\n  line two\t\ttab\n", "café, ÜBER-straße", "日本語 テキスト", "emoji 🙂🙂 end", "x²+½=1", "",
         "a\u00a0b\u2003c", "{total += i;}\r\n"]

t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.decoder = decoders.ByteLevel()
t.train_from_iterator(LEARN * 3, trainers.BpeTrainer(vocab_size=330, min_frequency=2,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
out = sys.argv[1]
t.model.save(out)
t.save(os.path.join(out, "tokenizer.json"), pretty=False)
with open(os.path.join(out, "texts.json"), "w") as f:
    rows = [json.dumps({"text": x, "tokens": t.encode(x).ids}) for x in TEXTS]
    f.write("[\n" + ",\n".join(rows) + "\n]\n")
