// SPDX-License-Identifier: Apache-2.0
// A process with a control socket, tags and no GPU. Started by the tests of the command:
//   lowtide_fake_process [refuse=CODE] [refuse-resume=CODE] [refuse-trim=CODE] [tags=A,B] [parked=A] [discard=A] [keep]
//                        [garbage] [progress=N] [never-rests] [transition=STEP,DONE,TOTAL] [phases=A,B] [key=DEVICE]
// It prints "ready", then one line per transition or phase it is asked for, and ends when its stdin does.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "allocator/base/json_writer.hpp"
#include "allocator/control/control_server.hpp"

namespace {

using namespace lowtide;

struct Plan {
  std::optional<Code> refuse_pause;
  std::optional<Code> refuse_resume;
  std::optional<Code> refuse_trim;
  std::vector<std::string> tags{"weights", "kv_cache"};
  std::string key = "GPU-fake";
  std::set<std::string> parked;
  std::set<std::string> discarded;  ///< a pause drops their bytes
  bool keep = false;                ///< every pause leaves all tags where they are
  bool garbage = false;
  bool never_rests = false;
  std::uint64_t progress = 0;
  std::vector<std::string> transition;             ///< what the status says of one, if not empty
  std::optional<std::vector<std::string>> phases;  ///< that it declares; nothing: of a version that does not say
};

class FakeProcess final : public Controlled {
 public:
  explicit FakeProcess(Plan plan) : plan_(std::move(plan)) {}

  std::string status_json() override {
    const std::lock_guard lock(mutex_);
    if (plan_.garbage) return "{\"pid\":\"nonsense\"}";
    JsonWriter json;
    json.begin_object().field("pid", identify_self()->pid).field("command", "fake \x1b[31m").field("version", "0.1.0");
    json.field("simulated", true)
        .field("default_tag", plan_.tags.empty() ? "" : "weights")
        .field("gate", held_ ? "closed" : "open");
    json.key("held_tags").begin_array().end_array().field("captures", 0);
    write_transition(json);
    json.key("devices").begin_array().begin_object().field("device", 0).field("name", "Fake").field("key", plan_.key);
    json.field("backend", "vmm");
    json.field("reason", "none").field("granularity", 2097152).field("free", 1_GiB).field("total", 2_GiB);
    json.end_object().end_array().key("tags").begin_array();
    for (const auto& tag : plan_.tags) write_tag(json, tag);
    json.end_array().key("host").begin_object().field("bytes_backup", 0).field("bytes_retained", 0).end_object();
    json.key("unmanaged_callers").begin_array().end_array();
    if (plan_.phases) write_policy(json);
    json.end_object();
    return json.take();
  }

