// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/file_backup.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <limits>

#include "allocator/backup/copy_run.hpp"
#include "allocator/backup/file_store.hpp"
#include "allocator/backup/pages.hpp"

namespace lowtide {
namespace {

struct Freed {
  void operator()(unsigned char* memory) const noexcept { std::free(memory); }
};
using BlockMemory = std::unique_ptr<unsigned char[], Freed>;

/// Of whole blocks; null if there is none.
BlockMemory block_memory(Bytes size) {
  return BlockMemory(static_cast<unsigned char*>(std::aligned_alloc(BackupFile::block.value, size.value)));
}

Failure no_block_memory() { return fail(Code::host_budget, "the host has no memory to read a backup's file"); }

/// The blocks of a page between file and caller.
class Bounce {
 public:
  /// Has the blocks that hold `size` bytes from `skipped` on.
  Bounce(const FilePage& page, Bytes skipped, Bytes size)
      : page_(page),
        content_size_(size),
        first_{skipped.value / BackupFile::block.value * BackupFile::block.value},
        size_(round_up(skipped + size, BackupFile::block) - first_),
        in_block_(skipped - first_),
        memory_(block_memory(size_)) {}

  const FilePage& page() const noexcept { return page_; }
  const unsigned char* content() const noexcept { return memory_.get() + in_block_.value; }
  Bytes content_size() const noexcept { return content_size_; }
  Status read() {
    if (!memory_) return no_block_memory();
    return page_.file->read(page_.at + first_, memory_.get(), size_);
  }
  /// Writes what was read with `content` in its place; `spare` has room for a page.
  Status write(const unsigned char* content, unsigned char* spare) const {
    std::memcpy(spare, memory_.get(), size_.value);
    std::memcpy(spare + in_block_.value, content, content_size_.value);
    return write(spare);
  }
  /// Writes what was read. True also where it cannot, and the file has it all the same.
  bool put_back(unsigned char* spare) const {
    return write(memory_.get()) ||
           (page_.file->read(page_.at + first_, spare, size_) && std::memcmp(spare, memory_.get(), size_.value) == 0);
  }

 private:
  Status write(const unsigned char* blocks) const {
    if (auto status = page_.file->write(page_.at + first_, blocks, size_); !status) return status;
    return page_.file->finish_write(page_.at + first_, size_);
  }

  const FilePage& page_;
  const Bytes content_size_;
  const Bytes first_;  ///< in the page
  const Bytes size_;
  const Bytes in_block_;
  const BlockMemory memory_;
};

/// Undoes the write of the first `count` parts, and answers with its error; with Code::driver if that fails too, since
/// others say that nothing changed.
Failure put_back(const std::deque<Bounce>& parts, std::size_t count, unsigned char* spare, const Error& error) {
  Bytes lost;
  for (std::size_t i = 0; i < count; ++i) {
    if (!parts[i].put_back(spare)) lost += parts[i].content_size();
  }
  // A file that is gone as a whole has said so.
  if (lost == Bytes{} || error.code() == Code::corrupt) return fail(error);
  const auto more =
      Error::format(Code::driver, "%s could not be put back, and hold anything until they are written: %s",
                    to_text(lost).c_str(), error.message());
  return fail(Error(Code::driver, error.native(), error.call(), more.message()));
}

}  // namespace

FileBackup::~FileBackup() {
  if (!saved_) return;
  store_.count_parked(size(), false);
  for (std::size_t first = 0; first < pages_.size();) {
    const std::size_t count = run_length(first, {std::numeric_limits<std::uint64_t>::max()});
    pages_[first].file->drop(pages_[first].at, pages_[first + count - 1].blocks_end() - pages_[first].at);
    first += count;
  }
  pages_.clear();
  store_.release_if_none_is_kept();
}

void FileBackup::set_saved() noexcept {
  saved_ = true;
  store_.count_parked(size(), true);
  for (const FilePage& page : pages_) page.file->use(page.blocks_end() - page.at);
}

Bytes FileBackup::size() const noexcept { return size_of(pages_); }

std::size_t FileBackup::run_length(std::size_t first, Bytes most) const noexcept {
  std::size_t end = first + 1;
  for (; end < pages_.size(); ++end) {
    const FilePage& page = pages_[end];
    if (page.file != pages_[first].file || page.at != pages_[end - 1].blocks_end()) break;
    if (page.blocks_end() - pages_[first].at > most) break;
  }
  return end - first;
}

Status FileBackup::read(Bytes offset, void* host, Bytes size) const {
  auto* to = static_cast<unsigned char*>(host);
  return walk_pages(pages_, offset, size, [&to](const FilePage& page, Bytes from, Bytes count) -> Status {
    Bounce bounce(page, from, count);
    if (auto status = bounce.read(); !status) return status;
    std::memcpy(to, bounce.content(), count.value);
    to += count.value;
    return {};
  });
}

Status FileBackup::write(Bytes offset, const void* host, Bytes size) {
  const auto* from = static_cast<const unsigned char*>(host);
  HostReservation reservation;
  if (size > digest_page) {
    auto reserved = store_.budget().reserve(size);
    if (!reserved) return fail(reserved.error());
    reservation = std::move(*reserved);
  }
  const BlockMemory spare = block_memory(digest_page);
  if (!spare) return no_block_memory();
  // All that is there is read before the first byte is written, so that an error can be undone.
  std::deque<Bounce> parts;
  auto status = walk_pages(pages_, offset, size, [&](const FilePage& page, Bytes to, Bytes count) {
    return parts.emplace_back(page, to, count).read();
  });
  if (!status) return status;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (status = parts[i].write(from, spare.get()); !status) return put_back(parts, i + 1, spare.get(), status.error());
    from += parts[i].content_size().value;
  }
  // Not before: where bytes could not be put back, the old digest finds them.
  for (const Bounce& part : parts) pages_[static_cast<std::size_t>(&part.page() - pages_.data())].digest_known = false;
  return {};
}

