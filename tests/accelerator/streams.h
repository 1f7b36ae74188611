// Streams of the stand-in device. Work that is launched is done by a thread of the stream's own, and as late as a device
// may do it: not before somebody waits for it. What reads memory too early is then wrong every time.
//
// Time on the device is counted, not measured: each piece of work says how many nanoseconds it takes.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace standin {

constexpr int kDevices = 2;
constexpr int kStreams = 16;
// Work that a stream takes before a launch waits, as the launch queues of real devices do.
constexpr uint64_t kQueue = 1024;

class Queue {
 public:
  // Puts work at the end; returns its number.
  uint64_t launch(std::function<void()> run, int64_t nanoseconds) {
    std::unique_lock lock(mutex_);
    if (launched_ - done_ >= kQueue) {
      wait(lock, done_ + kQueue / 2);
    }
    if (!std::exchange(started_, true)) {
      std::thread([this] { work(); }).detach();
    }
    queue_.push_back({std::move(run), nanoseconds});
    return ++launched_;
  }

  // Has the work up to a number done, and waits until it is. Raises the first error of any work.
  void wait(uint64_t number) {
    std::unique_lock lock(mutex_);
    wait(lock, number);
    if (auto error = std::exchange(error_, nullptr)) {
      std::rethrow_exception(error);
    }
  }

  // Whether the work up to a number is done; has it done soon, as a program that asks again and again expects.
  bool is_done(uint64_t number) {
    std::lock_guard lock(mutex_);
    demand(number);
    return done_ >= number;
  }

  // The same, and leaves the work as it is.
  bool was_done(uint64_t number) {
    std::lock_guard lock(mutex_);
    return done_ >= number;
  }

  uint64_t launched() {
    std::lock_guard lock(mutex_);
    return launched_;
  }

  // The stream's time, for its own work.
  int64_t now = 0;

 private:
  struct Work {
    std::function<void()> run;
    int64_t nanoseconds;
  };

  void demand(uint64_t number) {
    demanded_ = std::max(demanded_, std::min(number, launched_));
    changed_.notify_all();
  }

  void wait(std::unique_lock<std::mutex>& lock, uint64_t number) {
    demand(number);
    changed_.wait(lock, [&] { return done_ >= std::min(number, launched_); });
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return done_ < demanded_; });
      Work next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      std::exception_ptr error;
      try {
        now += next.nanoseconds;
        next.run();
      } catch (...) {
        error = std::current_exception();
      }
      next.run = nullptr;
      lock.lock();
      if (!error_) {
        error_ = error;
      }
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> queue_;
  bool started_ = false;
  std::exception_ptr error_;
  uint64_t launched_ = 0, demanded_ = 0, done_ = 0;
};

// All streams; those of a device by number, the first being the default. They live as long as the process: threads wait
// at them when it ends.
inline Queue& queue(int device, int64_t stream) {
  static auto& all = *new std::array<std::array<Queue, kStreams>, kDevices>;
  return all.at(device).at(stream);
}

inline void wait_for_device(int device) {
  for (int stream = 0; stream < kStreams; ++stream) {
    queue(device, stream).wait(queue(device, stream).launched());
  }
}

// A point of a stream's work, and the time at which the stream came there.
struct Event {
  Queue* queue = nullptr;
  uint64_t number = 0;
  std::shared_ptr<int64_t> time;

  static Event record(Queue& queue) {
    auto time = std::make_shared<int64_t>(0);
    return {&queue, queue.launch([&queue, time] { *time = queue.now; }, 0), time};
  }

  // Has a stream wait for the event before it does later work.
  void block(Queue& waiting) const {
    if (queue == nullptr || queue == &waiting) {
      return;
    }
    Event event = *this;
    waiting.launch(
        [event, &waiting] {
          event.queue->wait(event.number);
          waiting.now = std::max(waiting.now, *event.time);
        },
        0);
  }
};

}  // namespace standin
