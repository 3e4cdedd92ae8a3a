#!/bin/sh
# Checks the console's types, and that the committed console matches console/.
set -eu
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
make --no-print-directory console/node_modules/.made
cd console
npm run --silent check
npm run --silent build -- "$again"
diff -r "$again" ../server/dragoman/console || { echo "console-check: server/dragoman/console is out of date; run make console" >&2; exit 1; }
