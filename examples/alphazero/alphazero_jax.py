"""AlphaZero for any azserve game of two players through mctx, compiled as a whole, in one file.

    python examples/alphazero/alphazero_jax.py --num-simulations 32

The search knows the true rules: its embeddings are states of the Go simulator, as bytes in arrays (PureEnv),
and its steps are calls into Go from inside of the compiled program. Self-play, search and update run without
Python. Reference: Danihelka et al. 2022, "Policy improvement by planning with Gumbel".
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import optax

from azserve.jax_api import PureEnv, State

Params = dict[str, Any]


@dataclass
class Args:
    """What can be set; every field is a flag."""

    task: str = "ConnectFour-v0"  # game of two players with one observation array
    env_args: str = ""  # its keywords as JSON
    num_simulations: int = 32  # of each move's search
    num_envs: int = 128  # games side by side on each device
    moves: int = 24  # moves of each game between two updates
    minutes: float = 10.0  # when to stop
    rollouts: int = 16  # the newest of them are learned from
    updates: int = 12  # minibatches of an update
    batch: int = 512  # positions of a minibatch
    hidden: int = 256  # width of the network
    learning_rate: float = 1e-3  # of AdamW
    eval_every: float = 60.0  # seconds between two matches
    eval_games: int = 200  # games of a match against random moves, half with either colour
    seed: int = 0  # of network and draws
    num_devices: int = 1  # devices; 0 means all local ones
    log: str = ""  # JSON lines: seconds, games, score against random moves (1 win, 0.5 draw)


def parse_args() -> Args:
    """Read the flags."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    for f in dataclasses.fields(Args):
        default = f.default
        parser.add_argument(
            "--" + f.name.replace("_", "-"), type=type(default), default=default, help=f"default: {default!r}"
        )
    return Args(**vars(parser.parse_args()))


def dense(key: jax.Array, inputs: int, outputs: int, scale: float = 1.0) -> Params:
    """Return the weights of a layer."""
    w = jax.random.normal(key, (inputs, outputs)) * scale * np.sqrt(2 / inputs)
    return {"w": w, "b": jnp.zeros(outputs)}


def apply_layer(p: Params, x: jax.Array) -> jax.Array:
    """Return a layer's answer."""
    return x @ p["w"] + p["b"]


def init_net(key: jax.Array, inputs: int, hidden: int, actions: int) -> Params:
    """Return the weights of two residual blocks with a policy and a value head."""
    k = jax.random.split(key, 7)
    body = {
        f"block{i}": [dense(k[2 * i], hidden, hidden), dense(k[2 * i + 1], hidden, hidden, 0.1)]
        for i in (0, 1)
    }
    heads = {"policy": dense(k[4], hidden, actions, 0.01), "value": dense(k[5], hidden, 1, 0.1)}
    return {"first": dense(k[6], inputs, hidden), **body, **heads}


