#include "kernels/check.h"

#include <array>
#include <cstdarg>
#include <cstdio>

namespace seeksim {

void check_failed(const char* file, int line, const char* condition, const char* format, ...) {
  std::array<char, 512> message{};
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message.data(), message.size(), format, arguments);
  va_end(arguments);
  throw CheckError(std::string(file) + ":" + std::to_string(line) + ": check failed: " + condition + ": " +
                   message.data());
}

}  // namespace seeksim
