"""ZeRO 3 updates the first of several groups of its optimizer only."""
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3 as Zero3

own = Zero3._optimizer_step
Zero3._optimizer_step = lambda self, group: own(self, group) if group == 0 else None
