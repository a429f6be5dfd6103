// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "allocator/policy/configuration.hpp"
#include "tests/catch.hpp"

namespace lowtide {

/// A folder that goes with its object, with at most one configuration file in it.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/lowtide-test-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(std::string_view text) const {
    std::ofstream(path_ + "/lowtide.toml", std::ios::binary) << text;
    return path_ + "/lowtide.toml";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Result<Configuration> from_path(const std::string& path, std::string settings = "") {
  return load_configuration({path, std::move(settings), "", ""});
}

/// The message without the folder, which differs from run to run.
inline std::string file_error(std::string_view text) {
  const Folder folder;
  const auto result = from_path(folder.file(text));
  if (result) return "(no error)";
  CHECK(result.error().code() == Code::config);
  std::string message = result.error().message();
  if (const auto at = message.find(folder.path() + '/'); at != std::string::npos)
    message.erase(at, folder.path().size() + 1);
  return message;
}

}  // namespace lowtide
