"""Ranks that end one after the other: who was first, who recorded no end, who is out of step."""

import msgspec
import pytest
from built_journals import journal

from lightning_gpuprof.analyze.rank_ends import RankEnds, hanging, rank_ends
from lightning_gpuprof.analyze.rank_summary import summarise
from lightning_gpuprof.model.journal import Footer, Sample, Segment, Standstill
from lightning_gpuprof.model.rank_summary import RankSummary

S = 10**9


def rank(number: int, status: str = "finished", *, end_s: float = 20, **changed: object) -> RankSummary:
    of = {"rank": number, "world_size": 4, "job": "j", "end_ns": int(end_s * S), "batches": 60, "epochs": [60]}
    of["left_collective"] = status.endswith("RuntimeError")
    return msgspec.structs.replace(summarise(journal(60)), status=status, **{**of, **changed})


def test_of_ranks_that_end_alike_nothing_is_said() -> None:
    assert rank_ends(rank(0), [rank(1), rank(2)]) == RankEnds()
    assert rank_ends(rank(0, ""), [rank(1, "")]) == RankEnds()
    both = [rank(one, "interrupted: KeyboardInterrupt", end_s=20 + one) for one in range(2)]
    assert rank_ends(*both[:1], both[1:]) == RankEnds()


def test_the_first_to_fail_is_named() -> None:
    own = rank(0, "interrupted: RuntimeError", end_s=20)
    first = rank(2, "interrupted: ValueError", end_s=18.5, batches=30)
    found = rank_ends(own, [rank(1, "interrupted: RuntimeError", end_s=19.9), first])
    assert found.sentences == (
        "rank 2 on h failed first, with ValueError after 30 batches; the RuntimeError of rank 0 followed 1.50 s later",
    )


def test_an_error_of_the_gpu_is_named_with_the_rank_that_it_ended() -> None:
    own = rank(0, "interrupted: RuntimeError", end_s=20)
    failed = rank(1, "interrupted: AcceleratorError", end_s=18.5, xids=[63, 79])
    (said,) = rank_ends(own, [failed]).sentences
    assert "with AcceleratorError (its GPU reported Xid 79) after 60 batches" in said
    (killed,) = rank_ends(own, [rank(1, "", end_s=5, xids=[31])]).sentences
    assert killed.endswith("its journal holds 60 batches; its GPU reported Xid 31 (GPU memory page fault)")


def test_who_was_first_is_told_by_the_calendar_and_not_by_the_clocks_of_hosts() -> None:
    own = rank(0, "interrupted: RuntimeError", end_s=20)
    other = rank(1, "interrupted: ValueError", end_s=3019, start_ns=3000 * S)
    assert "rank 1 on h failed first" in rank_ends(own, [other]).sentences[0]


@pytest.mark.parametrize("days", [-400, 0, 1])
def test_on_another_host_the_first_to_fail_is_told_by_the_last_step_whatever_its_clock_says(days: int) -> None:
    epoch_ns = days * 86_400 * S
    own = rank(0, "interrupted: RuntimeError", end_s=20, last_step_ns=17 * S)
    first = rank(1, "interrupted: ValueError", end_s=4, last_step_ns=2 * S, host="other", epoch_ns=epoch_ns)
    later = msgspec.structs.replace(first, rank=2, end_ns=6 * S)
    assert rank_ends(own, [later]).sentences == ()
    assert rank_ends(own, [later, first]).sentences == (
        "rank 1 on other failed first, with ValueError after 60 batches; the RuntimeError of rank 0 followed 1.00 s "
        "later (±10.0 ms: host clocks are aligned by step)",
    )


def test_a_rank_of_another_host_with_fewer_steps_failed_before() -> None:
    own = rank(0, "interrupted: RuntimeError", end_s=20, last_step_ns=19 * S, batches=61)
    first = rank(1, "interrupted: ValueError", end_s=4, last_step_ns=3 * S, host="other")
    assert "followed 10.0 ms later" in rank_ends(own, [first]).sentences[0]


def test_a_killed_rank_is_the_first_whatever_the_others_say() -> None:
    own = rank(0, "interrupted: RuntimeError", end_s=20)
    others = [
        rank(1, "interrupted: RuntimeError", end_s=19),
        rank(2, "", end_s=17, batches=37),
        rank(3, "", end_s=18, batches=38),
    ]
    assert rank_ends(own, others).sentences == (
        "ranks 2 and 3 recorded no end (killed or crashed before the RuntimeError of rank 1); the shortest journal "
        "holds 37 batches",
    )


