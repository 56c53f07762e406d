#!/bin/bash
#SBATCH --job-name=lnrepro
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=240
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#
# One run on the GPUs of several hosts, from the root of the checkout:
#   sbatch --gpus-per-node=4 scripts/slurm.sh --config=configs/draw.py:paper --workdir=/shared/draw
# Options of sbatch stand before the script and override the lines above; --workdir must lie on a disk that all hosts see.
# Two minutes before the time limit the run saves, stops and is queued again; a preempted one is queued again by SLURM.
# Many small runs: python scripts/sweep.py CONFIG --launcher slurm.
set -u
python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || python=python3

# One process a host: they find each other through SLURM's variables.
srun --kill-on-bad-exit=0 "$python" -m lnrepro.main --distributed "$@" &
step=$!

requeue=
trap 'requeue=1; scancel --signal=TERM "$SLURM_JOB_ID"' USR1
until wait "$step"; code=$?; ! kill -0 "$step" 2>/dev/null; do :; done
if [ -n "$requeue" ] && [ "$code" -ne 0 ]; then
  exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
