// How the ranks of a new group find each other's memory, through the store of torch.distributed.
#include <algorithm>

#include "pytorch/backend/seeksim_backend.h"

namespace seeksim::pytorch {
namespace {

constexpr const char* kAddressKey = "seeksim/memory";  // and the host behind it, where there are several
constexpr const char* kMappedKey = "seeksim/mapped";
constexpr const char* kAllKey = "seeksim/all";
constexpr const char* kHostKey = "seeksim/host/";  // and the rank behind it
constexpr const char* kGroupKey = "seeksim/group";

std::vector<std::uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_at(c10d::Store& store, const std::string& key) {
  const auto bytes = store.get(key);
  return {bytes.begin(), bytes.end()};
}

// On which host each rank of the group is.
std::vector<int> hosts_through(c10d::Store& store, int rank, int size, const SessionSettings& session) {
  store.set(kHostKey + std::to_string(rank), as_bytes(std::to_string(session.host)));
  std::vector<int> hosts;
  for (int r = 0; r < size; ++r) {
    const std::string text = text_at(store, kHostKey + std::to_string(r));
    const bool fine = !text.empty() && text.size() < 4 && text.find_first_not_of("0123456789") == std::string::npos;
    hosts.push_back(fine ? std::stoi(text) : -1);
    TORCH_CHECK_VALUE(fine && hosts.back() < int(session.hosts.size()), "seeksim: rank ", r, " says it is on host ",
                      text.substr(0, 20), " of ", session.hosts.size());
  }
  return hosts;
}

}  // namespace

std::unique_ptr<Group> meet_through(c10d::Store& store, int rank, int size, Group::Settings settings) {
  const SessionSettings& session = pytorch::session()->settings();
  TORCH_CHECK_VALUE(size <= kMaxRanks, "seeksim: a group of ", size, " ranks: at most ", kMaxRanks);
  std::vector<int> hosts(std::size_t(size), 0);
  if (!session.relay.empty()) hosts = hosts_through(store, rank, size, session);
  const bool far = std::any_of(hosts.begin(), hosts.end(), [&](int host) { return host != hosts[0]; });
  const int first = int(std::find(hosts.begin(), hosts.end(), hosts[std::size_t(rank)]) - hosts.begin());
  const std::string address_key = kAddressKey + (far ? '/' + std::to_string(session.host) : "");
  Entrance entrance;
  if (far) {
    if (rank == 0) store.set(kGroupKey, as_bytes(text_of(new_group_key())));
    entrance.key = group_key(text_at(store, kGroupKey));
    entrance.size = size;
    entrance.place = rank;
    std::copy(hosts.begin(), hosts.end(), entrance.hosts.begin());
    settings.hosts = hosts;
    settings.host_names = session.hosts;
    settings.relay = std::make_shared<RelayLine>(session.relay);
  }
  const auto enter = [&](int file) {
    if (far) settings.relay->enter(entrance, file);
  };
  std::unique_ptr<Group> group;
  if (rank == first) {
    Segment segment = Segment::create(size);
    enter(segment.file());
    group = std::make_unique<Group>(std::move(segment), settings);
    store.set(address_key, as_bytes(group->segment().address()));
  } else {
    Segment segment = Segment::open(text_at(store, address_key), size);
    enter(-1);
    group = std::make_unique<Group>(std::move(segment), settings);
  }
  group->come_in();
  if (store.add(kMappedKey, 1) == size) store.set(kAllKey, as_bytes("1"));
  store.wait({kAllKey});
  group->know_all();
  return group;
}

}  // namespace seeksim::pytorch
