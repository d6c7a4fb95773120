"""The page of conditions against the list of facts."""

from pathlib import Path

from condition_page import renewed
from lightning_gpuprof.model.conditions import ENVIRONMENT, FACTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conditions.md"


def test_the_page_lists_every_fact_and_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == renewed(text), "run: make pages"
    assert all(f"`{name}`" in text for name in (*ENVIRONMENT, *(fact.name for fact in FACTS)))
