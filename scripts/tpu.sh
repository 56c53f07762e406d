#!/bin/sh
# One run on all hosts of a TPU slice: scripts/tpu.sh TPU_NAME ZONE --config=... --workdir=/mnt/shared/run [flags]
#
# Copies this checkout (git's HEAD) to every host, installs it there with the train and tpu extras, and starts the same
# command on each with --distributed; the hosts find one another. --workdir must lie on storage that all hosts have
# mounted (Filestore or other NFS), for one of them writes metrics and all of them save and restore checkpoints.
# Needs gcloud, logged in. The same command again resumes the run.
set -eu
if [ $# -lt 3 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
name=$1 zone=$2
shift 2
cd "$(dirname "$0")/.."
quoted=
for flag in "$@"; do
  quoted="$quoted '$(printf %s "$flag" | sed "s/'/'\\\\''/g")'"
done
bundle=$(mktemp -d)
trap 'rm -rf "$bundle"' EXIT
git archive --format=tar.gz -o "$bundle/lnrepro.tar.gz" HEAD
gcloud compute tpus tpu-vm scp "$bundle/lnrepro.tar.gz" "$name:" --zone="$zone" --worker=all
gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="
  set -e
  mkdir -p lnrepro && tar -xzf lnrepro.tar.gz -C lnrepro && cd lnrepro
  [ -x .venv/bin/python ] || python3 -m venv .venv
  .venv/bin/pip install --quiet -e '.[train,tpu]'
  exec .venv/bin/python -m lnrepro.main --distributed $quoted"
