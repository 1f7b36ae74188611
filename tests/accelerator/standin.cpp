// A stand-in for accelerators: a backend of torch over main memory, with all that a device has which matters to memory.
// It has two devices, a caching allocator with statistics, streams that work late, events and generators.
#include "allocator.h"
#include "generator.h"
#include "guard.h"
#include "kernels.h"
#include "streams.h"

namespace standin {

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("resize_", &resize_);
  m.impl("set_", &set_nothing_);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, c10::Storage)>(&at::native::set_));
  m.impl("set_.source_Storage_storage_offset", &set_storage_);
  m.impl("_copy_from", &copy_from);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("record_stream", &record_stream);
  m.impl("native_dropout", &dropout);
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable", torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

}  // namespace standin

// What Python asks for beside torch's own functions.
extern "C" {

void standin_register() {
  c10::SetAllocator(standin::kType, &standin::Allocator::get());
  at::RegisterPrivateUse1HooksInterface(new standin::Hooks);
}

int standin_devices() {
  return standin::kDevices;
}

int standin_current_device() {
  return standin::current_device();
}

void standin_set_device(int device) {
  standin::this_device = device;
}

void standin_set_capacity(int device, uint64_t bytes) {
  standin::Allocator::get().set_capacity(device, bytes);
}

int64_t standin_restart_highest(int device) {
  return standin::Allocator::get().restart_highest(device);
}

void standin_set_duration(const char* op, int64_t nanoseconds) {
  std::lock_guard lock(standin::Durations::get().mutex);
  standin::Durations::get().by_name[op] = nanoseconds;
}

// Work that a stream has not done yet: it may be about to change.
uint64_t standin_launched(int device, int64_t stream) {
  return standin::queue(device, stream).launched();
}

bool standin_was_done(int device, int64_t stream, uint64_t number) {
  return standin::queue(device, stream).was_done(number);
}
}
