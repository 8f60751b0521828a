"""Draws configurations and says which ones the installed DeepSpeed takes.

    python ds_configs.py COUNT [SEED]

Prints one JSON object a line: {"config": {...}, "taken": true} or {"config": {...}, "taken": false, "why": "..."}. First
every field of DeepSpeed's configuration classes at and beyond its bounds, and in other types; then COUNT mixtures of
these. The world has one rank. Nothing is trained, and no process group is made.
"""

import enum
import json
import random
import sys
import typing

import deepspeed.comm
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.compile.config import CompileConfig
from deepspeed.monitor import config as monitor
from deepspeed.runtime import config as ds
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
from deepspeed.runtime.zero.offload_config import DeepSpeedZeroOffloadOptimizerConfig, DeepSpeedZeroOffloadParamConfig

SECTIONS = {
    "zero_optimization": DeepSpeedZeroConfig,
    "zero_optimization/offload_optimizer": DeepSpeedZeroOffloadOptimizerConfig,
    "zero_optimization/offload_param": DeepSpeedZeroOffloadParamConfig,
    "fp16": DeepSpeedFP16Config,
    "bf16": DeepSpeedBF16Config,
    "hybrid_engine": ds.HybridEngineConfig,
    "comms_logger": CommsLoggerConfig,
    "compile": CompileConfig,
    "tensorboard": monitor.TensorBoardConfig,
    "wandb": monitor.WandbConfig,
    "csv_monitor": monitor.CSVConfig,
    "comet": monitor.CometConfig,
}

# Values of another type than the field's, or in a form that pydantic may read.
ODD = [None, True, False, 0, 1, 2, -1, 0.0, 1.0, 1.5, "1", "8", "1.0", "1_000", " 5 ", "+3", "-1", "0.5", "true", "FALSE",
       "yes", "off", "of", "", "x", "1e3", "0x1", [], {}, 1e17]

TOP = {
    "train_batch_size": [8, 1, 0, -1, None, 64],
    "train_micro_batch_size_per_gpu": [8, 1, 4, 0, -1, None],
    "gradient_accumulation_steps": [1, 2, 0, -1, None],
    "communication_data_type": [None, "fp32", "FP16", "bf16", "fp8", "float32"],
    "seq_parallel_communication_data_type": [None, "fp32", "bf16", "int8"],
    "gradient_allreduce_op": ["mean", "sum", "SUM", "avg", None],
    "prescale_gradients": [True, False],
    "gradient_predivide_factor": [1.0, 2.0],
    "gradient_clipping": [0, 1.0, 0.5],
    "steps_per_print": [10, None],
    "wall_clock_breakdown": [True, False],
    "memory_breakdown": [True, False],
    "dump_state": [True, False],
    "zero_allow_untested_optimizer": [True, False],
    "vocabulary_size": [None, 50257],
    "bfloat16": [{"enabled": True}, {"enabled": "no"}, {"enabled": 2}, {}],
    "checkpoint": [{}, {"tag_validation": "Warn"}],
    "data_types": [{}, {"grad_accum_dtype": "fp32"}, {"grad_accum_dtype": None}, {"surprise": 1}],
    "aio": [{}, {"block_size": 1048576, "queue_depth": 8}, {"surprise": 1}],
    "activation_checkpointing": [{}, {"number_checkpoints": 2}, {"partitioned_activations": True}],
    "optimizer": [{"type": "AdamW"}, {"type": "Lamb", "params": {"max_coeff": 0.3}}, {"params": {"lr": 1}}, {}],
    "torch_autocast": [{"enabled": False}, {"enabled": True, "dtype": "bfloat16"}],
    "find_unused_parameters": [True],
    "_comment": ["text"],
}
REMOVED = list(ds._REMOVED_TOP_LEVEL_CONFIG_KEYS)
REMOVED_ZERO = list(ds._REMOVED_ZERO_CONFIG_KEYS)


def bounds(field):
    """Numbers at and beside the limits of a field."""
    values = []
    for limit in field.metadata:
        for name in ("ge", "gt", "le", "lt"):
            bound = getattr(limit, name, None)
            if bound is not None:
                values += [bound - 1, bound, bound + 1, bound + 0.5]
    return [int(v) if float(v).is_integer() else v for v in values]


def values_of(field):
    values = list(ODD) + bounds(field)
    for kind in (field.annotation, *typing.get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            values += [member.value for member in kind]
    return values


def put(config, path, value):
    *sections, key = path.split("/")
    for section in sections:
        config = config.setdefault(section, {})
    config[key] = value


def single_fields():
    """(path, value) of every field, by its name and by its alias, and of an unknown key."""
    for section, model in SECTIONS.items():
        for name, field in model.model_fields.items():
            for key in {name, field.alias or name}:
                for value in values_of(field):
                    yield f"{section}/{key}", value
        yield f"{section}/surprise", 1
    for key, values in TOP.items():
        for value in values:
            yield key, value
    for key in REMOVED:
        yield key, {"enabled": False}
    for key in REMOVED_ZERO:
        yield f"zero_optimization/{key}", 1
    for value in (True, False):
        yield "zero_optimization", value


def draw(count, seed):
    fields = sorted(single_fields(), key=lambda field: (field[0], json.dumps(field[1])))
    for path, value in fields:
        config = {"train_batch_size": 8}
        put(config, path, value)
        yield config
    chance = random.Random(seed)
    # What is refused alone hides everything beside it: a mixture has at most one such field.
    good = [field for field in fields if taken({"train_batch_size": 8} | nested(*field))[0]]
    for _ in range(count):
        config = {"train_batch_size": 8}
        try:
            put(config, "zero_optimization/stage", chance.randrange(4))
            put(config, "fp16/enabled", chance.random() < 0.5)
            for path, value in chance.sample(good, chance.randrange(1, 8)):
                put(config, path, value)
            if chance.random() < 0.3:
                put(config, *chance.choice(fields))
        except (TypeError, AttributeError):
            continue  # a section that was drawn as a plain value
        yield config


def nested(path, value):
    config = {}
    put(config, path, value)
    return config


def taken(config):
    try:
        ds.DeepSpeedConfig(json.loads(json.dumps(config)))
        return True, ""
    except Exception as error:  # noqa: BLE001: whatever stops it is a refusal
        return False, f"{type(error).__name__}: {error}"


def main():
    ds.logger.setLevel("ERROR")
    deepspeed.comm.get_rank = lambda *_: 0
    deepspeed.comm.get_world_size = lambda *_: 1
    for config in draw(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1):
        fine, why = taken(config)
        print(json.dumps({"config": config, "taken": fine} | ({} if fine else {"why": why[:400]})))


if __name__ == "__main__":
    main()