  Result<TransitionReport> pause(std::optional<TagName> tag, bool hold, std::optional<std::chrono::milliseconds> drain,
                                 const ProgressSink& progress, const CalledOff& called_off) override {
    say("pause", tag, hold ? "hold=1" : "hold=0", drain ? std::to_string(drain->count()) : "-");
    for (std::uint64_t i = 0; i < plan_.progress; ++i) {
      progress({Bytes{i}, Bytes{plan_.progress}});
      ::usleep(100'000);
    }
    if (plan_.never_rests) {
      while (!called_off()) ::usleep(1000);
      say("called-off", tag, "-", "-");
      return fail(Code::refused, "the hold was called off");
    }
    if (plan_.refuse_pause) return fail(*plan_.refuse_pause, "not now: 3 GiB needed, 1 GiB free");
    const std::lock_guard lock(mutex_);
    auto report = move(tag, true);
    held_ = held_ || (hold && !plan_.parked.empty());
    return report;
  }

  Result<TransitionReport> resume(std::optional<TagName> tag, const ProgressSink&) override {
    say("resume", tag, "-", "-");
    if (plan_.refuse_resume) return fail(*plan_.refuse_resume, "not now: 3 GiB needed, 1 GiB free");
    const std::lock_guard lock(mutex_);
    held_ = false;
    return move(tag, false);
  }

  Status enter_phase(const TagName& name, PhasePart part, bool) override {
    say("phase", name, part == PhasePart::first_pauses ? "first" : "all", "-");
    return {};
  }
  std::string why_json(const TagName& tag) override {
    JsonWriter json;
    json.begin_object().field("tag", tag.view()).key("in_the_way").begin_array().end_array().end_object();
    return json.take();
  }
  Result<TrimReport> trim() override {
    std::puts("trim");
    std::fflush(stdout);
    if (plan_.refuse_trim) return fail(*plan_.refuse_trim, "a stream capture is under way");
    return TrimReport{3_MiB, 1_GiB};
  }

  Status set(std::string_view, std::string_view) override { return {}; }

 private:
  void write_transition(JsonWriter& json) const {
    const auto& words = plan_.transition;
    json.key("transition");
    if (words.size() != 3) {
      json.null();
      return;
    }
    json.begin_object().field("step", words[0]);
    json.field("done", std::stoull(words[1])).field("total", std::stoull(words[2])).end_object();
  }

  void write_policy(JsonWriter& json) const {
    json.key("policy").begin_object().field("mode", "enforce").key("role").null().key("phase").null();
    json.field("inferred_phase", "all resident").key("phases").begin_array();
    for (const auto& phase : *plan_.phases) json.value(phase);
    json.end_array().field("breaches", 0).field("waits", 0).field("refusals", 0).key("last_refusal").null();
    json.key("rules").begin_array().end_array().key("ledger").begin_array().end_array().end_object();
  }

  void write_tag(JsonWriter& json, const std::string& tag) const {
    const bool parked = plan_.parked.contains(tag);
    json.begin_object().field("tag", tag).field("device", 0).field("action", plan_.keep ? "keep" : "offload");
    json.field("state", parked ? "parked" : "resident").field("blocks", 1);
    json.field("bytes_resident", parked ? Bytes{} : 1_GiB).field("bytes_parked", parked ? 1_GiB : Bytes{});
    json.field("bytes_backup", parked ? 1_GiB : Bytes{})
        .field("bytes_slack", 3_MiB)
        .key("shared_by")
        .null()
        .end_object();
  }

  TransitionReport move(const std::optional<TagName>& only, bool park) {
    TransitionReport report;
    for (const auto& tag : plan_.tags) {
      if ((only && tag != only->view()) || plan_.parked.contains(tag) == park || plan_.keep) continue;
      ++report.blocks;
      (plan_.discarded.contains(tag) ? report.discarded : report.parked) += 1_GiB;
      if (park) plan_.parked.insert(tag);
      if (!park) plan_.parked.erase(tag);
    }
    report.devices = {{DeviceId{0}, 1_GiB, 2_GiB}};
    return report;
  }

  static void say(const char* verb, const std::optional<TagName>& tag, const char* hold, const std::string& drain) {
    std::printf("%s %s %s %s\n", verb, tag ? tag->c_str() : "-", hold, drain.c_str());
    std::fflush(stdout);
  }

  std::mutex mutex_;
  Plan plan_;
  bool held_ = false;
};

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> list;
  for (std::size_t start = 0; start < text.size();) {
    const auto end = std::min(text.find(',', start), text.size());
    list.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return list;
}

Plan plan_of(int argc, char** argv) {
  Plan plan;
  for (int i = 1; i < argc; ++i) {
    const std::string word(argv[i]);
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    const auto value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (name == "refuse") plan.refuse_pause = static_cast<Code>(std::atoi(value.c_str()));
    if (name == "refuse-resume") plan.refuse_resume = static_cast<Code>(std::atoi(value.c_str()));
    if (name == "refuse-trim") plan.refuse_trim = static_cast<Code>(std::atoi(value.c_str()));
    if (name == "tags") plan.tags = list_of(value);
    if (name == "key") plan.key = value;
    if (name == "transition") plan.transition = list_of(value);
    if (name == "phases") plan.phases = list_of(value);
    if (name == "keep") plan.keep = true;
    if (name == "garbage") plan.garbage = true;
    if (name == "never-rests") plan.never_rests = true;
    if (name == "progress") plan.progress = static_cast<std::uint64_t>(std::atoll(value.c_str()));
    if (name == "discard") {
      for (auto& tag : list_of(value)) plan.discarded.insert(tag);
    }
    if (name == "parked") {
      for (auto& tag : list_of(value)) plan.parked.insert(tag);
    }
  }
  return plan;
}

}  // namespace

int main(int argc, char** argv) {
  FakeProcess process(plan_of(argc, argv));
  const auto server = ControlServer::start(process, {});
  if (!server) {
    std::printf("%s\n", server.error().message());
    return 1;
  }
  std::printf("ready %s\n", (*server)->path().c_str());
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
