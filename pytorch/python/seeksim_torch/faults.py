"""Faults outside collectives: in numbers of modules, parameters, optimizers and losses, in loaders, files, pace, clock.

The rules and their triggers are the backend's (pytorch/core/rules.h); this file brings them to where torch passes by.
"""

import difflib
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch

from seeksim_torch import stores

# Sites of rules that name what they strike, by what the name is. "allocation" is that of a rule that has no site: a
# module that finds no memory.
_MODULES = ("activation", "activation_gradient", "allocation")
_PARAMETERS = ("parameter", "gradient", "reduced_gradient")


class Faults:
    """What the rules of this rank do outside its collectives. `acts` says what they concern; without any it costs
    nothing."""

    def __init__(self, watcher: Any, rank: int, rules: List[Dict[str, Any]]) -> None:
        self.watcher = watcher
        self.module = watcher.module
        self.rank = rank
        self.acts = set(self.module.acts())
        self.named = [rule for rule in rules if rule.get("tensor") and rule.get("rank") == rank]
        self.hooked = False
        self.checked: set = set()
        self.since = time.process_time()
        self.begun = -1  # the last step that began

    # -------------------------------------------------------------------------------------------------------- names

    def check(self, sites: Iterable[str], what: str, known: Iterable[str]) -> None:
        """Ends this rank with status 2 where one of its rules names what is not there."""
        names = sorted(set(known))
        for rule in self.named:
            site = "allocation" if rule["kind"] == "oom" else rule.get("site", "gradient")
            if site in sites and rule["tensor"] not in names:
                near = difflib.get_close_matches(rule["tensor"], names, 1, 0.5) or names[:1]
                hint = f": did you mean {near[0]!r}?" if near else ""
                from seeksim_torch import start

                why = f"the model of rank {self.rank} has no {what} {rule['tensor']!r}{hint}"
                start.refuse(os.environ["SEEKSIM_TORCH_DIR"], str(self.rank), why)

    def check_names(self) -> None:
        """At the first backward pass, when the model is known."""
        if self.named and "model" not in self.checked:
            self.checked.add("model")
            self.check(_MODULES, "module", (name for name in self.watcher.names.values() if name))
            self.check(_PARAMETERS, "parameter", self.watcher.parameters())

    # ------------------------------------------------------------------------------------------------------ numbers

    def before_forward(self, module: torch.nn.Module) -> None:
        if not self.acts.intersection(("parameter", "allocation")) or not self._learns():
            return
        prefix = self.watcher.names.get(module, "")
        self._allocate(prefix)
        if "parameter" not in self.acts:
            return
        for name, p in module._parameters.items():
            if p is not None:
                self._strike("parameter", f"{prefix}.{name}" if prefix else name, p)

    def after_forward(self, module: torch.nn.Module, output: Any) -> None:
        if not self.acts.intersection(_MODULES) or not self._learns():
            return
        name = self.watcher.names.get(module, "")
        found = next((leaf for leaf in tensors_in(output) if leaf.is_floating_point()), None)
        if found is None:
            return
        if "activation" in self.acts:
            self._strike("activation", name, found)
        if "activation_gradient" in self.acts and found.requires_grad:
            found.register_hook(self._other("activation_gradient", name))
        if "allocation" in self.acts and found.requires_grad:
            found.register_hook(lambda _: self._allocate(name))

    def before_backward(self, loss: Any) -> None:
        self.check_names()
        if "loss" in self.acts and isinstance(loss, torch.Tensor):
            self._strike("loss", "", loss)
        if "gradient" in self.acts and not self.hooked:
            self.hooked = True
            for name, (p, _) in self.watcher.parameters().items():
                if p.requires_grad and p.is_leaf:
                    p.register_hook(self._other("gradient", name))

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self.acts.intersection(("reduced_gradient", "optimizer_state")):
            return
        for name, p in named_parameters(self.watcher, optimizer):
            if p.grad is not None and "reduced_gradient" in self.acts:
                self._strike("reduced_gradient", name, p.grad)
        # A single number is a count of steps.
        states = [(name, state) for name, state in optimizer_states(self.watcher, optimizer) if state.dim()]
        if states and "state" not in self.checked:  # there is none before the first step
            self.checked.add("state")
            self.check(("optimizer_state",), "optimizer state", (name for name, _ in states))
        for name, state in states if "optimizer_state" in self.acts else ():
            self._strike("optimizer_state", name, state)

    def _learns(self) -> bool:
        return self.watcher.phase == "forward" and torch.is_grad_enabled()

    def _allocate(self, name: str) -> None:
        """The module finds no memory where a rule says so. A rule without a phase strikes as the module begins."""
        if "allocation" in self.acts and self.module.asks("allocation", name, name):
            phase = "backward" if self.watcher.phase == "backward" else "forward"
            raise torch.OutOfMemoryError(f"seeksim: injected: {name} finds no memory in {phase}")

    def _strike(self, act: str, name: str, tensor: torch.Tensor) -> bool:
        from seeksim_torch import hooks

        part, _ = hooks.local(tensor)
        return bool(self.module.strike(act, name, part))

    def _other(self, act: str, name: str) -> Any:
        """A hook that gives a gradient of its own where a rule strikes: others may hold the one that it gets."""

        def hook(gradient: torch.Tensor) -> Any:
            copy = gradient.detach().clone(memory_format=torch.contiguous_format)
            return copy if self._strike(act, name, copy) else None

        return hook

    # ------------------------------------------------------------------------------------------------ loaders, pace

    def batch(self, loader: str) -> str:
        """The script asks for its next batch. Sleeps, raises, or says "skip" or "dup_apply"."""
        how = ""
        for kind, mode, delay_s, _ in self.module.asks("batch", loader, loader) if "batch" in self.acts else ():
            if kind == "data_stall":
                time.sleep(delay_s)
            elif mode == "unset":
                raise RuntimeError(f"seeksim: injected: the loader cannot bring a batch of {loader or 'its data'}")
            else:
                how = mode
        return how

    def phase_ends(self, phase: str) -> None:
        """A slow rank makes up what it computed too fast."""
        if "work" not in self.acts:
            return
        worked_s = time.process_time() - self.since
        delay_s = self.module.slowed(phase, worked_s) if phase != "init" else 0
        if delay_s > 0:
            time.sleep(delay_s)
        self.since = time.process_time()

    def step_begins(self, step: int) -> None:
        if step == self.begun or "step" not in self.acts:
            return
        self.begun = step
        address = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
        if self.module.asks("step", "", f"of the store at {address}"):
            stores.cut(int(os.environ.get("MASTER_PORT", "0") or 0))

    def set_clock(self) -> None:
        """time.time() as this rank's wall clock shows it."""
        offset_s, drift = self.module.clock()
        if not offset_s and not drift:
            return
        own, began = time.time_ns, time.time_ns()

        def time_ns() -> int:
            now = own()
            return now + round(offset_s * 1e9 + drift * (now - began))

        time.time_ns = time_ns
        time.time = lambda: time_ns() * 1e-9


def named_parameters(watcher: Any, optimizer: torch.optim.Optimizer) -> Iterator[Tuple[str, torch.Tensor]]:
    """An optimizer's parameters by the model's names; of a flat one, its place."""
    names = {id(p): name for name, (p, _) in watcher.parameters().items()}
    for number, group in enumerate(optimizer.param_groups):
        for index, p in enumerate(group["params"]):
            yield names.get(id(p), f"param_groups.{number}.{index}"), p


def optimizer_states(watcher: Any, optimizer: torch.optim.Optimizer) -> List[Tuple[str, torch.Tensor]]:
    """Tensors that an optimizer keeps: "head.weight.exp_avg"."""
    found = []
    for name, p in named_parameters(watcher, optimizer):
        for key, state in getattr(optimizer, "state", {}).get(p, {}).items():
            if isinstance(state, torch.Tensor) and state.is_floating_point():
                found.append((f"{name}.{key}", state))
    return found


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """The tensors of a module's arguments or output."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict) or hasattr(value, "items"):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_in(one)
