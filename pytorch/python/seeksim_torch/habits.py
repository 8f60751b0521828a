"""What people forget in training scripts, seen by hooks: samples, modes, gradients of earlier steps, clipping, losses.

Each hook writes down what it saw (`sight`); harness/torch judges it.
"""

import collections
import hashlib
import weakref
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

_LARGEST = 1500  # samples of a batch that is written down
_LARGEST_SAMPLE = 1 << 16  # bytes of a sample that are looked at


def depends_on_mode(module: torch.nn.Module) -> bool:
    """Whether train() and eval() are not the same for this module itself."""
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return module.p > 0
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        return bool(module.track_running_stats)
    return float(getattr(module, "dropout", 0) or 0) > 0 if isinstance(module, torch.nn.RNNBase) else False


def _adds_up(function: Any, depth: int = 0) -> bool:
    """Whether a loss is a loss function's mean, or a sum of such, and nothing divides it."""
    name = type(function).__name__
    if name.endswith(("LossBackward0", "Loss2DBackward0")):
        return getattr(function, "_saved_reduction", 1) == 1
    if name.startswith("Mean"):
        return True
    if not name.startswith("Add") or depth > 20:
        return False
    parts = [part for part, _ in function.next_functions if part is not None]
    return bool(parts) and all(_adds_up(part, depth + 1) for part in parts)


def is_there(gradient: Optional[torch.Tensor]) -> bool:
    """Whether there is a gradient that is not zero all over."""
    part = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    return part is not None and part.layout == torch.strided and bool(part.detach().any())


def _is_gone(parameter: torch.Tensor, gradient: torch.Tensor, version: int) -> bool:
    """Whether the gradient that a backward pass left has been taken away, or filled with zeros."""
    now = parameter.grad
    return now is None or (now is gradient and now._version != version and not is_there(now))


def _leaves(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, dict) or hasattr(batch, "items"):
        yield from _leaves([value for _, value in sorted(batch.items(), key=lambda item: str(item[0]))])
    elif isinstance(batch, (list, tuple)):
        for one in batch:
            yield from _leaves(one)


def _contents(batch: Any, count: int) -> List[str]:
    """A number for what each sample of a batch holds: a digest of its first bytes."""
    digests = [hashlib.blake2b(digest_size=7) for _ in range(count)]
    for leaf in _leaves(batch):
        if leaf.dim() == 0 or leaf.shape[0] != count or leaf.device.type != "cpu":
            continue
        rows = leaf.detach().reshape(count, -1).contiguous().view(torch.uint8) if leaf.numel() else leaf.new_zeros(count, 0)
        for digest, row in zip(digests, rows):
            digest.update(row[:_LARGEST_SAMPLE].numpy().tobytes())
    return [str(int.from_bytes(digest.digest(), "big")) for digest in digests]


def _in_backward() -> bool:
    """Whether a backward pass runs: what is called then is recomputed, and often ends in its middle by an exception."""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


