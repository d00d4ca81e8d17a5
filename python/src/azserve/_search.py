"""Tree search over a pool's states."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _native
from ._native import ffi, lib
from ._pool import Obs, Pool

# Simulations from which a search in Go runs beside the calling thread: about a tenth of a second.
_LONG = 200_000

Evaluator = Callable[[Obs, NDArray[np.bool_]], tuple[ArrayLike, ArrayLike]]


@dataclass(frozen=True)
class Tree:
    """Search trees as arrays, with mctx's names. N is num_simulations + 1.

    Unused nodes are 0, with -1 in ``parents``, ``action_from_parent`` and ``children_index``. Values
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
        stats: Counts of simulations, evaluations, batches, and max_depth.
    """

    action: NDArray[np.int32]
    action_weights: NDArray[np.float32]
    visits: NDArray[np.int32]
    qvalues: NDArray[np.float32]
    value: NDArray[np.float32]
    raw_value: NDArray[np.float32]
    proven: NDArray[np.bool_]
    stats: dict[str, int]
    _tree: Tree | None = None

    def tree(self) -> Tree:
        """Return the trees; only if the search was made with ``keep_tree=True``."""
        if self._tree is None:
            raise _errors.InvalidArgumentError("the trees weren't kept: search with keep_tree=True")
        return self._tree


@dataclass(frozen=True)
class Leaves:
    """States that wait for an evaluation: observations [n, ...] and legal actions [n, A]."""

    obs: Obs
    action_mask: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.action_mask)


def search(
    pool: Pool,
    state_id: ArrayLike,
    evaluator: Evaluator | str,
    *,
    num_simulations: int = 32,
    policy: str = "gumbel",
    seed: int | Sequence[int] | None = None,
    invalid_actions: ArrayLike | None = None,
    keep_tree: bool = False,
    **settings: Any,
) -> SearchResult:
    """Search states of a pool.

    Args:
        pool: The pool that the states are of.
        state_id: The roots [B].
        evaluator: A function of ``(obs, action_mask)`` that returns prior logits [n, A] and values [n]
            from the view of the player to move; or ``"uniform"``, ``"rollout"``, ``"table"``,
            ``"gorgonia:PATH"``, which run without Python.
        num_simulations: Simulations a root.
        policy: ``"alphazero"``, ``"muzero"``, ``"gumbel"`` or ``"uct"``.
        seed: One number (row i draws from the stream (seed, i)) or one a row; None takes entropy.
        invalid_actions: Actions not to be chosen at the root [B, A], beside the illegal ones.
        keep_tree: Keep the trees for ``SearchResult.tree()``.
        **settings: See ``Search``.

    Raises:
        EvaluatorError: The evaluator answered with NaN or a wrong shape; names the row.
    """
    if isinstance(evaluator, str):
        if keep_tree:
            raise _errors.InvalidArgumentError("keep_tree=True needs a callable evaluator")
        settings["evaluator"] = evaluator
        request = _Request(pool, state_id, num_simulations, policy, seed, invalid_actions, settings)
        return request.run(num_simulations)
    if not callable(evaluator):
        raise TypeError(f"evaluator={evaluator!r}; want a function or a name")
    with Search(
        pool,
        state_id,
        num_simulations=num_simulations,
        policy=policy,
        seed=seed,
        invalid_actions=invalid_actions,
        keep_tree=keep_tree,
        **settings,
    ) as s:
        while (leaves := s.select()) is not None:
            s.expand(*evaluator(leaves.obs, leaves.action_mask))
        return s.result()


class _Request:
    """The arguments of a search, for the native library."""

    def __init__(
        self,
        pool: Pool,
        state_id: ArrayLike,
        num_simulations: int,
        policy: str,
        seed: int | Sequence[int] | None,
        invalid_actions: ArrayLike | None,
        settings: dict[str, Any],
    ) -> None:
        self.pool = pool
        self.states = _arrays.int32("state_id", state_id)
        n, a = len(self.states), pool.spec.num_actions
        noise = {
            name: settings.pop(name, None) for name in ("dirichlet_noise", "root_gumbel", "action_gumbel")
        }
        config = {"num_simulations": num_simulations, "policy": policy}
        config |= {k: _native.json_value(v) for k, v in settings.items() if v is not None}
        self.config = json.dumps(config).encode()
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        one = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        self.seeds = None if one else _arrays.seeds("seed", seed, n)
        self.invalid = (
            None if invalid_actions is None else _arrays.mask("invalid_actions", invalid_actions, (n, a))
        )
        self.noise = {
            name: None if v is None else _arrays.float32(name, v, (n, a)) for name, v in noise.items()
        }
        self.rows = n
        self.block = _native.Block("azs_search *")
        block = self.block.c
        block.pool, block.n = pool._handle, n
        self._config = ffi.from_buffer("char[]", self.config)
        block.config, block.config_len = self._config, len(self.config)
        block.states = _native.pointer("int32_t[]", self.states)
        block.seeds = _native.pointer("uint64_t[]", self.seeds)
        if isinstance(seed, (int, np.integer)):
            block.seed = int(seed) % 2**64
        block.invalid = _native.pointer("uint8_t[]", self.invalid)
        block.dirichlet = _native.pointer("float[]", self.noise["dirichlet_noise"])
        block.root_gumbel = _native.pointer("float[]", self.noise["root_gumbel"])
        block.action_gumbel = _native.pointer("float[]", self.noise["action_gumbel"])

    def run(self, simulations: int) -> SearchResult:
        """Run the search in Go; a long one in a thread of its own, so that Ctrl-C can end it."""
        answer = _Answer(self.rows, self.pool.spec.num_actions)
        if simulations * self.rows < _LONG:
            _native.call(lib.azs_search_run, self.block, answer.block.c)
            return answer.result(None)
        cancel = ffi.new("int32_t *")
        self.block.c.cancel = cancel
        with ThreadPoolExecutor(1) as executor:
            done = executor.submit(_native.call, lib.azs_search_run, self.block, answer.block.c)
            try:
                while not wait([done], 0.2).done:
                    pass
            except BaseException:
                cancel[0] = 1
                raise
            done.result()
        return answer.result(None)


class _Answer:
    """Memory for a search's result."""

    def __init__(self, n: int, a: int) -> None:
        self.action = np.zeros(n, np.int32)
        self.weights = np.zeros((n, a), np.float32)
        self.visits = np.zeros((n, a), np.int32)
        self.qvalues = np.zeros((n, a), np.float32)
        self.value = np.zeros(n, np.float32)
        self.raw = np.zeros(n, np.float32)
        self.proven = np.zeros(n, np.bool_)
        self.block = _native.Block("azs_result *")
        block = self.block.c
        block.action = _native.pointer("int32_t[]", self.action)
        block.action_weights = _native.pointer("float[]", self.weights)
        block.visits = _native.pointer("int32_t[]", self.visits)
        block.qvalues = _native.pointer("float[]", self.qvalues)
        block.value = _native.pointer("float[]", self.value)
        block.raw_value = _native.pointer("float[]", self.raw)
        block.proven = _native.pointer("uint8_t[]", self.proven)

    def result(self, tree: Tree | None) -> SearchResult:
        b = self.block.c
        names = ("simulations", "evaluations", "batches", "max_depth")
        stats = {name: int(getattr(b, name)) for name in names}
        return SearchResult(
            self.action,
            self.weights,
            self.visits,
            self.qvalues,
            self.value,
            self.raw,
            self.proven,
            stats,
            tree,
        )


