// What comes over the network: frames of the control plane, messages between ranks, the stream that carries them, what
// relays of hosts say to each other over it, and what ranks tell rank 0.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "harness/input/problem.h"
#include "harness/processes/process_run.h"
#include "harness/processes/told.h"
#include "harness/torch/hosts/relay_loop.h"
#include "runtime/backend/control/control_frame.h"
#include "runtime/backend/messages/message_transport.h"
#include "runtime/backend/wire/tcp_world.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"
#include "tests/support/transport_side.h"

namespace seeksim::fuzz {

using namespace runtime;

namespace {

std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// What the two sides of the control plane read out of a body.
void read_body(const Frame& frame) {
  Hello hello;
  PollKey key;
  Ballot ballot;
  Answer answer;
  TimeNs ns = 0;
  std::uint32_t epoch = 0;
  std::string text;
  std::vector<int> members;
  switch (frame.kind) {
    case FrameKind::hello:
      return from_bytes(frame.body, hello);
    case FrameKind::ballot:
      return from_bytes(frame.body, key, ballot, ns);
    case FrameKind::revoke:
      return from_bytes(frame.body, epoch, text);
    case FrameKind::enter:
      return from_bytes(frame.body, epoch, members);
    case FrameKind::answer:
      return from_bytes(frame.body, answer);
    case FrameKind::revoked:
      return from_bytes(frame.body, epoch);
    case FrameKind::entered:
      return from_bytes(frame.body, text);
    default:
      return;
  }
}

// A fuzzer does not guess checksums. So what it makes has none, and gets them here; bits of its own spoil them.
constexpr std::uint32_t kFramesWithoutChecks = 0x31636b73, kMessagesWithoutChecks = 0x736b7431;

template <class T>
T taken(std::span<const std::byte>& from) {
  T value;
  std::memcpy(&value, from.data(), sizeof value);
  from = from.subspan(sizeof value);
  return value;
}
std::span<const std::byte> taken(std::span<const std::byte>& from, std::uint64_t most) {
  const std::span<const std::byte> part = from.first(std::min<std::uint64_t>(from.size(), most));
  from = from.subspan(part.size());
  return part;
}
void append(std::vector<std::byte>& to, std::span<const std::byte> more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<std::byte> frames_with_checks(std::span<const std::byte> left) {
  std::vector<std::byte> out;
  while (left.size() >= 9) {
    FrameHead head;
    head.magic = taken<std::uint32_t>(left);
    if (head.magic == kFramesWithoutChecks) head.magic = FrameHead::kMagic;
    head.length = taken<std::uint32_t>(left);
    head.kind = taken<std::uint8_t>(left);
    const std::uint64_t wrong_body = head.kind >> 7, wrong_head = head.kind >> 6 & 1;
    head.kind &= 0x3f;
    const std::span<const std::byte> body = taken(left, head.length);
    head.body_check = checksum(body) ^ wrong_body;
    head.own_check = head.right_check() ^ wrong_head;
    append(out, to_bytes(head));
    append(out, body);
  }
  append(out, left);
  return out;
}

// What does not begin as a message does stays as it is: damage.
std::vector<std::byte> messages_with_checks(std::span<const std::byte> left) {
  std::vector<std::byte> out;
  while (left.size() >= 24) {
    std::span<const std::byte> rest = left;
    TcpWire::Prefix prefix;
    if (taken<std::uint32_t>(rest) != kMessagesWithoutChecks) {
      append(out, taken(left, 1));
      continue;
    }
    prefix.head_bytes = taken<std::uint32_t>(rest);
    prefix.payload_bytes = taken<std::uint64_t>(rest);
    prefix.is_text = taken<std::uint64_t>(rest);
    const std::span<const std::byte> head = taken(rest, prefix.head_bytes), payload = taken(rest, prefix.payload_bytes);
    seal(prefix, head, payload);
    prefix.checks.head ^= prefix.is_text >> 62 & 1;
    prefix.checks.payload ^= prefix.is_text >> 61 & 1;
    prefix.checks.prefix = checksum_of_prefix(prefix);
    append(out, std::as_bytes(std::span(&prefix, 1)));
    append(out, head);
    append(out, payload);
    left = rest;
  }
  append(out, left);
  return out;
}

// Keeps what is sent, and hands over what the test has to say.
class Post final : public Wire {
 public:
  explicit Post(std::string_view payload) : payload_(payload) {}
  Ticket send(int, std::span<const std::byte> head, std::span<const std::byte>) override {
    sent.emplace_back(head.begin(), head.end());
    return 0;
  }
  std::uint64_t announced_bytes(Ticket) const override { return payload_.size(); }
  void receive(Ticket ticket, std::span<std::byte> into) override {
    require(into.size() == payload_.size(), "a payload into a place of another size");
    if (!into.empty()) std::memcpy(into.data(), payload_.data(), into.size());
    listener_->over(ticket);
  }
  void discard(Ticket) override {}
  bool poll() override { return false; }
  void deliver(std::span<const std::byte> head, Ticket payload) { listener_->arrived(1, head, payload); }
  std::vector<std::vector<std::byte>> sent;

 private:
  std::string_view payload_;
};

using Side = test::TransportSide<Post>;

// What a rank 1 sends when it comes to the meeting.
const std::vector<std::byte>& arrival() {
  static const std::vector<std::byte> kArrival = [] {
    Side other(1, 7, "");
    try {
      other.create(0);
    } catch (const SeamError&) {  // nobody answers
    }
    return other.post.sent.at(0);
  }();
  return kArrival;
}

struct Ear final : Wire::Listener {
  explicit Ear(TcpWire& on) : wire(on) { wire.listen(this); }
  ~Ear() override { wire.listen(nullptr); }
  void arrived(int, std::span<const std::byte> head, Wire::Ticket payload) override {
    ++heads;
    if (payload == 0) return;
    const std::uint64_t bytes = wire.announced_bytes(payload);
    if (head.size() % 2 == 0 && bytes <= room.size()) return wire.receive(payload, std::span(room).first(bytes));
    wire.discard(payload);
  }
  void over(Wire::Ticket) override {}
  void damaged(int, Wire::Ticket) override {}
  void failed(const std::string&) override {}
  TcpWire& wire;
  int heads = 0;
  std::vector<std::byte> room = std::vector<std::byte>(4096);
};

// A host with places 1 and 3 of a group of four; places 0 and 2 are on the host that speaks. The first one of the job
// takes files, too.
class RelayOfAHost {
 public:
  explicit RelayOfAHost(bool is_first) : is_first_(is_first) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "there is no pair of sockets");
    std::vector<Socket> peers(2);
    peers[std::size_t(other())] = Socket(ends[0]);
    peer_ = Socket(ends[1]);
    TcpWire::Limits limits;
    limits.text = limits.early = 1 << 16;
    auto wire = std::make_unique<TcpWire>(int(!is_first), std::move(peers), limits);
    wire_ = wire.get();
    plan_.host = int(!is_first);
    plan_.names = {"a", "b"};
    plan_.folder = files();
    plan_.files_bytes_max = 1 << 20;
    board_.gave.resize(2);
    board_.why_lost.resize(2);
    loop_.emplace(plan_, std::move(wire), board_, door(), -1);
    enter();
  }
  ~RelayOfAHost() {
    loop_.reset();
    for (const auto& file : std::filesystem::directory_iterator(files())) std::filesystem::remove(file);
  }
  RelayOfAHost(const RelayOfAHost&) = delete;
  RelayOfAHost& operator=(const RelayOfAHost&) = delete;

