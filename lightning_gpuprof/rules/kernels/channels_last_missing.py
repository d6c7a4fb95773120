"""cuDNN converts tensors from NCHW to NHWC before convolutions and back after them.

## What it means
Tensor cores convolve in the NHWC layout, which torch calls channels_last. For a model in the default layout cuDNN
converts inputs, weights and results around each convolution.

## How it is measured
Trace windows: the time of cuDNN's kernels `nchwToNhwc` and `nhwcToNchw`, compared with that of the convolutions. Only
the 20 longest kernels are known by name, so the time is a lower bound. It is also the gain.

## When it is wrong
- Convolutions that are not 4-dimensional, and operators without a channels_last form, keep their conversions.

## What to do
Convert the model in `__init__` or `configure_model`, and the batch in `on_after_batch_transfer`.
"""

from lightning_gpuprof.model.device_kernels import DeviceRun, class_us, short_name
from lightning_gpuprof.rules.base import Change, Finding, Metrics, claims, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.kernels.kernel_rule import UNTRACED, KernelRule

_MODEL = "self.model.to(memory_format=torch.channels_last)"
_BATCH = "x = x.to(memory_format=torch.channels_last)"
_KERNELS = {"convolution": 20, "pointwise": 23, "nchwToNhwc": 3, "nhwcToNchw": 3}
_NONE, _ALL = ({"model.convolutions": 53, "model.channels_last_convolutions": count} for count in (0, 53))


class ChannelsLastMissing(KernelRule):
    id = "channels-last-missing"
    title = "Convolutions convert the memory layout"
    explains = claims.LAYOUT_CHANGES
    certainty = 0.8

    least_of_convolutions_ratio: float = threshold(0.10, source="TraceLens: transposes above 10 % of convolutions")

    examples = (
        fires("conversions take 6 of 50 ms", "warning", "6.00 ms of each 50.0 ms", saves_ms=6.0, kernels=_KERNELS),
        fires("no convolution is in channels_last", "warning", "0 of 53", kernels=_KERNELS, run=_NONE),
        fires("all convolutions are", "warning", "but their inputs are not", kernels=_KERNELS, run=_ALL),
        fires(
            "conversions take 10.1 % of it", "info", "10 %", kernels={**_KERNELS, "nhwcToNchw": 1.02, "nchwToNhwc": 1}
        ),
        quiet("conversions take 9.9 % of it", kernels={**_KERNELS, "nhwcToNchw": 0.98, "nchwToNhwc": 1}),
        quiet("nothing is converted", kernels={"convolution": 20, "pointwise": 28}),
        quiet("there are no convolutions", kernels={"pointwise": 48}),
        looks_alike("another kernel has a layout in its name", kernels={"convolution": 24, "pooling": 24}),
        looks_alike("the host is the bottleneck", kernels={"convolution": 20, "nchwToNhwc": 6}),
        UNTRACED,
    )

    def judge(self, metrics: Metrics, run: DeviceRun) -> Finding | None:
        changes = run.per_step(lambda window: sum(row.total_us for row in window.layout_changes))
        convolutions = run.per_step(lambda window: class_us(window, "convolution"))
        if not 0 < self.least_of_convolutions_ratio * convolutions.ms <= changes.lower_ms or not changes.is_worth():
            return None
        ratio = changes.ms / convolutions.ms
        names = [short_name(row.name) for row in run.windows[0].layout_changes]
        count = metrics.positive("model.convolutions")
        already = metrics.positive("model.channels_last_convolutions") or 0
        now = f" {already} of {count} convolutions are in it now." if count else ""
        batch = f"{_BATCH}  # in on_after_batch_transfer"
        is_last = count is not None and count <= already
        advice = f"Use channels_last: {_MODEL} in __init__, and {_BATCH} in on_after_batch_transfer.{now}"
        if is_last:
            advice = (
                f"Convert the batch, too, in on_after_batch_transfer: {_BATCH}. All {count} convolutions are in "
                "channels_last, but their inputs are not. A .view(), .permute() or .contiguous() between layers can "
                "also change the layout back."
            )
        return self.of_kernels(
            run,
            subject=names[0] if names else "convolutions",
            summary=f"Conversions between NCHW and NHWC take {changes}. That is {percent(ratio)} of "
            "the time of the convolutions themselves.",
            advice=advice,
            evidence=(
                self.evidence("least_of_convolutions_ratio", ratio, "layout conversions over convolutions"),
                self.fact("layout conversions per step", changes.ms, "ms"),
                self.fact("convolutions per step", convolutions.ms, "ms"),
            ),
            cost=changes,
            change=Change(add=(batch,) if is_last else (f"{_MODEL}  # in __init__", batch)),
        )
