"""Where a class calls something, read from its compiled code."""

import ast
import runpy
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightning_gpuprof.capture.conditions import call_places, loader_facts
from lightning_gpuprof.capture.conditions.call_places import only_call
from lightning_gpuprof.capture.conditions.reading import Subject, Surroundings

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


class Asked(Derived):
    def train_dataloader(self) -> Any:
        return super().train_dataloader()


class InAnother:
    def train_dataloader(self) -> Any:
        return [1]

    def embed(self) -> Any:
        return DataLoader([2])


class Twice:
    def train_dataloader(self) -> Any:
        return DataLoader([1]) if self else DataLoader([2])


class OnTwoLines:
    def train_dataloader(self) -> Any:
        if isinstance(self, DataLoader):  # type: ignore[arg-type]
            return DataLoader([1])
        return DataLoader([2])


def test_the_call_is_found_in_the_method_itself() -> None:
    place = only_call(InTheMethod, "train_dataloader", "DataLoader")
    assert place.file.endswith(HERE)
    assert place.text == "DataLoader(data, batch_size=len('***'))", "what may be secret is hidden"
    assert "batch_size=len" in Path(__file__).read_text(encoding="utf-8").splitlines()[place.line - 1]
    assert only_call(Derived, "train_dataloader", "DataLoader") == place
    assert only_call(Asked, "train_dataloader", "DataLoader") == place


def test_or_in_another_method_that_it_uses_over_several_lines() -> None:
    place = only_call(InAHelper, "train_dataloader", "DataLoader")
    assert place.text == "DataLoader([')'], num_workers=self.workers)"


@pytest.mark.parametrize("owner", [Elsewhere, InAnother, Twice, OnTwoLines])
def test_a_method_without_the_call_or_with_two_has_none(owner: type) -> None:
    assert only_call(owner, "train_dataloader", "DataLoader") is None


@pytest.mark.parametrize("file", ["<string>", "<stdin>", f"{sysconfig.get_path('purelib')}/torchgeo/data.py"])
def test_code_of_libraries_and_of_no_file_has_no_place(file: str) -> None:
    names: dict[str, Any] = {"__name__": "torchgeo.data"}
    exec(compile("class A:\n def train_dataloader(self): return DataLoader(0)", file, "exec"), names)
    assert only_call(names["A"], "train_dataloader", "DataLoader") is None


def test_a_source_that_is_gone_leaves_the_line(monkeypatch: Any) -> None:
    monkeypatch.setattr(call_places.linecache, "getlines", lambda file: [])
    place = only_call(InTheMethod, "train_dataloader", "DataLoader")
    assert (place.line > 0, place.text) == (True, "")


TRAINER = """
import sys
from lightning_gpuprof.capture.conditions.call_places import stage_call
class Trainer:
    def fit(self, *_, **__):
        return stage_call(sys._getframe())
"""
"""One that returns where its ``fit`` is called."""


def found_by(program: str, folder: Path, *, runs: str = "") -> Any:
    """What a program finds; another one can run than is written in its file."""
    (folder / "trainer").mkdir(exist_ok=True)
    (folder / "trainer" / "trainer.py").write_text(TRAINER)
    made = runpy.run_path(str(folder / "trainer" / "trainer.py"))["Trainer"]
    (folder / "train.py").write_text(program)
    scaler = SimpleNamespace(fit=lambda data: data)
    names = {"Trainer": made, "DataLoader": lambda data: data, "make": lambda: [1], "s": scaler}
    exec(compile(runs or program, str(folder / "train.py"), "exec"), names)
    return names["found"]


