#!/usr/bin/env bash
# Compiles the kernels for 64-bit Arm (NEON) and runs their tests under qemu. Needs amd64 Debian and,
# to install packages, root. Arguments go to the test program: scripts/arm64.sh --gtest_filter='BF16*'
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

ensure_packages "${build_packages[@]}" g++-aarch64-linux-gnu qemu-user

# The libraries, unpacked beside the build; this system's list of packages stays as it is.
root=$PWD/build/arm64-root
if [[ ! -e $root/complete ]]; then
  rm -rf "$root" && mkdir -p "$root"/apt/{lists/partial,archives/partial} "$root/debs"
  touch "$root/apt/status"
  apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root
       -o "Dir::State=$root/apt" -o "Dir::State::status=$root/apt/status"
       -o "Dir::State::lists=$root/apt/lists" -o "Dir::Cache=$root/apt")
  "${apt[@]}" update
  (cd "$root/debs" && "${apt[@]}" download libdnnl2 libdnnl-dev libhwy1 libhwy-dev libgtest-dev \
    libgmock-dev libfmt9 libfmt-dev libtomlplusplus-dev nlohmann-json3-dev libxxhash0 libxxhash-dev)
  for package in "$root"/debs/*.deb; do dpkg-deb --extract "$package" "$root"; done
  touch "$root/complete"
fi

cmake -S . -B build/arm64 -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_TOOLCHAIN_FILE=cmake/arm64-linux.cmake -DSANDGLASS_MODULES="base;tensor;io;ops" >/dev/null
cmake --build build/arm64 --target ops_test -- --quiet
emulator=(qemu-aarch64 -L /usr/aarch64-linux-gnu
          -E "LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu:/usr/aarch64-linux-gnu/lib")
# A process that qemu has forked cannot start threads, as this test's does.
"${emulator[@]}" build/arm64/src/ops/ops_test --gtest_filter=-Team.RefusesAJobWithinAJob "$@"
