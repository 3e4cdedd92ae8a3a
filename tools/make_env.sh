#!/bin/sh
# Creates .venv from uv.lock, and third_party/googleapis, which buf reads: make_env.sh <python> <uv>
#
# The lock has URLs of the public index. If only a mirror is reachable, for which pip is configured but uv is not, pip
# installs the same versions with the same hashes.
set -eu
python=${1:?usage: make_env.sh <python> <uv>}
uv=${2:?usage: make_env.sh <python> <uv>}

if ! "$uv" sync --quiet --frozen --no-install-project --python "$python"; then
  echo "make: uv could not install from the addresses in uv.lock; trying pip and its configured index" >&2
  mkdir -p .tools
  "$uv" export --quiet --frozen --no-emit-project --no-header -o .tools/requirements.txt
  "$python" -m venv --clear .venv
  .venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes --no-deps -r .tools/requirements.txt
fi
# hatchling is in the lock too, so this step needs no network.
"$uv" pip install --quiet --offline --python .venv --no-deps --no-build-isolation --editable .
# So that plain `buf lint`, `buf build` and `buf generate` work in a fresh clone.
.venv/bin/python tools/sync_googleapis.py
