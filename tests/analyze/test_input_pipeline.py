"""From samples of the input pipeline to its verdict in three ways."""

import pytest
from built_journals import MS, build, charge, journal

from lightning_gpuprof.analyze.input_pipeline import input_pipeline
from lightning_gpuprof.analyze.journal_columns import Journal
from lightning_gpuprof.model.input_pipeline import InputPipeline, Padding
from lightning_gpuprof.model.journal import Sample, Slot
from lightning_gpuprof.model.share import Share


def sample(subject: str, t_ns: int = 500 * MS, **values: float | None) -> Sample:
    return Sample(source="input", subject=subject, t_ns=t_ns, values=values)


def making(
    process: str, *, items_ms: float, collate_ms: float = 1.0, idle_ms: float = 0.1, n: int = 50, loader: int = 0
) -> Sample:
    """A process that has made n batches of 8 items."""
    return sample(
        f"loader{loader}.{process}",
        batches_count=n,
        measured_count=n,
        items_count=8 * n,
        item_sum_s=n * items_ms / 1e3,
        item_p95_s=items_ms / 8e3,
        item_max_s=items_ms / 4e3,
        collate_sum_s=n * collate_ms / 1e3,
        collate_max_s=collate_ms / 1e3,
        idle_sum_s=(n - 1) * idle_ms / 1e3,
        idle_count=n - 1,
    )


def fed(*samples: Sample, wait_ms: float = 4.0, h2d_ms: float = 0.0) -> Journal:
    """100 steps of 6 ms of work, which wait and copy so long."""
    made = journal(100)
    made.slots = [*made.slots, Slot(id=9, action="copy", phase="h2d")]
    for step in range(100):
        charge(made, 1, step, round((wait_ms - 4.0) * MS))
        if h2d_ms:
            charge(made, 9, step, round(h2d_ms * MS))
    made.samples += samples
    return made


def found_in(made: Journal) -> InputPipeline:
    return build(made).input


def test_workers_that_are_slower_than_steps_are_the_limit() -> None:
    found = found_in(fed(*(making(f"worker{n}", items_ms=39.0) for n in range(2)), wait_ms=14.0))
    assert found.verdict == "processing"
    assert "2 workers deliver a batch every 20.0 ms" in found.summary
    assert "a step needs 6.00 ms" in found.summary
    assert found.loaders[0].make_ms == pytest.approx(40.0)
    assert found.enough_workers == 8  # 40 ms / 6 ms, and one to spare


def test_the_time_of_a_batch_is_that_of_all_batches_divided_as_in_those_measured() -> None:
    """Costly ones are measured more often: 5.07 ms was shown for 2.64."""
    seen = making("process", items_ms=40.0, collate_ms=10.0, idle_ms=8.0)
    seen.values.update(batches_count=1000, made_sum_s=2.0, cpu_sum_s=50 * 30.0 / 1e3)
    found = found_in(fed(seen, wait_ms=2.0))
    of_loader, process = found.loaders[0], found.workers[0]
    assert (of_loader.make_ms, of_loader.items_ms, of_loader.collate_ms) == pytest.approx((2.0, 1.6, 0.4))
    assert of_loader.cpu_ms == pytest.approx(1.2)
    assert process.idle_ratio == pytest.approx(0.8)
    assert process.item_mean_ms == pytest.approx(40.0 / 8)
    assert "loads a batch in 2.00 ms" in found.summary
    assert found.enough_workers == 2


def test_how_batches_divide_is_not_told_by_quick_ones_where_a_few_others_take_most_of_the_time() -> None:
    """Of 300 batches of 0.2 ms and 8 of 200 ms, only quick ones were looked at: "collate 3 ms" was said."""
    seen = making("process", items_ms=0.1, collate_ms=0.1)
    seen.values.update(batches_count=308, made_sum_s=1.66, cpu_sum_s=50 * 0.2 / 1e3)
    found = found_in(fed(seen, wait_ms=0.2))
    of_loader = found.loaders[0]
    assert of_loader.make_ms == pytest.approx(1660 / 308)
    assert (of_loader.items_ms, of_loader.collate_ms, of_loader.cpu_ms) == (None, None, None)
    assert "loads a batch in 5.39 ms (a few take most of it)" in found.summary


