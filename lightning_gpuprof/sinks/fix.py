"""What to change for a finding: lines of code or configuration, their place and reason."""

import ast
import json
import re
from collections.abc import Mapping, Sequence

import msgspec

from lightning_gpuprof.errors import HIDDEN
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.code_place import parts
from lightning_gpuprof.model.finding import REMAINING, SHARD_FIRST, Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.report import LineRow
from lightning_gpuprof.sinks import plain

SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z0-9])")
_ELIDED = re.compile(r"^[\w.]+\(\.\.\., (.*)\)$")
_EFFECTS: Mapping[str, str] = {
    "accumulate_grad_batches": "The optimizer steps less often.",
    "batch_size": "A larger batch may need another learning rate.",
    "check_val_every_n_epoch": "Validation results are less frequent.",
    "drop_last": "The last, smaller batch of each epoch is left out.",
    "every_n_epochs": "A crash loses more work.",
    "every_n_train_steps": "A crash loses more work.",
    "in_order": "Batches arrive in a different order in each run.",
    "limit_val_batches": "Validation results are less exact.",
    "log_every_n_steps": "Curves have fewer points.",
    "num_sanity_val_steps": "Validation errors show up later.",
    "precision": "Compare the losses of both runs.",
    "refresh_rate": "The progress bar updates less often.",
    "val_check_interval": "Validation results are less frequent.",
}
"""What else a new value of an argument does."""


_CAVEATS = ("Trade-off: ", SHARD_FIRST)
"""How sentences of an advice begin that say what else its change does."""

_BUILT: Mapping[str, str] = {"DataLoader": "loader", "Trainer": "trainer"}
"""By call, what conditions name it whose place is known."""


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """What the first finding proposes."""

    where: str = ""
    """``train.py:42``; empty: not known."""
    place: str = ""
    """In words, where the added lines go, if ``where`` is not known: ``before trainer.fit``."""
    inside: tuple[str, ...] = ()
    """Lines around the diff: of a configuration, its section."""
    removed: tuple[str, ...] = ()
    """Lines of a diff without the minus."""
    added: tuple[str, ...] = ()
    """Lines of a diff without the plus."""
    advice: str = ""
    """The same in sentences, with its reason."""
    why: str = ""
    """Reason of a number in the diff, a sentence; empty: not known."""
    effect: str = ""
    """What else the change does, a sentence."""

    is_pattern: bool = False
    """Whether the lines stand for the user's own: there is nothing to copy."""
    code: str = ""
    """The user's own line that it is about, where no line of the diff is it; empty: not known."""

    @property
    def copied(self) -> str:
        """What a button copies: of a call with an ellipsis the arguments; empty for a pattern or with hidden text."""
        copied = "\n".join(_ELIDED.sub(r"\1", line) for line in (*self.inside, *self.added))
        return "" if self.is_pattern or HIDDEN in copied else copied

    @property
    def diff(self) -> tuple[tuple[str, str], ...]:
        """A mark and a line each; empty where the change is only known in words."""
        around = (*self.inside, self.code) if self.code else self.inside
        marked = ((" ", around), ("-", self.removed), ("+", self.added)) if self.removed or self.added else ()
        return tuple((mark, line) for mark, lines in marked for line in lines)


def fix_of(finding: Finding, run: Mapping[str, Value], own: LineRow | None = None) -> Fix:
    """What a finding proposes: in the configuration of LightningCLI, in the user's own call, or as a sentence.

    Args:
        finding: The finding.
        run: Conditions of the run.
        own: The line of the user's code that it is about; None: not known.

    Returns:
        Text of bounded length with hidden characters made visible, not escaped for HTML. A finding without a change has
        its advice and the place only.
    """
    change, advice = finding.change, _without_tracing(plain.sentence(finding.advice))
    if change is None:
        at, code = ("", "") if own is None else (named(own), plain.sentence(own.code))
        return Fix(advice=advice, where=at, code=code)
    sentences = SENTENCE_END.split(advice)
    why = " ".join(one for one in sentences if one.startswith(("Why ", REMAINING)))
    said = [one for one in sentences if one.startswith(_CAVEATS)]
    effects = said or dict.fromkeys(_EFFECTS[name] for name in change.arguments if name in _EFFECTS)
    which = (plain.sentence(f"The change is for {change.which}."),) if change.which else ()
    effect = " ".join((*which, *effects))
    configured = _in_yaml(change, run)
    if configured is not None:
        return msgspec.structs.replace(configured, advice=advice, why=why, effect=effect)
    where = f"{change.file}:{change.line}" if change.file and change.line else change.file
    removed, added, code = change.removed, change.added, ""
    is_pattern = bool(change.line and removed and not change.call)
    if is_pattern and own is not None:
        where = named(own)
        swapped = _in_own_line(own.code, removed, added)
        if swapped is None:
            code = plain.sentence(own.code)
        else:
            removed, added, is_pattern = *swapped, False
    built = "val_loader" if change.inside else _BUILT.get(change.call, "")
    built_at, by = run.get(f"{built}.built_at"), run.get(f"{built}.built_by")
    if not where and built_at is not None and change.arguments:
        where = str(built_at)
        if by is not None and (called := _in_own_code(str(by), change)) is not None:
            removed, added = (*called[0], *change.remove), (*called[1], *change.add)
    return Fix(
        where=plain.name(where),
        place="" if where else plain.sentence(change.place),
        removed=_lines(removed),
        added=_lines(added),
        advice=advice,
        why=why,
        effect=effect,
        is_pattern=is_pattern,
        code=code,
    )


