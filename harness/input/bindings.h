// How a key fills a member and is written back from it: the second column of a row of keys.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/input/seconds.h"
#include "runtime/files/bounded_json.h"
#include "runtime/seams/bounded.h"

#include <nlohmann/json.hpp>

namespace seeksim::harness {

template <class T>
struct Binding {
  // Called where the key is there. Empty: the key is read together with others of its object.
  std::function<void(const Reader& object, const char* key, T& to)> read;
  // What the key is written as. Empty: it is written together with others, or not at all.
  std::function<Json(const T& from)> value;
  // Whether it is written. Empty: always.
  std::function<bool(const T& from)> written;

  Binding when(std::function<bool(const T&)> condition) const {
    Binding binding = *this;
    binding.written = std::move(condition);
    return binding;
  }
  // Written only where it is not what the struct begins with.
  Binding unless_standard() const {
    return when([value = value](const T& from) { return value(from) != value(T{}); });
  }
  // Read together with other keys of its object.
  Binding read_by_hand() const { return {{}, value, written}; }
  // Written as another value than is read.
  Binding as(std::function<Json(const T&)> other) const { return {read, std::move(other), written}; }
};

// The key is read and written together with others of its object, by a function of its own.
struct ByHand {
  template <class T>
  operator Binding<T>() const {
    return {};
  }
};
inline constexpr ByHand by_hand;

// Read by hand, written as this.
template <class T>
Binding<T> written_as(std::function<Json(const T&)> value) {
  return {{}, std::move(value), {}};
}

// ---- one value -----------------------------------------------------------------------------------------------------

template <class V>
void read_value(const Reader& object, const char* key, V& to) {
  if constexpr (std::is_same_v<V, bool>) {
    to = object.flag(key, to);
  } else if constexpr (std::is_same_v<V, std::string>) {
    to = object.text(key, to);
  } else if constexpr (std::is_floating_point_v<V>) {
    to = object.number(key, to);
  } else if constexpr (std::is_same_v<V, std::uint64_t>) {
    to = object.natural(key, to);
  } else if constexpr (std::is_same_v<V, std::int64_t>) {
    to = object.integer(key, to);
  } else {
    static_assert(std::is_integral_v<V> && sizeof(V) == 4);
    constexpr std::int64_t kMost = 1 << 30;  // whatever is beyond, the schema refuses
    to = V(std::clamp<std::int64_t>(object.integer(key, std::int64_t(to)), -kMost, kMost));
  }
}

template <class V>
V list_entry(const Json& one) {
  if constexpr (std::is_integral_v<V> && !std::is_same_v<V, bool>) {  // what does not fit, the schema refuses
    constexpr V kLeast = std::numeric_limits<V>::min(), kMost = std::numeric_limits<V>::max();
    return runtime::whole_number<V>(one).value_or(one > Json(0) ? kMost : kLeast);
  } else {
    return one.get<V>();
  }
}

// What is not of the list's type was reported against the schema.
template <class V>
void read_value(const Reader& object, const char* key, std::vector<V>& to) {
  const Json* list = object.find(key);
  if (list == nullptr || !list->is_array()) return;
  to.clear();
  for (const Json& one : *list) {
    const bool fits = std::is_same_v<V, std::string> ? one.is_string()
                      : std::is_floating_point_v<V>  ? one.is_number()
                                                     : one.is_number_integer();
    if (fits) to.push_back(list_entry<V>(one));
  }
}

// Where the key is there, there is a value.
template <class V>
void read_value(const Reader& object, const char* key, std::optional<V>& to) {
  V value = std::is_same_v<V, int> ? V(-1) : V(std::is_unsigned_v<V>);
  read_value(object, key, value);
  to = value;
}

template <class V>
Json written_value(const V& value) {
  return value;
}
template <class V>
Json written_value(const std::optional<V>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// ---- where it goes -------------------------------------------------------------------------------------------------

// The member at the end of a path of members.
template <class T, class First, class... Rest>
auto& member(T& of, First first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) {
    return of.*first;
  } else {
    return member(of.*first, rest...);
  }
}

// A member, by itself or by the path that leads to it: at(&Scenario::train, &TrainPlan::tf32).
template <class T, class M, class... Rest>
Binding<T> at(M T::*first, Rest... rest) {
  return {[=](const Reader& object, const char* key, T& to) { read_value(object, key, member(to, first, rest...)); },
          [=](const T& from) { return written_value(member(from, first, rest...)); },
          {}};
}

// A number that is kept as `factor` times itself.
template <class T, class M, class... Rest>
Binding<T> times(double factor, M T::*first, Rest... rest) {
  return {[=](const Reader& object, const char* key, T& to) {
            auto& kept = member(to, first, rest...);
            using Kept = std::remove_reference_t<decltype(kept)>;
            const double given = object.number(key, double(kept) / factor) * factor;
            if constexpr (std::is_same_v<Kept, runtime::TimeNs>)
              kept = runtime::to_time_ns(given);
            else
              kept = given;
          },
          [=](const T& from) { return Json(double(member(from, first, rest...)) / factor); },
          {}};
}

// GiB, kept in bytes. More than a million are refused by the schema.
template <class T, class M, class... Rest>
Binding<T> in_gib(M T::*first, Rest... rest) {
  constexpr double kGib = double(std::uint64_t(1) << 30);
  return {[=](const Reader& object, const char* key, T& to) {
            auto& bytes = member(to, first, rest...);
            using Kept = std::remove_reference_t<decltype(bytes)>;
            bytes = Kept(std::min(1e6, object.number(key, double(bytes) / kGib)) * kGib);
          },
          [=](const T& from) { return Json(double(member(from, first, rest...)) / kGib); },
          {}};
}

// Seconds, kept in nanoseconds.
inline runtime::TimeNs as_given(const std::optional<runtime::TimeNs>& ns) { return ns.value_or(0); }
inline Json seconds_of(const std::optional<runtime::TimeNs>& ns) {
  return ns ? Json(runtime::seconds(*ns)) : Json(nullptr);
}

template <class T, class M, class... Rest>
Binding<T> in_seconds(M T::*first, Rest... rest) {
  return {[=](const Reader& object, const char* key, T& to) {
            auto& kept = member(to, first, rest...);
            kept = read_seconds(object, key, as_given(kept));
          },
          [=](const T& from) { return seconds_of(member(from, first, rest...)); },
          {}};
}

// A word of an enum whose words name() gives and whose last value is count_.
template <class E>
std::vector<std::string> words_of() {
  std::vector<std::string> words;
  for (int i = 0; i < int(E::count_); ++i) words.emplace_back(name(E(i)));
  return words;
}

template <class T, class E, class... Rest>
Binding<T> in_words(E T::*first, Rest... rest) {
  return {[=](const Reader& object, const char* key, T& to) {
            auto& kept = member(to, first, rest...);
            using Word = std::remove_reference_t<decltype(kept)>;
            const std::string word = object.text(key);
            for (int i = 0; i < int(Word::count_); ++i)
              if (word == name(Word(i))) kept = Word(i);
          },
          [=](const T& from) { return Json(std::string(name(member(from, first, rest...)))); },
          {}};
}

// A word of an enum, by a table of its own: {{Policy::stop, "stop"}, ...}.
template <class E>
using Words = std::vector<std::pair<E, const char*>>;

template <class E>
std::vector<std::string> words_of(const Words<E>& table) {
  std::vector<std::string> words;
  for (const auto& [value, word] : table) words.emplace_back(word);
  return words;
}

template <class E, class T, class M, class... Rest>
Binding<T> in_words(const Words<E>& table, M T::*first, Rest... rest) {
  return {[=](const Reader& object, const char* key, T& to) {
            const std::string given = object.text(key);
            for (const auto& [value, word] : table)
              if (given == word) member(to, first, rest...) = value;
          },
          [=](const T& from) {
            for (const auto& [value, word] : table)
              if (member(from, first, rest...) == value) return Json(word);
            return Json(nullptr);
          },
          {}};
}

}  // namespace seeksim::harness
