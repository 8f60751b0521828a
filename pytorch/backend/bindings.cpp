// What the Python package sees of the backend.
#include <torch/extension.h>

#include <dlfcn.h>
#include <frameobject.h>

#include <bit>
#include <compare>
#include <map>

#include "pytorch/backend/seeksim_backend.h"

namespace seeksim::pytorch {
namespace {

namespace py = pybind11;

// {"link": {"from": 0}} is "link.from".
RuleKeys rule_keys(const py::dict& rule, const std::string& inside = "") {
  RuleKeys keys;
  for (const auto& [key, value] : rule) {
    const std::string name = inside + py::cast<std::string>(py::str(key));
    if (py::isinstance<py::dict>(value)) {
      for (auto& one : rule_keys(value.cast<py::dict>(), name + ".")) keys.push_back(std::move(one));
    } else if (py::isinstance<py::bool_>(value)) {
      keys.emplace_back(name, value.cast<bool>());
    } else if (py::isinstance<py::int_>(value)) {
      keys.emplace_back(name, value.cast<std::int64_t>());
    } else if (py::isinstance<py::float_>(value)) {
      keys.emplace_back(name, value.cast<double>());
    } else if (py::isinstance<py::str>(value)) {
      keys.emplace_back(name, value.cast<std::string>());
    } else {
      throw std::invalid_argument("plan.json: faults: " + name + " has a value that no key of a rule has");
    }
  }
  return keys;
}

// NCCL is about to be called, and pytorch/preload asks what becomes of it.
int asked_by_nccl(const char* operation) {
  Session* s = session();
  if (s == nullptr) return 0;
  Situation situation;
  situation.act = Act::library_call;
  for (int op = 0; op < int(OpName::count_); ++op)
    if (name(OpName(op)) == operation) situation.op = OpName(op);
  const std::vector<Rules::Hit> hits = s->rules_at(std::move(situation));
  const int result = result_of(hits);
  for (const Rules::Hit& hit : hits)
    s->fired(hit, -1, std::string("NCCL's ") + operation + (result < 0 ? " never returns" : " returns an error"));
  return result;
}

// Throws where a rule needs the preloaded library and it is not there.
void listen_to_nccl(Session& s) {
  using Listen = void (*)(int (*)(const char*));
  if (const auto listen = reinterpret_cast<Listen>(dlsym(RTLD_DEFAULT, "seeksim_nccl_asks"))) {
    listen(asked_by_nccl);
    return;
  }
  for (const Act act : s.rules().acts()) {
    if (act == Act::library_call)
      throw std::invalid_argument(
          "device_error needs the library that the command preloads, and it is not loaded: leave --warm out");
  }
}

void configure(const std::string& record_path, int rank, int world, int attempt, int resumed,
               const std::string& torch_version, const std::string& backend, std::uint64_t max_bytes,
               std::uint64_t seed, double timeout_s, bool hashes, bool norms, bool stacks, const std::string& sums,
               const std::vector<py::dict>& rules, std::vector<std::string> earlier_records, const std::string& relay,
               int host, std::vector<std::string> hosts) {
  if (session() != nullptr) throw std::invalid_argument("seeksim: configured twice");
  SessionSettings s;
  s.record_path = record_path;
  s.start = {rank, world, attempt, torch_version, backend, max_bytes};
  s.seed = seed;
  s.attempt = attempt + resumed;
  s.timeout_s = timeout_s;
  s.hashes = hashes;
  s.norms = norms;
  s.stacks = stacks;
  s.sums = sum_order(sums);
  if (s.sums == SumOrder::count_) throw std::invalid_argument("plan.json: sums: there is no order " + sums);
  for (const py::dict& rule : rules) s.rules.push_back(rule_keys(rule));
  s.earlier_records = std::move(earlier_records);
  s.relay = relay;
  s.host = host;
  s.hosts = std::move(hosts);
  session() = new Session(std::move(s));  // for the life of the process: threads of torch use it to the very end
  listen_to_nccl(*session());
}

Session& here() {
  if (session() == nullptr) throw std::invalid_argument("seeksim: not configured");
  return *session();
}

void tensor(const at::Tensor& t, const std::string& use, const std::string& name, const std::string& module,
            const std::string& shape, bool whole, int order) {
  Session& s = here();
  const Digest d = digest_of(t, true);
  TensorEntry e;
  e.use = tensor_use(use);
  e.phase = s.phase();
  e.dtype = dtype_of(t.scalar_type());
  e.whole = whole;
  e.step = s.step();
  e.micro_batch = s.micro_batch();
  e.order = order;
  e.name = s.record().text(name);
  e.module = s.record().text(module);
  e.shape = s.record().text(shape);
  e.hash = d.hash;
  e.measure = d.measure;
  s.record().add(e);
}

void loss(const at::Tensor& t) {
  Session& s = here();
  LossEntry e;
  e.step = s.step();
  e.micro_batch = s.micro_batch();
  e.dtype = dtype_of(t.scalar_type());
  e.bits = std::bit_cast<std::uint64_t>(t.item<double>());
  e.time_ns = monotonic_ns();
  s.record().add(e);
}

void stepped(std::int64_t step, int micro_batches) {
  here().record().add(StepEntry{step, micro_batches, monotonic_ns()});
}

void note(const std::string& text) {
  Session& s = here();
  s.record().add(NoteEntry{s.record().text(text)});
}

void sight(const std::string& kind, const std::string& name, const std::string& text, std::int64_t step) {
  Session& s = here();
  SightEntry e;
  e.kind = sight_kind(kind);
  if (e.kind == SightKind::count_) throw std::invalid_argument("seeksim: there is no sight " + kind);
  e.phase = s.phase();
  e.micro_batch = s.micro_batch();
  e.name = s.record().text(name);
  e.text = text.empty() ? kNoText : s.record().text(text);
  e.step = step;
  s.record().add(e);
}

// Faults in a tensor of this rank, in place and unseen by autograd. True where one struck.
bool strike_here(const std::string& where, const std::string& name, const at::Tensor& t) {
  Session& s = here();
  Situation situation;
  situation.act = act(where);
  situation.name = name;
  bool struck = false;
  for (const Rules::Hit& hit : s.rules_at(std::move(situation))) {
    const std::string what = strike_tensor(*hit.rule, t);
    if (what.empty()) continue;
    s.fired(hit, -1, where + ' ' + name + ": " + what);
    struck = true;
  }
  return struck;
}

// Faults of loaders and files that the package carries out itself: kind, mode, delay_s, bit.
using Asked = std::tuple<std::string, std::string, double, std::uint64_t>;
std::vector<Asked> asks(const std::string& where, const std::string& name, const std::string& said) {
  Session& s = here();
  Situation situation;
  situation.act = act(where);
  situation.name = name;
  std::vector<Asked> all;
  for (const Rules::Hit& hit : s.rules_at(std::move(situation))) {
    const faults::Rule& rule = *hit.rule;
    s.fired(hit, -1, std::string(faults::name(rule.kind)) + ": " + said);
    all.emplace_back(faults::name(rule.kind), faults::name(rule.mode), double(rule.delay_ns) * 1e-9, rule.bit);
  }
  return all;
}

// How much longer a phase that took so much processor time has to last, in seconds.
double slowed(const std::string& phase, double worked_s) {
  Session& s = here();
  Situation situation;
  situation.act = Act::work;
  situation.phase = step_phase(phase);
  situation.worked_ns = std::int64_t(worked_s * 1e9);
  std::int64_t delay_ns = 0;
  for (const Rules::Hit& hit : s.rules_at(std::move(situation))) {
    if (hit.begins) s.fired(hit, -1, "slower from " + phase + " of this step on");
    delay_ns += hit.delay_ns;
  }
  return double(delay_ns) * 1e-9;
}

// What this rank's wall clock shows too much: seconds, and seconds a second.
std::pair<double, double> clock_shift() {
  Session& s = here();
  double offset_s = 0, drift = 0;
  for (const Rules::Hit& hit : s.rules().conditions()) {
    s.fired(hit, -1, "the wall clock is wrong");
    offset_s += double(hit.rule->offset_ns) * 1e-9;
    drift += hit.rule->drift_ppm * 1e-6;
  }
  return {offset_s, drift};
}

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         std::string group, std::vector<int> ranks, double timeout_s,
                                         std::string backend,
                                         const std::optional<c10::intrusive_ptr<c10d::Backend>>& inner, bool folds) {
  py::gil_scoped_release no_gil;
  return c10::make_intrusive<SeekBackend>(
      store, rank, size,
      SeekBackend::Start{std::move(group), std::move(ranks), timeout_s, std::move(backend),
                         inner.value_or(c10::intrusive_ptr<c10d::Backend>{}), folds});
}

// One frame: the code object is kept for ever, so that its address stays its name.
struct Site {
  PyCodeObject* code;
  int line;
  auto operator<=>(const Site&) const = default;
};

std::string text_of(PyObject* unicode) {
  const char* text = PyUnicode_AsUTF8(unicode);
  if (text == nullptr) PyErr_Clear();
  return text == nullptr ? "?" : text;
}

}  // namespace

