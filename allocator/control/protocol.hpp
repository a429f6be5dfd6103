// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "allocator/base/result.hpp"
#include "allocator/core/report.hpp"
#include "allocator/core/types.hpp"

// The lines of docs/control-protocol.md. Requests are without their newline, answers with it.
namespace lowtide {

constexpr int protocol_version = 1;
constexpr std::size_t longest_request = 4096;  ///< with the newline

struct HelloRequest {};
struct StatusRequest {};
struct PauseRequest {
  std::optional<TagName> tag;
  bool hold = true;
  std::optional<std::chrono::milliseconds> timeout;
};
struct ResumeRequest {
  std::optional<TagName> tag;
};
struct TrimRequest {};
struct PhaseRequest {
  TagName name;
  bool first_pauses = false;
};
struct WhyRequest {
  TagName tag;
};
struct SetRequest {
  std::string key;
  std::string value;
};
using Request = std::variant<HelloRequest, StatusRequest, PauseRequest, ResumeRequest, TrimRequest, PhaseRequest,
                             WhyRequest, SetRequest>;

/// Decimal digits, with or without a decimal point: 0 to 1000000 seconds. Nothing for all else ("", 1e3, 0x10, nan).
std::optional<std::chrono::milliseconds> parse_seconds(std::string_view text) noexcept;

/// Code::invalid names the word that is wrong.
Result<Request> parse_request(std::string_view line);
std::string format_request(const Request& request);

std::string hello_answer(pid_t pid);
/// `status` is the object that Controlled::status_json gives.
std::string status_answer(std::string_view status);
std::string report_answer(const TransitionReport& report);
std::string trim_answer(const TrimReport& report);
/// `why` is the object that Controlled::why_json gives.
std::string why_answer(std::string_view why);
std::string ok_answer();
std::string error_answer(const Error& error);
std::string progress_line(const Progress& progress);

}  // namespace lowtide
