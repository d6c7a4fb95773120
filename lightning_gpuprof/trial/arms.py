"""What can be tried: the advice of a report, or settings that were asked for by name."""

import ast
import difflib
import re
from collections.abc import Mapping, Sequence

from msgspec import structs

from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.change import Change
from lightning_gpuprof.model.finding import Finding
from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.trial import Arm, NotTried
from lightning_gpuprof.trial.at_start import TRAINER_ARGUMENTS

NEEDS_A_HUMAN = "your code has to change"
LOGGER_DOES_NOT_RUN = "loggers do not run in a trial, since they could send something"

_CALLS: Mapping[str, tuple[str, ...]] = {
    "DataLoader": ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order", "batch_size"),
    "Trainer": (
        "precision",
        "log_every_n_steps",
        "benchmark",
        "detect_anomaly",
        "enable_progress_bar",
        "gradient_clip_val",
        "logger",
        *TRAINER_ARGUMENTS,
    ),
    "torch.optim": ("fused", "foreach"),
}
_LINES: Mapping[str, str] = {
    "matmul_precision": "torch.set_float32_matmul_precision({!r})",
    "num_threads": "torch.set_num_threads({!r})",
    "cudnn_tf32": "torch.backends.cudnn.allow_tf32 = {!r}",
    "gc_threshold": "gc.set_threshold({!r})",
}
_FLAGS: Mapping[str, str] = {
    "compile": "model = torch.compile(model)",
    "channels_last": "model = model.to(memory_format=torch.channels_last)",
    "gc_freeze": "gc.freeze()",
    "gc_disable": "gc.disable()",
}
WITHOUT = "without"
"""What is left out: the class of a callback or logger."""
VARIABLE = "env:"
"""Before the name of a variable of the environment."""
_OWN_VARIABLES = "GPUPROF"
_WITH_COMMAS = re.compile(r"PYTORCH_(\w+_)?ALLOC_CONF")
"""Variables whose value has commas itself: one ``--arm`` has one value of them."""
NAMES: tuple[str, ...] = tuple(
    sorted([name for names in _CALLS.values() for name in names] + [*_LINES, *_FLAGS, WITHOUT])
)
"""What ``--arm NAME=VALUE`` takes."""

_RANGES: Mapping[str, tuple[int, int]] = {
    "num_workers": (0, 256),
    "prefetch_factor": (1, 1024),
    "log_every_n_steps": (0, 1_000_000),
    "num_threads": (1, 1024),
    "gc_threshold": (1, 1_000_000_000),
    "batch_size": (1, 10_000_000),
    "devices": (1, 10_000),
    "accumulate_grad_batches": (1, 1_000_000),
}
_WORDS: Mapping[str, tuple[str, ...]] = {
    "precision": ("16-mixed", "bf16-mixed", "16-true", "bf16-true", "32-true"),
    "matmul_precision": ("highest", "high", "medium"),
}
_SWITCHES = (
    "pin_memory",
    "persistent_workers",
    "in_order",
    "benchmark",
    "detect_anomaly",
    "fused",
    "foreach",
    "cudnn_tf32",
    "sync_batchnorm",
    "use_distributed_sampler",
    *_FLAGS,
)
_ONLY: Mapping[str, bool] = {"enable_progress_bar": False, "logger": False, **dict.fromkeys(_FLAGS, True)}
"""Switches of which only one value changes something that can be changed."""


def advised(findings: Sequence[Finding]) -> tuple[tuple[Arm, ...], tuple[NotTried, ...]]:
    """What findings, most valuable first, advise: what is a setting, once each, and what is not."""
    arms: dict[str, Arm] = {}
    left: list[NotTried] = []
    for finding in findings:
        promised = finding.most_speedup
        change = finding.change
        if change is None:
            what = finding.title or finding.advice
            left.append(NotTried(rule=finding.rule, advice=what, why=NEEDS_A_HUMAN, promised_speedup=promised))
            continue
        name = title(change)
        if same := arms.get(name):
            best = max((one for one in (same.promised_speedup, promised) if one is not None), default=None)
            rules, expected = (*same.rules, finding.rule), same.expected or finding.expected
            arms[name] = structs.replace(same, rules=rules, promised_speedup=best, expected=expected)
        else:
            arms[name] = Arm(
                name=name,
                changes=(change,),
                rules=(finding.rule,),
                promised_speedup=promised,
                expected=finding.expected,
            )
    return tuple(arms.values()), tuple(left)


_RARER = re.compile(r"if [\w.]+ % (\d+): return  # at the start of (\w+)\.(\w+)")


def rarer_hook(line: str) -> tuple[str, str, int] | None:
    """What a line of advice lets return at once in all but one of so many steps.

    Returns:
        Class, hook and number of ``if batch_idx % 50: return  # at the start of Audit.on_train_batch_end``; None: it is
        another line.
    """
    found = _RARER.fullmatch(line.strip())
    return None if found is None else (found[2], found[3], int(found[1]))


def title(change: Change) -> str:
    """A change as a row of a table has it."""
    if change.arguments:
        written = ", ".join(f"{name}={value}" for name, value in change.arguments.items())
        return written if change.call in ("DataLoader", "Trainer") else f"{change.call}({written})"
    lines = [*(line.strip() for line in change.add), *(f"without {line.strip()}" for line in change.remove)]
    lines = [line for line in lines if not line.startswith("def ")] or lines
    if not lines:
        return "no change"
    if rarer := rarer_hook(lines[0]):
        return f"{rarer[0]}.{rarer[1]} every {rarer[2]} batches"
    code, _, where = lines[0].partition("  # ")
    return f"{code} ({where})" if where else code


