"""Serve a torch network to an azserve server, with weights that change while searches go on.

    bin/azserve serve --env ConnectFour-v0 &
    python examples/serving/evaluator_torch.py --model torch --updates 3

Searches with evaluator="torch" then use it. A learner in this process would train the network, and call
update with a copy of it now and then; here the weights are drawn anew.
"""

import argparse
import copy
import time

import numpy as np
import torch
from torch import nn

import azserve


class Network(nn.Module):
    """One hidden layer, a policy and a value."""

    def __init__(self, features, hidden, actions):
        super().__init__()
        self.hidden = nn.Linear(features, hidden)
        self.policy, self.value = nn.Linear(hidden, actions), nn.Linear(hidden, 1)

    def forward(self, x):
        """Return prior logits and values."""
        h = torch.relu(self.hidden(x))
        return self.policy(h), torch.tanh(self.value(h))[:, 0]


def evaluator(network, device):
    """Return what serve_evaluator calls: it keeps a copy, which goes on to give the same answers."""
    frozen = copy.deepcopy(network).to(device).eval()

    def evaluate(obs, action_mask):
        arrays = [a.reshape(len(a), -1) for name, a in obs.items() if name != "action_mask"]
        x = torch.from_numpy(np.concatenate(arrays, 1).astype(np.float32)).to(device)
        with torch.inference_mode():
            logits, value = frozen(x)
        return logits.cpu().numpy(), value.cpu().numpy()

    return evaluate


def main(argv=None):
    """Serve until Ctrl-C."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--target", default="127.0.0.1:50051", help="the server (default: %(default)s)")
    parser.add_argument("--env", default="ConnectFour-v0", help="environment (default: %(default)s)")
    parser.add_argument("--model", default="torch", help="what searches call it (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=128, help="units (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=0, help="new weights, one a second; default 0")
    args = parser.parse_args(argv)
    spec = azserve.spec(args.env)
    features = sum(int(np.prod(a.shape)) for a in spec.obs)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    network = Network(features, args.hidden, spec.num_actions)
    serving = azserve.serve_evaluator(
        args.target, args.model, evaluator(network, device), version=1, max_batch=256, wait=False
    )
    print(f"serving {args.model} on {device}", flush=True)
    try:
        for version in range(2, args.updates + 2):
            time.sleep(1)
            for p in network.parameters():
                nn.init.normal_(p, std=0.1)
            serving.update(evaluator(network, device), version)
            print(f"weights of version {version}", flush=True)
        serving.wait()
    except KeyboardInterrupt:
        print("stopped")
    finally:
        serving.close()


if __name__ == "__main__":
    main()
