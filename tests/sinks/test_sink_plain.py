"""What data looks like once it is readable."""

import unicodedata

import pytest
import sample_report

from lightning_gpuprof.sinks import plain


@pytest.mark.parametrize(
    "character", ["\x00", "\x1b", "\n", "\t", "\x7f", "\x9b", "\u202e", "\u2066", "\u200f", "\ud800"]
)
def test_invisible_characters_become_visible(character: str) -> None:
    shown = plain.visible(f"a{character}b")
    assert character not in shown
    assert shown.startswith("a\\")
    assert shown.endswith("b")
    assert shown.isascii()


@pytest.mark.parametrize("text", ["forward", "größe", "名前", "a b", "мера"])
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert plain.visible(text) == text


def test_hostile_names_lose_every_control_and_direction_character() -> None:
    assert not {unicodedata.category(c) for c in plain.visible(sample_report.HOSTILE)} & {"Cc", "Cf", "Zl", "Zp"}


@pytest.mark.parametrize("length", [10, 119, 120, 121, 10_000])
def test_long_names_keep_both_ends_within_the_limit(length: int) -> None:
    name = "A" * (length - 1) + "Z"
    shown = plain.name(name)
    assert len(shown) == min(length, plain.NAME_LIMIT)
    assert shown[0] == "A"
    assert shown[-1] == "Z"


def test_a_long_name_of_invisible_characters_stays_within_the_limit() -> None:
    assert len(plain.name("\u202e" * 10_000)) <= plain.NAME_LIMIT
