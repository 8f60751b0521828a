// Files of the user: read with limits and with errors that say what to do, written whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace seeksim::harness {

// The content of a regular file. Throws BadInput (missing, folder, unreadable, larger than `bytes_max`); `place` is
// named in the message when the file's name came from somewhere else than the command line.
std::string read_file(const std::string& path, std::uint64_t bytes_max, const std::string& place = {});

// Under a temporary name, synced, then renamed: a reader sees the old file, the new one or none. What is not a regular
// file
// (/dev/stdout) is written directly. Throws BadInput.
void write_file(const std::string& path, std::string_view bytes);

// Throws BadInput where write_file(path) would fail as far as one can know before: no such folder, read-only, full.
void probe_writable(const std::string& path, const std::string& option);

// mkdir -p. Throws BadInput.
void make_folder(const std::string& path, const std::string& option);

// A folder that one run writes to at a time. Throws BadInput where another one holds it.
class FolderLock {
 public:
  // folder: empty: nothing is held.
  FolderLock(const std::string& folder, const std::string& option);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::string file_;
  int fd_ = -1;
};

// Where a file named in a scenario is: absolute, or relative to the working folder, the scenario's folder, its parents
// (two levels), own_folder(). Throws BadInput listing the places that were looked at.
std::string resolve(const std::string& name, const std::string& scenario_file, const std::string& place);

// seeksim's own folder: what SEEKSIM_HOME names; share/seeksim beside the program, where it was installed; else the
// source tree.
const std::string& own_folder();

// A part of seeksim itself, in its own folder and nowhere else: a program that lies in the working folder is a
// stranger's. Throws BadInput.
std::string own_file(const std::string& name, const std::string& place);

// The folder whose golden/ holds goldens: the working folder where it has one, or scenarios/; else seeksim's own.
std::string top_folder();

// Names in a folder, sorted, without itself and the one above it; empty when there is no such folder.
std::vector<std::string> list_folder(const std::string& path);

// Bytes of host memory that can be had now (free and reclaimable, control group limits included); 0 when unknown.
std::uint64_t host_memory_free();

}  // namespace seeksim::harness
