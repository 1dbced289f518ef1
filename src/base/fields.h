// Configuration structs declare their fields once; reading, writing, overriding, help and the list
// of known keys all come from that declaration:
//
//   struct TrainOptions {
//     int64_t tokens = 0;
//     template <class Self, class Visitor>
//     static void VisitFields(Self& self, Visitor&& field) {
//       field("tokens", self.tokens, "training budget in tokens");
//     }
//   };
//
// A field is a bool, integer, double, string, enum (with EnumNames), a struct with fields, a type
// with `static T Parse(std::string_view)` and `ToString()`, or a vector or optional of these.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/toml.h"

namespace sandglass {

// Specialise with `static constexpr std::array<std::pair<E, const char*>, N> kNames`.
template <class E>
struct EnumNames;

template <class E>
const char* EnumName(E value) {
  for (const auto& [candidate, name] : EnumNames<E>::kNames) {
    if (candidate == value) return name;
  }
  return "?";
}

// Throws Error (with the valid names) if `name` is none of them.
template <class E>
E ParseEnum(std::string_view name, const std::string& where) {
  std::vector<std::string> names;
  for (const auto& [candidate, text] : EnumNames<E>::kNames) {
    if (name == text) return candidate;
    names.push_back(text);
  }
  std::string expected = "one of";
  for (const std::string& text : names) expected += " " + text;
  throw Error({.what = "unknown value \"" + std::string(name) + "\"",
               .where = where,
               .expected = expected,
               .remedy = DidYouMean(name, names)});
}

// One line of a configuration's documentation.
struct FieldDescription {
  std::string path;           // "train.tokens"
  std::string default_value;  // as JSON, "" if none
  std::string help;
};

namespace fields_internal {

struct NullVisitor {
  template <class T>
  void operator()(const char*, T&, const char*) const {}
};

template <class T>
concept HasFields = requires(T& value) {
  T::VisitFields(value, NullVisitor{});
};

template <class T>
concept HasText = requires(const T& value, std::string_view text) {
  { T::Parse(text) } -> std::convertible_to<T>;
  { value.ToString() } -> std::convertible_to<std::string>;
};

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Where a value was written, for messages: `run.toml:12, train.tokens`.
std::string Where(const ConfigTree& tree, const std::string& path);
// A value as a message shows it and as a text type reads it: 1e9 is 1000000000, not 1000000000.0.
std::string ValueText(const Json& value);
[[noreturn]] void FailType(const Json& value, const char* expected, const std::string& where);
// For a value that is not a whole number from `lowest` to `highest`: says which of these it fails.
[[noreturn]] void FailWhole(const Json& value, int64_t lowest, uint64_t highest,
                            const std::string& where);
[[noreturn]] void FailUnknownKey(const std::string& key, const std::string& where,
                                 const std::vector<std::string>& known);

// The value as a T, or nothing if it is not whole or does not fit. 18e9 is a handy way to write an
// integer.
template <std::integral T>
std::optional<T> ToWhole(const Json& value) {
  const auto fitted = [](auto whole) {
    return std::in_range<T>(whole) ? std::optional<T>(static_cast<T>(whole)) : std::nullopt;
  };
  if (value.is_number_unsigned()) return fitted(value.get<uint64_t>());
  if (value.is_number_integer()) return fitted(value.get<int64_t>());
  if (!value.is_number()) return std::nullopt;
  const double real = value.get<double>();
  if (std::floor(real) != real || real < -0x1p63 || real >= 0x1p64) return std::nullopt;
  return real < 0 ? fitted(static_cast<int64_t>(real)) : fitted(static_cast<uint64_t>(real));
}

template <class T>
void Read(T& out, const Json& value, const ConfigTree& tree, const std::string& path) {
  const auto where = [&] { return Where(tree, path); };
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) FailType(value, "true or false", where());
    out = value.get<bool>();
  } else if constexpr (std::is_enum_v<T>) {
    if (!value.is_string()) FailType(value, "a name in quotes", where());
    out = ParseEnum<T>(value.get<std::string>(), where());
  } else if constexpr (std::is_integral_v<T>) {
    const std::optional<T> whole = ToWhole<T>(value);
    if (!whole) {
      FailWhole(value, int64_t{std::numeric_limits<T>::min()},
                uint64_t{std::numeric_limits<T>::max()}, where());
    }
    out = *whole;
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) FailType(value, "a number", where());
    out = value.get<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) FailType(value, "a string in quotes", where());
    out = value.get<std::string>();
  } else if constexpr (IsOptional<T>::value) {
    if (!value.is_null()) {
      typename T::value_type inner{};
      Read(inner, value, tree, path);
      out = std::move(inner);
    }
  } else if constexpr (IsVector<T>::value) {
    if (!value.is_array()) FailType(value, "a list", where());
    // Elements that are there already give the defaults of tables, as everywhere else.
    out.resize(value.size());
    for (size_t i = 0; i < value.size(); ++i) {
      Read(out[i], value[i], tree, path + "[" + std::to_string(i) + "]");
    }
  } else if constexpr (HasFields<T>) {
    if (!value.is_object()) FailType(value, "a table", where());
    std::vector<std::string> known;
    T::VisitFields(out, [&](const char* name, auto& field, const char*) {
      known.push_back(name);
      if (const auto found = value.find(name); found != value.end()) {
        Read(field, *found, tree, path.empty() ? name : path + "." + name);
      }
    });
    for (const auto& [key, unused] : value.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        FailUnknownKey(key, Where(tree, path.empty() ? key : path + "." + key), known);
      }
    }
  } else {
    // A text type may also be written as a bare number where its text is one: layers = 4.
    static_assert(HasText<T>, "not a field type");
    if (!value.is_string() && !value.is_number()) FailType(value, "a string in quotes", where());
    try {
      out = T::Parse(value.is_string() ? value.get<std::string>() : ValueText(value));
    } catch (const Error& failure) {
      ErrorParts parts = failure.parts();
      parts.where = parts.where.empty() ? where() : where() + ": " + parts.where;
      throw Error(parts);
    }
  }
}

