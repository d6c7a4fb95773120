"""Generated pages against the source: up to date, complete, and right about what docstrings say."""

from __future__ import annotations

import ast
import shutil
import typing
from pathlib import Path

import doc_blocks
import msgspec
import pytest
from doc_blocks import ROOT

import api_pages
import docstrings
import lightning_gpuprof
import measured
import number_pages
import pages
import report_walk
import structs
from lightning_gpuprof.model.report import OVERHEAD_TERMS, Report
from walked_report import walked_report

DOCS = ROOT / "docs"
RENEW = "run: python docs/tools/pages.py"


def test_the_readme_is_short_and_leads_to_four_pages() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    documentation = text.split("## Documentation\n")[1].split("\n## ")[0]
    assert documentation.count("](") == 4


def test_the_first_page_leads_to_all_others() -> None:
    """To those of rules and numbers by way of their own lists."""
    pages = {page.relative_to(DOCS).as_posix() for page in [*DOCS.glob("*.md"), *DOCS.glob("reference/*.md")]}
    first = (DOCS / "index.md").read_text(encoding="utf-8")
    assert {page for page in pages if f"]({page})" not in first} == {"index.md"}


def test_the_pages_on_disk_are_those_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    for name in ("conditions.md", "how-to-read.md", "rules/README.md"):
        shutil.copy(DOCS / name, tmp_path / name)
    pages.write(tmp_path)
    for made in sorted(tmp_path.rglob("*.md")):
        kept = DOCS / made.relative_to(tmp_path)
        assert kept.read_text(encoding="utf-8") == made.read_text(encoding="utf-8"), f"{kept.name}: {RENEW}"
    for folder in ("numbers", "reference", "rules"):
        left = {page.name for page in (DOCS / folder).iterdir()} - {page.name for page in (tmp_path / folder).iterdir()}
        assert not left, "no longer made: delete them"


def test_docs_are_as_short_as_what_is_read() -> None:
    """Without the rules' pages, of which a reader opens one: ``gpuprof explain`` prints it as well."""
    pages = {page: len(page.read_text(encoding="utf-8").split()) for page in DOCS.rglob("*.md")}
    pages = {page: words for page, words in pages.items() if page.parent.name != "rules"}
    assert sum(pages.values()) <= 40_000, "say each thing once: " + ", ".join(f"{p.name} {n}" for p, n in pages.items())


def test_each_field_of_the_report_has_one_page() -> None:
    on_pages = [name for group in number_pages.GROUPS for name in group.fields]
    assert sorted([*on_pages, *number_pages.ELSEWHERE]) == sorted(Report.__struct_fields__)


def test_each_struct_of_the_report_is_explained_somewhere() -> None:
    text = "\n".join(
        page.read_text(encoding="utf-8")
        for page in [*(DOCS / "numbers").glob("*.md"), *(DOCS / "reference").glob("*.md")]
    )
    found = structs.places("report", Report)
    assert len(found) > 80
    headings = {line.lstrip("# ") for line in text.splitlines() if line.startswith("##")}
    assert {struct.__name__ for struct in found} - {"Report"} <= headings


def test_each_public_name_is_in_the_reference() -> None:
    names = {name for page in api_pages.PAGES for _, name in page.names}
    assert set(lightning_gpuprof.__all__) - {"__version__"} <= names


def test_each_entry_of_the_cost_has_a_meaning() -> None:
    assert set(walked_report().overhead) <= set(OVERHEAD_TERMS)


def test_the_report_that_is_walked_through_is_what_the_terminal_shows() -> None:
    text = (DOCS / "how-to-read.md").read_text(encoding="utf-8")
    assert f"```text\n{report_walk.shown(walked_report())}\n```" in text, RENEW


@pytest.mark.parametrize("page", measured.PAGES, ids=lambda page: page.name)
def test_measured_numbers_are_those_of_the_committed_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<!-- measured: " in text
    assert text == measured.renewed(text), RENEW


def test_no_other_page_has_measured_numbers_that_nobody_renews() -> None:
    with_numbers = {page for page in doc_blocks.pages() if "\n<!-- measured: " in page.read_text(encoding="utf-8")}
    assert with_numbers == set(measured.PAGES)


def test_measured_numbers_of_an_unknown_benchmark_are_refused() -> None:
    with pytest.raises(LookupError, match="'weather'"):
        measured.renewed("<!-- measured: weather -->\n<!-- end -->")


class Inner(msgspec.Struct):
    """Deep."""


