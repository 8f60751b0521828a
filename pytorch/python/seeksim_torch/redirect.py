"""Every process group that would be gloo's (without a GPU: NCCL's too) becomes seeksim's.

From torch 2.15 on gloo is a backend like any other, and seeksim takes its name. Before, gloo is hard-coded: seeksim has
a name of its own there, and the functions that take or tell a name translate it.
"""

import os
from types import ModuleType
from typing import Any, Optional

OWN_NAME = "seeksim"


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
        )

    # Never the C++ type GLOO: DDP's logger takes a backend of that type for a ProcessGroupGloo.
    kind = {"_backend_type": c10d.ProcessGroup.BackendType.CUSTOM} if takes_name else {}
    c10d.Backend.register_backend(name, create, extended_api=True, devices=["cpu"], **kind)
    # torch's own flight recorder then records seeksim's groups, as it does with backends that do not do it themselves.
    getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set()).discard("gloo")

    gpu = torch.cuda.is_available()
    asked = (c10d.init_process_group, c10d.new_group, c10d.get_backend)

    def ours(backend: Optional[Any]) -> Optional[str]:
        if backend is None:
            return None if gpu else name
        text = str(backend)
        for other in () if gpu else ("nccl", "ccl", "mpi"):
            text = text.replace(other, "gloo")
        return text.replace("gloo", name)

    def init_process_group(backend: Optional[str] = None, *args: Any, **options: Any) -> None:
        if not gpu:
            options.pop("device_id", None)
        asked[0](ours(backend), *args, **options)

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **options: Any) -> Any:
        return asked[1](ranks, timeout, None if backend is None else ours(backend), *args, **options)

    def get_backend(group: Any = None) -> str:
        told = asked[2](group)
        return "gloo" if told == OWN_NAME else told

    for place in (c10d, dist):
        place.init_process_group = init_process_group
        place.new_group = new_group
        place.get_backend = get_backend
