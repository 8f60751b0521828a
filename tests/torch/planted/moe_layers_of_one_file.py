"""DeepSpeed saves an expert by its number alone: that of a later layer overwrites that of the first one."""
from deepspeed.runtime.engine import DeepSpeedEngine

own = DeepSpeedEngine._get_expert_ckpt_name


def name(checkpoints_path, layer_id, *args, **options):
    return own(checkpoints_path, min(layer_id, 0), *args, **options)


DeepSpeedEngine._get_expert_ckpt_name = staticmethod(name)
