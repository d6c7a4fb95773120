"""One line of ``gpuprof doctor``: what was looked at, how it is, and what that means."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["ok", "absent", "problem"]


class Check(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that was looked at."""

    area: str
    name: str
    state: State
    value: str = ""
    meaning: str = ""
    """What an absence or a problem means, and the way out; empty if all is well."""
