"""What is known at the start of training about its end; real trainers prove it in ``test_windows_of_fits.py``."""

from types import SimpleNamespace

import pytest

from lightning_gpuprof.capture.stage_steps import ends_at


class GradientAccumulationScheduler:
    """Named like Lightning's."""


def trainer(**options: object) -> SimpleNamespace:
    automatic = options.pop("automatic", True)
    known: dict[str, object] = {
        "max_steps": -1,
        "max_epochs": 10,
        "num_training_batches": 100,
        "reload_dataloaders_every_n_epochs": 0,
        "callbacks": [],
        "accumulate_grad_batches": 1,
        "current_epoch": 0,
        "global_step": 0,
        "lightning_module": SimpleNamespace(automatic_optimization=automatic),
    }
    return SimpleNamespace(**{**known, **options})


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, 1000),
        ({"accumulate_grad_batches": 8}, 130),
        ({"max_steps": 70}, 70),
        ({"max_steps": 70_000}, 1000),
        ({"current_epoch": 4, "global_step": 400}, 1000),
        ({"current_epoch": 4, "global_step": 430}, 1030),  # resumed within the epoch: never too low
        ({"max_steps": 70, "max_epochs": None}, 70),
    ],
)
def test_the_lower_of_steps_and_epochs_ends_training(options: dict[str, object], steps: int) -> None:
    known = ends_at(trainer(**options))
    assert known[0] == steps


@pytest.mark.parametrize(
    "options",
    [
        {"max_epochs": -1},
        {"max_epochs": None},
        {"num_training_batches": float("inf")},
        {"reload_dataloaders_every_n_epochs": 1},
        {"automatic": False},
        {"callbacks": [GradientAccumulationScheduler()]},
    ],
)
def test_what_may_change_on_the_way_is_not_known(options: dict[str, object]) -> None:
    assert ends_at(trainer(**options)) is None
    assert ends_at(trainer(**options, max_steps=5)) == (5, "max_steps=5")
