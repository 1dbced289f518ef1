"""Texts that tokenizers are known to disagree on, and ordinary ones, the same ones on every run."""

import pathlib
import random
import site

POOLS = [
    "abcdefgxyz",
    "ABCXYZ",
    "0123456789",
    "0123456789",
    " ",
    " \t\n\r\v\f",
    "\u0085\u00a0\u1680\u180e\u2000\u2003\u2007\u2028\u2029\u202f\u205f\u3000\ufeff\u200b\u200d",
    "'",
    "'\u2019\u2018\u00b4`",
    "éüñçßŉǰﬁﬂſİıKÅ",
    "e\u0301a\u0300o\u0308\u20dd\u0489\u064b\u0902\u0b95\u0bbf",
    "漢字仮名交じり文。、「」ㄅ",
    "한국어 \u1112\u1161\u11ab",
    "العربية",
    "עברית",
    "हिन्दी",
    "ไทย",
    "Ελληνικά",
    "Привет",
    "😀👍🏽👨\u200d👩\u200d👧🇩🇪❤\ufe0f🏴\U000e0067\U000e007f",
    "①②½¾Ⅷ٣४৪๓",
    "∑∫≈≠→⇒",
    "{}[]()<>;:.,!?/\\|@#$%^&*-_=+~\"",
    "\x00\x01\x07\x1b\x7f\x9f",
    "\U0001d400\U00010330\U000e0001\ue000\uffff\ufffd\U0010ffff",
    "\U00010570\U0001e290\U00011f02\U00011f50\u1c89\U00031350\U0001ccf0",
    "ǅǈᾼʰˠªº",
    "\u2581",
]
PHRASES = [
    "don't we'll I'M SHE'D it's",
    "'s 't 'RE 'Ve 'm 'lL 'ſ",
    "1234567 12 3 000",
    "\r\n\r\n",
    "\t\t",
    "def f(x):\n    return x  # ok\n",
    "for (int i=0;i<10;++i) {\n\t\n}\r\n",
    "   \n  \n",
    "https://example.org/a?b=c&d=%20",
    "y**2 + 3.14159e-10;\n\n\n",
    " In the beginning God created the heaven and the earth.",
    "the waters",
    "camelCaseHTTPServer XMLHttpRequest",
    "\u2581In \u2581\u2581 the",
    "/usr/lib//x/\n\n/",
    "ÃƒÂ©Ã¢â‚¬â„¢",  # UTF-8 read as Latin-1, twice
    "\ufffd\ufffd\u00ef\u00bf\u00bd",
    "a\u0323\u0307 \u1e69 q\u0307\u0323",
    "<0x41><0x0A>",
]
SPECIAL = [
    "<|endoftext|>",
    "<|endoftext|",
    "<|im_start|>user\n",
    "<|begin_of_text|>",
    "<s>",
    "</s>",
    "[INST] [/INST]",
    "<unk>",
    "<tool_call>",
    "<EOT>",
    "<｜begin▁of▁sentence｜>",
    "<|fim_prefix|>",
    "<pad>",
]


def nasty_strings(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    strings = ["", " ", "  ", "\n", " \n", "\n ", "a ", " a", "  a"]
    while len(strings) < count:
        text = ""
        for _ in range(draw.randint(1, 6)):
            kind = draw.random()
            if kind < 0.2:
                text += draw.choice(PHRASES)
            elif kind < 0.25:
                text += draw.choice(SPECIAL)
            elif kind < 0.3:
                pick = draw.choice([(0x20, 0xD800), (0xE000, 0x110000), (0x20, 0x3000)])
                text += chr(draw.randrange(*pick))
            elif kind < 0.4:
                text += draw.choice(" \n\t\r\u00a0\u3000") * draw.randint(1, 6)
            else:
                pool = draw.choice(POOLS)
                text += "".join(draw.choice(pool) for _ in range(draw.randint(1, 7)))
        strings.append(text)
    return strings


def real_text(size: int) -> list[str]:
    """`size` bytes of files that lie in this environment (programs, documentation in many
    languages), in pieces of about a thousand lines."""
    places = sorted(pathlib.Path(site.getsitepackages()[0]).rglob("*"))
    files = [path for path in places if path.suffix in {".py", ".txt", ".md", ".rst", ".json"}]
    random.Random(1).shuffle(files)
    pieces, total = [], 0
    for path in files:
        if not path.is_file() or path.stat().st_size > 300_000:
            continue
        text = path.read_bytes().decode("utf-8", errors="ignore")
        if text:
            pieces.append(text)
            total += len(text.encode())
        if total >= size:
            break
    return pieces
