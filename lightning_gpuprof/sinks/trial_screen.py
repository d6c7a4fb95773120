"""What ``gpuprof try`` measured, on the terminal: the table, what was not tried, and the answer last."""

from typing import IO

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.trial import Trial
from lightning_gpuprof.sinks import plain, trial_tables
from lightning_gpuprof.sinks.console import MAX_WIDTH, make_console, print_to, terminal_width
from lightning_gpuprof.sinks.terminal_table import draw
from lightning_gpuprof.sinks.terminal_text import command, indented, labelled, sentence_text

MOST_LEFT = 3
"""Lines of advice that was not tried; all of it is in the file."""


def print_trial(trial: Trial, *, apply: str = "", file: IO[str] | None = None) -> None:
    """Print a result.

    Args:
        trial: It.
        apply: The command that makes the change; empty where there is none.
        file: The stream; None is standard output.
    """
    print_to(file, render(trial, apply=apply, width=max(MAX_WIDTH, make_console(file).width, terminal_width(file))))


def render(trial: Trial, *, apply: str = "", width: int = MAX_WIDTH) -> RenderableType:
    """A result as something that rich prints.

    Args:
        trial: It.
        apply: The command that makes the change; empty where there is none.
        width: Columns that no line passes.

    Returns:
        The table of what was tried, notes, what was not tried, then the headline and the command.
    """
    found = trial_tables.best(trial)
    table = trial_tables.tried_table(trial)
    head = "FASTER" if found is not None else "UNCLEAR" if trial_tables.is_undecided(trial) else "NO GAIN"
    head = head if table.rows else "NOTHING TO TRY"
    style = "bold white on green" if found is not None else "bold black on cyan"
    base = "" if trial.base_step_ms is None else f"{numbers.significant(trial.base_step_ms)} ms per step as it is"
    meta = [" ".join(trial.command), trial.device, base, f"took {numbers.seconds(trial.seconds)}"]
    parts: list[RenderableType] = [
        Text.assemble(("gpuprof try", "bold"), "  ", " · ".join(plain.visible(one) for one in meta if one))
    ]
    if table.rows:
        parts += [Text(""), indented(draw(table, width - 2))]
    if said := trial_tables.ceilings(trial):
        parts += [Text(""), indented(sentence_text(said))]
    parts += [labelled(f"{label}:", text) for label, text in trial_tables.notes(trial)]
    for one in trial.not_tried[:MOST_LEFT]:
        why = ", ".join(plain.sentence(word) for word in (one.why, trial_tables.bound(one)) if word)
        parts.append(labelled("not tried:", f"{plain.sentence(one.advice)} ({why})"))
    if (more := len(trial.not_tried) - MOST_LEFT) > 0:
        parts.append(labelled("not tried:", f"{more} more, in try.json"))
    parts += [
        Text(""),
        Text.assemble((f" {head} ", style), "  ").append_text(sentence_text(trial_tables.headline(trial), "bold")),
    ]
    if apply:
        parts.append(command("apply:", apply))
    return Constrain(Group(*parts), width)
