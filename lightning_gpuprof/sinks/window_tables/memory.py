"""Tables of a window's memory: the peak, what allocated, and what was held at the peak."""

from lightning_gpuprof.model import numbers
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.trace.memory import DeviceMemoryUse, LivePiece, ModuleMemory
from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.tables import COUNT, SIZE, US_AS_MS, Column, Table, bar, facts, name
from lightning_gpuprof.sinks.window_tables import short_names
from lightning_gpuprof.sinks.window_tables.operators import NAME_CELLS, TOP

MAX_MODULES = 20
_PLACE_LIMIT = 60
_OUTSIDE = "outside operators"


def place_of(use: DeviceMemoryUse) -> str:
    """Whose memory it is: ``host``, ``GPU 0``."""
    return "host" if use.device is None else f"GPU {use.device}"


def peak_table(use: DeviceMemoryUse, limit: int = TOP) -> Table:
    """How much was allocated and held, and what the peak is made of.

    Args:
        use: Of one device.
        limit: Most rows, of which there are few.

    Returns:
        Names and values as text; what is older than the window has no row where torch does not count it.
    """
    rows = [
        ("held at the peak", numbers.size(use.peak_bytes), "most that was held at a time in the window"),
        ("of the peak, from before the window", numbers.size(use.older_bytes), "parameters, optimizer state and such"),
        ("peak reached after", f"{numbers.fixed(use.peak_us / 1000)} ms", "from the first allocation on"),
        ("held at the start", numbers.size(use.begin_bytes), ""),
        ("held at the end", numbers.size(use.end_bytes), ""),
        ("allocated", numbers.size(use.allocated_bytes), "all allocations summed"),
        ("freed", numbers.size(use.freed_bytes), ""),
        ("allocations", numbers.count(use.allocations), ""),
    ]
    if use.device is None and not use.begin_bytes:  # torch does not count what is older
        rows = [row for row in rows if row[0] not in ("of the peak, from before the window", "held at the start")]
    return facts(f"Memory: {place_of(use)}{', without what is older' if use.device is None else ''}", rows, absent="")


def operator_table(use: DeviceMemoryUse, limit: int = TOP) -> Table:
    """Operators that allocated most.

    Args:
        use: Of one device.
        limit: Most rows.

    Returns:
        Most bytes of their own first, a row for each operator and phase.
    """
    return Table.of(
        f"Memory by operator: {place_of(use)}",
        use.operators,
        Column("operator", lambda row: row.operator or _OUTSIDE, name(NAME_CELLS)),
        Column("phase", lambda row: words_of(row.phase)),
        Column("self", lambda row: row.self_bytes, SIZE, help="allocated by the operator itself; frees not subtracted"),
        Column("total", lambda row: row.total_bytes, SIZE, help="nested operators included"),
        Column("largest", lambda row: row.largest_bytes, SIZE, help="largest single allocation"),
        Column("at peak", lambda row: row.peak_bytes, SIZE, help="of its own, still held at the peak"),
        Column("allocations", lambda row: row.allocations, COUNT),
        absent="Nothing was allocated in the window.",
        limit=limit,
    )


def module_table(use: DeviceMemoryUse, limit: int = MAX_MODULES) -> Table:
    """The modules that allocated most.

    Args:
        use: Of one device.
        limit: Most rows.

    Returns:
        Most bytes first; no rows without modules.
    """
    shown = [one for one in use.modules[:limit] if one.allocated_bytes]
    most = max((one.allocated_bytes for one in shown), default=0)
    path: Column[ModuleMemory] = Column(
        "module", lambda one: ".".join(one.path), name(_PLACE_LIMIT), help="each inside the ones before it"
    )
    return Table.of(
        f"Memory by module: {place_of(use)}",
        shown,
        path,
        bar(lambda one: one.allocated_bytes / most),
        Column(
            "allocated", lambda one: one.allocated_bytes, SIZE, help="forward and backward, nested modules included"
        ),
        Column("self", lambda one: one.self_bytes, SIZE, help="nested modules excluded"),
        Column("at peak", lambda one: one.peak_bytes, SIZE, help="still held at the peak, nested modules included"),
        absent="Modules are not known: the window names none (TraceConfig(modules=100)).",
    )


def line_table(use: DeviceMemoryUse, limit: int = TOP) -> Table:
    """The lines of user code that allocated most.

    Args:
        use: Of one device.
        limit: Most rows.

    Returns:
        Most bytes first; no rows without stacks.
    """
    lines = tuple(one.line for one in use.lines)
    what = short_names.line_or_function(*lines)
    return Table.of(
        f"Memory by {what} of your code: {place_of(use)}",
        use.lines,
        Column(what, lambda one: short_names.code_line(one.line, _PLACE_LIMIT), help=short_names.line_meaning(lines)),
        Column("allocated", lambda one: one.allocated_bytes, SIZE, help="by its operators and their backward"),
        Column("at peak", lambda one: one.peak_bytes, SIZE, help="still held at the peak"),
        Column("allocations", lambda one: one.allocations, COUNT),
        absent="Lines of code are not known: the window was recorded without stacks (with_stack=True).",
        limit=limit,
    )


def piece_table(use: DeviceMemoryUse, limit: int = TOP) -> Table:
    """The largest allocations that were held at the peak.

    Args:
        use: Of one device.
        limit: Most rows.

    Returns:
        Largest first; the title says of how many they are, the age is in ms.
    """
    lines = tuple(one.line for one in use.pieces if one.line is not None)
    return Table.of(
        f"Largest allocations at the peak: {place_of(use)}",
        use.pieces,
        Column("size", lambda row: row.size_bytes, SIZE),
        Column("operator", lambda row: row.operator or _OUTSIDE, name(NAME_CELLS)),
        Column("phase", lambda row: words_of(row.phase)),
        Column(
            "made by",
            _made_by,
            help=f"{short_names.line_meaning(lines)}; else the module" if lines else "module, as in named_modules()",
        ),
        Column("age", lambda row: row.age_us, US_AS_MS, help="allocated so long before the peak"),
        absent="Nothing that the window allocated was held at the peak.",
        limit=limit,
        all_rows=use.pieces_count,
    )


def _made_by(piece: LivePiece) -> str:
    if piece.line is not None:
        return short_names.code_line(piece.line, _PLACE_LIMIT)
    return plain.name(piece.module, _PLACE_LIMIT) if piece.module else "-"
