"""What a training script does, seen by torch's own hooks: steps, phases, losses, gradients, weights that were used."""

import contextlib
import threading
import weakref
from types import ModuleType
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from seeksim_torch import engines, faults, habits, saves, stages, states
from seeksim_torch.plan import Record

# Modules that only wrap another one, and where they keep it: names of weights are the same with and without them.
_WRAPPERS = {
    "DistributedDataParallel": ("module",),
    "DataParallel": ("module",),
    "FullyShardedDataParallel": ("_fsdp_wrapped_module",),
    "CheckpointWrapper": ("_checkpoint_wrapped_module",),
    "OptimizedModule": ("_orig_mod",),
    "DeepSpeedEngine": ("module",),
    "_FabricModule": ("_forward_module", "_original_module"),
}


def class_name(module: torch.nn.Module) -> str:
    """The class as the script wrote it: FSDP2 puts one of its own in front."""
    classes = type(module).__mro__
    names = [c.__name__ for c in classes]
    return names[names.index("FSDPModule") + 1] if "FSDPModule" in names[:2] else names[0]


def walk(module: torch.nn.Module, prefix: str = "") -> Iterator[Tuple[str, torch.nn.Module]]:
    """Modules below this one with their names, without what wrappers add."""
    yield prefix, module
    wrapped = _WRAPPERS.get(type(module).__name__, ())
    for name, child in module.named_children():
        inner = prefix if name in wrapped else f"{prefix}.{name}" if prefix else name
        yield from walk(child, inner)


def local(tensor: torch.Tensor) -> Tuple[torch.Tensor, bool]:
    """The part of a tensor that this rank holds, and whether that is all of it."""
    if hasattr(tensor, "to_local") and hasattr(tensor, "placements"):
        whole = all(placement.is_replicate() for placement in tensor.placements)
        return tensor.to_local(), whole
    return tensor, True


def shape_text(tensor: torch.Tensor) -> str:
    """"[256,64]": of a distributed tensor, the shape of the whole."""
    return "[" + ",".join(str(n) for n in tensor.shape) + "]"


def _exports() -> bool:
    """Whether a model is traced, with tensors that hold nothing: torch.export, and pipeline(split_spec=...)."""
    asks = getattr(getattr(torch, "compiler", None), "is_exporting", None)
    return bool(asks is not None and asks())


