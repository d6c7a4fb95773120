"""All pages that are made from the source: ``python docs/tools/pages.py`` renews them."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import api_pages  # noqa: E402 - after the path
import condition_page  # noqa: E402
import measured  # noqa: E402
import number_pages  # noqa: E402
import report_walk  # noqa: E402
import rule_pages  # noqa: E402


def write(docs: Path) -> None:
    """Renew every generated page below ``docs``, which has its other pages already."""
    for name, write_pages in (
        ("rules", rule_pages.write),
        ("numbers", number_pages.write),
        ("reference", api_pages.write),
    ):
        (docs / name).mkdir(exist_ok=True)
        write_pages(docs / name)
    for name, renew in (("conditions.md", condition_page.renewed), ("how-to-read.md", report_walk.renewed)):
        page = docs / name
        page.write_text(renew(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(ROOT / "docs")
    for one in measured.PAGES:
        one.write_text(measured.renewed(one.read_text(encoding="utf-8")), encoding="utf-8")
