// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/launch/launch_options.hpp"

namespace lowtide::tools {

// For containers whose image does not have Lowtide: this installation's files are brought in under /opt/lowtide, each
// by itself, since the folders they lie in may be those of the whole system. Both take the variables as for a program
// of this machine and say the paths of the container instead. CommandError if liblowtide.so is not beside the preload
// library.

/// Options of `docker run`, in one line for a POSIX shell. A path with a colon is refused, since -v cannot say it.
std::string as_docker_options(const Variables& variables);

/// YAML: the parts of a pod's spec.
std::string as_pod(const Variables& variables);

}  // namespace lowtide::tools
