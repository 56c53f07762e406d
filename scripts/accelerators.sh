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
exec .venv/bin/python -m scripts.benches.accelerators.environment
