#!/bin/sh
# Checks proto/, and that gen/ is up to date. Run by `make proto-check`, which puts the environment's buf on PATH and
# exports third_party/googleapis first.
set -eu
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
failed=0

fail() {
  echo "proto-check: $1" >&2
  failed=1
}

buf lint || fail "lint"
buf format proto -d --exit-code || fail "not formatted; run make format"
buf breaking proto --against proto/baseline.binpb || fail "incompatible with proto/baseline.binpb"

buf generate -o "$again"
diff -r -x __pycache__ "$again/gen/dragoman_pb" gen/dragoman_pb || fail "gen/dragoman_pb is out of date; run make proto"
buf build proto -o "$again/dragoman.binpb"
cmp "$again/dragoman.binpb" gen/dragoman.binpb || fail "gen/dragoman.binpb is out of date; run make proto"

if [ -x .tools/bin/protoc-gen-openapiv2 ]; then
  buf generate --template buf.gen.openapi.yaml -o "$again"
  diff -r "$again/gen/openapi" gen/openapi || fail "gen/openapi is out of date; run make openapi"
else
  echo "proto-check: gen/openapi not compared (no .tools/bin/protoc-gen-openapiv2; run make openapi to install it)"
fi
exit $failed
