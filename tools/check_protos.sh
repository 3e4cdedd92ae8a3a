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

# Without network: version, credentials, errors, the image that the files were generated from, and OpenAPI 3.1.
python -m tools.openapi check || fail "gen/openapi is out of date; run make openapi"

if command -v "${GO:-go}" >/dev/null; then
  buf generate --template buf.gen.openapi.yaml -o "$again" || fail "gen/openapi cannot be generated"
  python -m tools.openapi write "$again/gen/openapi"
  diff -r "$again/gen/openapi" gen/openapi || fail "gen/openapi is out of date; run make openapi"
elif [ "${OPENAPI_PLUGIN:-}" = required ]; then
  fail "gen/openapi cannot be compared: Go is not installed"
else
  cat >&2 <<'END'
proto-check: WARNING
proto-check: WARNING  gen/openapi was NOT generated again: Go is not installed.
proto-check: WARNING  Its files belong to the committed protos (digest), but their contents were not compared.
proto-check: WARNING
END
fi
exit $failed
