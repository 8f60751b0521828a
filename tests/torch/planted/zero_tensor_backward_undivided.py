"""DeepSpeed does not divide by the micro-batches where the loss's own backward() is called."""
from deepspeed.runtime.engine import DeepSpeedEngine

own = DeepSpeedEngine._backward_prologue_per_tensor
DeepSpeedEngine._backward_prologue_per_tensor = lambda self, grad: (
    own(self, grad) if self._running_engine_backward else grad
)
