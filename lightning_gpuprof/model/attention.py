"""Operators of a window that compute attention piece by piece, each on whole matrices of scores."""

from typing import Literal

import msgspec

Sizes = tuple[int, ...]


class ScoresOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator that reads or writes matrices of scores."""

    kind: Literal["softmax", "pointwise", "product"]
    scores: frozenset[Sizes]
    """Shapes of the scores, as the softmax has them: batch, heads, query length, key length."""
    device_us: float


class UnfusedAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Time of attention without a fused kernel, in microseconds of the window."""

    scores: Sizes
    """Shape of the scores that take longest."""
    pieces_us: float
    """Softmax, scaling, masks, dropout and copies: what a fused kernel keeps on the chip."""
    products_us: float


class AttentionOperators(msgspec.Struct, frozen=True, kw_only=True):
    """All such operators of a window."""

    operators: tuple[ScoresOperator, ...]

    def unfused(self, least_length: int) -> UnfusedAttention | None:
        """Those on matrices of at least this many rows and columns; None if there are none."""
        softmaxes = [
            one
            for one in self.operators
            if one.kind == "softmax" and all(min(scores[-2:]) >= least_length for scores in one.scores)
        ]
        if not softmaxes:
            return None
        shapes = frozenset[Sizes]().union(*(one.scores for one in softmaxes))
        others = [one for one in self.operators if one.kind != "softmax" and one.scores & shapes]
        (largest,) = max(softmaxes, key=lambda one: one.device_us).scores
        return UnfusedAttention(
            scores=largest,
            pieces_us=sum(one.device_us for one in (*softmaxes, *others) if one.kind != "product"),
            products_us=sum(one.device_us for one in others if one.kind == "product"),
        )
