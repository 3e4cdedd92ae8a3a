#!/bin/sh
# Installs protoc-gen-openapiv2 and protoc-gen-grpc-gateway 2.20.0 from Debian 13's package, without root and without
# changing the system's apt state.
set -eu
out=${1:?usage: get_gateway_plugins.sh <folder>}
sum=e1c5d4f2e3b129da5fde33b23b3e3f01761f05c7c02dd6045d6a5f06e26a24b0 # amd64
apt=$(mktemp -d)
trap 'rm -rf "$apt"' EXIT
mkdir -p "$apt/parts" "$apt/lists/partial" "$apt/cache/archives/partial" "$out"
sed -n '/^Types/,/^$/p' /etc/apt/sources.list.d/debian.sources | sed 's/bookworm/trixie/g' >"$apt/parts/debian.sources"
set -- -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$apt/parts" \
  -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o Acquire::Languages=none \
  -o APT::Sandbox::User=
apt-get "$@" update
(cd "$apt" && apt-get "$@" download golang-grpc-gateway)
echo "$sum  $(echo "$apt"/*.deb)" | sha256sum -c - >/dev/null
dpkg-deb --fsys-tarfile "$apt"/*.deb | tar -xf - -C "$out" --strip-components=3 ./usr/bin
ls "$out"
