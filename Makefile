# All set-up and all checks. `make demo` and `make test` are enough on a fresh machine with Python >= 3.10 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The exact pin is what selects the right build: another spelling may fetch several GB.
TORCH := $(shell grep -x 'torch==[0-9.]*' constraints.txt)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
export PYTHONUNBUFFERED := 1
# Where bytecode is not kept, each of the thousands of processes that the tests start compiles all of ours again.
unexport PYTHONDONTWRITEBYTECODE

# The newest run of a configuration: runs are numbered by the logger and never written over.
newest = $$(dirname "$$(ls -t runs/$(1)/version_*/gpuprof*/report.json | head -n 1)")

# Two processes: each begins with one half of the files, so that a fit that many tests read is made once.
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal

# Only files that have slow tests: the others need not be imported and read.
SLOW = $(filter-out %/test_sabotage.py,$(shell grep -lrw --include='test_*.py' 'mark\.slow' tests))
# In two processes: what they find is how much one training is faster than another.
COMPARING = tests/end_to_end/test_compared_runs.py tests/docs/test_try_recipes.py
# First, so that no process is left with a long one when the others have ended.
LONGEST = tests/trial/test_whole_programs.py tests/end_to_end/test_renamed_parts.py tests/trial/test_trials_of_runs.py \
	tests/end_to_end/test_interpreters.py

# Spelling is checked in what people wrote, not in data or runs.
PROSE := $(wildcard lightning_gpuprof tests examples benchmarks configs docs .ci Makefile pyproject.toml *.md)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow sabotage oldest versions lint pages pictures docs bench truth peers trace-peers \
	lightning-suite launchers gpu clean

help: ## This list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

setup: $(READY) ## The virtual environment with everything in it; done by the others when needed