def _lines(code: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(plain.sentence, code))


def _without_tracing(advice: str) -> str:
    """Advice without how to measure more, which is no fix; all of it if it says nothing else."""
    kept = [one for one in SENTENCE_END.split(advice) if "GpuProfiler(" not in one]
    return " ".join(kept) or advice


def _in_own_line(
    code: str, removed: Sequence[str], added: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The user's own line before and after, where only the call at its end differs; None if it is not as simple.

    ``total += loss.item()`` by the pattern ``value = tensor.item()``. Where the value is used at once, in a condition
    or a text, another call would not help.
    """
    if len(removed) != 1 or len(added) > 1:
        return None
    if not added:
        return ((code,), ()) if code == removed[0] else None
    before, dot, call = removed[0].rpartition(".")
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError):
        return None
    assigns = isinstance(statement, ast.Assign | ast.AugAssign) and isinstance(statement.value, ast.Call)
    if not assigns or not dot or not code.endswith(dot + call) or not added[0].startswith(before + dot):
        return None
    return (code,), (code.removesuffix(call) + added[0].removeprefix(before + dot),)


def _in_own_code(call: str, change: Change) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The user's own call before and after; None if it takes no such arguments or cannot be read.

    An argument that is an expression is shown by itself: it may be set elsewhere, as in a configuration.
    """
    try:
        parsed = ast.parse(call, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(parsed, ast.Call):
        return None
    given = {keyword.arg: keyword for keyword in parsed.keywords if keyword.arg is not None}
    if any(keyword.arg is None for keyword in parsed.keywords):  # **options may hold them already
        return None
    new = {name: ast.Constant(value=value) for name, value in change.arguments.items()}
    if any(name in given and not isinstance(given[name].value, ast.Constant) for name in new):
        removed = [f"{name}={ast.unparse(given[name].value)}," + _now(change, name) for name in new if name in given]
        return tuple(removed), tuple(f"{name}={ast.unparse(value)}," for name, value in new.items())
    kept = [keyword for keyword in parsed.keywords if keyword.arg not in new]
    after = ast.Call(
        func=parsed.func,
        args=parsed.args,
        keywords=kept + [ast.keyword(arg=name, value=value) for name, value in new.items()],
    )
    return (call,), (ast.unparse(after),)


def _now(change: Change, name: str) -> str:
    return f"  # {change.before[name]!r} in this run" if name in change.before else ""


def _in_yaml(change: Change, run: Mapping[str, Value]) -> Fix | None:
    """The change of all its arguments in the configuration of LightningCLI, its lines indented as they stand there.

    None if the run had no configuration, if that does not have all of these arguments, or if lines of code change.
    """
    callbacks = str(run.get("trainer.callbacks") or "").split(", ")
    if "SaveConfigCallback" not in callbacks or not change.arguments or change.remove or change.add:
        return None
    inside: tuple[str, ...] = ()
    if change.call == "Trainer":
        inside = ("trainer:",)
    elif change.call == "DataLoader":
        inside = _data_section(change, str(run.get("trainer.config_data") or "").split(", "))
    elif change.call in callbacks:
        inside = ("trainer:", "  callbacks:", f"  - class_path: {change.call}", "    init_args:")
    if not inside:
        return None
    last = inside[-1]
    indent = " " * (len(last) - len(last.lstrip()) + 2)
    removed = {name: value for name, value in change.before.items() if name in change.arguments}
    return Fix(
        where=plain.name(str(run.get("trainer.config_file") or "")),
        inside=_lines(inside),
        removed=_lines([f"{indent}{name}: {_written(value)}" for name, value in removed.items()]),
        added=_lines([f"{indent}{name}: {_written(value)}" for name, value in change.arguments.items()]),
    )


def _data_section(change: Change, known: list[str]) -> tuple[str, ...]:
    """Where the arguments of the data module are; empty: some are not there."""
    for path in ("data", "data.init_args"):
        if all(f"{path}.{name}" in known for name in change.arguments):
            return tuple("  " * depth + f"{name}:" for depth, name in enumerate(path.split(".")))
    return ()


def _written(value: Value) -> str:
    """A value in YAML, of which JSON is a part; words that mean nothing else need no quotes."""
    is_word = isinstance(value, str) and value.replace("-", "").isalnum() and not value[0].isdigit()
    reserved = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
    return str(value) if is_word and str(value).lower() not in reserved else json.dumps(value)


def line_of(finding: Finding, lines: Sequence[LineRow]) -> LineRow | None:
    """The line that a finding's subject names, or the one most seen in the function that it names.

    Frames of a trace have the line of the function's ``def``, so that only the looks know which one waits.

    Args:
        finding: Its subject may be ``train.py:38 training_step`` or ``train.py(31): training_step``.
        lines: Of the report.

    Returns:
        One of ``lines``. None: the subject is no place, or its code is not known.
    """
    subject = parts(finding.subject)
    if subject is None:
        return None
    known = [row for row in lines if row.code and (at := parts(row.place)) is not None and at.is_in(subject)]
    exact = [row for row in known if row.place == finding.subject]
    return max(exact or known, key=lambda row: row.looks, default=None)


def named(row: LineRow) -> str:
    """``train.py:38``."""
    return plain.name(row.place.partition(" ")[0])
