"""Reads the file that Weights & Biases writes when it is offline: records of its protocol in LevelDB's log format."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADER = struct.Struct("<4sHB")
CHUNK = struct.Struct("<IHB")
BLOCK_BYTES = 32 * 1024
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def payloads(data: bytes) -> Iterator[bytes]:
    """The records of a log, put together from their chunks."""
    assert HEADER.unpack_from(data)[0] == b":W&B"
    at, whole = HEADER.size, b""
    while at + CHUNK.size <= len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < CHUNK.size:  # the rest of a block is padding
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        _, length, kind = CHUNK.unpack_from(data, at)
        at += CHUNK.size
        whole += data[at : at + length]
        at += length
        if kind in (FULL, LAST):
            yield whole
            whole = b""


class WandbFile:
    """What is in the one ``.wandb`` file below a folder."""

    def __init__(self, folder: Path) -> None:
        from wandb.proto import wandb_internal_pb2

        (file,) = folder.glob("wandb/offline-run-*/*.wandb")
        self.history: list[dict[str, Any]] = []
        """One dictionary of values per ``log``."""
        self.artifacts: list[Any] = []
        self.metrics: list[Any] = []
        for payload in payloads(file.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(payload)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                items = record.history.item
                self.history.append({i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in items})
            elif kind == "artifact":
                self.artifacts.append(record.artifact)
            elif kind == "metric":
                self.metrics.append(record.metric)
