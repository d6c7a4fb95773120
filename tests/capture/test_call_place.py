"""Where a class calls something, read from its compiled code."""

from pathlib import Path
from typing import Any

from lightning_gpuprof.capture.conditions import loader_facts
from lightning_gpuprof.capture.conditions.loader_facts import first_call

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
    monkeypatch.setattr(loader_facts.linecache, "getlines", lambda file: [])
    place = first_call(InTheMethod, "train_dataloader", "DataLoader")
    assert (place.line > 0, place.text) == (True, "")
