// NativeSum: a canonical sum that the simulator computes itself, as one event of all members: they meet in a group, and
// the last one who comes computes. Used where no fault can touch a single message. What is summed and how long it takes
// is a NativeReduce's or a NativeScatter's. In a steady world of shapes a gather is one too, of which nothing is
// summed.
#pragma once

#include <string>

#include "sim/activity.h"

namespace seeksim::sim {

class NativeSum : public SimActivity {
 public:
  void withdraw() final;
  std::string waits_for() const final;
  void fire(const Timer& timer) final;

 protected:
  NativeSum() : SimActivity(true) {}

  void post() final;
  // This member's part, where the one who computes finds it; here: its place among the members.
  virtual void bring(std::size_t /*here*/) {}
  // All are here and agree: computes, and sets the times at which the members are through.
  virtual void complete(Group& group) = 0;
  virtual bool summed() const = 0;
  // Fails where a rank is dead for which this member would wait.
  virtual void look_for_dead(std::size_t here) = 0;
  // Whether another one's is the same sum: of as many leaves, with the same factor.
  virtual bool same_as(const SimActivity& other) const;

  runtime::Index leaves_ = 0;
  float factor_ = 1.0f;
  Group* group_ = nullptr;

 private:
  bool compare_with_neighbours(std::size_t here);
};

}  // namespace seeksim::sim
