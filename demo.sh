#!/usr/bin/env bash
# The main job on real text: installs what is missing, builds, and compares four model shapes with
# equal matrix parameters on the King James Bible. About ten minutes on two cores; run it again to
# continue after Ctrl-C. Arguments go to `sandglass compare`, for example
#   ./demo.sh --set train.tokens=4e6 --out runs/longer
set -euo pipefail
cd "$(dirname "$0")"
source scripts/setup.sh

ensure_packages "${build_packages[@]}" "${demo_packages[@]}"
build OFF sandglass

# One paragraph per chapter: the reference that opens each verse ("Ge1:1") says where one ends.
if [[ ! -s demo/kjv.txt ]]; then
  mkdir -p demo
  bible -f gen1:1-rev22:21 | awk '{
      split($1, reference, ":")
      if (NR > 1 && reference[1] != chapter) print ""
      chapter = reference[1]
      print
    }' >demo/kjv.txt.partial
  mv demo/kjv.txt.partial demo/kjv.txt
fi

build/release/sandglass compare recipes/kjv-demo.toml "$@"
