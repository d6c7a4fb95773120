"""Words that nobody outside of this project uses so: not in what rules say, not on pages. Single ones: words.txt."""

from pathlib import Path

import pytest
from words import IN_SOURCE, PHRASES, unwanted

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path",
    sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/r*/*.md")]),
    ids=lambda path: path.name,
)
def test_a_page_has_no_phrase_of_our_own(path: Path) -> None:
    if path.parent.name != "reference":
        assert not unwanted(path.read_text(encoding="utf-8"), PHRASES)


def test_an_unwanted_phrase_is_seen_with_what_to_write() -> None:
    (found,) = unwanted("The share is held against 5 %.", PHRASES)
    assert "compared with" in found


def test_no_source_has_a_phrase_of_our_own() -> None:
    modules = sorted((ROOT / "lightning_gpuprof").rglob("*.py"))
    found = {path.name: words for path in modules if (words := unwanted(path.read_text(encoding="utf-8"), PHRASES))}
    assert modules
    assert not found


@pytest.mark.parametrize("room", ["analyze", "model", "rules"])
def test_names_and_comments_use_the_field_s_words(room: str) -> None:
    modules = sorted((ROOT / "lightning_gpuprof" / room).rglob("*.py"))
    found = {path.name: words for path in modules if (words := unwanted(path.read_text(encoding="utf-8"), IN_SOURCE))}
    assert modules
    assert not found
