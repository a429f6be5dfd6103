// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/result.hpp"

#include <cstring>
#include <string>
#include <type_traits>

#include "tests/catch.hpp"

using namespace lowtide;

TEST_CASE("an error carries its code, number, call and message") {
  const Error error(Code::driver, 700, "cuMemMap", "cuMemMap answered CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  CHECK(error.code() == Code::driver);
  CHECK(error.native() == 700);
  CHECK(std::string(error.call()) == "cuMemMap");
  CHECK(std::string(error.message()) == "cuMemMap answered CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  const Error plain(Code::invalid, "no");
  CHECK(plain.native() == 0);
  CHECK(std::string(plain.call()).empty());
}

TEST_CASE("an error is made and copied without memory") { CHECK(std::is_trivially_copyable_v<Error>); }

TEST_CASE("a message too long is cut, not overrun") {
  const std::string text(1000, 'x');
  const Error given(Code::invalid, text);
  const Error formatted = Error::format(Code::invalid, "%s", text.c_str());
  for (const auto& error : {given, formatted}) {
    const auto length = std::strlen(error.message());
    CHECK(length > 200);
    CHECK(length < 1000);
    CHECK(text.compare(0, length, error.message()) == 0);
  }
}

TEST_CASE("every code has its word") {
  CHECK(std::string(to_text(Code::invalid)) == "INVALID");
  CHECK(std::string(to_text(Code::device_memory)) == "DEVICE_MEMORY");
  CHECK(std::string(to_text(Code::host_budget)) == "HOST_BUDGET");
  CHECK(std::string(to_text(Code::busy)) == "BUSY");
  for (int code = -10; code < 0; ++code) CHECK(std::string(to_text(static_cast<Code>(code))) != "UNKNOWN");
}
