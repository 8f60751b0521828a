// Who calls backward() and step(): accelerate or Lightning Fabric in the script's loop, or a Trainer that has its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/torch/program/script.h"

namespace seeksim::harness::torch {
namespace {

bool resumes(const Case& drawn) { return is_on(drawn, "resume"); }

std::string schedule_of(const Case& drawn) { return is_on(drawn, "schedule") ? ", schedule" : ""; }

// The options of DDP as arguments of something else, "" where there is none.
std::string ddp_words(const Case& drawn) { return fmt::format("{}", fmt::join(ddp_options(drawn), ", ")); }

// Without split_batches a schedule makes a step for each rank.
bool sets_up_loaders(const Case& drawn) {
  return has_loader(drawn) ? drawn.at("deals") != "batches" : !is_deepspeed(drawn);
}

void add_accelerate(const Case& drawn, Lines& to) {
  std::vector<std::string> options = {"gradient_accumulation_steps=" + drawn.at("accumulation")};
  if (sets_up_loaders(drawn))
    options.push_back(fmt::format("dataloader_config=DataLoaderConfiguration({}=True)",
                                  drawn.at("deals") == "sent" ? "dispatch_batches" : "split_batches"));
  if (is_deepspeed(drawn)) {
    options.emplace_back("deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=CONFIG)");
  } else {
    options.emplace_back("cpu=True");
    if (const std::string words = ddp_words(drawn); !words.empty())
      options.push_back(fmt::format("kwargs_handlers=[DistributedDataParallelKwargs({})]", words));
  }
  if (drawn.at("precision") == "autocast") options.emplace_back("mixed_precision=\"bf16\"");
  to.add(0, "if not PLAIN:").add(1, "accelerator = Accelerator(");
  add_words(options, 2, to);
  to.add(1, ")");
}

// Lightning's name of the precision; "" for fp32.
std::string lightning_precision(const Case& drawn) {
  const std::string& precision = drawn.at("precision");
  if (precision == "fp32") return "";
  return fmt::format(", precision=\"{}\"", precision == "bf16" ? "bf16-true" : "bf16-mixed");
}

void add_fabric(const Case& drawn, Lines& to) {
  to.add(0, "if not PLAIN:").add(1, fmt::format("strategy = DDPStrategy({})", ddp_words(drawn)));
  to.add(1, fmt::format("fabric = Fabric(accelerator=\"cpu\", devices=dist.get_world_size(), strategy=strategy{})",
                        lightning_precision(drawn)));
  to.add(1, "fabric.launch()");
}

void add_lightning(const Case& drawn, Lines& to) {
  to.gap().add(0, "class Training(Model, lightning.LightningModule):");
  if (has_loader(drawn)) {
    to.add(1, "def training_step(self, batch, i):").add(2, "return loss_of(self, *batch, self.global_step)");
  } else {
    to.add(1, "seen = 0").gap().add(1, "def training_step(self, x, i):").add(2, "self.seen += 1");
    to.add(2, fmt::format("return loss_of(self, self.global_step, (self.seen - 1) % {})", drawn.at("accumulation")));
  }
  to.gap().add(1, "def configure_optimizers(self):");
  if (is_on(drawn, "schedule"))
    to.add(2, "return [self.optimizer], [{\"scheduler\": self.schedule, \"interval\": \"step\"}]");
  else
    to.add(2, "return self.optimizer");
  to.gap().add(0, "def fit(seed, steps, saved):");
  to.add(1,
         fmt::format("model, _, model.optimizer{} = build(seed)", is_on(drawn, "schedule") ? ", model.schedule" : ""));
  to.add(1, "trainer = lightning.Trainer(");
  std::vector<std::string> options = {"accelerator=\"cpu\"",
                                      "devices=dist.get_world_size()",
                                      "max_steps=steps",
                                      fmt::format("strategy=DDPStrategy({})", ddp_words(drawn)),
                                      "accumulate_grad_batches=" + drawn.at("accumulation"),
                                      "logger=False",
                                      "enable_checkpointing=False",
                                      "enable_progress_bar=False",
                                      "enable_model_summary=False"};
  if (is_on(drawn, "clip")) options.emplace_back("gradient_clip_val=0.2");
  if (const std::string precision = lightning_precision(drawn); !precision.empty())
    options.push_back(precision.substr(2));
  add_words(options, 2, to);
  to.add(1, ")");
  to.add(1, has_loader(drawn)
                ? "batches = torch.utils.data.DataLoader(Samples(), 6)"
                : "batches = torch.utils.data.DataLoader(range(64), batch_size=None)  # loss_of() has its own");
  to.add(1, "trainer.fit(model, batches, ckpt_path=saved)");
  to.add_if(resumes(drawn), 1, "trainer.save_checkpoint(FOLDER)").add(1, "return model");
}

void add_trainer(const Case& drawn, Lines& to) {
  const char* const loss = "def compute_loss(self, net, inputs, return_outputs=False, num_items_in_batch=None):";
  to.gap().add(0, "class Training(transformers.Trainer):");
  if (has_loader(drawn)) {
    to.add(1, loss).add(2, "return loss_of(net, *inputs, self.state.global_step)");
  } else {
    to.add(1, "seen = 0").gap().add(1, loss).add(2, "self.seen += 1");
    to.add(2,
           fmt::format("return loss_of(net, self.state.global_step, (self.seen - 1) % {})", drawn.at("accumulation")));
  }
  if (is_deepspeed(drawn)) {
    // It takes no notice of `optimizers` then (transformers #38753).
    to.gap().add(1, "def create_optimizer(self, model=None):").add(2, "self.optimizer = self.made[0]");
    to.add(2, "return self.optimizer");
    to.gap().add(1, "def create_scheduler(self, num_training_steps, optimizer=None):");
    to.add(2, "self.lr_scheduler = self.made[1] or super().create_scheduler(num_training_steps, optimizer)");
    to.add(2, "return self.lr_scheduler");
  }
  to.gap().add(0, "def fit(seed, steps, saved):");
  to.add(1, fmt::format("model, _, optimizer{} = build(seed)", schedule_of(drawn)));
  to.add(1, "options = transformers.TrainingArguments(");
  std::vector<std::string> options = {"FOLDER",
                                      "use_cpu=True",
                                      "ddp_backend=\"gloo\"",
                                      "max_steps=steps",
                                      "per_device_train_batch_size=6",
                                      "gradient_accumulation_steps=" + drawn.at("accumulation"),
                                      is_on(drawn, "clip") ? "max_grad_norm=0.2" : "max_grad_norm=0.0",
                                      "report_to=\"none\"",
                                      "disable_tqdm=True",
                                      "remove_unused_columns=False"};
  if (has_loader(drawn)) options.emplace_back("train_sampling_strategy=\"sequential\"");
  if (is_deepspeed(drawn))
    options.emplace_back("deepspeed=CONFIG");
  else
    options.push_back(fmt::format("ddp_find_unused_parameters={}", is_on(drawn, "find_unused") ? "True" : "False"));
  if (is_on(drawn, "static_graph")) options.emplace_back("ddp_static_graph=True");
  if (drawn.at("send_buffers") == "off") options.emplace_back("ddp_broadcast_buffers=False");
  if (!is_on(drawn, "schedule")) options.emplace_back("lr_scheduler_type=\"constant\"");
  const bool bf16 = drawn.at("precision") == "bf16" && is_deepspeed(drawn);
  if (bf16 || drawn.at("precision") == "autocast") options.emplace_back("bf16=True");
  if (resumes(drawn))
    options.push_back(fmt::format("save_steps={}", middle(drawn)));
  else
    options.emplace_back("save_strategy=\"no\"");
  add_words(options, 2, to);
  to.add(1, ")");
  to.add_if(!has_loader(drawn), 1, "samples = [{\"x\": torch.zeros(1)}] * 800  # loss_of() has its own");
  to.add(1, fmt::format("made = (optimizer, {})", is_on(drawn, "schedule") ? "schedule" : "None"));
  if (has_loader(drawn))
    to.add(1, "collate = torch.utils.data.default_collate")
        .add(1, "trainer = Training(model, options, collate, train_dataset=Samples(), optimizers=made)");
  else
    to.add(1, "trainer = Training(model, options, train_dataset=samples, optimizers=made)");
  to.add_if(is_deepspeed(drawn), 1, "trainer.made = made");
  to.add(1, "trainer.train(resume_from_checkpoint=saved)").add(1, "return trainer.model_wrapped");
}

}  // namespace

std::string folder_of_state() { return "FOLDER = os.path.splitext(os.path.abspath(__file__))[0] + \".saved\""; }

bool has_own_loop(const Case& drawn) { return drawn.at("loop") == "own"; }
bool is_trainer(const Case& drawn) { return drawn.at("loop") == "lightning" || drawn.at("loop") == "trainer"; }

void add_loop_imports(const Case& drawn, Lines& to) {
  const std::string& loop = drawn.at("loop");
  to.add_if(loop == "lightning", 0, "import lightning");
  to.add_if(loop == "trainer", 0, "import transformers");
  if (loop == "accelerate") {
    to.add(0, "from accelerate import Accelerator");
    std::vector<std::string> names;
    if (sets_up_loaders(drawn)) names.emplace_back("DataLoaderConfiguration");
    if (is_deepspeed(drawn)) names.emplace_back("DeepSpeedPlugin");
    if (!ddp_words(drawn).empty()) names.emplace_back("DistributedDataParallelKwargs");
    if (!names.empty()) to.add(0, fmt::format("from accelerate.utils import {}", fmt::join(names, ", ")));
  }
  to.add_if(loop == "fabric", 0, "from lightning.fabric import Fabric");
  to.add_if(loop == "fabric", 0, "from lightning.fabric.strategies import DDPStrategy");
  to.add_if(loop == "lightning", 0, "from lightning.pytorch.strategies import DDPStrategy");
}

void add_loop(const Case& drawn, Lines& to) {
  const std::string& loop = drawn.at("loop");
  // accelerate asks this before it looks at its plugin.
  if (loop == "accelerate" && is_deepspeed(drawn)) to.add(0, "os.environ[\"ACCELERATE_USE_DEEPSPEED\"] = \"true\"");
  if (loop == "accelerate") add_accelerate(drawn, to);
  if (loop == "fabric") add_fabric(drawn, to);
}

void add_prepare(const Case& drawn, int depth, Lines& to) {
  if (is_trainer(drawn)) return;
  to.add(depth, "if not PLAIN:");
  if (drawn.at("loop") == "fabric") {
    to.add(depth + 1, "net, optimizer = fabric.setup(model, optimizer)");
    return;
  }
  const std::string all = "optimizer" + schedule_of(drawn);
  to.add(depth + 1, fmt::format("net, {0} = accelerator.prepare(model, {0})", all));
}

void add_resume_of_loop(const Case& drawn, const std::string& made, Lines& to) {
  to.add(2, folder_of_state());
  if (drawn.at("loop") == "accelerate") {
    to.add(2, "accelerator.save_state(FOLDER)").add(2, "dist.barrier()");
    if (!made.empty()) to.add(2, "accelerator.free_memory()").add(2, made);
    to.add(2, "accelerator.load_state(FOLDER)");
    return;
  }
  const std::string state = fmt::format("{{\"net\": net, \"optimizer\": optimizer{}}}",
                                        is_on(drawn, "schedule") ? ", \"schedule\": schedule" : "");
  to.add(2, fmt::format("fabric.save(FOLDER, {})", state)).add_if(!made.empty(), 2, made);
  to.add(2, fmt::format("fabric.load(FOLDER, {})", state));
}

void add_micro_batch_of_loop(const Case& drawn, const std::string& divided, int depth, const std::string& ends,
                             Lines& to) {
  const bool accelerate = drawn.at("loop") == "accelerate";
  add_loss(drawn, 3, to);
  to.add(3, "if PLAIN:").add(4, divided + ".backward()").add(3, "else:");
  to.add(4, accelerate ? "accelerator.backward(loss)" : fmt::format("fabric.backward({})", divided));
  if (!accelerate) to.add(depth, ends);
  const int step = accelerate ? 4 : depth + 1;
  if (is_on(drawn, "clip") && !is_deepspeed(drawn)) {
    to.add_if(accelerate, step, "if accelerator.sync_gradients:");
    to.add(step + int(accelerate), accelerate ? "accelerator.clip_grad_norm_(net.parameters(), 0.2)"
                                              : "fabric.clip_gradients(net, optimizer, max_norm=0.2)");
  }
  add_optimizer_step(drawn, step, to);
}

void add_step_of_loop(const Case& drawn, const std::string& divided, Lines& to) {
  const int last = std::stoi(drawn.at("accumulation")) - 1;
  const bool accelerate = drawn.at("loop") == "accelerate";
  to.add(1, fmt::format("for micro in range({}):", last + 1)).add(2, "x, y = batch(step, micro)");
  if (accelerate)
    to.add(2, "with contextlib.nullcontext() if PLAIN else accelerator.accumulate(net):");
  else
    to.add(2, fmt::format("waits = micro < {} and not PLAIN", last))
        .add(2, "with fabric.no_backward_sync(net) if waits else contextlib.nullcontext():");
  add_micro_batch_of_loop(drawn, divided, 1, "if not PLAIN:", to);
  to.add(1, "if PLAIN:");
  add_gradients(drawn, 2, to);
  add_clipping(drawn, 2, to);
  add_optimizer_step(drawn, 2, to);
}

void add_trainer_objects(const Case& drawn, Lines& to) {
  to.gap().add(0, folder_of_state());
  if (has_loader(drawn))
    to.gap().add(0, "def loss_of(net, x, y, step):");
  else
    to.gap().add(0, "def loss_of(net, step, micro):").add(1, "x, y = batch(step, micro)");
  add_loss(drawn, 1, to);
  to.add(1, "print(f\"rank {dist.get_rank()} step {step}: loss {loss.item():.9g}\")").add(1, "return loss");
  drawn.at("loop") == "lightning" ? add_lightning(drawn, to) : add_trainer(drawn, to);
}

void add_trainer_program(const Case& drawn, const std::string& divided, Lines& to) {
  add_trainer_objects(drawn, to);
  const int steps = std::stoi(drawn.at("steps"));
  to.gap().add(0, "dist.init_process_group(\"gloo\")").add(0, "if PLAIN:");
  to.add(1, fmt::format("model, net, optimizer{} = build(1)", schedule_of(drawn)));
  to.add(1, fmt::format("for step in range({}):", steps));
  to.add(2, fmt::format("for micro in range({}):", drawn.at("accumulation")));
  to.add(3, "loss = loss_of(net, step, micro)").add(3, divided + ".backward()");
  add_gradients(drawn, 2, to);
  add_clipping(drawn, 2, to);
  add_optimizer_step(drawn, 2, to);
  add_fit(drawn, to);
}

void add_fit(const Case& drawn, Lines& to) {
  const int steps = std::stoi(drawn.at("steps"));
  to.add(0, "else:");
  if (!resumes(drawn)) {
    to.add(1, fmt::format("net = fit(1, {}, None)", steps));
    return;
  }
  const std::string saved =
      drawn.at("loop") == "lightning" ? "FOLDER" : fmt::format("FOLDER + \"/checkpoint-{}\"", steps / 2);
  to.add(1, fmt::format("fit(1, {}, None)", steps / 2)).add(1, fmt::format("net = fit(2, {}, {})", steps, saved));
}

}  // namespace seeksim::harness::torch
