"""What is put into a trainer leaves it again, each part by itself."""

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_gpuprof.capture.attachments import Attachments
from lightning_gpuprof.capture.fence import Fence


class Noting:
    """Loop edges, annotated regions and input measurement at once."""

    def __init__(self, fails_at: str = "", missing: list[str] | None = None) -> None:
        self.calls: list[str] = []
        self.reported: list[str] = []
        self._fails_at = fails_at
        self._missing = missing or []

    def attach(self) -> list[str]:
        self._note("attach")
        return self._missing

    def detach(self) -> None:
        self._note("detach")

    def begin(self) -> None:
        self._note("begin")

    def end(self) -> None:
        self._note("end")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call == self._fails_at:
            raise RuntimeError("planted")


def attachments(noting: Any) -> tuple[Attachments, Any]:
    trainer = SimpleNamespace(profiler="the user's")
    tap: Any = SimpleNamespace(inner=trainer.profiler)
    fence = Fence(lambda part, message: noting.reported.append(part))
    ours = Attachments(
        trainer,
        tap=tap,
        edges=noting,
        annotations=noting,
        others={"input pipeline": noting, "lines": noting},
        fence=fence,
        notice=noting.reported.append,
    )
    return ours, trainer


def test_the_profiler_is_the_users_again_and_leaving_twice_is_harmless() -> None:
    noting = Noting()
    ours, trainer = attachments(noting)
    ours.attach()
    assert ours.tap_in_place
    assert trainer.profiler != "the user's"
    ours.detach()
    ours.detach()
    assert not ours.tap_in_place
    assert trainer.profiler == "the user's"
    assert noting.reported == []


def test_a_profiler_that_took_our_place_stays() -> None:
    ours, trainer = attachments(Noting())
    ours.attach()
    trainer.profiler = "another"
    ours.detach()
    assert trainer.profiler == "another"


def test_what_cannot_leave_is_tried_twice_and_keeps_nobody_else() -> None:
    noting = Noting(fails_at="detach")
    ours, trainer = attachments(noting)
    ours.attach()
    with pytest.warns(RuntimeWarning, match="restoring the trainer"):
        ours.detach()
    assert trainer.profiler == "the user's"
    assert noting.calls[4:] == ["detach", "end", "end", "end"] * 2


def test_edges_that_lightning_does_not_have_are_one_line_of_the_report_and_no_warning() -> None:
    noting = Noting(missing=["no FitLoop.run", "no FitLoop.setup_data"])
    ours, _ = attachments(noting)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.attach()
    assert noting.reported == ["no FitLoop.run; no FitLoop.setup_data"]
