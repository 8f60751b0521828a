#include "additions.h"

#include <cstdio>
#include <map>
#include <set>

#include "faults/forwarding.h"
#include "harness/loading/extensions.h"
#include "mlp_family.h"
#include "pipe_world.h"
#include "rules.h"

namespace {

using namespace seeksim;

// ---- a check -------------------------------------------------------------------------------------------------------

// "mean_step_s_at_most:0.5": of the virtual time between two commits.
harness::Finding mean_step(const harness::Evidence& evidence, const std::string& argument) {
  const auto& steps = evidence.run.steps;
  if (steps.size() < 2) return harness::blind("fewer than two steps were committed");
  const double mean_s = double(steps.back().committed_ns - steps.front().committed_ns) / 1e9 / double(steps.size() - 1);
  char text[64];
  std::snprintf(text, sizeof text, "%.6f s a step", mean_s);
  return mean_s <= std::stod(argument) ? harness::good(text) : harness::bad(text);
}

// ---- a fault -------------------------------------------------------------------------------------------------------

// An object store whose listings are behind: what was renamed into place shows up `lag_s` later. A job that is started
// again at once does not see its newest checkpoint.
class LaggingListing final : public harness::OwnFault {
 public:
  explicit LaggingListing(runtime::TimeNs lag_ns) : lag_ns_(lag_ns) {}

  runtime::Seams decorate(int, runtime::Seams inner) override {
    wrapped_.push_back(std::make_unique<Store>(*this, inner.storage, inner.clock));
    return {inner.clock, inner.device, inner.transport, *wrapped_.back(), inner.control};
  }
  std::uint64_t fired() const override { return hidden_; }

 private:
  class Store final : public faults::ForwardingStorage {
   public:
    Store(LaggingListing& owner, runtime::Storage& inner, runtime::Clock& clock)
        : ForwardingStorage(inner), owner_(owner), clock_(clock) {}
    void rename(std::string_view from, std::string_view to) override {
      inner_.rename(from, to);
      owner_.shows_at_[std::string(to)] = clock_.now() + owner_.lag_ns_;
    }
    std::vector<std::string> list(std::string_view folder) override {
      std::vector<std::string> names = inner_.list(folder);
      std::erase_if(names, [&](const std::string& name) { return is_hidden(std::string(folder) + '/' + name); });
      return names;
    }

   private:
    bool is_hidden(const std::string& path) {
      // The checkpoint's folder is as young as the manifest in it.
      for (const auto& [renamed, from_ns] : owner_.shows_at_) {
        if (renamed != path && !renamed.starts_with(path + '/')) continue;
        if (clock_.now() >= from_ns) continue;
        ++owner_.hidden_;
        return true;
      }
      return false;
    }
    LaggingListing& owner_;
    runtime::Clock& clock_;
  };

  runtime::TimeNs lag_ns_;
  std::map<std::string, runtime::TimeNs> shows_at_;
  std::uint64_t hidden_ = 0;
  std::vector<std::unique_ptr<Store>> wrapped_;
};

// An object store that says "slow down" to each n-th write: the runtime has to try again.
class ThrottledStore final : public harness::OwnFault {
 public:
  explicit ThrottledStore(std::uint64_t every) : every_(every) {}

  runtime::Seams decorate(int rank, runtime::Seams inner) override {
    wrapped_.push_back(std::make_unique<Store>(*this, rank, inner.storage));
    return {inner.clock, inner.device, inner.transport, *wrapped_.back(), inner.control};
  }
  std::uint64_t fired() const override { return refused_; }

 private:
  class Store final : public faults::ForwardingStorage {
   public:
    Store(ThrottledStore& owner, int rank, runtime::Storage& inner)
        : ForwardingStorage(inner), owner_(owner), rank_(rank) {}
    std::size_t write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) override {
      if (++writes_ % owner_.every_ == 0) {
        ++owner_.refused_;
        runtime::Op op;
        op.kind = runtime::OpKind::storage_write;
        op.rank = rank_;
        throw runtime::SeamError(runtime::ErrorKind::io, op, "503 slow down: " + std::string(path), true);
      }
      return inner_.write_at(path, offset, from);
    }

   private:
    ThrottledStore& owner_;
    int rank_;
    std::uint64_t writes_ = 0;
  };

  std::uint64_t every_;
  std::uint64_t refused_ = 0;
  std::vector<std::unique_ptr<Store>> wrapped_;
};

}  // namespace

void add_everything() {
  harness::OwnCheck check;
  check.name = "mean_step_s_at_most";
  check.argument = "0.5";
  check.summary = "virtual time between two commits, in the mean";
  check.look = mean_step;
  check.wrong = [](const std::string& argument, int) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(argument.c_str(), &end);
    return argument.empty() || *end != 0 || value <= 0 ? "takes seconds, such as 0.5" : "";
  };
  check.of_shapes = true;
  check.under_faults = false;
  harness::add_check(check);

  harness::add_fault("lagging_listing", [](const harness::Json& parameters, std::uint64_t) {
    const double lag_s = parameters.value("lag_s", 0.0);
    if (lag_s <= 0) throw std::invalid_argument("lagging_listing takes \"lag_s\", more than 0");
    return std::make_unique<LaggingListing>(runtime::TimeNs(lag_s * 1e9));
  });

  harness::add_fault("throttled_store", [](const harness::Json& parameters, std::uint64_t) {
    const int every = parameters.value("every", 0);
    if (every < 2)
      throw std::invalid_argument("throttled_store takes \"every\": each how many-th write fails, from 2 on");
    return std::make_unique<ThrottledStore>(std::uint64_t(every));
  });

  harness::add_family("mlp", std::make_shared<MlpFamily>(false));
  harness::add_family("mistaken_mlp", std::make_shared<MlpFamily>(true));

  harness::add_schedule("eager_1f1b", eager_1f1b(2));
  harness::add_schedule("last_first", last_first());
  harness::add_schedule("stuck", stuck());
  harness::add_placement("first_is_larger", first_is_larger(3));
  harness::add_transport("pipes", [] { return std::make_unique<PipeWorld>(); });
  harness::add_collective("both_ways", both_ways());
  harness::add_collective("one_round_short", one_round_short());
  harness::add_recovery_policy("whole_machines", whole_machines(2));
  harness::add_recovery_policy("with_the_dead", with_the_dead());
}
