"""Every process group that would be gloo's (without a GPU: NCCL's too) becomes seeksim's; or, with a backend of the
plan's that forwards, every group keeps its own, and seeksim's stands before it.

From torch 2.15 on gloo is a backend like any other, and seeksim takes its name. Before, gloo is hard-coded: seeksim has
a name of its own there, and the functions that take or tell a name translate it.
"""

import datetime
import os
from types import ModuleType
from typing import Any, Callable, Dict, Optional

OWN_NAME = "seeksim"
# Backends that seeksim can stand before. "fake" communicates with nobody.
FORWARDED = ("gloo", "nccl", "nccl2", "nccl-lazy", "nccl-legacy", "ucc", "mpi", "xccl")
# How much longer than seeksim's own wait theirs lasts, in seconds: seeksim names who is missing, they do not.
LONGER_S = 5.0


def started_by_release(name: str) -> Callable[[Any, Any], Any]:
    """What makes torch's own backend before 2.15, where only gloo and NCCL are known to be made so."""
    import torch.distributed.distributed_c10d as c10d

    def start(options: Any, given: Any) -> Any:
        place = (options.store, options.group_rank, options.group_size)
        if name == "gloo":
            return c10d.ProcessGroupGloo(*place, timeout=options.timeout)
        given = given or c10d.ProcessGroupNCCL.Options()
        given._timeout = options.timeout
        given.global_ranks_in_group = list(options.global_ranks_in_group)
        given.group_name = options.group_id
        return c10d.ProcessGroupNCCL(*place, given)

    return start


def forward(module: ModuleType, folds: bool, timeout_s: float) -> None:
    """Puts seeksim's backend before each of torch's own: it meets, records and compares, they carry the data."""
    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    plugins = c10d.Backend._plugins
    takes_name = hasattr(c10d.Backend, "_ensure_backend_registered")
    kinds = c10d.ProcessGroup.BackendType
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    groups: set = set()
    names: Dict[str, str] = {}

    def before(name: str, own: Callable[[Any, Any], Any], devices: Any) -> None:
        def create(options: Any, given: Any = None) -> Any:
            store = dist.PrefixStore(f"attempt {attempt}", options.store)
            # A group of two devices has two backends, which count their collectives apart.
            group = str(options.group_id)
            group = f"{group} ({name})" if group in groups else group
            groups.add(group)
            usual_s = options.timeout.total_seconds()
            options.store = dist.PrefixStore("inner", store)
            options.timeout = datetime.timedelta(seconds=(timeout_s or usual_s) + LONGER_S)
            inner = own(options, given)
            place = (options.group_rank, options.group_size)
            ranks = list(options.global_ranks_in_group)
            return module.create(store, *place, group, ranks, usual_s, name, inner, folds)

        ours = name if takes_name else f"{OWN_NAME}_{name}"
        names[name] = ours
        # Two backends of one group need two C++ types, and gloo's is taken for a ProcessGroupGloo by DDP's logger.
        kind = kinds.CUSTOM if name == "gloo" else c10d.Backend.backend_type_map.get(name, kinds.CUSTOM)
        c10d.Backend.register_backend(ours, create, extended_api=True, devices=devices)
        c10d.Backend.backend_type_map[ours] = kind
        getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set()).discard(name)

    for name in FORWARDED:
        if takes_name:
            c10d.Backend._ensure_backend_registered(name)
        devices = c10d.Backend.backend_capability.get(name)
        if takes_name and name.upper() in plugins:
            before(name, plugins[name.upper()].creator_fn, devices)
        elif not takes_name and name in ("gloo", "nccl"):
            before(name, started_by_release(name), devices)

    gpu = torch.cuda.is_available()

    def ours(backend: Optional[Any]) -> Optional[str]:
        if backend is None:
            return None if gpu and takes_name else "cuda:" + names["nccl"] if gpu else names["gloo"]
        text = str(backend)
        for other in () if gpu else ("nccl", "ccl"):
            text = text.replace(other, "gloo")
        return text if takes_name else text.replace("gloo", names["gloo"]).replace("nccl", names["nccl"])

    rename(ours, {ours_name: name for name, ours_name in names.items()})


def redirect(module: ModuleType) -> None:
    """Registers the backend that `module` makes and sends every group to it."""
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return
    import torch.distributed.distributed_c10d as c10d

    takes_name = hasattr(c10d.Backend, "_ensure_backend_registered")
    name = "gloo" if takes_name else OWN_NAME

    # A launcher that starts the ranks again may keep its store, with what the ranks before had written into it.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def create(options: Any, _: Any = None) -> Any:
        return module.create(
            dist.PrefixStore(f"attempt {attempt}", options.store),
            options.group_rank,
            options.group_size,
            str(options.group_id),
            list(options.global_ranks_in_group),
            options.timeout.total_seconds(),
            name,
            None,
            False,
        )

    # Never the C++ type GLOO: DDP's logger takes a backend of that type for a ProcessGroupGloo.
    kind = {"_backend_type": c10d.ProcessGroup.BackendType.CUSTOM} if takes_name else {}
    c10d.Backend.register_backend(name, create, extended_api=True, devices=["cpu"], **kind)
    # torch's own flight recorder then records seeksim's groups, as it does with backends that do not do it themselves.
    getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set()).discard("gloo")

    gpu = torch.cuda.is_available()

    def ours(backend: Optional[Any]) -> Optional[str]:
        if backend is None:
            return None if gpu else name
        text = str(backend)
        for other in () if gpu else ("nccl", "ccl", "mpi"):
            text = text.replace(other, "gloo")
        return text.replace("gloo", name)

    rename(ours, {OWN_NAME: "gloo"})


def rename(ours: Callable[[Optional[Any]], Optional[str]], told: Dict[str, str]) -> None:
    """Lets torch's functions take the script's name of a backend, and tell it."""
    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d

    asked = (c10d.init_process_group, c10d.new_group, c10d.get_backend)
    gpu = torch.cuda.is_available()

    def init_process_group(backend: Optional[str] = None, *args: Any, **options: Any) -> None:
        if not gpu:
            options.pop("device_id", None)
        asked[0](ours(backend), *args, **options)

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **options: Any) -> Any:
        return asked[1](ranks, timeout, None if backend is None else ours(backend), *args, **options)

    def get_backend(group: Any = None) -> str:
        name = asked[2](group)
        return told.get(name, name)

    for place in (c10d, dist):
        place.init_process_group = init_process_group
        place.new_group = new_group
        place.get_backend = get_backend
