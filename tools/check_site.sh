#!/bin/bash
# Builds the site of the documentation twice, in two folders, and compares the bytes: check_site.sh <mkdocs> <output folder>
#
# As in check_wheel.sh, the second build has other file times and modes, umask, hash seed, time zone and locale.
set -euo pipefail
mkdocs=$(realpath -s "$1")
keep=$(realpath -m "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
one=$work/one/dragoman two=$work/two/somewhere/else
mkdir -p "$one" "$two"
git ls-files -z | xargs -0 cp --parents -t "$one"
git ls-files -z | xargs -0 cp --parents -t "$two"
chmod -R go= "$two"
find "$two" -exec touch -d 2001-02-03T04:05:06 {} +
# The day of an archive's files, and of the build in the sitemap.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} NO_MKDOCS_2_WARNING=1 PYTHONPATH=.
build() {
  "$mkdocs" build >"$work/$1.log" 2>&1 || { sed '/^INFO/d' "$work/$1.log" >&2; exit 1; }
}
(cd "$one" && export PYTHONHASHSEED=1 && build one) & first=$!
(cd "$two" && umask 077 && export TZ=Asia/Kathmandu LC_ALL=C.UTF-8 PYTHONHASHSEED=2 && build two)
wait "$first"
if ! diff -rq "$one/site" "$two/site" >"$work/differences"; then
  { echo "site-check: two builds of the site differ:"; head -n 20 "$work/differences"; } >&2
  exit 1
fi
rm -rf "$keep"
mkdir -p "$(dirname "$keep")"
cp -r "$one/site" "$keep"
echo "site-check: $(find "$keep" -type f | wc -l) files, built twice to the same bytes: $keep"
