"""proselint over the prose of the pages, without code and headings: ``python docs/tools/prose.py FILE_OR_FOLDER…``."""

import re
import sys
from pathlib import Path

from proselint.checks import __register__ as checks
from proselint.config import load_from
from proselint.registry import CheckRegistry
from proselint.tools import LintFile, extract_files

NO_PROSE = re.compile(r"^ *```.*?^ *```$|`[^`]+`|^#.*?$", re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    """The page with dots for code and headings: lines stay where they are, and the words around do not meet."""
    return NO_PROSE.sub(lambda match: re.sub(r"\S", "·", match[0]), page)


def complaints(paths: list[Path]) -> list[str]:
    """What proselint finds, by the checks of ``.proselintrc.json`` in the current folder: place, check and reason."""
    CheckRegistry().register_many(checks)
    config = load_from()
    return [
        f"{path}:{found.pos[0]}: {found.check_result.check_path}: {found.check_result.message}"
        for path in sorted(extract_files(paths))
        for found in LintFile(str(path), prose(path.read_text(encoding="utf-8"))).lint(config)
    ]


if __name__ == "__main__":
    sys.exit("\n".join(complaints([Path(one) for one in sys.argv[1:]])) or None)
