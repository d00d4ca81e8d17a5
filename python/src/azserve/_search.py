"""Tree search over a pool's states."""

from __future__ import annotations

import json
import operator
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _native
from ._cache import Cache
from ._native import ffi, lib
from ._pool import Pool
from ._result import Evaluation, SearchResult, Tree, join
from ._states import Obs, obs_names

# Simulations from which a search in Go runs beside the calling thread: about a tenth of a second.
_LONG = 200_000

Evaluator = Callable[[Obs, NDArray[np.bool_]], tuple[ArrayLike, ArrayLike]]


@dataclass(frozen=True)
class Leaves:
    """States that wait for an evaluation.

    Attributes:
        obs: Observations [n, ...].
        action_mask: Legal actions [n, A].
        chance: Rows that are afterstates [n], where nature is about to draw (policy ``"stochastic"``): only
            their value is read, from the view of the player whose action it was.
    """

    obs: Obs
    action_mask: NDArray[np.bool_]
    chance: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.action_mask)


def search(
    pool: Pool,
    state_id: ArrayLike,
    evaluator: Evaluator | str,
    *,
    num_simulations: int | ArrayLike = 32,
    policy: str = "gumbel",
    seed: int | ArrayLike | None = None,
    invalid_actions: ArrayLike | None = None,
    keep_tree: bool = False,
    pipeline: bool = False,
    **settings: Any,
) -> SearchResult:
    """Search states of a pool.

    Args:
        pool: The pool that the states are of.
        state_id: The roots [B].
        evaluator: A function of ``(obs, action_mask)`` that returns prior logits [n, A] and values [n]
            from the view of the player to move; or a name, which runs without Python: ``"uniform"``,
            ``"rollout"``, ``"table"``, ``"gorgonia:FOLDER"`` (of ``azserve train``), ``"onnx:FILE"``. A
            model's name may end in ``?symmetry=random`` or ``?symmetry=average`` (use the board's
            symmetries), an ONNX model's in ``?threads=N``. ``"grpc://HOST:PORT/MODEL"`` is a model of a
            server. With a pool of a server the name is of one of its models.
        num_simulations: Simulations a root: one number, or one a row [B].
        policy: ``"alphazero"``, ``"muzero"``, ``"gumbel"``, ``"stochastic"`` (where there is chance) or
            ``"uct"``.
        seed: One number (row i draws from the stream (seed, i)) or one a row; None takes entropy.
        invalid_actions: Actions not to be chosen at the root [B, A], beside the illegal ones. Where they mask
            all that is legal, the first legal action is searched, as in mctx.
        keep_tree: Keep the trees for ``SearchResult.tree()``.
        pipeline: Search the rows in two groups that take turns: the function is called for one before the
            other's answer is read. With a network that answers at once and computes on (JAX, torch on a GPU),
            the search runs meanwhile.
        **settings: See ``Search``.

    Raises:
        EvaluatorError: The evaluator answered with NaN or a wrong shape; names the row.
    """
    options = {
        "num_simulations": num_simulations,
        "policy": policy,
        "invalid_actions": invalid_actions,
        **settings,
    }
    if isinstance(evaluator, str) and evaluator.startswith("grpc://"):
        from ._client import evaluator as remote_evaluator

        evaluator = remote_evaluator(evaluator, pool)
    if isinstance(evaluator, str) and pool._remote:
        return pool._search(state_id, evaluator, seed=seed, keep_tree=keep_tree, pipeline=pipeline, **options)
    if isinstance(evaluator, str):
        options |= {"evaluator": evaluator, "pipeline": pipeline, "keep_tree": keep_tree}
        if not keep_tree:
            return _Request(pool, state_id, seed=seed, **options).run()
        with Search(pool, state_id, seed=seed, **options) as s:
            s.run()
            return s.result()
    if not callable(evaluator):
        raise TypeError(f"evaluator={evaluator!r}; want a function or a name")
    options["keep_tree"] = keep_tree
    if pipeline and np.size(state_id) > 1:
        return _in_turns(pool, _arrays.int32("state_id", state_id), evaluator, seed, options)
    with Search(pool, state_id, seed=seed, **options) as s:
        while (leaves := s.select()) is not None:
            s.expand(*evaluator(leaves.obs, leaves.action_mask))
        return s.result()


