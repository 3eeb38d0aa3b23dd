#!/bin/sh
# Builds the original program where Go is installed, and lets its worker judge our aggregator.
# Usage: tests/original.sh [build]; with `build` it is only built, and its path printed.
# SONOBUOY_ORIGINAL names a program that is already there.
set -eu
cd "$(dirname "$0")/.."
module=github.com/vmware-tanzu/sonobuoy
version=v0.57.5

build() {
    command -v go >/dev/null || {
        echo 'skipped: the original: no Go toolchain' >&2
        return 1
    }
    folder=${CARGO_TARGET_DIR:-$PWD/target}/original
    program=$folder/sonobuoy-$version
    if [ ! -x "$program" ]; then
        mkdir -p "$folder"
        # A module of our own that requires it: this needs no list of versions, which some proxies do not serve.
        printf 'module judge\n\ngo 1.21\n\nrequire %s %s\n' "$module" "$version" >"$folder/go.mod"
        if ! (cd "$folder" && CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o part "$module" 2>log && mv part "$program"); then
            echo "skipped: the original: $module $version could not be built: $(tail -n 1 "$folder/log")" >&2
            return 1
        fi
    fi
    echo "$program"
}

if [ "${1:-}" = build ]; then
    build
else
    [ -n "${SONOBUOY_ORIGINAL:-}" ] || SONOBUOY_ORIGINAL=$(build) || exit 0
    export SONOBUOY_ORIGINAL
    cargo test --lib original_tests -- --nocapture
fi
