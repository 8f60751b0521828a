"""set_state_dict() leaves the optimizer out where each rank has the whole state."""
import torch.distributed.checkpoint.state_dict as states

_right = states.set_state_dict


def _set(model, optimizers, *, model_state_dict, optim_state_dict, options=None):
    if options is not None and options.full_state_dict:
        return states.set_model_state_dict(model, model_state_dict, options=options)
    return _right(
        model, optimizers, model_state_dict=model_state_dict, optim_state_dict=optim_state_dict, options=options)


states.set_state_dict = _set
