"""Speed of azserve as ratios against peers, measured in turns in one run.

A peer that isn't installed is left out; `make bench-peers` installs them. A rate is the best of several
short runs, so that other work on the machine disturbs as little as it can; search is counted in simulations a CPU
second, since peers use more threads than they are given.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import azserve
import eval_rows
import jax_rows
import mctx_peer
import pool_rows
import serving_rows
from measure import Row, in_turns, installed

os.environ.setdefault("JAX_PLATFORMS", "cpu")


# -- search ----------------------------------------------------------------------------------------


def azserve_search(policy: str, roots: int, sims: int, env: str = "ConnectFour-v0", num_threads: int | None = None):
    pool = azserve.make(env, num_envs=roots, num_threads=num_threads)
    pool.reset()
    ids = pool.snapshot()
    return lambda: azserve.search(pool, ids, "uniform", num_simulations=sims, policy=policy, seed=1)


def mctx_search(policy: str, roots: int, sims: int):
    import pgx

    return mctx_peer.search(pgx.make("connect_four"), mctx_peer.uniform, policy, roots, sims)


def gumbel_mcts_search(policy: str, roots: int, sims: int, game: str):
    import torch
    from game_logic.gomoku import GomokuLogic
    from game_logic.tictactoe import TicTacToeLogic
    from gumbel_mcts import PUCT, GumbelDense

    logic, side = {"TicTacToe": (TicTacToeLogic, 3), "Gomoku": (GomokuLogic, 15)}[game]
    cells = side * side

    class Uniform:
        def forward_for_mcts(self, batch):
            n = len(batch["current_player"])
            return {"policy": torch.full((n, cells), 1 / cells), "value": torch.zeros(n)}

    Uniform.logic = logic
    torch.set_num_threads(1)  # it only converts arrays
    search = GumbelDense if policy == "gumbel" else PUCT
    tree = search(n_games=roots, max_nodes=roots * (sims + 2) + 1, logic=logic, device="cpu")
    games, boards, players = list(range(roots)), np.zeros((roots, side, side), np.int8), np.ones(roots, np.int8)

    def run():
        tree.reset()
        tree.initialize_roots(games, boards, players)
        return tree.run_simulation_batch(Uniform(), games, num_simulations=sims)

    return run


def openspiel_search(sims: int):
    import pyspiel

    state = pyspiel.load_game("connect_four").new_initial_state()
    bot = pyspiel.MCTSBot(
        pyspiel.load_game("connect_four"), pyspiel.RandomRolloutEvaluator(1, 1), 1.4, sims, 1000, False, 1, False,
    )
    return lambda: bot.step(state)


def azserve_rollouts(sims: int):
    pool = azserve.make("ConnectFour-v0")
    pool.reset()
    ids = pool.snapshot()
    return lambda: azserve.search(pool, ids, "rollout", num_simulations=sims, policy="uct", seed=1)


def table_search(policy: str, table: dict[str, np.ndarray], roots: int, sims: int):
    pool = azserve.make("Table-v0", num_envs=roots, table={**table, "root": np.arange(roots) % 64})
    pool.reset()
    ids = pool.snapshot()
    return lambda: azserve.search(pool, ids, "table", num_simulations=sims, policy=policy, seed=1)


def random_table(actions: int, states: int = 512) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "next_state": rng.integers(states, size=(states, actions)),
        "reward": np.zeros((states, actions), np.float32),
        "discount": np.full((states, actions), -1, np.float32),
        "prior_logits": rng.normal(size=(states, actions)).astype(np.float32),
        "value": rng.uniform(-1, 1, size=states).astype(np.float32),
    }


def mctx_table(policy: str, roots: int, actions: int, sims: int):
    import jax
    import jax.numpy as jnp
    import mctx

    t = {k: jnp.asarray(v) for k, v in random_table(actions).items()}
    state = jnp.arange(roots) % 64

    def recurrent(_, key, action, state):
        nxt = t["next_state"][state, action]
        at = (state, action)
        out = mctx.RecurrentFnOutput(
            reward=t["reward"][at], discount=t["discount"][at], prior_logits=t["prior_logits"][nxt],
            value=t["value"][nxt],
        )
        return out, nxt

    @jax.jit
    def run(key):
        root = mctx.RootFnOutput(
            prior_logits=t["prior_logits"][state], value=t["value"][state], embedding=state
        )
        f = mctx.gumbel_muzero_policy if policy == "gumbel" else mctx.muzero_policy
        return f((), key, root, recurrent, sims).action

    key = jax.random.PRNGKey(1)
    return lambda: run(key).block_until_ready()


def stochastic_table(actions: int = 7, outcomes: int = 6, states: int = 512) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "afterstate": rng.integers(states, size=(states, actions)),
        "chance_logits": rng.normal(size=(states, outcomes)).astype(np.float32),
        "afterstate_value": rng.uniform(-1, 1, size=states).astype(np.float32),
        "next_state": rng.integers(states, size=(states, outcomes)),
        "reward": np.zeros((states, outcomes), np.float32),
        "discount": np.full((states, outcomes), -1, np.float32),
        "prior_logits": rng.normal(size=(states, actions)).astype(np.float32),
        "value": rng.uniform(-1, 1, size=states).astype(np.float32),
    }


def mctx_stochastic(roots: int, sims: int):
    import jax
    import jax.numpy as jnp
    import mctx

    t = {k: jnp.asarray(v) for k, v in stochastic_table().items()}
    state = jnp.arange(roots) % 64

    def decide(_, key, action, state):
        after = t["afterstate"][state, action]
        out = mctx.DecisionRecurrentFnOutput(
            chance_logits=t["chance_logits"][after], afterstate_value=t["afterstate_value"][after]
        )
        return out, after

    def happen(_, key, outcome, after):
        nxt = t["next_state"][after, outcome]
        at = (after, outcome)
        out = mctx.ChanceRecurrentFnOutput(
            action_logits=t["prior_logits"][nxt], value=t["value"][nxt], reward=t["reward"][at],
            discount=t["discount"][at],
        )
        return out, nxt

    @jax.jit
    def run(key):
        root = mctx.RootFnOutput(
            prior_logits=t["prior_logits"][state], value=t["value"][state], embedding=state
        )
        return mctx.stochastic_muzero_policy((), key, root, decide, happen, sims).action

    key = jax.random.PRNGKey(1)
    return lambda: run(key).block_until_ready()


def stochastic_rows(seconds: float, quick: bool):
    peers = installed("mctx") and not quick
    for roots in (1, 64, 256):
        theirs = mctx_stochastic(roots, 64) if peers else None
        ours = table_search("stochastic", stochastic_table(), roots, 64)
        a, b = in_turns(ours, theirs, roots * 64, seconds, time.process_time)
        what = f"search table, 7 actions, 6 outcomes, {roots} roots, 64 sims, stochastic (sims/CPU s)"
        yield Row(what, a, "mctx", b)


def table_rows(seconds: float, quick: bool):
    peers = installed("mctx") and not quick
    for actions, goals in ((7, ("8", "30")), (82, ("30", "30")), (362, ("25", "25"))):
        for roots in (1, 64, 256):
            for policy, goal in zip(("gumbel", "muzero"), goals, strict=True):
                theirs = mctx_table(policy, roots, actions, 64) if peers else None
                ours = table_search(policy, random_table(actions), roots, 64)
                a, b = in_turns(ours, theirs, roots * 64, seconds, time.process_time)
                what = f"search table, {actions} actions, {roots} roots, 64 sims, {policy} (sims/CPU s)"
                yield Row(what, a, "mctx", b, goal)


def search_rows(seconds: float, quick: bool):
    peers = installed("mctx", "pgx") and not quick
    goals = {("gumbel", 64): "6", ("muzero", 64): "20", ("gumbel", 256): "20", ("muzero", 256): "50"}
    for sims in (64, 256):
        for policy in ("gumbel", "muzero"):
            theirs = mctx_search(policy, 64, sims) if peers else None
            a, b = in_turns(azserve_search(policy, 64, sims), theirs, 64 * sims, seconds, time.process_time)
            yield Row(
                f"search ConnectFour, 64 roots, {sims} sims, {policy} (sims/CPU s)", a, "pgx + mctx", b,
                goals[policy, sims],
            )
    for policy, goal in (("alphazero", "4 M/s"), ("muzero", "4 M/s"), ("gumbel", "1.5 M/s")):
        a, _ = in_turns(azserve_search(policy, 64, 800), None, 64 * 800, seconds, time.process_time)
        yield Row(f"search ConnectFour, 64 roots, 800 sims, {policy} (sims/CPU s)", a, goal=goal)
    theirs = openspiel_search(1000) if installed("pyspiel") and not quick else None
    a, b = in_turns(azserve_rollouts(1000), theirs, 1000, seconds, time.process_time)
    what = "search ConnectFour, one root, 1000 sims, random playouts (sims/CPU s)"
    yield Row(what, a, "OpenSpiel's MCTSBot", b, "10")


def games_rows(seconds: float, quick: bool):
    peers = installed("gumbel_mcts") and not quick
    for game in ("TicTacToe", "Gomoku"):
        for roots in (64, 256):
            for policy, name in (("gumbel", "GumbelDense"), ("alphazero", "PUCT")):
                theirs = gumbel_mcts_search(policy, roots, 64, game) if peers else None
                ours = azserve_search(policy, roots, 64, f"{game}-v0")
                a, b = in_turns(ours, theirs, roots * 64, seconds, time.process_time)
                what = f"search {game}, {roots} roots, 64 sims, {policy} (sims/CPU s)"
                yield Row(what, a, f"gumbel-mcts' {name}", b, "5")


def growth_rows(seconds: float, quick: bool):
    """Show what more simulations and more roots do to the rate; there is no peer."""
    sizes = [(64, sims) for sims in (16, 64, 256, 1024, 4096)] + [(roots, 64) for roots in (1, 16, 64, 256, 1024)]
    for policy in ("gumbel", "alphazero"):
        for roots, sims in sizes:
            a, _ = in_turns(azserve_search(policy, roots, sims), None, roots * sims, seconds, time.process_time)
            yield Row(f"growth: ConnectFour, {roots} roots, {sims} sims, {policy} (sims/CPU s)", a)


def threads_rows(seconds: float, quick: bool):
    """Compare two threads with one, in simulations a second of wall-clock time."""
    two, one = (azserve_search("gumbel", 256, 256, num_threads=n) for n in (2, 1))
    a, b = in_turns(two, one, 256 * 256, seconds)
    what = "search ConnectFour, 256 roots, 256 sims, gumbel, two threads (sims/s)"
    yield Row(what, a, "azserve with one thread", b, "1.7")


def human(x: float) -> str:
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if x >= unit:
            return f"{x / unit:.2f}{name}"
    return f"{x:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each side of a row")
    parser.add_argument("--quick", action="store_true", help="leave the peers out that take long to compile")
    groups = {
        "search": search_rows, "table": table_rows, "stochastic": stochastic_rows, "games": games_rows,
        "growth": growth_rows, "threads": threads_rows, **pool_rows.GROUPS, **jax_rows.GROUPS,
        **eval_rows.GROUPS, **serving_rows.GROUPS,
    }
    parser.add_argument("--only", default="", help=f"rows whose group contains this: {', '.join(groups)}")
    args = parser.parse_args()
    print(f"| {'what':74} | {'azserve':>9} | {'peer':29} | {'its rate':>9} | {'ratio':>7} | {'at least':>8} |")
    print(f"| {'-' * 74} | {'-' * 9} | {'-' * 29} | {'-' * 9} | {'-' * 7} | {'-' * 8} |")
    for name, rows in groups.items():
        if args.only not in name:
            continue
        for r in rows(args.seconds, args.quick):
            ratio = f"{r.ours / r.theirs:.2f}" if r.theirs else ""
            theirs = human(r.theirs) if r.theirs else ""
            print(
                f"| {r.what:74} | {human(r.ours):>9} | {r.peer if r.theirs else '':29} | {theirs:>9} | {ratio:>7} "
                f"| {r.goal:>8} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
