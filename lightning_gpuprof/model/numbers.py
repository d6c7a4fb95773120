"""Numbers: which values are possible, how sure a share of samples is, and how people read them."""

import math
from collections.abc import Callable, Iterable

ONE_SIDED_5_PERCENT = 1.645
"""Of the normal distribution: 5 % lie beyond it on one side."""


def possible(value: float) -> bool:
    """Whether something that was measured is a finite number of at least 0."""
    return math.isfinite(value) and value >= 0


def lower_share(ratio: float, count: int) -> float:
    """5 % lower bound of a share of samples (Wilson 1927).

    Args:
        ratio: Share of the samples, 0 to 1.
        count: Samples.

    Returns:
        0 to 1, not above ``ratio``; 0 without samples or if the share is not a possible one.
    """
    if count <= 0 or not possible(ratio):
        return 0.0
    ratio, z2 = min(1.0, ratio), ONE_SIDED_5_PERCENT**2
    spread = ONE_SIDED_5_PERCENT * math.sqrt(ratio * (1 - ratio) / count + z2 / (4 * count**2))
    return max(0.0, (ratio + z2 / (2 * count) - spread) / (1 + z2 / count))


ABSENT = "-"
"""What stands where nothing was measured."""

_UNKNOWN = "unknown"
"""The same in a sentence."""