std::uint32_t python_stack(RecordWriter& record) {
  constexpr std::size_t kFramesMost = 64;
  if (!Py_IsInitialized()) return kNoText;
  py::gil_scoped_acquire gil;
  static auto* known = new std::map<std::vector<Site>, std::uint32_t>;  // guarded by the GIL
  std::vector<Site> sites;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame != nullptr && sites.size() < kFramesMost) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    sites.push_back({code, PyFrame_GetLineNumber(frame)});
    Py_DECREF(code);  // the frame still holds it
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  Py_XDECREF(frame);
  if (sites.empty()) return kNoText;
  if (const auto found = known->find(sites); found != known->end()) return found->second;
  std::string text;
  for (const Site& site : sites) {
    Py_INCREF(site.code);
    text += (text.empty() ? "" : "\n") + text_of(site.code->co_filename) + ":" + std::to_string(site.line) + " " +
            text_of(site.code->co_name);
  }
  const std::uint32_t reference = record.text(text);
  known->emplace(sites, reference);
  return reference;
}

}  // namespace seeksim::pytorch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace seeksim::pytorch;
  namespace py = pybind11;
  m.def("configure", &configure, py::kw_only(), py::arg("record_path"), py::arg("rank"), py::arg("world"),
        py::arg("attempt"), py::arg("resumed"), py::arg("torch_version"), py::arg("backend"), py::arg("max_bytes"),
        py::arg("seed"), py::arg("timeout_s"), py::arg("hashes"), py::arg("norms"), py::arg("stacks"), py::arg("sums"),
        py::arg("rules"), py::arg("earlier_records"), py::arg("relay"), py::arg("host"), py::arg("hosts"));
  m.def("create", &create);
  m.def("now", [](std::int64_t step, int micro_batch, const std::string& phase) {
    here().now(step, micro_batch, step_phase(phase));
  });
  m.def("tensor", &tensor);
  m.def("loss", &loss);
  m.def("stepped", &stepped);
  m.def("note", &note);
  m.def("sight", &sight);
  m.def("acts", [] {
    std::vector<std::string> names;
    for (const Act act : here().rules().acts()) names.emplace_back(name(act));
    return names;
  });
  m.def("strike", &strike_here);
  m.def("asks", &asks);
  m.def("slowed", &slowed);
  m.def("clock", &clock_shift);
  m.def("ended", [] {
    here().record().ended();
    const py::gil_scoped_release no_gil;
    leave();
  });
  m.def("forget", [] { here().record().forget(); });
}
