// Heart: a thread that does nothing but send heartbeats to the control plane, over a connection of its own. So a long
// kernel, or a library that starts up, is not taken for death, and a process that is stopped or gone is noticed. In a
// supervisor's job the heart also ends its process when the supervisor is gone.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "runtime/backend/wire/sockets.h"
#include "runtime/seams/seams.h"

namespace seeksim::runtime {

class Heart {
 public:
  enum class WhenLost { stop, end_process };
  struct Options {
    std::string endpoint;  // "host:port" of the store
    std::string token;
    int rank = 0;
    TimeNs every_ns = kSecond;
    WhenLost when_lost = WhenLost::stop;
  };
  // Begins to beat. Throws std::runtime_error when the store does not answer.
  explicit Heart(const Options& options);
  Heart(const Heart&) = delete;
  Heart& operator=(const Heart&) = delete;
  ~Heart();  // says goodbye: the store expects no more beats

  // The process has met the others of its job: its start is over.
  void ready() { ready_ = true; }

 private:
  void beat(const std::stop_token& stop);

  const Options options_;
  Socket socket_;
  std::atomic<bool> ready_ = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace seeksim::runtime