@pytest.mark.parametrize(("slow", "known"), [(3, False), (1, True)])
def test_of_several_workers_those_whose_batches_were_measured_say_how_a_batch_divides(slow: int, known: bool) -> None:
    """Slow batches of some workers were not measured: the others' parts are not put beside the time of all."""
    seen = [making(f"worker{number}", items_ms=1.6, collate_ms=0.4) for number in range(4)]
    for number, one in enumerate(seen):
        one.values.update(made_sum_s=50 * (0.006 if number < slow else 0.003), cpu_sum_s=50 * 0.001)
    (loader,) = found_in(fed(*seen, wait_ms=14.0)).loaders
    assert loader.make_ms == pytest.approx((6.0 * slow + 3.0 * (4 - slow)) / 4)
    wanted = (
        pytest.approx(0.8 * loader.make_ms),
        pytest.approx(0.2 * loader.make_ms),
        pytest.approx(loader.make_ms / 2),
    )
    assert (loader.items_ms, loader.collate_ms, loader.cpu_ms) == (wanted if known else (None, None, None))


def in_bursts(*samples: Sample) -> Journal:
    """100 steps of 20 ms of work, every fourth of which waits for a batch of each worker."""
    made = fed(*samples, wait_ms=0.1)
    for step in range(100):
        charge(made, 2, step, 14 * MS)
        if step % 4 == 3:
            charge(made, 1, step, 340 * MS)
    return made


def test_workers_that_are_behind_are_the_limit_although_only_every_fourth_step_waits() -> None:
    found = found_in(in_bursts(*(making(f"worker{n}", items_ms=399.0) for n in range(4))))
    assert found.waited_ratio < 0.30
    assert found.verdict == "processing"
    assert "4 workers deliver a batch every 100 ms" in found.summary
    assert "81 % of the time" in found.summary
    assert "waits 86.9 ms per step on average" in found.summary


def test_long_waits_now_and_then_are_not_the_workers_if_these_are_fast_or_idle() -> None:
    assert found_in(in_bursts(*(making(f"worker{n}", items_ms=39.0) for n in range(4)))).verdict == "compute"
    idle = (making(f"worker{n}", items_ms=399.0, idle_ms=400.0) for n in range(4))
    assert found_in(in_bursts(*idle)).verdict == "compute"


def test_that_it_is_not_known_how_many_steps_waited_does_not_mean_none() -> None:
    made = fed(*(making(f"worker{n}", items_ms=39.0) for n in range(2)), wait_ms=14.0)
    shares = {"data_wait": Share(median_ratio=0.7, lower_ratio=0.69, median_ms=14.0, total_ratio=0.7)}
    found = input_pipeline(made, shares, period_ms=20.0, steady_steps=100, waited_ratio=None)
    assert found.verdict == "processing"


def test_a_full_queue_makes_the_step_the_limit() -> None:
    workers = (making(f"worker{n}", items_ms=4.0, idle_ms=7.0) for n in range(2))
    queue = sample("loader0.queue", depth_count=3.0, workers_count=2.0, capacity_count=4.0)
    found = found_in(fed(*workers, queue, wait_ms=0.1))
    assert (found.verdict, found.enough_workers) == ("compute", 2)
    assert (found.queues[0].depth_mean, found.queues[0].empty_ratio) == (3.0, 0.0)


def test_workers_without_work_while_the_training_waits_make_transfer_the_limit() -> None:
    found = found_in(fed(*(making(f"worker{n}", items_ms=1.0, idle_ms=18.0) for n in range(2)), wait_ms=4.0))
    assert found.verdict == "transfer"
    assert "although the workers are idle 90 % of the time" in found.summary


def test_workers_that_idle_behind_a_slow_one_are_not_too_few() -> None:
    late = making("worker0", items_ms=120.0, idle_ms=40.0)
    made = fed(late, *(making(f"worker{n}", items_ms=1.0, idle_ms=158.0) for n in (1, 2, 3)), wait_ms=1.0)
    for step in range(8, 100, 16):
        charge(made, 1, step, 500 * MS)
    found = found_in(made)
    assert found.loaders[0].deliver_ms > found.step_ms
    assert found.verdict == "transfer"
    assert "while one batch is late, the other workers idle: 80 % of the time" in found.summary
    assert found.enough_workers == 4


def test_a_long_copy_to_the_device_makes_transfer_the_limit() -> None:
    workers = [making(f"worker{n}", items_ms=4.0, idle_ms=7.0) for n in range(2)]
    assert found_in(fed(*workers, wait_ms=0.1, h2d_ms=5.0)).verdict == "transfer"
    assert found_in(fed(*workers, wait_ms=0.1, h2d_ms=0.2)).verdict == "compute"


def test_batches_made_in_the_training_process_are_processing_if_it_takes_long() -> None:
    slow = found_in(fed(making("process", items_ms=13.0), wait_ms=14.0))
    assert slow.verdict == "processing"
    assert slow.loaders[0].workers == 0
    assert slow.enough_workers == 4
    assert found_in(fed(making("process", items_ms=0.1, collate_ms=0.01), wait_ms=0.11)).verdict == "compute"


def test_few_batches_are_not_enough() -> None:
    few = found_in(fed(making("worker0", items_ms=5.0, n=4)))
    assert few.verdict == "not-enough-data"
    assert few.enough_workers is None


