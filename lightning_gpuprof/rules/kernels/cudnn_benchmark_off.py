"""Convolutions take a large part of the step, their shapes do not change, and cuDNN guesses the algorithm.

## What it means
With `torch.backends.cudnn.benchmark` cuDNN times its algorithms once for each new shape and keeps the fastest.

## How it is measured
The setting, and trace windows with shapes: the time of convolutions whose shapes occur equally often in all steps. Only
a run shows what another algorithm gains, so this is information without a gain.

## When it is wrong
- With inputs of varying size, also in a smaller last batch, cuDNN times its algorithms again for each new shape.
- Deterministic algorithms rule the choice out.

## What to do
`Trainer(benchmark=True)`, and `drop_last=True` in the DataLoader.
"""

from lightning_gpuprof.rules.base import Change, Finding, Metrics, MissingSignal, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, DeviceRun, KernelRule, class_us

_BENCHMARK, _FIXED = "flags.cudnn_benchmark", ("flags.cudnn_deterministic", "flags.deterministic_algorithms")
_OFF, _DROP = {_BENCHMARK: False}, "loader.drop_last"


def _run(ms: float, occurrences: int = 20) -> dict[str, object]:
    """A run of an example whose five traced steps have so many convolutions."""
    row = ("aten::cudnn_convolution", "32x64x56x56, 64x64x3x3", ms, {"occurrences": occurrences})
    return {"kernels": {"convolution": ms, "pointwise": 49 - ms}, "operators": [row]}


class CudnnBenchmarkOff(KernelRule):
    id = "cudnn-benchmark-off"
    title = "cuDNN does not benchmark convolutions"
    certainty = 0.5
    what = "convolutions, share of the step"

    least_ratio: float = threshold(0.20, source="the method: convolutions of at least a fifth of the step")

    examples = (
        fires("convolutions take 30 of 50 ms", "info", "Trainer(..., benchmark=True)", **_run(30), run=_OFF),
        fires("the last batch is smaller", "info", "drop_last=True", **_run(30), run={**_OFF, _DROP: False}),
        fires("convolutions take 10.01 of 50 ms", "info", "10.0 ms", **_run(10.01), run=_OFF),
        quiet("convolutions take 9.99 of 50 ms", **_run(9.99), run=_OFF),
        quiet("benchmark is on", **_run(30), run={_BENCHMARK: True}),
        quiet("cuDNN has to be deterministic", **_run(30), run={**_OFF, _FIXED[0]: True}),
        quiet("all algorithms have to be deterministic", **_run(30), run={**_OFF, _FIXED[1]: True}),
        looks_alike("shapes vary", **_run(30, occurrences=3), run=_OFF),
        not_evaluated("there are no shapes", "record_shapes", **{**_run(30), "operators": None}, run=_OFF),
        not_evaluated("the setting is not known", "cudnn.benchmark", **_run(30)),
        UNTRACED,
    )

    def require(self, metrics: Metrics, run: DeviceRun) -> None:
        if metrics.condition(_BENCHMARK) is None:
            raise MissingSignal("the setting of cudnn.benchmark is not known")

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        if metrics.condition(_BENCHMARK) is True or True in [metrics.condition(name) for name in _FIXED]:
            return None
        time = run.per_step(lambda window: class_us(window, "convolution"))
        if not self.is_long(time):
            return None
        equal = [window.has_equal_convolutions for window in run.windows]
        if None in equal:
            raise MissingSignal("the shapes of convolutions were not recorded: TraceConfig(record_shapes=True)")
        if not all(equal):
            return None
        varies = metrics.condition(_DROP) is False
        also = " Set drop_last=True in the DataLoader, too: cuDNN benchmarks each new shape again." if varies else ""
        return self.of_kernels(
            run,
            subject="convolutions",
            summary=f"Convolutions take {time}, and cuDNN does not benchmark its algorithms to find the fastest.",
            advice=f"Turn cudnn.benchmark on: Trainer(..., benchmark=True). All traced steps have the same "
            f"shapes.{also}",
            time=time,
            evidence=(self.fact("cudnn.benchmark", "False"),),
            change=Change(call="Trainer", arguments={"benchmark": True}),
        )
