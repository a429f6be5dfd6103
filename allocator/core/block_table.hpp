// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "allocator/core/admission.hpp"
#include "allocator/core/captures.hpp"
#include "allocator/core/observer.hpp"
#include "allocator/core/region.hpp"
#include "allocator/core/report.hpp"
#include "allocator/core/right_of_way.hpp"

namespace lowtide {

/// Where a block comes from, and what it is before its owner has written it; a tag that is being updated gets blocks
/// that belong to the update.
struct Birth {
  OriginId origin{};
  Freshness freshness = Freshness::valid;
};

struct BlockView {
  AddressRange range;
  DeviceId device{};
  ContextId context;
  bool resident = true;
  Freshness freshness = Freshness::valid;
  /// No other block has, or will have, a part of its physical memory; or that is plain and begins with this large one,
  /// so that a handle of its address stands for it.
  bool alone = true;
  bool plain = false;  ///< its memory is an allocation of the driver's
};

/// A region's numbers at one moment.
struct RegionInfo {
  Label label;
  DeviceId device{};
  std::uint64_t blocks = 0;
  Bytes resident;                          ///< requested bytes that can be used
  Bytes parked;                            ///< requested bytes that cannot, until they are resumed
  Bytes on_device;                         ///< requested bytes with physical memory: `resident`, but for a transition's
  Bytes backup;                            ///< host bytes of their backups
  Bytes stale;                             ///< requested bytes of blocks that are not valid, parked or resident
  Bytes residue;                           ///< what updates were found not to write, and a pause that discards keeps
  Freshness freshness = Freshness::valid;  ///< of its worst block
  Bytes slack;                             ///< device bytes held beyond those requested
  const char* shared_by = nullptr;         ///< the call that shared a block, if any
  bool stable_address = true;
};

/// All blocks, by address and by region. One lock, never held across a driver call: while one tag is paused for
/// seconds, the others allocate and free. Thread-safe.
class BlockTable {
 public:
  /// Both outlive it.
  BlockTable(Captures& captures, RightOfWay& right_of_way) : captures_(captures), right_of_way_(right_of_way) {}

  /// A new resident block of `size` bytes (not zero), aligned to 512. Code::device_memory if the device is full.
  Result<DeviceAddress> allocate(Backend& backend, const Label& label, ContextId context, Bytes size,
                                 const Birth& birth = {});

  enum class Freed { foreign, done };
  /// Frees the block that starts at `address`. As the driver's own free it waits for work in flight. During a stream
  /// capture, and while a transition holds the block, the free is recorded and carried out later. `foreign`: not ours.
  /// After an error the block is still there.
  Result<Freed> free(DeviceAddress address);
  /// Carries out the frees that waited and need not wait any more.
  void finish_frees() noexcept;

  /// Lock-free. True for every address inside an arena.
  bool is_managed(DeviceAddress address) const noexcept { return managed_.contains(address); }
  /// The live block that contains `address`.
  std::optional<BlockView> find(DeviceAddress address) const;
  /// The live block that begins at `address`.
  std::optional<BlockNote> block_at(DeviceAddress address) const;
  /// The live blocks of a context. May throw std::bad_alloc.
  std::vector<BlockNote> blocks_of(ContextId context) const;
  /// Gives the memory of an extent of a claim back that is parked, or about to be.
  Status park(Extent& extent);
  // The way out for a parked extent of a claim whose address cannot be had back.
  /// Sends it to a new reservation, where its memory will be.
  Status send_elsewhere(Extent& extent);
  /// Undoes that; it is bare.
  void call_home(Extent& extent) noexcept;
  /// Makes that the address of the extent and its blocks, which are put on `moves`; it has room for them.
  void settle_elsewhere(Extent& extent, std::vector<BlockMove>& moves) noexcept;

  /// Its extent cannot be paused any more; `how` is a string literal.
  void mark_shared(DeviceAddress address, const char* how);

  /// Drops all blocks of a context that is about to go. No transition runs (the caller keeps them out).
  void drop_context(ContextId context);
  /// `accessor` may, or may no longer, use the blocks of `owner`, existing and later ones. No transition runs.
  Status set_peer(DeviceId owner, DeviceId accessor, bool enabled);
  std::vector<DeviceId> peers_of(DeviceId owner) const;

  /// The extents that one transition works on. They are busy until it is destroyed; frees that came meanwhile are
  /// carried out then.
  class Claim {
   public:
    explicit Claim(BlockTable& table) : table_(&table) {}
    Claim(Claim&& other) noexcept : extents(std::move(other.extents)), table_(std::exchange(other.table_, nullptr)) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim();
    std::vector<Extent*> extents;

