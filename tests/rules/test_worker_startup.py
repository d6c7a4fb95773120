from __future__ import annotations

from metrics_builder import build

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.input.worker_startup import WorkerStartup

RULE = WorkerStartup()


def restarting(
    *, iterator_s: float = 0.3, first_wait_s: float = 0.9, epochs: int = 4, persistent: bool | None = False
) -> Metrics:
    return build(
        times_ms={"forward": 4.0, "backward": 5.0},
        persistent_workers=persistent,
        iterator_s=iterator_s,
        first_wait_s=first_wait_s,
        epochs=epochs,
    )


def test_the_share_of_the_epoch_decides() -> None:
    fires = [
        RULE.check(restarting(iterator_s=ms / 1e3, first_wait_s=0.01)) is not None for ms in (20, 40, 60, 120, 240)
    ]
    assert fires == sorted(fires)
    assert fires[0] is False
    assert fires[-1] is True
