#!/usr/bin/env bash
# The main job on real text: installs what is missing, builds, and compares four model shapes with
# equal matrix parameters on the King James Bible. About ten minutes on two cores; run it again to
# continue after Ctrl-C. Arguments go to `sandglass compare`, for example
#   ./demo.sh --set train.tokens=4e6 --out runs/longer
set -euo pipefail
cd "$(dirname "$0")"
source scripts/setup.sh

ensure_packages "${build_packages[@]}"
build OFF sandglass

kjv_text
build/release/sandglass compare recipes/kjv-demo.toml "$@"