def apply_net(p: Params, board: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return logits [B, A] and values [B] of boards, from the mover's view."""
    h = jax.nn.relu(apply_layer(p["first"], board.reshape(len(board), -1).astype(jnp.float32)))
    for name in ("block0", "block1"):
        one, two = p[name]
        h = jax.nn.relu(h + apply_layer(two, jax.nn.relu(apply_layer(one, h))))
    return apply_layer(p["policy"], h), jnp.tanh(apply_layer(p["value"], h)[:, 0])


class Game:
    """The game with its search."""

    def __init__(self, args: Args) -> None:
        self.args = args
        self.env = PureEnv(args.task, **json.loads(args.env_args or "{}"))
        if self.env.num_players != 2 or len(self.env.spec.obs) != 1:
            raise SystemExit(f"--task {args.task}: want a game of two with one observation array")
        self.init, self.step = jax.vmap(self.env.init), jax.vmap(self.env.step)

    def search(self, params: Params, key: jax.Array, state: State, scale: float) -> Any:
        """Search from states; scale 0 takes the draws out."""

        def look(state: State) -> tuple[jax.Array, jax.Array]:
            logits, value = apply_net(params, state.observation)
            return jnp.where(state.legal_action_mask, logits, jnp.finfo(logits.dtype).min), value

        def recurrent(_: Any, key: jax.Array, action: jax.Array, state: State) -> Any:
            mover = state.current_player
            state = self.step(state, action)
            logits, value = look(state)
            over = state.terminated | state.truncated
            reward = jnp.take_along_axis(state.rewards, mover[:, None], 1)[:, 0]
            output = mctx.RecurrentFnOutput(
                reward=reward,
                discount=jnp.where(over, 0.0, jnp.where(state.current_player == mover, 1.0, -1.0)),
                prior_logits=logits,
                value=jnp.where(over, 0.0, value),
            )
            return output, state

        logits, value = look(state)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        return mctx.gumbel_muzero_policy(
            params,
            key,
            root,
            recurrent,
            self.args.num_simulations,
            invalid_actions=~state.legal_action_mask,
            gumbel_scale=scale,
        )

    def play(self, params: Params, state: State, key: jax.Array) -> Any:
        """Play some moves of every game, ended ones beginning anew."""

        def move(carry: Any, _: None) -> Any:
            state, key = carry
            key, search_key, init_key = jax.random.split(key, 3)
            output = self.search(params, search_key, state, 1.0)
            mover, after = state.current_player, self.step(state, output.action)
            done = after.terminated | after.truncated
            reward = jnp.take_along_axis(after.rewards, mover[:, None], 1)[:, 0]
            fresh = self.init(jax.random.split(init_key, self.args.num_envs))
            row = lambda a, b: jnp.where(done.reshape(-1, *[1] * (a.ndim - 1)), a, b)  # noqa: E731
            seen = {
                "board": state.observation,
                "policy": output.action_weights,
                "reward": reward,
                "done": done,
            }
            seen["turned"] = after.current_player != mover
            return (jax.tree.map(row, fresh, after), key), seen

        return jax.lax.scan(move, (state, key), None, self.args.moves)

    def results(self, seen: Any) -> tuple[jax.Array, jax.Array]:
        """Return each position's result from its mover's view, and whether its game ended in the data."""

        def back(carry: Any, t: Any) -> Any:
            value, known = carry
            value = jnp.where(t["done"], t["reward"], jnp.where(t["turned"], -value, value))
            known = t["done"] | known
            return (value, known), (value, known)

        n = self.args.num_envs
        return jax.lax.scan(back, (jnp.zeros(n), jnp.zeros(n, bool)), seen, reverse=True)[1]

    def match(self, params: Params, key: jax.Array) -> jax.Array:
        """Return the score of the search against random moves."""
        n = self.args.eval_games
        ours = jnp.arange(n) % 2

        def more(carry: Any) -> jax.Array:
            state, _, _ = carry
            return ~(state.terminated | state.truncated).all()

        def move(carry: Any) -> Any:
            state, score, key = carry
            key, search_key, random_key = jax.random.split(key, 3)
            mine = self.search(params, search_key, state, 0.0).action
            theirs = jax.random.categorical(random_key, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
            action = jnp.where(state.current_player == ours, mine, theirs)
            after = self.step(state, action)
            ended = (after.terminated | after.truncated) & ~(state.terminated | state.truncated)
            gained = (jnp.take_along_axis(after.rewards, ours[:, None], 1)[:, 0] + 1) / 2
            return after, score + jnp.where(ended, gained, 0.0), key

        first = self.init(jax.random.split(key, n))
        return jax.lax.while_loop(more, move, (first, jnp.zeros(n), key))[1].mean()


def make_update(args: Args, game: Game, optimizer: optax.GradientTransformation) -> Any:
    """Return self-play with its update, of one device."""

    def loss(params: Params, d: Any) -> jax.Array:
        logits, value = apply_net(params, d["board"])
        cross = -(d["policy"] * jax.nn.log_softmax(logits)).sum(1).mean()
        return cross + (jnp.square(value - d["result"]) * d["known"]).mean()

    def minibatch(state: Any, d: Any) -> Any:
        params, opt = state
        grads = jax.lax.pmean(jax.grad(loss)(params, d), "devices")
        updates, opt = optimizer.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), None

    size = args.num_envs * args.moves

    def update(params: Params, opt: Any, state: State, buffer: Any, turn: jax.Array, key: jax.Array) -> Any:
        (state, key), seen = game.play(params, state, key)
        seen["result"], seen["known"] = game.results(seen)
        data = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), seen)
        at = turn % args.rollouts * size
        buffer = jax.tree.map(lambda b, v: jax.lax.dynamic_update_slice_in_dim(b, v, at, 0), buffer, data)
        key, pick_key, turn_key = jax.random.split(key, 3)
        filled = jnp.minimum(turn + 1, args.rollouts) * size
        picked = jax.random.randint(pick_key, (args.updates, args.batch), 0, filled)
        parts = mirrored(turn_key, jax.tree.map(lambda b: b[picked], buffer))
        (params, opt), _ = jax.lax.scan(minibatch, (params, opt), parts)
        return params, opt, state, buffer, key, seen["done"].sum()

    def mirrored(key: jax.Array, d: Any) -> Any:
        """Mirror every other position, if an action is a column of the board."""
        if game.env.num_actions != game.env.observation_shape[1]:
            return d
        flip = jax.random.bernoulli(key, shape=d["known"].shape)
        board = jnp.where(flip[..., None, None, None], jnp.flip(d["board"], 3), d["board"])
        return d | {
            "board": board,
            "policy": jnp.where(flip[..., None], jnp.flip(d["policy"], 2), d["policy"]),
        }

    return update


