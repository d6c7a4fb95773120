"""CPU time of the job's other ranks is not that of other processes."""

import msgspec
import pytest
from built_journals import MS, build, journal
from msgspec.structs import replace

from lightning_gpuprof.analyze.all_ranks import attribute_cpu_to_ranks
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.analyze.rank_summary import summarise
from lightning_gpuprof.model.host import Level
from lightning_gpuprof.model.journal import Sample

S = 1000 * MS


def rank(number: int, *, others: float = 0.0, used: float = 0.0, cpus: str | None = "0,1,2,3") -> Journal:
    """One of two ranks on a machine, sampled each second: what it used with its workers, and what others did."""
    one = journal(1000)
    header = msgspec.structs.replace(one.header, rank=number, world_size=2)
    values = {"process": {"cpu_cpus": used * 0.75}, "workers": {"cpu_cpus": used * 0.25}}
    rows = {**values, "host": {"cpu_others_cpus": others, "load": 1.0}}
    samples = [
        Sample(source="host", subject=subject, t_ns=t * S + 100 * number * MS, values=dict(row))
        for t in range(1, 10)
        for subject, row in rows.items()
    ]
    conditions = dict(one.conditions) if cpus is None else {**one.conditions, "host.cpu_set": cpus}
    return replace(one, header=header, samples=samples, conditions=conditions)


def split(own: Journal, *others: Journal) -> tuple[float | None, float | None]:
    machine = build(attribute_cpu_to_ranks(own, [summarise(one) for one in others])).host.machine
    assert machine.load == Level(mean=1.0, max=1.0)
    levels = machine.cpu_others_cpus, machine.cpu_ranks_cpus
    return levels[0] and pytest.approx(levels[0].mean), levels[1] and pytest.approx(levels[1].mean)


def test_other_ranks_are_told_from_other_processes() -> None:
    assert split(rank(0, others=3.0), rank(1, used=2.0)) == (1.0, 2.0)
    assert split(rank(0, others=3.5), rank(1, used=2.0), rank(2, used=1.0)) == (0.5, 3.0)


def test_nothing_below_zero_is_left_of_the_others() -> None:
    assert split(rank(0, others=1.5), rank(1, used=2.0)) == (0.0, 1.5)


def test_a_rank_with_cpus_of_its_own_takes_none_of_ours() -> None:
    own = rank(0, others=3.0, cpus="0,1")
    assert split(own, rank(1, used=2.0, cpus="2,3")) == (3.0, None)
    assert split(own, rank(1, used=2.0, cpus="1,2,3,4")) == (2.5, 0.5)
    assert attribute_cpu_to_ranks(own, [summarise(rank(1, used=2.0, cpus=None))]) is own


def test_a_rank_on_another_machine_or_of_another_run_does_not_count() -> None:
    own, other = rank(0, others=3.0), rank(1, used=2.0)
    for changed in ({"host": "elsewhere"}, {"stage": "test"}, {"world_size": 3}, {"start_ns": 3600 * S}):
        apart = replace(other, header=msgspec.structs.replace(other.header, **changed))
        assert attribute_cpu_to_ranks(own, [summarise(apart)]) is own
    assert attribute_cpu_to_ranks(own, []) is own
