#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test. Arguments go to ctest: ./test.sh -R Solver
set -euo pipefail
cd "$(dirname "$0")"
source scripts/setup.sh

ensure_packages "${build_packages[@]}" "${test_packages[@]}"
build ON
ctest --preset release --parallel "$(nproc)" "$@"
