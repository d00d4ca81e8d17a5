"""Draw the learning curve that an example logged.

python examples/alphazero/plot.py run.jsonl steps return curve.svg
"""

from __future__ import annotations

import json
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt


def main() -> None:
    """Read a log of JSON lines and draw one of its numbers over another."""
    if len(sys.argv) != 5:
        raise SystemExit(__doc__)
    log, across, up, out = sys.argv[1:]
    with open(log, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    figure, axes = plt.subplots(figsize=(5, 3))
    axes.plot([r[across] for r in rows], [r[up] for r in rows], marker=".")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    plt.rcParams["svg.hashsalt"] = "azserve"
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