$(READY): pyproject.toml constraints.txt
	@test -x $(BIN)/pip || { echo "Making $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing $(TORCH)"
	@$(BIN)/python -m pip install -qq $(TORCH)
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo "Installing this package and the rest, in the versions of constraints.txt"; \
		$(BIN)/python -m pip install -qq -e '.[dev,demo]' -c constraints.txt; \
	else \
		echo "Installing this package and the rest, in versions for Python 3.10: constraints.txt needs 3.11"; \
		$(BIN)/python -m pip install -qq -e '.[dev,demo]'; \
	fi
	@touch $@

demo: $(READY) ## Train on the digits, measure what its advice gains, train again with it, compare
	@echo; echo "== 1/4  Train on the digits, batches loaded in the training process: configs/digits.yaml"
	$(BIN)/python -m examples.digits fit --config configs/digits.yaml
	@echo; echo "== 2/4  What does the advice of that run really gain, and what is to change?"
	@run=$(call newest,digits); program="$(BIN)/python -m examples.digits fit --config configs/digits.yaml"; \
		echo "gpuprof try $$run --patch -- $$program"; $(BIN)/gpuprof try "$$run" --patch -- $$program
	@echo; echo "== 3/4  Train again with the advice applied: configs/digits_fixed.yaml"
	$(BIN)/python -m examples.digits fit --config configs/digits_fixed.yaml
	@echo; echo "== 4/4  Before and after"
	@before=$(call newest,digits); after=$(call newest,digits_fixed); \
		echo "gpuprof compare $$before $$after"; $(BIN)/gpuprof compare "$$before" "$$after" || [ $$? -le 2 ]  # slower or not comparable
	@echo; echo "Reports to open in a browser:"
	@echo "  $(call newest,digits)/report.html"
	@echo "  $(call newest,digits_fixed)/report.html"
	@echo "TensorBoard with scalars, diagnosis and the trace:"
	@echo "  $(BIN)/tensorboard --logdir runs"

test: $(READY) ## All tests but those that take minutes
	$(PYTEST) -n 3 -m "not slow"  # a third process: half of the time they sleep, or wait for another program

test-slow: $(READY) ## Those that take minutes: ranks, whole programs, browsers
	$(PYTEST) -n 3 -m slow --durations=60 $(LONGEST) $(filter-out $(COMPARING) $(LONGEST),$(SLOW))  # three, as above
	$(PYTEST) -m slow $(COMPARING)

sabotage: $(READY) ## A fault in every line of ours, a fit for each; PART=0 to 15 for a sixteenth of the lines
	$(PYTEST) -m slow $(if $(PART),-k part$(PART)of) tests/end_to_end/test_sabotage.py

oldest: $(READY) ## A fit and one of two ranks with the oldest Lightning that works, and the torch that is here
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/versions.py --oldest

versions: $(READY) ## Which versions of Lightning and torch all of it works with; fetches 15 GB, removes them, half an hour
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/versions.py

lint: $(READY) ## Style, types, the order of the rooms, the oldest Python, spelling, prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --target=3.10- --violations lightning_gpuprof
	$(BIN)/codespell $(PROSE)
	$(BIN)/codespell --dictionary docs/tools/words.txt --skip docs/tools/words.txt,*.json,*.gz lightning_gpuprof docs *.md
	$(BIN)/python docs/tools/prose.py *.md docs

pictures: $(READY) ## The pictures in docs/; ARGS="--demo rank*.json.gz" also those of make demo and of traces
	$(BIN)/python docs/tools/doc_pictures.py $(ARGS)

pages: $(READY) ## Renew what is generated in docs/
	$(BIN)/python docs/tools/pages.py

docs: pages ## The documentation as a site that needs no network: build/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/docs/index.html"

bench: $(READY) ## What the profiler costs and how right it is, on the CPU; 40 minutes
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/overhead.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/overhead.py --steps 8000 --variants empty gpuprof own-empty \
		own-gpuprof --json benchmarks/results/overhead_with_window.json
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/one_fit.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/short_fit.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/window_stall.py
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/long_run.py
	$(BIN)/python benchmarks/rank_merge.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/rank_cost.py
	$(BIN)/python benchmarks/rank_hang.py
	$(BIN)/python benchmarks/slowdowns.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/samplers.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/look_cost.py
	$(BIN)/python benchmarks/advice.py
	$(BIN)/python benchmarks/diagnosis.py
	$(BIN)/python benchmarks/page.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/tab.py
	$(BIN)/python benchmarks/trace.py --readers ours ours-all --json benchmarks/results/trace_ours.json

truth: $(READY) ## Whether the diagnosis is right: planted faults, doses, the advice applied; about twenty minutes
	$(BIN)/python benchmarks/truth.py
	$(BIN)/python benchmarks/truth.py --dose
	$(BIN)/python benchmarks/truth.py --advice
	$(BIN)/python benchmarks/rank_truth.py --real

peers: $(READY) ## The overhead table with TraceML in it, which is installed in an environment of its own
	$(BIN)/python benchmarks/traceml_environment.py
	TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/overhead.py --also traceml device-stats-1
	$(BIN)/python benchmarks/truth.py --traceml

trace-peers: $(READY) ## Reading traces, against HolisticTraceAnalysis and torch_tb_profiler in an environment of their own
	$(BIN)/python benchmarks/trace_peers_environment.py
	$(BIN)/python benchmarks/trace.py --grown 620

lightning-suite: $(READY) ## Lightning's own tests without and with GPUPROF=1; LIGHTNING=checkout SUITE_PYTHON=python with their needs
	$(BIN)/python benchmarks/lightning_suite.py $(LIGHTNING) --python $(or $(SUITE_PYTHON),$(BIN)/python) -n 2

launchers: build/launchers/.ready ## Ray Train, DeepSpeed and an S3 server, in an environment of their own; fetches 1 GB, some minutes
	build/launchers/bin/python -m pytest -m slow $(addprefix tests/end_to_end/test_,ray_train.py deepspeed.py s3_server.py)

# One constraint is left out, as clients of S3 need an older one. DeepSpeed is built beside torch, whose version it asks for.
build/launchers/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	grep -v '^python-dateutil==' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install -qq $(TORCH)
	$(@D)/bin/python -m pip install -qq -e '.[launchers]' -c $(@D)/constraints.txt
	$(@D)/bin/python -m pip install -qq 'deepspeed>=0.19' --no-build-isolation
	@touch $@

gpu: $(READY) ## Tests and benchmarks that need a GPU; says so if there is none
	@if $(BIN)/python -c 'import torch; raise SystemExit(not torch.cuda.is_available())'; then \
		export CUDA_VISIBLE_DEVICES="$${CUDA_VISIBLE_DEVICES:-0}"; \
		$(BIN)/python -m pytest -m gpu || [ $$? -eq 5 ] || exit 1; \
		TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/overhead.py --accelerator gpu \
			--json benchmarks/results/overhead-gpu.json; \
		TORCH_CPP_LOG_LEVEL=ERROR $(BIN)/python benchmarks/window_stall.py --accelerator gpu \
			--variants gpuprof gpuprof-background pytorch pytorch-gzip \
			--json benchmarks/results/window_stall-gpu.json; \
	else \
		echo "No GPU: torch finds no CUDA device here, so there is nothing to run. The GPU tests are skipped."; \
	fi

clean: ## Remove the environment, caches, data and runs
	rm -rf $(VENV) data runs lightning_logs build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache \
		.import_linter_cache
	find lightning_gpuprof tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
