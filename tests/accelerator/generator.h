// The generator of the stand-in device: a seed and the number of ops that drew from it, as on other accelerators. An op
// takes its place in the sequence when it is launched, whenever it runs.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>

namespace standin {

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device)
      : GeneratorImpl({c10::DeviceType::PrivateUse1, device}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(uint64_t seed) override { state_ = {seed, 0}; }
  uint64_t current_seed() const override { return state_[0]; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return current_seed();
  }
  void set_offset(uint64_t offset) override { state_[1] = offset; }
  uint64_t get_offset() const override { return state_[1]; }

  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == sizeof(state_) && state.is_cpu(), "a state of the stand-in has 16 bytes on the CPU");
    std::memcpy(state_.data(), state.data(), sizeof(state_));
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::empty({sizeof(state_)}, at::kByte);
    std::memcpy(state.mutable_data_ptr(), state_.data(), sizeof(state_));
    return state.getIntrusivePtr();
  }

  // The numbers of the next op.
  at::Generator next() {
    std::lock_guard lock(mutex_);
    uint64_t mixed = state_[0] + 0x9e3779b97f4a7c15 * ++state_[1];
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return at::detail::createCPUGenerator(mixed ^ (mixed >> 31));
  }

 private:
  Generator* clone_impl() const override {
    auto* copy = new Generator(device_.index());
    copy->state_ = state_;
    return copy;
  }

  std::array<uint64_t, 2> state_{c10::default_rng_seed_val, 0};
};

inline const at::Generator& default_generator(int device) {
  static auto& all = *new std::array<at::Generator, kDevices>{
      at::make_generator<Generator>(0), at::make_generator<Generator>(1)};
  return all.at(device < 0 ? current_device() : device);
}

}  // namespace standin
