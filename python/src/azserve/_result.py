"""What a search answers."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from . import _errors


@dataclass(frozen=True)
class Tree:
    """Search trees as arrays, with mctx's names.

    N is num_simulations + 1, less with ``max_nodes``, twice as many where chance nodes are passed. A is the
    number of actions, or of outcomes if those are more: a chance node's entries are its outcomes. Unused
    nodes are 0, with -1 in ``parents``, ``action_from_parent`` and ``children_index``. Values
    are from the view of the player to move at their node.
    """

    node_visits: NDArray[np.int32]
    node_values: NDArray[np.float32]
    raw_values: NDArray[np.float32]
    parents: NDArray[np.int32]
    action_from_parent: NDArray[np.int32]
    children_index: NDArray[np.int32]
    children_visits: NDArray[np.int32]
    children_rewards: NDArray[np.float32]
    children_discounts: NDArray[np.float32]
    children_values: NDArray[np.float32]
    children_prior_logits: NDArray[np.float32]
    terminal: NDArray[np.bool_]
    chance: NDArray[np.bool_]


@dataclass(frozen=True)
class SearchResult:
    """What a search answers. B rows, A actions.

    A root that has ended is not searched: its action is 0, the rest of its row 0 as well.

    Attributes:
        action: The action to play, int32 [B].
        action_weights: The improved policy, float32 [B, A].
        visits: Visits of the root's actions, int32 [B, A].
        qvalues: Values of the root's actions, from its mover's view, float32 [B, A]; 0 if unvisited.
        value: Mean value of the root, float32 [B].
        raw_value: The evaluator's value of the root, float32 [B].
        proven: Whether the value is certain, bool [B]; only with ``solve=True``.
        stats: Counts: ``simulations``; ``evaluations``, states sent to the evaluator, in ``batches`` that had
            ``room`` for so many (their quotient is how full they were); ``cache_hits``; ``max_depth``;
            ``pruned`` nodes (``max_nodes``); ``proven_rows``.
        version: Of the weights of a named evaluator, see ``Evaluation``.
    """

    action: NDArray[np.int32]
    action_weights: NDArray[np.float32]
    visits: NDArray[np.int32]
    qvalues: NDArray[np.float32]
    value: NDArray[np.float32]
    raw_value: NDArray[np.float32]
    proven: NDArray[np.bool_]
    stats: dict[str, int]
    version: int = 0
    _tree: Tree | None = None

    def tree(self) -> Tree:
        """Return the trees; only if the search was made with ``keep_tree=True``."""
        if self._tree is None:
            raise _errors.InvalidArgumentError("the trees weren't kept: search with keep_tree=True")
        return self._tree


@dataclass(frozen=True)
class Evaluation:
    """What an evaluator says of states.

    Attributes:
        prior_logits: float32 [n, A]; those of illegal actions don't matter.
        value: float32 [n], from the view of the player to move.
        version: Of the weights: it changes when they do. For an ONNX file it is made of the file's
            contents. 0 where there are no weights.
    """

    prior_logits: NDArray[np.float32]
    value: NDArray[np.float32]
    version: int


def join(parts: list[SearchResult]) -> SearchResult:
    """Return the results of groups of rows as one."""

    def rows(name: str) -> NDArray[np.generic]:
        return np.concatenate([getattr(p, name) for p in parts])

    others = ("stats", "version", "_tree")
    arrays = {f.name: rows(f.name) for f in fields(SearchResult) if f.name not in others}
    stats = {k: sum(p.stats[k] for p in parts) for k in parts[0].stats}
    stats["max_depth"] = max(p.stats["max_depth"] for p in parts)
    trees = [p._tree for p in parts if p._tree is not None]
    tree = None
    if trees:
        tree = Tree(**{f.name: np.concatenate([getattr(t, f.name) for t in trees]) for f in fields(Tree)})
    return SearchResult(**arrays, stats=stats, version=parts[0].version, _tree=tree)  # type: ignore[arg-type]