  void say(std::span<const std::byte> part) {
    while (!part.empty() && !wire_->closed(other())) {
      const int n = peer_.send_some(part);
      if (n < 0) return;
      part = part.subspan(std::size_t(n));
      while (wire_->poll()) {
      }
    }
  }
  bool is_open() const { return !wire_->closed(other()); }
  // What another host's relay can never write: what ranks of this one have published.
  void own_is_untouched() const {
    for (const int place : kHere) {
      require(memory_.rank(place).joined == 7 && memory_.rank(place).finished == 6, "how far a rank of this host is");
      require(memory_.rank(place).meetings.count == 0, "that a rank of this host came to a meeting");
      require(memory_.rank(place).far == pytorch::Far::there, "that a rank of this host is gone");
      for (int bank = 0; bank < pytorch::kBanks; ++bank)
        require(std::memcmp(memory_.slot(bank, place), kOwn, sizeof kOwn) == 0, "the slot of a rank of this host");
    }
  }

 private:
  static constexpr int kHere[] = {1, 3};
  static constexpr char kOwn[] = "a rank of this host wrote this";
  int other() const { return int(is_first_); }
  static const std::string& files() {
    static const std::string folder = [] {
      std::string made = (std::filesystem::temp_directory_path() / "seeksim-fuzz-XXXXXX").string();
      require(::mkdtemp(made.data()) != nullptr, "there is no folder for files");
      return made;
    }();
    return folder;
  }
  static harness::torch::RanksDoor& door() {
    static harness::torch::RanksDoor door;
    return door;
  }
  void enter() {
    for (const int place : kHere) {
      memory_.rank(place).joined = 7;
      memory_.rank(place).finished = 6;
      for (int bank = 0; bank < pytorch::kBanks; ++bank) std::memcpy(memory_.slot(bank, place), kOwn, sizeof kOwn);
      pytorch::Entrance entrance;
      entrance.size = 4;
      entrance.place = place;
      entrance.hosts = {other(), plan_.host, other(), plan_.host};
      harness::torch::RankCaller caller;
      loop_->enter(caller, entrance, place == kHere[0] ? ::fcntl(memory_.file(), F_DUPFD_CLOEXEC, 0) : -1);
    }
  }

