// SPDX-License-Identifier: Apache-2.0
// bench_copies: does what it is told on stdin, a command a line, and answers each with one line of JSON; run_copies.py
// drives it under the preload. Ends at the end of its input. Sizes are bytes. Every answer has "ms", the time of the
// command alone, and its start and end on the monotonic clock; {"error": WHY} says that a command failed.
//   hello                        device, PID, and whether the GPU is a simulated one
//   link BYTES | warm BYTES      the link's rates | host memory is touched once
//   alloc TAG COUNT BYTES        blocks under a scope of the tag; "-": under none
//   fill SEED | touch SEED N     every byte is written anew | one 2 MiB page in N is
//   check                        that all bytes are as they were written last
//   set KEY VALUE | pause TAG | resume TAG | tag TAG     the C API; pause and resume of "-": all tags
//   bare COUNT BYTES | bare_fill SEED | bare_pause | bare_resume     the same without Lowtide, discarding
//   watch | watched              the most host memory that is used in between
//   pause_beside TAG OTHER       pauses TAG while a thread allocates and frees blocks of 2 MiB of OTHER
//   pin_beside BYTES             pins so much host memory by bare calls while a thread does so by bare calls
//   fork                         system memory that a child takes that writes nothing
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "tests/bench/copies/beside.hpp"
#include "tests/bench/copies/kernels.hpp"
#include "tests/bench/copies/machine.hpp"
#include "tests/gpu/hazards/driver.hpp"

namespace {

using namespace copies;
using hazards::driver;
using hazards::must;
using hazards::require;

constexpr std::size_t kPage = std::size_t{2} << 20U;

/// The fields of an answer, in the making.
class Answer {
 public:
  Answer& add(const std::string& key, const std::string& text) {
    std::string escaped;
    for (const char c : text) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    return raw(key, '"' + escaped + '"');
  }
  template <class Number>
  requires std::is_arithmetic_v<Number> Answer& add(const std::string& key, Number number) {
    std::ostringstream out;
    out.precision(15);
    out << number;
    return raw(key, out.str());
  }
  [[nodiscard]] std::string line() const { return "{" + fields_ + "}\n"; }

 private:
  Answer& raw(const std::string& key, const std::string& value) {
    if (!fields_.empty()) fields_ += ", ";
    fields_ += '"' + key + "\": " + value;
    return *this;
  }
  std::string fields_;
};

struct Block {
  CUdeviceptr address;
  std::size_t bytes;
};

class Worker {
 public:
  Worker();
  /// Answers one line.
  Answer obey(const std::string& line);

 private:
  using Words = std::istringstream;
  void hello(Words& words, Answer& answer);
  void alloc(Words& words, Answer& answer);
  void fill(Words& words, Answer& answer);
  void touch(Words& words, Answer& answer);
  void check(Words& words, Answer& answer);
  void transition(Words& words, Answer& answer, bool pause);
  void tag(Words& words, Answer& answer);
  void watched(Words& words, Answer& answer);
  void beside(const std::string& tag, Answer& answer, const std::function<void()>& work);
  void pause_beside(Words& words, Answer& answer);
  void pin_beside(Words& words, Answer& answer);
  void add_driver_commands();
  std::vector<std::uint64_t> sums_now();
  void time(Answer& answer, const std::function<void()>& work);