_NUMBERS = (
    "precision",
    "batch_size",
    "devices",
    "gradient_clip_val",
    "accumulate_grad_batches",
    "sync_batchnorm",
    "in_order",
    "TF32",
    "set_float32_matmul_precision",
    "allow_tf32",
)


def changes_numbers(change: Change) -> bool:
    """Whether the weights come out differently with a change."""
    return any(name in change.arguments or any(name in line for line in change.add) for name in _NUMBERS)


def asked(texts: Sequence[str]) -> tuple[Arm, ...]:
    """The arms of ``--arm NAME=VALUE[,VALUE...]``, one for each value.

    Raises:
        ArgumentError: A name is not known, or a value impossible.
    """
    return tuple(_arm(name, value) for text in texts for name, value in _values(text))


def _values(text: str) -> list[tuple[str, Value]]:
    name, _, values = text.partition("=")
    name = name.strip()
    if name.startswith(VARIABLE):
        return _variable_values(name, text)
    if name not in NAMES:
        near = [f"{VARIABLE}{name}"] if name.isupper() else difflib.get_close_matches(name, NAMES, n=2)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(NAMES)}, {VARIABLE}NAME."
        raise ArgumentError("--arm", text, "begin with the name of a setting", hint)
    if not values:
        raise ArgumentError("--arm", text, "be NAME=VALUE", f"Such as --arm {name}={_example(name)}.")
    return [(name, _value(name, value.strip())) for value in values.split(",")]


def _variable_values(name: str, text: str) -> list[tuple[str, Value]]:
    _, given, values = text.partition("=")
    variable = name.removeprefix(VARIABLE)
    if not given or not re.fullmatch(r"[A-Za-z_]\w*", variable):
        hint = f"Such as --arm {VARIABLE}OMP_NUM_THREADS=1,2; nothing after = leaves the variable out."
        raise ArgumentError("--arm", text, f"be {VARIABLE}NAME=VALUE", hint)
    if variable.startswith(_OWN_VARIABLES):
        raise ArgumentError("--arm", text, "be a variable of the program's", f"{variable} is read by gpuprof itself.")
    whole = _WITH_COMMAS.fullmatch(variable) is not None
    return [(name, value.strip()) for value in ([values] if whole else values.split(","))]


def _example(name: str) -> str:
    if name in _ONLY:
        return str(_ONLY[name])
    if name in (WITHOUT, "strategy"):
        return "LearningRateMonitor" if name == WITHOUT else "ddp"
    return "True" if name in _SWITCHES else _WORDS.get(name, ("2,4",))[-1]


def _value(name: str, text: str) -> Value:
    value: Value
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = {"true": True, "false": False}.get(text.lower(), text)
    label = f"--arm {name}"
    if name in _ONLY:
        if value is not _ONLY[name]:
            raise ArgumentError(label, value, f"be {_ONLY[name]}: there is nothing else to try")
    elif name in _SWITCHES:
        if not isinstance(value, bool):
            raise ArgumentError(label, value, "be True or False")
    elif name in _WORDS:
        if value not in _WORDS[name]:
            raise ArgumentError(label, value, f"be one of {', '.join(_WORDS[name])}")
    elif name == WITHOUT:
        if not text.isidentifier():
            raise ArgumentError(label, text, "be the class of a callback or logger", "Such as LearningRateMonitor.")
        value = text
    elif name == "strategy":
        if not re.fullmatch(r"[a-z]\w*", text):
            raise ArgumentError(label, text, "be the name of a strategy", "Such as ddp or fsdp.")
        value = text
    elif name in _RANGES:
        least, most = _RANGES[name]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ArgumentError(label, value, f"be a whole number from {least} to {most:,}")
    elif isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ArgumentError(label, value, "be a number above 0")
    return value


def _arm(name: str, value: Value) -> Arm:
    if name.startswith(VARIABLE):
        variable = name.removeprefix(VARIABLE)
        line = f"export {variable}={value}"
        if value == "":
            return Arm(name=f"{variable} unset", changes=(Change(remove=(line,)),))
        return Arm(name=f"{variable}={value}", changes=(Change(add=(line,)),))
    if name in _LINES:
        change = Change(add=(_LINES[name].format(value),))
    elif name in _FLAGS:
        change = Change(add=(_FLAGS[name],))
    elif name == WITHOUT:
        change = Change(remove=(f"{value}(...)",))
    else:
        call = next(call for call, names in _CALLS.items() if name in names)
        change = Change(call=f"{call}." if call == "torch.optim" else call, arguments={name: value})
    return Arm(name=f"{name}={value}", changes=(change,))


def loader_arms(cpus: int) -> tuple[Arm, ...]:
    """Numbers of workers for the search of the loader's best settings; how far they prefetch is tried after it.

    There are no more than CPUs that this process may use: further ones only take them from each other.
    """
    counts = sorted({count for count in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if count < cpus} | {cpus})
    settings: list[dict[str, Value]] = [{"num_workers": 0}]
    settings += [{"num_workers": count, "persistent_workers": True} for count in counts]
    changes = [Change(call="DataLoader", arguments=one) for one in settings]
    return tuple(Arm(name=title(change), changes=(change,)) for change in changes)
