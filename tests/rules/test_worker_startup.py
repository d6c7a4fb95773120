from __future__ import annotations

from dataclasses import replace

import pytest
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


def test_it_fires_on_workers_that_are_started_anew() -> None:
    metrics = restarting()
    finding = RULE.check(metrics)
    assert finding is not None
    assert finding.severity == "critical"
    assert "2 workers anew and waits 1.20 s" in finding.summary
    assert "num_workers=2, persistent_workers=True" in finding.advice
    assert finding.gain is not None
    assert finding.gain.saved_ms_per_step == pytest.approx(3 * (1.2 - 0.0008) * 1e3 / 400, rel=1e-3)


def test_the_share_of_the_epoch_decides() -> None:
    fires = [
        RULE.check(restarting(iterator_s=ms / 1e3, first_wait_s=0.01)) is not None for ms in (20, 40, 60, 120, 240)
    ]
    assert fires == sorted(fires)
    assert fires[0] is False
    assert fires[-1] is True


def test_loaders_that_are_made_anew_start_their_workers_anew() -> None:
    metrics = restarting(persistent=True)
    finding = RULE.check(replace(metrics, run={**metrics.run, "trainer.reload_dataloaders_every_n_epochs": 1}))
    assert finding is not None
    assert "persistent_workers=True), Trainer(reload_dataloaders_every_n_epochs=0)." in finding.advice
    assert "reload_dataloaders_every_n_epochs is 1, and 3 epoch starts" in finding.advice
    assert "persistent_workers is False" not in finding.advice
