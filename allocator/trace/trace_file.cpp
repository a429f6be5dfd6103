// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/trace_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "allocator/core/uncancelled.hpp"
#include "allocator/trace/process_facts.hpp"

namespace lowtide::trace {
namespace {

constexpr std::uint32_t smallest_step = (4 << 20) / chunk_bytes;
constexpr std::uint32_t largest_step = (16 << 20) / chunk_bytes;
constexpr std::uint32_t fewest_chunks = 4;
constexpr std::uint32_t dictionary_share = 4;  ///< the dictionary has one in so many chunks

std::size_t end_of(std::uint64_t chunks) { return header_bytes + chunks * chunk_bytes; }

template <std::size_t size>
void copy_text(Text<size>& to, std::string_view from) noexcept {
  from.copy(to.data(), size - 1);
}

/// While it lives, the calling thread gets no signal. A file system that is interrupted while it looks for space begins
/// again, and under a profiler's timer would never end.
class Undisturbed {
 public:
  Undisturbed() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;
  ~Undisturbed() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
  Uncancelled uncancelled_;
};

}  // namespace

int FileGrowth::reserve(int fd, off_t offset, off_t bytes) noexcept {
  // Of a file beyond this limit the kernel tells by a signal that ends the host.
  rlimit limit{};
  const auto end = static_cast<rlim_t>(offset + bytes);
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < end) return EFBIG;
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(fd, offset, bytes);
  return error;
}

Result<std::unique_ptr<TraceFile>> TraceFile::make(UniqueFd fd, Bytes size, std::string_view version,
                                                   std::string_view build_id, FileGrowth& growth) {
  // The limit is at least the smallest size, and so some chunks.
  const auto chunk_limit = static_cast<std::uint32_t>((size.value - header_bytes) / chunk_bytes);
  const auto bytes = end_of(chunk_limit);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED)
    return fail(Error::format(Code::refused, "a trace of %s cannot be mapped: %s; a smaller trace.size may do",
                              to_text(size).c_str(), std::strerror(errno)));
  std::unique_ptr<TraceFile> file(new TraceFile(std::move(fd), static_cast<char*>(memory), bytes, growth));
  file->limit_ = chunk_limit;
  if (const int error = file->grow(chunk_limit); error != 0)
    return fail(Error::format(Code::refused, "the trace needs %s of disk at first, and gets none: %s",
                              to_text(Bytes{end_of(fewest_chunks)}).c_str(), std::strerror(error)));
  file->introduce(chunk_limit, version, build_id);
  return file;
}

TraceFile::TraceFile(UniqueFd fd, char* memory, std::size_t bytes, FileGrowth& growth) noexcept
    : fd_(std::move(fd)), identity_(fd_.get()), memory_(memory), bytes_(bytes), growth_(growth), limit_(0) {}

TraceFile::~TraceFile() {
  ::munmap(memory_, bytes_);
  // The number may be another file's by now, of the host's.
  if (!identity_.is_behind(fd_.get())) (void)fd_.release();
}

void TraceFile::introduce(std::uint32_t chunk_limit, std::string_view version, std::string_view build_id) noexcept {
  auto& about = *new (memory_) FileHeader{};
  about.chunk_limit = chunk_limit;
  about.chunks = grown_.load();
  copy_text(about.version_text, version);
  copy_text(about.build_id, build_id);
  fill_in_process(about);
  about.magic.store(file_magic, std::memory_order_release);
}

ChunkHeader& TraceFile::chunk(std::uint64_t number) noexcept {
  return *reinterpret_cast<ChunkHeader*>(memory_ + end_of(number));
}

bool TraceFile::has(std::uint64_t number) noexcept {
  if (number < grown_.load(std::memory_order_acquire)) return true;
  const Undisturbed undisturbed;
  const std::lock_guard lock(mutex_);
  while (number >= grown_.load(std::memory_order_relaxed)) {
    const auto limit = limit_.load(std::memory_order_relaxed);
    if (number >= limit) return false;  // another thread has met the end meanwhile
    const int error = grow(limit);
    if (error == 0) continue;
    header().full_errno = static_cast<std::uint32_t>(error);
    limit_.store(grown_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    return false;
  }
  return true;
}

int TraceFile::grow(std::uint32_t limit) noexcept {
  // The host may have closed the descriptor, and opened a file of its own under that number.
  if (!identity_.is_behind(fd_.get())) return EBADF;
  const auto grown = grown_.load(std::memory_order_relaxed);
  const auto fewest = grown == 0 ? std::min(fewest_chunks, limit) : 1;
  const auto start = grown == 0 ? 0 : end_of(grown);
  auto step = std::min(std::clamp(grown, smallest_step, largest_step), limit - grown);
  for (;;) {
    const auto end = end_of(grown + step);
    const int error = growth_.reserve(fd_.get(), static_cast<off_t>(start), static_cast<off_t>(end - start));
    if (error == 0) break;
    if (step <= fewest) return error;
    step = std::max(step / 2, fewest);
  }
  // First in the file: as soon as others see the new chunks they may write there.
  header().chunks.store(grown + step, std::memory_order_release);
  grown_.store(grown + step, std::memory_order_release);
  return 0;
}

std::optional<Chunk> TraceFile::claim() noexcept {
  auto& about = header();
  // Once around, and a little more for what others claim meanwhile.
  const auto looks = std::uint64_t{2} * limit_.load(std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < looks; ++i) {
    const auto turn = about.next_chunk.fetch_add(1, std::memory_order_relaxed);
    const auto number = turn % limit_.load(std::memory_order_relaxed);
    if (!has(number)) continue;
    auto& candidate = chunk(number);
    auto claim = candidate.claim.load(std::memory_order_acquire);
    const auto state = state_of(claim);
    if (state != ChunkState::unused && state != ChunkState::closed) continue;
    const auto lost = state == ChunkState::closed ? candidate.events.load(std::memory_order_relaxed) : 0;
    const auto generation = generation_of(claim) + 1;
    // Counted before they are lost: a process that is killed in between has said too many, and never too few.
    about.overwritten.fetch_add(lost, std::memory_order_relaxed);
    // What is stored there from now on stays behind this.
    if (candidate.claim.compare_exchange_strong(claim, claim_word(generation, ChunkState::open)))
      return Chunk{&candidate, generation};
    about.overwritten.fetch_sub(lost, std::memory_order_relaxed);
  }
  return std::nullopt;
}

void TraceFile::close(const Chunk& chunk, std::uint64_t events) noexcept {
  chunk.header->events.store(events, std::memory_order_relaxed);
  chunk.header->claim.store(claim_word(chunk.generation, ChunkState::closed), std::memory_order_release);
}

std::optional<Chunk> TraceFile::claim_for_dictionary() noexcept {
  const auto share = std::max<std::uint32_t>(1, limit_.load(std::memory_order_relaxed) / dictionary_share);
  if (dictionary_chunks_ >= share) return std::nullopt;
  const auto chunk = claim();
  if (!chunk) return std::nullopt;
  ++dictionary_chunks_;
  std::memset(chunk->content(), 0, chunk_bytes - sizeof(ChunkHeader));
  chunk->header->claim.store(claim_word(chunk->generation, ChunkState::dictionary), std::memory_order_release);
  return chunk;
}

}  // namespace lowtide::trace
