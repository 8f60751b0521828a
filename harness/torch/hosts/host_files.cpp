#include "harness/torch/hosts/host_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace seeksim::harness::torch {

bool is_name_of_a_rank_file(const std::string& name) {
  constexpr std::size_t kLongest = 64;
  const bool starts = name.starts_with("rank-") || name.starts_with("stack-") || name.starts_with("refused-") ||
                      name.starts_with("output-");
  const bool ends = name.ends_with(".rec") || name.ends_with(".txt");
  return starts && ends && name.size() <= kLongest &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == std::string::npos;
}

bool FileSender::next(FileFrame& frame, std::span<const std::byte>& bytes) {
  if (at_ == files_.size()) return false;
  const HostFile& file = files_[at_];
  if (offset_ == 0 && !file_) file_.reset(std::fopen(file.path.c_str(), "rbe"));
  part_.resize(kFilePart);
  const std::size_t n = file_ ? std::fread(part_.data(), 1, part_.size(), file_.get()) : 0;
  bytes = std::span<const std::byte>(part_).first(n);
  frame = {file.name, offset_, n < part_.size()};
  offset_ += n;
  if (frame.last) {
    file_.reset();
    offset_ = 0;
    ++at_;
  }
  return true;
}

void FileReceiver::fail(const std::string& why) {
  file_.reset();
  if (problem_.empty()) problem_ = why;
}

void FileReceiver::take(const FileFrame& frame, std::span<const std::byte> bytes) {
  if (frame.offset == 0) {
    name_ = frame.name;
    offset_ = 0;
    file_.reset();
    if (!is_name_of_a_rank_file(name_)) {
      fail("it sent a file with a name that no rank gives one");
    } else {
      const int fd =
          ::open((folder_ + '/' + name_).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
      if (fd >= 0) file_.reset(::fdopen(fd, "wb"));
      if (!file_)
        fail(fmt::format("{}: {}", name_, std::strerror(errno)));
      else
        begun_.push_back(name_);
    }
  }
  if (!file_) return;
  if (frame.name != name_ || frame.offset != offset_) return fail(fmt::format("{}: its parts are out of order", name_));
  if (bytes.size() > left_) return fail(fmt::format("{}: it sends more than a host may", name_));
  left_ -= bytes.size();
  offset_ += bytes.size();
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size())
    return fail(fmt::format("{}: {}", name_, std::strerror(errno)));
  if (!frame.last) return;
  const bool closed = std::fclose(file_.release()) == 0;
  if (!closed) return fail(fmt::format("{}: {}", name_, std::strerror(errno)));
  whole_.push_back(name_);
}

}  // namespace seeksim::harness::torch