def empty_buffer(args: Args, game: Game) -> Any:
    """Return room for what ``play`` and ``results`` say of the positions to learn from."""
    n = args.rollouts * args.num_envs * args.moves
    board = jnp.zeros((n, *game.env.observation_shape), game.env.spec.obs[0].dtype)
    numbers, flags = jnp.zeros(n), jnp.zeros(n, bool)
    buffer = {
        "board": board,
        "policy": jnp.zeros((n, game.env.num_actions)),
        "reward": numbers,
        "done": flags,
    }
    return buffer | {"turned": flags, "result": numbers, "known": flags}


def train(args: Args) -> float:
    """Train until the time is up; return the last score against random moves."""
    local = jax.local_device_count()
    n = args.num_devices or local
    if n > local:
        raise SystemExit(f"--num-devices {n}: there are {local}")
    game = Game(args)
    optimizer = optax.adamw(args.learning_rate, weight_decay=1e-4)
    key = jax.random.key(args.seed)
    inputs = int(np.prod(game.env.observation_shape))
    params = init_net(key, inputs, args.hidden, game.env.num_actions)
    params, opt = (jax.tree.map(lambda v: jnp.stack([v] * n), t) for t in (params, optimizer.init(params)))
    keys = jax.random.split(key, n)
    state = jax.pmap(lambda k: game.init(jax.random.split(k, args.num_envs)))(keys)
    buffer = jax.tree.map(lambda v: jnp.stack([v] * n), empty_buffer(args, game))
    axes = (0, 0, 0, 0, None, 0)
    update = jax.pmap(make_update(args, game, optimizer), axis_name="devices", in_axes=axes, donate_argnums=3)
    match = jax.jit(game.match)
    began, next_match, games, turn = time.monotonic(), 0.0, 0, 0
    while True:
        seconds = time.monotonic() - began
        over = seconds >= 60 * args.minutes
        if seconds >= next_match or over:
            next_match = seconds + args.eval_every
            score = float(match(jax.tree.map(lambda v: v[0], params), key))
            report(args, seconds, games, score)
        if over:
            return score
        params, opt, state, buffer, keys, ended = update(params, opt, state, buffer, turn, keys)
        games, turn = games + int(ended.sum()), turn + 1


def report(args: Args, seconds: float, games: int, score: float) -> None:
    """Say how far it is."""
    left = max(0.0, 60 * args.minutes - seconds)
    text = f"{seconds:6.0f} s  {games:>7} games  {score:.3f} against random moves"
    print(f"{text}  {left:5.0f} s left", flush=True)
    if args.log:
        with open(args.log, "a", encoding="utf-8") as f:
            f.write(json.dumps({"seconds": seconds, "games": games, "score": score}) + "\n")


if __name__ == "__main__":
    train(parse_args())
