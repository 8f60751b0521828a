// Files in memory, with what is durable kept apart from what is seen.
#include "sim/storage.h"

#include <algorithm>
#include <cstring>

namespace seeksim::sim {
namespace {

std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

}  // namespace

void Disk::lose_what_is_not_synced() {
  names = durable;
  for (auto& [path, inode] : names) inode->content = inode->durable;
}

std::uint64_t Disk::used_bytes() const {
  std::uint64_t used = 0;
  for (const auto& [name, inode] : names) used += inode->content.size();
  return used;
}

void SimStorage::fail(std::string_view path, const std::string& reason) const {
  runtime::Op op;
  op.rank = rank_;
  throw runtime::SeamError(runtime::ErrorKind::io, op, std::string(path) + ": " + reason);
}

Disk::Inode& SimStorage::inode(std::string_view path) {
  const auto it = disk().names.find(path);
  if (it == disk().names.end()) fail(path, "no such file");
  return *it->second;
}

std::string SimStorage::read(std::string_view path) { return inode(path).content; }

void SimStorage::write(std::string_view path, std::string_view bytes) {
  auto& names = disk().names;
  auto it = names.find(path);
  if (it == names.end()) it = names.emplace(std::string(path), std::make_shared<Disk::Inode>()).first;
  it->second->content = bytes;
}

// A file's sync keeps its content, a folder's the names in it.
void SimStorage::sync(std::string_view path) {
  Disk& d = disk();
  const auto file = d.names.find(path);
  if (file != d.names.end()) {
    file->second->durable = file->second->content;
    return;
  }
  std::erase_if(d.durable, [&](const auto& entry) { return folder_of(entry.first) == path; });
  for (const auto& [name, inode] : d.names)
    if (folder_of(name) == path) d.durable[name] = inode;
}

void SimStorage::rename(std::string_view from, std::string_view to) {
  auto& names = disk().names;
  const auto it = names.find(from);
  if (it == names.end()) fail(from, "no such file");
  const std::shared_ptr<Disk::Inode> inode = it->second;
  names.erase(it);
  names[std::string(to)] = inode;
}

void SimStorage::remove(std::string_view path) {
  auto& names = disk().names;
  const auto it = names.find(path);
  if (it == names.end()) fail(path, "no such file");
  names.erase(it);
}

std::size_t SimStorage::read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) {
  const std::string& content = inode(path).content;
  if (offset >= content.size()) return 0;
  const std::size_t n = std::min<std::size_t>(into.size(), content.size() - offset);
  std::memcpy(into.data(), content.data() + offset, n);
  return n;
}

std::size_t SimStorage::write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) {
  auto& names = disk().names;
  auto it = names.find(path);
  if (it == names.end()) it = names.emplace(std::string(path), std::make_shared<Disk::Inode>()).first;
  std::string& content = it->second->content;
  const std::uint64_t room = content.size() + free_bytes("");  // a file may grow by so much
  if (offset >= room && !from.empty()) return 0;
  const std::size_t n = std::size_t(std::min<std::uint64_t>(from.size(), room - offset));
  if (content.size() < offset + n) content.resize(offset + n);
  std::memcpy(content.data() + offset, from.data(), n);
  return n;
}

bool SimStorage::exists(std::string_view path) { return disk().names.contains(path); }

std::vector<std::string> SimStorage::list(std::string_view folder) {
  std::vector<std::string> out;
  for (const auto& [name, inode] : disk().names)
    if (folder_of(name) == folder) out.push_back(name.substr(folder.empty() ? 0 : folder.size() + 1));
  return out;
}

std::uint64_t SimStorage::free_bytes(std::string_view) {
  const std::uint64_t used = disk().used_bytes();
  return used > model_.capacity_bytes ? 0 : model_.capacity_bytes - used;
}

}  // namespace seeksim::sim
