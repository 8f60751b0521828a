#include "harness/torch/hosts/meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <thread>

#include "harness/input/problem.h"
#include "pytorch/core/relay_line.h"
#include "runtime/backend/machine/interrupts.h"
#include "runtime/backend/wire/bytes.h"
#include "runtime/backend/wire/rendezvous.h"

namespace seeksim::harness::torch {
namespace {

constexpr double kToCome_s = 300;  // hosts are started by hand, and each may have a backend to build first
constexpr double kToSpeak_s = 30;
constexpr std::uint64_t kSaidMax = std::uint64_t(64) << 20;  // a report, and what comes before anybody listens

// What each host says of itself first.
struct Hello {
  std::uint32_t version = 1;
  std::string name;
  std::uint64_t task = 0;
};

// The value behind one of these options, before the script: "--nnodes 2", "--nnodes=2"; the last one counts.
std::string value_in(const std::vector<std::string>& command, const std::vector<std::string>& options) {
  std::string found;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word.ends_with(".py") && !word.starts_with("-")) break;
    for (const std::string& option : options) {
      if (word == option && i + 1 < command.size()) found = command[i + 1];
      if (word.starts_with(option + "=")) found = word.substr(option.size() + 1);
    }
  }
  return found;
}

int number_of(const std::string& text, const std::string& what, int most) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > most)
    throw BadInput(what, fmt::format("{} is no number from 0 to {}", in_quotes(text), most), "");
  return number;
}

// "2", or "2:2" as torchrun takes it; "1:4" may be one host, and is.
int count_of(const std::string& text) {
  const std::size_t colon = text.find(':');
  const int least = number_of(text.substr(0, colon), "--nnodes", pytorch::kMaxHosts);
  if (colon != std::string::npos && least != 1 &&
      number_of(text.substr(colon + 1), "--nnodes", pytorch::kMaxHosts) != least)
    throw BadInput("--nnodes " + text, "seeksim has to know how many hosts there are", "Give one number.");
  return least;
}

struct Endpoint {
  std::string host, port;
};
Endpoint endpoint_of(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::string own_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// A name as another host gives it, for the terminal.
std::string shown(std::string name) {
  constexpr std::size_t kLongest = 64;
  name = name.substr(0, kLongest);
  for (char& c : name) {
    if (c <= ' ' || c > '~') c = '?';
  }
  return name;
}

std::string text_from(runtime::TcpWire& wire, int host) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(kToSpeak_s);
  for (;;) {
    if (const auto text = wire.text_from(host)) return {reinterpret_cast<const char*>(text->data()), text->size()};
    if (wire.closed(host)) throw std::runtime_error(wire.why_closed(host));
    if (std::chrono::steady_clock::now() > until) throw std::runtime_error("it says nothing");
    if (!wire.poll()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

HostsPlan hosts_plan(const HostsAsked& asked, const std::vector<std::string>& command) {
  const auto said = [&](const std::vector<std::string>& options) { return value_in(command, options); };
  HostsPlan plan;
  plan.insecure = asked.insecure;
  const std::string count = said({"--nnodes", "--num_machines", "--num_nodes"});
  plan.count = asked.count ? *asked.count : count.empty() ? 1 : count_of(count);
  if (plan.count <= 1) {
    if (!asked.endpoint.empty() || asked.host.value_or(0) != 0)
      throw BadInput("--nnodes", "nothing says how many hosts there are", "Use --nnodes N.");
    return plan;
  }
  const std::string host = said({"--node-rank", "--node_rank", "--machine_rank"});
  if (!asked.host && host.empty())
    throw BadInput("--node-rank", fmt::format("there are {} hosts, and nothing says which of them this is", plan.count),
                   "Use --node-rank K: 0 on the host that the others meet at.");
  plan.host = asked.host ? *asked.host : number_of(host, "--node-rank", plan.count - 1);
  if (plan.host < 0 || plan.host >= plan.count)
    throw BadInput("--node-rank", fmt::format("there is no host {}", plan.host),
                   fmt::format("Hosts go from 0 to {}.", plan.count - 1));
  Endpoint at = endpoint_of(asked.endpoint.empty() ? said({"--rdzv-endpoint", "--rdzv_endpoint"}) : asked.endpoint);
  if (at.host.empty()) at.host = said({"--master-addr", "--master_addr", "--main_process_ip"});
  if (at.port.empty()) at.port = said({"--master-port", "--master_port", "--main_process_port"});
  if (at.host.empty()) throw BadInput("--rdzv", "nothing says where the hosts meet", "Use --rdzv HOST:PORT.");
  constexpr int kPortMax = 65534;  // the relays take the next one
  plan.master = at.host;
  plan.port = std::uint16_t(at.port.empty() ? 29400 : number_of(at.port, "the port of --rdzv", kPortMax));
  if (plan.port == 0) throw BadInput("--rdzv", "0 is no port to meet at", "Use --rdzv HOST:PORT.");
  return plan;
}

MetHosts meet_hosts(const HostsPlan& plan, const std::string& task) {
  runtime::Rendezvous at;
  at.rank = plan.host;
  at.size = plan.count;
  at.master = plan.master;
  at.port = std::uint16_t(plan.port + 1);
  at.insecure = plan.insecure;
  at.seconds = kToCome_s;
  at.give_up = [] { return runtime::interrupted() != 0; };
  const std::string where = fmt::format("{}:{}", at.master, at.port);
  MetHosts met;
  Hello own{1, own_name(), runtime::checksum(std::as_bytes(std::span(task)))};
  try {
    at.secret = runtime::secret_of_the_job();
    runtime::Met peers = runtime::meet(at);
    runtime::TcpWire::Limits limits;
    limits.text = limits.early = kSaidMax;
    met.wire = std::make_unique<runtime::TcpWire>(plan.host, std::move(peers.peers), limits);
  } catch (const runtime::NoSecret& none) {
    throw BadInput(where, none.what(),
                   "Give all hosts the same SEEKSIM_TOKEN, 16 characters or more, or use --insecure.");
  } catch (const std::runtime_error& why) {
    throw BadInput(where, fmt::format("the hosts did not meet: {}", why.what()), "");
  }
  for (int host = 0; host < plan.count; ++host)
    if (host != plan.host) met.wire->send_text(host, runtime::to_bytes(own));
  for (int host = 0; host < plan.count; ++host) {
    Hello said = own;
    try {
      if (host != plan.host) {
        const std::string text = text_from(*met.wire, host);
        runtime::from_bytes(std::as_bytes(std::span(text)), said);
      }
    } catch (const std::runtime_error& why) {
      throw BadInput(where, fmt::format("host {}: {}", host, why.what()), "");
    }
    if (said.version != own.version)
      throw BadInput(where, fmt::format("host {} has another release of seeksim", host), "Use one on all hosts.");
    if (said.task != own.task)
      throw BadInput(where, fmt::format("host {} ({}) has another scenario, or another --np", host, shown(said.name)),
                     "Give all hosts the same.");
    met.names.push_back(shown(said.name));
  }
  return met;
}

}  // namespace seeksim::harness::torch