  std::map<std::string, std::function<void(Words&, Answer&)>> commands_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<Block> blocks_;
  std::vector<std::uint64_t> sums_;
  std::unique_ptr<BareBlocks> bare_;
  std::unique_ptr<HostWatch> watch_;
};

template <class T>
T next(std::istringstream& words, const char* what) {
  T value{};
  require(static_cast<bool>(words >> value), std::string("the command needs ") + what);
  return value;
}

Worker::Worker() {
  must(driver().init(0), "cuInit");
  CUcontext context = nullptr;
  must(driver().primary_context(&context, 0), "cuDevicePrimaryCtxRetain");
  must(driver().set_context(context), "cuCtxSetCurrent");
  kernels_ = std::make_unique<Kernels>();
  const auto member = [this](void (Worker::*function)(Words&, Answer&)) {
    return [this, function](Words& words, Answer& answer) { (this->*function)(words, answer); };
  };
  commands_["hello"] = member(&Worker::hello);
  commands_["alloc"] = member(&Worker::alloc);
  commands_["fill"] = member(&Worker::fill);
  commands_["touch"] = member(&Worker::touch);
  commands_["check"] = member(&Worker::check);
  commands_["tag"] = member(&Worker::tag);
  commands_["watched"] = member(&Worker::watched);
  commands_["pause_beside"] = member(&Worker::pause_beside);
  commands_["pin_beside"] = member(&Worker::pin_beside);
  commands_["pause"] = [this](Words& words, Answer& answer) { transition(words, answer, true); };
  commands_["resume"] = [this](Words& words, Answer& answer) { transition(words, answer, false); };
  add_driver_commands();
}

void Worker::add_driver_commands() {
  commands_["link"] = [](Words& words, Answer& answer) {
    const Link link = measure_link(next<std::size_t>(words, "bytes"));
    answer.add("to_host", link.to_host).add("to_device", link.to_device);
  };
  commands_["warm"] = [](Words& words, Answer& answer) {
    answer.add("seconds", warm_host(next<std::size_t>(words, "bytes")));
  };
  commands_["set"] = [](Words& words, Answer&) {
    const auto key = next<std::string>(words, "a key");
    const auto value = next<std::string>(words, "a value");
    require(extra().set != nullptr, "there is no liblowtide.so");
    require(extra().set(key.c_str(), value.c_str()) == LOWTIDE_OK, driver().last_error());
  };
  commands_["bare"] = [this](Words& words, Answer&) {
    const auto count = next<std::size_t>(words, "a count");
    bare_ = std::make_unique<BareBlocks>(count, next<std::size_t>(words, "bytes"));
  };
  commands_["bare_fill"] = [this](Words& words, Answer&) {
    require(bare_ != nullptr, "there are no bare blocks");
    const auto seed = splitmix64(next<std::uint64_t>(words, "a seed"));
    for (const auto address : bare_->addresses()) kernels_->fill(address, bare_->bytes(), seed ^ address);
    must(driver().synchronize(), "cuCtxSynchronize");
  };
  commands_["bare_pause"] = [this](Words&, Answer& answer) {
    require(bare_ != nullptr, "there are no bare blocks");
    time(answer, [this] { bare_->pause(); });
  };
  commands_["bare_resume"] = [this](Words&, Answer& answer) {
    require(bare_ != nullptr, "there are no bare blocks");
    time(answer, [this] { bare_->resume(); });
  };
  commands_["watch"] = [this](Words&, Answer&) { watch_ = std::make_unique<HostWatch>(); };
  commands_["fork"] = [](Words&, Answer& answer) {
    const ForkCost cost = fork_cost();
    answer.add("added", cost.added).add("fork_ms", cost.milliseconds);
  };
}

void Worker::time(Answer& answer, const std::function<void()>& work) {
  const auto start = now_ns();
  work();
  const auto end = now_ns();
  answer.add("start_ns", start).add("end_ns", end).add("ms", static_cast<double>(end - start) * 1e-6);
}

void Worker::hello(Words& /*words*/, Answer& answer) {
  char name[128] = {};
  must(driver().device_name(name, sizeof name, 0), "cuDeviceGetName");
  std::size_t free = 0;
  std::size_t total = 0;
  must(driver().memory_info(&free, &total), "cuMemGetInfo");
  answer.add("device", std::string(name)).add("pid", getpid()).add("simulated", driver().simulated ? 1 : 0);
  answer.add("free", free).add("total", total).add("lowtide", driver().pause != nullptr ? 1 : 0);
}

void Worker::alloc(Words& words, Answer& answer) {
  const auto tag = next<std::string>(words, "a tag");
  const auto count = next<std::size_t>(words, "a count");
  const auto bytes = next<std::size_t>(words, "bytes");
  require(bytes % 8 == 0 && blocks_.size() + count <= Kernels::slots, "a number that cannot be");
  if (tag != "-") {
    require(driver().scope_begin != nullptr, "there is no liblowtide.so");
    require(driver().scope_begin(tag.c_str()) == LOWTIDE_OK, driver().last_error());
  }
  const auto first = blocks_.size();
  blocks_.resize(first + count);
  CUresult result = CUDA_SUCCESS;
  time(answer, [&] {
    for (auto i = first; i < blocks_.size() && result == CUDA_SUCCESS; ++i) {
      blocks_[i].bytes = bytes;
      result = driver().allocate(&blocks_[i].address, bytes);
    }
  });
  if (tag != "-") driver().scope_end();
  must(result, "cuMemAlloc");
}

std::vector<std::uint64_t> Worker::sums_now() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) kernels_->sum(blocks_[i].address, blocks_[i].bytes, i);
  std::vector<std::uint64_t> sums(blocks_.size());
  kernels_->read(sums.data(), sums.size());
  return sums;
}

void Worker::fill(Words& words, Answer& answer) {
  const auto seed = next<std::uint64_t>(words, "a seed");
  time(answer, [&] {
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      kernels_->fill(blocks_[i].address, blocks_[i].bytes, splitmix64(splitmix64(seed) + i));
    must(driver().synchronize(), "cuCtxSynchronize");
  });
  sums_ = sums_now();
}

