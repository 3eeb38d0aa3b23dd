#!/bin/sh
# Builds the original program where Go is installed, and lets its worker judge our aggregator.
# Usage: tests/original.sh [VERSION]; SONOBUOY_ORIGINAL names a program that is already there.
set -eu
cd "$(dirname "$0")/.."
version=${1:-v0.57.5}
if [ -z "${SONOBUOY_ORIGINAL:-}" ]; then
    if ! command -v go >/dev/null; then
        echo "skipped: no Go toolchain"
        exit 0
    fi
    build=$(mktemp -d)
    trap 'chmod -R u+w "$build"; rm -rf "$build"' EXIT
    module=github.com/vmware-tanzu/sonobuoy
    # A module of our own that requires it: this needs no list of versions, which some proxies do not serve.
    printf 'module judge\n\ngo 1.21\n\nrequire %s %s\n' "$module" "$version" >"$build/go.mod"
    if ! (cd "$build" && CGO_ENABLED=0 GOFLAGS=-mod=mod GOPATH="$build/go" go build -o sonobuoy "$module" 2>log); then
        echo "skipped: $module $version could not be built: $(tail -n 1 "$build/log")"
        exit 0
    fi
    SONOBUOY_ORIGINAL=$build/sonobuoy
fi
export SONOBUOY_ORIGINAL
cargo test --lib original_tests -- --nocapture
