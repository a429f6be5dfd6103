// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/launch/launch_options.hpp"

namespace lowtide::tools {

// What the launchers read. Each text ends with a line's end and stands for exactly these values: a value that a
// launcher cannot be told is a CommandError with ExitCode::usage.

/// `text` as one word of a POSIX shell.
std::string shell_word(const std::string& text);

/// `text` as a JSON string, which is a YAML one too. CommandError if it is not UTF-8.
std::string json_string(const std::string& text);

/// For eval in a POSIX shell: a line `export NAME=VALUE` for each.
std::string as_exports(const Variables& variables);

/// One object, NAME to VALUE.
std::string as_json(const Variables& variables);

/// A runtime_env of Ray. Ray replaces $NAME and ${NAME} in the values, and has no way to say a "$": refused.
std::string as_ray(const Variables& variables);

}  // namespace lowtide::tools
