from __future__ import annotations

import importlib
from pathlib import Path
from typing import ClassVar

import pytest

from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.discovery import discover

BUILT_IN = {
    "activations-dominate",
    "alloc-retries",
    "amp-scaler-sync",
    "attention-unfused",
    "barebones-gap",
    "blocked-in-step",
    "bucket-view-off",
    "callback-slow",
    "channels-last-missing",
    "checkpoint-stall",
    "collate-hotspot",
    "comm-slow-link",
    "compile-absent",
    "conv-bias-before-bn",
    "copy-heavy",
    "cpu-contention",
    "cpu-oversubscription",
    "cudamalloc-steady",
    "cudnn-benchmark-off",
    "d2h-traffic",
    "ddp-bucket-size",
    "debug-apis-on",
    "ecc-xid",
    "empty-cache-in-loop",
    "epoch-boundary-idle",
    "exposed-comm",
    "find-unused-params",
    "fp32-matmul-tf32-off",
    "fragmentation",
    "framework-ddp-sync",
    "gc-pauses",
    "gpu-gaps",
    "gpu-shared",
    "gpu-util-low",
    "grad-clip-cost",
    "grads-live-in-forward",
    "graph-breaks",
    "h2d-exposed",
    "h2d-pageable",
    "h2d-slow-link",
    "host-cpu-quota",
    "host-leak",
    "host-swap",
    "host-tensor-creation",
    "input-bound",
    "input-jitter",
    "interpreter-lock",
    "launch-bound",
    "load-imbalance",
    "loader-cpu-bound",
    "loader-io-bound",
    "logging-overhead",
    "low-clocks",
    "low-occupancy",
    "lr-scheduler-cost",
    "many-small-copies",
    "memory-bound-kernels",
    "memory-headroom",
    "memory-leak",
    "mfu-low",
    "mig-slice",
    "nvlink-down",
    "oom-risk",
    "optimizer-slow",
    "optimizer-state-dominates",
    "page-cache-miss",
    "pcie-degraded",
    "phase-change",
    "power-brake",
    "power-throttle",
    "precision-16-on-ampere",
    "profiler-overhead",
    "progress-bar-sync",
    "python-overhead",
    "queue-full",
    "recompiles",
    "sampler-slow",
    "sanity-check-cost",
    "single-process-loading",
    "slow-first-steps",
    "slow-launch-api",
    "small-batch-loader",
    "small-kernels",
    "step-drift",
    "step-outliers",
    "straggler-rank",
    "sync-points",
    "tc-misaligned",
    "tc-unused",
    "thermal-throttle",
    "too-few-workers",
    "too-many-workers",
    "transfer-hook-slow",
    "transform-hotspot",
    "uneven-peak-phase",
    "util-misleading",
    "val-input-bound",
    "validation-stall",
    "wave-quantisation",
    "worker-startup",
    "worker-thread-oversub",
    "wrong-backend",
}

RULE = """
from typing import ClassVar

class Dropped:
    '''A rule in a file of its own.'''
    id: ClassVar[str] = "{id}"
    def check(self, metrics):
        return None
"""


class FromElsewhere:
    """A rule of another package."""

    id: ClassVar[str] = "from-elsewhere"

    def check(self, metrics: Metrics) -> Finding | None:
        return None


class NeedsArguments(FromElsewhere):
    """A rule that cannot be made without arguments."""

    id: ClassVar[str] = "needs-arguments"

    def __init__(self, path: str) -> None:
        self.path = path


class Point:
    """What an installed package registers."""

    def __init__(self, name: str, target: object) -> None:
        self.name = name
        self._target = target

    def load(self) -> object:
        if isinstance(self._target, Exception):
            raise self._target
        return self._target


def test_the_built_in_rules_are_found_by_their_presence() -> None:
    found = discover(entry_points=[])
    assert {rule.id for rule in found.rules} == BUILT_IN
    assert found.failed == ()
    assert [rule.id for rule in found.rules] == sorted(BUILT_IN)


def test_a_file_that_is_dropped_into_the_package_is_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dropped_rules"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "good.py").write_text(RULE.format(id="good"))
    (folder / "other.py").write_text("from dropped_rules.good import Dropped\n")
    (folder / "broken.py").write_text("import no_such_package_at_all\n")
    (folder / "same.py").write_text(RULE.format(id="good"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    found = discover(package=importlib.import_module("dropped_rules"), entry_points=[])
    assert [rule.id for rule in found.rules] == ["good"]
    assert {n.rule: n.why for n in found.failed} == {
        "dropped_rules.broken": "failed to load: ModuleNotFoundError: No module named 'no_such_package_at_all'",
        "dropped_rules.same": "the rule id good is taken",
    }


def test_other_packages_add_rules_by_entry_points() -> None:
    found = discover(
        entry_points=[
            Point("elsewhere", FromElsewhere),
            Point("gone", ImportError("no module")),
            Point("number", 3),
            Point("arguments", NeedsArguments),
        ]
    )
    assert {rule.id for rule in found.rules} >= BUILT_IN | {"from-elsewhere"}
    why = {n.rule: n.why for n in found.failed}
    assert why["gone"] == "failed to load: ImportError: no module"
    assert why["number"] == "failed to load: 3 is not a rule class"
    assert why["arguments"].startswith("failed to load: TypeError")


def test_a_rule_of_another_package_cannot_replace_a_built_in_one() -> None:
    class Usurper(FromElsewhere):
        id: ClassVar[str] = "input-bound"

    found = discover(entry_points=[Point("usurper", Usurper)])
    assert {n.rule: n.why for n in found.failed} == {"usurper": "the rule id input-bound is taken"}
    assert not any(isinstance(rule, Usurper) for rule in found.rules)
