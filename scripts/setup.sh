#!/usr/bin/env bash
# Installs the Debian packages that are missing and builds. Sourced by the scripts that need them:
#   ensure_packages NAME...    installs what is not there (needs root or sudo only then)
#   build TESTS                configures and builds the release preset; TESTS is ON or OFF
#   kjv_text                   writes the King James Bible to demo/kjv.txt unless it is there
set -euo pipefail

# What each package is for stands in docs/dependencies.md.
build_packages=(
  g++ cmake ninja-build pkg-config
  libdnnl-dev libhwy-dev libfmt-dev libtomlplusplus-dev nlohmann-json3-dev libsimdjson-dev
  libcli11-dev libzstd-dev zlib1g-dev liblzma-dev libxxhash-dev libpcre2-dev libutf8proc-dev
  libsqlite3-dev libprotobuf-dev protobuf-compiler libjs-chart.js
)
test_packages=(libgtest-dev libgmock-dev chromium gzip xz-utils)
demo_packages=(bible-kjv bible-kjv-text)

ensure_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null \
      | grep -qx installed || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  local as_root=()
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "These packages are missing and only root can install them:" >&2
      echo "  apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo)
  fi
  echo "== installing: ${missing[*]}" >&2
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -qq -y --no-install-recommends \
    "${missing[@]}" >/dev/null
}

build() {
  local tests=$1
  echo "== building (a few minutes the first time)" >&2
  cmake --preset release -DSANDGLASS_TESTS="$tests" >/dev/null
  cmake --build --preset release ${2:+--target "$2"} -- --quiet
}

# One paragraph per chapter: the reference that opens each verse ("Ge1:1") says where one ends.
kjv_text() {
  [[ -s demo/kjv.txt ]] && return
  ensure_packages "${demo_packages[@]}"
  mkdir -p demo
  bible -f gen1:1-rev22:21 | awk '{
      split($1, reference, ":")
      if (NR > 1 && reference[1] != chapter) print ""
      chapter = reference[1]
      print
    }' >demo/kjv.txt.partial
  mv demo/kjv.txt.partial demo/kjv.txt
}