@pytest.mark.parametrize(
    ("end_s", "error", "said"),
    [
        (21, "ValueError", "still running, or killed after"),
        (21, "RuntimeError", "still running, or killed after"),
        (17, "ValueError", "still running, or killed around"),
        (17, "RuntimeError", "killed or crashed before"),
        (9, "ValueError", "killed or crashed before"),
    ],
)
def test_a_rank_without_an_end_was_first_only_if_its_journal_does_not_speak_against_it(
    end_s: float, error: str, said: str
) -> None:
    found = rank_ends(rank(0, f"interrupted: {error}"), [rank(1, "", end_s=end_s)])
    assert found.sentences == (f"rank 1 recorded no end ({said} the {error} of rank 0); its journal holds 60 batches",)
    assert found.own_first == ("before" not in said)


def test_a_rank_that_is_killed_beside_a_runtime_error_of_the_users_own_is_not_called_the_first() -> None:
    own = rank(0, "interrupted: RuntimeError", left_collective=False)
    found = rank_ends(own, [rank(1, "", end_s=17)])
    assert found.own_first
    assert "killed around the RuntimeError of rank 0" in found.sentences[0]
    assert rank_ends(own, [], {1: "empty"}).own_first


def test_ranks_that_were_stopped_are_not_called_the_first_to_fail() -> None:
    stopped = [rank(one, "interrupted: SIGTERMException", end_s=20 - one) for one in range(2)]
    assert rank_ends(stopped[0], stopped[1:]) == RankEnds()


def test_a_rank_that_was_killed_before_its_journal_was_written_to_is_the_first() -> None:
    own = rank(0, "interrupted: RuntimeError", end_s=20)
    assert rank_ends(own, [rank(1, "interrupted: RuntimeError", end_s=19)], {2: "empty"}).sentences == (
        "rank 2 recorded no end (killed or crashed before the RuntimeError of rank 1)",
    )
    assert rank_ends(rank(0), [rank(1)], {2: "torn"}) == RankEnds()


def test_of_a_finished_rank_the_others_failures_are_told() -> None:
    found = rank_ends(rank(0), [rank(1, "interrupted: OSError"), rank(2, "")])
    assert found.in_step
    assert found.sentences == (
        "rank 1 on h was interrupted by OSError after 60 batches",
        "rank 2 recorded no end (still running, or killed); its journal holds 60 batches",
    )


@pytest.mark.parametrize(
    ("epochs", "said"),
    [
        ([100], "epoch 0 had 60 batches on ranks 0 and 2 and 100 batches on rank 1"),
        ([60, 3], "epoch 1 had 0 batches on ranks 0 and 2 and 3 batches on rank 1"),
    ],
)
def test_ranks_out_of_step_are_no_valid_run(epochs: list[int], said: str) -> None:
    found = rank_ends(rank(0), [rank(1, epochs=epochs), rank(2)])
    assert not found.in_step
    assert said in found.sentences[0]


def stands(number: int, phase: str, at: str, **changed: object) -> RankSummary:
    return rank(number, "", stands_in=phase, stands_at=at, **{"stands_s": 40.0, "batches": 30, **changed})


def test_the_rank_that_others_wait_for_is_named_first_with_its_line() -> None:
    waiting = [stands(one, "backward", "autograd/graph.py:9 run", stands_s=38.0) for one in (0, 2)]
    found = rank_ends(waiting[0], [stands(1, "forward", "train.py:12 training_step"), waiting[1]])
    assert found.sentences[:2] == (
        "no progress for 38.0 s: rank 1 in forward at train.py:12 training_step after 30 batches",
        "ranks 0 and 2 waiting in backward at autograd/graph.py:9 run after 30 batches",
    )


def test_a_rank_in_a_collective_waits_in_whatever_phase() -> None:
    waits = stands(0, "validation", "torch/distributed/distributed_c10d.py:9 barrier", stands_collective="barrier")
    found = rank_ends(waits, [stands(1, "validation", "train.py:24 validation_step")])
    assert found.sentences[:2] == (
        "no progress for 40.0 s: rank 1 in validation at train.py:24 validation_step after 30 batches",
        "rank 0 waiting in validation (barrier) at torch/distributed/distributed_c10d.py:9 barrier after 30 batches",
    )


def test_nobody_is_said_to_wait_where_no_rank_or_several_are_elsewhere() -> None:
    both = [stands(0, "backward", ""), stands(1, "backward", "", batches=31)]
    assert rank_ends(both[0], both[1:]).sentences[:2] == (
        "no progress for 40.0 s: rank 0 in backward after 30 batches",
        "rank 1 in backward after 31 batches",
    )
    three = [stands(0, "backward", ""), stands(1, "forward", "a"), stands(2, "data_wait", "b")]
    assert not any("waiting" in sentence for sentence in rank_ends(three[0], three[1:]).sentences)


