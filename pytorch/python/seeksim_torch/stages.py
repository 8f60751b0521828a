"""torch's own pipelines, watched. A schedule runs the micro-batches of a rank's stages in an order of its own, and some
backward passes in two halves that go round torch.autograd.backward()."""

import contextlib
from types import ModuleType
from typing import Any, Callable, Iterator

from seeksim_torch.engines import when_imported


def _around(owner: Any, name: str, wrap: Callable[..., Any]) -> None:
    own = getattr(owner, name, None)
    if own is not None:
        setattr(owner, name, lambda self, *args, **options: wrap(self, own, *args, **options))


@contextlib.contextmanager
def _chunk(watcher: Any, number: int) -> Iterator[None]:
    """While this micro-batch of a schedule's step is computed with."""
    before = watcher.micro_batch
    watcher.micro_batch = watcher.first_chunk + number
    watcher.tell()
    try:
        yield
    finally:
        watcher.micro_batch = before
        watcher.tell()


def _watch_stages(module: ModuleType, watcher: Any) -> None:
    stage = getattr(module, "_PipelineStageBase", None)
    if stage is None:
        return

    def forward(self: Any, own: Callable[..., Any], number: int, *args: Any, **options: Any) -> Any:
        with _chunk(watcher, number):
            return own(self, number, *args, **options)

    def backward(self: Any, own: Callable[..., Any], number: int, loss: Any = None, *args: Any, **options: Any) -> Any:
        if not self.has_backward:  # eval() calls it, too
            return own(self, number, loss, *args, **options)
        with _chunk(watcher, number), watcher.backward(() if loss is None else loss):
            return own(self, number, loss, *args, **options)

    def weights(self: Any, own: Callable[..., Any], number: int, *args: Any, **options: Any) -> Any:
        """The second half of a backward pass, whose loss was seen in the first one."""
        if not self.has_backward:
            return own(self, number, *args, **options)
        with _chunk(watcher, number):
            watcher.backwards += 1
            watcher.enter("backward")
            try:
                return own(self, number, *args, **options)
            finally:
                watcher.backwards -= 1
                watcher.habits.after_backward()
                watcher.enter("forward")

    def scale(self: Any, own: Callable[..., Any], factor: Any, *args: Any, **options: Any) -> Any:
        if factor != 1:
            watcher.habits.undivided = [False for _ in watcher.habits.undivided]
        return own(self, factor, *args, **options)

    _around(stage, "forward_one_chunk", forward)
    _around(stage, "backward_one_chunk", backward)
    _around(stage, "backward_weight_one_chunk", weights)
    _around(stage, "scale_grads", scale)


def _watch_schedules(module: ModuleType, watcher: Any) -> None:
    def step(self: Any, own: Callable[..., Any], *args: Any, **options: Any) -> Any:
        watcher.first_chunk = watcher.micro_batch
        try:
            return own(self, *args, **options)
        finally:
            learns = getattr(self, "_has_backward", False)
            watcher.micro_batch = watcher.first_chunk + (self._n_microbatches if learns else 0)
            if learns:
                watcher.habits.after_backward()  # FSDP2 took the gradients of before, and gave others
            watcher.tell()

    def probe(self: Any, own: Callable[..., Any], *args: Any, **options: Any) -> Any:
        watcher.probes += 1  # a forward pass to find out what stages pass on
        try:
            return own(self, *args, **options)
        finally:
            watcher.probes -= 1

    for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
        schedule = getattr(module, name, None)
        if schedule is not None:
            _around(schedule, "step", step)
    _around(getattr(module, "_PipelineSchedule", None), "_initialize_pp_stages", probe)


def watch(watcher: Any) -> None:
    """Lets the watcher see torch's pipelines, if the script imports them."""
    when_imported("torch.distributed.pipelining.stage", lambda module: _watch_stages(module, watcher))
    when_imported("torch.distributed.pipelining.schedules", lambda module: _watch_schedules(module, watcher))
