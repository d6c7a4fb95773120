"""Operators of a window that compute attention piece by piece."""

from collections.abc import Iterable
from math import prod

from lightning_gpuprof.model.attention import AttentionOperators, ScoresOperator, Sizes
from lightning_gpuprof.model.device_kernels import input_sizes
from lightning_gpuprof.model.trace.operators import OperatorShapes

_SOFTMAX = frozenset({"_softmax", "_softmax_backward_data", "_safe_softmax", "_masked_softmax"})
_PRODUCTS = frozenset({"bmm", "baddbmm", "bmm_out", "baddbmm_"})
_ON_SCORES = frozenset(
    "add add_ sub mul mul_ div div_ masked_fill masked_fill_ where native_dropout native_dropout_backward copy_ "  # noqa: SIM905
    "bernoulli_ masked_scale _masked_scale fill_".split()
)


def attention_operators(rows: Iterable[OperatorShapes]) -> AttentionOperators:
    """A softmax over matrices that batched products take or make, those products, and pointwise operators on them."""
    rows = tuple(rows)
    products = [(row, matrices) for row in rows if (matrices := _matrices(row))]
    made = frozenset[Sizes]().union(*(matrices for _, matrices in products))
    found = [
        ScoresOperator(kind="softmax", scores=frozenset({scores}), device_us=row.device_self_us or 0.0)
        for row in rows
        if _name(row) in _SOFTMAX and (scores := _scores(row)) is not None and _alike(scores) in made
    ]
    shapes = frozenset[Sizes]().union(*(one.scores for one in found))
    for row in rows:
        sizes = set(input_sizes(row.input_shape)) if _name(row) in _ON_SCORES else set()
        own = frozenset(one for one in shapes if sizes & {one, (prod(one[:-2]), *one[-2:])})
        if own:
            found.append(ScoresOperator(kind="pointwise", scores=own, device_us=row.device_self_us or 0.0))
    for row, matrices in products:
        own = frozenset(one for one in shapes if _alike(one) in matrices)
        found.append(ScoresOperator(kind="product", scores=own, device_us=row.device_self_us or 0.0))
    return AttentionOperators(operators=tuple(found))


def _name(row: OperatorShapes) -> str:
    return row.operator.rpartition("::")[2]


def _scores(row: OperatorShapes) -> Sizes | None:
    first = next(iter(input_sizes(row.input_shape)), ())
    return first if len(first) >= 3 else None


def _matrices(row: OperatorShapes) -> frozenset[Sizes]:
    """What a batched product takes and makes, the sides of each in ascending order; empty for all else."""
    given = [one for one in input_sizes(row.input_shape) if len(one) == 3][-2:] if _name(row) in _PRODUCTS else []
    if len(given) != 2:
        return frozenset()
    (batch, rows, inner), (_, _, columns) = given
    return frozenset((batch, *sorted(sides)) for sides in ((rows, columns), (rows, inner), (inner, columns)))


def _alike(scores: Sizes) -> Sizes:
    """Scores as the batched products have them: batch and heads as one, sides in ascending order."""
    return (prod(scores[:-2]), *sorted(scores[-2:]))
