#!/bin/sh
# Writes the bill of materials of an environment: make_sbom.sh <cyclonedx-py> <environment> <output> [twice]
#
# With `twice`, it is written again with another hash seed, time zone and locale, and the bytes are compared.
set -eu
mkdir -p "$(dirname "$3")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
write() {
  "$1" environment --output-reproducible --spec-version 1.6 --mc-type application --pyproject pyproject.toml -o "$3" "$2"
}
export PYTHONHASHSEED=1
write "$1" "$2" "$work/one"
if [ "${4:-}" = twice ]; then
  export TZ=Asia/Kathmandu LC_ALL=C PYTHONHASHSEED=2
  write "$1" "$2" "$work/two"
  cmp -s "$work/one" "$work/two" || { echo "sbom: two bills of materials of $2 differ" >&2; exit 1; }
fi
cat "$work/one" >"$3"
echo "sbom: $3"
