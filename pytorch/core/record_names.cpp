#include "pytorch/core/record.h"
#include "runtime/seams/enum_names.h"

namespace seeksim::pytorch {
namespace {

using runtime::EnumNames;

constexpr EnumNames<OpName> kOps({{OpName::all_reduce, "all_reduce"},
                                  {OpName::reduce, "reduce"},
                                  {OpName::broadcast, "broadcast"},
                                  {OpName::all_gather, "all_gather"},
                                  {OpName::gather, "gather"},
                                  {OpName::scatter, "scatter"},
                                  {OpName::reduce_scatter, "reduce_scatter"},
                                  {OpName::all_to_all, "all_to_all"},
                                  {OpName::send, "send"},
                                  {OpName::recv, "recv"},
                                  {OpName::barrier, "barrier"}});
constexpr EnumNames<DType> kTypes({{DType::none, "none"},
                                   {DType::fp32, "fp32"},
                                   {DType::fp64, "fp64"},
                                   {DType::fp16, "fp16"},
                                   {DType::bf16, "bf16"},
                                   {DType::fp8_e4m3, "fp8_e4m3"},
                                   {DType::fp8_e5m2, "fp8_e5m2"},
                                   {DType::int8, "int8"},
                                   {DType::int16, "int16"},
                                   {DType::int32, "int32"},
                                   {DType::int64, "int64"},
                                   {DType::uint8, "uint8"},
                                   {DType::boolean, "bool"},
                                   {DType::complex64, "complex64"},
                                   {DType::complex128, "complex128"},
                                   {DType::other, "other"}});
constexpr EnumNames<ReduceName> kReductions({{ReduceName::none, "none"},
                                             {ReduceName::sum, "sum"},
                                             {ReduceName::avg, "avg"},
                                             {ReduceName::product, "product"},
                                             {ReduceName::min, "min"},
                                             {ReduceName::max, "max"},
                                             {ReduceName::band, "band"},
                                             {ReduceName::bor, "bor"},
                                             {ReduceName::bxor, "bxor"},
                                             {ReduceName::premul_sum, "premul_sum"}});
constexpr EnumNames<StepPhase> kPhases({{StepPhase::init, "init"},
                                        {StepPhase::data, "data"},
                                        {StepPhase::forward, "forward"},
                                        {StepPhase::backward, "backward"},
                                        {StepPhase::optimizer, "optimizer"},
                                        {StepPhase::checkpoint, "checkpoint"}});
constexpr EnumNames<CallState> kStates({{CallState::created, "created"},
                                        {CallState::started, "started"},
                                        {CallState::finished, "finished"},
                                        {CallState::failed, "failed"}});
constexpr EnumNames<TensorUse> kUses({{TensorUse::weight, "weight"},
                                      {TensorUse::gradient, "gradient"},
                                      {TensorUse::local_gradient, "local_gradient"},
                                      {TensorUse::state, "state"},
                                      {TensorUse::buffer, "buffer"},
                                      {TensorUse::left, "left"}});
constexpr EnumNames<SightKind> kSights({{SightKind::uses, "uses"},
                                        {SightKind::turned, "turned"},
                                        {SightKind::batch, "batch"},
                                        {SightKind::trains_on, "trains_on"},
                                        {SightKind::trains, "trains"},
                                        {SightKind::old_gradient, "old_gradient"},
                                        {SightKind::left_eval, "left_eval"},
                                        {SightKind::left_train, "left_train"},
                                        {SightKind::late_clip, "late_clip"},
                                        {SightKind::undivided, "undivided"},
                                        {SightKind::state, "state"},
                                        {SightKind::saved, "saved"},
                                        {SightKind::lost_gradient, "lost_gradient"},
                                        {SightKind::no_gradient, "no_gradient"}});
constexpr EnumNames<Blame> kBlames({{Blame::did_not_join, "did_not_join"},
                                    {Blame::is_dead, "is_dead"},
                                    {Blame::contribution_lost, "contribution_lost"},
                                    {Blame::disagrees, "disagrees"},
                                    {Blame::did_not_answer, "did_not_answer"},
                                    {Blame::backend_failed, "backend_failed"},
                                    {Blame::unreachable, "unreachable"}});

}  // namespace

std::string_view name(OpName value) { return kOps.of(value); }
std::string_view name(DType value) { return kTypes.of(value); }
std::string_view name(ReduceName value) { return kReductions.of(value); }
std::string_view name(StepPhase value) { return kPhases.of(value); }
std::string_view name(CallState value) { return kStates.of(value); }
std::string_view name(TensorUse value) { return kUses.of(value); }
std::string_view name(SightKind value) { return kSights.of(value); }
std::string_view name(Blame value) { return kBlames.of(value); }
StepPhase step_phase(std::string_view word) { return kPhases.named(word); }
TensorUse tensor_use(std::string_view word) { return kUses.named(word); }
SightKind sight_kind(std::string_view word) { return kSights.named(word); }

std::size_t element_bytes(DType type) {
  switch (type) {
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::int8:
    case DType::uint8:
    case DType::boolean:
      return 1;
    case DType::fp16:
    case DType::bf16:
    case DType::int16:
      return 2;
    case DType::fp32:
    case DType::int32:
      return 4;
    case DType::fp64:
    case DType::int64:
    case DType::complex64:
      return 8;
    case DType::complex128:
      return 16;
    case DType::none:
    case DType::other:
    case DType::count_:
      break;
  }
  return 0;
}

}  // namespace seeksim::pytorch