void Worker::touch(Words& words, Answer& answer) {
  const auto seed = next<std::uint64_t>(words, "a seed");
  const auto one_in = next<std::size_t>(words, "one page in how many");
  std::size_t page = 0;
  std::size_t touched = 0;
  for (const auto& block : blocks_) {
    for (std::size_t at = 0; at < block.bytes; at += kPage, ++page) {
      if ((page + seed) % one_in != 0) continue;
      kernels_->fill(block.address + at, std::min(kPage, block.bytes - at), splitmix64(splitmix64(seed) + page));
      ++touched;
    }
  }
  must(driver().synchronize(), "cuCtxSynchronize");
  sums_ = sums_now();
  answer.add("pages", page).add("touched", touched);
}

void Worker::check(Words& /*words*/, Answer& answer) {
  const auto sums = sums_now();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) wrong += sums[i] != sums_.at(i) ? 1 : 0;
  require(wrong == 0, std::to_string(wrong) + " of " + std::to_string(sums.size()) + " blocks hold other bytes");
  answer.add("blocks", sums.size());
}

void Worker::transition(Words& words, Answer& answer, bool pause) {
  const auto tag = next<std::string>(words, "a tag");
  const auto function = pause ? driver().pause : driver().resume;
  require(function != nullptr, "there is no liblowtide.so");
  lowtide_report report{};
  report.struct_size = sizeof report;
  lowtide_result result = LOWTIDE_OK;
  time(answer, [&] { result = function(tag == "-" ? nullptr : tag.c_str(), &report); });
  require(result == LOWTIDE_OK, driver().last_error());
  require(report.blocks != 0, "no block changed");
  answer.add("bytes", report.bytes_parked + report.bytes_discarded).add("blocks", report.blocks);
  answer.add("report_seconds", report.seconds);
}

void Worker::tag(Words& words, Answer& answer) {
  lowtide_tag_info info{};
  info.struct_size = sizeof info;
  require(driver().tag_info(next<std::string>(words, "a tag").c_str(), -1, &info) == LOWTIDE_OK, driver().last_error());
  answer.add("blocks", info.blocks).add("resident", info.bytes_resident).add("parked", info.bytes_parked);
  answer.add("backup", info.bytes_backup).add("slack", info.bytes_slack);
}

void Worker::watched(Words& /*words*/, Answer& answer) {
  require(watch_ != nullptr, "nothing is watched");
  const auto seen = watch_->end();
  watch_.reset();
  answer.add("own", seen.own_peak - seen.own_before).add("machine", seen.available_before - seen.available_least);
}

void Worker::beside(const std::string& tag, Answer& answer, const std::function<void()>& work) {
  const auto usual = allocate_during(tag, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  const auto meanwhile = allocate_during(tag, work);
  answer.add("usual_median_ms", usual.median_ms).add("usual_max_ms", usual.max_ms).add("usual_count", usual.count);
  answer.add("median_ms", meanwhile.median_ms).add("max_ms", meanwhile.max_ms).add("count", meanwhile.count);
  answer.add("usual_free_max_ms", usual.free_max_ms).add("free_max_ms", meanwhile.free_max_ms);
}

void Worker::pause_beside(Words& words, Answer& answer) {
  const auto tag = next<std::string>(words, "a tag");
  std::istringstream argument(tag);
  beside(next<std::string>(words, "another tag"), answer, [&] { transition(argument, answer, true); });
}

void Worker::pin_beside(Words& words, Answer& answer) {
  const auto bytes = next<std::size_t>(words, "bytes");
  beside("", answer, [&] { time(answer, [&] { pin_bare(bytes); }); });
}

Answer Worker::obey(const std::string& line) {
  Words words(line);
  std::string command;
  words >> command;
  Answer answer;
  try {
    const auto found = commands_.find(command);
    require(found != commands_.end(), "there is no command " + command);
    found->second(words, answer);
  } catch (const hazards::Failed& failed) {
    answer = Answer().add("error", command + ": " + failed.what);
  } catch (const std::exception& failed) {
    answer = Answer().add("error", command + ": " + failed.what());
  }
  return answer;
}

}  // namespace

int main() {
  const auto say = [](const Answer& answer) {
    std::fputs(answer.line().c_str(), stdout);
    std::fflush(stdout);
  };
  try {
    Worker worker;
    for (std::string line; std::getline(std::cin, line);) say(worker.obey(line));
  } catch (const hazards::Failed& failed) {
    say(Answer().add("error", failed.what));
    return 2;
  }
  return 0;
}
