// SPDX-License-Identifier: Apache-2.0
#include "allocator/backup/file_save.hpp"

#include <algorithm>
#include <utility>

#include "allocator/backup/copy_run.hpp"
#include "allocator/backup/pages.hpp"

namespace lowtide {
Status FileSave::plan() {
  // What was parked in a file and stayed resident is of no use, and its space may be what is wanting.
  for (SaveRequest& request : requests_) {
    if (dynamic_cast<FileBackup*>(request.backup.get()) != nullptr) request.backup.reset();
  }
  plan_pages();
  if (parts_.empty()) return {};
  if (auto status = buffers_.make(*parts_.front().backend); !status) return status;
  auto file = store_.make_file(file_size_);
  if (!file) return fail(file.error());
  file_ = std::move(*file);
  for (const Part& part : parts_) part.page->file = file_;
  return {};
}

void FileSave::plan_pages() {
  made_.reserve(requests_.size());
  for (const SaveRequest& request : requests_) {
    auto& pages = made_.emplace_back(std::make_unique<FileBackup>(store_))->pages();
    for (const AddressRange& content : request.content) {
      Bytes offset = content.start - request.start;
      const Bytes end = offset + content.size;
      while (offset < end) {
        const Bytes size = page_size(offset, end - offset);
        pages.push_back({offset, size, file_size_, nullptr, {}, false});
        file_size_ = pages.back().blocks_end();
        progress_.total += size;
        offset += size;
      }
    }
  }
  for (std::size_t i = 0; i < made_.size(); ++i) {
    for (FilePage& page : made_[i]->pages()) {
      parts_.push_back({&page, requests_[i].backend, {requests_[i].start + page.offset, page.size}});
    }
  }
}

FileSave::Parts FileSave::piece_from(std::size_t first) {
  std::size_t end = first;
  while (end < parts_.size() && parts_[end].backend == parts_[first].backend &&
         parts_[end].page->blocks_end() - parts_[first].page->at <= FileBuffers::size) {
    ++end;
  }
  return Parts(parts_).subspan(first, end - first);
}

Status FileSave::copy() {
  if (store_.verifies()) {
    if (auto status = take_digests(); !status) return status;
  }
  Parts before;
  unsigned char* before_memory = nullptr;
  for (std::size_t first = 0; first < parts_.size();) {
    const Parts piece = piece_from(first);
    if (auto status = buffers_.wait(); !status) return status;
    if (auto status = begin_copies(piece); !status) return status;
    if (auto status = write(before, before_memory); !status) return status;
    before = piece;
    before_memory = buffers_.busy();
    first += piece.size();
  }
  if (auto status = buffers_.wait(); !status) return status;
  if (auto status = write(before, before_memory); !status) return status;
  return flush_before({}, {});
}

Status FileSave::take_digests() {
  for (std::size_t first = 0; first < parts_.size() && !host_digests_;) {
    std::size_t end = first;
    while (end < parts_.size() && end - first < digests_at_once && parts_[end].backend == parts_[first].backend) ++end;
    if (auto status = ask_digests(Parts(parts_).subspan(first, end - first)); !status) return status;
    first = end;
  }
  return {};
}

Status FileSave::ask_digests(Parts parts) {
  std::vector<AddressRange> ranges;
  for (const Part& part : parts) ranges.push_back(part.range);
  std::vector<PageDigest> digests(parts.size());
  const auto status = parts.front().backend->digest(ranges, digests);
  if (!status && status.error().code() != Code::unsupported) return status;
  host_digests_ = !status;
  for (std::size_t i = 0; i < parts.size() && status; ++i) {
    parts[i].page->digest = digests[i];
    parts[i].page->digest_known = true;
  }
  return {};
}

Status FileSave::begin_copies(Parts piece) {
  unsigned char* memory = buffers_.idle();
  buffers_.begin_copies(*piece.front().backend);
  CopyRun copies(*piece.front().backend, CopyRun::Direction::out);
  for (const Part& part : piece) {
    const Bytes in_buffer = part.page->at - piece.front().page->at;
    if (begins_reservation(*part.backend, part.page->offset)) {
      if (auto status = copies.flush(); !status) return status;
    }
    if (auto status = copies.add(memory + in_buffer.value, part.range); !status) return status;
  }
  return copies.flush();
}

Status FileSave::write(Parts piece, unsigned char* memory) {
  if (piece.empty()) return {};
  const Bytes at = piece.front().page->at;
  const Bytes size = piece.back().page->blocks_end() - at;
  for (const Part& part : piece) {
    if (host_digests_ && !part.page->digest_known) {
      part.page->digest =
          digest_of(memory + (part.page->at - at).value, part.page->size.value, part.backend->digest_key());
      part.page->digest_known = true;
    }
    progress_.done += part.page->size;
  }
  if (auto status = file_->write(at, memory, size); !status) return status;
  if (auto status = flush_before(at, size); !status) return status;
  if (progress_sink_) progress_sink_(progress_);
  return {};
}

/// The disk works on what was written last while the next piece is brought to it.
Status FileSave::flush_before(Bytes at, Bytes size) {
  const Bytes flush_at = std::exchange(flushing_at_, at);
  const Bytes flush_size = std::exchange(flushing_, size);
  return flush_size.value > 0 ? file_->finish_write(flush_at, flush_size) : Status();
}

void FileSave::finish(const Status& result) noexcept {
  if (result) {
    for (const auto& backup : made_) backup->set_saved();
    for (std::size_t i = 0; i < made_.size(); ++i) requests_[i].backup = std::move(made_[i]);
    return;
  }
  const Backend* finished = nullptr;
  for (const Part& part : parts_) {
    if (part.backend == finished) continue;
    finished = part.backend;
    // Once more after an error, which may be that of what failed before: after a good answer nothing is in flight.
    if (!part.backend->finish_copies()) (void)part.backend->finish_copies();
  }
  (void)buffers_.wait();
}

}  // namespace lowtide
