"""Where a class calls something, read from its compiled code."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from lightning_gpuprof.capture.conditions import call_places
from lightning_gpuprof.capture.conditions.call_places import first_call

HERE = "test_call_place.py"


def DataLoader(*_: Any, **__: Any) -> None:  # noqa: N802 - as torch's
    raise AssertionError("is never called")


class InTheMethod:
    def train_dataloader(self) -> Any:
        data = [1, 2]
        return DataLoader(data, batch_size=len("(2)"))

    def val_dataloader(self) -> Any:
        return DataLoader("other")


class InAHelper:
    workers = 2

    def train_dataloader(self) -> Any:
        return self._make()

    def _make(self) -> Any:
        return DataLoader(
            [")"],  # a bracket in a string
            num_workers=self.workers,
        )


class Derived(InTheMethod):
    pass


class Elsewhere:
    def train_dataloader(self) -> Any:
        return [1]


def test_the_call_is_found_in_the_method_itself() -> None:
    place = first_call(InTheMethod, "train_dataloader", "DataLoader")
    assert place.file.endswith(HERE)
    assert place.text == "DataLoader(data, batch_size=len('***'))", "what may be secret is hidden"
    assert "batch_size=len" in Path(__file__).read_text(encoding="utf-8").splitlines()[place.line - 1]
    assert first_call(Derived, "train_dataloader", "DataLoader") == place


def test_or_in_another_method_of_the_class_over_several_lines() -> None:
    place = first_call(InAHelper, "train_dataloader", "DataLoader")
    assert place.text == "DataLoader([')'], num_workers=self.workers)"


def test_a_class_without_the_call_has_none() -> None:
    assert first_call(Elsewhere, "train_dataloader", "DataLoader") is None


def test_a_source_that_is_gone_leaves_the_line(monkeypatch: Any) -> None:
    monkeypatch.setattr(call_places.linecache, "getlines", lambda file: [])
    place = first_call(InTheMethod, "train_dataloader", "DataLoader")
    assert (place.line > 0, place.text) == (True, "")


TRAINER = """
import sys
from lightning_gpuprof.capture.conditions.call_places import stage_call
class Trainer:
    def fit(self, *_, **__):
        return stage_call(sys._getframe())
"""
"""One that returns where its ``fit`` is called."""


@pytest.mark.parametrize(
    ("program", "loader", "trainer"),
    [
        ("data = DataLoader([1])\nt = Trainer()\nfound = t.fit(0, data)", 1, 2),
        ("found = Trainer().fit(\n    0,\n    train_dataloaders=DataLoader([1]),\n)", 3, 1),
        (
            "def main():\n    data: object = 0\n    data = DataLoader([1])\n    return t.fit(0, data)\n"
            "t = Trainer(\n)\nfound = main()",
            3,
            5,
        ),
        (
            "data = DataLoader([1])\nif not data:\n    data = DataLoader([2])\nt = Trainer()\nfound = t.fit(0, data)",
            None,
            4,
        ),
        (
            "data = DataLoader([0])\ndef run(data, t):\n    return t.fit(0, data)\nfound = run(data, Trainer())",
            None,
            None,
        ),
        ("def other():\n    data = DataLoader([0])\ndata = make()\nt = Trainer()\nfound = t.fit(0, data)", None, 4),
        ("t = Trainer()\nfound = t.fit(0)", None, 1),
    ],
)
def test_what_fit_is_given_is_found_where_the_code_that_calls_it_makes_it(
    program: str, loader: int | None, trainer: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "trainer.py").write_text(TRAINER)
    monkeypatch.chdir(tmp_path)
    made = runpy.run_path("trainer/trainer.py")["Trainer"]
    (tmp_path / "train.py").write_text(program)
    names = {"Trainer": made, "DataLoader": lambda data: data, "make": lambda: [1]}
    call = runpy.run_path(str(tmp_path / "train.py"), init_globals=names, run_name="__main__")["found"]
    places = call.made(call.argument("train_dataloaders", 1), "DataLoader"), call.made(call.trainer, "Trainer")
    assert [place and place.line for place in places] == [loader, trainer]
    assert {place.file for place in places if place} <= {"train.py"}
