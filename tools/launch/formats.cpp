// SPDX-License-Identifier: Apache-2.0
#include "tools/launch/formats.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/exit_codes.hpp"
#include "tools/view/terminal.hpp"

namespace lowtide::tools {
namespace {

constexpr std::size_t most_of_a_value = 200;

nlohmann::ordered_json object_of(const Variables& variables) {
  auto object = nlohmann::ordered_json::object();
  for (const auto& variable : variables) object[variable.name] = variable.value;
  return object;
}

// Characters beyond ASCII as they are: a YAML reader takes JSON's pairs of surrogates for two characters.
std::string text_of(const nlohmann::ordered_json& value, int indent) {
  try {
    return value.dump(indent, ' ', true);  // in ASCII: YAML takes control characters of Unicode for line breaks
  } catch (const nlohmann::ordered_json::type_error&) {
    const auto readable = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    throw CommandError(ExitCode::usage, fmt::format("{} is not UTF-8: only --shell and --docker can say it",
                                                    printable(readable, most_of_a_value)));
  }
}

}  // namespace

std::string shell_word(const std::string& text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string json_string(const std::string& text) { return text_of(text, -1); }

std::string as_exports(const Variables& variables) {
  std::string text;
  for (const auto& variable : variables)
    text += fmt::format("export {}={}\n", variable.name, shell_word(variable.value));
  return text;
}

std::string as_json(const Variables& variables) { return text_of(object_of(variables), 2) + "\n"; }

std::string as_ray(const Variables& variables) {
  for (const auto& variable : variables) {
    if (variable.value.find('$') == std::string::npos) continue;
    throw CommandError(ExitCode::usage, fmt::format("{}={}: Ray would take the \"$\" for the name of a variable",
                                                    variable.name, printable(variable.value, most_of_a_value)));
  }
  return text_of({{"env_vars", object_of(variables)}}, 2) + "\n";
}

}  // namespace lowtide::tools
