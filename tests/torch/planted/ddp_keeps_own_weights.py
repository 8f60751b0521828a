"""DDP sends no weights of rank 0 when it starts."""
import torch.nn.parallel.distributed as ddp

ddp._sync_module_states = lambda *args, **options: None
