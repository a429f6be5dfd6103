// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/protocol.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "allocator/base/json_writer.hpp"

namespace lowtide {
namespace {

using std::chrono::milliseconds;

Failure invalid(const char* what, std::string_view word) {
  const auto length = static_cast<int>(word.size() < 64 ? word.size() : 64);
  return fail(Error::format(Code::invalid, "%s \"%.*s\"", what, length, word.data()));
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (;;) {
    const auto end = line.find(' ');
    words.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return words;
    line.remove_prefix(end + 1);
  }
}

// The options of pause and resume; `for_pause` allows those of a pause.
Result<PauseRequest> parse_options(const std::vector<std::string_view>& words, bool for_pause) {
  PauseRequest request;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    const auto name = words[i].substr(0, equals);
    const auto value = equals == std::string_view::npos ? std::string_view{} : words[i].substr(equals + 1);
    if (name == "tag") {
      request.tag = TagName::parse(value);
      if (!request.tag) return invalid("not a tag name:", value);
    } else if (for_pause && name == "hold") {
      if (value != "0" && value != "1") return invalid("hold is 0 or 1, not", value);
      request.hold = value == "1";
    } else if (for_pause && name == "timeout") {
      request.timeout = parse_seconds(value);
      if (!request.timeout) return invalid("timeout is a number of seconds, not", value);
    } else {
      return invalid("unknown word", words[i]);
    }
  }
  return request;
}

Result<Request> parse_phase(const std::vector<std::string_view>& words) {
  if (words.size() < 2) return fail(Code::invalid, "phase needs a name");
  const auto name = TagName::parse(words[1]);
  if (!name) return invalid("not a phase's name:", words[1]);
  if (words.size() > 3 || (words.size() == 3 && words[2] != "first_pauses")) return invalid("unknown word", words[2]);
  return PhaseRequest{*name, words.size() == 3};
}

Result<Request> parse_why(const std::vector<std::string_view>& words) {
  const auto tag = words.size() == 2 ? TagName::parse(words[1]) : std::nullopt;
  if (!tag) return fail(Code::invalid, "why needs a tag");
  return WhyRequest{*tag};
}

Result<Request> parse_set(std::string_view line) {
  const auto key_at = line.find(' ');
  const auto value_at = key_at == std::string_view::npos ? key_at : line.find(' ', key_at + 1);
  if (value_at == std::string_view::npos) return fail(Code::invalid, "set needs a key and a value");
  return SetRequest{std::string(line.substr(key_at + 1, value_at - key_at - 1)),
                    std::string(line.substr(value_at + 1))};
}

std::string seconds_text(milliseconds time) {
  std::array<char, 32> digits{};
  const auto seconds = static_cast<double>(time.count()) / 1000.0;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), seconds, std::chars_format::fixed).ptr;
  return {digits.data(), end};
}

std::string tag_text(const std::optional<TagName>& tag) { return tag ? " tag=" + std::string(tag->view()) : ""; }

struct Formatter {
  std::string operator()(const HelloRequest&) const { return "hello"; }
  std::string operator()(const StatusRequest&) const { return "status"; }
  std::string operator()(const PauseRequest& request) const {
    return "pause" + tag_text(request.tag) + (request.hold ? "" : " hold=0") +
           (request.timeout ? " timeout=" + seconds_text(*request.timeout) : "");
  }
  std::string operator()(const ResumeRequest& request) const { return "resume" + tag_text(request.tag); }
  std::string operator()(const TrimRequest&) const { return "trim"; }
  std::string operator()(const PhaseRequest& request) const {
    return "phase " + std::string(request.name.view()) + (request.first_pauses ? " first_pauses" : "");
  }
  std::string operator()(const WhyRequest& request) const { return "why " + std::string(request.tag.view()); }
  std::string operator()(const SetRequest& request) const { return "set " + request.key + ' ' + request.value; }
};

std::string line_of(JsonWriter& json) { return json.take() + '\n'; }

}  // namespace

std::optional<milliseconds> parse_seconds(std::string_view text) noexcept {
  constexpr double most = 1e6;
  double seconds = 0;
  const auto end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  if (error != std::errc{} || rest != end || text.starts_with('-') || !(seconds >= 0 && seconds <= most))
    return std::nullopt;
  return milliseconds{std::llround(seconds * 1000.0)};
}

Result<Request> parse_request(std::string_view line) {
  const auto words = words_of(line);
  const auto verb = words[0];
  if (verb == "set") return parse_set(line);
  if (verb == "pause") {
    auto request = parse_options(words, true);
    if (!request) return fail(request.error());
    return *request;
  }
  if (verb == "resume") {
    const auto request = parse_options(words, false);
    if (!request) return fail(request.error());
    return ResumeRequest{request->tag};
  }
  if (verb == "phase") return parse_phase(words);
  if (verb == "why") return parse_why(words);
  if (verb != "hello" && verb != "status" && verb != "trim") return invalid("unknown request", verb);
  if (words.size() > 1) return invalid("unknown word", words[1]);
  if (verb == "hello") return HelloRequest{};
  if (verb == "trim") return TrimRequest{};
  return StatusRequest{};
}

std::string format_request(const Request& request) { return std::visit(Formatter{}, request); }

std::string hello_answer(pid_t pid) {
  JsonWriter json;
  json.begin_object().field("ok", true).field("lowtide", LOWTIDE_VERSION).field("protocol", protocol_version);
  json.field("pid", static_cast<std::int64_t>(pid)).end_object();
  return line_of(json);
}

std::string status_answer(std::string_view status) {
  JsonWriter json;
  json.begin_object().field("ok", true).key("status").raw(status).end_object();
  return line_of(json);
}

std::string report_answer(const TransitionReport& report) {
  JsonWriter json;
  json.begin_object().field("ok", true).key("report").begin_object();
  json.field("bytes_parked", report.parked).field("bytes_discarded", report.discarded);
  json.field("bytes_kept", report.kept).field("blocks", report.blocks).field("seconds", report.time.count());
  json.key("devices").begin_array();
  for (const auto& device : report.devices) {
    json.begin_object().field("device", index_of(device.device)).field("free_before", device.free_before);
    json.field("free_after", device.free_after).end_object();
  }
  json.end_array().end_object().end_object();
  return line_of(json);
}

std::string trim_answer(const TrimReport& report) {
  JsonWriter json;
  json.begin_object().field("ok", true).key("trim").begin_object();
  json.field("bytes_given_back", report.given_back).field("bytes_held", report.held).end_object().end_object();
  return line_of(json);
}

std::string why_answer(std::string_view why) {
  JsonWriter json;
  json.begin_object().field("ok", true).key("why").raw(why).end_object();
  return line_of(json);
}

std::string ok_answer() { return "{\"ok\":true}\n"; }

std::string error_answer(const Error& error) {
  JsonWriter json;
  json.begin_object().field("ok", false).key("error").begin_object();
  json.field("code", static_cast<int>(error.code())).field("name", to_text(error.code()));
  json.field("message", error.message()).end_object().end_object();
  return line_of(json);
}

std::string progress_line(const Progress& progress) {
  JsonWriter json;
  json.begin_object().key("progress").begin_object();
  json.field("done", progress.done).field("total", progress.total).field("step", "copy").end_object().end_object();
  return line_of(json);
}

}  // namespace lowtide
