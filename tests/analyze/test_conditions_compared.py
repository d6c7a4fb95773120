"""The hash of conditions, and which differences keep two runs from being held against each other."""

import pytest

from lightning_gpuprof.analyze.conditions import changes, conditions_hash, forbidden_groups, obstacle, warnings
from lightning_gpuprof.model.journal import Value

RUN: dict[str, Value] = {
    "model.class": "Net",
    "model.parameters": 10,
    "loader.batch_size": 32,
    "loader.num_workers": 0,
    "device.name": "A100",
    "trainer.world_size": 1,
    "version.torch": "2.9",
    "flags.cudnn_benchmark": False,
    "git.commit": "abc",
    "script": "train.py",
    "batch.shapes": "[32, 8]",
    "env.OMP_NUM_THREADS": "1",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("git.commit", "def"),
        ("script", "other.py"),
        ("batch.shapes", "[32, 9]"),
        ("slurm.job_id", "8"),
        ("gpu0.uuid", "GPU-7"),
        ("of.a.later.version", 1),
        ("loader.prefetch_factor", None),
        ("loader.1.key", "['b']"),
    ],
)
def test_what_names_the_run_is_not_in_the_hash(name: str, value: Value) -> None:
    assert conditions_hash({**RUN, name: value}) == conditions_hash(RUN)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loader.num_workers", 2),
        ("loader.1.num_workers", 2),
        ("model.parameters", 11),
        ("device.name", "H100"),
        ("version.torch", "2.10"),
        ("flags.cudnn_benchmark", True),
        ("env.OMP_NUM_THREADS", "2"),
        ("trainer.precision", "bf16-mixed"),
    ],
)
def test_what_matters_for_speed_is_in_the_hash(name: str, value: Value) -> None:
    assert conditions_hash({**RUN, name: value}) != conditions_hash(RUN)


def test_the_hash_does_not_depend_on_the_order_and_has_not_changed_by_accident() -> None:
    assert conditions_hash(dict(reversed(list(RUN.items())))) == conditions_hash(RUN)
    # Reports that were kept as baselines hold it: change it only with a line in the changelog.
    assert conditions_hash({"loader.num_workers": 0, "model.class": "Net"}) == "ba600c856a11"


def test_changes_are_in_groups_and_leave_out_what_differs_in_any_two_runs() -> None:
    later = {**RUN, "loader.num_workers": 2, "device.name": "H100", "run_id": "b", "started": "now", "git.commit": "d"}
    later["gpuprof.baseline"] = True
    later["loader.built_at"] = "train.py:8"
    found = [(c.group, c.name, c.role) for c in changes({**RUN, "run_id": "a", "loader.built_at": "train.py:7"}, later)]
    assert found == [
        ("hardware", "device.name", "fixed"),
        ("data", "loader.num_workers", "tested"),
        ("run", "git.commit", "label"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "group"),
    [
        ("device.name", "H100", "hardware"),
        ("trainer.world_size", 2, "hardware"),
        ("model.parameters", 11, "model"),
        ("loader.batch_size", 64, "batch"),
    ],
)
def test_other_hardware_models_and_batches_are_an_obstacle_unless_allowed(name: str, value: Value, group: str) -> None:
    differing = changes(RUN, {**RUN, name: value})
    why = obstacle(differing, ())
    assert f"{name}: {RUN[name]} -> {value}" in why
    assert list(forbidden_groups(differing, ())) == [group]
    others = {"hardware", "model", "batch"} - {group}
    assert obstacle(differing, tuple(others)) == why  # type: ignore[arg-type]
    assert obstacle(differing, (group,)) == ""  # type: ignore[arg-type]
    assert any("was allowed" in note for note in warnings(differing, (group,)))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["loader.num_workers", "version.torch", "flags.cudnn_benchmark", "trainer.precision"])
def test_loaders_flags_versions_and_arguments_are_the_change_under_test(name: str) -> None:
    differing = changes(RUN, {**RUN, name: "another"})
    assert [change.role for change in differing] == ["tested"]
    assert obstacle(differing, ()) == ""
    assert warnings(differing, ()) == []


def test_a_report_that_lacks_a_fact_is_no_obstacle() -> None:
    old = {name: value for name, value in RUN.items() if name != "model.parameters"}
    assert obstacle(changes(old, RUN), ()) == ""


def test_several_changes_at_once_are_told() -> None:
    differing = changes(RUN, {**RUN, "loader.num_workers": 2, "version.torch": "2.10"})
    assert any("several respects (software, data)" in note for note in warnings(differing, ()))


def test_other_shapes_at_the_same_batch_size_are_told() -> None:
    differing = changes(RUN, {**RUN, "batch.shapes": "[32, 9]"})
    assert any("shapes of the first batch" in note for note in warnings(differing, ()))
    assert obstacle(differing, ()) == ""
