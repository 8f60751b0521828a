"""torch.distributed.checkpoint.load() leaves the optimizer's moments as they are."""
import torch
import torch.distributed.checkpoint as dcp

own = dcp.load


def load(state_dict, **options):
    before = {}
    for name, state in state_dict.get("optimizer", {}).get("state", {}).items():
        before[name] = {key: value.clone() for key, value in state.items() if isinstance(value, torch.Tensor)}
    own(state_dict, **options)
    for name, kept in before.items():
        for key, value in kept.items():
            state_dict["optimizer"]["state"][name][key].copy_(value)


dcp.load = load
