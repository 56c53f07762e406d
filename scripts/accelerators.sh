#!/bin/sh
# Install the compilers of NVIDIA GPUs and TPUs: scripts/accelerators.sh
# scripts/bench.py compiled compiles for an H100 or a TPU with them, without a device.
# They stand in ~/.cache/lnrepro, once a machine, in the versions that the installed jax
# asks for. It takes some minutes and about 1 GB. .venv is made if need be, and stays as
# it is.
set -eu
cd "$(dirname "$0")/.."
. scripts/venv.sh
venv_with train
set -f
# The first word is the folder, the others are packages.
IFS='
'
words=$(.venv/bin/python -m scripts.benches.accelerators.environment)
set -- $words
folder=$1
shift
# An older folder has no NVRTC.
if [ ! -d "$folder/nvidia/cuda_nvrtc" ]; then
  echo "installing the compilers of GPUs and TPUs in $folder (once, about 1 GB)"
  # A folder of the final name is complete.
  rm -rf "$folder.half"
  if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
    --target "$folder.half" "$@"; then
    echo "error: the compilers cannot be installed; is the package index reachable?" >&2
    exit 1
  fi
  rm -rf "$folder"
  mv "$folder.half" "$folder"
fi
echo "$folder"
