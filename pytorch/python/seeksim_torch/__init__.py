"""Puts seeksim under an unmodified PyTorch script.

torch calls autoload() at the end of `import torch` (entry point "torch.backends"); the folder above only has to be on
PYTHONPATH. Without SEEKSIM_TORCH_DIR and RANK in the environment it does nothing. pytorch/README.md has the contract.
"""

import os


def autoload() -> None:
    """Called by torch. Starts watching where this process is a rank of a run that `seeksim torch` has begun."""
    if "SEEKSIM_TORCH_DIR" in os.environ and "RANK" in os.environ:
        from seeksim_torch import start

        start.start()