_SUFFIXES: tuple[tuple[str, str], ...] = (
    ("_ratio", "%"),
    ("_bytes_per_s", "B/s"),
    ("_bytes", "B"),
    ("_per_s", "/s"),
    ("_mhz", "MHz"),
    ("_ms_per_step", "ms/step"),
    ("_us_per_step", "µs/step"),
    ("_ns", "ns"),
    ("_us", "µs"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_w", "W"),
    ("_j", "J"),
    ("_celsius", "°C"),
    ("_c", "°C"),
    ("_mb", "MB"),
    ("_cpus", "CPUs"),
    ("_count", ""),
)
"""Unit that the end of a field's name stands for; longer endings first."""

_STATISTICS = ("_mean", "_median", "_peak", "_min", "_max")
"""What may follow the unit."""


_LABELS = {
    "edge_ns": "one timestamp",
    "edges_per_step": "timestamps per step",
    "timing_us_per_step": "timestamps",
    "boundary_us_per_step": "between steps",
    "windows_s": "trace windows",
    "hooks_s": "start and end",
    "conditions_s": "reading the conditions",
    "report_s": "making the report",
}
"""What people call a field whose name alone does not say it."""

_ACRONYMS = frozenset({"cpu", "gpu", "pss", "rss", "sm"})


def significant(value: float | None) -> str:
    """Three significant digits without an exponent: ``0.00123``, ``12.3``, ``1,230``; "-" for None."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    if float(value).is_integer() and abs(value) < 1000:
        return str(int(value))
    if abs(value) < 1e-6:
        return f"{value:.2e}"
    return _digits(value, 3)


def fixed(value: float | None) -> str:
    """As :func:`significant` in a column with one unit: what is below a thousandth of it is ``<0.001``."""
    return "<0.001" if value is not None and 0 < value < 0.001 else significant(value)


def interval(ends: tuple[float, float] | None) -> str:
    """Both ends of an interval, with as many digits as they differ in: ``12.0 to 12.3``; empty for None."""
    if ends is None or not all(math.isfinite(end) for end in ends):
        return ""
    low, high = ends
    for digits in (3, 4, 5):
        shown = tuple(_digits(end, digits) for end in ends)
        if shown[0] != shown[1] or low == high:
            break
    return f"{shown[0]} to {shown[1]}"


def _digits(value: float, digits: int) -> str:
    """So many significant digits, also if the last is 0."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    decimals = digits - 1 - math.floor(math.log10(abs(round(value, decimals))))  # 0.9996 becomes 1.00
    return f"{round(value, decimals):,.{max(0, min(decimals, 8))}f}"


def count(value: int) -> str:
    """A count in full, with separators: ``12,345``."""
    return f"{value:,}"


def exact_percent(ratio: float | None) -> str:
    """A share of 0 to 1 as percent with one decimal; "-" for None."""
    if ratio is None or not math.isfinite(ratio):
        return ABSENT
    if ratio == 0:
        return "0 %"
    if 0 < ratio < 0.0005:
        return "<0.1 %"
    return f"{ratio * 100:,.1f} %"


def signed(value: float | None, show: Callable[[float], str]) -> str:
    """A difference with its sign: ``+12.3``, ``-0.500``, ``0``; what is next to nothing has none: ``<0.001``.

    Args:
        value: The difference.
        show: How its size is written.

    Returns:
        :data:`ABSENT` for None and what is not finite.
    """
    if value is None or not math.isfinite(value):
        return ABSENT
    size = show(abs(value))
    return size if value == 0 or size.startswith("<") else f"{'+' if value > 0 else '-'}{size}"


def signed_percent(ratio: float | None) -> str:
    """A change as percent, with its sign: ``+2.3 %``, ``<0.1 %``."""
    return signed(ratio, exact_percent)


def percent(ratio: float) -> str:
    """A share of 0 to 1 in a sentence: ``83 %``, below a tenth with one digit more: ``3.2 %``."""
    value = ratio * 100
    if not math.isfinite(value):
        return _UNKNOWN
    if 0 < value < 0.05:
        return "<0.1 %"
    return f"{value:.0f} %" if abs(value) >= 9.95 or value == 0 else f"{value:.1f} %"


def millis(value_ms: float | None) -> str:
    """A duration with its unit: ``0.853 ms``, ``41.2 ms``, from 1,000 ms on as :func:`seconds`; None is not known."""
    if value_ms is None or not math.isfinite(value_ms):
        return _UNKNOWN
    return seconds(value_ms / 1e3) if abs(value_ms) >= 999.5 else f"{_digits(value_ms, 3)} ms"


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it: ``340 ms``, ``83.4 s``, ``12.6 min``, ``5.20 h``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value != 0 and abs(value) < 0.9995:
        return f"{_digits(value * 1e3, 3)} ms"
    if abs(value) < 120:
        return f"{_digits(value, 3)} s"
    return f"{_digits(value / 60, 3)} min" if abs(value) < 7200 else f"{_digits(value / 3600, 3)} h"


def size(value: float | None) -> str:
    """Bytes in the unit that suits them: ``512 B``, ``1.50 GiB``."""
    if value is None or not math.isfinite(value):
        return ABSENT
    amount = value
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{significant(amount)} {unit}"
        amount /= 1024
    return f"{significant(amount)} TiB"


def unit_of(field: str) -> str:
    """Unit that a field's name ends with, also before a statistic as in ``rss_bytes_peak``; empty if it names none."""
    return _split(field)[1]


def label(field: str) -> str:
    """A field's name for people: without its unit, with spaces."""
    words = _split(field)[0].replace(".", " ").replace("_", " ").split(" ")
    return _LABELS.get(field) or " ".join(word.upper() if word in _ACRONYMS else word for word in words)


def _split(field: str) -> tuple[str, str]:
    """A field's name without its unit, and the unit."""
    stem = next((field[: -len(end)] for end in _STATISTICS if field.endswith(end)), field)
    for suffix, unit in _SUFFIXES:
        if stem.endswith(suffix):
            return stem[: -len(suffix)] + field[len(stem) :], unit
    return field, ""


def quantity(field: str, value: float | None) -> str:
    """A value with the unit that its field's name ends with: ``quantity("power_w", 71.2)`` is ``71.2 W``.

    Args:
        field: Name of the field, which ends with its unit.
        value: In that unit; None is not measured.

    Returns:
        :data:`ABSENT` for None and what is not finite.
    """
    if value is None or not math.isfinite(value):
        return ABSENT
    unit = unit_of(field)
    if unit == "%":
        return exact_percent(value)
    if unit == "B":
        return size(value)
    if unit == "B/s":
        return f"{size(value)}/s"
    if unit == "s":
        return seconds(value)
    return with_unit(value, unit)


def with_unit(value: float | None, unit: str) -> str:
    """A value beside its unit as evidence gives it; the unit ``ratio`` is shown as percent, ``bytes`` as KiB to TiB.

    Args:
        value: The number; None is not measured.
        unit: Unit of the evidence; empty for none.

    Returns:
        :data:`ABSENT` for None and what is not finite.
    """
    if value is None or not math.isfinite(value):
        return ABSENT
    if unit == "ratio":
        return exact_percent(value)
    if unit in ("bytes", "B"):
        return size(value)
    if unit == "%":
        return f"{significant(value)} %"
    if unit == "CPUs":
        return cpus(value, 2)
    return f"{significant(value)} {unit}".rstrip()


def cpus(value: float, decimals: int = 1) -> str:
    """A number of CPUs, 1.0 being one full CPU: ``2 CPUs``, ``0.9 CPUs``, ``1 CPU``.

    Args:
        value: The number.
        decimals: At most, one or more.

    Returns:
        ``unknown CPUs`` for what is not finite.
    """
    text = f"{value:.{decimals}f}".rstrip("0").removesuffix(".") if math.isfinite(value) else _UNKNOWN
    return f"{text} CPU" if text == "1" else f"{text} CPUs"


def of_each_step(ms: float, step_ms: float) -> str:
    """``20.0 ms of each 50.0 ms step (40 %)``.

    Args:
        ms: Time per step in ms.
        step_ms: The step time in ms.

    Returns:
        At most 100 %: kernels that overlap may add up to more than the step.
    """
    return f"{millis(ms)} of each {millis(step_ms)} step ({percent(min(1.0, ms / step_ms))})"


def counted(number: int, noun: str) -> str:
    """A count with its noun in the right number: ``1 step``, ``12 steps``.

    Args:
        number: How many.
        noun: In the singular.

    Returns:
        Thousands are separated by commas.
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def often(number: int) -> str:
    """A count of events: ``once``, ``twice``, ``12 times``."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def round_number(value: int, *, down: bool = False) -> int:
    """The next number that people set: 46 -> 50, 420 -> 500.

    Args:
        value: At least 1.
        down: The one before instead.

    Returns:
        Not below ``value``, with ``down`` not above it; numbers up to ten stay.
    """
    tenth = 10 ** (len(str(value)) - 2) if value > 10 else 1
    candidates = [digits * tenth for digits in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)] if value > 10 else [value]
    return max(c for c in candidates if c <= value) if down else min(c for c in candidates if c >= value)


