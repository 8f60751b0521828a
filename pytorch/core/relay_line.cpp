#include "pytorch/core/relay_line.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "kernels/check.h"

namespace seeksim::pytorch {
namespace {

constexpr int kRelayAnswers_s = 60;

std::runtime_error line_broken(const std::string& what) {
  return std::runtime_error(fmt::format("seeksim: {}: {}; is the `seeksim torch run` of this host gone?", what,
                                        errno == EAGAIN ? "no answer" : std::strerror(errno)));
}

}  // namespace

GroupKey new_group_key() {
  GroupKey key;
  if (getrandom(key.data(), key.size(), 0) != ssize_t(key.size()))
    throw std::runtime_error("seeksim: the system gives no random bytes");
  return key;
}

std::string text_of(const GroupKey& key) {
  std::string text;
  for (const std::uint8_t byte : key) text += fmt::format("{:02x}", byte);
  return text;
}

GroupKey group_key(const std::string& text) {
  GroupKey key;
  bool fine = text.size() == 2 * key.size() && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  for (std::size_t i = 0; fine && i < key.size(); ++i) {
    unsigned byte = 0;
    fine = std::sscanf(text.c_str() + 2 * i, "%2x", &byte) == 1;
    key[i] = std::uint8_t(byte);
  }
  if (!fine) throw std::runtime_error("seeksim: the first rank's key of a group makes no sense");
  return key;
}

RelayLine::RelayLine(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
  } else {
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const timeval limit{kRelayAnswers_s, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (socket_ >= 0 && ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return;
  }
  const std::runtime_error why = line_broken("the relay at " + path);
  if (socket_ >= 0) ::close(socket_);
  throw why;
}

RelayLine::~RelayLine() { ::close(socket_); }

void RelayLine::enter(const Entrance& entrance, int file) {
  iovec bytes{const_cast<Entrance*>(&entrance), sizeof entrance};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof file)] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (file >= 0) {
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(head), &file, sizeof file);
  }
  if (::sendmsg(socket_, &message, MSG_NOSIGNAL) != ssize_t(sizeof entrance)) throw line_broken("the relay");
  char answer[kAnswerBytesMax];
  const ssize_t n = ::recv(socket_, answer, sizeof answer, 0);
  if (n <= 0) throw line_broken("the relay");
  if (answer[0] != 0) throw std::runtime_error("seeksim: " + std::string(answer, strnlen(answer, std::size_t(n))));
}

void RelayLine::say(const Note& note, std::span<const Part> parts) {
  SEEKSIM_CHECK(parts.size() == note.parts, "%zu parts", parts.size());
  iovec bytes[2] = {{const_cast<Note*>(&note), sizeof note}, {const_cast<Part*>(parts.data()), parts.size_bytes()}};
  msghdr message{};
  message.msg_iov = bytes;
  message.msg_iovlen = parts.empty() ? 1 : 2;
  while (::sendmsg(socket_, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) throw line_broken("the relay");
  }
}

}  // namespace seeksim::pytorch
