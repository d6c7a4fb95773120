"""A trial that its plan is not for ends on all ranks, or on none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_gpuprof.errors import TrialOver
from lightning_gpuprof.model.trial import Plan
from lightning_gpuprof.trial import attach, conditions, training
from lightning_gpuprof.trial.harmless import LeftOut


class Trial:
    """One that has begun."""

    def __init__(self, *_: object) -> None:
        raise KeyError("begun")


@pytest.mark.parametrize(("of_rank_0", "ends"), [("A100", KeyError), ("T4", TrialOver)])
@pytest.mark.parametrize("own", ["A100", "T4"])
def test_rank_0_says_for_all_whether_settings_differ(
    of_rank_0: str, ends: type[BaseException], own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def broadcast(value: bool) -> bool:
        asked.append(value)
        return of_rank_0 != "A100"

    trainer: Any = SimpleNamespace(
        world_size=2, is_global_zero=False, strategy=SimpleNamespace(broadcast=broadcast), callbacks=[], datamodule=None
    )
    monkeypatch.setattr(conditions, "settings_of", lambda _: {"device.name": own})
    monkeypatch.setattr(training, "InterleavedTrial", Trial)
    plan = Plan(arms=(), seconds=1.0, conditions={"device.name": "A100"})
    with pytest.raises(ends):
        attach._Epoch(trainer, plan, tmp_path, LeftOut(loggers=(), others=()))()
    assert asked == [own != "A100"], "each rank takes part"
