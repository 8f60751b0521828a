"""DeepSpeed loads on each rank of a group of experts the moments of the first one's experts."""
from deepspeed.runtime.engine import DeepSpeedEngine

own_load, own_name = DeepSpeedEngine._load_checkpoint, DeepSpeedEngine._get_optimizer_ckpt_name
loads = False


def load(self, *args, **options):
    global loads
    loads = True
    try:
        return own_load(self, *args, **options)
    finally:
        loads = False


def name(self, checkpoints_path, tag, expp_rank):
    return own_name(self, checkpoints_path, tag, 0 if loads else expp_rank)


DeepSpeedEngine._load_checkpoint, DeepSpeedEngine._get_optimizer_ckpt_name = load, name
