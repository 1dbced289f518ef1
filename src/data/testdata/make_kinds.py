"""Makes the golden files of the kinds of tokenizers, with the libraries that define their ids.

    pip install tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3
    python make_kinds.py

Reads sample.txt, cl100k.json and some of the strings of ids.json (make_golden.py). Writes
kinds.json (changes to cl100k.json or byte_fallback.json that make another kind, and ids),
byte_fallback.json and sentencepiece.model (trained on sample.txt), and small.tiktoken.
"""

import base64
import io
import json
import os

import sentencepiece
import tiktoken
import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
# The pattern that tiktoken 0.14.0 has for cl100k_base.
CL100K_BASE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"
    r"\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def split(regex):
    return {
        "type": "Split",
        "pattern": {"Regex": regex},
        "behavior": "Isolated",
        "invert": False,
    }


def byte_level(use_regex):
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def added(id, content, special, normalized=False, flags=()):
    return {
        "id": id,
        "content": content,
        "single_word": "single_word" in flags,
        "lstrip": "lstrip" in flags,
        "rstrip": "rstrip" in flags,
        "normalized": normalized,
        "special": special,
    }


def template(name, id):
    return {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": name, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [
            {"Sequence": {"id": "A", "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}},
    }


END = added(0, "<|endoftext|>", True)
MARK = "\u2581"
METASPACE = {"type": "Metaspace", "replacement": MARK}


def flagged(first, normalized):
    """Added tokens with every flag, from id `first` on."""
    return [
        added(first, "<left>", False, normalized, ["lstrip"]),
        added(first + 1, "<right>", False, normalized, ["rstrip"]),
        added(first + 2, "<both>", True, normalized, ["lstrip", "rstrip"]),
        added(first + 3, "word", False, normalized, ["single_word"]),
        added(first + 4, "one", False, normalized, ["single_word", "lstrip", "rstrip"]),
        added(first + 5, "   ", False, normalized),
        added(first + 6, "\u212bngstr\u00f6m", False, normalized, ["single_word"]),
    ]


NAMED = [added(0, "<unk>", True), added(1, "<s>", True), added(2, "</s>", True)]
# name: (the file that is changed, the changes)
KINDS = {
    "flags": ("cl100k", {"added_tokens": [END, *flagged(700, False)]}),
    "flags-nfc": (
        "cl100k",
        {"normalizer": {"type": "NFC"}, "added_tokens": [END, *flagged(700, True)]},
    ),
    "flags-llama2": ("byte_fallback", {"added_tokens": [*NAMED, *flagged(600, False)]}),
    "flags-llama2-normalized": (
        "byte_fallback",
        {"added_tokens": [*NAMED, *flagged(600, True)]},
    ),
    "flags-metaspace": (
        "byte_fallback",
        {
            "normalizer": None,
            "pre_tokenizer": METASPACE | {"prepend_scheme": "first", "split": False},
            "added_tokens": [*NAMED, *flagged(600, True)],
        },
    ),
    "qwen2": (
        "cl100k",
        {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": sequence(split(CL100K.replace("{1,3}", "")), byte_level(False)),
            "added_tokens": [END, added(700, "<tool_call>", False)],
        },
    ),
    "nfkc": ("cl100k", {"normalizer": {"type": "NFKC"}, "pre_tokenizer": byte_level(True)}),
    "smollm2": (
        "cl100k",
        {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level(True))},
    ),
    "digits": (
        "cl100k",
        {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, byte_level(True))},
    ),
    "llama3": (
        "cl100k",
        {"model": {"ignore_merges": True}, "post_processor": template("<|endoftext|>", 0)},
    ),
    "olmo2": (
        "cl100k",
        {"added_tokens": [END, added(700, "|||IP_ADDRESS|||", False, True), added(701, "  ", False)]},
    ),
    "o200k": ("cl100k", {"pre_tokenizer": sequence(split(O200K), byte_level(False))}),
    "deepseek": (
        "cl100k",
        {
            "pre_tokenizer": sequence(
                split(r"\p{N}{1,3}"),
                split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                split(
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
                    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|"
                    r"\s+(?!\S)|\s+"
                ),
                byte_level(False),
            )
        },
    ),
    "llama2": ("byte_fallback", {"post_processor": template("<s>", 1)}),
    "metaspace-always": (
        "byte_fallback",
        {"normalizer": None, "pre_tokenizer": METASPACE | {"prepend_scheme": "always", "split": True}},
    ),
    "metaspace-first": (
        "byte_fallback",
        {"normalizer": None, "pre_tokenizer": METASPACE | {"prepend_scheme": "first", "split": False}},
    ),
    "metaspace-never": (
        "byte_fallback",
        {"normalizer": None, "pre_tokenizer": METASPACE | {"prepend_scheme": "never", "split": False}},
    ),
    "added-text": (
        "byte_fallback",
        {"added_tokens": [*NAMED, added(600, "waters", False)]},
    ),
}


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file)