  bool is_first_;
  pytorch::Segment memory_ = pytorch::Segment::create(4);
  Socket peer_;
  TcpWire* wire_ = nullptr;
  harness::torch::RelayPlan plan_;
  harness::torch::Board board_;
  std::optional<harness::torch::RelayLoop> loop_;
};

}  // namespace

bool take_control_frames(std::string_view bytes) try {
  FrameReader reader;
  bool any = false;
  const std::vector<std::byte> checked = frames_with_checks(as_bytes(bytes));
  const std::span<const std::byte> all = checked;
  const std::size_t half = all.size() / 2;
  for (const auto part : {all.first(half), all.subspan(half)}) {
    reader.take(part);
    while (const std::optional<Frame> frame = reader.next(any ? kFrameBytesMax : kStrangerBytesMax)) {
      read_body(*frame);
      any = true;
    }
  }
  return any;
} catch (const Malformed&) {
  return false;
}

// Two messages to a rank that awaits a piece of eight bytes: each has a byte for the length of its head, the head, and
// what is left of the first becomes the second. A payload follows where the length is odd.
bool take_message(std::string_view bytes) {
  const std::string_view payload = bytes.substr(bytes.size() - std::min<std::size_t>(bytes.size(), 8));
  Side side(0, 7, payload);
  side.post.deliver(arrival(), 0);
  const Comm comm = side.create(kSecond);
  const BufferPtr buffer = side.device.allocate(256, MemoryTag::communication, "a buffer of this test");
  std::memset(buffer->data, 1, 256);
  const Piece piece{1, false, buffer.get(), 64, 72};
  Op op;
  op.kind = OpKind::send;
  op.sequence = 1;
  require(side.transport.exchange(side.device.communication_queue(), comm, op, {&piece, 1}, DiesAt::never) ==
              CommResult::success,
          "the exchange does not begin");
  for (int turn = 0; turn < 4; ++turn) side.loop.turn();
  for (Wire::Ticket ticket = 1; ticket <= 2 && !bytes.empty(); ++ticket) {
    const std::size_t length = std::min<std::size_t>(std::uint8_t(bytes[0]), bytes.size() - 1);
    side.post.deliver(as_bytes(bytes.substr(1, length)), length % 2 == 1 ? ticket : 0);
    bytes.remove_prefix(1 + length);
    for (int turn = 0; turn < 4; ++turn) side.loop.turn();
  }
  for (std::size_t i = 0; i < 256; ++i)
    require((i >= 64 && i < 72) || buffer->data[i] == std::byte{1}, "bytes beside the piece were written");
  return side.transport.complaints().empty();
}

// A peer's stream of prefixes, heads, payloads and texts.
bool take_tcp_stream(std::string_view bytes) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "there is no pair of sockets");
  std::vector<Socket> peers(2);
  peers[1] = Socket(ends[0]);
  Socket peer(ends[1]);
  TcpWire::Limits limits;
  limits.text = limits.early = 1 << 16;
  TcpWire wire(0, std::move(peers), limits);
  const std::vector<std::byte> checked = messages_with_checks(as_bytes(bytes.substr(0, 1 << 16)));
  const std::span<const std::byte> all = checked;
  const std::size_t early = all.size() / 3;  // before there is a listener
  const auto say = [&](std::span<const std::byte> part) {
    while (!part.empty()) {
      const int n = peer.send_some(part);
      if (n < 0) return;
      part = part.subspan(std::size_t(n));
      while (wire.poll()) {
      }
    }
  };
  say(all.first(early));
  int heads = 0;
  {
    Ear ear(wire);
    say(all.subspan(early));
    heads = ear.heads;
  }
  bool texts = false;
  while (wire.text_from(1)) texts = true;
  return heads > 0 || texts;
}

// What the relay of another host says, with the secret proved: the group's key is all zeros.
bool take_relay_frames(std::string_view bytes) {
  if (bytes.empty()) return false;
  RelayOfAHost host(bytes[0] % 2 == 0);
  host.say(messages_with_checks(as_bytes(bytes.substr(1, 1 << 16))));
  host.own_is_untouched();
  return host.is_open();
}

// A rank's report, and rank 0's request, which travel as texts.
bool take_report(std::string_view bytes) {
  bool taken = false;
  try {
    std::vector<std::vector<harness::Note>> notes(1);
    notes[0] = harness::report_from(as_bytes(bytes)).notes;
    harness::Collector collector(1, -1, false);
    collector.begin_attempt(0);
    harness::replay(notes, 4, 8, collector);
    taken = true;
  } catch (const Malformed&) {
  }
  try {
    harness::request_from(std::string(bytes));
    taken = true;
  } catch (const harness::BadInput&) {
  }
  return taken;
}

}  // namespace seeksim::fuzz