def evaluate(pool: Pool, state_id: ArrayLike, evaluator: str, *, seed: int = 0) -> Evaluation:
    """Ask a named evaluator about states, without a search.

    Args:
        pool: The pool that the states are of. It keeps the evaluator, so that a model is read once.
        state_id: The states [n].
        evaluator: Its name, as in ``search``.
        seed: Of evaluators that draw random numbers (``"rollout"``).

    Raises:
        EvaluatorError: It answered with NaN or out of range; names the row.
        InvalidArgumentError: There is no such evaluator, or it doesn't fit the environment.
    """
    if pool._remote:
        return pool._evaluate(state_id, evaluator, seed)
    states = _arrays.int32("state_id", state_id)
    n = len(states)
    logits, value = np.zeros((n, pool.spec.num_actions), np.float32), np.zeros(n, np.float32)
    name = evaluator.encode()
    block = _native.Block("azs_evaluation *")
    c = block.c
    c.pool, c.n, c.name_len, c.seed = pool._handle, n, len(name), seed % 2**64
    buffers = {"name": ("char[]", name), "states": ("int32_t[]", states), "logits": ("float[]", logits)}
    buffers["value"] = ("float[]", value)
    kept = {field: ffi.from_buffer(kind, memory) for field, (kind, memory) in buffers.items()}
    for field, pointer in kept.items():
        setattr(c, field, pointer)
    _native.call(lib.azs_evaluate, block)
    return Evaluation(logits, value, int(c.version))


# What has one entry a row.
_BY_ROW = (
    "num_simulations",
    "invalid_actions",
    "time_limit",
    "fast",
    "dirichlet_noise",
    "root_gumbel",
    "action_gumbel",
)


