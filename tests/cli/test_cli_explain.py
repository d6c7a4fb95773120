"""``gpuprof explain``: a rule's id in, its page out."""

import json

import pytest

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.rules.discovery import discover


def test_a_rules_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "input-bound"]) == 0
    assert "input-bound" in capsys.readouterr().out


def test_json_holds_rule_and_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "input-bound", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rule"] == "input-bound"
    assert len(shown["page"]) > 100


def test_without_a_rule_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    shown = capsys.readouterr().out
    ids = [rule.id for rule in discover().rules]
    lines = [line for line in shown.splitlines() if line.strip()]
    assert sorted(line.split()[0] for line in lines if line[:3].strip() and line.startswith("  ")) == sorted(ids)
    families = [line for line in lines if not line.startswith(" ")]
    assert families == sorted(families)
    assert "Input" in families
    assert main(["explain", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["rule"] for one in listed] == ids
    assert all(one["finds"] for one in listed)


def test_an_unknown_rule_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "no-such-rule"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("gpuprof: ")
    assert "internal error" not in error


class Elsewhere:
    """Fires never.

    ## What it means

    Nothing.
    """

    id = "from-elsewhere"

    def check(self, metrics: object) -> None:
        return None


class Point:
    """What an installed package registers."""

    name = "elsewhere"

    def load(self) -> object:
        return Elsewhere


def test_the_page_of_a_rule_of_another_package_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Point()])
    assert main(["explain", "from-elsewhere"]) == 0
    assert capsys.readouterr().out.startswith("# from-elsewhere\n\nFires never.")


def test_a_part_of_a_name_is_answered_with_the_rules_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "cpu"]) == 2
    assert "such as cpu-contention, cpu-oversubscription, host-cpu-quota," in capsys.readouterr().err


def test_a_misspelt_rule_is_answered_with_the_closest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "input-bond"]) == 2
    assert "Did you mean 'input-bound'?" in capsys.readouterr().err


@pytest.mark.parametrize("rule", [rule.id for rule in discover(entry_points=()).rules])
def test_every_rule_has_a_whole_page(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", rule]) == 0
    page = capsys.readouterr().out
    for heading in ("What it means", "How it is measured", "When it is wrong", "What to do", "Example"):
        assert f"## {heading}" in page
