"""The growth per second of counters that only rise."""

from __future__ import annotations

from collections.abc import Mapping


class Growth:
    """Remembers the last reading of named counters."""

    def __init__(self) -> None:
        self._last: tuple[int, Mapping[str, float]] | None = None

    def per_s(self, counters: Mapping[str, float], t_ns: int) -> dict[str, float]:
        """Growth per second; without a counter that is new or was set back, and empty at the first reading.

        Args:
            counters: Name -> value now.
            t_ns: When they were read.
        """
        last, self._last = self._last, (t_ns, counters)
        if last is None or t_ns <= last[0]:
            return {}
        seconds = (t_ns - last[0]) / 1e9
        return {
            name: (value - last[1][name]) / seconds
            for name, value in counters.items()
            if name in last[1] and value >= last[1][name]
        }

    def since(self, counters: Mapping[str, float], t_ns: int) -> dict[str, float]:
        """As :meth:`per_s`, but the growth itself.

        Args:
            counters: Name -> value now.
            t_ns: When they were read.
        """
        last, self._last = self._last, (t_ns, counters)
        if last is None:
            return {}
        return {n: v - last[1][n] for n, v in counters.items() if n in last[1] and v >= last[1][n]}
