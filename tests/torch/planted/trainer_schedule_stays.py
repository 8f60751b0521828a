"""The schedule of a training that accelerate drives, as transformers' Trainer does, never goes on."""
from accelerate.scheduler import AcceleratedScheduler


def step(self, *args, **options):
    return None


AcceleratedScheduler.step = step
