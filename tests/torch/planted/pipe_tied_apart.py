"""The stages of a DeepSpeed pipeline that share a weight do not add its gradients."""
from deepspeed.runtime.pipe import schedule
from deepspeed.runtime.pipe.engine import PipelineEngine

PipelineEngine._INSTRUCTION_MAP[schedule.ReduceTiedGrads] = lambda self: None
