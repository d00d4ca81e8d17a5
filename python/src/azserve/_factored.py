"""Actions in components: conditional masks, and sampling one component after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _arrays, _errors, _native
from ._native import lib
from ._spec import Factorization
from ._states import States

LogitsFn = Callable[[int, NDArray[np.int32], NDArray[np.bool_]], ArrayLike]


class FactoredActions(States):
    """The part of a pool that works on action components; see ``Pool``."""

    @property
    def action_factorization(self) -> Factorization | None:
        """The components of an action; None if it has none."""
        return self.spec.factorization

    def _factors(self) -> Factorization:
        f = self.spec.factorization
        if f is None:
            raise _errors.UnsupportedError(f"{self.spec.id}: actions have no components")
        return f

    def query_mask(
        self,
        env_id: ArrayLike | None = None,
        prefix: ArrayLike = (),
        *,
        state_id: ArrayLike | None = None,
        prefix_len: ArrayLike | None = None,
        strict: bool = False,
    ) -> Any:
        """Tell which values of the next action component are possible.

        A value is possible if some legal action begins with the prefix and it. After the end of an episode,
        and after a prefix that no legal action has, none is.

        Args:
            env_id: Environments [B]; all if None and no ``state_id`` is given.
            prefix: The first k components [B, k], or [k] for all rows; k is below the number of components.
            state_id: States [B] instead of environments.
            prefix_len: How many components of each row of ``prefix`` count [B], where rows differ.
            strict: Raise an error where no value is possible.

        Returns:
            bool [B, sizes[k]]. With ``prefix_len`` a pair: bool [B, max(sizes)], False beyond a component's
            size, and the size of each row's component, int32 [B].
        """
        f = self._factors()
        kind, rows = self._which(env_id, state_id)
        n = len(rows)
        values, lengths = _prefixes(f, prefix, prefix_len, n)
        ragged = prefix_len is not None
        width = max(f.sizes) if ragged else f.sizes[values.shape[1]]
        mask = self._masks(kind, rows, values, lengths, width)
        if strict and not (possible := mask.any(1)).all():
            row = int(np.flatnonzero(~possible)[0])
            raise _errors.InvalidArgumentError(
                f"prefix: row {row}: no legal action begins with {values[row, : lengths[row]].tolist()}"
            )
        if not ragged:
            return mask
        return mask, np.array(f.sizes, np.int32)[lengths]

    def _masks(
        self, kind: str, rows: NDArray[np.int32], values: NDArray[Any], lengths: NDArray[Any], width: int
    ) -> NDArray[np.bool_]:
        """Return the conditional masks of rows after prefixes [n, k], of which some count."""
        mask = np.empty((len(rows), width), np.bool_)
        block = _native.Block("azs_mask *")
        c = block.c
        c.pool, c.n, c.stride, c.width = self._handle, len(rows), values.shape[1], width
        kept = [_native.pointer("int32_t[]", a) for a in (values, lengths)]
        c.prefix, c.lengths = kept
        pointer = _native.pointer("int32_t[]", rows)
        setattr(c, kind, pointer)
        out = _native.pointer("uint8_t[]", mask)
        c.mask = out
        _native.call(lib.azs_pool_mask, block)
        return mask

    def query_mask_all(
        self,
        env_id: ArrayLike | None = None,
        actions: ArrayLike = (),
        *,
        state_id: ArrayLike | None = None,
    ) -> tuple[NDArray[np.bool_], ...]:
        """Return the conditional masks along given flat actions [B], one [B, sizes[k]] a component.

        It is what teacher forcing needs: mask k is that of component k after the components before it.
        """
        kind, rows = self._which(env_id, state_id)
        parts = self.decode_action(actions)
        if len(parts) != len(rows):
            raise _errors.InvalidArgumentError(f"actions has {len(parts)} entries; want {len(rows)}")
        if kind == "states":
            return self._masks_along(rows, parts)
        with self.scope():  # an environment can't be asked twice in a call, its state can
            return self._masks_along(self.snapshot(rows), parts)

    def _masks_along(
        self, states: NDArray[np.int32], parts: NDArray[np.int32]
    ) -> tuple[NDArray[np.bool_], ...]:
        sizes, n = self._factors().sizes, len(states)
        k = len(sizes)
        prefix, lengths = np.tile(parts[:, :-1], (k, 1)), np.repeat(np.arange(k), n)
        mask, _ = self.query_mask(state_id=np.tile(states, k), prefix=prefix, prefix_len=lengths)
        return tuple(np.ascontiguousarray(mask[i * n : (i + 1) * n, :size]) for i, size in enumerate(sizes))

    def encode_action(self, components: ArrayLike) -> NDArray[np.int32]:
        """Return the flat actions, int32 [B], of components [B, K]."""
        f = self._factors()
        parts = np.asarray(components)
        if parts.ndim != 2 or parts.shape[1] != len(f.sizes):
            raise _errors.InvalidArgumentError(
                f"components has shape {parts.shape}; want [B, {len(f.sizes)}]: {', '.join(f.names)}"
            )
        flat = _arrays.int32("components", parts.ravel()).reshape(parts.shape)
        _check_range("components", f, flat, np.full(len(flat), len(f.sizes)))
        return np.asarray(flat @ np.array(f.strides, np.int32), np.int32)

    def decode_action(self, actions: ArrayLike) -> NDArray[np.int32]:
        """Return the components, int32 [B, K], of flat actions [B]."""
        f = self._factors()
        flat = _arrays.int32("actions", actions)
        bad = np.flatnonzero((flat < 0) | (flat >= self.spec.num_actions))
        if bad.size:
            raise _errors.ActionError(
                f"actions: row {bad[0]}: {flat[bad[0]]}; want 0 to {self.spec.num_actions - 1}"
            )
        return np.stack([flat // s % n for s, n in zip(f.strides, f.sizes, strict=True)], 1).astype(np.int32)

    def sample_factored(
        self,
        env_id: ArrayLike | None,
        logits_fn: LogitsFn,
        rng: np.random.Generator,
        *,
        state_id: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Draw an action for each environment or state, one component after the other.

        Args:
            env_id: Environments [B]; all if None.
            logits_fn: Called as ``logits_fn(k, prefix, mask)`` for each component k, with the components
                drawn so far, int32 [B, k], and which values are possible, bool [B, sizes[k]]. Returns
                logits [B, sizes[k]]; those of impossible values don't matter.
            rng: Where the draws come from.
            state_id: States [B] instead of environments.

        Returns:
            The flat actions, int32 [B], and the logarithms of their probabilities, float32 [B].

        Raises:
            InvalidArgumentError: A row has no legal action; or the logits have another shape or aren't
                finite where a value is possible.
        """
        f = self._factors()
        kind, rows = self._which(env_id, state_id)
        name = "state_id" if kind == "states" else "env_id"
        prefix, log_prob = np.empty((len(rows), 0), np.int32), np.zeros(len(rows), np.float64)
        for k, size in enumerate(f.sizes):
            mask = self.query_mask(prefix=prefix, strict=True, **{name: rows})
            logits = np.asarray(logits_fn(k, prefix, mask), np.float64)
            if logits.shape != (len(rows), size):
                raise _errors.InvalidArgumentError(
                    f"logits_fn({k}) has shape {logits.shape}; want {(len(rows), size)}"
                )
            if not np.isfinite(logits[mask]).all():
                raise _errors.InvalidArgumentError(f"logits_fn({k}) isn't finite where a value is possible")
            logits = np.where(mask, logits, -np.inf)
            drawn = np.argmax(logits + rng.gumbel(size=logits.shape), 1)
            log_prob += logits[np.arange(len(rows)), drawn] - np.logaddexp.reduce(logits, 1)
            prefix = np.concatenate([prefix, drawn[:, None].astype(np.int32)], 1)
        return self.encode_action(prefix), log_prob.astype(np.float32)


