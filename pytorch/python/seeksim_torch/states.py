"""All that a training goes on with, written down as each step begins and ends: for `seeksim torch recovers`.

Beside the weights of the forward pass: buffers, the optimizer's state and its learning rates, schedulers, scalers, the
samples, random generators; and the weights that the step leaves behind. harness/torch/check/resumed.cpp compares them.
"""

import hashlib
import importlib
import random
import sys
import weakref
from typing import Any, List, Tuple

import torch

from seeksim_torch import faults

_LONGEST = 200  # characters of a value
_MOST = 64  # values of one object


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _values(prefix: str, state: Any) -> List[Tuple[str, str]]:
    """The plain values of a state_dict(), with their names."""
    if not isinstance(state, dict):
        return []
    plain = (int, float, bool, str, type(None), list, tuple)
    found = [(f"{prefix}.{key}", repr(value)[:_LONGEST]) for key, value in state.items() if isinstance(value, plain)]
    return sorted(found)[:_MOST]


class States:
    """Writes down the state of this process at the beginning of each step."""

    def __init__(self, watcher: Any) -> None:
        self.watcher = watcher
        self.begun = -1  # the last step whose beginning is written down
        self.kept: List[Tuple[str, Any]] = []  # kind and reference: schedulers and scalers
        self._watch("torch.optim.lr_scheduler", "LRScheduler", "scheduler")
        self._watch("torch.amp", "GradScaler", "scaler")

    def _watch(self, module: str, name: str, kind: str) -> None:
        owner = getattr(importlib.import_module(module), name)
        own = owner.__init__

        def make(made: Any, *args: Any, **options: Any) -> None:
            self.kept.append((kind, weakref.ref(made)))
            own(made, *args, **options)

        owner.__init__ = make

    def say(self, name: str, value: str) -> None:
        self.watcher.module.sight("state", name, value, self.watcher.step)

    def before_forward(self, args: Any) -> None:
        """Before the first module of a forward pass of a step is called with these arguments."""
        watcher = self.watcher
        if not torch.is_grad_enabled() or watcher.phase not in ("init", "forward"):
            return
        given = [leaf for leaf in faults.tensors_in(args) if leaf.device.type == "cpu" and leaf.dim()]
        dense = [leaf.detach().contiguous() for leaf in given if leaf.layout == torch.strided]
        bits = b"".join(leaf.view(torch.uint8).numpy().tobytes() for leaf in dense)
        self.say(f"input.{watcher.micro_batch}", _digest(bits))
        self.say(f"samples.{watcher.micro_batch}", _digest(watcher.habits.last_samples.encode()))
        if self.begun == watcher.step:
            return
        self.begun = watcher.step
        self.say("sampler.epoch", watcher.habits.last_epoch)
        self.say("rng.torch", _digest(torch.get_rng_state().numpy().tobytes()))
        self.say("rng.python", _digest(repr(random.getstate()).encode()))
        if "numpy" in sys.modules:
            self.say("rng.numpy", _digest(repr(sys.modules["numpy"].random.get_state()).encode()))

    def before_module(self, module: torch.nn.Module) -> None:
        """Buffers, such as those of batch normalisation, before the first micro-batch changes them."""
        watcher = self.watcher
        if not torch.is_grad_enabled() or watcher.micro_batch or watcher.phase != "forward":
            return
        prefix = watcher.names.get(module, "")
        for name, buffer in module._buffers.items():
            if buffer is not None:
                watcher.tensor("buffer", f"{prefix}.{name}" if prefix else name, module, buffer)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        for name, state in faults.optimizer_states(self.watcher, optimizer):
            self.watcher.tensor("state", name, None, state)
        for number, group in enumerate(optimizer.param_groups):
            values = {key: value for key, value in group.items() if key != "params"}
            for name, value in _values(f"param_groups.{number}", values):
                self.say(name, value)
        for index, (kind, reference) in enumerate(self.kept):
            made = reference()
            if made is not None:
                for name, value in _values(f"{kind}.{index}.{type(made).__name__}", made.state_dict()):
                    self.say(name, value)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Weights as this step leaves them: of the last one no forward pass tells."""
        for name, p in faults.named_parameters(self.watcher, optimizer):
            self.watcher.tensor("left", name, None, p)
