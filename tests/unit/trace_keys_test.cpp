// SPDX-License-Identifier: Apache-2.0
#include "allocator/policy/trace_keys.hpp"

#include <chrono>
#include <string>

#include "allocator/policy/configuration.hpp"
#include "tests/catch.hpp"

using namespace lowtide;

TEST_CASE("a trace is recorded where its key or, before that, its variable says") {
  auto configuration = built_in_configuration();
  CHECK(configuration.trace.file.empty());
  CHECK(apply(configuration, "trace.file", "/tmp/%h-%p.ltt"));
  CHECK(apply(configuration, "trace.size", "1GiB"));
  CHECK(apply(configuration, "trace.stacks", "python"));
  CHECK(configuration.trace.file == "/tmp/%h-%p.ltt");
  CHECK(configuration.trace.size == 1_GiB);
  CHECK(configuration.trace.stacks == TraceSettings::Stacks::python);
  for (const auto* path : {"a.ltt", "/tmp/%q.ltt", "/tmp/100%", ""})
    CHECK_FALSE(apply(configuration, "trace.file", path));
  for (const auto* size : {"1000KiB", "2TiB", "0", "x"}) CHECK_FALSE(apply(configuration, "trace.size", size));
  CHECK_FALSE(apply(configuration, "trace.stacks", "on"));
  ConfigurationSources sources;
  sources.settings = "trace.file:/a";
  sources.trace = "/b";
  CHECK(load_configuration(sources)->trace.file == "/b");
  sources.trace = "b";
  CHECK(std::string(load_configuration(sources).error().message()).find("LOWTIDE_TRACE: trace.file: \"b\"") == 0);
}

TEST_CASE("metrics are written where their key or, before that, their variable says") {
  auto configuration = built_in_configuration();
  CHECK(configuration.metrics.file.empty());
  CHECK(apply(configuration, "metrics.file", "/tmp/%p.prom"));
  CHECK(apply(configuration, "metrics.interval", "1s"));
  CHECK(configuration.metrics.file == "/tmp/%p.prom");
  CHECK(configuration.metrics.interval == std::chrono::seconds{1});
  CHECK_FALSE(apply(configuration, "metrics.file", "a.prom"));
  for (const auto* interval : {"0", "99ms", "x"}) CHECK_FALSE(apply(configuration, "metrics.interval", interval));
  CHECK(apply(configuration, "trace.interval", "0"));
  CHECK(configuration.trace.interval == std::chrono::seconds{0});
  ConfigurationSources sources;
  sources.settings = "metrics.file:/a";
  sources.metrics = "/b";
  CHECK(load_configuration(sources)->metrics.file == "/b");
  sources.metrics = "b";
  CHECK(std::string(load_configuration(sources).error().message()).find("LOWTIDE_METRICS: metrics.file: \"b\"") == 0);
}