   private:
    BlockTable* table_;
  };
  /// All idle extents of `tag` (nothing: of all tags) that `wanted` accepts, by tag, device and address.
  Claim claim(const std::optional<TagName>& tag, bool (*wanted)(const Extent&));

  /// What of a busy extent a pause copies: the bytes of its valid blocks (`all`: of all blocks), in order, without what
  /// lies between them.
  std::vector<AddressRange> content_of(const Extent& extent, bool all) const;
  /// Takes what was freed inside parked extents of a claim out of them, with its backups. May throw std::bad_alloc;
  /// what is done by then stays.
  void leave_out_freed(Claim& claim);
  /// Lays the parked extents of a claim out for their resume: neighbours become common extents, since the driver's cost
  /// is per handle, and what was freed inside one is left out. No more are joined in a region whose joined extents hold
  /// more than `most_slack` for no block. May throw std::bad_alloc; what is done by then stays.
  void lay_out(Claim& claim, Bytes most_slack);

  // What is known of the bytes (block_table_content.cpp). Changed by transitions and updates, in their turn.
  /// What of a busy extent a pause holds back that discards it: what updates do not write of its valid blocks, or all
  /// where that is not known.
  std::vector<AddressRange> content_to_hold_back(const Extent& extent) const;
  /// The memory of a busy extent is about to count as parked. Its backup, if it has one, holds what `content_of` said,
  /// and, if `holds_back`, its held_back what content_to_hold_back said; a block without a copy is stale from now on if
  /// its tag's content is `persistent`. Returns the bytes with a copy.
  struct ParkedContent {
    bool all;  ///< `content_of` was asked for all blocks
    bool holds_back;
    bool covered;  ///< its tag has coverage
    Content content;
  };
  Bytes note_parked(Extent& extent, const ParkedContent& parked) noexcept;
  /// The blocks of a parked extent that have no content to come back; `all`: copies of stale blocks are content.
  std::vector<AddressRange> to_be_blanked(const Extent& extent, bool all) const;
  /// It is resident again; `blank`: those blocks were filled. Returns the bytes that had a copy.
  Bytes note_resumed(Extent& extent, bool all, bool blank) noexcept;
  std::vector<AddressRange> blank_in(const Extent& extent) const;
  /// The parts of `runs`, each in one blank block of a busy extent, that its held_back has, or has not.
  std::vector<AddressRange> held_of(const Extent& extent, std::span<const AddressRange> runs, bool held) const;
  /// An update did not write `runs`, each in one block of a busy extent.
  void add_residue(const Extent& extent, std::span<const AddressRange> runs);
  /// Its backup is about to go.
  void note_dropped(Extent& extent, Content content) noexcept;
  /// The updates of `tag`; nothing if there never was one.
  std::optional<TagUpdates> updates(const TagName& tag) const;
  // Each of these says whether there is anything to do: false, and the call was counted, if it has been done before.
  // Code::refused, with the numbers, where the tag is in no state for it.
  Result<bool> may_begin_update(const TagName& tag, std::uint64_t version);
  Result<bool> may_commit_update(const TagName& tag, std::uint64_t version);
  Result<bool> may_mark_valid(const TagName& tag, std::uint64_t version);
  /// `parked`: whether a block of `tag` is.
  Result<bool> may_drop_backup(const TagName& tag);
  /// What `bump` raises has to have a version, so that it needs no memory.
  void make_versions(std::span<const TagName> tags);
  void bump(std::span<const TagName> tags) noexcept;
  /// The version of each of `bumped` goes up.
  void begin_update(const TagName& tag, std::uint64_t version, std::span<const TagName> bumped);
  /// What updates do not write of its blank blocks is not known any more.
  void forget_learnt(const TagName& tag) noexcept;
  /// All its blocks are valid, of `version`; the version of each of `bumped` goes up.
  void set_valid(const TagName& tag, std::uint64_t version, std::span<const TagName> bumped);
  /// The update is over, undone or found wanting: what it may have written to is stale. False: there was none.
  bool end_update(const TagName& tag, bool refused);

  bool knows(const TagName& tag) const;
  /// Device memory behind the extents of a tag on a device, for each of `rows`.
  void measure(std::span<TagMemory> rows) const noexcept;
  /// Whether a block of `tag` (nothing: of any tag) is parked. Never allocates.
  bool has_parked(const std::optional<TagName>& tag) const noexcept;
  std::vector<RegionInfo> regions() const;
  /// What the live blocks of each origin asked for.
  struct Share {
    std::uint64_t blocks = 0;
    Bytes bytes;
  };
  std::map<OriginId, Share> shares() const;

