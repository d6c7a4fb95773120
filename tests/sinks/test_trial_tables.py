"""What the table of a trial says of each change."""

from __future__ import annotations

import pytest

from lightning_gpuprof.model.trial import Arm, Outcome, Trial, Tried
from lightning_gpuprof.sinks.trial_tables import verdict


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("faster", "worth it; the weights come out differently"),
        ("no gain", "no gain; the weights come out differently"),
        ("failed", "failed: out of memory"),
    ],
)
def test_a_change_of_the_numbers_is_said_unless_it_could_not_be_made(outcome: Outcome, said: str) -> None:
    why = "out of memory" if outcome == "failed" else ""
    row = Tried(arm=Arm(name="precision=bf16-mixed"), outcome=outcome, changes_numbers=True, why=why)
    assert verdict(Trial(tried=(row,)), row) == said
