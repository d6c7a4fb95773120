"""Time by stack, of the host's threads and of the devices, for flame graphs."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

import msgspec
import numpy as np

from lightning_gpuprof.model.speedscope import document, profile
from lightning_gpuprof.trace.analyses.joins.grouped import groups_of
from lightning_gpuprof.trace.export.derived_tracks import device_name
from lightning_gpuprof.trace.export.stacks import HostStacks, plain_name
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows, distinct

Weight = Literal["host", "device"]

THREADS_MOST = 5

_NOT_LAUNCHED = "launch not in the trace"


def folded_stacks(linked: LinkedTrace, *, weight: Weight) -> Iterator[str]:
    """Lines ``root;outer;inner 123``, the folded format of Brendan Gregg's ``flamegraph.pl``.

    Each line is a distinct stack with its own time in whole microseconds, without that of stacks which go on from it;
    those below half a microsecond are left out. Stacks that begin alike follow each other.

    Args:
        linked: The trace.
        weight: ``host``: a root for each thread, then calls of Python functions and the operators that they run; named
            ranges and operators where no calls were recorded. ``device``: a root for each device, then the thread and
            stack that launched the work, then the work with its duration. Work that runs beside other work counts in
            full.

    Yields:
        One line at a time, without its end.
    """
    host = HostStacks(linked)
    if weight == "host":
        for stack, text in host.stacks.texts(host.threads, host.names):
            yield from _line(text, int(host.exclusive_ns[stack]))
    else:
        yield from _device_lines(linked, host)


def _device_lines(linked: LinkedTrace, host: HostStacks) -> Iterator[str]:
    launched = _launched(linked, host)
    devices = [device_name(linked, device) for device in range(len(linked.trace.devices))]
    leaves: dict[int, list[tuple[str, str, int]]] = {}
    columns = (launched.stack, launched.device, launched.name, launched.time_ns)
    for stack, device, name, time_ns in zip(*(column.tolist() for column in columns), strict=True):
        leaves.setdefault(stack, []).append((devices[device], launched.names[name], time_ns))
    for stack, text in chain(host.stacks.texts(host.threads, host.names), [(ABSENT, _NOT_LAUNCHED)]):
        for of_device, work, time_ns in leaves.get(stack, ()):
            yield from _line(f"{of_device};{text};{work}", time_ns)


def _line(text: str, time_ns: int) -> Iterator[str]:
    if time_us := (time_ns + 500) // 1000:
        yield f"{text} {time_us}"


def speedscope(linked: LinkedTrace, *, threads: int = THREADS_MOST) -> dict[str, object]:
    """The same stacks in the file format of https://www.speedscope.app, to be written as JSON.

    Args:
        linked: The trace.
        threads: Most threads of the host: the main thread, and those with most time.

    Returns:
        A profile for each thread, then one for each device. Samples that begin alike are neighbours:
        their order is not that of time. There are no profiles if nothing has a time.
    """
    host, profiles = HostStacks(linked), []
    paths, places = host.stacks.paths(), host.stacks.places()
    own_ns, root = host.exclusive_ns, host.stacks.root
    of_thread_ns = np.bincount(root, weights=own_ns, minlength=len(host.threads)).tolist()
    # a thread that waits for others may have more time than the one that people want to see first
    by_time = sorted(range(len(host.threads)), key=lambda one: (one != linked.main_thread, -of_thread_ns[one]))
    for thread in by_time[:threads]:
        stacks = np.flatnonzero((root == thread) & (own_ns > 0))
        stacks = stacks[np.argsort(places[stacks])]
        if len(stacks):
            profiles.append(_profile(host.threads[thread], [paths[one] for one in stacks.tolist()], own_ns[stacks]))
    launched = _launched(linked, host)
    first_leaf = len(host.names) + len(host.threads) + 1
    around = [(len(host.names) + number, *paths[stack]) for stack, number in enumerate(root.tolist())]
    around.append((first_leaf - 1,))  # of ABSENT
    places = np.append(places, len(places))
    for device in distinct(launched.device).tolist():
        rows = np.flatnonzero(launched.device == device)
        rows = rows[np.argsort(places[launched.stack[rows]], kind="stable")]
        leaves = zip(launched.stack[rows].tolist(), launched.name[rows].tolist(), strict=True)
        samples = [(*around[stack], first_leaf + leaf) for stack, leaf in leaves]
        profiles.append(_profile(device_name(linked, device), samples, launched.time_ns[rows]))
    frames = (*host.names, *host.threads, _NOT_LAUNCHED, *launched.names)
    return document([{"name": text} for text in frames], profiles)


def _profile(name: str, samples: Sequence[tuple[int, ...]], time_ns: Int64) -> dict[str, object]:
    return profile(name, samples, (time_ns / 1000).tolist())


class _Launched(msgspec.Struct, frozen=True, kw_only=True):
    """Work that is alike; all columns are equally long, and no time is 0."""

    device: Int32
    stack: Rows
    """What launched it, :data:`ABSENT` if that is not known."""
    name: Rows
    """Index into :attr:`names`."""
    time_ns: Int64
    """Sum of durations."""
    names: tuple[str, ...]


def _launched(linked: LinkedTrace, host: HostStacks) -> _Launched:
    """Durations of device work by device, launching stack and name."""
    work, texts = linked.work, linked.trace.names
    stack = np.where(linked.launched, host.at(linked.launch_start_ns, linked.launch_thread), ABSENT)
    alike = groups_of(work.device, stack, work.name)
    lasting = np.flatnonzero(alike.sums(work.duration_ns))
    rows = alike.first[lasting]
    present, name = np.unique(work.name[rows], return_inverse=True)
    names = tuple(plain_name(texts[number]) for number in present.tolist())
    return _Launched(
        device=work.device[rows],
        stack=stack[rows],
        name=name.reshape(-1),
        time_ns=alike.sums(work.duration_ns)[lasting],
        names=names,
    )
