import dataclasses
import re
from pathlib import Path

import pytest

from lightning_gpuprof.rules.catalogue import OF_OTHERS, catalogue
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.pages import explain, family, page, sentence
from rule_pages import index

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rules"
SECTIONS = ["What it means", "How it is measured", "When it is wrong", "What to do", "Examples", "Thresholds"]
RULES = discover(entry_points=[]).rules


def waiting() -> list[str]:
    """Ids of the catalogue that are listed as not implemented, or as a part of other rules."""
    return re.findall(r"`([a-z0-9-]+)`", (DOCS / "README.md").read_text(encoding="utf-8").partition("## Planned")[2])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_page_has_all_sections_and_the_sources_of_its_thresholds(rule: object) -> None:
    text = page(rule)  # type: ignore[arg-type]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    rows = re.findall(r"^- `(\w+)` \S+ \((.+)\)$", text.partition("## Thresholds")[2], re.MULTILINE)
    assert rows
    assert [name for name, _ in rows] == [field.name for field in dataclasses.fields(rule)]  # type: ignore[arg-type]


def test_the_index_lists_each_rule_once() -> None:
    ids = [rule.id for rule in RULES]
    assert sorted(re.findall(r"^\| \[`(.+)`\]\(\1\.md\) \| .+\. \|$", index(), re.MULTILINE)) == ids
    assert len(waiting()) == len(set(waiting()))
    assert not set(ids) & set(waiting())


def test_the_index_covers_the_whole_catalogue() -> None:
    catalogue = DOCS.parents[2] / "shared" / "design" / "rules.md"
    if not catalogue.exists():
        pytest.skip("the rule catalogue is not beside this checkout")
    ids = set(re.findall(r"^\| `([a-z0-9-]+)` \|", catalogue.read_text(encoding="utf-8"), re.MULTILINE))
    assert ids <= {rule.id for rule in RULES} | set(waiting())
    assert set(waiting()) <= ids


def test_explain_gives_the_page_of_a_rule() -> None:
    text = explain("step-outliers")
    assert text.startswith("# step-outliers\n\nMost steps are fine")
    assert text.endswith("\n")
    assert "median + max(5 * 1.4826 * MAD, 0.5 * median)" in text


def test_the_list_from_the_heads_of_files_is_what_the_rules_say_of_themselves() -> None:
    imported = [(rule.id, family(rule).partition(": ")[0], sentence(rule)) for rule in RULES]
    assert [one for one in catalogue() if one.family != OF_OTHERS] == imported


def test_the_list_has_a_sentence_for_each_rule() -> None:
    listed = {one.rule: one.finds for one in catalogue()}
    assert listed["gc-pauses"] == "Python's garbage collector stops the training for a noticeable part of the time."
    assert all(finds and "\n" not in finds for finds in listed.values())