class Search:
    """A search whose leaves you evaluate yourself.

    Call ``select`` and ``expand`` in turn::

        with azserve.Search(pool, ids, num_simulations=64) as s:
            while (leaves := s.select()) is not None:
                s.expand(*network(leaves.obs, leaves.action_mask))
            result = s.result()

    The first leaves are the roots. For several threads use several searches.

    Args:
        pool: The pool that the states are of.
        state_id: The roots [B]; they may be released once the search exists.
        num_simulations: Simulations a root.
        policy: ``"alphazero"``, ``"muzero"``, ``"gumbel"`` or ``"uct"``.
        seed: One number (row i draws from the stream (seed, i)) or one a row; None takes entropy.
        invalid_actions: Actions not to be chosen at the root [B, A], beside the illegal ones.
        keep_tree: Keep what ``SearchResult.tree()`` needs.
        **settings: mctx's hyper-parameters, with its defaults: ``max_depth``, ``pb_c_init``,
            ``pb_c_base``, ``dirichlet_fraction``, ``dirichlet_alpha``, ``temperature``,
            ``gumbel_scale``, ``max_num_considered_actions``; ``qtransform`` (its name without the
            prefix) and its settings ``epsilon``, ``min_value``, ``max_value``, ``value_scale``,
            ``maxvisit_init``, ``rescale_values``, ``use_mixed_value``. Further ``leaves_per_step``,
            ``fpu_reduction`` (alphazero), ``discount`` (one player), ``solve`` (two players: prove
            wins, losses and draws, and stop a row when its root is proven). Noise may be given:
            ``dirichlet_noise``, ``root_gumbel``, ``action_gumbel`` [B, A].
    """

    def __init__(
        self,
        pool: Pool,
        state_id: ArrayLike,
        *,
        num_simulations: int = 32,
        policy: str = "gumbel",
        seed: int | Sequence[int] | None = None,
        invalid_actions: ArrayLike | None = None,
        keep_tree: bool = False,
        **settings: Any,
    ) -> None:
        settings["keep_tree"] = keep_tree
        request = _Request(pool, state_id, num_simulations, policy, seed, invalid_actions, settings)
        _native.call(lib.azs_search_open, request.block)
        self._handle = int(request.block.c.search)
        self._finalizer = weakref.finalize(self, _close, self._handle)
        self._pool = pool
        self._rows = request.rows
        self._nodes = num_simulations + 1
        self._keep_tree = keep_tree
        self._most = self._rows * int(settings.get("leaves_per_step") or 1)
        mask = ("mask", np.dtype(np.bool_), (pool.spec.num_actions,))
        obs = [f for f in pool._read_fields if f[0] != "obs.action_mask"]
        self._layout = _arrays.Layout([*obs, mask], self._most)
        self._waiting = 0
        self._step = _native.Block("azs_step *")
        self._step.c.search = self._handle

    def select(self) -> Leaves | None:
        """Return the states to evaluate next, None when the search is done."""
        slab, first, address = self._layout.allocate()
        block = self._step
        self._layout.point(block.rows, address)
        _native.call(lib.azs_search_select, block)
        n = self._waiting = int(block.c.n)
        if n == 0:
            return None
        views = {name: v[:n] for name, v in self._layout.views(slab, first).items()}
        return Leaves(Pool._obs(views), views["mask"])

    def expand(self, prior_logits: ArrayLike | None, value: ArrayLike) -> None:
        """Answer the last ``select``.

        Args:
            prior_logits: Logits [n, A]; those of illegal actions don't matter. None: all equal.
            value: Values [n], from the view of the player to move.
        """
        n, a = self._waiting, self._pool.spec.num_actions
        try:
            logits = None if prior_logits is None else _arrays.float32("prior_logits", prior_logits, (n, a))
            values = _arrays.float32("value", value, (n,))
        except _errors.InvalidArgumentError as e:
            raise _errors.EvaluatorError(str(e)) from None
        block = self._step
        block.c.n = n
        block.c.logits = _native.pointer("float[]", logits)
        block.c.value = _native.pointer("float[]", values)
        _native.call(lib.azs_search_expand, block)
        self._waiting = 0

    def advance(self, actions: ArrayLike) -> None:
        """Play an action in every row and keep what the search knows of the position after it.

        ``select`` then goes on as in a new search. The visits that are kept count: each root ends with
        ``num_simulations`` visits either way, so fewer states are evaluated. Noise is drawn anew, and
        ``invalid_actions`` and noise that were given no longer hold.

        Args:
            actions: One action a row [B], such as ``result().action``. Rows that have ended stay.

        Raises:
            ActionError: An action is out of range or illegal; nothing was changed.
        """
        a = _arrays.int32("actions", actions)
        block = self._step
        block.c.n = len(a)
        block.c.actions = _native.pointer("int32_t[]", a)
        _native.call(lib.azs_search_advance, block)

    def result(self) -> SearchResult:
        """Return the answer as it stands; of a finished search, or of what was simulated so far.

        Raises:
            EvaluatorError: A row was given up because its evaluation was no number.
        """
        answer = _Answer(self._rows, self._pool.spec.num_actions)
        answer.block.c.search = self._handle
        _native.call(lib.azs_search_result, answer.block)
        return answer.result(self._trees() if self._keep_tree else None)

    def _trees(self) -> Tree:
        n, nodes, a = self._rows, self._nodes, self._pool.spec.num_actions
        tree = Tree(
            node_visits=np.zeros((n, nodes), np.int32),
            node_values=np.zeros((n, nodes), np.float32),
            raw_values=np.zeros((n, nodes), np.float32),
            parents=np.zeros((n, nodes), np.int32),
            action_from_parent=np.zeros((n, nodes), np.int32),
            children_index=np.zeros((n, nodes, a), np.int32),
            children_visits=np.zeros((n, nodes, a), np.int32),
            children_rewards=np.zeros((n, nodes, a), np.float32),
            children_discounts=np.zeros((n, nodes, a), np.float32),
            children_values=np.zeros((n, nodes, a), np.float32),
            children_prior_logits=np.zeros((n, nodes, a), np.float32),
            terminal=np.zeros((n, nodes), np.bool_),
        )
        kinds = {"i": "int32_t[]", "f": "float[]", "b": "uint8_t[]"}
        for row in range(n):
            block = _native.Block("azs_tree *")
            block.c.search, block.c.row = self._handle, row
            for name, array in vars(tree).items():
                setattr(block.c, name, _native.pointer(kinds[array.dtype.kind], array[row]))
            _native.call(lib.azs_search_tree, block)
        return tree

    def close(self) -> None:
        """Give the search's states back. A second call does nothing."""
        self._finalizer()

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(handle: int) -> None:
    if _native._forked:
        return
    block = _native.Block("azs_text *")
    block.c.handle = handle
    lib.azs_search_close(block.c)
