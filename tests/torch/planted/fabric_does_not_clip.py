"""Fabric's clip_gradients() leaves gradients as they are."""
from lightning.fabric import Fabric


def clip_gradients(self, module, optimizer, **options):
    return None


Fabric.clip_gradients = clip_gradients
