#!/bin/sh
# Checks that two builds of all packages have the same bytes: check_wheel.sh <python with hatchling> [output folder]
#
# The second build uses another copy in another folder, with other file times and modes, umask, hash seed, time zone and
# locale, so that a dependence on any of these shows.
set -eu
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
keep=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/one/dragoman" "$work/two/somewhere/else"
git ls-files -z | xargs -0 cp --parents -t "$work/one/dragoman"
git ls-files -z | xargs -0 cp --parents -t "$work/two/somewhere/else"
chmod -R go= "$work/two"
find "$work/two" -exec touch -d 2001-02-03T04:05:06 {} +
build() {
  { "$python" -m hatchling build && (cd gen && "$python" -m hatchling build -d ../dist) &&
    (cd client && "$python" -m hatchling build -t wheel -d ../dist); } >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; exit 1; }
}
(cd "$work/one/dragoman" && export PYTHONHASHSEED=1 && build)
(cd "$work/two/somewhere/else" && umask 077 && export TZ=Asia/Kathmandu LC_ALL=C PYTHONHASHSEED=2 && build)
for one in "$work"/one/dragoman/dist/*; do
  two=$work/two/somewhere/else/dist/$(basename "$one")
  if ! cmp -s "$one" "$two"; then
    echo "wheel-check: two builds of $(basename "$one") differ" >&2
    exit 1
  fi
  echo "wheel-check: $(sha256sum <"$one" | cut -d' ' -f1)  $(basename "$one")"
done
[ -z "$keep" ] || { mkdir -p "$keep" && cp "$work"/one/dragoman/dist/* "$keep"; }
