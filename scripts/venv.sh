# Sourced by quickstart and test: venv_with EXTRA makes .venv and installs this checkout with that extra, once.
# The stamp holds a checksum of pyproject.toml and the version of Python: a second start installs nothing until one changes.
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
  want=$(cksum pyproject.toml constraints.txt | tr '\n' ' ')$(.venv/bin/python -V)${LNREPRO_EXACT:-}
  # The test extra holds the train extra, so its stamp serves both.
  other=$stamp
  if [ "$extra" = train ]; then other=.venv/.installed-test; fi
  for have in "$stamp" "$other"; do
    if [ -f "$have" ] && [ "$(cat "$have")" = "$want" ]; then return 0; fi
  done
  echo "installing lnrepro[$extra] into .venv (once; one to three minutes)" >&2
  if [ -n "${LNREPRO_EXACT:-}" ]; then
    install_with_progress -c constraints.txt -e ".[$extra]"
  else
    install_with_progress -e ".[$extra]"
  fi
  printf '%s' "$want" >"$stamp"
}

# pip install, with a line every few seconds; the output of pip goes to a file.
install_with_progress() {
  log=.venv/install.log
  : >"$log"
  (
    seconds=0
    # An interrupted shell leaves this loop behind, which then ends by itself.
    while sleep 5 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
      seconds=$((seconds + 5))
      if grep -q '^Installing collected' "$log"; then
        echo "  $seconds s: all packages are here, unpacking them" >&2
      else
        echo "  $seconds s: $(grep -c '^Collecting' "$log" || :) packages found" >&2
      fi
    done
  ) &
  ticker=$!
  status=0
  .venv/bin/python -m pip install --disable-pip-version-check "$@" >>"$log" 2>&1 || status=$?
  kill "$ticker" 2>/dev/null || :
  wait "$ticker" 2>/dev/null || :
  if [ "$status" -eq 0 ]; then return 0; fi
  if grep -qE 'NewConnectionError|NameResolutionError|ConnectTimeoutError|ProxyError|Network is unreachable' "$log"; then
    echo "error: the package index cannot be reached; connect to a network, or name another index with PIP_INDEX_URL, and start again (see $log)" >&2
  else
    grep -E '^ *(ERROR|error):' "$log" | tail -n 3 >&2 || :
    echo "error: pip could not install the packages; see $log" >&2
  fi
  exit 2
}
