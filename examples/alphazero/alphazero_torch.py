"""AlphaZero for any azserve game of two players, in one file.

    python examples/alphazero/alphazero_torch.py --num-simulations 32

Games run side by side on the real rules. azserve searches all of them at once and asks the network for whole
batches; with ``--policy gumbel`` (Danihelka et al. 2022, "Policy improvement by planning with Gumbel") a few
simulations are enough to improve the policy. With several devices the network is copied to each, and both
searches and updates are split among them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import azserve


@dataclass
class Args:
    """What can be set; every field is a flag."""

    task: str = "ConnectFour-v0"  # game of two players whose observation is planes [rows, cols, channels]
    env_args: str = ""  # its keywords as JSON
    num_simulations: int = 32  # of each move's search
    policy: str = "gumbel"  # of the search: gumbel, muzero or alphazero
    num_envs: int = 128  # games side by side on each device
    moves: int = 24  # moves of each game between two updates
    minutes: float = 10.0  # when to stop
    buffer: int = 60_000  # positions to learn from, the newest
    updates: int = 24  # minibatches of an update
    batch: int = 512  # positions of a minibatch
    channels: int = 32  # of the network's convolutions
    learning_rate: float = 2e-3  # of AdamW
    eval_every: float = 60.0  # seconds between two matches
    eval_games: int = 200  # games of a match against random moves, half with either colour
    seed: int = 0  # of games, network and draws
    num_devices: int = 1  # GPUs, or copies on the CPU if there is none; 0 means all local devices
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


def devices(count: int) -> list[torch.device]:
    """Return the devices to use."""
    gpus = torch.cuda.device_count()
    if gpus == 0:
        return [torch.device("cpu", i) for i in range(max(count, 1))]
    if count > gpus:
        raise SystemExit(f"--num-devices {count}: there are {gpus}")
    return [torch.device("cuda", i) for i in range(count or gpus)]


class Net(nn.Module):
    """Convolutions with a policy and a value head; no batch statistics, so a row never depends on others."""

    def __init__(self, spec: azserve.Spec, channels: int) -> None:
        super().__init__()
        rows, cols, planes = spec.obs[0].shape
        body: list[nn.Module] = [nn.Conv2d(planes, channels, 3, padding=1), nn.ReLU()]
        for _ in range(3):
            body += [nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()]
        self.body = nn.Sequential(*body, nn.Flatten())
        flat = channels * rows * cols
        self.policy = nn.Sequential(nn.Linear(flat, 64), nn.ReLU(), nn.Linear(64, spec.num_actions))
        self.value = nn.Sequential(nn.Linear(flat, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())

    def forward(self, board: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits [B, A] and values [B] of boards [B, rows, cols, planes], from the mover's view."""
        h = self.body(board.float().permute(0, 3, 1, 2))
        return self.policy(h), self.value(h)[:, 0]


