"""The report of the digits flows in, ``docs/how-to-read.md`` flows out with its quotations renewed.

A quotation stands between ``<!-- report: Verdict -->`` and ``<!-- end -->``: what the terminal shows from the line that
begins with that word to the next empty line before a heading.
"""

from __future__ import annotations

import io
import re

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import terminal
from walked_report import walked_report

_QUOTATION = re.compile(r"<!-- report: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def renewed(page: str) -> str:
    """The page with every quotation as the terminal sink writes it today.

    Args:
        page: The page as it is.

    Raises:
        LookupError: It quotes a part that the report does not have.
    """
    parts = parts_of(walked_report())

    def quotation(found: re.Match[str]) -> str:
        name = found[1]
        if name not in parts:
            raise LookupError(f"the report has no part {name!r}: it has {', '.join(parts)}")
        return f"<!-- report: {name} -->\n\n```text\n{parts[name]}\n```\n\n<!-- end -->"

    return _QUOTATION.sub(quotation, page)


def parts_of(report: Report) -> dict[str, str]:
    """Parts of the terminal's summary by the beginning of their first line, up to a colon, comma or bracket."""
    out = io.StringIO()
    terminal.print_report(report, out)
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    parts: dict[str, str] = {}
    name = ""
    for block in re.split(r"\n\n(?=\S|  not evaluated|  cost)", text):
        name = re.split(r"[:,(\n]", block.strip())[0].strip()
        parts[name] = block.strip("\n")
    return parts
