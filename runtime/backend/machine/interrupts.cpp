#include "runtime/backend/machine/interrupts.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

namespace seeksim::runtime {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

std::atomic<int> noted = 0;
std::atomic<bool> worker = false;
static_assert(std::atomic<int>::is_always_lock_free);
std::array<struct sigaction, kSignals.size()> before;
int noting = 0;  // how many Interrupts live

extern "C" void note_signal(int signal) {
  int none = 0;
  if (noted.compare_exchange_strong(none, signal) || worker) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

struct Folders {
  std::mutex mutex;
  std::set<std::string> all;
};
Folders& folders() {
  static Folders folders;
  return folders;
}

sigset_t all_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kSignals) ::sigaddset(&set, signal);
  return set;
}

// What is registered goes, and the process with it.
[[noreturn]] void end_by(int signal) {
  {
    const std::scoped_lock lock(folders().mutex);
    std::error_code ignored;
    for (const std::string& folder : folders().all) std::filesystem::remove_all(folder, ignored);
  }
  ::signal(signal, SIG_DFL);
  const sigset_t set = all_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::kill(::getpid(), signal);
  ::_exit(128 + signal);
}

void watch(int over) {
  const sigset_t set = all_signals();
  const int signals = ::signalfd(-1, &set, SFD_CLOEXEC);
  if (signals < 0) return;
  std::array<pollfd, 2> waiting = {{{signals, POLLIN, 0}, {over, POLLIN, 0}}};
  while (::poll(waiting.data(), waiting.size(), -1) < 0) {
  }
  signalfd_siginfo info{};
  if ((waiting[0].revents & POLLIN) != 0 && ::read(signals, &info, sizeof info) == sizeof info)
    end_by(int(info.ssi_signo));
  ::close(signals);
}

}  // namespace

Interrupts::Interrupts() {
  if (noting++ > 0) return;
  struct sigaction action {};
  action.sa_handler = note_signal;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupts::~Interrupts() {
  if (--noting > 0) return;
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
}

int interrupted() { return noted; }
void forget_interrupt() { noted = 0; }

std::string interrupt_text() {
  const int signal = noted;
  return signal == 0 ? "" : "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

void become_worker(int parent) {
  worker = true;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it went meanwhile
}

RemovedAtSignal::RemovedAtSignal(std::string folder) : folder_(std::move(folder)) {
  const std::scoped_lock lock(folders().mutex);
  folders().all.insert(folder_);
}

RemovedAtSignal::~RemovedAtSignal() {
  const std::scoped_lock lock(folders().mutex);
  folders().all.erase(folder_);
}

EndsBySignal::EndsBySignal() : over_(::eventfd(0, EFD_CLOEXEC)) {
  const sigset_t set = all_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::jthread([over = over_] { watch(over); });
}

EndsBySignal::~EndsBySignal() {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(over_, &one, sizeof one));
  thread_.join();
  ::close(over_);
  const sigset_t set = all_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace seeksim::runtime
