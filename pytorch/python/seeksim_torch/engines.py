"""DeepSpeed's engine, watched: it runs backward passes and steps itself, and calls torch's optimizers inside them."""

import importlib.abc
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Tuple

import torch


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function on a module as soon as it has been imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is None or spec.loader is None:
                continue
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self.then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
            return spec
        return None


def when_imported(name: str, then: Callable[[ModuleType], None]) -> None:
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


def _compile_nothing(module: ModuleType) -> None:
    """On CPUs DeepSpeed compiles an all_reduce of its own at first use, for minutes; only inference calls it."""
    if hasattr(module, "build_shm_op"):
        module.build_shm_op = lambda: None


def fragments(flat: torch.Tensor, named: Dict[str, torch.Tensor]) -> Iterator[Tuple[str, int, int, bool]]:
    """Parameters that lie in a flat tensor of ZeRO 1 or 2: name, first element, elements, and whether all of it is
    there. DeepSpeed links each parameter to the part of the flat tensor that this rank updates."""
    for name, parameter in named.items():
        mapping = getattr(parameter, "_hp_mapping", None)
        part = getattr(mapping, "hp_fragment", None)
        if part is None or part.untyped_storage().data_ptr() != flat.untyped_storage().data_ptr():
            continue
        begin = part.storage_offset() - flat.storage_offset()
        if 0 <= begin and begin + part.numel() <= flat.numel():
            yield name, begin, part.numel(), part.numel() == parameter.numel()


def _watch_engine(module: ModuleType, watcher: Any) -> None:
    engine = module.DeepSpeedEngine

    def around(name: str, wrap: Callable[..., Any]) -> None:
        own = getattr(engine, name, None)
        if own is not None:
            setattr(engine, name, lambda self, *args, **options: wrap(self, own, *args, **options))

    def build(self: Any, own: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with watcher.building():  # it may let the optimizer make a step of zeros, so that it has a state
            return own(self, *args, **options)

    def backward(self: Any, own: Callable[..., Any], loss: Any, *args: Any, **options: Any) -> Any:
        with watcher.backward(loss):  # its reductions may come after autograd's part
            return own(self, loss, *args, **options)

    def step(self: Any, own: Callable[..., Any], *args: Any, **options: Any) -> Any:
        with watcher.engine_step(self):
            return own(self, *args, **options)

    around("__init__", build)
    around("backward", backward)
    around("step", step)
    around("_take_model_step", step)  # what the pipeline's engine calls


def _watch_recomputation(module: ModuleType, watcher: Any) -> None:
    """Reentrant checkpointing, torch's or DeepSpeed's: an autograd function around a part of the forward pass."""
    function = getattr(module, "CheckpointFunction", None)
    if function is None:
        return
    own = function.forward

    def forward(ctx: Any, *given: Any) -> Any:
        with watcher.recomputing(given):
            return own(ctx, *given)

    function.forward = staticmethod(forward)


def watch(watcher: Any) -> None:
    """Lets the watcher see DeepSpeed, if the script imports it, and what is recomputed."""
    for name in ("torch.utils.checkpoint", "deepspeed.runtime.activation_checkpointing.checkpointing"):
        when_imported(name, lambda module: _watch_recomputation(module, watcher))
    when_imported("deepspeed.comm.torch", _compile_nothing)
    when_imported("deepspeed.runtime.engine", lambda module: _watch_engine(module, watcher))
