import importlib
import re
from pathlib import Path
from typing import ClassVar

import pytest

import lightning_gpuprof.rules
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.discovery import discover

IN_SOURCE = sorted(
    rule_id
    for path in Path(lightning_gpuprof.rules.__file__).parent.rglob("*.py")
    for rule_id in re.findall(
        r'^    id(?:: ClassVar\[str\])? = "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE
    )
)
"""The ids of the built-in rules as a reader of the files finds them."""

RULE = """
from typing import ClassVar

class Dropped:
    '''A rule in a file of its own.'''
    id: ClassVar[str] = "{id}"
    def check(self, metrics):
        return None
"""


class FromElsewhere:
    """A rule of another package."""

    id: ClassVar[str] = "from-elsewhere"

    def check(self, metrics: Metrics) -> Finding | None:
        return None


class NeedsArguments(FromElsewhere):
    """A rule that cannot be made without arguments."""

    id: ClassVar[str] = "needs-arguments"

    def __init__(self, path: str) -> None:
        self.path = path


class Point:
    """What an installed package registers."""

    def __init__(self, name: str, target: object) -> None:
        self.name = name
        self._target = target

    def load(self) -> object:
        if isinstance(self._target, Exception):
            raise self._target
        return self._target


def test_the_built_in_rules_are_found_by_their_presence() -> None:
    found = discover(entry_points=[])
    assert found.failed == ()
    assert [rule.id for rule in found.rules] == IN_SOURCE
    assert "input-bound" in IN_SOURCE


def test_a_file_that_is_dropped_into_the_package_is_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "dropped_rules" / "family"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").write_text("")
    (folder / "good.py").write_text(RULE.format(id="good"))
    (folder / "other.py").write_text("from dropped_rules.family.good import Dropped\n")
    (folder / "broken.py").write_text("import no_such_package_at_all\n")
    (folder / "same.py").write_text(RULE.format(id="good"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    found = discover(package=importlib.import_module("dropped_rules"), entry_points=[])
    assert [rule.id for rule in found.rules] == ["good"]
    assert {n.rule: n.why for n in found.failed} == {
        "dropped_rules.family.broken": "failed to load: ModuleNotFoundError: No module named 'no_such_package_at_all'",
        "dropped_rules.family.same": "the rule id good is taken",
    }


def test_other_packages_add_rules_by_entry_points() -> None:
    found = discover(
        entry_points=[
            Point("elsewhere", FromElsewhere),
            Point("gone", ImportError("no module")),
            Point("number", 3),
            Point("arguments", NeedsArguments),
        ]
    )
    assert {rule.id for rule in found.rules} >= set(IN_SOURCE) | {"from-elsewhere"}
    why = {n.rule: n.why for n in found.failed}
    assert why["gone"] == "failed to load: ImportError: no module"
    assert why["number"] == "failed to load: 3 is not a rule class"
    assert why["arguments"].startswith("failed to load: TypeError")


def test_a_rule_of_another_package_cannot_replace_a_built_in_one() -> None:
    class Usurper(FromElsewhere):
        id: ClassVar[str] = "input-bound"

    found = discover(entry_points=[Point("usurper", Usurper)])
    assert {n.rule: n.why for n in found.failed} == {"usurper": "the rule id input-bound is taken"}
    assert not any(isinstance(rule, Usurper) for rule in found.rules)
