# Sourced by quickstart and test: venv_with EXTRA makes .venv and installs this checkout with that extra, once.
# The stamp holds a checksum of pyproject.toml, so a second start installs nothing until the requirements change.
# PYTHON names another interpreter; LNREPRO_EXACT=1 installs the tested versions of constraints.txt.

venv_with() {
  extra=$1
  python=${PYTHON:-python3}
  if ! command -v "$python" >/dev/null; then
    echo "there is no $python; install Python 3.11 or newer, or name it with PYTHON=..." >&2
    exit 2
  fi
  # A .venv that another tool made, or that was left half-made, may have no pip.
  if [ -x .venv/bin/python ] && ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo ".venv has no pip; adding it" >&2
    .venv/bin/python -m ensurepip >/dev/null 2>&1 || rm -rf .venv
  fi
  if [ ! -x .venv/bin/python ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
      echo "Python 3.11 or newer is needed; '$python' is $("$python" -V 2>&1). Name another with PYTHON=..." >&2
      exit 2
    }
    echo "making .venv with $("$python" -V)" >&2
    "$python" -m venv .venv
  fi
  stamp=.venv/.installed-$extra
  want=$(cksum pyproject.toml constraints.txt | tr '\n' ' ')${LNREPRO_EXACT:-}
  # The test extra holds the train extra, so its stamp serves both.
  for have in "$stamp" .venv/.installed-test; do
    if [ -f "$have" ] && [ "$(cat "$have")" = "$want" ]; then return 0; fi
  done
  echo "installing lnrepro[$extra] into .venv (once; about a minute)" >&2
  if [ -n "${LNREPRO_EXACT:-}" ]; then
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extra]"
  else
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extra]"
  fi
  printf '%s' "$want" >"$stamp"
}
