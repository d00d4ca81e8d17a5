"""Serve a JAX network to an azserve server: run it on the machine with the GPU.

    bin/azserve serve --env ConnectFour-v0 &
    python examples/serving/evaluator_jax.py --model jax

Searches with evaluator="jax" then use it. Batches are padded to a few sizes, so that each is compiled once.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import azserve

SIZES = (1, 8, 64, 256)


def init(key, features, hidden, actions):
    """Return random weights of a network with one hidden layer."""
    a, b, c = jax.random.split(key, 3)
    return {
        "hidden": jax.random.normal(a, (features, hidden)) / np.sqrt(features),
        "policy": jax.random.normal(b, (hidden, actions)) / np.sqrt(hidden),
        "value": jax.random.normal(c, (hidden,)) / np.sqrt(hidden),
    }


@jax.jit
def apply(params, x):
    """Return prior logits and values."""
    h = jax.nn.relu(x @ params["hidden"])
    return h @ params["policy"], jnp.tanh(h @ params["value"])


def evaluator(params):
    """Return what serve_evaluator calls: it keeps these weights."""

    def evaluate(obs, action_mask):
        arrays = [a.reshape(len(a), -1) for name, a in obs.items() if name != "action_mask"]
        x = np.concatenate(arrays, 1).astype(np.float32)
        n = len(x)
        room = next((s for s in SIZES if s >= n), n)
        logits, value = apply(params, np.pad(x, ((0, room - n), (0, 0))))
        return np.asarray(logits)[:n], np.asarray(value)[:n]

    return evaluate


def main(argv=None):
    """Serve until Ctrl-C."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--target", default="127.0.0.1:50051", help="the server (default: %(default)s)")
    parser.add_argument("--env", default="ConnectFour-v0", help="environment (default: %(default)s)")
    parser.add_argument("--model", default="jax", help="what searches call it (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=128, help="units (default: %(default)s)")
    args = parser.parse_args(argv)
    spec = azserve.spec(args.env)
    features = sum(int(np.prod(a.shape)) for a in spec.obs)
    params = init(jax.random.key(0), features, args.hidden, spec.num_actions)
    print(f"serving {args.model} on {jax.default_backend()}", flush=True)
    try:
        azserve.serve_evaluator(args.target, args.model, evaluator(params), max_batch=SIZES[-1])
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
