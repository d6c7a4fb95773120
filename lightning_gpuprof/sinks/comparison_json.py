"""A Comparison flows in, its JSON for programs flows out."""

from __future__ import annotations

import msgspec

from lightning_gpuprof.model.comparison import Comparison


def encode(comparison: Comparison) -> bytes:
    """Indented JSON with a final newline; the fields are those of the model.

    Args:
        comparison: The comparison.
    """
    return msgspec.json.format(msgspec.json.encode(comparison), indent=1) + b"\n"
