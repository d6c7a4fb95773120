"""Two ranks that trace into one folder: who plans a window, who follows, and what a damaged plan does."""

from pathlib import Path

import pytest

from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.capture.triggers import LEAD_S, PLAN_FILE, TRIGGER_FILE, SharedPlan

MS = 1_000_000


class Ranks:
    """The first one leads; their clock is set by hand, and steps take 100 ms."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ns = 0
        self.leader, self.follower = (
            SharedPlan(folder, leads=leads, warmup=2, now=lambda: self.now_ns) for leads in (True, False)
        )

    def looks(self, of: SharedPlan, step: int) -> tuple[int, str] | None:
        """What a rank sees at the end of a step."""
        end_ns = self.now_ns = (step + 1) * 100 * MS
        return of.look([ClosedStep(step, end_ns - 100 * MS, end_ns, step, 0, 0, [], None, -1)])


@pytest.fixture
def ranks(tmp_path: Path) -> Ranks:
    return Ranks(tmp_path)


def test_all_ranks_see_the_same_step_some_seconds_ahead(ranks: Ranks) -> None:
    ranks.leader.wish("steady")
    seen = ranks.looks(ranks.leader, 50)
    start = 51 + round(LEAD_S * 10) + 2
    assert seen == (start, "steady")
    assert ranks.looks(ranks.follower, 58) == seen
    assert ranks.looks(ranks.leader, 70) is ranks.looks(ranks.follower, 80) is None


def test_wishes_are_one_plan_and_the_next_plan_is_seen_as_well(ranks: Ranks) -> None:
    for reason in ("steady", "requested by file", "steady"):
        ranks.leader.wish(reason)
    ranks.looks(ranks.leader, 50)
    assert (ranks.looks(ranks.follower, 60) or ("",))[1] == "steady; requested by file"
    ranks.leader.wish("slow step")
    ranks.looks(ranks.leader, 90)
    assert (ranks.looks(ranks.follower, 99) or ("",))[1] == "slow step"


def test_time_beside_the_steps_puts_off_no_window(ranks: Ranks) -> None:
    ranks.looks(ranks.leader, 50)
    ranks.now_ns += 600_000 * MS  # validation goes on
    ranks.leader.wish("requested by file")
    assert ranks.leader.look([]) == (51 + 1 + round(LEAD_S * 10) + 2, "requested by file")


def test_nothing_is_planned_before_the_first_step(ranks: Ranks) -> None:
    ranks.leader.wish("requested by SIGUSR2")
    assert ranks.leader.look([]) is None
    assert not (ranks.folder / PLAN_FILE).exists()
    assert ranks.looks(ranks.leader, 9) is not None


def test_a_rank_that_follows_passes_a_request_on_to_the_one_that_leads(ranks: Ranks) -> None:
    ranks.follower.wish("requested by SIGUSR2")
    assert ranks.looks(ranks.follower, 50) is None
    assert (ranks.folder / TRIGGER_FILE).exists()
    assert not (ranks.folder / PLAN_FILE).exists()


def test_what_is_no_plan_is_refused(ranks: Ranks) -> None:
    (ranks.folder / PLAN_FILE).write_text("soon")
    with pytest.raises(ValueError, match="soon"):
        ranks.looks(ranks.follower, 50)
