"""What `seeksim torch check` turns in a script without touching it. Each switch says when it took effect.

A switch is a function that changes how torch is called; harness/torch/check/switches.cpp says what has to stay equal.
"""

import functools
import importlib
import math
import mmap
import random
import sys
from typing import Any, Callable, Dict, List

import torch

from seeksim_torch import engines, states
from seeksim_torch.plan import Refusal

_SEED_MOVED = 7919
_SEEDS_TOLD = 8  # seeds of a rank that are written down


class Turner:
    """Applies switches to this process, and writes down what the script uses and what took effect."""

    def __init__(self, habits: Any, rank: int, world: int) -> None:
        self.habits = habits
        self.rank = rank
        self.world = world

    def uses(self, part: str) -> None:
        """The script uses this part of torch."""
        self.habits.say("uses", part)

    def turned(self, switch: str) -> None:
        """The switch took effect."""
        self.habits.say("turned", switch)


def _around(owner: Any, name: str, wrap: Callable[..., Any]) -> None:
    own = getattr(owner, name)

    @functools.wraps(own)  # Lightning makes a loader anew from its signature
    def call(*args: Any, **options: Any) -> Any:
        return wrap(own, *args, **options)

    setattr(owner, name, call)


def _ddp(turner: Turner, switches: List[str]) -> None:
    from torch.nn.parallel import DistributedDataParallel as DDP

    def make(own: Any, self: Any, *args: Any, **options: Any) -> None:
        turner.uses("ddp")
        if "buckets" in switches:
            options["bucket_cap_mb"] = 0.01
            turner.turned("buckets")
        if "static_graph" in switches and not options.get("find_unused_parameters"):
            options["static_graph"] = not options.get("static_graph", False)
            turner.turned("static_graph")
        if "unused" in switches and not options.get("static_graph"):
            options["find_unused_parameters"] = True
            turner.turned("unused")
        if "views" in switches:
            options["gradient_as_bucket_view"] = not options.get("gradient_as_bucket_view", False)
            turner.turned("views")
        own(self, *args, **options)

    def no_sync(own: Any, self: Any) -> Any:
        turner.uses("no_sync")
        return own(self)

    _around(DDP, "__init__", make)
    _around(DDP, "no_sync", no_sync)


def _fsdp2(turner: Turner, switches: List[str]) -> None:
    try:
        fsdp = importlib.import_module("torch.distributed.fsdp")
        own = fsdp.fully_shard
    except (ImportError, AttributeError):
        return

    @functools.wraps(own)
    def fully_shard(module: Any, *args: Any, **options: Any) -> Any:
        turner.uses("fsdp2")
        if "reshard" in switches:
            options["reshard_after_forward"] = options.get("reshard_after_forward") is False
            turner.turned("reshard")
        return own(module, *args, **options)

    fsdp.fully_shard = fully_shard


def _loaders(turner: Turner, switches: List[str]) -> None:
    from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

    def make(own: Any, self: Any, dataset: Any, *args: Any, **options: Any) -> None:
        own(self, dataset, *args, **options)
        if "workers" in switches and not isinstance(dataset, IterableDataset):
            object.__setattr__(self, "num_workers", 0 if self.num_workers else 1)
            if self.num_workers:
                object.__setattr__(self, "prefetch_factor", 2)
            elif self.prefetch_factor is not None:
                object.__setattr__(self, "prefetch_factor", None)
                object.__setattr__(self, "persistent_workers", False)
            turner.turned("workers")

    _around(DataLoader, "__init__", make)

    def make_sampler(own: Any, self: Any, *args: Any, **options: Any) -> None:
        own(self, *args, **options)
        turner.uses("sampler")
        if "ranks" in switches and self.num_replicas == turner.world and self.rank == turner.rank:
            self.rank = turner.world - 1 - self.rank
            turner.turned("ranks")

    _around(DistributedSampler, "__init__", make_sampler)


