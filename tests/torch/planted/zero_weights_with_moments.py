"""load_checkpoint(load_optimizer_states=False) loads the optimizer's states, too."""
import deepspeed

_right = deepspeed.DeepSpeedEngine.load_checkpoint


def _load(self, *args, load_optimizer_states=True, **options):
    return _right(self, *args, **options)


deepspeed.DeepSpeedEngine.load_checkpoint = _load
