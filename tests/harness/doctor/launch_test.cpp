// What launch lines and batch scripts start is read from their text, and held against the configuration.
#include "harness/doctor/launch.h"

#include <gtest/gtest.h>

#include "harness/doctor/hostfile.h"
#include "harness/doctor/job.h"
#include "harness/doctor/shell_words.h"
#include "tests/harness/doctor/advice_text.h"
#include "tests/support/scenarios.h"

namespace seeksim::harness {
namespace {

using Weight = Advice::Weight;

TEST(ShellWords, AreParted) {
  const std::vector<ShellLine> lines =
      shell_lines("a 'b c' \"d \\\" e\" \\\n  f # no\n#SBATCH -N 2\n# comment\ng\\ h && i; j | k\n");
  std::vector<std::string> all;
  for (const ShellLine& line : lines) {
    std::string text = std::to_string(line.number) + ":";
    for (const std::string& word : line.words) text += '[' + word + ']';
    all.push_back(text);
  }
  EXPECT_EQ(all, (std::vector<std::string>{"1:[a][b c][d \" e][f]", "3:[#SBATCH][-N][2]", "5:[g h]", "5:[i]", "5:[j]",
                                           "5:[k]"}));
  const std::map<std::string, std::string> known = {{"A", "1"}};
  EXPECT_EQ(expanded("x$A-${A}-${B:-2}-$C-${D}$", known), "x1-1-2-$C-${D}$");
  for (const char* odd : {"", "\\", "'", "\"", "${", "$", "a \\", "#SBATCH"}) {
    EXPECT_LE(shell_lines(odd).size(), 1u);
    EXPECT_EQ(expanded(odd, known), odd);
  }
}

struct Case {
  const char* text;
  const char* launcher;
  std::int64_t nodes, per_node, ranks;
};

TEST(LaunchLine, SaysHowManyRanksThereAre) {
  const std::vector<Case> cases = {
      {"torchrun --nproc_per_node=8 train.py", "torchrun", 1, 8, 8},
      {"torchrun train.py", "torchrun", 1, 1, 1},
      {"torchrun --nproc-per-node 8 --nnodes 4 --rdzv_endpoint node0:29500 train.py", "torchrun", 4, 8, 32},
      {"python3 -m torch.distributed.run --nproc_per_node 2 train.py", "torchrun", 1, 2, 2},
      {"python -m torch.distributed.launch --nproc_per_node=4 train.py", "torchrun", 1, 4, 4},
      {"N=8\ntorchrun --nproc_per_node $N train.py", "torchrun", 1, 8, 8},
      {"torchrun --nproc_per_node=gpu train.py", "torchrun", 1, 0, 0},
      {"deepspeed --num_gpus 8 --num_nodes 2 --hostfile hosts train.py", "deepspeed", 2, 8, 16},
      {"deepspeed --hostfile=hosts train.py", "deepspeed", 0, 0, 0},
      {"mpirun -np 16 -npernode 8 --hostfile hosts python train.py", "mpirun", 0, 8, 16},
      {"#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=8\nsrun python train.py", "srun", 4, 8, 32},
      {"#SBATCH -N 2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:a100:8\n"
       "srun torchrun --nnodes=2 --nproc_per_node=8 --rdzv_endpoint=$HOST:29500 train.py",
       "torchrun", 2, 8, 16},
      {"srun -N 2 -n 16 python train.py", "srun", 2, 0, 16},
  };
  for (const Case& one : cases) {
    const Launch launch = read_launch(one.text, "run.sh");
    EXPECT_EQ(launch.launcher, one.launcher) << one.text;
    EXPECT_EQ(launch.nodes, one.nodes) << one.text;
    EXPECT_EQ(launch.ranks_per_node, one.per_node) << one.text;
    EXPECT_EQ(launch.ranks, one.ranks) << one.text;
    EXPECT_EQ(text_of(launch.advice).find("wrong"), std::string::npos) << one.text << text_of(launch.advice);
  }
}

TEST(LaunchLine, SaysWhatCannotBeMeant) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"torchrun --nnodes=2 --nproc_per_node=8 train.py", "wrong run.sh:1: --nnodes: several nodes, and neither"},
      {"torchrun --nnodes=2 --rdzv_endpoint=localhost:29500 t.py", "localhost is each node's own"},
      {"torchrun --nnodes=2 --standalone t.py", "is for one node"},
      {"torchrun --nnodes=2 --master_addr=node0 t.py", "--node_rank: is not given: every node is node 0"},
      {"torchrun --master_port=99999 t.py", "ports go from 1 to 65535"},
      {"torchrun --master_port=80 t.py", "doubtful run.sh:1: --master_port: ports below 1024"},
      {"export MASTER_PORT=29501\ntorchrun --master_port=29500 t.py",
       "run.sh:2: --master_port: is 29500, and MASTER_PORT"},
      {"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun torchrun --nnodes=2 --nproc_per_node=8 "
       "--rdzv_endpoint=a:1 t.py",
       "srun starts 8 torchruns a node, and each of them starts 8 ranks"},
      {"#SBATCH --nodes=2\ntorchrun --nproc_per_node=8 t.py", "each torchrun is a job of its own on 1 node"},
      {"#SBATCH --gpus-per-node=4\ntorchrun --nproc_per_node=8 t.py", "8 ranks on a node with 4 GPUs"},
      {"deepspeed --num_gpus=4 --include=a:0,1 t.py", "DeepSpeed refuses it beside"},
      {"deepspeed --num_nodes=2 t.py", "without a hostfile"},
      {"mpirun -np 10 -npernode 4 t.py", "10 ranks fill no whole number of nodes of 4"},
      {"export NCCL_DEBUG=INFO\nmpirun -np 8 --hostfile h t.py", "NCCL_DEBUG: Open MPI does not pass it on"},
      {"srun -N 2 -n 15 --ntasks-per-node=8 t.py", "15 is not 2 nodes x 8"},
      {"python train.py", "note run.sh: no launcher was found"},
  };
  for (const auto& [text, says] : cases) {
    const std::string said = text_of(read_launch(text, "run.sh").advice);
    EXPECT_NE(said.find(says), std::string::npos) << text << "\n" << said;
  }
}

