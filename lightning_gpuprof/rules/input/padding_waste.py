"""The model computes on padding: rows are padded far beyond their tokens.

## What it means
Rows of a batch need one length. If it is fixed (`padding="max_length"`), the model computes on every position, forward
and backward, whatever the real lengths are. The cost of attention grows with the square of it.

## How it is measured
About 20 of the first 1,000 batches are inspected as the DataLoader hands them over, before they go to a device:
`attention_mask`, else two-dimensional integer tensors whose rows share a constant start or end that does not occur in
the rest. The gain is the time of forward and backward (on a GPU: its busy time) times the share of padding beyond the
longest row of each batch, or, if that is small, beyond the length of each row. Its lower bound is half of it.

## When it is wrong
- Layers whose cost does not grow with the length (a large embedding table) save less, attention saves more.
- Padded tensors of floats, as of sound or features, are not looked at.
- A model that was exported, compiled or captured for one length needs it: pad to a few lengths then.

## What to do
Pad in `collate_fn`, to the longest row of the batch. If rows of one batch differ much, put rows of similar length into
one batch (Hugging Face: `group_by_length`, a batch sampler that sorts within chunks).
"""

from lightning_gpuprof.model.device_step import DeviceStep
from lightning_gpuprof.model.input_pipeline import Padding
from lightning_gpuprof.model.missing import MissingSignal, NotApplicable
from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.rules.base import BaseRule, Change, Finding, Metrics, claims, device_step, percent, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, not_evaluated, quiet

_MODEL: tuple[Phase, ...] = ("forward", "backward")
_TO_512 = {"name": "input_ids", "looks": 12, "width": 512, "fixed": True, "real_ratio": 0.2, "to_longest_ratio": 0.3}
_MIXED = {**_TO_512, "fixed": False, "to_longest_ratio": 0.95}


class PaddingWaste(BaseRule):
    id = "padding-waste"
    title = "The model wastes compute on padding"
    certainty = 0.7

    least_ratio: float = threshold(0.20, source="heuristic: share of padding that a fix takes away")
    least_mixed_ratio: float = threshold(0.35, source="heuristic: rows in random order differ by as much")
    least_looks: int = threshold(5, source="heuristic: batches inspected")

    examples = (
        fires(
            "all rows are padded to 512",
            "critical",
            "padded to 512 ... only to its longest row",
            saves_ms=29.4,
            padding=_TO_512,
        ),
        fires("rows of one batch differ", "critical", "rows of similar length", saves_ms=33.6, padding=_MIXED),
        quiet("a tenth of it is padding", padding={**_TO_512, "real_ratio": 0.85, "to_longest_ratio": 0.9}),
        quiet("rows of one batch differ a little", padding={**_MIXED, "real_ratio": 0.7}),
        looks_alike("the model hardly computes", padding=_TO_512, times_ms={"data_wait": 2e3}),
        not_evaluated("one batch was inspected", "1 of the 5 batches needed", padding={**_TO_512, "looks": 1}),
        not_evaluated("no batch was inspected", "no batch was inspected", padding=None),
    )

    def check(self, metrics: Metrics) -> Finding | None:
        metrics.require_steady()
        found = self.padding(metrics)
        beyond, within = 1 - found.to_longest_ratio, 1 - found.real_ratio
        mixed = beyond < self.least_ratio
        ratio = within if mixed else beyond
        saved_ms = ratio * _computing_ms(metrics)
        cost = metrics.cost(saved_ms, 0.5 * saved_ms)
        if (mixed and within < self.least_mixed_ratio) or not cost.is_worth():
            return None
        rows = f"{'all rows are padded to' if found.fixed else 'the longest padded row has'} {found.width}"
        return self.finding(
            subject=found.name,
            summary=f"{percent(within)} of the tokens in {found.name} are padding: {rows}."
            + ("" if mixed else f" {percent(beyond)} are beyond the longest row of the batch."),
            advice=_MIX if mixed else f"Pad each batch only to its longest row{_HOW}",
            change=None if mixed else Change(add=(f"ids = {_PAD}",), place="in collate_fn"),
            evidence=(
                self.evidence(
                    "least_mixed_ratio" if mixed else "least_ratio", ratio, "padding that the fix takes away"
                ),
                self.evidence("least_looks", found.looks, "batches inspected"),
                self.fact("tokens that are not padding", found.real_ratio, "ratio"),
            ),
            cost=cost,
            explains=claims.PADDING if metrics.is_cpu_only else claims.PADDING_ON_DEVICE,
        )

    def padding(self, metrics: Metrics) -> Padding:
        """What the looks at batches found; raises MissingSignal for too few, NotApplicable without rows of tokens."""
        found = [one.padding for one in metrics.input.loaders if one.padding] if metrics.input is not None else []
        if not found:
            raise MissingSignal("no batch was inspected: that needs torch's own DataLoader, and more than one batch")
        most = max(found, key=lambda one: (bool(one.name), one.looks))
        if not most.name:
            raise NotApplicable("the batches have no rows of tokens")
        if most.looks < self.least_looks:
            raise MissingSignal(f"{most.looks} of the {self.least_looks} batches needed were inspected")
        return most


_PAD = "torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)"
_HOW = (
    f", in collate_fn: {_PAD}. Pad labels of tokens with the loss's ignore_index (default: -100). "
    'A tokenizer that is called on whole batches does the same with padding="longest".'
)
_MIX = (
    "Batch rows of similar length: use a batch sampler that sorts the indices by length within chunks of about 100 "
    "batches."
)


def _computing_ms(metrics: Metrics) -> float:
    """Of a step: on a CPU the model's own phases, on a device the time in which it computes."""
    if metrics.is_cpu_only:
        return sum(metrics.share_of(phase).median_ms for phase in _MODEL)
    step = device_step(metrics)
    if not isinstance(step, DeviceStep):
        raise MissingSignal("how long the device computes was not measured")
    return step.computing_ratio * step.period_ms
