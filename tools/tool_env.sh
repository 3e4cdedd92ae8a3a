#!/bin/sh
# Creates a separate environment under .tools from uv.lock: tool_env.sh <python> <uv> <name> <options of uv sync...>
#
# As in make_env.sh, uv checks the hashes of the lock, and so does pip if uv cannot reach the URLs in it.
set -eu
python=$1 uv=$2 env=.tools/$3
shift 3
if ! UV_PROJECT_ENVIRONMENT=$env "$uv" sync --quiet --frozen --no-install-project --python "$python" "$@"; then
  echo "make: uv could not install from the addresses in uv.lock; trying pip and its configured index" >&2
  "$uv" export --quiet --frozen --no-emit-project --no-header "$@" -o "$env.txt"
  # Without pip in it, as uv creates it: the bill of materials lists what is in an environment.
  "$python" -m venv --clear --without-pip "$env"
  "$(dirname "$uv")/pip" --python "$env/bin/python" install -qq --disable-pip-version-check --require-hashes -r "$env.txt"
fi
