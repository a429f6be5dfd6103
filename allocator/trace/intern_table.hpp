// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lowtide::trace {

/// Keys and their ids. Finding takes no lock, and goes on while one thread at a time inserts. Nothing is taken out.
/// `buckets` is a power of two.
template <class Key, std::size_t buckets>
class InternTable {
 public:
  InternTable() = default;
  InternTable(const InternTable&) = delete;
  InternTable& operator=(const InternTable&) = delete;
  ~InternTable() {
    for (auto& bucket : heads_) {
      for (auto* node = bucket.load(); node != nullptr;) delete std::exchange(node, node->next);
    }
  }

  /// 0 if it is not there. `Sought` can be compared with a Key.
  template <class Sought>
  std::uint32_t find(std::uint64_t hash, const Sought& key) const noexcept {
    const auto* node = heads_[hash % buckets].load(std::memory_order_acquire);
    for (; node != nullptr; node = node->next) {
      if (node->hash == hash && node->key == key) return node->id;
    }
    return 0;
  }

  /// The key was not there. May throw std::bad_alloc; then nothing has changed.
  void insert(std::uint64_t hash, Key key, std::uint32_t id) {
    auto& head = heads_[hash % buckets];
    head.store(new Node{hash, std::move(key), id, head.load(std::memory_order_relaxed)}, std::memory_order_release);
  }

 private:
  struct Node {
    std::uint64_t hash;
    Key key;
    std::uint32_t id;
    Node* next;
  };
  std::array<std::atomic<Node*>, buckets> heads_{};
};

}  // namespace lowtide::trace