def test_who_waits_for_a_rank_that_failed_is_named_after_it() -> None:
    own = rank(0, "interrupted: RuntimeError", stands_in="backward", stands_s=1800.0)
    found = rank_ends(own, [rank(1, "interrupted: ValueError", end_s=2)])
    assert "rank 1 on h failed first" in found.sentences[0]
    assert found.sentences[1] == "no progress for 30.0 min: rank 0 in backward after 60 batches"


@pytest.mark.parametrize(("last_s", "how"), [(20, "waiting"), (5, "no progress")])
def test_a_rank_that_waits_for_one_that_goes_on_does_not_hang(last_s: int, how: str) -> None:
    both = [stands(0, "backward", ""), rank(1, "", end_s=last_s)]
    assert rank_ends(both[0], both[1:]).sentences == (
        f"{how} for 40.0 s: rank 0 in backward after 30 batches",
        "rank 1 still running, or killed",
    )
    assert hanging(both) == ({0} if how == "no progress" else set())


@pytest.mark.parametrize("busy", ["compiling", "in a debugger", "busy"])
def test_who_waits_for_a_rank_that_is_busy_does_not_hang_unless_another_one_does(busy: str) -> None:
    ranks = [stands(0, "backward", ""), stands(1, "forward", "train.py:12 training_step", busy=busy)]
    assert rank_ends(ranks[0], ranks[1:]).sentences == (
        f"{busy} for 40.0 s: rank 1 in forward at train.py:12 training_step after 30 batches",
        "rank 0 waiting in backward after 30 batches",
    )
    assert hanging(ranks) == set()
    ranks.append(stands(2, "callbacks", "train.py:40 save"))
    assert "no progress for 40.0 s: rank 2 in callbacks" in rank_ends(ranks[0], ranks[1:]).sentences[0]
    assert hanging(ranks) == {0, 2}


@pytest.mark.parametrize(
    ("since_ns", "status", "is_standing"),
    [
        (800_000_000, None, True),
        (800_000_000, "interrupted: RuntimeError", True),
        (800_000_000, "finished", False),
        (200_000_000, None, False),
    ],
)
def test_what_went_on_or_came_to_its_end_does_not_stand(since_ns: int, status: str | None, is_standing: bool) -> None:
    one = journal(60)
    one.footer = None if status is None else Footer(end_ns=30 * S, status=status, overhead={})
    one.standstills = [Standstill(t_ns=20 * S, since_ns=since_ns, slot=2, place="train.py:12 training_step")]
    summary = summarise(one)
    assert summary.stands_in == ("forward" if is_standing else None)
    assert summary.stands_at == ("train.py:12 training_step" if is_standing else "")


def test_a_rank_that_failed_in_a_debugger_does_not_stand_there() -> None:
    one = journal(60)
    one.footer = Footer(end_ns=30 * S, status="interrupted: BdbQuit", overhead={})
    one.standstills = [Standstill(t_ns=20 * S, since_ns=800_000_000, slot=2, place="a", busy="in a debugger")]
    assert summarise(one).stands_in is None


@pytest.mark.parametrize(("later_s", "is_standing"), [(5, True), (60, False)])
def test_a_standstill_that_is_recorded_no_more_is_over_also_within_a_step(later_s: int, *, is_standing: bool) -> None:
    one = journal(60)
    one.footer = None
    one.standstills = [Standstill(t_ns=20 * S, since_ns=800_000_000, slot=2, place="train.py:24 validation_step")]
    one.samples = [Sample(source="host", subject="process", t_ns=(20 + later_s) * S, values={"cpu_cpus": 1.0})]
    assert (summarise(one).stands_in is not None) == is_standing


@pytest.mark.parametrize(("slot", "stands_in"), [(1, None), (2, "forward")])
def test_a_step_that_failed_after_a_slow_fetch_does_not_stand_in_it(slot: int, stands_in: str | None) -> None:
    one = journal(60)
    begin_ns, fetch_ns = 800_000_000, 18 * S
    since_ns = begin_ns + (100_000 if slot == 1 else fetch_ns + 100_000)
    charged = {0: 500_000, 1: fetch_ns, 2: 3 * S}
    one.segments.append(Segment(kind="teardown", start_ns=begin_ns, end_ns=begin_ns + 22 * S, charged=charged))
    one.footer = Footer(end_ns=begin_ns + 22 * S, status="interrupted: OutOfMemoryError", overhead={})
    one.standstills = [Standstill(t_ns=since_ns + 16 * S, since_ns=since_ns, slot=slot, place="train.py:8 __getitem__")]
    assert summarise(one).stands_in == stands_in


def test_ranks_of_another_job_do_not_count() -> None:
    assert rank_ends(rank(0), [rank(1, "", job="another"), rank(1, epochs=[7], stage="test")]) == RankEnds()
