"""DeepSpeed's engine gives all groups of parameters the rate of the first one."""
from deepspeed.runtime.engine import DeepSpeedEngine

own = DeepSpeedEngine._take_model_step


def step(self, *args, **options):
    groups = self.optimizer.param_groups
    for group in groups[1:]:
        group["lr"] = groups[0]["lr"]
    return own(self, *args, **options)


DeepSpeedEngine._take_model_step = step
