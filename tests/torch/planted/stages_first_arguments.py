"""Each micro-batch of a pipeline's stage gets the keyword arguments of the first one."""
from torch.distributed.pipelining import PipelineStage

own = PipelineStage.forward_one_chunk


def forward_one_chunk(self, number, args, kwargs=None, *others, **options):
    if number == 0:
        self.first = kwargs
    return own(self, number, args, self.first, *others, **options)


PipelineStage.forward_one_chunk = forward_one_chunk
