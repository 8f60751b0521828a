#include "harness/campaign/study_keys.h"

namespace seeksim::harness::campaign {
namespace {

using namespace shapes;
using shapes::text;  // beside campaign::text

constexpr double kNodesMax = 1'000'000, kSecondsMax = 1e9, kHoursMax = 1'000'000;

template <class T, class M>
Binding<T> word(M T::*member) {
  return in_words(member);
}

Shape seconds_or_distribution() { return either(number().least(0).most(kSecondsMax), distribution_keys().shape()); }

}  // namespace

const Keys<Distribution>& distribution_keys() {
  static const Keys<Distribution> keys = {
      {"distribution", word(&Distribution::kind), choice(words_of<Distribution::Kind>()), kNoBit,
       "How durations are distributed. A plain number is \"fixed\"."},
      {"mean", at(&Distribution::mean), number().least(0).most(kSecondsMax), kNoBit,
       "Of all draws; of all kinds but uniform."},
      {"shape", at(&Distribution::shape), number().least(0.2).most(20), kNoBit,
       "weibull: below 1 the tail is long, 1 is exponential."},
      {"sigma", at(&Distribution::sigma), number().above(0).most(5), kNoBit,
       "log_normal: standard deviation of the logarithm."},
      {"least", at(&Distribution::least), number().least(0).most(kSecondsMax), kNoBit, "uniform."},
      {"most", at(&Distribution::most), number().least(0).most(kSecondsMax), kNoBit, "uniform."},
  };
  return keys;
}

const Keys<Arrivals>& arrival_keys() {
  static const Keys<Arrivals> keys = {
      {"process", word(&Arrivals::process), choice(words_of<Process>()), kNoBit,
       "How the times between two failures of one unit are distributed. All units are new when the campaign begins, "
       "and "
       "as good as new after a repair."},
      {"mtbf_hours", by_hand, number().above(0).most(1e12).unset(), kNoBit,
       "Mean hours between two failures of one unit (of bathtub: of those by chance)."},
      {"per_unit_day", by_hand, number().above(0).most(1e6).unset(), kNoBit, "Instead: failures of one unit in a day."},
      {"per_gpu_hour", by_hand, number().above(0).most(1e6).unset(), kNoBit,
       "Instead: failures of a GPU in an hour; of a node or the job, times its GPUs."},
      {"per_node_day", by_hand, number().above(0).most(1e6).unset(), kNoBit,
       "Instead: failures of a node in a day; of a GPU or the job, in proportion."},
      {"shape", at(&Arrivals::shape), number().least(0.2).most(20), kNoBit,
       "weibull: below 1 a unit that has lasted lasts, above 1 it wears."},
      {"sigma", at(&Arrivals::sigma), number().above(0).most(5), kNoBit,
       "log_normal: standard deviation of the logarithm."},
      {"infant_mtbf_hours", at(&Arrivals::infant_mtbf_hours), number().least(0).most(1e12), kNoBit,
       "bathtub: mean hours to an infant failure, if there were no other; 0: there are none."},
      {"infant_shape", at(&Arrivals::infant_shape), number().least(0.2).below(1), kNoBit,
       "bathtub: how fast infant failures fade."},
      {"wear_mtbf_hours", at(&Arrivals::wear_mtbf_hours), number().least(0).most(1e12), kNoBit,
       "bathtub: mean hours to a failure by wear, if there were no other; 0: there are none."},
      {"wear_shape", at(&Arrivals::wear_shape), number().above(1).most(20), kNoBit, "bathtub: how fast wear grows."},
  };
  return keys;
}

const Keys<Slow>& slow_keys() {
  static const Keys<Slow> keys = {
      {"factor", at(&Slow::factor), number().above(1).most(1000).required(), kNoBit,
       "Times the step of the whole job."},
      {"hours", by_hand, seconds_or_distribution().required(), kNoBit,
       "Until it is over, or noticed where it is evicted."},
      {"evict", at(&Slow::evict), flag(), kNoBit,
       "Then the node is replaced in a planned stop, and repaired; else it is well again."},
  };
  return keys;
}

const Keys<Cause>& cause_keys() {
  static const Keys<Cause> keys = {
      {"cause", at(&Cause::name), text().length(1, 60).required(), kNoBit,
       "What fails; also the name of its random stream, so that taking a cause away moves no other."},
      {"unit", word(&Cause::unit), choice(words_of<Unit>()), kNoBit,
       "What fails at once. job: one of its nodes, at a rate of the whole job."},
      {"arrivals", by_hand, arrival_keys().shape().required(), kNoBit, "When."},
      {"detect_s", by_hand, seconds_or_distribution().unset(), kNoBit,
       "From the failure to its notice. Default: recovery.detect_s."},
      {"repair_hours", by_hand, seconds_or_distribution().unset(), kNoBit,
       "How long the nodes are away. Without it they are fine, and go on after a restart."},
      {"announced", at(&Cause::announced), flag(), kNoBit,
       "A planned stop: at the end of the step the job saves, and nothing is done again."},
      {"slow", by_hand, slow_keys().shape().unset(), kNoBit, "The job does not stop; it is slow for a while."},
  };
  return keys;
}

const Keys<Cluster>& cluster_keys() {
  static const Keys<Cluster> keys = {
      {"nodes", at(&Cluster::nodes), integer(1, kNodesMax).required(), kNoBit, "Nodes of the job, without spares."},
      {"gpus_per_node", at(&Cluster::gpus_per_node), integer(1, 1024), kNoBit, "GPUs of a node."},
      {"nodes_per_replica", at(&Cluster::nodes_per_replica), integer(1, kNodesMax), kNoBit,
       "Nodes that hold one copy of the model. A job that shrinks gives up whole replicas."},
      {"nodes_per_rack", at(&Cluster::nodes_per_rack), integer(0, kNodesMax), kNoBit,
       "Nodes in a row that a rack holds; 0: there are no racks."},
      {"nodes_per_switch", at(&Cluster::nodes_per_switch), integer(0, kNodesMax), kNoBit,
       "Nodes in a row behind one switch; 0: there are no switches."},
      {"nodes_per_power_domain", at(&Cluster::nodes_per_power_domain), integer(0, kNodesMax), kNoBit,
       "Nodes in a row on one supply of power; 0: there are none."},
  };
  return keys;
}

const Keys<Spares>& spares_keys() {
  static const Keys<Spares> keys = {
      {"hot", at(&Spares::hot), integer(0, kNodesMax), kNoBit, "Nodes that run and wait; they fail as others do."},
      {"cold", at(&Spares::cold), integer(0, kNodesMax), kNoBit, "Nodes that are off."},
      {"swap_hot_s", at(&Spares::swap_hot_s), number().least(0).most(kSecondsMax), kNoBit,
       "Until a hot spare stands in the place of a lost node."},
      {"swap_cold_s", at(&Spares::swap_cold_s), number().least(0).most(kSecondsMax), kNoBit,
       "Until a cold spare does, or a node that comes back from repair."},
  };
  return keys;
}

const Keys<Tier>& tier_keys() {
  static const Keys<Tier> keys = {
      {"to", word(&Tier::to), choice(words_of<SavedTo>()).required(), kNoBit,
       "memory: of the node, lost with any node of the job. neighbours: also of other nodes, lost when a node and all "
       "keepers of its copies are. storage: lasts."},
      {"every_s", at(&Tier::every_s), number().least(0).most(kSecondsMax), kNoBit,
       "Seconds of steps between two checkpoints, rounded to whole steps."},
      {"every_steps", at(&Tier::every_steps), integer(0, 1e12), kNoBit, "Instead: steps between two checkpoints."},
      {"blocks_s", at(&Tier::blocks_s), number().least(0).most(kSecondsMax), kNoBit, "How long training waits for it."},
      {"write_s", at(&Tier::write_s), number().least(0).most(kSecondsMax).unset(), kNoBit,
       "From its begin until it can be used, where it is written beside training. Default: blocks_s. A checkpoint that "
       "comes before the last one is written waits for it."},
      {"read_s", at(&Tier::read_s), number().least(0).most(kSecondsMax), kNoBit, "How long a restart reads it."},
      {"copies", at(&Tier::copies), integer(1, 1000), kNoBit, "neighbours: on so many other nodes."},
      {"stride", at(&Tier::stride), integer(0, kNodesMax), kNoBit,
       "neighbours: nodes from one copy to the next; 0: to the next rack, or the next node without racks."},
  };
  return keys;
}

const Keys<Recovery>& recovery_keys() {
  static const Keys<Recovery> keys = {
      {"policy", word(&Recovery::policy), choice(words_of<Policy>()), kNoBit,
       "restart: from the newest usable checkpoint. rebuild: the survivors do the step again, from copies; where a "
       "shard "
       "has no copy left they restart."},
      {"when_short", word(&Recovery::when_short), choice(words_of<WhenShort>()), kNoBit,
       "Without spares: wait for a node, or go on with fewer. Fewer nodes take longer for a step, in proportion; the "
       "job "
       "stops in order to grow as soon as a node is back."},
      {"nodes_min", at(&Recovery::nodes_min), integer(1, kNodesMax), kNoBit, "shrink: with fewer nodes the job waits."},
      {"copies", at(&Recovery::copies), integer(1, 1000), kNoBit,
       "rebuild: other nodes that hold a copy of each shard, one rack apart, or one node."},
      {"detect_s", by_hand, seconds_or_distribution().unset(), kNoBit, "From a failure to its notice."},
      {"agree_s", by_hand, seconds_or_distribution().unset(), kNoBit,
       "From the notice until all know and the job has stopped: diagnosis too. Default: 0."},
      {"rebuild_s", by_hand, seconds_or_distribution().unset(), kNoBit, "rebuild: until the new group stands."},
      {"restart_s", by_hand, seconds_or_distribution().standard(60), kNoBit,
       "Until new processes stand, on nodes that are there."},
  };
  return keys;
}

const Keys<Published>& published_keys() {
  static const Keys<Published> keys = {
      {"what", at(&Published::what), text().required(), kNoBit,
       "A figure that follows from the study: see docs/campaigns.md."},
      {"least", at(&Published::least), number().required(), kNoBit, "What is predicted is not below this..."},
      {"most", at(&Published::most), number().required(), kNoBit, "... and not above this."},
      {"source", at(&Published::source), text().length(1).required(), kNoBit, "Who says so, and where."},
  };
  return keys;
}

const Keys<Study>& study_keys() {
  static const Keys<Study> keys = {
      {"$schema", by_hand, text(), kNoBit, "Path of this schema, for editors. Not read."},
      {"name", at(&Study::name), text().length(1, 100).unset(), kNoBit, "What tables and pictures call it."},
      {"why", at(&Study::why), text().unset(), kNoBit, "What it is to find out, in a sentence."},
      {"sources", at(&Study::sources), list(text()).unset(), kNoBit, "Where its inputs come from."},
      {"seed", at(&Study::seed), integer(0, kExact), kNoBit,
       "Of all draws. Policies of one study meet the same failures."},
      {"seeds", at(&Study::seeds), integer(2, 100'000), kNoBit, "Campaigns of each policy; intervals are over them."},
      {"hours", at(&Study::hours), number().above(0).most(kHoursMax), kNoBit, "How long a campaign is."},
      {"step_s", at(&Study::step_s), number().above(0).most(1e6).required(), kNoBit, "A step on all nodes."},
      {"start_s", at(&Study::start_s), number().least(0).most(kSecondsMax), kNoBit,
       "From new processes, and a checkpoint that is read, to the first step."},
      {"cluster", inside(cluster_keys(), &Study::cluster), cluster_keys().shape().required(), kNoBit, "The nodes."},
      {"spares", inside(spares_keys(), &Study::spares), spares_keys().shape(), kNoBit, "Nodes beside the job's."},
      {"failures", by_hand, list(cause_keys().shape()).standard(Json::array()), kNoBit, "What fails, and how often."},
      {"incidents", at(&Study::incidents_file), text().unset(), kNoBit,
       "A log of your own incidents: a CSV file with the columns hours, node, cause, repair_hours."},
      {"checkpoints", by_hand, list(tier_keys().shape()).standard(Json::array()), kNoBit,
       "What is saved where; several kinds may be used at once. A restart takes the newest that is left."},
      {"recovery", by_hand, recovery_keys().shape(), kNoBit, "What is done after a failure."},
      {"best_interval", at(&Study::best_interval), flag(), kNoBit,
       "For each policy, try other times between two checkpoints of the last kind, and say which is best."},
      {"published", by_hand, list(published_keys().shape()).standard(Json::array()), kNoBit,
       "Figures of others that the first policy's prediction must agree with, or the study is red."},
      {"young_daly", at(&Study::young_daly), number().least(0).most(100), kNoBit,
       "What each policy loses is within this many percent of Young's and Daly's formula, or the study is red; 0: it "
       "is "
       "not compared."},
      {"sweep", by_hand, either(object(), list(object())), kNoBit,
       "Policies to compare: {\"spares.hot\": [0, 8], \"checkpoints.0.every_s\": [300, 600]}."},
      {"mode", by_hand, either(text(), object_with({{"sample", integer(1)}})).standard("product"), kNoBit,
       "How the axes of a sweep are combined: as in scenarios."},
      {"sweep_skip", by_hand, list(object().keys(1)), kNoBit, "Policies that are left out: as in scenarios."},
  };
  return keys;
}

}  // namespace seeksim::harness::campaign
