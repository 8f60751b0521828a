// Files in memory, with what is durable kept apart from what is seen.
#include "sim/storage.h"

#include <algorithm>
#include <cstring>

#include "sim/loop.h"

namespace seeksim::sim {
namespace {

std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

}  // namespace

void Disk::lose_what_is_not_synced() {
  used_at_most.reset();
  names = durable;
  for (auto& [path, inode] : names) inode->content = inode->durable;
}

namespace {
constexpr std::size_t kSector = 512;

// A draw of its own for each thing, so that none depends on the others.
bool lasts(std::uint64_t seed, std::string_view name, std::uint64_t sector) {
  std::uint64_t hash = seed * 0x9e3779b97f4a7c15ull + sector + 1;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  hash ^= hash >> 29;
  hash *= 0xbf58476d1ce4e5b9ull;
  return (hash >> 40 & 1) != 0;
}
}  // namespace

void Disk::tear_what_is_not_synced(std::uint64_t seed) {
  used_at_most.reset();
  constexpr std::uint64_t kName = ~std::uint64_t(0);
  std::map<std::string, std::shared_ptr<Inode>, std::less<>> left;
  for (const auto& [name, inode] : names) {
    const auto before = durable.find(name);
    if ((before != durable.end() && before->second == inode) || lasts(seed, name, kName)) left[name] = inode;
  }
  for (const auto& [name, inode] : durable) {
    if (!left.contains(name) && (!names.contains(name) ? lasts(seed, name, kName - 1) : true)) left[name] = inode;
  }
  names = durable = left;
  for (auto& [name, inode] : names) {
    std::string torn = inode->content;
    for (std::size_t at = 0; at < torn.size(); at += kSector) {
      const std::size_t n = std::min(kSector, torn.size() - at);
      if (lasts(seed, name, at)) continue;
      for (std::size_t i = at; i < at + n; ++i) torn[i] = i < inode->durable.size() ? inode->durable[i] : '\0';
    }
    if (inode->content == inode->durable) torn = inode->durable;
    inode->content = inode->durable = torn;
  }
}

std::uint64_t Disk::used_bytes() const {
  std::uint64_t used = 0;
  for (const auto& [name, inode] : names) used += inode->content.size();
  return used;
}

Disk& SimStorage::disk(std::string_view path) {
  const std::string& shared = model_.shared_path;
  const bool is_shared =
      !shared.empty() && path.starts_with(shared) && (path.size() == shared.size() || path[shared.size()] == '/');
  return is_shared ? disks_.shared : disks_.by_node[node_];
}

void SimStorage::touch(std::string_view path, Access how) {
  if (loop_ == nullptr) return;
  const bool shared = &disk(path) == &disks_.shared;
  loop_->touch(object(ObjectKind::disk, shared ? 0 : 1 + std::uint64_t(node_)), how);
}

void SimStorage::fail(std::string_view path, const std::string& reason) const {
  runtime::Op op;
  op.rank = rank_;
  throw runtime::SeamError(runtime::ErrorKind::io, op, std::string(path) + ": " + reason);
}

Disk::Inode& SimStorage::inode(std::string_view path) {
  const auto it = disk(path).names.find(path);
  if (it == disk(path).names.end()) fail(path, "no such file");
  return *it->second;
}

std::string SimStorage::read(std::string_view path) {
  touch(path, Access::read);
  return inode(path).content;
}

void SimStorage::write(std::string_view path, std::string_view bytes) {
  touch(path, Access::write);
  auto& names = disk(path).names;
  auto it = names.find(path);
  if (it == names.end()) it = names.emplace(std::string(path), std::make_shared<Disk::Inode>()).first;
  if (Disk& d = disk(path); d.used_at_most) *d.used_at_most += bytes.size();
  it->second->content = bytes;
}

// A file's sync keeps its content, a folder's the names in it.
void SimStorage::sync(std::string_view path) {
  touch(path, Access::write);
  Disk& d = disk(path);
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
  touch(from, Access::write);
  auto& names = disk(from).names;
  const auto it = names.find(from);
  if (it == names.end()) fail(from, "no such file");
  if (&disk(from) != &disk(to)) fail(from, "cannot be renamed to another disk");
  const std::shared_ptr<Disk::Inode> inode = it->second;
  names.erase(it);
  names[std::string(to)] = inode;
}

void SimStorage::remove(std::string_view path) {
  touch(path, Access::write);
  auto& names = disk(path).names;
  const auto it = names.find(path);
  if (it == names.end()) fail(path, "no such file");
  names.erase(it);
}

std::size_t SimStorage::read_at(std::string_view path, std::uint64_t offset, std::span<std::byte> into) {
  touch(path, Access::read);
  const std::string& content = inode(path).content;
  if (offset >= content.size()) return 0;
  const std::size_t n = std::min<std::size_t>(into.size(), content.size() - offset);
  std::memcpy(into.data(), content.data() + offset, n);
  return n;
}

std::size_t SimStorage::write_at(std::string_view path, std::uint64_t offset, std::span<const std::byte> from) {
  touch(path, Access::write);
  Disk& d = disk(path);
  auto it = d.names.find(path);
  if (it == d.names.end()) it = d.names.emplace(std::string(path), std::make_shared<Disk::Inode>()).first;
  std::string& content = it->second->content;
  const std::uint64_t end = offset + from.size(), grows = end > content.size() ? end - content.size() : 0;
  if (!d.used_at_most || *d.used_at_most + grows > model_.capacity_bytes) d.used_at_most = d.used_bytes();
  const std::uint64_t free = model_.capacity_bytes - std::min(model_.capacity_bytes, *d.used_at_most);
  const std::uint64_t room = content.size() + free;  // a file may grow by so much
  if (offset >= room && !from.empty()) return 0;
  const std::size_t n = std::size_t(std::min<std::uint64_t>(from.size(), room - offset));
  if (content.size() < offset + n) {
    *d.used_at_most += offset + n - content.size();
    content.resize(offset + n);
  }
  std::memcpy(content.data() + offset, from.data(), n);
  return n;
}

// Folders are there as long as anything is in them.
bool SimStorage::exists(std::string_view path) {
  touch(path, Access::read);
  const auto& names = disk(path).names;
  if (names.contains(path)) return true;
  const std::string below = std::string(path) + '/';
  const auto first = names.lower_bound(below);
  return first != names.end() && first->first.starts_with(below);
}

std::vector<std::string> SimStorage::list(std::string_view folder) {
  touch(folder, Access::read);
  const std::string below = folder.empty() ? std::string() : std::string(folder) + '/';
  const auto& names = disk(folder).names;
  std::vector<std::string> out;
  for (auto it = names.lower_bound(below); it != names.end() && it->first.starts_with(below); ++it) {
    const std::string name = it->first.substr(below.size(), it->first.find('/', below.size()) - below.size());
    if (out.empty() || out.back() != name) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::uint64_t SimStorage::free_bytes(std::string_view path) {
  touch(path, Access::read);
  const std::uint64_t used = disk(path).used_bytes();
  return used > model_.capacity_bytes ? 0 : model_.capacity_bytes - used;
}

}  // namespace seeksim::sim
