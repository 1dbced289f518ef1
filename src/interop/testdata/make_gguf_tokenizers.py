"""Makes gguf_tokenizers.json: the ids that llama.cpp gives for the tokenizers inside small GGUFs.

    pip install gguf==0.19.0 llama-cpp-python==0.3.36 sentencepiece==0.2.3
    python make_gguf_tokenizers.py

The vocabularies are those of src/data/testdata (cl100k.json, sentencepiece.model); the test writes
the same files.
"""

import json
import os
import tempfile

import gguf
import llama_cpp
import sentencepiece

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "../../data/testdata")
NAMES = [
    "gpt-2", "smollm", "starcoder", "dbrx", "llama-bpe", "qwen2", "stablelm2", "qwen35",
    "deepseek-v3", "deepseek-coder", "falcon",
]
STRINGS = [
    "In the beginning God created the heaven and the earth.", "don't I'M 12345 ١٢", " a  b\n\n c\r\n",
    "漢字かな 한국어 Привет", "x = y**2 + 3.14; // ok\n\t\tfoo()", "😀👍🏽 e\u0301 हिन्दी", "<|endoftext|> the",
    "$100,000.00 (50%)", "",
]


def start(path, model):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(model)
    return writer


def ids(writer, path):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    return [model.tokenize(s.encode(), add_bos=False, special=False) for s in STRINGS]


def main():
    golden = {"strings": STRINGS, "ids": {}}
    with open(os.path.join(DATA, "cl100k.json"), encoding="utf-8") as file:
        model = json.load(file)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    processor = sentencepiece.SentencePieceProcessor(os.path.join(DATA, "sentencepiece.model"))
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "t.gguf")
        for name in NAMES:
            writer = start(path, "gpt2")
            writer.add_tokenizer_pre(name)
            writer.add_token_list(tokens)
            writer.add_token_types([3] + [1] * (len(tokens) - 1))
            writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
            writer.add_bos_token_id(0)
            writer.add_eos_token_id(0)
            golden["ids"][name] = ids(writer, path)
        writer = start(path, "llama")
        count = processor.get_piece_size()
        writer.add_token_list([processor.id_to_piece(i) for i in range(count)])
        writer.add_token_scores([processor.get_score(i) for i in range(count)])
        kinds = []
        for i in range(count):
            kind = 6 if processor.is_byte(i) else 3 if processor.is_control(i) else 1
            kind = 2 if processor.is_unknown(i) else kind
            kinds.append(4 if processor.id_to_piece(i).startswith("[") and len(processor.id_to_piece(i)) > 1 else kind)
        writer.add_token_types(kinds)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        golden["ids"]["llama"] = ids(writer, path)
    with open(os.path.join(HERE, "gguf_tokenizers.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
