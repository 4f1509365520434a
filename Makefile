# The one entry point: what people type and what CI runs. `make` alone lists it.
#
#   make test     everything that has to pass: format, lints, all tests (this is what .ci/run calls)
#   make lint     the first two of these only
#   make fmt      puts the format right
#   make demo     the lab's web, crawled by three sites as one; touches no server but its own
#   make bars     every experiment of the lab against its bars; slow, and best on a machine at rest
#   make fuzz     every fuzz target for FUZZ_SECONDS (600), or only FUZZ_TARGETS="url warc"
#   make nightly  bars, fuzz, and SIM_SEEDS (10000) seeds of the simulator, of one agent, of sites and of federations
#   make clean    removes what the above made
#
# Needed: Rust, a C compiler, Python 3.10 with pip, make. `make fuzz` also needs a C++ compiler, and installs cargo-fuzz.
# One profile (dev, with optimised dependencies) serves lints and tests alike; only demo, bars and fuzz build for release.

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
# For Pythons that come without ensurepip, as some distributions cut them.
VIRTUALENV := target/virtualenv

NEPHILA ?= $(CARGO) run --release --quiet --package nephila --
BARS ?= hostile "hostile --default-delays" kills full-disk gap memory first-page web-speed handshakes connections many-hosts frontier redis ring "chaos --join" "chaos --lose" "chaos --time-out --away 120" "chaos --store redis" \
	"chaos --store redis --regardless" "chaos --store redis --takeover" scaling "scaling --store redis" garbage "federation --evaluate" quality "bench --peers none"
SIM_SEEDS ?= 10000

FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= $(patsubst fuzz/fuzz_targets/%.rs,%,$(wildcard fuzz/fuzz_targets/*.rs))
# One small module of ours is unsafe and has tests of its own: address sanitising would only slow the search for panics, hangs and
# broken promises.
# Without it the stable compiler will do.
FUZZ_FLAGS := --sanitizer none --target-dir fuzz/target

.PHONY: help test lint fmt demo bars fuzz nightly clean

help:
	@sed -n 's/^#   //p' $(MAKEFILE_LIST)

test: lint $(VENV)/made
	NEPHILA_PYTHON=$(CURDIR)/$(VENV)/bin/python $(CARGO) test --workspace --no-fail-fast

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --package nephila --no-default-features -- -D warnings

fmt:
	$(CARGO) fmt --all

demo:
	$(NEPHILA) demo

# All of them, even when one misses its bar.
bars:
	@missed=; for bar in $(BARS); do \
		echo "nephila lab $$bar"; \
		$(NEPHILA) lab $$bar || missed="$$missed '$$bar'"; \
	done; \
	if [ -n "$$missed" ]; then echo "missed:$$missed"; exit 1; fi

nightly: bars fuzz
	$(NEPHILA) lab sim --seeds $(SIM_SEEDS)
	$(NEPHILA) lab sim --site --seeds $(SIM_SEEDS)
	$(NEPHILA) lab sim --shared --seeds $(SIM_SEEDS)
	$(NEPHILA) lab sim --federation --seeds $(SIM_SEEDS)

# What the fuzzer finds goes to fuzz/artifacts, what it learns to fuzz/target/corpus. A finding that is mended is copied to
# fuzz/corpus, whose files are tests.
fuzz:
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-fuzz
	$(CARGO) fuzz build $(FUZZ_FLAGS)
	@set -e; for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/target/corpus/$$target; \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		$(CARGO) fuzz run $(FUZZ_FLAGS) $$target fuzz/target/corpus/$$target fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=1024 -print_final_stats=1; \
	done

clean:
	$(CARGO) clean
	rm -rf $(VENV) $(VIRTUALENV) fuzz/target

# The Python tools that the tests compare with.
$(VENV)/made: tests/requirements.txt
	rm -rf $(VENV) $(VIRTUALENV)
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		$(PYTHON) -m pip install --quiet --target $(VIRTUALENV) virtualenv && \
		PYTHONPATH=$(VIRTUALENV) $(PYTHON) -m virtualenv --quiet $(VENV); }
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement tests/requirements.txt
	touch $@
