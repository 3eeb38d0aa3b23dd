# `make` alone lists the targets: the text after `##` is a target's help.

SHELL := /bin/sh
PREFIX ?= /usr/local
export SONOBUOY_GIT_SHA ?= $(shell git rev-parse HEAD 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help build check test bench install man docs pictures site sheet static image kit release machines e2e clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' Makefile

build: ## the program for daily use, target/release/sonobuoy
	cargo build --locked --release

check: ## format, lints, docs with their commands, and conventions, without the long tests
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --document-private-items
	cargo check --locked -p sonobuoy-client
	cargo test --locked --test main -- tidy dependencies docs contributing
	if cargo deny --version >/dev/null 2>&1; then cargo deny --locked check bans licenses sources; fi

test: ## everything that is checked before a release
	./scripts/test

bench: ## measurements, as ratios taken in one run; PROFILE=image measures what images carry
	cargo bench --locked $(if $(PROFILE),--profile $(PROFILE))

install: build man ## binary, man pages and completions below PREFIX (/usr/local)
	install -D -m 0755 target/release/sonobuoy $(DESTDIR)$(PREFIX)/bin/sonobuoy
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0644 target/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	target/release/sonobuoy completion bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sonobuoy
	target/release/sonobuoy completion zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sonobuoy
	target/release/sonobuoy completion fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sonobuoy.fish

man: ## man pages, in target/man
	rm -rf target/man
	cargo run --locked --example man -- target/man

docs: ## docs/commands.md, from the table of commands
	cargo run --locked --example man -- target/man docs/commands.md

pictures: ## the pictures of README.md; needs tmux and chromium
	./scripts/release/pictures

sheet: ## docs/performance.md, measured in the cluster of KUBECONFIG; ARGS are its flags
	./scripts/sheet $(ARGS)

site: ## docs as static pages, in target/site/VERSION
	./scripts/release/site

static: ## a fully static binary
	./scripts/static

image: ## an image archive for any container runtime
	./scripts/image

kit: ## one tar for a machine without network
	./scripts/kit

release: ## archives and packages for every system, checksums and provenance, in target/release-files
	./scripts/release/build

machines: ## the tests of other systems and architectures, under wine and qemu
	./scripts/ci/machines

e2e: ## the tests that need a cluster: KUBECONFIG and IMAGE name it
	./tests/e2e/run

clean: ## remove everything that was built
	cargo clean
