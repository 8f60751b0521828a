"""The Trainer divides the last step of an epoch by all micro-batches of a step, where it has fewer."""
import transformers

own = transformers.Trainer.training_step


def training_step(self, *args, **options):
    self.current_gradient_accumulation_steps = self.args.gradient_accumulation_steps
    return own(self, *args, **options)


transformers.Trainer.training_step = training_step
