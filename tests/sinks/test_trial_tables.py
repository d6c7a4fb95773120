"""What the table of a trial says of each change."""

import io
from typing import Any

import pytest
from rich.console import Console

from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Expected
from lightning_gpuprof.model.trial import Arm, Ceiling, Outcome, Trial, Tried
from lightning_gpuprof.sinks.trial_screen import render
from lightning_gpuprof.sinks.trial_tables import ceilings, headline, notes, tried_table


def test_a_change_of_the_numbers_is_said_unless_it_could_not_be_made() -> None:
    rows = [
        tried("precision=bf16-mixed", "faster", changes_numbers=True),
        tried("precision=16-mixed", "slower", changes_numbers=True),
        tried("batch_size=64", "failed", changes_numbers=True, why="OutOfMemoryError: CUDA out of memory."),
        tried("benchmark=True", "undecided", why="in 2 rounds"),
    ]
    assert notes(Trial(tried=tuple(rows))) == [
        ("failed", "batch_size=64 (OutOfMemoryError: CUDA out of memory.)"),
        ("unclear", "benchmark=True (in 2 rounds): try longer, with --seconds"),
        ("numerics", "with precision=bf16-mixed the trained weights differ: compare the loss, too"),
    ]


def tried(name: str, outcome: Outcome = "faster", **facts: Any) -> Tried:
    """A row."""
    return Tried(arm=Arm(name=name), outcome=outcome, **facts)


def ceiling(kind: Ceiling, speedup: float) -> Tried:
    """A row of a ceiling."""
    return Tried(arm=Arm(name=kind, ceiling=kind), outcome="faster", speedup=speedup, step_ms=10.0)


TRIAL = Trial(
    command=("python", "-m", "examples.digits", "fit", "--config", "configs/digits.yaml"),
    device="NVIDIA H100 80GB HBM3",
    base_step_ms=227.0,
    tried=(
        ceiling("input", 3.02),
        Tried(
            arm=Arm(
                name="num_workers=2, persistent_workers=True",
                expected=Expected(whole_ms=227.0, step_ms=119.0, lower_ms=113.0, upper_ms=133.0),
            ),
            outcome="faster",
            step_ms=117.0,
            speedup=1.94,
            speedup_lower=1.9,
            speedup_upper=1.98,
        ),
        tried("log_every_n_steps=50", "no gain", speedup=1.0, step_ms=227.0),
        ceiling("around the model", 1.01),
        tried("batch_size=4096", "failed", why="OutOfMemoryError: CUDA out of memory."),
        tried("enable_progress_bar=False", "undecided", speedup=1.04, rounds=1),
    ),
    seconds=58.0,
)


@pytest.mark.parametrize("width", [80, 100])
def test_names_and_numbers_of_a_trial_are_whole_on_a_terminal(width: int) -> None:
    out = io.StringIO()
    Console(file=out, width=width).print(render(TRIAL, width=width))
    assert max(map(len, out.getvalue().splitlines())) <= width
    text = " ".join(out.getvalue().split())
    assert "…" not in text
    for word in ("persistent_workers=True", "log_every_n_steps=50", "enable_progress_bar=False", "1.94x", "(1.90"):
        assert word in text
    assert "At most 3.02x with a perfect loader, 1.01x without callbacks, logging and progress bar." in text
    assert "failed: batch_size=4096 (OutOfMemoryError: CUDA out of memory.)" in text


def test_a_perfect_loader_is_no_slower_than_one_that_was_tried() -> None:
    faster = Change(call="DataLoader", arguments={"num_workers": 2})
    rows = [
        ceiling("input", 2.5),
        Tried(arm=Arm(name="loader", changes=(faster,)), outcome="faster", speedup=3.1),
        Tried(arm=Arm(name="larger", changes=(faster,)), outcome="faster", speedup=9.0, per_sample=True),
        tried("precision=bf16-mixed", speedup=5.0),
    ]
    assert ceilings(Trial(tried=tuple(rows))) == "At most 3.10x with a perfect loader."
    assert ceilings(Trial(tried=tuple(rows[1:]))) == ""


def test_ceilings_are_no_changes() -> None:
    names = [row[0].text for row in tried_table(TRIAL).rows]
    assert not {"input", "around the model"} & set(names)
    assert headline(Trial(tried=TRIAL.tried[:1], base_step_ms=1.0)) == "The advice names no setting that can be tried."
