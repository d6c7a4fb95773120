from __future__ import annotations

import re
from pathlib import Path

import pytest

from lightning_gpuprof.errors import GpuProfError
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.pages import explain, main, overview, page, write

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rules"
SECTIONS = ["What it means", "How it is measured", "When it is wrong", "What to do", "Example", "Thresholds"]
RULES = discover(entry_points=[]).rules


def listed() -> tuple[list[str], list[str]]:
    """Ids in the index: implemented, not implemented."""
    done, waiting = (DOCS / "README.md").read_text(encoding="utf-8").split("## Not implemented yet")
    return re.findall(r"\[`([a-z0-9-]+)`\]", done), re.findall(r"`([a-z0-9-]+)`", waiting)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_page_has_all_sections_and_the_sources_of_its_thresholds(rule: object) -> None:
    text = page(rule)  # type: ignore[arg-type]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert rows
    assert all(row[2].strip(" |") for row in rows)


def test_the_pages_on_disk_are_those_of_the_rules(tmp_path: Path) -> None:
    made = {path.name: path.read_text(encoding="utf-8") for path in write(tmp_path)}
    kept = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md") if path.name != "README.md"}
    assert kept == made, "run: python -m lightning_gpuprof.rules.pages docs/rules"


def test_the_index_lists_each_rule_once() -> None:
    done, waiting = listed()
    assert sorted(done) == sorted(rule.id for rule in RULES)
    assert len(waiting) == len(set(waiting))
    assert not set(done) & set(waiting)


def test_the_index_covers_the_whole_catalogue() -> None:
    catalogue = DOCS.parents[2] / "shared" / "design" / "rules.md"
    if not catalogue.exists():
        pytest.skip("the rule catalogue is not beside this checkout")
    ids = set(re.findall(r"^\| `([a-z0-9-]+)` \|", catalogue.read_text(encoding="utf-8"), re.MULTILINE))
    done, waiting = listed()
    assert ids <= set(done) | set(waiting)
    assert set(done) | set(waiting) <= ids | {rule.id for rule in discover().rules}


def test_explain_gives_the_page_of_a_rule() -> None:
    text = explain("step-outliers")
    assert text.startswith("# step-outliers\n\nMost steps are fine")
    assert text.endswith("\n")
    assert "median + max(5 * 1.4826 * MAD, 0.5 * median)" in text


def test_the_overview_has_a_sentence_for_each_rule() -> None:
    listed = overview()
    assert [rule.id for rule in RULES] == [rule for rule in listed if rule in {one.id for one in RULES}]
    assert listed["gc-pauses"] == "Python's garbage collector stops the training for a noticeable part of the time."
    assert all(finds and "\n" not in finds for finds in listed.values())


def test_an_unknown_rule_names_the_closest_and_how_to_list_all() -> None:
    with pytest.raises(GpuProfError, match=r"got 'input-bond'\. Did you mean 'input-bound'\?") as caught:
        explain("input-bond")
    assert "launch-bound" in str(caught.value)
    assert len(str(caught.value)) < 250
    with pytest.raises(GpuProfError) as far:
        explain("xyz")
    assert "Did you mean" not in str(far.value)
    assert str(far.value).endswith("gpuprof explain without a rule lists all.")
    assert len(str(far.value)) < 100


def test_the_command_writes_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert len(list(tmp_path.glob("*.md"))) == len(RULES)
    assert main([]) == 2
    assert main([str(tmp_path / "absent")]) == 2
    assert "usage" in capsys.readouterr().err
