"""How the benchmark measures: best rates of short runs, the two sides in turns."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Row:
    """One line of the table: rates in units a second, the ratio, and the least ratio aimed at."""

    what: str
    ours: float
    peer: str = ""
    theirs: float = 0.0
    goal: str = ""


def installed(*names: str) -> bool:
    return all(importlib.util.find_spec(n) for n in names)


def best(f: Callable[[], object], units: float, seconds: float, clock: Callable[[], float]) -> float:
    """Return the best rate of several short runs of f, which does `units` units."""
    f()
    top, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        calls, t0, w0 = 0, clock(), time.perf_counter()
        while calls == 0 or time.perf_counter() - w0 < seconds / 20:
            f()
            calls += 1
        top = max(top, calls * units / max(clock() - t0, 1e-9))
    return top


def in_turns(ours, theirs, units: float, seconds: float, clock=time.perf_counter) -> tuple[float, float]:
    """Measure both in turns, and return the best rate of each."""
    a = b = 0.0
    for _ in range(3):
        a = max(a, best(ours, units, seconds / 3, clock))
        if theirs is not None:
            b = max(b, best(theirs, units, seconds / 3, clock))
    return a, b
