"""PPO on any azserve environment of one player, compiled as a whole, in one file.

    python examples/alphazero/ppo_jax.py --task Maze-v0

Rollout and update are one compiled program: the Go simulator is called from inside of it. Illegal actions are
masked, and a time limit counts as an end. With several devices each has environments of its own, and
gradients are averaged. Reference: Schulman et al. 2017, "Proximal Policy Optimization Algorithms".
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
import numpy as np
import optax

from azserve.jax_api import JaxPool

Params = dict[str, Any]


@dataclass
class Args:
    """What can be set; every field is a flag."""

    task: str = "Maze-v0"  # environment of one player
    env_args: str = ""  # its keywords as JSON; for Maze-v0 {"obs": "planes"}
    total_steps: int = 5_000_000  # environment steps over all devices
    num_envs: int = 128  # environments of each device
    num_steps: int = 64  # steps of each environment between two updates
    epochs: int = 4  # passes over the data of an update
    minibatches: int = 8  # parts of a pass
    hidden: int = 256  # width of the network
    learning_rate: float = 1e-3  # of Adam at the start; falls to 0 linearly
    gamma: float = 0.99  # discount of a step
    gae_lambda: float = 0.95  # 0 trusts the value function, 1 the returns
    clip: float = 0.2  # largest change of an action's probability ratio that counts
    entropy: float = 0.01  # weight of the entropy bonus
    value_weight: float = 0.5  # weight of the value loss
    max_grad_norm: float = 0.5  # gradients are cut to this length
    seed: int = 0  # of environments, network and draws
    num_devices: int = 1  # devices; 0 means all local ones
    log: str = ""  # JSON lines: steps, seconds, mean return of the episodes since the last line


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
    """Return the weights of a policy and a value function on one body."""
    k = jax.random.split(key, 4)
    return {
        "one": dense(k[0], inputs, hidden),
        "two": dense(k[1], hidden, hidden),
        "policy": dense(k[2], hidden, actions, 0.01),
        "value": dense(k[3], hidden, 1, 0.1),
    }


def apply_net(p: Params, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return log-probabilities of actions, illegal ones left out, and values."""
    h = jax.nn.relu(apply_layer(p["one"], x))
    h = jax.nn.relu(apply_layer(p["two"], h))
    logits = jnp.where(mask, apply_layer(p["policy"], h), -1e9)
    return jax.nn.log_softmax(logits), apply_layer(p["value"], h)[:, 0]


def features(obs: dict[str, jax.Array], num_actions: int) -> tuple[jax.Array, jax.Array]:
    """Return what the network reads, and the legal actions; all of them in an ended state."""
    parts = [v.reshape(len(v), -1).astype(jnp.float32) for name, v in obs.items() if name != "action_mask"]
    x = jnp.concatenate(parts, 1)
    mask = obs.get("action_mask", jnp.ones((len(x), num_actions), bool))
    return x, mask | ~mask.any(1, keepdims=True)