def _prefixes(
    f: Factorization, prefix: ArrayLike, prefix_len: ArrayLike | None, n: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return prefixes [n, stride] and their lengths [n]; values beyond a row's length become 0."""
    p = np.asarray(prefix)
    if p.size == 0 and p.ndim == 1:
        p = p.reshape(0).astype(np.int32)
    if p.ndim == 1:
        p = np.broadcast_to(p, (n, len(p)))
    if p.ndim != 2 or len(p) != n:
        raise _errors.InvalidArgumentError(f"prefix has shape {p.shape}; want [{n}, k], or [k] for all rows")
    if p.shape[1] >= len(f.sizes):
        raise _errors.InvalidArgumentError(
            f"prefix has {p.shape[1]} components; want at most {len(f.sizes) - 1} of the {len(f.sizes)}"
        )
    values = _arrays.int32("prefix", p.ravel()).reshape(p.shape)
    if prefix_len is None:
        lengths = np.full(n, p.shape[1], np.int32)
    else:
        lengths = _arrays.int32("prefix_len", prefix_len)
        if len(lengths) != n or (lengths < 0).any() or (lengths > p.shape[1]).any():
            raise _errors.InvalidArgumentError(
                f"prefix_len is {lengths}; want {n} numbers from 0 to {p.shape[1]}"
            )
        values = np.where(np.arange(p.shape[1]) < lengths[:, None], values, 0).astype(np.int32)
    _check_range("prefix", f, values, lengths)
    return np.ascontiguousarray(values), lengths


def _check_range(name: str, f: Factorization, values: NDArray[np.int32], lengths: NDArray[Any]) -> None:
    sizes = np.array(f.sizes[: values.shape[1]])
    bad = ((values < 0) | (values >= sizes)) & (np.arange(values.shape[1]) < lengths[:, None])
    if bad.any():
        row, k = (int(v) for v in np.argwhere(bad)[0])
        raise _errors.InvalidArgumentError(
            f"{name}: row {row}: component {k} ({f.names[k]}) is {values[row, k]}; want 0 to {f.sizes[k] - 1}"
        )