class Watcher:
    """Says to the backend where this rank is and what it computes with. One for each process."""

    def __init__(self, module: ModuleType, record: Record, rank: int, rules: List[Dict[str, Any]]) -> None:
        self.module = module
        self.record = record
        self.step = 0
        self.micro_batch = 0
        self.phase = "init"
        self.order = 0
        self.recomputed = False  # inside a forward pass without gradients that the backward pass will repeat with them
        self.backwards = 0  # inside how many backward passes we are: checkpointing nests them, engines wrap them
        self.optimizers = 0  # inside how many optimizers' step() we are
        self.bare = False  # the optimizer's step is none of the training: it makes a state
        self.bare_from = 0  # micro-batches that had come when it began
        self.engines = 0  # inside how many calls of an engine that makes a step
        self.builds = 0  # engines that are being made
        self.probes = 0  # inside how many passes that only find out what a pipeline's stages pass on
        self.first_chunk = 0  # micro-batches before the step of a pipeline's schedule that runs
        self.frozen: set = set()  # names of parameters that require no gradient: FSDP1's views of them do
        self.calls: List[List[Any]] = []  # forward passes that have begun: the module, and whether it was recorded
        self.sizes: Dict[str, int] = {}  # elements of each weight, whole, as a forward pass used it
        self.names: "weakref.WeakKeyDictionary[torch.nn.Module, str]" = weakref.WeakKeyDictionary()
        self.roots: List["weakref.ReferenceType[torch.nn.Module]"] = []
        self.noted: set = set()
        self.habits = habits.Habits(self)
        self.faults = faults.Faults(self, rank, rules)
        self.states: Optional[states.States] = None
        self.tell()

    def tell(self) -> None:
        self.module.now(self.step, self.micro_batch, self.phase)

    def enter(self, phase: str) -> None:
        self.faults.phase_ends(self.phase)
        self.phase = phase
        self.tell()
        self.faults.step_begins(self.step)

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """A phase inside another one: a batch is fetched, a file is saved. A thread beside the script's has none."""
        if threading.current_thread() is not threading.main_thread() or self.phase == phase:
            yield
            return
        before = self.phase
        self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def note(self, text: str) -> None:
        """Writes down once what is not watched."""
        if text not in self.noted:
            self.noted.add(text)
            self.module.note(text)

    # ------------------------------------------------------------------------------------------------------ forward

    @contextlib.contextmanager
    def recomputing(self, given: Iterable[Any]) -> Iterator[None]:
        """Around what reentrant checkpointing runs without gradients. Where no input has one, nothing is repeated."""
        before = self.recomputed
        self.recomputed = any(isinstance(each, torch.Tensor) and each.requires_grad for each in given)
        try:
            yield
        finally:
            self.recomputed = before

    def before_forward(self, module: torch.nn.Module, args: Any) -> None:
        if _exports():
            return
        # A closure runs forward and backward passes inside an optimizer's step.
        if self.phase == "init" or (self.phase == "optimizer" and not self.engines):
            self.enter("forward")
        if module not in self.names:
            self.roots.append(weakref.ref(module))
            for name, each in walk(module):
                self.names.setdefault(each, name)
                still = [own for own, p in each._parameters.items() if p is not None and not p.requires_grad]
                self.frozen.update(f"{name}.{own}" if name else own for own in still)
        self.calls.append([module, False])
        self.habits.before_forward(module)
        self.faults.before_forward(module)
        if self.states:
            if self.habits.depth == 1:
                self.states.before_forward(args)
            self.states.before_module(module)

    def after_forward(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """Runs before the module's own hooks, so before FSDP2 and ZeRO-3 give back the weights that they gathered."""
        if _exports():
            return
        self.habits.after_forward()
        self.faults.after_forward(module, output)
        if self.ends(module):
            return
        every = self.record.weights_every
        if not every or self.step % every or self.micro_batch or self.phase != "forward" or self.probes:
            return
        trains = torch.is_grad_enabled() or self.recomputed
        if not trains or type(module).__name__ == "FullyShardedDataParallel":
            return
        prefix = self.names.get(module, "")
        for name, weight in sorted(self.own_weights(module).items()):
            if getattr(weight, "ds_shape", None) is not None and weight.shape != weight.ds_shape:
                continue  # ZeRO-3 holds it elsewhere: this module did not use it
            whole_name = f"{prefix}.{name}" if prefix else name
            self.sizes[whole_name] = weight.numel()
            self.habits.used(whole_name, weight)
            self.tensor("weight", whole_name, module, self.gathered(weight))

    def ends(self, module: torch.nn.Module) -> bool:
        """Takes back the call that ends here. Whether the module was recorded in it: Lightning's calls itself."""
        recorded = False
        while self.calls:  # those above it ended with an error
            called, was = self.calls.pop()
            if called is module:
                recorded = was
                break
        for call in self.calls:
            call[1] = call[1] or call[0] is module
        return bool(recorded)

    @staticmethod
    def own_weights(module: torch.nn.Module) -> Dict[str, torch.Tensor]:
        # FSDP1's flat parameter is all of them once more, without use_orig_params.
        weights = {name: p for name, p in module._parameters.items() if p is not None and name != "_flat_param"}
        # FSDP1 puts whole weights beside its flat ones, as plain attributes.
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and not name.startswith("_") and name not in module._buffers:
                weights.setdefault(name, value)
        return weights

    def gathered(self, tensor: torch.Tensor) -> torch.Tensor:
        """All of a distributed tensor, where that was asked for: each rank that has a part of it comes here."""
        if not self.record.whole or not hasattr(tensor, "full_tensor"):
            return tensor
        with torch.no_grad():
            whole: torch.Tensor = tensor.detach().full_tensor()
        return whole

    def tensor(
        self, use: str, name: str, module: Optional[torch.nn.Module], tensor: torch.Tensor, all_of_it: bool = True
    ) -> None:
        part, whole = local(tensor)
        whole = whole and all_of_it and part.numel() == self.sizes.get(name, part.numel())  # FSDP1's are shards
        kind = "" if module is None else class_name(module)
        self.module.tensor(part.detach(), use, name, kind, shape_text(tensor), whole, self.order)
        self.order += 1

    # ----------------------------------------------------------------------------------------------------- backward

    @contextlib.contextmanager
    def backward(self, tensors: Any) -> Iterator[None]:
        """Around a backward pass. One inside another belongs to it: the loss is the one that the script gave."""
        self.backwards += 1
        if self.backwards == 1:
            self.before_backward(tensors)
        try:
            yield
        finally:
            self.backwards -= 1
            if not self.backwards:
                self.habits.after_backward()
                self.micro_batch += 1
                self.order = 0
                self.enter("forward")

    def before_backward(self, tensors: Any) -> None:
        loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        self.faults.before_backward(loss)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            part, _ = local(loss.detach())
            self.module.loss(part)
        self.habits.before_backward(loss)
        self.enter("backward")

    # ---------------------------------------------------------------------------------------------------- optimizer

    def parameters(self) -> Dict[str, Tuple[torch.Tensor, torch.nn.Module]]:
        found: Dict[str, Tuple[torch.Tensor, torch.nn.Module]] = {}
        for reference in self.roots:
            root = reference()
            for prefix, module in walk(root) if root is not None else ():
                for name, p in module._parameters.items():
                    if p is not None:
                        found.setdefault(f"{prefix}.{name}" if prefix else name, (p, module))
        return found

    def gradients(self, optimizer: torch.optim.Optimizer) -> None:
        named = self.parameters()
        names = {id(p): (name, module) for name, (p, module) in named.items()}
        tensors = {name: p for name, (p, _) in named.items()}
        for number, group in enumerate(optimizer.param_groups):
            for index, p in enumerate(group["params"]):
                if p.grad is None or p.grad.layout != torch.strided:
                    continue
                if id(p) in names:
                    self.tensor("gradient", *names[id(p)], self.gathered(p.grad))
                    continue
                parts = list(engines.fragments(p, tensors))
                for name, begin, count, whole in parts:
                    part = p.grad.detach().flatten()[begin : begin + count]
                    shaped = part.view(tensors[name].shape) if whole else part
                    self.tensor("gradient", name, named[name][1], shaped, whole)
                if not parts:  # of an engine that shards: nobody's whole gradient
                    self.tensor("gradient", f"param_groups.{number}.{index}", None, p.grad, not self.engines)

    def before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.optimizers += 1
        if self.optimizers > 1:
            return  # an optimizer inside another one
        # torch.distributed.checkpoint lets an optimizer make a step of zeros, so that it has a state to load into.
        first = not getattr(optimizer, "state", None) and (self.phase == "init" or self.moves_nothing(optimizer))
        self.bare = first or self.builds > 0
        self.bare_from = self.micro_batch
        if self.bare:
            return
        self.enter("optimizer")
        if not self.engines:
            self.order = 0
            self.habits.before_step(optimizer)
        self.faults.before_step(optimizer)
        if self.states:
            self.states.before_step(optimizer)
        if self.record.gradients:
            self.gradients(optimizer)

    def moves_nothing(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether a step comes without a rate or a gradient: of an optimizer whose state is to be saved or loaded."""
        if any(float(group.get("lr", 1)) for group in optimizer.param_groups):
            return False
        return not any(habits.is_there(p.grad) for group in optimizer.param_groups for p in group["params"])

    def after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.optimizers = max(0, self.optimizers - 1)
        if self.builds or (self.bare and self.micro_batch == self.bare_from):
            return  # nothing was computed: no closure ran backward inside it
        if self.states and not self.optimizers:
            self.states.after_step(optimizer)
        if not self.optimizers and not self.engines:
            self.habits.after_step(optimizer)
            self.stepped()

    def stepped(self) -> None:
        self.module.stepped(self.step, self.micro_batch)
        self.step += 1
        self.micro_batch = 0
        self.order = 0
        self.enter("forward")

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """While an engine is made: what its optimizer does then is no step of the training."""
        self.builds += 1
        try:
            yield
        finally:
            self.builds -= 1

    @contextlib.contextmanager
    def engine_step(self, engine: Any) -> Iterator[None]:
        """Around a step of DeepSpeed's engine. It may call several optimizers, or, while it accumulates, none."""
        self.engines += 1
        before = engine.global_steps
        if self.engines == 1:
            self.order = 0
            self.enter("optimizer")
        try:
            yield
        finally:
            self.engines -= 1
            if self.engines:
                pass
            elif engine.global_steps != before:
                self.stepped()
            else:
                self.enter("forward")


def _watch_scaler(watcher: Watcher) -> None:
    """A step that a GradScaler leaves out, as a gradient overflowed, is a step, as DeepSpeed's engine counts it: its
    samples and its loss are not those of the next one."""
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is None:
        return
    own = scaler.step

    def step(self: Any, *args: Any, **options: Any) -> Any:
        before = watcher.step
        done = own(self, *args, **options)
        if watcher.step == before and watcher.micro_batch and not watcher.engines:
            watcher.stepped()
        return done

    scaler.step = step


def watch(module: ModuleType, record: Record, rank: int, rules: List[Dict[str, Any]]) -> Watcher:
    """Hooks a watcher into torch, for all modules and optimizers of this process."""
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    watcher = Watcher(module, record, rank, rules)
    register_module_forward_pre_hook(watcher.before_forward)
    register_module_forward_hook(watcher.after_forward)
    register_optimizer_step_pre_hook(watcher.before_step)
    register_optimizer_step_post_hook(watcher.after_step)
    own = torch.autograd.backward

    def backward(tensors: Any, *args: Any, **options: Any) -> None:
        with watcher.backward(tensors):
            own(tensors, *args, **options)

    torch.autograd.backward = backward
    engines.watch(watcher)
    stages.watch(watcher)
    _watch_scaler(watcher)
    watcher.habits.watch_loaders()
    watcher.habits.watch_clipping()
    watcher.faults.set_clock()
    saves.watch(watcher)
    return watcher