def _optimizers(turner: Turner, switches: List[str]) -> None:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    seen: set = set()

    def first_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if id(optimizer) in seen:
            return
        seen.add(id(optimizer))
        for group in optimizer.param_groups:
            for way, other in (("foreach", "fused"), ("fused", "foreach")):
                if way not in group:
                    continue
                turner.uses(way)
                # Both want the whole group to be distributed tensors, or none of it.
                mixed = len({hasattr(p, "to_local") for p in group["params"]}) > 1
                if way in switches and not mixed:
                    group[way] = not group[way]
                    if group[way]:
                        group[other] = False
                    turner.turned(way)

    register_optimizer_step_pre_hook(first_step)

    def zero_grad(own: Any, self: Any, *args: Any, **options: Any) -> Any:
        turner.uses("zero_grad")
        if "zeros" in switches:
            before = args[0] if args else options.get("set_to_none", True)
            args, options = (), {"set_to_none": not before}
            turner.turned("zeros")
        return own(self, *args, **options)

    for owner in (torch.optim.Optimizer, torch.nn.Module):
        _around(owner, "zero_grad", zero_grad)


def _seeds(turner: Turner, switches: List[str]) -> None:
    told: set = set()

    def moved(own: Any, seed: Any = None, *args: Any, **options: Any) -> Any:
        turner.uses("seed")
        if len(told) < _SEEDS_TOLD:
            told.add(seed)
            turner.uses(f"seed {seed}")
        if "seed" in switches and isinstance(seed, int):
            seed += _SEED_MOVED
            turner.turned("seed")
        return own(seed, *args, **options)

    _around(torch, "manual_seed", moved)
    torch.random.manual_seed = torch.manual_seed
    _around(random, "seed", moved)


def _threads(turner: Turner, switches: List[str]) -> None:
    if "threads" in switches:
        torch.set_num_threads(2)
        turner.turned("threads")


def _random_states() -> List[Any]:
    numpy = sys.modules.get("numpy")
    state = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    return [*state, str(numpy.random.get_state())] if numpy is not None else state


def _reasons(turner: Turner, switches: List[str]) -> None:
    """What makes a training depend on who reads which samples, and is no mistake."""
    from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.utils.data import _utils, dataloader

    drawn = mmap.mmap(-1, 1)  # shared with the loaders' workers
    before: List[Any] = []  # random generator, as the last forward pass began

    def before_forward(module: torch.nn.Module, args: Any) -> None:
        if isinstance(module, _BatchNorm) and module.training and not isinstance(module, SyncBatchNorm):
            turner.uses("batch_norm")
        if turner.habits.depth == 1 and torch.is_grad_enabled():
            now = torch.get_rng_state()
            if before and not torch.equal(before[0], now):
                turner.uses("drawing")
            before[:] = [now]
        if drawn[0]:
            turner.uses("drawing data")

    register_module_forward_pre_hook(before_forward)

    def begin(own: Any, self: Any, *args: Any, **options: Any) -> None:
        own(self, *args, **options)
        before.clear()  # a loader's own draw at the beginning of a pass decides nothing here

    _around(dataloader._BaseDataLoaderIter, "__init__", begin)

    def fetch(own: Any, self: Any, *args: Any, **options: Any) -> Any:
        if drawn[0]:
            return own(self, *args, **options)
        states = _random_states()
        batch = own(self, *args, **options)
        drawn[0] = _random_states() != states
        return batch

    _around(_utils.fetch._MapDatasetFetcher, "fetch", fetch)


def _nudged(weight: torch.Tensor, seed: int) -> torch.Tensor:
    """Each number moved to the next one above or below it, by a coin of its own."""
    coins = torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    return torch.nextafter(weight, torch.where(coins, math.inf, -math.inf).to(weight.dtype))


