// SPDX-License-Identifier: Apache-2.0
// Places where a test gets between liblowtide.so and libc. This program defines malloc, calloc, realloc, aligned_alloc,
// mmap and madvise, which the libraries then use: operator new of liblowtide.so ends in malloc.
#pragma once

#include <atomic>
#include <cstdint>

namespace hazards {

/// While it lives, the `nth` allocation that liblowtide.so makes on the calling thread fails, once.
class FailingMemory {
 public:
  explicit FailingMemory(std::uint64_t nth);
  ~FailingMemory();
  FailingMemory(const FailingMemory&) = delete;
  FailingMemory& operator=(const FailingMemory&) = delete;
  /// The failure was met.
  bool failed() const;
};

/// The same for whichever thread of this process is called `name` (as pthread_setname_np does).
class FailingMemoryOfThread {
 public:
  FailingMemoryOfThread(const char* name, std::uint64_t nth);
  ~FailingMemoryOfThread();
  FailingMemoryOfThread(const FailingMemoryOfThread&) = delete;
  FailingMemoryOfThread& operator=(const FailingMemoryOfThread&) = delete;
  bool failed() const;
};

/// Stops the first thread that maps memory in [start, start + size): the driver puts memory behind an address, or takes
/// it away. It waits inside of that driver call until `go`.
class StopAtMapping {
 public:
  StopAtMapping(std::uint64_t start, std::uint64_t size);
  ~StopAtMapping();
  StopAtMapping(const StopAtMapping&) = delete;
  StopAtMapping& operator=(const StopAtMapping&) = delete;
  bool reached() const;
  void go();
};

/// Stops the first thread that gives advice about memory, which liblowtide.so does for the host memory of a new backup.
class StopAtNewBackup {
 public:
  StopAtNewBackup();
  ~StopAtNewBackup();
  StopAtNewBackup(const StopAtNewBackup&) = delete;
  StopAtNewBackup& operator=(const StopAtNewBackup&) = delete;
  bool reached() const;
  void go();
};

/// Stops the first thread that reaches the `nth` allocation of liblowtide.so from now on, of all threads.
class StopAtAllocation {
 public:
  explicit StopAtAllocation(std::uint64_t nth);
  ~StopAtAllocation();
  StopAtAllocation(const StopAtAllocation&) = delete;
  StopAtAllocation& operator=(const StopAtAllocation&) = delete;
  bool reached() const;
  void go();
};

}  // namespace hazards