  /// Whose copies are looked at: those of parked blocks, or also what a resume kept of a resident one, which does not
  /// follow what the program writes since.
  enum class Copies { parked, kept };
  /// Reads or writes bytes of a parked block's backup, off the lock. The range lies in one block.
  Status read_backup(AddressRange range, void* host, Copies copies = Copies::parked);
  Status write_backup(AddressRange range, const void* host);
  /// The backup's own bytes from `address` on, as far as they are the block's and lie in one piece.
  Result<std::span<const std::byte>> view_backup(DeviceAddress address, Copies copies = Copies::parked);

 private:
  using Blocks = std::map<DeviceAddress, Block>;
  enum class Drop { free, context };

  static BlockNote note_of(const Block& block);
  struct Placed {
    Extent* extent;
    DeviceAddress address;
    bool fresh;  ///< the extent is new: busy, and without physical memory
  };
  std::optional<Placed> place(Backend& backend, const Label& label, ContextId context, Bytes size, const Birth& birth);
  std::optional<Placed> place_block(Region& region, Bytes size);
  Status grow(Backend& backend, const Label& label, ContextId context, Bytes size);
  Status furnish(const Placed& placed);
  void abandon(const Placed& placed) noexcept;
  /// Of an extent that is empty and goes: what is reserved for it alone. Off the lock.
  void end_reservation(Extent& extent) noexcept;
  /// Then, under the lock.
  void remove(Extent& extent) noexcept;
  /// Whether the block at `address` is parked where memory may have become somebody else's, and has. Takes the lock.
  bool is_taken(DeviceAddress address) const;

  Region& region_of(Backend& backend, const Label& label, ContextId context);
  /// Frees a block of `table`, or puts it off while a transition has its extent; after an error it stays where it is.
  /// Under `lock`, which is given up across driver calls: the block stays on the books meanwhile, so that a transition
  /// that lays its extent out anew takes it along. The caller keeps captures out.
  Status carry_out(Blocks& table, Blocks::iterator block, Drop why, std::unique_lock<std::mutex>& lock);
  Status detach(Blocks& table, Blocks::iterator block, Drop why, std::unique_lock<std::mutex>& lock);
  void forget(Blocks& table, Blocks::iterator block, Drop why);
  /// Calls `visit(block)` for the blocks of `table`, which may be constant, that begin in `range`: live ones by
  /// address, then those whose free waits.
  template <class Table, class Visit>
  static void for_each_block(Table& table, AddressRange range, Visit visit);
  /// The places of the blocks in a range, freed ones whose free waits included: what an extent's slots have to hold.
  std::vector<AddressRange> places_in(AddressRange range, Bytes granule) const;
  void move_blocks(AddressRange range, Extent& extent) noexcept;
  /// Recounts what lies in an extent whose range changed; `slots` are its new ones.
  void recount(Extent& extent, std::unique_ptr<SlotMap> slots) noexcept;
  Extent& split(Extent& extent, DeviceAddress at);
  void leave_out_freed(std::vector<Extent*>& extents, std::size_t index, std::vector<std::unique_ptr<Backup>>& dropped);
  void join_neighbours(std::vector<Extent*>& extents, Bytes most_slack);
  bool join(std::span<Extent* const> neighbours);
  std::vector<DeviceId> accessors_of(DeviceId owner) const;
  /// Calls `visit(block)` for the live blocks of a tag.
  template <class Visit>
  void for_each_block_of(const TagName& tag, Visit visit);
  void bump_alone(std::span<const TagName> tags) noexcept;
  template <class Wanted>
  std::vector<AddressRange> ranges_in(const Extent& extent, Wanted wanted) const;
  struct ParkedBlock {
    Backup& backup;
    AddressRange extent;
    Block& block;
  };
  Result<ParkedBlock> claim_backup(AddressRange range, Claim& claim, Copies copies);

  Captures& captures_;
  RightOfWay& right_of_way_;
  ManagedRanges managed_;
  mutable std::mutex mutex_;
  std::list<Region> regions_;
  Blocks blocks_;
  Blocks deferred_;                                    ///< freed by the program, not yet carried out
  Blocks dropped_;                                     ///< died with their context; a later free of them succeeds
  std::map<DeviceId, std::map<DeviceId, int>> peers_;  ///< owner, accessor, how many contexts enabled it
  std::map<TagName, TagUpdates> updates_;
  std::uint64_t peers_version_ = 0;
  std::uint64_t next_order_ = 0;
};

template <class Table, class Visit>
void BlockTable::for_each_block(Table& table, AddressRange range, Visit visit) {
  for (auto* blocks : {&table.blocks_, &table.deferred_}) {
    const auto end = blocks->lower_bound(range.end());
    for (auto block = blocks->lower_bound(range.start); block != end; ++block) visit(block->second);
  }
}

}  // namespace lowtide