TEST(LaunchLine, PassesTheScriptsArgumentsOn) {
  const Launch launch = read_launch(
      "deepspeed --num_gpus=2 train.py --deepspeed ds.json --learning_rate 2e-5 --bf16 --per_device_train_batch_size=4 "
      "--warmup_steps $W",
      "run.sh");
  EXPECT_EQ(launch.config, "ds.json");
  EXPECT_EQ(launch.autos,
            (std::vector<std::string>{"learning_rate=2e-5", "per_device_train_batch_size=4", "bf16=true"}));
}

TEST(Job, HoldsConfigurationHostfileAndLaunchAgainstOneAnother) {
  const testing::TemporaryFolder folder;
  folder.write("hosts", "node0 slots=8\nnode1 slots=8\n");
  folder.write("ds.json", R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": 1.0})");
  const std::string launch = folder.write(
      "run.sh", "deepspeed --hostfile hosts --num_gpus 8 --num_nodes 4 train.py --deepspeed ds.json --bf16\n");
  const auto told = [&](std::int64_t gpus) {
    std::string all;
    JobFiles files;
    files.launch = launch;
    files.gpus = gpus;
    for (const JobAdvice& one : lint_job(files))
      all += one.about.substr(one.about.rfind('/') + 1) + "\n" + text_of(one.advice);
    return all;
  };
  const std::string all = told(0);
  EXPECT_NE(all.find("deepspeed starts 32 ranks on 4 nodes"), std::string::npos) << all;
  EXPECT_NE(all.find("16 slots for 32 ranks"), std::string::npos) << all;
  EXPECT_NE(all.find("24 samples cannot be cut evenly over 32 ranks"), std::string::npos) << all;
  EXPECT_EQ(all.find("fills nothing"), std::string::npos) << "the script has arguments that the file does not ask for";
  EXPECT_NE(told(8).find("starts 32 ranks, and --gpus says 8"), std::string::npos);
  EXPECT_EQ(slots_of("# a slots=3\na slots=2\nb slots=4\n"), 6);
}

}  // namespace
}  // namespace seeksim::harness