Status FileBackup::begin_load(Backend& backend, DeviceAddress start) {
  FileBuffers::Use buffers(store_.buffers());
  if (auto status = buffers.make(backend); !status) return status;
  for (std::size_t first = 0; first < pages_.size();) {
    const auto run = std::span(pages_).subspan(first, run_length(first, FileBuffers::size));
    const Bytes at = run.front().at;
    unsigned char* memory = buffers.idle();
    if (auto status = run.front().file->read(at, memory, run.back().blocks_end() - at); !status) return status;
    // The copies before it went on during the read.
    if (auto status = buffers.wait(); !status) return status;
    buffers.begin_copies(backend);
    CopyRun copies(backend, CopyRun::Direction::in);
    for (const FilePage& page : run) {
      if (auto status = copies.add(memory + (page.at - at).value, {start + page.offset, page.size}); !status)
        return status;
    }
    if (auto status = copies.flush(); !status) return status;
    first += run.size();
  }
  return {};
}

Status FileBackup::check_loaded(Backend& backend, DeviceAddress start) const {
  if (!store_.verifies()) return {};
  std::vector<const FilePage*> known;
  for (const FilePage& page : pages_) {
    if (page.digest_known) known.push_back(&page);
  }
  // Where the device cannot say, the file is asked once more.
  return check_loaded_pages<FilePage>(backend, start, known, " on disk",
                                      [&](const FilePage& page) { return digest_in_file(page, backend.digest_key()); });
}

Result<PageDigest> FileBackup::digest_in_file(const FilePage& page, const DigestKey& key) const {
  Bounce bounce(page, {}, page.size);
  if (auto status = bounce.read(); !status) return fail(status.error());
  return digest_of(bounce.content(), page.size.value, key);
}

bool FileBackup::join(std::span<const Neighbour> others) {
  std::size_t count = pages_.size();
  for (const Neighbour& other : others) {
    const auto* file = dynamic_cast<const FileBackup*>(other.backup);
    if (file == nullptr) return false;
    count += file->pages_.size();
  }
  pages_.reserve(count);
  for (const Neighbour& other : others) {
    auto& next = static_cast<FileBackup&>(*other.backup);
    for (FilePage& page : next.pages_) {
      page.offset += other.offset;
      pages_.push_back(std::move(page));
    }
    next.pages_.clear();
  }
  return true;
}

std::unique_ptr<Backup> FileBackup::split(Bytes offset) {
  auto rest = std::make_unique<FileBackup>(store_);
  const auto first =
      std::find_if(pages_.begin(), pages_.end(), [&](const FilePage& page) { return page.offset >= offset; });
  rest->pages_.reserve(static_cast<std::size_t>(pages_.end() - first));
  std::move(first, pages_.end(), std::back_inserter(rest->pages_));
  for (FilePage& page : rest->pages_) page.offset -= offset;
  pages_.erase(first, pages_.end());
  rest->saved_ = saved_;
  return rest;
}

}  // namespace lowtide
