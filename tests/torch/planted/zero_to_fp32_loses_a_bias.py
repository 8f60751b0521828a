"""DeepSpeed's zero_to_fp32 leaves the head's bias at zero."""
import deepspeed.utils.zero_to_fp32 as gathering

own = gathering.get_fp32_state_dict_from_zero_checkpoint


def get_fp32_state_dict_from_zero_checkpoint(*args, **options):
    weights = own(*args, **options)
    weights["head.bias"].zero_()
    return weights


gathering.get_fp32_state_dict_from_zero_checkpoint = get_fp32_state_dict_from_zero_checkpoint
