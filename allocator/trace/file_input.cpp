// SPDX-License-Identifier: Apache-2.0
#include "allocator/trace/file_input.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "allocator/base/utf8.hpp"
#include "allocator/trace/settings.hpp"

namespace lowtide::trace {
namespace {

constexpr std::uint64_t most_chunks = TraceSettings::largest.value / chunk_bytes;

/// The header as plain bytes: what lies in a file is copied, never looked at in place.
struct HeaderBytes {
  alignas(FileHeader) std::array<char, header_bytes> bytes{};

  const FileHeader& header() const noexcept { return *reinterpret_cast<const FileHeader*>(bytes.data()); }
};

template <std::size_t size>
std::string text_of(const Text<size>& text) {
  std::string read(text.begin(), std::find(text.begin(), text.end(), '\0'));
  make_utf8(read);
  return read;
}

std::uint64_t size_of(int fd) noexcept {
  struct stat about {};
  return ::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) ? static_cast<std::uint64_t>(about.st_size) : 0;
}

Status check_header(const std::string& path, const FileHeader& header, std::uint64_t size) {
  if (size < header_bytes || header.magic != file_magic)
    return fail(Error::format(Code::invalid,
                              "%s is not a trace: it has %llu bytes, and does not begin with the mark of one",
                              path.c_str(), static_cast<unsigned long long>(size)));
  if (header.byte_order != byte_order_mark)
    return fail(Error::format(Code::invalid, "%s was made on a machine of the other byte order", path.c_str()));
  if (header.version != file_version)
    return fail(Error::format(Code::invalid, "%s is a trace of version %u, and this is a reader of version %u",
                              path.c_str(), header.version, file_version));
  if (header.header_size != header_bytes || header.chunk_size != chunk_bytes || header.event_size != sizeof(Event))
    return fail(Error::format(Code::invalid,
                              "%s: the header at offset 0 is damaged: sizes %u, %u and %u are not %zu, "
                              "%zu and %zu",
                              path.c_str(), header.header_size, header.chunk_size, header.event_size, header_bytes,
                              chunk_bytes, sizeof(Event)));
  return {};
}

}  // namespace

Result<FileInput> FileInput::open(const std::string& path) {
  FileInput input;
  input.process_.path = path;
  // Without waiting for the other end of a pipe.
  input.fd_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!input.fd_)
    return fail(Error::format(Code::invalid, "%s cannot be opened: %s", path.c_str(), std::strerror(errno)));
  if (const auto header = input.read_header(size_of(input.fd_.get())); !header) return fail(header.error());
  return input;
}

Status FileInput::read_header(std::uint64_t size) {
  HeaderBytes bytes;
  if (size >= header_bytes) read(0, bytes.bytes.data(), header_bytes);
  const auto& header = bytes.header();
  if (const auto good = check_header(process_.path, header, size); !good) return good;
  process_.pid = header.pid;
  process_.start_ticks = header.start_ticks;
  process_.host = text_of(header.host);
  process_.command = text_of(header.command);
  process_.version = text_of(header.version_text);
  process_.build_id = text_of(header.build_id);
  process_.start = header.realtime;
  process_.overwritten = header.overwritten;
  process_.dropped = header.dropped;
  process_.dropped_entries = header.dropped_entries;
  process_.full_errno = static_cast<int>(header.full_errno);
  boot_id_ = text_of(header.boot_id);
  to_realtime_ = static_cast<std::uint64_t>(header.realtime) - header.monotonic;
  chunks_ = header.chunks;
  return {};
}

std::vector<ChunkPlace> FileInput::chunks(DamageList& damage) const {
  const auto size = size_of(fd_.get());
  check_length(size, damage);
  std::vector<ChunkPlace> found;
  const auto end = std::min<std::uint64_t>(chunks_, most_chunks);
  for (std::uint64_t number = 0; number < end; ++number) {
    ChunkPlace place;
    place.offset = header_bytes + number * chunk_bytes;
    std::array<std::uint64_t, 2> words{};  // as in ChunkHeader
    if (place.offset + sizeof words > size || read(place.offset, words.data(), sizeof words) != sizeof words) break;
    place.claim = words[0];
    place.events = words[1];
    const auto state = state_of(place.claim);
    if (state == ChunkState::unused) continue;
    if (state > ChunkState::dictionary || generation_of(place.claim) == 0 || place.events > events_per_chunk)
      damage.add(process_.path, place.offset, "chunk " + std::to_string(number) + " has a header that means nothing");
    else
      found.push_back(place);
  }
  return found;
}

void FileInput::check_length(std::uint64_t size, DamageList& damage) const {
  const auto wanted = header_bytes + std::uint64_t{chunks_} * chunk_bytes;
  if (chunks_ > most_chunks)
    damage.add(process_.path, 0, "the header says " + std::to_string(chunks_) + " chunks, more than a file can have");
  else if (size < wanted)
    damage.add(process_.path, size,
               "the file ends here, at " + std::to_string(size) + " of " + std::to_string(wanted) + " bytes");
}

std::size_t FileInput::read(std::uint64_t offset, void* to, std::size_t bytes) const noexcept {
  std::size_t done = 0;
  while (done < bytes) {
    const auto n = ::pread(fd_.get(), static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

bool FileInput::is_unchanged(const ChunkPlace& chunk) const noexcept {
  std::uint64_t claim = 0;
  return read(chunk.offset, &claim, sizeof claim) == sizeof claim && generation_of(claim) == generation_of(chunk.claim);
}

}  // namespace lowtide::trace
