"""Each typed change is made until its rule is silent, in runs that follow from their settings; nothing undoes it."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from example_runs import example_run
from metrics_builder import HEALTHY_MS
from trusted import assert_can_be_trusted

from lightning_gpuprof.model.share import Share
from lightning_gpuprof.pipeline import report_of

Settings = Mapping[str, Any]
"""Arguments by name, and lines that were added, which are True."""
GIB, STEPS, EPOCHS = 2**30, 400, 20


def products(settings: Settings) -> dict[str, Any]:
    """Matrix products for 30 of 50 ms in fp32: a quarter of it in TF32, an eighth in bf16."""
    tf32 = settings.get('torch.set_float32_matmul_precision("high")', False)
    cudnn = settings.get("torch.backends.cudnn.allow_tf32 = True", False)
    half = settings.get("precision", "32-true") == "bf16-mixed"
    fast_ms = {"tensor core gemm": 30 / 8} if half else {"tensor core gemm": 5 * tf32 + 2.5 * cudnn}
    slow_ms = {} if half else {"fp32 gemm": 20 * (not tf32), "fp32 convolution": 10 * (not cudnn)}
    return {
        "kernels": {name: ms for name, ms in {**fast_ms, **slow_ms, "pointwise": 18}.items() if ms},
        "run": {
            "trainer.precision": settings.get("precision", "32-true"),
            "flags.float32_matmul_precision": "high" if tf32 else "highest",
            "flags.cudnn_tf32": bool(cudnn),
        },
    }


def products_without_flags(settings: Settings) -> dict[str, Any]:
    """The same where the settings of TF32 are not known, so that half precision is what is left."""
    found = products(settings)
    return {**found, "run": {"trainer.precision": found["run"]["trainer.precision"]}}


def scaler(capability: str) -> Callable[[Settings], dict[str, Any]]:
    """A gradient scaler reads a value, for which the host waits 2 ms: not in bf16, nor with a fused optimizer."""

    def run(settings: Settings) -> dict[str, Any]:
        precision, fused = settings.get("precision", "16-mixed"), settings.get("fused", False)
        reads = {} if fused or precision != "16-mixed" else {"reads": {"scaler": 2000.0}}
        return {
            "step": {"kernels": 100, **reads},
            "run": {
                "trainer.precision": precision,
                "device.capability": capability,
                "model.optimizer": "AdamW",
                "model.optimizer_fused": fused,
            },
        }

    return run


def logging(settings: Settings) -> dict[str, Any]:
    """self.log takes 10 ms of each step in which it is called, writing 12 ms of each that is written."""
    called = next((int(line.split()[-3]) for line in settings if line.startswith("if (batch_idx + 1) %")), 1)
    every = settings.get("log_every_n_steps", 1)
    calls_ms = 10.0 / called
    whole_ms = calls_ms + 12.0 / every
    ratio = calls_ms / (sum(HEALTHY_MS.values()) + whole_ms)
    return {
        "times_ms": {"logging": whole_ms},
        "run": {"trainer.log_every_n_steps": every},
        "metrics": {"log_calls": Share(median_ratio=ratio, lower_ratio=ratio, median_ms=calls_ms, total_ratio=ratio)},
    }


def optimizer(kind: str) -> Callable[[Settings], dict[str, Any]]:
    """2,000 small tensors are updated one by one: 100 ms; all together: 4."""

    def run(settings: Settings) -> dict[str, Any]:
        together = settings.get("fused") or settings.get("foreach")
        return {
            "times_ms": {"optimizer": 4.0 if together else 100.0},
            "run": {
                "model.parameter_tensors": 2000,
                "model.parameter_bytes": 64_000,
                "model.optimizer": kind,
                "model.optimizer_fused": settings.get("fused", False),
                "model.optimizer_foreach": settings.get("foreach", False),
            },
        }

    return run


def gradients(settings: Settings) -> dict[str, Any]:
    """16 of 110 GiB in forward are gradients of the step before, until they are cleared."""
    cleared = "        optimizer.zero_grad(set_to_none=True)" in settings
    peak = {"allocated_gib": 94.0 if cleared else 110.0, "peak_phase": "backward" if cleared else "forward"}
    return {"allocator": peak, "held": {"gradients_bytes": 16 * GIB}}


def upload(settings: Settings) -> dict[str, Any]:
    """A batch of 40 MB: 10 ms from pageable memory, 1.6 ms from pinned memory."""
    pinned = settings.get("pin_memory", False)
    kind, us = ("Pinned", 1600.0) if pinned else ("Pageable", 10_000.0)
    copy = {"kind": f"HtoD ({kind} -> Device)", "us": us, "nbytes": 40_000_000, "count": 1, "after_us": 0.0}
    return {"step": {"kernels": 100, "copy": copy}, "pin_memory": pinned}


def progress_bar(settings: Settings) -> dict[str, Any]:
    """Drawing the bar waits for the GPU: 2 ms."""
    return {"step": {"kernels": 100, "reads": {"TQDMProgressBar": 2000.0 / settings.get("refresh_rate", 1)}}}


def workers(settings: Settings) -> dict[str, Any]:
    """Workers that restart at every epoch: 1.2 s."""
    stay = settings.get("persistent_workers", False)
    first_s = {} if stay else {"iterator_s": 0.3, "first_wait_s": 0.9}
    return {"persistent_workers": stay, **first_s, "times_ms": {"forward": 4.0, "backward": 5.0}}


def anomalies(settings: Settings) -> dict[str, Any]:
    """A stack is recorded for each of 200 operations: 20 ms."""
    on = settings.get("detect_anomaly", True)
    cost = {"flags.anomaly_nodes": 200, "flags.anomaly_stack_us": 100.0} if on else {}
    return {"run": {"trainer.detect_anomaly": on, **cost}}


def sanity_check(settings: Settings) -> dict[str, Any]:
    """50 batches before training take 5 s."""
    batches = settings.get("num_sanity_val_steps", 50)
    return {"wall_s": {"sanity": 0.1 * batches}, "run": {"trainer.num_sanity_val_steps": batches}}


def checkpoints(condition: str, argument: str, now: int) -> Callable[[Settings], dict[str, Any]]:
    """A checkpoint takes 0.3 s."""
    whole = EPOCHS if argument == "every_n_epochs" else STEPS

    def run(settings: Settings) -> dict[str, Any]:
        every = settings.get(argument, now)
        count = max(1, whole // every)
        return {"epochs": EPOCHS, "checkpoint": (count, 0.3 * count), "run": {condition: every}}

    return run


def validation(epochs: int, each_s: float) -> Callable[[Settings], dict[str, Any]]:
    """Validation once in so many epochs."""

    def run(settings: Settings) -> dict[str, Any]:
        every = settings.get("check_val_every_n_epoch", 1)
        count = max(1, epochs // every)
        return {
            "epochs": epochs,
            "validation": (count, each_s * count),
            "run": {"trainer.check_val_every_n_epoch": every},
        }

    return run


def validation_within(settings: Settings) -> dict[str, Any]:
    """Validation 100 times in each of four epochs, of 62.5 ms each."""
    interval = settings.get("val_check_interval", 0.01)
    count = round(4 / interval)
    return {"validation": (count, 0.0625 * count), "run": {"trainer.val_check_interval": interval}}


CASES: dict[str, tuple[str, Callable[[Settings], dict[str, Any]]]] = {
    "TF32": ("fp32-matmul-tf32-off", products),
    "half precision": ("tc-unused", products_without_flags),
    "no scaler": ("amp-scaler-sync", scaler("9.0")),
    "a scaler whose value the optimizer reads": ("amp-scaler-sync", scaler("7.0")),
    "bf16 in place of fp16": ("precision-16-on-ampere", scaler("8.0")),
    "log cadence": ("logging-overhead", logging),
    "fused": ("optimizer-slow", optimizer("AdamW")),
    "foreach": ("optimizer-slow", optimizer("NAdam")),
    "zero_grad": ("grads-live-in-forward", gradients),
    "pinned memory": ("h2d-pageable", upload),
    "progress bar": ("progress-bar-sync", progress_bar),
    "persistent workers": ("worker-startup", workers),
    "anomaly detection": ("debug-apis-on", anomalies),
    "sanity check": ("sanity-check-cost", sanity_check),
    "checkpoints by steps": (
        "checkpoint-stall",
        checkpoints("trainer.checkpoint_every_n_train_steps", "every_n_train_steps", 20),
    ),
    "checkpoints by epochs": (
        "checkpoint-stall",
        checkpoints("trainer.checkpoint_every_n_epochs", "every_n_epochs", 1),
    ),
    "validation by epochs": ("validation-stall", validation(4, 3.5)),
    "validation in 20 epochs": ("validation-stall", validation(20, 0.65)),
    "validation within epochs": ("validation-stall", validation_within),
}
"""What is set, the rule that asks for it, and how the run follows from what was set."""


@pytest.mark.parametrize(("rule", "run"), CASES.values(), ids=CASES)
def test_a_change_is_asked_for_until_it_is_made_and_nothing_asks_to_undo_it(
    rule: str, run: Callable[[Settings], dict[str, Any]]
) -> None:
    settings: dict[str, Any] = {}
    had: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for round_number in range(5):
        metrics = example_run(**run(settings))
        report = report_of(metrics)
        assert_can_be_trusted(report.findings, report.combined, report.verdict, dict(metrics.run))
        asked: dict[tuple[str, str], Any] = {}
        for change in (one.change for one in report.findings if one.change is not None):
            for name, value in change.arguments.items():
                key = change.call, name
                assert asked.setdefault(key, value) == value, "two findings, two values"
                assert value not in (*had[key], change.before.get(name, ...)), "asked for what was set before"
            assert not change.add or not set(change.add) <= set(settings), "asked for again"
            assert not set(change.remove) & set(settings), "asked to undo"
        taken = next((one.change for one in report.findings if one.rule == rule and one.change is not None), None)
        if taken is None:
            assert round_number, "nothing was asked for"
            return
        for name, value in taken.arguments.items():
            had[taken.call, name] += [taken.before.get(name), value]
        settings |= {**taken.arguments, **dict.fromkeys(taken.add, True)}
    pytest.fail(f"never silent: {dict(had)}")
