"""The network that the examples of this folder train: from the observations of a window to its actions."""
import torch


class Policy(torch.nn.Module):
    def __init__(self, batch, hidden=128):
        """Takes the sizes from a batch."""
        super().__init__()
        self.shape = batch["actions"].shape[1:]
        inputs = self.flatten(batch).shape[1]
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, self.shape.numel()))

    @staticmethod
    def flatten(batch):
        return torch.cat([value.flatten(1) for value in batch["obs"].values()], 1)

    def forward(self, batch):
        """Returns the mean squared error of the steps that are recorded."""
        predicted = self.layers(self.flatten(batch)).unflatten(1, self.shape)
        return ((predicted - batch["actions"]) ** 2)[~batch["actions_is_pad"]].mean()
