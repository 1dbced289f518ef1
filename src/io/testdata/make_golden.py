"""Writes quantized.json: a random block of every quantised GGUF type and the values it stands for.

Run in an environment with numpy and gguf (PyPI):  python3 make_golden.py
The reference is gguf.quants.dequantize; blocks are random bytes with scales of ordinary size.
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy

# Offsets of the fp16 fields in a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}


def main():
    random = numpy.random.default_rng(7)
    types = {}
    for name, halves in HALVES.items():
        type_id = gguf.GGMLQuantizationType[name]
        elements, size_bytes = gguf.GGML_QUANT_SIZES[type_id]
        block = random.integers(0, 256, size_bytes, dtype=numpy.uint8)
        for offset in halves:
            scale = numpy.float16(random.uniform(-0.1, 0.1))
            block[offset : offset + 2] = numpy.frombuffer(scale.tobytes(), numpy.uint8)
        values = gguf.quants.dequantize(block.reshape(1, -1), type_id).ravel()
        assert values.size == elements
        types[name] = {"bytes": block.tobytes().hex(), "values": [float(v) for v in values]}
    made_by = json.dumps(f"make_golden.py, gguf {importlib.metadata.version('gguf')}")
    lines = ",\n".join(f'"{name}": {json.dumps(block)}' for name, block in types.items())
    path = pathlib.Path(__file__).with_name("quantized.json")
    path.write_text(f'{{"made_by": {made_by}, "types": {{\n{lines}\n}}}}\n')


main()