def amount(value: float) -> str:
    """A number with four significant digits: ``239.3``, ``12,350``."""
    if not math.isfinite(value):
        return _UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def factor(value: float) -> str:
    """How many times: ``1.31x``."""
    return f"{value:.2f}x" if math.isfinite(value) else _UNKNOWN


def capital(text: str) -> str:
    """A sentence that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def listed(items: list[str]) -> str:
    """Items as a phrase: ``a``, ``a and b``, ``a, b and c``."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


_MOST_RUNS = 8
"""Of neighbouring numbers that a sentence lists."""


def numbered(noun: str, numbers: Iterable[int]) -> str:
    """Things by their numbers, neighbours together: ``rank 3``, ``ranks 0 and 8 to 15``.

    Args:
        noun: In the singular.
        numbers: At least one.

    Returns:
        Ascending, each once; of many only the first: ``ranks 3, 11, 19, 27 and 124 more``.
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = runs if len(runs) <= _MOST_RUNS else runs[: _MOST_RUNS // 2]
    spans = [span for run in shown for span in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    if left := sum(map(len, runs[len(shown) :])):
        spans.append(f"{left:,} more")
    return f"{noun}{'' if len(runs) == len(runs[0]) == 1 else 's'} {listed(spans)}"


def gib(value: float) -> str:
    """Memory for people: ``18.6 GiB``, below one GiB in MiB."""
    amount, unit = (value / 2**30, "GiB") if abs(value) >= 2**30 else (value / 2**20, "MiB")
    return f"{amount:,.0f} {unit}" if abs(amount) >= 999.5 else f"{amount:.3g} {unit}"


def mhz(value: float) -> str:
    """A clock for people: ``1,980 MHz``."""
    return f"{value:,.0f} MHz"


def decimal_size(value: float) -> str:
    """Bytes for people in decimal units, as rates of links have them: ``38.5 MB``."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} B"
