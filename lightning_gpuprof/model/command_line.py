"""The words of a command line as a report may hold them: what is not known to be harmless is hidden."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from lightning_gpuprof.errors import HIDDEN

MAX_TEXT = 400
"""Characters of them; the rest is cut."""
_OPTION = re.compile(r"(-[A-Za-z]|--[A-Za-z][\w.-]*)(=|\Z)")
SECRET_NAME = re.compile(r"token|secret|pass|pwd|\bpw\b|key|cred|auth|pin\b", re.IGNORECASE)
"""Names of options, and of variables, of which not even a number is shown."""
_HARMLESS = re.compile(
    r"[-+]?[\d.]{1,10}(e[-+]?\d{1,3})?|true|false|none|null"
    r"|fit|validate|test|predict|train"
    r"|[\w./~][\w./~-]*\.(ya?ml|py)",
    re.IGNORECASE,
)
"""Numbers, booleans, subcommands, and paths without what an address has (``:``, ``@``, ``?``)."""


def script_name(path: str) -> str:
    """Name of a program's file; of ``/home/me/project/__main__.py``, a package's, ``project/__main__.py``."""
    file = PurePath(path)
    return f"{file.parent.name}/{file.name}" if file.name == "__main__.py" and file.parent.name else file.name


def shown_words(words: Sequence[str]) -> list[str]:
    """Names of options, and values that cannot be secret: ``--wandb_key=***`` of ``--wandb_key=x``."""
    shown = []
    before = ""
    for word in words:
        option = found[0] if (found := _OPTION.match(word)) else ""
        has_value = option.endswith("=")
        is_secret = SECRET_NAME.search(option if has_value else before)
        is_harmless = option == word or _HARMLESS.fullmatch(word, len(option))
        shown.append(word if is_harmless and not is_secret else f"{option if has_value else ''}{HIDDEN}")
        before = option if option == word else ""
    return shown


def shown_arguments(words: Sequence[str]) -> str:
    """The same in one line."""
    text = " ".join(shown_words(words))
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def arguments_hash(words: Sequence[str]) -> str:
    """Whether two programs have the same words after their files, hidden ones as well.

    Only 16 bits: of a list of likely passwords each 65,536th fits, so nobody knows by it which one was there.
    """
    import hashlib  # loads OpenSSL: 5 ms of each command, for what the start of a run needs

    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()[:4]
