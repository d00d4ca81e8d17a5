"""PPO on any azserve environment of one player, in one file.

    python examples/alphazero/ppo_torch.py --task Maze-v0

Environments run on azserve's threads and hand their results to torch without a copy. Illegal actions are
masked. With several devices each has environments and a copy of the network of its own, and gradients are
averaged. Reference: Schulman et al. 2017, "Proximal Policy Optimization Algorithms"; GAE as Schulman et al.
2015.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from azserve.torch_api import TorchEnvPool


@dataclass
class Args:
    """What can be set; every field is a flag."""

    task: str = "Maze-v0"  # environment of one player
    env_args: str = ""  # its keywords as JSON; for Maze-v0 {"obs": "planes"}
    total_steps: int = 300_000  # environment steps over all devices
    num_envs: int = 64  # environments of each device
    num_steps: int = 64  # steps of each environment between two updates
    epochs: int = 4  # passes over the data of an update
    minibatches: int = 8  # parts of a pass
    learning_rate: float = 1e-3  # of Adam at the start; falls to 0 linearly
    gamma: float = 0.99  # discount of a step
    gae_lambda: float = 0.95  # 0 trusts the value function, 1 the returns
    clip: float = 0.2  # largest change of an action's probability ratio that counts
    entropy: float = 0.01  # weight of the entropy bonus
    value_weight: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # gradients are cut to this length
    seed: int = 0  # of environments, network and draws
    num_devices: int = 1  # GPUs, or copies on the CPU if there is none; 0 means all local devices
    log: str = ""  # JSON lines: steps, seconds, mean return of the last 100 episodes


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


class Agent(nn.Module):
    """A policy and a value function: convolutions where an observation is planes, else dense layers."""

    def __init__(self, pool: TorchEnvPool) -> None:
        super().__init__()
        self.names = [a.name for a in pool.spec.obs]
        first = pool.spec.obs[0]
        self.planes = len(self.names) == 1 and len(first.shape) == 3
        if self.planes:
            channels, rows, cols = first.shape
            body: list[nn.Module] = [nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU()]
            body += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
            body += [nn.Flatten(), nn.Linear(32 * rows * cols, 256), nn.ReLU()]
        else:
            inputs = sum(int(np.prod(a.shape)) for a in pool.spec.obs)
            body = [nn.Linear(inputs, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()]
        self.body = nn.Sequential(*body)
        self.policy, self.value = nn.Linear(256, pool.spec.num_actions), nn.Linear(256, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)

    def features(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return what the network reads, float32."""
        if self.planes:
            return obs[self.names[0]].float()
        return torch.cat([obs[n].float().flatten(1) for n in self.names], 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Return the policy over legal actions and the value."""
        h = self.body(x)
        logits = self.policy(h).masked_fill(~mask, -1e9)
        return Categorical(logits=logits), self.value(h)[:, 0]


class Worker:
    """The environments and the network's copy of one device."""

    def __init__(self, args: Args, device: torch.device, index: int) -> None:
        keywords = json.loads(args.env_args or "{}")
        if args.task == "Maze-v0":
            keywords.setdefault("obs", "planes")
        self.args, self.device = args, device
        seed = args.seed + index * args.num_envs
        self.pool = TorchEnvPool(args.task, args.num_envs, device=device, seed=seed, **keywords)
        if self.pool.spec.num_players != 1:
            raise SystemExit(f"--task {args.task}: {self.pool.spec.num_players} players; want one")
        self.agent = Agent(self.pool).to(device)
        self.obs = self.pool.reset()[0]
        self.running = np.zeros(args.num_envs)
        self.returns: list[float] = []

    def mask(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the legal actions; in an ended state, where there are none, all."""
        if "action_mask" not in obs:
            n = len(next(iter(obs.values())))
            return torch.ones(n, self.pool.spec.num_actions, dtype=torch.bool, device=self.device)
        mask = obs["action_mask"]
        return mask | ~mask.any(1, keepdim=True)

    @torch.no_grad()
    def rollout(self) -> dict[str, torch.Tensor]:
        """Play num_steps steps and return them with their advantages."""
        keys = "x", "mask", "action", "log_prob", "value", "reward", "done"
        steps: dict[str, list[torch.Tensor]] = {k: [] for k in keys}
        for _ in range(self.args.num_steps):
            x, mask = self.agent.features(self.obs), self.mask(self.obs)
            policy, value = self.agent(x, mask)
            action = policy.sample()
            self.obs, reward, done, info = self.pool.step(action)
            self._count(reward, done)
            reward = reward + self._beyond(done, info)
            row = x, mask, action, policy.log_prob(action), value, reward, done
            for k, v in zip(keys, row, strict=True):
                steps[k].append(v)
        data = {k: torch.stack(v) for k, v in steps.items()}
        last = self.agent(self.agent.features(self.obs), self.mask(self.obs))[1]
        data["advantage"] = self._advantages(data, last)
        data["return"] = data["advantage"] + data["value"]
        return {k: v.flatten(0, 1) for k, v in data.items()}

    def _count(self, reward: torch.Tensor, done: torch.Tensor) -> None:
        self.running += reward.cpu().numpy()
        for i in torch.nonzero(done)[:, 0].tolist():
            self.returns.append(float(self.running[i]))
            self.running[i] = 0

    def _beyond(self, done: torch.Tensor, info: dict[str, Any]) -> torch.Tensor:
        """Return what a time limit cut off: the discounted value of the last observation."""
        out = torch.zeros(len(done), device=self.device)
        if "final_obs" in info:
            final = info["final_obs"]
            mask = torch.ones(len(next(iter(final.values()))), self.pool.spec.num_actions, dtype=torch.bool)
            value = self.agent(self.agent.features(final), mask.to(self.device))[1]
            out[done] = self.args.gamma * value * (info["truncated"] & ~info["terminated"])[done]
        return out

    def _advantages(self, data: dict[str, torch.Tensor], last: torch.Tensor) -> torch.Tensor:
        """Return generalised advantage estimates [T, N]."""
        a, out, running = self.args, torch.zeros_like(data["reward"]), torch.zeros_like(last)
        after = last
        for t in reversed(range(a.num_steps)):
            live = (~data["done"][t]).float()
            delta = data["reward"][t] + a.gamma * after * live - data["value"][t]
            running = delta + a.gamma * a.gae_lambda * live * running
            out[t], after = running, data["value"][t]
        return out

    def loss(self, d: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return PPO's loss of a minibatch."""
        policy, value = self.agent(d["x"], d["mask"])
        ratio = (policy.log_prob(d["action"]) - d["log_prob"]).exp()
        advantage = (d["advantage"] - d["advantage"].mean()) / (d["advantage"].std() + 1e-8)
        clipped = ratio.clamp(1 - self.args.clip, 1 + self.args.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        error = (value - d["return"]).square().mean()
        return -gain + self.args.value_weight * error - self.args.entropy * policy.entropy().mean()


def update(args: Args, workers: list[Worker], optimizer: torch.optim.Optimizer) -> None:
    """Learn from one rollout of every worker."""
    main = workers[0].agent
    data = [w.rollout() for w in workers]
    size = args.num_envs * args.num_steps
    for _ in range(args.epochs):
        for part in torch.randperm(size).chunk(args.minibatches):
            for w, d in zip(workers, data, strict=True):
                w.agent.zero_grad()
                w.loss({k: v[part.to(w.device)] for k, v in d.items()}).backward()
            for w in workers[1:]:
                for p, q in zip(main.parameters(), w.agent.parameters(), strict=True):
                    p.grad += q.grad.to(p.device)
            for p in main.parameters():
                p.grad /= len(workers)
            nn.utils.clip_grad_norm_(main.parameters(), args.max_grad_norm)
            optimizer.step()
            for w in workers[1:]:
                w.agent.load_state_dict(main.state_dict())


def train(args: Args) -> float:
    """Train and return the mean return of the last 100 episodes."""
    torch.manual_seed(args.seed)
    workers = [Worker(args, device, i) for i, device in enumerate(devices(args.num_devices))]
    for w in workers[1:]:
        w.agent.load_state_dict(workers[0].agent.state_dict())
    optimizer = torch.optim.Adam(workers[0].agent.parameters(), args.learning_rate, eps=1e-5)
    per_update = args.num_envs * args.num_steps * len(workers)
    updates = max(1, args.total_steps // per_update)
    began, mean = time.monotonic(), float("nan")
    for k in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - (k - 1) / updates)
        update(args, workers, optimizer)
        returns = [r for w in workers for r in w.returns[-100 // len(workers) :]]
        mean, seconds, steps = float(np.mean(returns or [np.nan])), time.monotonic() - began, k * per_update
        if k % max(1, updates // 50) == 0 or k == updates:
            left = seconds / k * (updates - k)
            rate = f"{steps:>9} steps  {steps / seconds:>6.0f}/s"
            print(f"{rate}  return {mean:6.3f}  {left:4.0f} s left", flush=True)
            if args.log:
                with open(args.log, "a", encoding="utf-8") as f:
                    f.write(json.dumps({"steps": steps, "seconds": seconds, "return": mean}) + "\n")
    for w in workers:
        w.pool.close()
    return mean


if __name__ == "__main__":
    train(parse_args())
