"""A pass that finds out what a pipeline's stages pass on leaves what it did to their buffers."""
from torch.distributed.pipelining import PipelineStage

PipelineStage._pre_metadata_inference_backup = lambda self: None
