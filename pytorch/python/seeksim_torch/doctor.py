"""Says whether scripts of this Python can run under seeksim: python -m seeksim_torch.doctor prints one JSON object."""

import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Any, Dict, List

from seeksim_torch import build
from seeksim_torch.plan import Refusal

OLDEST = (2, 6)


def _torch(facts: Dict[str, Any], problems: List[str]) -> None:
    try:
        import torch
    except ImportError as error:
        problems.append(build.no_torch(error))
        return
    facts["torch"] = torch.__version__
    facts["cuda"] = torch.cuda.is_available()
    if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < OLDEST:
        problems.append(f"torch {torch.__version__} is older than {OLDEST[0]}.{OLDEST[1]}: install a newer one")
    facts["distributed"] = torch.distributed.is_available()
    if not facts["distributed"]:
        problems.append("this torch was built without torch.distributed: install another build")
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        problems.append("TORCH_DEVICE_BACKEND_AUTOLOAD is 0: torch loads no plug-ins; unset it")


def _compiler(facts: Dict[str, Any], problems: List[str]) -> None:
    try:
        name = build.compiler()
        said = subprocess.run([name, "-dumpfullversion"], capture_output=True, text=True, check=False).stdout
        facts["compiler"] = said.strip()
    except Refusal as why:
        problems.append(str(why))


def facts() -> Dict[str, Any]:
    """Everything that matters, and under "problems" a line for each thing that does not fit."""
    problems: List[str] = []
    found: Dict[str, Any] = {"python": platform.python_version(), "executable": sys.executable}
    _torch(found, problems)
    _compiler(found, problems)
    if not sys.platform.startswith("linux"):
        problems.append(f"seeksim needs Linux, this is {sys.platform}")
    elif not hasattr(os, "memfd_create"):
        problems.append("the kernel has no memfd_create: Linux 3.17 or newer is needed")
    try:
        cache = build.cache_folder()
        found["cache"] = str(cache)
        found["cache_free_mib"] = shutil.disk_usage(cache).free >> 20
    except Refusal as why:
        problems.append(str(why))
    found["problems"] = problems
    return found


if __name__ == "__main__":
    print(json.dumps(facts(), indent=1))
