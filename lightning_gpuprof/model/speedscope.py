"""The file format of https://www.speedscope.app: stacks with times."""

from collections.abc import Mapping, Sequence

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def document(frames: Sequence[Mapping[str, object]], profiles: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """A file with some profiles, to be written as JSON.

    Args:
        frames: Each with a ``name``; with ``file`` and ``line`` where these are known.
        profiles: As :func:`profile` makes them.

    Returns:
        The first profile is shown first.
    """
    return {
        "$schema": SCHEMA,
        "name": "gpuprof",
        "exporter": "gpuprof",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }


def profile(name: str, samples: Sequence[Sequence[int]], times_us: Sequence[float]) -> dict[str, object]:
    """Stacks with their own times.

    Args:
        name: As it is listed.
        samples: Indices of frames, the outermost first. What begins alike is drawn as one where it is neighbours.
        times_us: Of each.

    Returns:
        To be put into a :func:`document`.
    """
    return {
        "type": "sampled",
        "name": name,
        "unit": "microseconds",
        "startValue": 0,
        "endValue": sum(times_us),
        "samples": samples,
        "weights": times_us,
    }
