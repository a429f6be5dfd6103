// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "allocator/policy/configuration.hpp"

namespace lowtide {

/// Whether somebody needs what the tag's blocks hold again after a pause.
bool is_persistent(const Configuration& configuration, const TagName& tag);

/// The built-in rules and those of the file, with the roles that tags have where a rule does not say one.
std::vector<Rule> rules_of(const Configuration& configuration);

/// The steps of a phase under the configuration, each tag with its role.
std::vector<PhaseStep> steps_of(const Configuration& configuration, const Phase& phase);

/// Plays the steps of a phase in thought, from the state that it is for: what it pauses is active, and what it resumes
/// is paused. One line for each step that breaks a rule; conditions on tags that no step names are left out.
std::vector<std::string> broken_by(const Configuration& configuration, const Phase& phase);

}  // namespace lowtide
