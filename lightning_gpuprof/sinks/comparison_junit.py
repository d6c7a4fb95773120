"""A comparison as JUnit XML for CI systems: one test case per judged measure.

The shape is what Jenkins, GitLab and the usual GitHub actions read (``testsuites/testsuite/testcase`` with ``failure``
and ``skipped``): a regression is a failure, what cannot be compared is skipped, all else passes.
"""

from collections.abc import Collection
from xml.etree import ElementTree

from lightning_gpuprof.model.comparison import Change, Comparison
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.comparison_tables import change_words

SUITE = "gpuprof compare"


def render_junit(comparison: Comparison, *, only: Collection[str] = ()) -> bytes:
    """The file's content; names are shown as in every other sink, so it is well-formed.

    Args:
        comparison: The comparison.
        only: Measures to write; empty for all that were judged.

    Returns:
        XML in UTF-8 with its declaration: one suite, with a case for each measure.
    """
    rows = [row for row in comparison.judged if not only or row.measure in only]
    counts = {
        "tests": str(len(rows)),
        "failures": str(sum(row.outcome == "regressed" for row in rows)),
        "errors": "0",
        "skipped": str(sum(row.outcome == "not comparable" for row in rows)),
        "time": "0",
    }
    root = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, **counts})
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (
        ("before", plain.visible(comparison.before)),
        ("after", plain.visible(comparison.after)),
        ("outcome", comparison.outcome),
    ):
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    for row in rows:
        _add_case(suite, row, comparison)
    ElementTree.SubElement(suite, "system-out").text = _then(comparison.summary, comparison.way_out)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add_case(suite: ElementTree.Element, row: Change, comparison: Comparison) -> None:
    measure = plain.name(row.measure)
    group = measure.partition(".")[0] if "." in measure else "totals"
    case = ElementTree.SubElement(suite, "testcase", {"classname": f"gpuprof.{group}", "name": measure, "time": "0"})
    words = change_words(row)
    if row.outcome == "regressed":
        failure = ElementTree.SubElement(case, "failure", {"type": "regressed", "message": words})
        failure.text = f"{words}\n{plain.sentence(comparison.summary)}"
    elif row.outcome == "not comparable":
        way_out = comparison.way_out if comparison.outcome == "not comparable" else ""
        ElementTree.SubElement(case, "skipped", {"message": _then(row.why, way_out)})
    else:
        ElementTree.SubElement(case, "system-out").text = f"{row.outcome}: {words}"


def _then(text: str, way_out: str) -> str:
    return plain.sentence(text) + (f"; next: {plain.sentence(way_out)}" if way_out else "")
