// SPDX-License-Identifier: Apache-2.0
#include "allocator/control/protocol.hpp"

#include "tests/catch.hpp"

using namespace lowtide;
using namespace std::chrono_literals;

namespace {

std::string problem(std::string_view line) {
  const auto request = parse_request(line);
  if (request) return "(no error)";
  CHECK(request.error().code() == Code::invalid);
  return request.error().message();
}

}  // namespace

TEST_CASE("every request survives being written and read again") {
  PauseRequest full{TagName::parse("kv_cache"), false, 1500ms};
  for (const Request& request :
       {Request(HelloRequest{}), Request(StatusRequest{}), Request(PauseRequest{}), Request(full),
        Request(ResumeRequest{}), Request(ResumeRequest{TagName::parse("a")}), Request(TrimRequest{}),
        Request(PhaseRequest{*TagName::parse("to_train")}), Request(PhaseRequest{*TagName::parse("p"), true}),
        Request(WhyRequest{*TagName::parse("weights")}), Request(SetRequest{"device.wait", "20s"}),
        Request(SetRequest{"k", "two words"})}) {
    const auto line = format_request(request);
    const auto again = parse_request(line);
    REQUIRE(again);
    CHECK(again->index() == request.index());
    CHECK(format_request(*again) == line);
  }
  CHECK(format_request(full) == "pause tag=kv_cache hold=0 timeout=1.5");
  const auto pause = std::get<PauseRequest>(*parse_request("pause timeout=0.25"));
  CHECK(pause.hold);
  CHECK_FALSE(pause.tag);
  CHECK(pause.timeout == 250ms);
}

TEST_CASE("a request that is not one is answered with the word that is wrong") {
  CHECK(problem("") == "unknown request \"\"");
  CHECK(problem("Pause") == "unknown request \"Pause\"");
  CHECK(problem("status now") == "unknown word \"now\"");
  CHECK(problem("trim tag=a") == "unknown word \"tag=a\"");
  CHECK(problem("pause  tag=a") == "unknown word \"\"");
  CHECK(problem("pause tag=") == "not a tag name: \"\"");
  CHECK(problem("pause tag=a/b") == "not a tag name: \"a/b\"");
  CHECK(problem("pause hold=2") == "hold is 0 or 1, not \"2\"");
  CHECK(problem("pause speed=9") == "unknown word \"speed=9\"");
  CHECK(problem("resume hold=0") == "unknown word \"hold=0\"");
  CHECK(problem("phase") == "phase needs a name");
  CHECK(problem("phase a/b") == "not a phase's name: \"a/b\"");
  CHECK(problem("phase a now") == "unknown word \"now\"");
  CHECK(problem("why") == "why needs a tag");
  CHECK(problem("set") == "set needs a key and a value");
  CHECK(problem("set key") == "set needs a key and a value");
  for (const char* timeout : {"", "-1", "abc", "1e3", "1s", "nan", "inf", "9999999999", "-0", "+1", "0x10", "1,5"}) {
    CHECK(problem(std::string("pause timeout=") + timeout) ==
          std::string("timeout is a number of seconds, not \"") + timeout + '"');
  }
  CHECK(problem(std::string(4000, 'x')).size() < 200);
}

TEST_CASE("answers are the documented lines") {
  TransitionReport report;
  report.parked = 3_MiB;
  report.discarded = Bytes{5};
  report.kept = Bytes{7};
  report.blocks = 2;
  report.time = 250ms;
  report.devices = {{DeviceId{1}, Bytes{10}, Bytes{20}}};
  CHECK(report_answer(report) ==
        "{\"ok\":true,\"report\":{\"bytes_parked\":3145728,\"bytes_discarded\":5,\"bytes_kept\":7,\"blocks\":2,"
        "\"seconds\":0.25,\"devices\":[{\"device\":1,\"free_before\":10,\"free_after\":20}]}}\n");
  CHECK(error_answer(Error(Code::device_memory, "needs \"4\" GiB\n")) ==
        "{\"ok\":false,\"error\":{\"code\":-3,\"name\":\"DEVICE_MEMORY\",\"message\":\"needs \\\"4\\\" GiB\\n\"}}\n");
  CHECK(progress_line({Bytes{1}, Bytes{2}}) == "{\"progress\":{\"done\":1,\"total\":2,\"step\":\"copy\"}}\n");
  CHECK(trim_answer({3_MiB, Bytes{5}}) == "{\"ok\":true,\"trim\":{\"bytes_given_back\":3145728,\"bytes_held\":5}}\n");
  CHECK(hello_answer(7) == "{\"ok\":true,\"lowtide\":\"0.1.0\",\"protocol\":1,\"pid\":7}\n");
  CHECK(status_answer("{\"pid\":7}") == "{\"ok\":true,\"status\":{\"pid\":7}}\n");
}
