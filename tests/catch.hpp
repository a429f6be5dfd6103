// SPDX-License-Identifier: Apache-2.0
#pragma once

// Debian's Catch2 2.13 and version 3 behind one name. Tests use only what both have.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