class Outer(msgspec.Struct):
    """Structs in all the ways in which fields hold them."""

    shared: typing.ClassVar[str] = "of the class"
    one: Inner
    many: tuple[Inner, ...]
    some: Inner | None
    named: dict[str, list[Inner]]
    again: tuple[Outer, ...]
    number: int


def test_structs_are_found_wherever_they_are() -> None:
    found = structs.places("outer", Outer)
    assert list(found) == [Outer, Inner]
    assert found[Inner] == ["outer.one", "outer.many[]", "outer.some", "outer.named[][]"]
    assert found[Outer] == ["outer", "outer.again[]"]
    assert list(structs.places("outer", Outer, without=frozenset({Inner}))) == [Outer]


def test_types_are_told_as_they_are_in_json() -> None:
    hints = typing.get_type_hints(Outer)
    assert [structs.json_type(hints[name]) for name in ("one", "many", "some", "named", "number")] == [
        "Inner",
        "list of Inner",
        "Inner or null",
        "object: text → list of Inner",
        "integer",
    ]
    assert structs.json_type(tuple[float, float] | None) == "list of 2: number, number or null"
    assert structs.json_type(dict[typing.Literal["a", "b"], bool]) == "object: `a`, `b` → true, false"
    assert structs.json_type(Inner, lambda struct: f"[{struct.__name__}](#inner)") == "[Inner](#inner)"


SOURCE = '''
class Example:
    """Does a thing with :class:`~a.b.Thing`, for ``<x>`` or <y>.

    Usage::

        with Example():
            pass

    Args:
        first: What comes
            first, in ms.
        second: ``None`` | more.

    Raises:
        ValueError: It cannot.
    """

    size_ms: float | None = None
    """How long."""
    names: list[str] = field(default_factory=lambda: [0])
    _own: int = 1

    def __init__(self, first: int, second: str | None = None, *, third=3) -> None:
        self.found: int = 0
        """What was found."""
        self.hidden: int = 0

    def act(self, what: str) -> int:
        """Act.

        Returns:
            A number.
        """

    @property
    def state(self) -> str:
        """How it is."""
'''


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> docstrings.ClassDoc:
    monkeypatch.setattr(docstrings, "_tree", lambda module: ast.parse(SOURCE))
    return docstrings.class_doc("any", "Example")


def test_a_class_is_read_from_its_text(example: docstrings.ClassDoc) -> None:
    assert [(one.name, one.type, one.default, one.text) for one in example.fields] == [
        ("size_ms", "float | None", "None", "How long."),
        ("names", "list[str]", "[0]", ""),
        ("found", "int", "0", "What was found."),
    ]
    assert [(method.name, method.kind) for method in example.methods] == [("act", ""), ("state", "property")]
    assert example.init is not None
    assert docstrings.signature(example.init, "Example") == (
        "```python no-run\nExample(first: int, second: str | None = None, *, third=3)\n```\n"
    )
    assert "Example.act(what: str) -> int" in docstrings.signature(example.methods[0], "Example.act")
    assert "Example.state: str" in docstrings.signature(example.methods[1], "Example.state")


def test_a_docstring_becomes_markdown(example: docstrings.ClassDoc) -> None:
    text = docstrings.described(example.text)
    assert text.startswith(
        "Does a thing with `Thing`, for `<x>` or &lt;y>.\n\nUsage:\n\n```python no-run\nwith Example"
    )
    assert "- `first`: What comes first, in ms." in text
    assert "- `second`: `None` | more." in text
    assert "- `ValueError`: It cannot." in text
    assert "**Returns:** A number." in docstrings.described(example.methods[0].text)


def test_arguments_can_be_taken_out(example: docstrings.ClassDoc) -> None:
    text, arguments = docstrings.split_arguments(example.text)
    assert arguments == {"first": "What comes first, in ms.", "second": "`None` | more."}
    assert "Args" not in text
    assert "Raises:\n    ValueError" in text


def test_an_absent_name_is_refused(example: docstrings.ClassDoc) -> None:
    with pytest.raises(LookupError, match="no class Nothing"):
        docstrings.class_doc("any", "Nothing")
    with pytest.raises(LookupError, match="no function nothing"):
        docstrings.function_doc("any", "nothing")


def test_every_typed_field_of_a_struct_is_read(example: docstrings.ClassDoc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for struct in structs.places("report", Report):
        assert [one.name for one in structs.fields(struct)] == list(struct.__struct_fields__)