class Habits:
    """Hears from the watcher of this process, and looks at loaders and clipping itself."""

    def __init__(self, watcher: Any) -> None:
        self.watcher = watcher
        self.said: set = set()
        self.depth = 0  # of forward passes inside each other
        self.learns = False  # the outermost one began with gradients on
        self.were_training: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()
        self.undivided: List[bool] = []  # of the backward passes of this step
        self.ahead: Optional[int] = None  # forward passes since the last backward pass; None: none was ever seen
        self.clipped = False
        self.versions: List[Tuple[Any, Any, int]] = []  # parameter, its gradient and that one's version after backward
        self.lost = ""  # a parameter whose gradient was cleared between the backward passes of this step
        self.left: Dict[int, Tuple[Any, bool]] = {}  # optimizer that made a step: itself, its gradients were cleared
        self.backward_since: set = set()  # optimizers since whose step a backward pass came
        self.loaders = 0
        self.last_loader = ""
        self.last_samples = ""  # of the batch that the script got last
        self.last_epoch = ""  # of the sampler that drew it

    def say(self, kind: str, name: str, text: str = "", once: bool = True) -> None:
        """Writes down what was seen; by default the first time only."""
        if once and (kind, name) in self.said:
            return
        self.said.add((kind, name))
        self.watcher.module.sight(kind, name, text, self.watcher.step)

    # ------------------------------------------------------------------------------------------------------- modes

    def before_forward(self, module: torch.nn.Module) -> None:
        if _in_backward():
            return
        if self.depth == 0:
            self.learns = torch.is_grad_enabled()
            if self.learns:
                self.ahead = (self.ahead or 0) + 1
        self.depth += 1
        if not depends_on_mode(module):
            return
        name = f"{self.watcher.names.get(module, '') or 'the model'} ({type(module).__name__})"
        if not self.learns:
            if module.training:
                self.say("left_train", name)
        elif module.training:
            self.were_training.add(module)
        elif module in self.were_training:
            self.say("left_eval", name)

    def after_forward(self) -> None:
        if not _in_backward():
            self.depth = max(0, self.depth - 1)

    def used(self, name: str, weight: torch.Tensor) -> None:
        """A weight of a forward pass."""
        if weight.requires_grad and name not in self.watcher.frozen:
            self.say("trains", name)

    # --------------------------------------------------------------------------------------------------- gradients

    def before_backward(self, loss: Any) -> None:
        self.depth = 0
        if self.last_loader:
            self.say("trains_on", self.last_loader)
        if self.versions and all(_is_gone(*one) for one in self.versions):
            self.lost = self.lost or self.name_of_held([p for p, _, _ in self.versions])
        function = getattr(loss, "grad_fn", None)
        # Of two losses whose forward passes both came first, neither is a micro-batch.
        of_its_own = self.ahead is None or self.ahead > 0
        self.ahead = None if self.ahead is None else 0
        self.undivided.append(of_its_own and function is not None and _adds_up(function))
        for key, (reference, cleared) in list(self.left.items()):
            optimizer = reference()
            if optimizer is None:
                del self.left[key]
            elif not cleared:
                self.backward_since.add(key)
                there = any(is_there(p.grad) for group in optimizer.param_groups for p in group["params"])
                self.left[key] = (reference, not there)

    def after_backward(self) -> None:
        self.versions = []
        for p in self.trained()[:4]:
            if p.grad is not None:
                self.versions.append((p, p.grad, p.grad._version))

    def trained(self) -> List[Any]:
        """Parameters that require a gradient. FSDP1 shows gradients of the others, too, for a while."""
        return [p for name, (p, _) in self.watcher.parameters().items() if name not in self.watcher.frozen]

    def name_of(self, parameters: List[Any]) -> str:
        """The name of the first of these that has one."""
        names = {id(p): name for name, (p, _) in self.watcher.parameters().items()}
        return next((names[id(p)] for p in parameters if id(p) in names), "param_groups")

    def name_of_held(self, parameters: List[Any]) -> str:
        """The name of the first, or "" where the model has none of them: FSDP2 put its shards in their place."""
        held = {id(p) for p, _ in self.watcher.parameters().values()}
        return "" if all(id(p) not in held for p in parameters) else self.name_of(parameters)

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        reference, cleared = self.left.pop(id(optimizer), (None, True))
        if reference is not None and not cleared and id(optimizer) in self.backward_since:
            all_of_it = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
            self.say("old_gradient", self.name_of(all_of_it))
        if self.lost:
            self.say("lost_gradient", self.lost, once=False)
        if self.undivided:
            self.looks_for_gradients(optimizer)
        touched = any(gradient._version != version for _, gradient, version in self.versions)
        if len(self.undivided) > 1 and all(self.undivided) and (self.clipped or not touched):
            self.say("undivided", f"{len(self.undivided)} micro-batches")

    def looks_for_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Behind a backward pass. A rank of FSDP1 may have no part of any weight that is trained, or is by now."""
        own = [p for group in optimizer.param_groups for p in group["params"]]
        all_of_it = [p for p in (*own, *self.trained()) if p.numel() and p.requires_grad]
        if all_of_it and all(p.grad is None for p in all_of_it):
            self.say("no_gradient", f"{len(own)} weights")

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.left[id(optimizer)] = (weakref.ref(optimizer), False)
        self.backward_since.discard(id(optimizer))
        self.undivided = []
        self.versions = []
        self.lost = ""
        self.clipped = False

    def clips(self, limit: Any) -> None:
        self.clipped = True
        if not self.undivided and not self.watcher.engines and float(limit) != float("inf"):
            self.say("late_clip", "clip_grad_norm_")

    # ----------------------------------------------------------------------------------------------------- loaders

    def iterates(self, loader: Any, iterator: Any) -> None:
        """A pass over a loader begins."""
        if not hasattr(loader, "_seeksim"):
            loader._seeksim = [self.loaders, 0]
            self.loaders += 1
        number, epoch = loader._seeksim
        loader._seeksim[1] += 1
        sampler = getattr(loader, "sampler", None)
        sampler = getattr(getattr(loader, "batch_sampler", None), "sampler", sampler)
        iterator._seeksim = ""
        if getattr(sampler, "replacement", False) or not getattr(loader, "_auto_collation", True):
            return  # it may draw a sample twice, or draws none
        shuffled = bool(getattr(sampler, "shuffle", isinstance(sampler, torch.utils.data.RandomSampler)))
        iterator._seeksim = f"loader {number}, epoch {epoch}{' shuffled' if shuffled else ''}"
        iterator._seeksim_drawn = collections.deque()
        iterator._seeksim_batch = 0
        iterator._seeksim_epoch = str(getattr(sampler, "epoch", ""))

    def gets(self, iterator: Any, batch: Any) -> None:
        """The script gets a batch: its samples by index and content, for ranks may have data sets of their own."""
        name = getattr(iterator, "_seeksim", "")
        if not name or not iterator._seeksim_drawn:
            return
        index = iterator._seeksim_drawn.popleft()
        indices = index if isinstance(index, (list, tuple)) else [index]
        if "batch" in self.watcher.faults.acts:
            iterator._seeksim_last = (index, batch)
        if len(indices) <= _LARGEST and all(type(one) is int for one in indices):
            contents = _contents(batch, len(indices))
            text = ",".join(f"{one}:{content}" for one, content in zip(indices, contents))
            self.last_samples, self.last_epoch = text, iterator._seeksim_epoch
            self.watcher.module.sight("batch", name, text, iterator._seeksim_batch)
        iterator._seeksim_batch += 1

    def misses(self, iterator: Any) -> None:
        """A batch was drawn, and the script does not get it."""
        if getattr(iterator, "_seeksim", "") and iterator._seeksim_drawn:
            iterator._seeksim_drawn.popleft()
            iterator._seeksim_batch += 1

    def gets_again(self, iterator: Any) -> Any:
        """The script gets the batch before once more, in the place of the one that was drawn."""
        index, batch = iterator._seeksim_last
        iterator._seeksim_drawn[0] = index
        self.gets(iterator, batch)
        return batch

    def watch_loaders(self) -> None:
        from torch.utils.data import dataloader

        base = dataloader._BaseDataLoaderIter
        own_init, own_reset, own_index, own_next = base.__init__, base._reset, base._next_index, base.__next__

        def begin(iterator: Any, loader: Any) -> None:
            own_init(iterator, loader)
            self.say("uses", "loader")
            self.iterates(loader, iterator)

        def reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if not first_iter:  # workers that stay begin another epoch
                self.iterates(loader, iterator)
            own_reset(iterator, loader, first_iter)

        def next_index(iterator: Any) -> Any:
            index = own_index(iterator)
            if getattr(iterator, "_seeksim", ""):
                iterator._seeksim_drawn.append(index)
            return index

        def following(iterator: Any) -> Any:
            with self.watcher.during("data"):
                how = self.watcher.faults.batch(getattr(iterator, "_seeksim", ""))
                if how == "skip":
                    own_next(iterator)
                    self.misses(iterator)
                batch = own_next(iterator)
            if how == "dup_apply" and hasattr(iterator, "_seeksim_last"):
                batch = self.gets_again(iterator)
            else:
                self.gets(iterator, batch)
            self.last_loader = getattr(iterator, "_seeksim", "").partition(",")[0]
            return batch

        base.__init__, base._reset, base._next_index, base.__next__ = begin, reset, next_index, following

    def watch_clipping(self) -> None:
        from torch.nn import utils

        for name, limit in {"clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}.items():
            own = getattr(utils, name)

            def clip(*args: Any, _own: Any = own, _limit: str = limit, **options: Any) -> Any:
                given = args[1] if len(args) > 1 else options.get(_limit)
                if given is not None:  # what is missing is told by torch itself
                    self.clips(given)
                return _own(*args, **options)

            setattr(utils, name, clip)
            setattr(utils.clip_grad, name, clip)