def make_update(args: Args, pool: JaxPool, optimizer: optax.GradientTransformation) -> Any:
    """Return one rollout with its update, of one device."""
    actions = pool.spec.num_actions

    def rollout(params: Params, carry: Any) -> Any:
        def one(carry: Any, _: None) -> Any:
            handle, x, mask, running, key = carry
            key, sub = jax.random.split(key)
            log_p, value = apply_net(params, x, mask)
            action = jax.random.categorical(sub, log_p).astype(jnp.int32)
            handle, (obs, reward, done, _) = pool.step_with(handle, action)
            running = running + reward
            chosen = jnp.take_along_axis(log_p, action[:, None], 1)[:, 0]
            step = {"x": x, "mask": mask, "action": action, "log_p": chosen, "value": value, "reward": reward}
            step |= {"done": done, "return": jnp.where(done, running, 0.0)}
            return (handle, *features(obs, actions), jnp.where(done, 0.0, running), key), step

        return jax.lax.scan(one, carry, None, args.num_steps)

    def advantages(steps: Any, last: jax.Array) -> jax.Array:
        def back(carry: Any, t: Any) -> Any:
            running, after = carry
            live = 1.0 - t["done"]
            delta = t["reward"] + args.gamma * after * live - t["value"]
            running = delta + args.gamma * args.gae_lambda * live * running
            return (running, t["value"]), running

        return jax.lax.scan(back, (jnp.zeros_like(last), last), steps, reverse=True)[1]

    def loss(params: Params, d: Any) -> jax.Array:
        log_p, value = apply_net(params, d["x"], d["mask"])
        chosen = jnp.take_along_axis(log_p, d["action"][:, None], 1)[:, 0]
        ratio = jnp.exp(chosen - d["log_p"])
        a = (d["advantage"] - d["advantage"].mean()) / (d["advantage"].std() + 1e-8)
        gain = jnp.minimum(ratio * a, jnp.clip(ratio, 1 - args.clip, 1 + args.clip) * a).mean()
        error = jnp.square(value - d["target"]).mean()
        entropy = -(jnp.exp(log_p) * log_p).sum(1).mean()
        return -gain + args.value_weight * error - args.entropy * entropy

    def minibatch(state: Any, d: Any) -> Any:
        params, opt = state
        grads = jax.lax.pmean(jax.grad(loss)(params, d), "devices")
        updates, opt = optimizer.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), None

    def update(params: Params, opt: Any, carry: Any) -> Any:
        carry, steps = rollout(params, carry)
        last = apply_net(params, carry[1], carry[2])[1]
        steps["advantage"] = advantages(steps, last)
        steps["target"] = steps["advantage"] + steps["value"]
        size = args.num_envs * args.num_steps
        data = jax.tree.map(lambda v: v.reshape(size, *v.shape[2:]), steps)
        handle, x, mask, running, key = carry
        for _ in range(args.epochs):
            key, sub = jax.random.split(key)
            order = jax.random.permutation(sub, size).reshape(args.minibatches, -1)
            parts = jax.tree.map(lambda v, order=order: v[order], data)
            (params, opt), _ = jax.lax.scan(minibatch, (params, opt), parts)
        ended = steps["done"].sum(), steps["return"].sum()
        return params, opt, (handle, x, mask, running, key), ended

    return update


def train(args: Args) -> float:
    """Train and return the mean return of the last episodes."""
    keywords = json.loads(args.env_args or "{}")
    if args.task == "Maze-v0":
        keywords.setdefault("obs", "planes")
    local = jax.local_device_count()
    n = args.num_devices or local
    if n > local:
        raise SystemExit(f"--num-devices {n}: there are {local}")
    pool = JaxPool(args.task, args.num_envs, num_devices=n, seed=args.seed, **keywords)
    if pool.spec.num_players != 1:
        raise SystemExit(f"--task {args.task}: {pool.spec.num_players} players; want one")
    per_update = args.num_envs * args.num_steps * n
    updates = max(1, args.total_steps // per_update)
    rate = optax.linear_schedule(args.learning_rate, 0.0, updates * args.epochs * args.minibatches)
    optimizer = optax.chain(optax.clip_by_global_norm(args.max_grad_norm), optax.adam(rate))
    key = jax.random.key(args.seed)
    inputs = sum(int(np.prod(a.shape)) for a in pool.spec.obs)
    params = init_net(key, inputs, args.hidden, pool.spec.num_actions)
    params, opt = (jax.tree.map(lambda v: jnp.stack([v] * n), t) for t in (params, optimizer.init(params)))
    handles, keys = pool.handle.reshape(n, 4), jax.random.split(key, n)

    def begin(handle: jax.Array, key: jax.Array) -> Any:
        handle, (obs, *_) = pool.reset_with(handle, key)
        return handle, *features(obs, pool.spec.num_actions), jnp.zeros(args.num_envs), key

    carry = jax.pmap(begin)(handles, keys)
    update = jax.pmap(make_update(args, pool, optimizer), axis_name="devices")
    began, episodes, total, mean = time.monotonic(), 0.0, 0.0, float("nan")
    for k in range(1, updates + 1):
        params, opt, carry, ended = update(params, opt, carry)
        episodes, total = episodes + float(ended[0].sum()), total + float(ended[1].sum())
        if (k % max(1, updates // 50) == 0 or k == updates) and episodes:
            mean, seconds, steps = total / episodes, time.monotonic() - began, k * per_update
            episodes = total = 0.0
            text = f"{steps:>9} steps  {steps / seconds:>6.0f}/s  return {mean:6.3f}"
            print(f"{text}  {seconds / k * (updates - k):4.0f} s left", flush=True)
            if args.log:
                with open(args.log, "a", encoding="utf-8") as f:
                    f.write(json.dumps({"steps": steps, "seconds": seconds, "return": mean}) + "\n")
    jax.block_until_ready(params)
    pool.close()
    return mean


if __name__ == "__main__":
    train(parse_args())
