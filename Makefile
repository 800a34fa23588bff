# deepram: what can be done here. `make` alone lists it.

CARGO ?= cargo
PREFIX ?= /usr/local
TARGET := $(or $(CARGO_TARGET_DIR),target)

# Arguments for the command that a target runs: make demo ARGS="--size 4G --dram 512M"
ARGS ?=

# Data that fits in DRAM, for the memory benches.
IN_DRAM := --size 256MiB --dram 512MiB --peers pager,plain --no-latency

.DEFAULT_GOAL := help

help: ## List the targets
	@echo "deepram: flash as byte-addressable main memory, with DRAM as its cache"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Arguments: make demo ARGS="--size 4G --dram 512M"; see deepram demo --help.'

demo: tools ## Run the whole of it, end to end, in about a minute
	@$(CARGO) run --release --locked --quiet -p deepram -- demo $(ARGS)

test: tools ## Check everything: format, lints, tests, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) test --locked --workspace
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --workspace --no-deps

bench: tools ## Measure every row of docs/performance.md and add the results to docs/results (an hour)
	@for bench in checkpoint open persist predict "gups" "gups --threads 4" "gups --read" "gups --read --threads 4" \
		zipf "zipf --threads 4" scan "scan --threads 4" gather \
		"gather --no-hints --peers pool-load,mmap-random" \
		"gups --read --peers pool-load,pool-load-unpromoted,mmap-random,swap" \
		"zipf --peers pool-load,pool-load-unpromoted,mmap-random,swap" \
		"gups $(IN_DRAM)" "gups --read $(IN_DRAM)" "zipf $(IN_DRAM)" "scan $(IN_DRAM)"; do \
		$(CARGO) run --release --locked --quiet -p deepram -- bench $$bench --results docs/results $(ARGS) || exit; \
	done
	@for bench in "caches --peer" sim-peers "ecc --peer" "characterize --peer" flush "flush --peer" "msync --full" parity; do \
		$(CARGO) run --release --locked --quiet -p deepram -- bench $$bench --results docs/results || exit; \
	done

performance: tools ## Make docs/performance.md and its charts from the newest results in docs/results
	@$(CARGO) run --release --locked --quiet -p deepram -- bench performance
	@python3 bench/ratios.py docs/results docs/pictures

planted: tools ## Plant defects in a copy, one at a time, and show that the tests notice each (20 to 60 minutes)
	@.ci/planted $(ARGS)

man: tools ## Write the manual pages to target/man
	@$(CARGO) run --release --locked --quiet -p deepram -- man --out $(TARGET)/man
	@ls $(TARGET)/man

book: tools ## Build the documentation as a book in target/book (installs mdBook into target/tools)
	@.ci/book $(TARGET)

package: tools ## Package every crate for a registry, and build each from its package (minutes)
	$(CARGO) package --locked --workspace --exclude deepram-testkit $(ARGS)

release: tools
	@$(CARGO) build --release --locked --quiet -p deepram -p deepram-preload -p deepram-capi

install: release ## Install the command, its libraries, manual and completions under PREFIX
	.ci/layout $(TARGET)/release $(DESTDIR)$(PREFIX)

deb: release ## Make a Debian package of the command in target
	.ci/deb $(TARGET)/release $(TARGET)

# What a fresh Debian machine with a Rust toolchain lacks.
tools:
	@.ci/tools

.PHONY: help demo test bench performance planted man book package release install deb tools
