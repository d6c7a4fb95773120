"""The places in the user's code where the main thread was sampled most."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_gpuprof.analyze.journal import Journal

MAX_SITES = 5


def most_seen(journal: Journal, slots: Iterable[int]) -> tuple[tuple[str, int], ...]:
    """Places and looks in these slots, most frequent first.

    Args:
        journal: The journal of one stage.
        slots: Numbers of slots.
    """
    counts: dict[str, int] = {}
    for slot in slots:
        for site, looks in journal.sites.get(slot, {}).items():
            counts[site] = counts.get(site, 0) + looks
    return tuple(sorted(counts.items(), key=lambda item: -item[1])[:MAX_SITES])
