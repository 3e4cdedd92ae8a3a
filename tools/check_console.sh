#!/bin/sh
# Is the committed console what console/ builds, and are its types right?
set -eu
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
make --no-print-directory console/node_modules/.made
cd console
npm run --silent check
npm run --silent build -- "$again"
diff -r "$again" ../server/dragoman/console || { echo "console-check: server/dragoman/console is not what console/ builds: make console" >&2; exit 1; }
