#!/usr/bin/env python3
"""Trains a small network by behaviour cloning. It may be killed at any moment, and continues at its last checkpoint.

    behaviour_cloning.py square.yaml --checkpoint square.pt

The daemon is that of $TRAJD_ENDPOINT, or a private one that is started. A run that was killed, with or without its
daemon, has the same losses as a run that was not, bit for bit: the checkpoint holds the network, the optimizer and the
feed's position, and that position determines the order of the following windows. It uses torch if it is installed,
else (or with --framework numpy) numpy.
"""
import argparse
import os
import pickle

import numpy as np
import trajd

HIDDEN, LEARNING_RATE = 128, 1e-3


def rows_of(batch):
    """Returns the observations side by side [B, inputs], the actions [B, T, D], and which steps are recorded [B, T]."""
    concatenate = np.concatenate if isinstance(batch["actions"], np.ndarray) else __import__("torch").cat
    count = len(batch["actions"])
    inputs = concatenate([value.reshape(count, -1) for value in batch["obs"].values()], 1)
    return inputs, batch["actions"], ~batch["actions_is_pad"]


def make_torch_policy(inputs, actions):
    import torch

    class Policy:
        """Two layers and Adam. The loss is the mean squared error of the recorded steps."""

        def __init__(self):
            self.network = torch.nn.Sequential(
                torch.nn.Linear(inputs, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, actions))
            self.optimizer = torch.optim.Adam(self.network.parameters(), LEARNING_RATE)

        def step(self, batch):
            x, wanted, valid = rows_of(batch)
            error = (self.network(x).reshape(wanted.shape) - wanted) ** 2
            loss = error[valid].mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss.item()

        def state_dict(self):
            return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

        def load_state_dict(self, state):
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])

    torch.manual_seed(0)
    return Policy()


class NumpyPolicy:
    """The same in numpy, with gradients by hand."""

    def __init__(self, inputs, actions):
        random = np.random.default_rng(0)
        self.weights = [random.normal(0, inputs ** -0.5, (inputs, HIDDEN)).astype(np.float32),
                        np.zeros(HIDDEN, np.float32),
                        random.normal(0, HIDDEN ** -0.5, (HIDDEN, actions)).astype(np.float32),
                        np.zeros(actions, np.float32)]
        self.moments = [(np.zeros_like(weight), np.zeros_like(weight)) for weight in self.weights]
        self.steps = 0

    def step(self, batch):
        x, wanted, valid = rows_of(batch)
        w1, b1, w2, b2 = self.weights
        hidden = np.tanh(x @ w1 + b1)
        difference = ((hidden @ w2 + b2).reshape(wanted.shape) - wanted) * valid[..., None]
        count = valid.sum() * wanted.shape[-1]
        slope = (2 / count * difference).reshape(len(x), -1).astype(np.float32)
        inner = (slope @ w2.T) * (1 - hidden ** 2)
        self.descend([x.T @ inner, inner.sum(0), hidden.T @ slope, slope.sum(0)])
        return float((difference ** 2).sum() / count)

    def descend(self, gradients):
        self.steps += 1
        for weight, gradient, (mean, square) in zip(self.weights, gradients, self.moments):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient ** 2 - square)
            weight -= LEARNING_RATE * (mean / (1 - 0.9 ** self.steps)) / (
                np.sqrt(square / (1 - 0.999 ** self.steps)) + 1e-8)

    def state_dict(self):
        return {"weights": self.weights, "moments": self.moments, "steps": self.steps}

    def load_state_dict(self, state):
        self.weights, self.moments, self.steps = state["weights"], state["moments"], state["steps"]


def save(path, checkpoint):
    """Writes the checkpoint completely or not at all, whenever this process is killed."""
    with open(path + ".new", "wb") as file:
        pickle.dump(checkpoint, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def has_torch():
    try:
        import torch  # noqa: F401
        return True
    except ImportError:
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--feed", default="train")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--checkpoint", default="behaviour_cloning.pt")
    parser.add_argument("--every", type=int, default=100, metavar="BATCHES", help="between checkpoints")
    parser.add_argument("--framework", choices=("torch", "numpy"), default="torch" if has_torch() else "numpy")
    options = parser.parse_args()

    feed = trajd.open(options.config, feed=options.feed, framework=options.framework)
    checkpoint = None
    if os.path.exists(options.checkpoint):
        with open(options.checkpoint, "rb") as file:
            checkpoint = pickle.load(file)
        feed.load_state_dict(checkpoint["feed"])
    policy, count, first = None, 0, checkpoint["feed"]["epoch"] if checkpoint else 0

    for epoch in range(first, options.epochs):
        for batch in feed.epoch(epoch):
            if policy is None:
                inputs, actions, _ = rows_of(batch)
                policy = (NumpyPolicy if options.framework == "numpy" else make_torch_policy)(
                    inputs.shape[1], actions.shape[1] * actions.shape[2])
                if checkpoint:
                    policy.load_state_dict(checkpoint["policy"])
            print(epoch, batch.position, policy.step(batch).hex(), flush=True)  # hex shows every bit
            count += 1
            if count % options.every == 0:
                save(options.checkpoint, {"feed": feed.state_dict(), "policy": policy.state_dict()})
    feed.close()


if __name__ == "__main__":
    main()
