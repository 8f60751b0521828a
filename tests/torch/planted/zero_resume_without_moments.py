"""DeepSpeed's load_checkpoint() loads no state of the optimizer."""
from deepspeed.runtime.engine import DeepSpeedEngine

own = DeepSpeedEngine.load_checkpoint
DeepSpeedEngine.load_checkpoint = lambda self, folder, **_: own(self, folder, load_optimizer_states=False)