def write(name, value):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def merged(base, changes):
    """`base` with the changes; objects that both have are merged."""
    out = dict(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict) and key == "model"
        out[key] = merged(out[key], value) if both else value
    return out


def train_sentencepiece():
    with open(os.path.join(HERE, "sample.txt"), encoding="utf-8") as file:
        text = file.read()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.split("\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        character_coverage=0.995,
        user_defined_symbols=["[INST]", "[/INST]", "[IN"],
        minloglevel=2,
    )
    with open(os.path.join(HERE, "sentencepiece.model"), "wb") as file:
        file.write(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def byte_fallback_json(processor):
    """The same pieces as Hugging Face's converter for Llama 2 writes them."""
    count = processor.get_piece_size()
    vocab = {processor.id_to_piece(i): i for i in range(count)}
    normal = [
        i
        for i in range(count)
        if not (processor.is_control(i) or processor.is_unknown(i) or processor.is_byte(i))
        and not processor.id_to_piece(i).startswith("[")
    ]
    pieces = {processor.id_to_piece(i): i for i in normal}
    merges = []
    for piece in sorted(pieces, key=lambda p: -processor.get_score(pieces[p])):
        pairs = [
            (piece[:i], piece[i:])
            for i in range(1, len(piece))
            if piece[:i] in pieces and piece[i:] in pieces
        ]
        merges += sorted(pairs, key=lambda pair: (pieces[pair[0]], pieces[pair[1]]))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(0, "<unk>", True), added(1, "<s>", True), added(2, "</s>", True)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": MARK},
                {"type": "Replace", "pattern": {"String": " "}, "content": MARK},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": MARK}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def spelling_of_bytes():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    spelled = {chr(b): b for b in printable}
    return spelled | {chr(256 + i): b for i, b in enumerate(others)}


def main():
    strings = read("ids.json")["strings"][:60] + [
        "the <left> <left>\u00a0\n<right> \t <right>in", "<right>    \t<both> the <both>",
        "word sword words word_ (word) word\u0301 word\u2160 word\u00bd \u24d0word word\u200d word\u203f",
        "a one two none one. \u2581one\u2581 one\U0001d2c0\U00010d40one", "<left>one\u3000<right>word",
        "\u00c5ngstro\u0308m \u212bngstr\u00f6m \u00c5ngstr\u00f6m", "<both", "x<|endoftext|><left>",
        " In the waters", "the <tool_call>waters", "|||IP_ADDRESS||| a  b", "[INST] the [IN [/INST]",
        "\u2581the \u2581\u2581waters", "e\u0301 \u212b \ufb01 q\u0307\u0323 \u1112\u1161\u11ab",
        "camelCaseHTTPServer \u01c5x", "x \n\n ", "abc<s>waters</s> the",
    ]
    processor = train_sentencepiece()
    write("byte_fallback.json", byte_fallback_json(processor))
    golden = {"strings": strings, "kinds": {}}
    for name, (base, changes) in KINDS.items():
        tokenizer = tokenizers.Tokenizer.from_str(
            json.dumps(merged(read(base + ".json"), changes))
        )
        parsed = [tokenizer.encode(text, add_special_tokens=True).ids for text in strings]
        tokenizer.encode_special_tokens = True
        as_text = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings]
        golden["kinds"][name] = {
            "base": base,
            "changes": changes,
            "ids": as_text,
            # Names of special tokens being ids, with what is put around the text.
            "parsed": parsed if name.startswith("flags") else parsed[-1],
            "text": tokenizer.decode(as_text[-9]),
        }
    golden["sentencepiece"] = [processor.encode(text) for text in strings]

    byte_of = spelling_of_bytes()
    vocab = read("cl100k.json")["model"]["vocab"]
    ranks = {
        bytes(byte_of[c] for c in token): id - 1
        for token, id in vocab.items()
        if token != "<|endoftext|>"
    }
    with open(os.path.join(HERE, "small.tiktoken"), "wb") as file:
        for token, rank in ranks.items():
            file.write(base64.b64encode(token) + b" %d\n" % rank)
    encoding = tiktoken.Encoding(
        "x", pat_str=CL100K_BASE, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 720}
    )
    golden["tiktoken"] = [encoding.encode_ordinary(text) for text in strings]
    golden["tiktoken_parsed"] = encoding.encode("a<|endoftext|>b", allowed_special="all")
    write("kinds.json", golden)


if __name__ == "__main__":
    main()
