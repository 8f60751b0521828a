#include "runtime/backend/wire/bytes.h"

#include <mutex>
#include <set>

namespace seeksim::runtime {

const char* kept_text(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> texts;
  const std::lock_guard lock(mutex);
  const auto known = texts.find(text);
  return (known != texts.end() ? known : texts.emplace(text).first)->c_str();
}

}  // namespace seeksim::runtime