@pytest.mark.parametrize(
    ("program", "loader", "trainer"),
    [
        ("data = DataLoader([1])\nt = Trainer()\nfound = t.fit(0, data)", 1, 2),
        ("found = Trainer().fit(\n    0,\n    train_dataloaders=DataLoader([1]),\n)", 3, 1),
        (
            "def main():\n    data: object = DataLoader([1])\n    return t.fit(0, data)\n"
            "t = Trainer(\n)\nfound = main()",
            2,
            4,
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
        ("data: object = 0\ndata = DataLoader([1])\nt = Trainer()\nfound = t.fit(0, data)", None, 3),
        ("data = DataLoader([1])\nfor data in [[2]]:\n    t = Trainer()\n    found = t.fit(0, data)", None, 3),
        ("data = DataLoader([1])\ndata, other = [1], 2\nt = Trainer()\nfound = t.fit(0, data)", None, 3),
        ("data = DataLoader([1])\nt = Trainer()\nif data := [2]:\n    found = t.fit(0, data)", None, 2),
        ("data = other = DataLoader([1])\nt = Trainer()\nfound = t.fit(0, data)", None, 2),
        (
            "def run():\n    import os as data\n    return t.fit(0, data)\n"
            "data = DataLoader([1])\nt = Trainer()\nfound = run()",
            None,
            5,
        ),
        (
            "def run():\n    global data\n    data = [1]\n"
            "data = DataLoader([1])\nrun()\nt = Trainer()\nfound = t.fit(0, data)",
            None,
            6,
        ),
        (
            "from contextlib import nullcontext\ndata = DataLoader([1])\nt = Trainer()\n"
            "with nullcontext([2]) as data:\n    found = t.fit(0, data)",
            None,
            3,
        ),
        ("t = Trainer()\nfound = t.fit(0, DataLoader(s.fit([1])))", 2, 1),
        ("t = Trainer()\nfound = t.fit(\n    0,\n    DataLoader(s.fit(\n        [1])))", 4, 1),
        ("t = Trainer()\nfound = t.fit(*[0], DataLoader([1]))", None, 1),
        ("t = Trainer()\nfound = t.fit(0)", None, 1),
    ],
)
def test_what_fit_is_given_is_found_where_the_code_that_calls_it_makes_it(
    program: str, loader: int | None, trainer: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call = found_by(program, tmp_path)
    assert call is not None
    places = call.made(call.argument("train_dataloaders", 1), "DataLoader"), call.made(call.trainer, "Trainer")
    assert [place and place.line for place in places] == [loader, trainer]
    assert {place.file for place in places if place} <= {"train.py"}


CALL = "t = Trainer()\nfound = t.fit(0, DataLoader([1]))"


@pytest.mark.parametrize(
    ("program", "runs"),
    [
        ("t = Trainer()\nt.fit(0, DataLoader([1])); found = t.fit(0, DataLoader([2]))", ""),
        ("t = Trainer()\nfound = (lambda data: t.fit(0, data))(DataLoader([2]))", ""),
        (CALL + "\n" * call_places.MAX_SOURCE_LINES, ""),
        (CALL + "\n#" + "a" * call_places.MAX_SOURCE_CHARACTERS, ""),
        (CALL + "\nbroken((", CALL),
        (CALL + "\n\0", CALL),
        ("def run():\n    return t.fit(0, [1])\nt = Trainer()\nfound = run()",
         "\ndef run(): return t.fit(0, [1])\nt = Trainer()\nfound = run()"),
    ],
    ids=["two on a line", "lambda", "long", "wide", "no Python", "a zero", "edited"],
)  # fmt: skip
def test_a_call_that_cannot_be_told_is_none(program: str, runs: str, tmp_path: Path) -> None:
    assert found_by(program, tmp_path, runs=runs) is None


@pytest.mark.parametrize("program", [CALL, CALL + "\nbroken(("], ids=["Python", "broken"])
def test_a_source_is_parsed_once(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = ast.parse
    monkeypatch.setattr(call_places.ast, "parse", lambda *given, **how: parsed.append(given[0]) or parse(*given, **how))
    call_places._parsed.cache_clear()
    for _ in range(2):
        found_by(program, tmp_path, runs=CALL)
    assert len(parsed) == 1


def test_of_two_loaders_on_a_line_each_is_shown(tmp_path: Path) -> None:
    call = found_by("t = Trainer()\nfound = t.fit(0, DataLoader([1]), DataLoader([2]))", tmp_path)
    made = [call.made(call.argument("", position), "DataLoader").text for position in (1, 2)]
    assert made == ["DataLoader([1])", "DataLoader([2])"]


class Model:
    def train_dataloader(self) -> Any:
        return DataLoader("train")

    def val_dataloader(self) -> Any:
        return DataLoader("val")


def facts_of(model: Model, *, given: object = None, val: object = ()) -> dict[str, object]:
    """What is known of where loaders are made, in a fit whose call is not known."""
    loaders = [1]
    validation = SimpleNamespace(_data_source=SimpleNamespace(instance=given or model))
    loop = SimpleNamespace(
        _data_source=SimpleNamespace(instance=given or model), epoch_loop=SimpleNamespace(val_loop=validation)
    )
    trainer = SimpleNamespace(train_dataloader=loaders, val_dataloaders=val, fit_loop=loop, datamodule=None)
    subject = Subject(trainer, model, loaders, Surroundings(environ={}))
    return {name: loader_facts.FACTS[f"{name}.built_by"](subject) for name in ("loader", "val_loader")}


def with_its_own(model: Model) -> Model:
    vars(model)["train_dataloader"] = lambda: None
    return model


@pytest.mark.parametrize(
    ("facts", "train", "val"),
    [
        (lambda: facts_of(Model(), val=[1]), "DataLoader('train')", "DataLoader('val')"),
        (lambda: facts_of(Model()), "DataLoader('train')", None),
        (lambda: facts_of(Model(), given=[1], val=[1]), None, None),
        (lambda: facts_of(with_its_own(Model()), val=[1]), None, "DataLoader('val')"),
    ],
    ids=["its own", "no validation", "given", "set on the object"],
)
def test_the_class_is_read_only_for_loaders_that_come_from_it(
    facts: Callable[[], dict[str, object]], train: str | None, val: str | None
) -> None:
    assert facts() == {"loader": train, "val_loader": val}