def evaluator(net: Net, device: torch.device) -> Callable[[dict[str, Any], Any], tuple[Any, Any]]:
    """Return the network as azserve.search asks for it."""

    @torch.inference_mode()
    def evaluate(obs: dict[str, np.ndarray], mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits, value = net(torch.from_numpy(next(iter(obs.values()))).to(device))
        return logits.cpu().numpy(), value.cpu().numpy()

    return evaluate


class Worker:
    """The games and the network's copy of one device."""

    def __init__(self, args: Args, device: torch.device, index: int) -> None:
        self.args, self.device, self.index = args, device, index
        keywords = json.loads(args.env_args or "{}")
        self.pool = azserve.make(args.task, args.num_envs, **keywords)
        if self.pool.spec.num_players != 2 or len(self.pool.spec.obs[0].shape) != 3:
            raise SystemExit(f"--task {args.task}: want a game of two whose observation is planes")
        self.net = Net(self.pool.spec, args.channels).to(device)
        self.obs, _ = self.pool.reset()
        self.open: list[list[tuple[Any, Any, int]]] = [[] for _ in range(args.num_envs)]
        self.turn, self.games, self.seed = np.zeros(args.num_envs, np.int32), 0, args.seed
        self.rng = np.random.default_rng((args.seed, index))

    def play(self) -> list[tuple[Any, Any, float]]:
        """Play some moves of every game; return positions (board, policy, result) of those that ended."""
        done_positions: list[tuple[Any, Any, float]] = []
        evaluate = evaluator(self.net, self.device)
        for _ in range(self.args.moves):
            self.seed += 1
            seed = self.seed * 1000 + self.index
            with self.pool.scope():
                result = azserve.search(
                    self.pool, self.pool.snapshot(), evaluate, seed=seed,
                    num_simulations=self.args.num_simulations, policy=self.args.policy,
                )  # fmt: skip
            board = next(iter(self.obs.values()))
            for i, game in enumerate(self.open):
                game.append((board[i], result.action_weights[i], int(self.turn[i])))
            self.obs, _, done, info = self.pool.step(result.action)
            for i in np.flatnonzero(done):
                done_positions += [(b, p, float(info["rewards"][i, t])) for b, p, t in self.open[i]]
                self.open[i] = []
            self.games += int(done.sum())
            self.turn = info["to_play"]
        return done_positions

    def loss(self, data: list[tuple[Any, Any, float]]) -> torch.Tensor:
        """Return the loss of a minibatch: cross-entropy of the policy and squared error of the value."""
        columns = [torch.from_numpy(np.array(x)).to(self.device) for x in zip(*data, strict=True)]
        board, policy, result = columns
        if self.rng.random() < 0.5:  # boards are played the same way mirrored, if an action is a column
            if self.pool.spec.num_actions == board.shape[2]:
                board, policy = board.flip(2), policy.flip(1)
        logits, value = self.net(board)
        cross = -(policy * logits.log_softmax(1)).sum(1).mean()
        return cross + (value - result.float()).square().mean()


def update(args: Args, workers: list[Worker], buffer: deque[Any], optimizer: torch.optim.Optimizer) -> None:
    """Learn from positions of the buffer; each device takes a part of every minibatch."""
    main, n = workers[0].net, len(workers)
    for _ in range(args.updates):
        picked = workers[0].rng.integers(len(buffer), size=args.batch)
        for k, w in enumerate(workers):
            w.net.zero_grad()
            (w.loss([buffer[i] for i in picked[k::n]]) / n).backward()
        for w in workers[1:]:
            for p, q in zip(main.parameters(), w.net.parameters(), strict=True):
                p.grad += q.grad.to(p.device)
        nn.utils.clip_grad_norm_(main.parameters(), 1.0)
        optimizer.step()
        for w in workers[1:]:
            w.net.load_state_dict(main.state_dict())


def match(args: Args, worker: Worker) -> float:
    """Return the score of the search against random moves; draws count one half."""
    rng, n = np.random.default_rng(1), args.eval_games
    keywords = json.loads(args.env_args or "{}")
    score, left = 0.0, np.ones(n, np.bool_)
    with azserve.make(args.task, n, autoreset="disabled", **keywords) as pool:
        obs, info = pool.reset()
        ours = np.arange(n) % 2  # our colour in each game
        while left.any():
            ids = np.flatnonzero(left)
            legal = obs["action_mask"].astype(np.float64)
            actions = np.array([rng.choice(len(m), p=m / m.sum()) for m in legal], np.int32)
            mine = info["to_play"] == ours[ids]
            if mine.any():
                with pool.scope():
                    result = azserve.search(
                        pool, pool.snapshot(ids[mine]), evaluator(worker.net, worker.device), seed=2,
                        num_simulations=args.num_simulations, policy="muzero", dirichlet_fraction=0.0,
                        temperature=0.0,
                    )  # fmt: skip
                actions[mine] = result.action
            pool.send(actions, ids)
            obs, _, done, info = pool.recv()
            score += float(((info["rewards"][np.arange(len(ids)), ours[ids]][done] + 1) / 2).sum())
            left[ids[done]] = False
            obs = {name: v[~done] for name, v in obs.items()}
            info = {"to_play": info["to_play"][~done]}
    return score / n


def train(args: Args) -> float:
    """Train until the time is up; return the last score against random moves."""
    torch.manual_seed(args.seed)
    workers = [Worker(args, device, i) for i, device in enumerate(devices(args.num_devices))]
    for w in workers[1:]:
        w.net.load_state_dict(workers[0].net.state_dict())
    optimizer = torch.optim.AdamW(workers[0].net.parameters(), args.learning_rate, weight_decay=1e-4)
    buffer: deque[Any] = deque(maxlen=args.buffer)
    began, next_match, score = time.monotonic(), 0.0, float("nan")
    with ThreadPoolExecutor(len(workers)) as threads:
        while True:
            seconds = time.monotonic() - began
            over = seconds >= 60 * args.minutes
            if seconds >= next_match or over:
                next_match = seconds + args.eval_every
                score = match(args, workers[0])
                report(args, seconds, sum(w.games for w in workers), score)
            if over:
                break
            for positions in threads.map(Worker.play, workers):
                buffer.extend(positions)
            if len(buffer) >= args.batch:
                update(args, workers, buffer, optimizer)
    for w in workers:
        w.pool.close()
    return score


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
