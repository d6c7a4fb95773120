"""What tests of traces share."""

import pytest
from recorded_traces import NAMES


@pytest.fixture(params=NAMES or ["none"])
def name(request: pytest.FixtureRequest) -> str:
    """Each recorded trace; its file."""
    return str(request.param)