def _rounding(turner: Turner, switches: List[str]) -> None:
    if "rounding" not in switches:
        return
    from torch.nn.modules.module import register_module_forward_pre_hook

    moved_in: Dict[int, int] = {}  # the last step in which a parameter was moved

    def before_forward(module: torch.nn.Module, args: Any) -> None:
        if turner.habits.depth != 1 or not torch.is_grad_enabled():
            return
        step = turner.habits.watcher.step
        for number, p in enumerate(module.parameters()):
            if not p.requires_grad or moved_in.get(id(p), -1) >= step:
                continue
            moved_in[id(p)] = step
            held = getattr(p, "ds_tensor", p).data  # ZeRO 3 keeps its shard there
            part = held.to_local() if hasattr(held, "to_local") else held
            if part.dtype in (torch.float32, torch.float64) and part.numel():
                # The same on each replica: only shards of a tensor get coins of their own.
                part.copy_(_nudged(part, step * 1_000_003 + number))
                turner.turned("rounding")

    register_module_forward_pre_hook(before_forward)


def _float64(turner: Turner, switches: List[str]) -> None:
    if "float64" in switches:
        torch.set_default_dtype(torch.float64)
        turner.turned("float64")


def _flipped_weight(turner: Turner, switches: List[str]) -> None:
    if "weight" not in switches or turner.rank != turner.world - 1:
        return
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def flip(optimizer: Any, args: Any, kwargs: Any) -> None:
        watcher = turner.habits.watcher
        if watcher.step != 1 or ("turned", "weight") in turner.habits.said:
            return
        # Whole on each rank, and no shard: what is gathered from shards is the same everywhere, right or wrong.
        named = watcher.parameters()
        whole = {id(p) for name, (p, _) in named.items() if watcher.sizes.get(name) == p.numel()}
        for p in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            if id(p) not in whole or hasattr(p, "to_local") or p.dtype != torch.float32 or not p.is_contiguous():
                continue
            bits = p.detach().view(torch.int32).view(-1)
            bits[0] ^= 1 << 20
            turner.turned("weight")
            return

    register_optimizer_step_post_hook(flip)


_DEEPSPEED: Dict[str, Dict[str, Any]] = {
    "ds_buckets": {"reduce_bucket_size": 4096, "allgather_bucket_size": 4096},
    "ds_overlap": {"overlap_comm": None},
    "ds_contiguous": {"contiguous_gradients": None},
    "ds_round_robin": {"round_robin_gradients": None},
}


def _deepspeed(turner: Turner, switches: List[str]) -> None:
    def watch(module: Any) -> None:
        own = module.initialize

        def initialize(*args: Any, **options: Any) -> Any:
            turner.uses("deepspeed")
            config = options.get("config", options.get("config_params"))
            zero = config.get("zero_optimization") if isinstance(config, dict) else None
            for name in [name for name in switches if name in _DEEPSPEED and isinstance(zero, dict)]:
                for key, value in _DEEPSPEED[name].items():
                    zero[key] = value if value is not None else not zero.get(key, key == "contiguous_gradients")
                turner.turned(name)
            return own(*args, **options)

        module.initialize = initialize

    engines.when_imported("deepspeed", watch)


def _states(turner: Turner, switches: List[str]) -> None:
    if "states" in switches:
        turner.habits.watcher.states = states.States(turner.habits.watcher)


_TURNS = (
    *(_states, _ddp, _fsdp2, _loaders, _optimizers, _seeds, _threads, _reasons, _rounding, _float64),
    *(_flipped_weight, _deepspeed),
)
NAMES = {
    *("buckets", "static_graph", "unused", "views", "reshard", "workers", "ranks", "foreach", "fused", "zeros", "seed"),
    *("threads", "rounding", "float64", "weight", "watch", "states", *_DEEPSPEED),
}


def turn(habits: Any, rank: int, world: int, switches: List[str]) -> None:
    """Turns these switches. With none of them torch is left as it is; "watch" only sees what the script uses,
    "states" writes down all that a training goes on with."""
    unknown = [name for name in switches if name not in NAMES]
    if unknown:
        raise Refusal(f"plan.json: turns: there is no switch {unknown[0]!r}; switches: {', '.join(sorted(NAMES))}")
    if switches:
        turner = Turner(habits, rank, world)
        for apply in _TURNS:
            apply(turner, switches)