def _in_turns(
    pool: Pool, states: NDArray[np.int32], evaluator: Evaluator, seed: Any, options: dict[str, Any]
) -> SearchResult:
    """Search two groups of rows in turn."""
    n = len(states)
    seeds = _row_seeds(seed, n)
    if np.ndim(options["num_simulations"]) > 0:  # trees of one size in both groups
        options["most"] = int(np.max(options["num_simulations"]))

    def part(value: Any, rows: slice) -> Any:
        return value if value is None or np.ndim(value) == 0 else np.asarray(value)[rows]

    with ExitStack() as stack:
        groups = []
        for rows in (slice(0, n // 2), slice(n // 2, n)):
            own = {k: part(v, rows) if k in _BY_ROW else v for k, v in options.items()}
            groups.append(stack.enter_context(Search(pool, states[rows], seed=seeds[rows], **own)))
        away: tuple[Search, Any] | None = None
        turn = idle = 0
        while idle < 2:
            here = groups[turn % 2]
            leaves = here.select()
            answer = None if leaves is None else evaluator(leaves.obs, leaves.action_mask)
            idle = idle + 1 if leaves is None and away is None else 0
            if away is not None:
                away[0].expand(*away[1])
            away = None if leaves is None else (here, answer)
            turn += 1
        return join([s.result() for s in groups])


def _row_seeds(seed: Any, n: int) -> NDArray[np.uint64]:
    """Return the seeds of n rows, as the library derives them from one number."""
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    if not _is_one(seed):
        return _arrays.seeds("seed", seed, n)
    reply, _ = _native.text(lib.azs_seeds, {"seed": int(seed) % 2**64, "n": n})
    return np.array(reply, np.uint64)


def _is_one(seed: Any) -> bool:
    return isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)


class _Request:
    """The arguments of a search, for the native library."""

    def __init__(
        self,
        pool: Pool,
        state_id: ArrayLike,
        *,
        num_simulations: int | ArrayLike,
        policy: str,
        seed: int | ArrayLike | None,
        invalid_actions: ArrayLike | None,
        cache: Cache | None = None,
        time_limit: float | ArrayLike | None = None,
        fast: ArrayLike | None = None,
        dirichlet_noise: ArrayLike | None = None,
        root_gumbel: ArrayLike | None = None,
        action_gumbel: ArrayLike | None = None,
        most: int = 1,
        **settings: Any,
    ) -> None:
        self.pool = pool
        states = _arrays.int32("state_id", state_id)
        n, a = len(states), pool.spec.num_actions
        self.rows = n
        self.block = _native.Block("azs_search *")
        block = self.block.c
        block.pool, block.n = pool._handle, n
        self._kept: list[Any] = []  # what the block points to
        block.states = self._keep("int32_t[]", states)
        if np.ndim(num_simulations) > 0:
            each = _arrays.int32("num_simulations", num_simulations)
            if len(each) != n:
                raise _errors.InvalidArgumentError(
                    f"num_simulations has {len(each)} entries; want {n}, one a row"
                )
            block.simulations = self._keep("int32_t[]", each)
            num_simulations = int(each.max(initial=most))
        self.simulations = operator.index(num_simulations)  # type: ignore[arg-type]
        config = {"num_simulations": self.simulations, "policy": policy}
        config |= {k: _native.json_value(k, v) for k, v in settings.items() if v is not None}
        text = json.dumps(config).encode()
        block.config, block.config_len = self._keep("char[]", text), len(text)
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        if _is_one(seed):
            block.seed = int(seed) % 2**64  # type: ignore[arg-type]
        else:
            block.seeds = self._keep("uint64_t[]", _arrays.seeds("seed", seed, n))
        if invalid_actions is not None:
            invalid = _arrays.mask("invalid_actions", invalid_actions, (n, a))
            block.invalid = self._keep("uint8_t[]", invalid)
        for name, noise in (
            ("dirichlet", dirichlet_noise),
            ("root_gumbel", root_gumbel),
            ("action_gumbel", action_gumbel),
        ):
            if noise is not None:
                label = "dirichlet_noise" if name == "dirichlet" else name
                setattr(block, name, self._keep("float[]", _arrays.float32(label, noise, (n, a))))
        if time_limit is not None:
            seconds = np.ascontiguousarray(np.broadcast_to(np.asarray(time_limit, np.float64), (n,)))
            if not np.isfinite(seconds).all():
                raise _errors.InvalidArgumentError(f"time_limit={time_limit}; want finite numbers of seconds")
            block.time_limit = self._keep("double[]", seconds)
        if fast is not None:
            block.fast = self._keep("uint8_t[]", _arrays.mask("fast", fast, (n,)))
        if cache is not None:
            block.cache = cache._handle

    def _keep(self, kind: str, memory: Any) -> Any:
        pointer = ffi.from_buffer(kind, memory)
        self._kept.append(pointer)
        return pointer

    def run(self) -> SearchResult:
        """Run the search in Go."""
        answer = _Answer(self.rows, self.pool.spec.num_actions)
        _cancellable(lib.azs_search_run, self.block, self.simulations * self.rows, answer.block.c)
        return answer.result(None)


def _cancellable(function: Any, block: _native.Block, simulations: int, *more: Any) -> None:
    """Call a native search; a long one in a thread of its own, so that Ctrl-C can end it."""
    if simulations < _LONG:
        _native.call(function, block, *more)
        return
    cancel = ffi.new("int32_t *")
    block.c.cancel = cancel
    with ThreadPoolExecutor(1) as executor:
        done = executor.submit(_native.call, function, block, *more)
        try:
            while not wait([done], 0.2).done:
                pass
        except BaseException:
            cancel[0] = 1
            raise
        done.result()


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
        names = (
            "simulations",
            "evaluations",
            "batches",
            "room",
            "cache_hits",
            "max_depth",
            "pruned",
            "proven_rows",
        )
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
            int(b.version),
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
        num_simulations: Simulations a root: one number, or one a row [B].
        policy: ``"alphazero"``, ``"muzero"``, ``"gumbel"``, ``"stochastic"`` (where there is chance) or
            ``"uct"``.
        seed: One number (row i draws from the stream (seed, i)) or one a row; None takes entropy.
        invalid_actions: Actions not to be chosen at the root [B, A], beside the illegal ones. Where they mask
            all that is legal, the first legal action is searched, as in mctx.
        keep_tree: Keep what ``SearchResult.tree()`` needs.
        evaluator: The name of an evaluator that runs in Go, see ``search``: then call ``run`` in place of
            ``select`` and ``expand``, and again after each ``advance``.
        **settings: mctx's hyper-parameters, with its defaults: ``max_depth``, ``pb_c_init``,
            ``pb_c_base``, ``dirichlet_fraction``, ``dirichlet_alpha``, ``temperature``,
            ``gumbel_scale``, ``max_num_considered_actions``; ``qtransform`` (its name without the
            prefix) and its settings ``epsilon``, ``min_value``, ``max_value``, ``value_scale``,
            ``maxvisit_init``, ``rescale_values``, ``use_mixed_value``. Noise may be given:
            ``dirichlet_noise``, ``root_gumbel``, ``action_gumbel`` [B, A].

            Beyond mctx: ``leaves_per_step``, leaves of a tree in flight at once; ``discount`` of a single
            player's step. Budgets: ``time_limit`` in seconds, one or one a row; ``max_nodes`` and
            ``max_bytes`` of a tree, which forgets what was visited longest ago; ``early_stop`` when no
            simulation that is left can change the most visited action; ``count_kept=False`` to count new
            simulations only after ``advance`` (with ``max_nodes``); ``cache``, a ``Cache``.

            For ``"alphazero"``: ``fpu`` is ``"reduction"`` (by ``fpu_reduction``), ``"parent"`` or
            ``"absolute"`` (``fpu_value``), ``root_fpu`` and its two numbers the same for the root;
            ``forced_playouts`` (KataGo: 2) with target pruning; ``fast`` rows [B] without noise and forced
            playouts. Except for ``"gumbel"``: ``lcb`` (KataGo: 5) with ``lcb_min_visits``,
            ``visit_offset`` and ``value_cutoff`` of the drawn action. ``solve`` (two players, no chance):
            prove wins, losses and draws, and stop a row when its root is proven.
    """

    def __new__(cls, pool: Pool, *_: Any, **__: Any) -> Search:
        """Return a search on the server for a pool of a server."""
        if not pool._remote:
            return super().__new__(cls)
        from ._remote_pool import RemoteSearch

        return super().__new__(RemoteSearch)

    def __init__(
        self,
        pool: Pool,
        state_id: ArrayLike,
        *,
        num_simulations: int | ArrayLike = 32,
        policy: str = "gumbel",
        seed: int | ArrayLike | None = None,
        invalid_actions: ArrayLike | None = None,
        keep_tree: bool = False,
        evaluator: str | None = None,
        **settings: Any,
    ) -> None:
        request = _Request(
            pool,
            state_id,
            num_simulations=num_simulations,
            policy=policy,
            seed=seed,
            invalid_actions=invalid_actions,
            keep_tree=keep_tree,
            evaluator=evaluator,
            **settings,
        )
        _native.call(lib.azs_search_open, request.block)
        self._request = request
        self._handle = int(request.block.c.search)
        self._finalizer: weakref.finalize[..., Any] = weakref.finalize(self, _close, self._handle)
        self._pool = pool
        self._rows = request.rows
        self._shape = int(request.block.c.nodes), int(request.block.c.width)
        self._keep_tree = keep_tree
        self._most = self._rows * int(settings.get("leaves_per_step") or 1)
        obs: list[_arrays.Field] = [(f"obs.{x.name}", x.dtype, x.shape) for x in pool.spec.obs]
        mask = ("mask", np.dtype(np.bool_), (pool.spec.num_actions,))
        self._layout = _arrays.Layout([*obs, mask], self._most)
        self._waiting = 0
        self._step = _native.Block("azs_step *")
        self._step.rows[:] = self._layout.offsets
        self._step.c.search = self._handle
        self._chance = np.zeros(self._most if pool.spec.num_outcomes else 0, np.bool_)
        self._chance_at = _native.pointer("uint8_t[]", self._chance)
        if len(self._chance):
            self._step.c.chance = self._chance_at

    def run(self) -> None:
        """Search to the end with the evaluator that was named, in Go.

        Raises:
            InvalidArgumentError: The search was made without one: use ``select`` and ``expand``.
            EvaluatorError: It answered with NaN; names the row.
        """
        request = self._request
        request.block.c.search = self._handle
        _cancellable(lib.azs_search_drive, request.block, request.simulations * request.rows)

    def select(self) -> Leaves | None:
        """Return the states to evaluate next, None when the search is done."""
        block = self._step
        views, block.base[0] = self._layout.take()
        _native.call(lib.azs_search_select, block)
        n = self._waiting = int(block.c.n)
        if n == 0:
            return None
        *arrays, mask = (v[:n] for v in views)
        names = obs_names(self._pool.spec)
        obs = dict(zip(names, [*arrays, mask], strict=False))
        chance = self._chance[:n].copy() if len(self._chance) else np.zeros(n, np.bool_)
        return Leaves(obs, mask, chance)

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
        ``num_simulations`` visits either way (but see ``count_kept``), so fewer states are evaluated.
        Noise is drawn anew, and ``invalid_actions``, budgets and noise given for rows no longer hold.

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
        n = self._rows
        nodes, a = self._shape
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
            chance=np.zeros((n, nodes), np.bool_),
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
