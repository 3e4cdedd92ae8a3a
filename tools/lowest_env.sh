#!/bin/sh
# Creates an environment of the lowest versions that pyproject.toml allows: lowest_env.sh <python> <uv> <folder>
#
# Only what a server without extras needs is low. Tools of the tests have the versions of uv.lock, without a look at what
# they ask for themselves: some want newer libraries than the floors, and none of those that the tests use needs them.
set -eu
python=$1 uv=$2 env=$3

mkdir -p "$env"
# click 8.4 and newer warns about what typer 0.20 uses of it, and warnings fail tests. uv's own settings, which
# --no-config leaves out, are those of the lock: they raise protobuf.
echo "click<8.4" |
  "$uv" pip compile --quiet --no-config --resolution lowest-direct --only-binary :all: --python "$python" \
    --no-header --no-annotate --constraint - -o "$env/lowest.txt" pyproject.toml
"$uv" export --quiet --frozen --no-emit-project --no-header --no-annotate --no-hashes -o "$env/locked.txt"
low=$(sed 's/==.*//' "$env/lowest.txt" | paste -sd '|')
grep -Ev "^($low)(\[[a-z,-]*\])?==" "$env/locked.txt" > "$env/tools.txt"

"$uv" venv --quiet --clear --python "$python" "$env/env"
"$uv" pip install --quiet --no-config --python "$env/env" --no-deps -r "$env/lowest.txt" -r "$env/tools.txt"
"$uv" pip install --quiet --offline --python "$env/env" --no-deps --no-build-isolation --editable .
echo "test-lowest: $(tr '\n' ' ' < "$env/lowest.txt")"
