#!/usr/bin/env bash
# Compares Sandglass with other programs: PyTorch, transformers, llama.cpp, vLLM, tokenizers.
#
#   peers/run.sh                    everything (about half an hour on two cores)
#   peers/run.sh PART...            reference, transformers, llama_cpp, vllm, smollm2 or tokenizers
#   peers/run.sh golden             writes the golden files of the default tests again
#   peers/run.sh bench train        training steps beside PyTorch's (on a quiet machine)
#   peers/run.sh bench decode       reading a prompt and generating beside llama.cpp's
#
# Needs build/release/sandglass (or $SANDGLASS). The first call makes the Python environments, see
# setup.sh.
set -euo pipefail
cd "$(dirname "$0")"
./setup.sh

place=${SANDGLASS_PEERS:-$HOME/.cache/sandglass-peers}
python=$place/main/bin/python
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

case ${1:-} in
  golden)
    shift
    exec "$python" make_golden.py "$@"
    ;;
  bench)
    if [[ ! -f bench_${2:-}.py ]]; then
      echo "peers/run.sh: bench what? train or decode" >&2
      exit 2
    fi
    exec "$python" "bench_$2.py" "${@:3}"
    ;;
esac

parts=("$@")
((${#parts[@]})) || parts=(reference transformers llama_cpp vllm smollm2 tokenizers)
tests=()
for part in "${parts[@]}"; do
  if [[ $part == tokenizers ]]; then
    tests+=(tokenizers)
  elif [[ -f test_$part.py ]]; then
    tests+=("test_$part.py")
  else
    echo "peers/run.sh: no part named $part (see the head of this file)" >&2
    exit 2
  fi
done
if [[ " ${parts[*]} " == *" smollm2 "* ]]; then
  (cd .. && source scripts/setup.sh && kjv_text)
fi
exec "$python" -m pytest -p no:cacheprovider -q "${tests[@]}"
