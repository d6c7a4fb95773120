"""The fenced blocks of the documentation: which page, which language, whether they are meant to run."""

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NO_RUN = "no-run"

_FENCE = re.compile(r"^( *)```(\w+)([^\n`]*)\n(.*?)^\1```[ ]*$", re.DOTALL | re.MULTILINE)
_SEPARATORS = ("&&", "||", ";", "|", "&", "(", ")")


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    """Of its first line of content."""
    language: str
    runs: bool
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The pages that people read: of the site, and those beside it."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path, *languages: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 2,
            language=found[2],
            runs=NO_RUN not in found[3].split(),
            text=textwrap.dedent(found[4]),
        )
        for found in _FENCE.finditer(text)
        if found[2] in languages
    ]


def all_blocks(*languages: str) -> list[Block]:
    return [block for page in pages() for block in blocks_of(page, *languages)]


def commands_of(block: Block) -> list[list[str]]:
    """The simple commands of a shell block, as words, without comments, prompts, variables and redirections."""
    found: list[list[str]] = []
    text = block.text.replace("\\\n", " ")
    lines = text.splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _SEPARATORS:
                found.append(words)
                words = []
            else:
                words.append(word)
    return [plain for words in found if (plain := _plain(words))]


def _plain(words: list[str]) -> list[str]:
    while words and re.fullmatch(r"[A-Za-z_]\w*=.*", words[0]):
        words = words[1:]
    ends = [index for index, word in enumerate(words) if word[:1] in ("<", ">")]
    return words[: ends[0]] if ends else words
