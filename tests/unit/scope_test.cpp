// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/scope.hpp"

#include "tests/catch.hpp"

using namespace lowtide;

TEST_CASE("the innermost scope counts, and the outer one after it") {
  ScopeStack scopes;
  CHECK(scopes.current() == nullptr);
  REQUIRE(scopes.begin(*TagName::parse("weights")));
  REQUIRE(scopes.begin(*TagName::parse("lora")));
  CHECK(scopes.current()->tag.view() == "lora");
  REQUIRE(scopes.end());
  CHECK(scopes.current()->tag.view() == "weights");
  REQUIRE(scopes.end());
  CHECK(scopes.current() == nullptr);
}

TEST_CASE("an end without a begin is an error and changes nothing") {
  ScopeStack scopes;
  CHECK(scopes.end().error().code() == Code::invalid);
  REQUIRE(scopes.begin(*TagName::parse("weights")));
  CHECK(scopes.current()->tag.view() == "weights");
}

TEST_CASE("scopes that others began may end in any order") {
  ScopeStack scopes;
  for (const char* tag : {"weights", "lora", "weights", "other"}) REQUIRE(scopes.begin(*TagName::parse(tag)));
  REQUIRE(scopes.end(*TagName::parse("lora")));
  CHECK(scopes.current()->tag.view() == "other");
  REQUIRE(scopes.end(*TagName::parse("other")));
  REQUIRE(scopes.end(*TagName::parse("weights")));
  CHECK(scopes.current()->tag.view() == "weights");
  CHECK(scopes.end(*TagName::parse("lora")).error().code() == Code::invalid);
  REQUIRE(scopes.end(*TagName::parse("weights")));
  CHECK(scopes.current() == nullptr);
}

TEST_CASE("scopes nested too deep are refused and the others stay") {
  ScopeStack scopes;
  for (std::size_t i = 0; i < ScopeStack::most; ++i) REQUIRE(scopes.begin(*TagName::parse("weights")));
  CHECK(scopes.begin(*TagName::parse("lora")).error().code() == Code::invalid);
  CHECK(scopes.current()->tag.view() == "weights");
  for (std::size_t i = 0; i < ScopeStack::most; ++i) REQUIRE(scopes.end());
  CHECK(scopes.current() == nullptr);
}

TEST_CASE("a tag's name is letters, digits, underscore and hyphen, 1 to 63 of them") {
  const std::string longest(TagName::most, 'x');
  for (const std::string& good : {std::string("a"), std::string("KV_cache-2"), longest}) {
    const auto tag = TagName::parse(good);
    REQUIRE(tag);
    CHECK(tag->view() == good);
  }
  for (const std::string& bad : {std::string(), longest + "x", std::string("a b"), std::string("a.b"),
                                 std::string("\xc3\xa4"), std::string("a\0b", 3)}) {
    CHECK_FALSE(TagName::parse(bad));
  }
}
