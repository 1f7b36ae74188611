// The stand-in as torch sees it: devices, current streams, events and hooks of the backend PrivateUse1.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "generator.h"

namespace standin {

constexpr auto kType = c10::DeviceType::PrivateUse1;

inline thread_local int this_device = 0;
inline thread_local std::array<int64_t, kDevices> these_streams{};

inline int current_device() {
  return this_device;
}

inline int64_t current_stream(int device) {
  return these_streams.at(device);
}

inline Queue& current_queue(int device) {
  return queue(device, current_stream(device));
}

inline void set_device(int device) {
  TORCH_CHECK(device >= 0 && device < kDevices, "standin:", device, " is not there");
  this_device = device;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static Queue& of(const c10::Stream& stream) { return queue(stream.device_index(), stream.id()); }
  static Event& of(void* event) { return *static_cast<Event*>(event); }

  c10::DeviceType type() const override { return kType; }
  c10::Device getDevice() const override { return {kType, static_cast<c10::DeviceIndex>(this_device)}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { this_device = device.index(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream(device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<int64_t> made{0};
    if (!device.has_index()) {
      device = getDevice();
    }
    return c10::Stream(c10::Stream::UNSAFE, device, 1 + made++ % (kStreams - 1));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream before = getStream(stream.device());
    these_streams.at(stream.device_index()) = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override { return of(stream).is_done(of(stream).launched()); }
  void synchronizeStream(const c10::Stream& stream) const override { of(stream).wait(of(stream).launched()); }
  void synchronizeDevice(c10::DeviceIndex device) const override { wait_for_device(device); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    Allocator::get().recordStream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event;
    }
    of(*event) = Event::record(of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      of(event).block(of(stream));
    }
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || of(event).queue->is_done(of(event).number);
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      of(event).queue->wait(of(event).number);
    }
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    synchronizeEvent(from);
    synchronizeEvent(to);
    return static_cast<double>(*of(to).time - *of(from).time) / 1e6;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(this_device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    c10::DeviceIndex before = getCurrentDevice();
    set_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? getCurrentDevice() : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override;
};

}  // namespace standin
