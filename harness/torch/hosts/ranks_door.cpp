#include "harness/torch/hosts/ranks_door.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace seeksim::harness::torch {
namespace {

std::runtime_error no_door(const std::string& what) {
  return std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

}  // namespace

RanksDoor::RanksDoor() {
  std::string folder = (std::filesystem::temp_directory_path() / "seeksim-relay-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw no_door(folder);
  folder_ = folder;
  path_ = folder_ + "/ranks";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    std::filesystem::remove(folder_);
    throw std::runtime_error(path_ + ": too long for a socket's name; set TMPDIR to a shorter folder");
  }
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  listener_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0) {
    const std::runtime_error why = no_door(path_);
    if (listener_ >= 0) ::close(listener_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    throw why;
  }
}

RanksDoor::~RanksDoor() {
  for (RankCaller& caller : callers_) hang_up(caller);
  ::close(listener_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RanksDoor::add_to(std::vector<pollfd>& waiting) const {
  waiting.push_back({listener_, POLLIN, 0});
  for (const RankCaller& caller : callers_) {
    if (caller.fd >= 0) waiting.push_back({caller.fd, POLLIN, 0});
  }
}

void RanksDoor::accept() {
  for (int fd = 0; (fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
    ucred who{};
    socklen_t size = sizeof who;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != ::getuid()) {
      ::close(fd);
      continue;
    }
    RankCaller& caller = callers_.emplace_back();
    caller.fd = fd;
    caller.pid = int(who.pid);
    caller.process.emplace(caller.pid);
  }
}

std::optional<RanksDoor::Said> RanksDoor::hear(RankCaller& caller) {
  if (caller.fd < 0) return std::nullopt;
  Said said;
  said.bytes.resize(pytorch::kNoteBytesMax);
  iovec bytes{said.bytes.data(), said.bytes.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof said.file)] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t n = ::recvmsg(caller.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return std::nullopt;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); n >= 0 && head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS && head->cmsg_len == CMSG_LEN(sizeof said.file))
      std::memcpy(&said.file, CMSG_DATA(head), sizeof said.file);
  }
  if (n <= 0 || (message.msg_flags & MSG_TRUNC) != 0) {
    if (said.file >= 0) ::close(said.file);
    hang_up(caller);
    return std::nullopt;
  }
  said.bytes.resize(std::size_t(n));
  return said;
}

void RanksDoor::answer(const RankCaller& caller, const std::string& text) {
  const std::string cut = text.substr(0, pytorch::kAnswerBytesMax - 1);
  ::send(caller.fd, cut.c_str(), cut.size() + 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void RanksDoor::hang_up(RankCaller& caller) {
  if (caller.fd >= 0) ::close(caller.fd);
  caller.fd = -1;
}

}  // namespace seeksim::harness::torch