// Throws Error for the first key of `expected` (null values aside) that `actual` lacks.
void RequireKeys(const Json& expected, const Json& actual, const ConfigTree& tree,
                 const std::string& path);

// The paths whose values differ, as "train.batch (16, now 32)"; `ignored` paths are left out.
void ListDifferences(const Json& before, const Json& after, const std::vector<std::string>& ignored,
                     const std::string& path, std::vector<std::string>& out);

template <class T>
Json Write(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return EnumName(value);
  } else if constexpr (IsOptional<T>::value) {
    return value ? Write(*value) : Json(nullptr);
  } else if constexpr (IsVector<T>::value) {
    Json list = Json::array();
    for (const auto& element : value) list.push_back(Write(element));
    return list;
  } else if constexpr (HasFields<T>) {
    Json object = Json::object();
    T::VisitFields(value, [&](const char* name, const auto& field, const char*) {
      object[name] = Write(field);
    });
    return object;
  } else if constexpr (HasText<T>) {
    return value.ToString();
  } else {
    return value;
  }
}

template <class T>
void Describe(const T& value, const std::string& path, std::vector<FieldDescription>& out) {
  T::VisitFields(value, [&](const char* name, const auto& field, const char* help) {
    using Field = std::remove_cvref_t<decltype(field)>;
    const std::string field_path = path.empty() ? name : path + "." + name;
    if constexpr (HasFields<Field>) {
      Describe(field, field_path, out);
    } else if constexpr (IsVector<Field>::value) {
      if constexpr (HasFields<typename Field::value_type>) {
        Describe(typename Field::value_type{}, field_path + "[]", out);
      } else {
        out.push_back({field_path, Write(field).dump(), help});
      }
    } else {
      const Json json = Write(field);
      out.push_back({field_path, json.is_null() ? "" : json.dump(), help});
    }
  });
}

}  // namespace fields_internal

// Overwrites the fields of `out` that `tree` names; the others keep their values. Throws Error for
// an unknown key (with a suggestion) or a value of the wrong type, with file and line.
template <class T>
void ReadFields(T& out, const ConfigTree& tree) {
  fields_internal::Read(out, tree.values, tree, "");
}

// All fields, in the order of declaration.
template <class T>
Json WriteFields(const T& value) {
  return fields_internal::Write(value);
}

// For files that a program wrote: as ReadFields, but a key that is missing is an Error too, so that
// a damaged file never reads as one full of defaults. Optional fields may be missing.
template <class T>
void ReadAllFields(T& out, const ConfigTree& tree) {
  fields_internal::RequireKeys(WriteFields(out), tree.values, tree, "");
  ReadFields(out, tree);
}

// What differs between two configurations of one type, key by key: "train.batch (16, now 32)".
// `ignored` names keys, with all below them, that may differ.
template <class T>
std::vector<std::string> Differences(const T& before, const T& after,
                                     const std::vector<std::string>& ignored = {}) {
  std::vector<std::string> out;
  fields_internal::ListDifferences(WriteFields(before), WriteFields(after), ignored, "", out);
  return out;
}

// Every key with its default and its help, for documentation.
template <class T>
std::vector<FieldDescription> DescribeFields() {
  std::vector<FieldDescription> out;
  const T defaults{};
  fields_internal::Describe(defaults, "", out);
  return out;
}

}  // namespace sandglass