def test_the_loader_that_takes_longest_is_judged() -> None:
    found = found_in(
        fed(making("worker0", items_ms=2.0), making("worker0", items_ms=19.0, loader=1), wait_ms=14.0),
    )
    assert found.slowest == 1
    assert [one.make_ms for one in found.loaders] == pytest.approx([3.0, 20.0])


def test_the_last_sums_count_and_looks_outside_the_steps_do_not() -> None:
    found = found_in(
        fed(
            making("worker0", items_ms=2.0, n=20),
            making("worker0", items_ms=3.0, n=40),
            sample("loader0.queue", t_ns=1, depth_count=0.0),
            sample("loader0.queue", depth_count=2.0),
        )
    )
    assert found.workers[0].batches == 40
    assert found.workers[0].items_ms == pytest.approx(3.0)
    assert (found.queues[0].looks, found.queues[0].depth_mean) == (1, 2.0)


def test_items_made_together_have_no_time_of_one_item() -> None:
    together = making("worker0", items_ms=2.0)
    together.values |= {"items_count": None, "item_p95_s": None, "item_max_s": None}
    found = found_in(fed(together)).workers[0]
    assert (found.items, found.item_mean_ms, found.item_p95_ms) == (None, None, None)
    assert found.items_ms == pytest.approx(2.0)


def test_transforms_and_regions_are_shares_of_the_items_time() -> None:
    found = found_in(
        fed(
            making("worker0", items_ms=8.0),
            sample("loader0.transform:a.b > Crop", calls_count=400, sum_s=0.3, max_s=0.002),
            sample("loader0.region:decode: fast", calls_count=400, sum_s=0.1, max_s=0.002),
        )
    )
    assert [(p.kind, p.name, p.share) for p in found.parts] == [
        ("transform", "a.b > Crop", pytest.approx(0.75)),
        ("region", "decode: fast", pytest.approx(0.25)),
    ]


def test_regions_in_the_training_process_come_from_the_steps() -> None:
    made = fed(making("process", items_ms=4.0))
    made.slots = [*made.slots, Slot(id=10, action="fetch", phase="data_wait", annotation="decode")]
    for step in range(100):
        charge(made, 10, step, 1 * MS)
    found = found_in(made)
    assert [(p.name, p.calls, p.share) for p in found.parts] == [("decode", None, pytest.approx(0.25))]


def test_a_run_without_samples_has_no_input_pipeline() -> None:
    assert build(journal(100)).input is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -5.0, None, 1e300])
def test_impossible_numbers_are_taken_for_not_measured(value: float | None) -> None:
    broken = making("worker0", items_ms=2.0)
    for name in broken.values:
        made = fed(Sample(source="input", subject=broken.subject, t_ns=1, values={**broken.values, name: value}))
        build(made)
    build(fed(sample("loader.worker0"), sample("loaderX.queue"), sample("loader0"), sample("loader0.queue")))


def test_the_sampler_s_time_is_of_the_loader_and_in_the_summary() -> None:
    order = sample("loader0.order:ByLength (data.py:31)", calls_count=50, sum_s=0.4, max_s=0.1, median_s=0.005)
    found = found_in(fed(making("process", items_ms=2.0), order, wait_ms=8.0))
    assert [(one.order_of, one.order_ms) for one in found.loaders] == [("ByLength (data.py:31)", 5.0)]
    assert "the sampler takes 5.00 ms of each step in the main process" in found.summary


def test_a_sampler_that_was_asked_a_few_times_has_no_time() -> None:
    order = sample("loader0.order:RandomSampler", calls_count=9, sum_s=0.4, max_s=0.1, median_s=0.005)
    found = found_in(fed(making("process", items_ms=2.0), order))
    assert [one.order_ms for one in found.loaders] == [None]


def test_the_padding_of_the_batches_that_were_looked_at_is_of_the_loader() -> None:
    seen = {"cells_count": 5120, "real_count": 1024, "to_longest_count": 1280}
    width = {"width_min_count": 512, "width_max_count": 512}
    before = sample("loader0.padding:", looks_count=1, cells_count=0)
    padding = sample("loader0.padding:input_ids", looks_count=9, **seen, **width)
    (found,) = found_in(fed(making("process", items_ms=2.0), before, padding)).loaders
    assert found.padding == Padding(
        name="input_ids", looks=9, width=512, fixed=True, real_ratio=0.2, to_longest_ratio=0.25
    )
    (found,) = found_in(fed(making("process", items_ms=2.0), before)).loaders
    assert found.padding == Padding(name="", looks=1)
    (found,) = found_in(fed(making("process", items_ms=2.0))).loaders
    assert found.padding is None
