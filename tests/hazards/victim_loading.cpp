// SPDX-License-Identifier: Apache-2.0
// Programs that load libraries, are configured badly, or are not to be touched.
#include <dlfcn.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/hazards/child.hpp"
#include "tests/hazards/control.hpp"
#include "tests/hazards/program.hpp"
#include "tests/hazards/victim.hpp"

namespace hazards {
namespace {

/// The files behind the mappings of this process whose name is `name`, by device and inode.
std::set<std::string> mapped_files(const std::string& name) {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range;
    std::string rights;
    std::string offset;
    std::string device;
    std::string inode;
    std::string path;
    words >> range >> rights >> offset >> device >> inode >> path;
    if (path.substr(path.rfind('/') + 1) == name) files.insert(device + " " + inode + " " + path);
  }
  return files;
}

int one_copy(const Arguments&) {
  use_device();
  const Block block("weights", 2 * mib);
  must(pause("weights").blocks == 1, "the C API speaks of what the doors allocated");
  must(dlopen("liblowtide.so", RTLD_NOW) != nullptr, "somebody opens it once more");
  must(resume("weights").blocks == 1, "and it is still the same state");
  say(std::to_string(mapped_files("liblowtide.so").size()));
  return 0;
}

/// Opens the library with the flags, or within a scope of the tag, and lets it allocate, free, and allocate for good.
int plugin(const Arguments& arguments) {
  use_device();
  const int flags = RTLD_NOW | (arguments.at(1) == "deepbind" ? RTLD_DEEPBIND : 0);
  void* library = dlopen((own_folder() + "/" + arguments.at(0)).c_str(), flags);
  must(library != nullptr, dlerror());
  const auto allocate = reinterpret_cast<unsigned long long (*)()>(dlsym(library, "plugin_allocate"));
  const auto release = reinterpret_cast<int (*)(unsigned long long)>(dlsym(library, "plugin_free"));
  const auto before = used_bytes();
  const Scope scope(arguments.at(1) == "scoped" ? "weights" : nullptr);
  const auto address = allocate();
  must(address != 0, "the plugin allocates");
  must(cuMemsetD8(address, 0x66, 4 * mib));
  const auto managed = blocks_of("weights");
  if (managed > 0) {
    must(pause(nullptr).blocks == 1, "its block is parked");
    must(used_bytes() == before, "its memory is free");
    must(resume(nullptr).blocks == 1, "its block comes back");
  }
  std::vector<std::uint8_t> bytes(4 * mib);
  must(cuMemcpyDtoH(bytes.data(), address, bytes.size()));
  must(bytes == std::vector<std::uint8_t>(4 * mib, 0x66), "its bytes are right");
  must(release(address) == CUDA_SUCCESS, "the plugin frees");
  must(used_bytes() == before, "everything is free");
  say(std::to_string(managed));
  return 0;
}

int second_preload(const Arguments&) {
  use_device();
  {
    const Block block(nullptr, 2 * mib);  // under the default tag
    must(pause("weights").blocks == 1, "the block is managed");
    must(resume("weights").blocks == 1, "resume");
    must(block.intact(), "intact");
  }
  must(blocks_of("weights") == 0, "and freed");
  const auto calls = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "second_preload_calls"));
  must(calls != nullptr, "the second preload is there");
  say(std::to_string(calls()));
  return 0;
}

/// What an untouched process does; prints how often Lowtide meddled.
int untouched(const Arguments&) {
  const auto init = cuInit(0);
  if (init != CUDA_SUCCESS) {
    say("cuInit answers " + std::to_string(init));
    return 0;
  }
  use_device();
  Block block("weights", 2 * mib);
  must(block.intact(), "the driver serves it");
  lowtide_report report{sizeof report};
  must(lowtide_pause(nullptr, &report));
  must(report.blocks == 0, "there is nothing to pause");
  must(lowtide_resume(nullptr, &report));
  must(::access(socket_of(::getpid()).c_str(), F_OK) != 0, "there is no socket");
  must(live().blocks == 1 && live().mappings == 0, "the block is the driver's own");
  must(block.free());
  say("untouched");
  return 0;
}

int refused_ipc(const Arguments&) {
  use_device();
  const Block managed("weights", 2 * mib);
  const Block plain(nullptr, 2 * mib);
  CUipcMemHandle handle{};
  int refused = 0;
  for (int i = 0; i < 3; ++i) refused += cuIpcGetMemHandle(&handle, managed.address()) == CUDA_ERROR_INVALID_VALUE;
  must(cuIpcGetMemHandle(&handle, plain.address()));
  must(pause("weights").blocks == 1, "it was not shared");
  say("refused " + std::to_string(refused) + " of 3");
  return 0;
}

}  // namespace

std::vector<Role> loading_roles() {
  return {{"one-copy", one_copy},
          {"plugin", plugin},
          {"second-preload", second_preload},
          {"untouched", untouched},
          {"ipc", refused_ipc}};
}

}  // namespace hazards
