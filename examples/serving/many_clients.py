"""A learner's data from a server: one process evaluates, others ask for searches.

    bin/azserve serve --env ConnectFour-v0 &
    python examples/serving/many_clients.py --searches 10000 --clients 8 --check

--check makes the same searches in process, and compares them bit for bit. The evaluator is NumPy here;
evaluator_jax.py and evaluator_torch.py serve networks in the same way.
"""

import argparse
import multiprocessing
import queue
import time

import numpy as np

import azserve

MODEL = "numpy"
SIMULATIONS = 32


def network(obs, action_mask):
    """Stand in for a network: exact in float32, so that no batch size changes a bit."""
    board = obs["board"].reshape(len(action_mask), -1).astype(np.float32)
    weights = ((np.arange(board.shape[1]) * 37) % 101 - 50).astype(np.float32) / 4096
    value = (board * weights).sum(1)  # multiples of 1/4096, below 1
    logits = value[:, None] * np.arange(action_mask.shape[1], dtype=np.float32)
    return logits, value


def positions(pool, rng, count):
    """Return states a few random moves from the start."""
    pool.reset()
    states = pool.snapshot()[:1].repeat(count)
    for _ in range(int(rng.integers(1, 8))):
        _, info = pool.observe(state_id=states)
        scores = np.where(info["action_mask"], rng.random(info["action_mask"].shape), -1)
        _, _, _, child = pool.simulate_batch(states, scores.argmax(1))
        states = child["state_id"]
    return states


def client(target, number, searches, batch, out):
    """Search, in a process of its own."""
    rng = np.random.default_rng(number)
    rows = []
    with azserve.connect(target) as server:
        pool = server.make("ConnectFour-v0")
        for at in range(0, searches, batch):
            with pool.scope():
                states = positions(pool, rng, min(batch, searches - at))
                result = azserve.search(
                    pool, states, MODEL, num_simulations=SIMULATIONS, seed=number * 1_000_003 + at
                )
                rows.append((pool.dump(states), result))
    out.put((number, rows))


def check(number, rows, batch):
    """Search the same in process; return how many searches differ in any bit."""
    pool = azserve.make("ConnectFour-v0")
    different = 0
    for k, (blobs, got) in enumerate(rows):
        with pool.scope():
            seed = number * 1_000_003 + k * batch
            want = azserve.search(pool, pool.load(blobs), network, num_simulations=SIMULATIONS, seed=seed)
        same = np.ones(len(blobs), bool)
        for name in ("action", "action_weights", "visits", "qvalues", "value", "raw_value"):
            same &= (getattr(want, name) == getattr(got, name)).reshape(len(blobs), -1).all(1)
        different += int((~same).sum())
    return different


def main(argv=None):
    """Run evaluator and clients."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="127.0.0.1:50051", help="the server (default: %(default)s)")
    parser.add_argument("--searches", type=int, default=10_000, help="in all (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=8, help="processes (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=50, help="searches of a call (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="compare with searches in process")
    args = parser.parse_args(argv)
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    each = args.searches // args.clients
    with azserve.serve_evaluator(args.target, MODEL, network, max_batch=256, wait=False) as evaluator:
        began = time.time()
        rest = args.searches - each * (args.clients - 1)
        counts = [rest] + [each] * (args.clients - 1)
        jobs = [
            context.Process(target=client, args=(args.target, i, n, args.batch, out))
            for i, n in enumerate(counts)
        ]
        for job in jobs:
            job.start()
        answers = []
        while len(answers) < len(jobs):
            try:
                answers.append(out.get(timeout=1))
            except queue.Empty:
                if any(job.exitcode for job in jobs):
                    raise SystemExit("a client failed, see above") from None
        for job in jobs:
            job.join()
        took = time.time() - began
        print(
            f"{args.searches} searches of {SIMULATIONS} simulations by {args.clients} clients: {took:.1f} s; "
            f"{evaluator.rows} positions evaluated in {evaluator.batches} batches"
        )
    if args.check:
        different = sum(check(number, rows, args.batch) for number, rows in answers)
        print(f"{different} of {args.searches} differ from searches in process")
        return 1 if different else 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
