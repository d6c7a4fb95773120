"""Renews the quotation in ``docs/how-to-read.md`` from the report of the digits."""

import io
import re
from pathlib import Path

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks.terminal_screen import print_screen
from walked_report import walked_report

_QUOTATION = re.compile(r"<!-- report -->\n.*?<!-- end -->", re.DOTALL)


def renewed(page: str) -> str:
    """The page with what stands between ``<!-- report -->`` and ``<!-- end -->`` as the terminal shows it today.

    Args:
        page: The page as it is.
    """
    text = f"<!-- report -->\n\n```text\n{shown(walked_report())}\n```\n\n<!-- end -->"
    return _QUOTATION.sub(lambda _: text, page)


def shown(report: Report) -> str:
    """What the terminal shows at the end of a run, without trailing spaces."""
    out = io.StringIO()
    print_screen(report, Path("runs/digits/version_0/gpuprof"), out)
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())
