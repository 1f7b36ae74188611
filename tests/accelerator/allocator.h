// The caching allocator of the stand-in device, with the rounding of torch's own: blocks of 512 bytes, cut from segments
// and kept for the stream that they were made for. A large block may be up to 1 MiB larger than what was asked for.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "streams.h"

namespace standin {

using c10::CachingDeviceAllocator::DeviceStats;

int current_device();
int64_t current_stream(int device);

constexpr size_t kRound = 512, kSmall = 1 << 20, kSmallSegment = 2 << 20, kLargeSegment = 20 << 20;

struct Block {
  int device;
  int64_t stream;
  size_t size, asked = 0;
  char* data;
  Block *before = nullptr, *after = nullptr;
  bool small, taken = false;
  // Other streams that use it.
  std::set<int64_t> users{};
};

struct Smaller {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->data < b->data;
  }
};

// Bytes of one kind: now, and most since the last reset.
inline void count(c10::CachingAllocator::StatArray& stat, int64_t change) {
  change < 0 ? stat[0].decrease(-change) : stat[0].increase(change);
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    int device = current_device();
    c10::Device place(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) {
      return {nullptr, nullptr, &Allocator::release, place};
    }
    std::lock_guard lock(mutex_);
    Block* block = find(device, current_stream(device), bytes);
    block->taken = true;
    block->asked = bytes;
    taken_[block->data] = block;
    DeviceStats& stats = stats_[device];
    count(stats.allocation, 1);
    count(stats.allocated_bytes, block->size);
    count(stats.active_bytes, block->size);
    count(stats.requested_bytes, bytes);
    highest_[device] = std::max(highest_[device], stats.allocated_bytes[0].current);
    return {block->data, block->data, &Allocator::release, place};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Allocator::release; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t) override {
    std::lock_guard lock(mutex_);
    for (int device = 0; device < kDevices; ++device) {
      free_segments(device);
    }
  }

  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    std::lock_guard lock(mutex_);
    auto found = taken_.find(static_cast<char*>(data.get()));
    if (found != taken_.end() && found->second->stream != stream.id()) {
      found->second->users.insert(stream.id());
    }
  }

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    return stats_.at(device);
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    for_each(device, [](auto& stat) { stat.reset_accumulated(); });
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    for_each(device, [](auto& stat) { stat.reset_peak(); });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    std::lock_guard lock(mutex_);
    return {capacity_[device] - stats_[device].reserved_bytes[0].current, capacity_[device]};
  }

  // Most bytes allocated since the last call of this function: resets of torch's statistics do not change it.
  int64_t restart_highest(int device) {
    std::lock_guard lock(mutex_);
    return std::exchange(highest_[device], stats_[device].allocated_bytes[0].current);
  }

  void set_capacity(int device, size_t bytes) {
    std::lock_guard lock(mutex_);
    capacity_[device] = bytes;
  }

  static Allocator& get() {
    static auto& one = *new Allocator;
    return one;
  }

 private:
  using Pool = std::set<Block*, Smaller>;
  struct Fenced {
    Block* block;
    std::vector<Event> events;
  };

  static void release(void* data) {
    if (data != nullptr) {
      get().give_back(static_cast<char*>(data));
    }
  }

  void give_back(char* data) {
    std::lock_guard lock(mutex_);
    Block* block = taken_.at(data);
    taken_.erase(data);
    block->taken = false;
    DeviceStats& stats = stats_[block->device];
    count(stats.allocation, -1);
    count(stats.allocated_bytes, -static_cast<int64_t>(block->size));
    count(stats.requested_bytes, -static_cast<int64_t>(block->asked));
    std::vector<Event> events;
    for (int64_t stream : std::exchange(block->users, {})) {
      events.push_back(Event::record(queue(block->device, stream)));
    }
    events.empty() ? pool(block) : fenced_.push_back({block, events});
  }

  // A block of at least so many bytes, which nobody else may use on this stream.
  Block* find(int device, int64_t stream, size_t bytes) {
    size_t size = (bytes + kRound - 1) / kRound * kRound;
    lower_fences([](Event& event) { return event.queue->was_done(event.number); });
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (Block* block = best_fit(device, stream, size)) {
        return block;
      }
      if (Block* block = segment(device, stream, size)) {
        return block;
      }
      if (attempt == 0) {
        free_segments(device);
        continue;
      }
      lower_fences([](Event& event) {
        event.queue->wait(event.number);
        return true;
      });
      free_segments(device);
    }
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "standin:", device, " is out of memory: ", bytes, " bytes were asked for");
  }

  template <typename Passed>
  void lower_fences(Passed passed) {
    auto lowered = [&](Fenced& fenced) {
      bool all = std::all_of(fenced.events.begin(), fenced.events.end(), passed);
      if (all) {
        pool(fenced.block);
      }
      return all;
    };
    fenced_.erase(std::remove_if(fenced_.begin(), fenced_.end(), lowered), fenced_.end());
  }

  Block* best_fit(int device, int64_t stream, size_t size) {
    Pool& free = pools_[{device, stream, size <= kSmall}];
    Block least{device, stream, size, 0, nullptr, nullptr, nullptr, size <= kSmall};
    auto found = free.lower_bound(&least);
    if (found == free.end()) {
      return nullptr;
    }
    Block* block = *found;
    free.erase(found);
    size_t rest = block->size - size;
    if (rest >= kRound && (block->small || rest > kSmall)) {
      auto* other = new Block{device, stream, rest, 0, block->data + size, block, block->after, block->small};
      if (block->after != nullptr) {
        block->after->before = other;
      }
      block->after = other;
      block->size = size;
      free.insert(other);
    }
    return block;
  }

  // Cuts the block from a new segment.
  Block* segment(int device, int64_t stream, size_t size) {
    size_t bytes = size <= kSmall ? kSmallSegment
        : size < kLargeSegment / 2 ? kLargeSegment
                                   : (size + kSmallSegment - 1) / kSmallSegment * kSmallSegment;
    DeviceStats& stats = stats_[device];
    if (stats.reserved_bytes[0].current + bytes > capacity_[device]) {
      return nullptr;
    }
    auto* data = static_cast<char*>(std::aligned_alloc(kRound, bytes));
    count(stats.reserved_bytes, bytes);
    count(stats.segment, 1);
    bool small = size <= kSmall;
    pools_[{device, stream, small}].insert(new Block{device, stream, bytes, 0, data, nullptr, nullptr, small});
    return best_fit(device, stream, size);
  }

  // Gives the system back what no block is cut from. The device must be done with it.
  void free_segments(int device) {
    wait_for_device(device);
    for (auto& [key, free] : pools_) {
      for (auto next = free.begin(); next != free.end();) {
        Block* block = *next;
        bool whole = block->device == device && block->before == nullptr && block->after == nullptr;
        next = whole ? free.erase(next) : std::next(next);
        if (whole) {
          count(stats_[device].reserved_bytes, -static_cast<int64_t>(block->size));
          count(stats_[device].segment, -1);
          std::free(block->data);
          delete block;
        }
      }
    }
  }

  // Puts a block into its pool, as one with free neighbours.
  void pool(Block* block) {
    count(stats_[block->device].active_bytes, -static_cast<int64_t>(block->size));
    Pool& free = pools_[{block->device, block->stream, block->small}];
    if (Block* after = block->after; after != nullptr && free.count(after) != 0) {
      join(block, after, free);
    }
    if (Block* before = block->before; before != nullptr && free.count(before) != 0) {
      free.erase(before);
      join(before, block, free);
      block = before;
    }
    free.insert(block);
  }

  static void join(Block* block, Block* after, Pool& free) {
    free.erase(after);
    block->size += after->size;
    block->after = after->after;
    if (after->after != nullptr) {
      after->after->before = block;
    }
    delete after;
  }

  template <typename Action>
  void for_each(int device, Action action) {
    DeviceStats& stats = stats_.at(device);
    for (auto* kind : {&stats.allocation, &stats.segment, &stats.allocated_bytes, &stats.reserved_bytes,
                       &stats.active_bytes, &stats.requested_bytes}) {
      action((*kind)[0]);
    }
  }

  std::mutex mutex_;
  std::map<std::tuple<int, int64_t, bool>, Pool> pools_;
  std::unordered_map<char*, Block*> taken_;
  std::vector<Fenced> fenced_;
  std::array<DeviceStats, kDevices> stats_;
  std::array<int64_t, kDevices> highest_{};
  std::array<size_t, kDevices> capacity_{size_t{1} << 30, size_t{1} << 30};
};

}  // namespace standin
