#!/bin/sh
# Runs a generator that tests/transcoders/go/go.mod pins: go_tool.sh NAME. Modules and builds are cached in .foreign/go.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export GOMODCACHE="$root/.foreign/go/mod" GOCACHE="$root/.foreign/go/build"
export GOFLAGS="-modcacherw -buildvcs=false" GOTOOLCHAIN=local
exec "${GO:-go}" -C "$root/tests/transcoders/go" tool "${1:?usage: go_tool.sh NAME}"
