"""A compiled forward pass keeps the step number of its first call: a guard is missing."""
import torch

_right = torch.nn.Module.compile


def _compile(self, *args, **kwargs):
    forward, first = self.forward, []

    def specialised(x, step):
        first.append(step)
        return forward(x, first[0])

    self.forward = specialised
    _right(self, *args, **kwargs)


torch.nn.Module.compile = _compile
