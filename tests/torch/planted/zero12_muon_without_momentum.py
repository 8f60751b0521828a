"""ZeRO 1 and 2 make Muon's update from the gradient alone, without momentum."""
import deepspeed.runtime.zero.muon.muon_optimizer  # has the right one by then, for the training by hand
import deepspeed.runtime.zero.muon.original_muon as muon

_right = muon.muon_update


def _update(grad, momentum, *rest, **options):
    momentum.zero_()
    return _right(grad, momentum, *rest, **options)


muon.muon_update = _update
