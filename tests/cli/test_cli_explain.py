"""``gpuprof explain``: a rule's id in, its page out."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lightning_gpuprof.rules.discovery import discover


def test_a_rules_page_is_printed_and_json_holds_rule_and_page(printed: Callable[..., str]) -> None:
    assert "input-bound" in printed("explain", "input-bound")
    shown = json.loads(printed("explain", "input-bound", "--json"))
    assert shown["rule"] == "input-bound"
    assert len(shown["page"]) > 100


def test_without_a_rule_all_are_listed(printed: Callable[..., str]) -> None:
    shown = printed("explain")
    ids = [rule.id for rule in discover().rules]
    lines = [line for line in shown.splitlines() if line.strip()]
    assert sorted(line.split()[0] for line in lines if line[:3].strip() and line.startswith("  ")) == sorted(ids)
    families = [line for line in lines if not line.startswith(" ")]
    assert families == sorted(families)
    assert "Input" in families
    listed = json.loads(printed("explain", "--json"))
    assert [one["rule"] for one in listed] == ids
    assert all(one["finds"] for one in listed)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("no-such-rule", "gpuprof: "),
        ("cpu", "got 'cpu'. Did you mean cpu-contention or cpu-oversubscription or host-cpu-quota?"),
        ("input-bond", "Did you mean input-bound or val-input-bound?"),
    ],
)
def test_an_unknown_rule_is_an_error_with_what_may_be_meant(
    name: str, answer: str, refused: Callable[..., str]
) -> None:
    error = refused("explain", name)
    assert error.startswith("gpuprof: ")
    assert answer in error
    assert "internal error" not in error


def test_the_only_rule_with_a_word_is_explained(printed: Callable[..., str]) -> None:
    assert printed("explain", "callback").startswith("# callback-slow")
    assert json.loads(printed("explain", "callback", "--json"))["rule"] == "callback-slow"


ELSEWHERE = '''
class Elsewhere:
    """Fires never.

    ## What it means

    Nothing.
    """

    id = "from-elsewhere"

    def check(self, metrics):
        return None
'''


def test_the_page_of_a_rule_of_another_package_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: Callable[..., str]
) -> None:
    (tmp_path / "rules_elsewhere.py").write_text(ELSEWHERE)
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[lightning_gpuprof.rules]\nelsewhere = rules_elsewhere:Elsewhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert printed("explain", "from-elsewhere").startswith("# from-elsewhere\n\nFires never.")
    assert "from-elsewhere" in printed("explain")
