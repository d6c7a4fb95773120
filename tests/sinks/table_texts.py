"""What a table shows, as tests read it."""

from lightning_gpuprof.sinks.tables import Table


def texts(table: Table) -> list[list[str]]:
    """The text of each cell; each row has one for every column."""
    assert all(len(row) == len(table.columns) for row in table.rows)
    return [[cell.text for cell in row] for row in table.rows]
