"""What loggers left in their files: name → step and value of each point."""

import csv
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

Points = dict[str, list[tuple[int, float]]]


def csv_points(file: Path) -> Points:
    """Of a CSVLogger's ``metrics.csv``."""
    found: Points = {}
    with file.open() as rows:
        for row in csv.DictReader(rows):
            for name, value in row.items():
                if value and name != "step":
                    found.setdefault(name, []).append((int(row["step"]), float(value)))
    return found


def events_in(folder: Path) -> EventAccumulator:
    """All that a TensorBoardLogger wrote there."""
    found = EventAccumulator(str(folder))
    found.Reload()
    return found
