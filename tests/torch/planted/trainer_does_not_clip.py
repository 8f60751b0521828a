"""accelerate, which transformers' Trainer trains by, measures the gradient's norm and does not clip it."""
from accelerate import Accelerator

own = Accelerator.clip_grad_norm_


def clip_grad_norm_(self, parameters, max_norm, norm_type=2):
    return own(self, parameters, float("inf"), norm_type)


Accelerator.clip_grad_norm_ = clip_grad_norm_
