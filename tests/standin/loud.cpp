#include "tests/standin/loud.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace seeksim::standin {
namespace {

struct Kept {
  std::mutex mutex;
  bool collecting = false;
  std::vector<std::string> all;
};
Kept& kept() {
  static Kept* const kKept = new Kept;  // threads of streams outlive main
  return *kKept;
}

}  // namespace

void violation(const std::string& what) {
  Kept& here = kept();
  const std::lock_guard lock(here.mutex);
  if (here.collecting) {
    here.all.push_back(what);
    return;
  }
  std::fprintf(stderr, "stand-in (process %d): %s\n", int(::getpid()), what.c_str());
  std::fflush(stderr);
  std::abort();
}

Collected::Collected() {
  const std::lock_guard lock(kept().mutex);
  kept().collecting = true;
  kept().all.clear();
}
Collected::~Collected() {
  const std::lock_guard lock(kept().mutex);
  kept().collecting = false;
}
std::vector<std::string> Collected::all() const {
  const std::lock_guard lock(kept().mutex);
  return kept().all;
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::uint64_t Draws::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t delay_seed() { return setting("SEEKSIM_STANDIN_DELAYS", 0); }
bool dawdles() { return delay_seed() != 0; }

void dawdle(Draws& draws) {
  const std::uint64_t drawn = draws.next();
  std::uint64_t us = 0;
  if (drawn % 16 == 0) us = (drawn >> 8) % 300;
  if (drawn % 1024 == 1) us = (drawn >> 16) % 5000;
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace seeksim::standin
