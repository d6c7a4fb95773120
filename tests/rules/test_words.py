"""Words that nobody outside of this project uses so: not in what rules say, not on pages. Single ones: words.txt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest
from example_runs import example_run

from lightning_gpuprof.rules.base import BaseRule, MissingSignal
from lightning_gpuprof.rules.discovery import discover

ROOT = Path(__file__).parents[2]
RULES = cast(list[BaseRule], list(discover(entry_points=()).rules))

PHRASES = {
    r"held against": "compared with",
    r"that we may use": "usable",
    r"for want of": "waiting for",
    r"such a one": "one",
}
"""On no page, and in nothing that rules say; what to write instead."""

IN_FINDINGS = {
    **PHRASES,
    r"cure[ds]?": "fix",
    r"regimes?": "speed level",
    r"periods?": "step time",
    r"ours": "heuristic",
    r"rests? on": "uses, is based on",
    r"tells|told": "says, reports, shows",
    r"meanwhile": "while …",
    r"works": "runs, is busy; kernels",
    r"has nothing to do": "idles",
    r"we": "the run, you",
}
"""Likewise, where words have a meaning elsewhere."""


def said_by(rule: BaseRule) -> list[str]:
    """Titles, summaries, advice, names of evidence and reasons of all of a rule's examples."""
    said = [rule.title]
    for one in rule.examples:
        metrics = example_run(**one.changes)
        try:
            found = rule.check(metrics)  # type: ignore[attr-defined]
        except MissingSignal as missing:
            said.append(missing.why)
            continue
        if found is not None:
            said += [found.title, found.summary, found.advice, *(one.name for one in found.evidence)]
    return said


def unwanted(text: str, phrases: dict[str, str]) -> list[str]:
    return [
        f"{match[0]!r}, better {better!r}: …{text[max(0, match.start() - 40) : match.end() + 20]}…"
        for phrase, better in phrases.items()
        for match in re.finditer(rf"\b(?:{phrase})\b", text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_speaks_the_field_s_english(rule: BaseRule) -> None:
    assert not [found for text in said_by(rule) for found in unwanted(text, IN_FINDINGS)]


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
