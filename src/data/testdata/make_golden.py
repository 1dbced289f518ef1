"""Makes the golden files of this folder with the reference tokenizers.

    pip install tokenizers==0.23.3
    python make_golden.py

Reads sample.txt. Writes <pattern>.json (the reference trainer's tokenizer of 700 tokens) and
ids.json (strings and their ids under both tokenizers).
"""

import json
import os
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE_TOKENIZERS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "cl100k": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(CL100K), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}

# Characters that pre-tokenizers are known to disagree on.
POOLS = [
    "abcdefgxyz", "ABCXYZ", "0123456789", "0123456789", " ", " \t\n\r\v\f",
    "\u0085\u00a0\u1680\u180e\u2000\u2003\u2007\u2028\u2029\u202f\u205f\u3000\ufeff\u200b\u200d",
    "'", "'\u2019\u2018\u00b4`", "éüñçßŉǰﬁﬂſİıKÅ", "e\u0301a\u0300o\u0308\u20dd\u0489\u064b\u0902",
    "漢字仮名交じり文。、「」", "한국어", "العربية", "עברית", "हिन्दी", "ไทย", "Ελληνικά", "Привет",
    "😀👍🏽👨\u200d👩\u200d👧🇩🇪❤\ufe0f", "①②½¾Ⅷ٣४৪๓", "∑∫≈≠→⇒", "{}[]()<>;:.,!?/\\|@#$%^&*-_=+~\"",
    "\x00\x01\x07\x1b\x7f", "\U0001d400\U00010330\U000e0001\ue000\uffff\ufffd\U0010ffff",
    # assigned in Unicode 14, 15 and 16
    "\U00010570\U0001e290\U00011f02\U00011f50\u1c89\U00031350",
]
PHRASES = [
    "don't we'll I'M SHE'D it's", "'s 't 'RE 'Ve 'm 'lL 'ſ", "1234567 12 3 000", "\r\n\r\n", "\t\t",
    "def f(x):\n    return x  # ok\n", "for (int i=0;i<10;++i) {\n\t\n}\r\n", "   \n  \n",
    "<|endoftext|>", "<|endoftext|", "https://example.org/a?b=c&d=%20", "y**2 + 3.14159e-10;\n\n\n",
    " In the beginning God created the heaven and the earth.", "the waters",
]


def nasty_strings(count, seed):
    rng = random.Random(seed)
    strings = [""]
    while len(strings) < count:
        text = ""
        for _ in range(rng.randint(1, 5)):
            kind = rng.random()
            if kind < 0.2:
                text += rng.choice(PHRASES)
            elif kind < 0.25:
                text += chr(rng.choice([rng.randrange(0x20, 0xD800), rng.randrange(0xE000, 0x110000)]))
            elif kind < 0.35:
                text += rng.choice(" \n\t\r\u00a0\u3000") * rng.randint(1, 6)
            else:
                pool = rng.choice(POOLS)
                text += "".join(rng.choice(pool) for _ in range(rng.randint(1, 7)))
        strings.append(text)
    return strings


def main():
    with open(os.path.join(HERE, "sample.txt"), encoding="utf-8", newline="") as file:
        sample = file.read()
    strings = nasty_strings(200, seed=1)
    golden = {"strings": strings}
    for name, pre_tokenizer in PRE_TOKENIZERS.items():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=700,
            min_frequency=2,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator([sample], trainer)
        tokenizer.encode_special_tokens = True
        tokenizer.save(os.path.join(HERE, name + ".json"))
        golden[name] = [tokenizer.encode(text).ids for text in strings]
    with open(os.path.join(HERE, "ids.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
