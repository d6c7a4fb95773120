"""In every step the model creates tensors on the host and copies them to the GPU, for which the host waits.

## What it means
`torch.tensor([...], device="cuda")`, `torch.zeros(n).to(x.device)` or indexing with a Python list in forward, backward
or the optimizer copies pageable memory: the host waits until the copy is done, behind everything that is queued on the
GPU.

## How it is measured
As `sync-points`, for copies of pageable memory to the GPU within the model's own phases: at least two per step.

## When it is wrong
- Traces of ROCm do not distinguish pageable from pinned memory; there, all copies that wait count.
- If another place waits in every step, too, the wait moves there: see `sync-points`.

## What to do
Create constants once (`self.register_buffer`), others on the GPU (`torch.zeros(n, device=x.device)`), and move what
depends on the data into the batch.
"""

from lightning_gpuprof.model.code_place import in_words
from lightning_gpuprof.rules.base import Metrics, claims, listed, threshold
from lightning_gpuprof.rules.examples import fires, looks_alike, quiet
from lightning_gpuprof.rules.transfers.wait_rule import UNTRACED, HostWaits, WaitRule, idle_words, times


def _tensors(count: int, us: float) -> dict[str, object]:
    """Steps of an example: 10 ms of kernels, and tensors that the host makes in the forward pass."""
    return {"kernels": 100, "tensors": (count, us)}


_BATCH = {"kind": "HtoD (Pageable -> Device)", "us": 2.0, "nbytes": 4096, "count": 4, "after_us": 2400.0}


class HostTensorCreation(WaitRule):
    id = "host-tensor-creation"
    title = "The model creates tensors on the host"
    cause = "host tensor"
    explains = claims.TENSORS_OF_THE_HOST
    counted = "copies"

    least_per_step: float = threshold(2.0, source="heuristic: at least two per step")
    least_ratio: float = threshold(0.05, source="heuristic, as for sync-points")

    examples = (
        fires("4 tensors take 0.6 ms each", "warning", "4 times ... (net.py:20)", saves_ms=2.43, step=_tensors(4, 600)),
        fires("4 tensors take 0.17 ms each", "info", "register_buffer", step=_tensors(4, 170)),
        quiet("4 tensors take 0.1 ms each", step=_tensors(4, 100)),
        quiet("one tensor takes 3 ms", step=_tensors(1, 3000)),
        looks_alike("the batch is copied", step={"kernels": 100, "copy": _BATCH}),
        *UNTRACED,
    )

    def summary(self, found: HostWaits) -> str:
        often = f"The model copies tensors from the host to the GPU {times(found.per_step)} per step"
        return f"{often}. The host waits for each, and {idle_words(found)}"

    def advice(self, metrics: Metrics, found: HostWaits) -> str:
        places = list(dict.fromkeys(in_words(wait.where) for wait in found.waits))[:3]
        return (
            "Create the tensors on the GPU: torch.zeros(..., device=self.device); or once if they are constant: "
            f"self.register_buffer(name, tensor). They are copied in {listed(places)}."
        )
