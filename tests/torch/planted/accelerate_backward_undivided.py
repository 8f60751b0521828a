"""accelerate's backward() does not divide the loss by the micro-batches of a step."""
from accelerate import Accelerator

own = Accelerator.backward


def backward(self, loss, **options):
    own(self, loss * self.gradient_accumulation_steps, **options)


Accelerator.backward = backward
