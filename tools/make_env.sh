#!/bin/sh
# Creates an environment from uv.lock, and third_party/googleapis, which buf reads: make_env.sh <python> <uv> <folder>
#
# The lock has URLs of the public index. If only a mirror is reachable, for which pip is configured but uv is not, pip
# installs the same versions with the same hashes.
set -eu
python=${1:?usage: make_env.sh <python> <uv> <folder>}
uv=${2:?usage: make_env.sh <python> <uv> <folder>}
env=${3:?usage: make_env.sh <python> <uv> <folder>}

if ! UV_PROJECT_ENVIRONMENT=$env "$uv" sync --quiet --frozen --no-install-project --python "$python"; then
  echo "make: uv could not install from the addresses in uv.lock; trying pip and its configured index" >&2
  mkdir -p .tools
  "$uv" export --quiet --frozen --no-emit-project --no-header -o .tools/requirements.txt
  "$python" -m venv --clear "$env"
  "$env/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes --no-deps -r .tools/requirements.txt
fi
# hatchling is in the lock too, so this step needs no network.
"$uv" pip install --quiet --offline --python "$env" --no-deps --no-build-isolation --editable .
# So that plain `buf lint`, `buf build` and `buf generate` work in a fresh clone.
"$env/bin/python" tools/sync_googleapis.py
