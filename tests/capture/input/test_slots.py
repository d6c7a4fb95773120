"""The memory in which a worker writes its counters, and how it is read."""

from lightning_gpuprof.capture.input import slots


def test_a_slot_keeps_names_of_many_parts() -> None:
    writer = slots.SlotWriter(memoryview(bytearray(slots.SLOT_BYTES)))
    for number in range(100):
        writer.add_to_part(writer.part(slots.REGION, f"región {number}"), 5)
    memory = bytearray(slots.SLOT_BYTES)
    memory[: slots.SLOT_BYTES] = writer.words.tobytes() + bytes(writer._names).ljust(
        slots.SLOT_BYTES - writer.words.nbytes, b"\0"
    )
    found = slots.read_slot(memoryview(memory))
    assert len(found.parts) == slots.MAX_PARTS
    assert found.parts[slots.REGION, "región 0"].calls == 1
    assert sum(part.calls for part in found.parts.values()) == 100


def test_long_names_of_parts_keep_their_ends_and_those_that_agree_add_up() -> None:
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    writer = slots.SlotWriter(memory)
    inside = "RandomApply > " * 5
    names = [f"{inside}Crop", f"{inside}Flip", f"a{inside}Flip", "é" * 40]
    for number, name in enumerate(names):
        writer.add_to_part(writer.part(slots.TRANSFORM, name), 5 + number)
    found = slots.read_slot(memory)
    assert sorted((part.name[-4:], part.calls, part.sum_ns, part.max_ns) for part in found.parts.values()) == [
        ("Crop", 1, 5, 5),
        ("Flip", 2, 13, 7),
        ("éééé", 1, 8, 8),
    ]
    assert all(part.name.startswith("…") for part in found.parts.values())


def test_parts_that_a_reader_cannot_tell_apart_add_up() -> None:
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    writer = slots.SlotWriter(memory)
    for number in range(slots.MAX_PARTS):
        writer.add_to_part(writer.part(slots.REGION, "others" if number == 3 else f"region {number}"), 5)
    found = slots.read_slot(memory)
    assert found.parts[slots.REGION, "others"].calls == 2
    assert sum(part.calls for part in found.parts.values()) == slots.MAX_PARTS


def test_buckets_hold_what_falls_into_them() -> None:
    for ns in (1, 255, 256, 300, 1000, 12_345, 10**6, 10**9, 10**11):
        bucket = slots.bucket_index(ns)
        assert ns <= slots.bucket_end_ns(bucket) <= max(256, 1.25 * ns) + 1 or bucket == slots.BUCKETS - 1


def test_a_reader_does_not_take_a_slot_in_the_middle_of_a_write() -> None:
    memory = memoryview(bytearray(slots.SLOT_BYTES))
    slots.SlotWriter(memory).words[slots.SEQUENCE] = 1
    assert slots.read_slot(memory) is None
