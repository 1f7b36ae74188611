// Ops of the stand-in: torch's own kernels for the CPU over the device's memory, launched on the current stream and done
// late. The sizes of results are known at the launch, from torch's shape functions. Where they depend on data, the launch
// waits for the device, as on any accelerator.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <set>

#include "guard.h"

namespace standin {

using at::Tensor;
using torch::jit::Stack;

inline bool is_ours(const Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

// Nanoseconds that work takes on the device: by its bytes, or as a test set it for ops of a name.
struct Durations {
  std::mutex mutex;
  std::map<std::string, int64_t> by_name;

  int64_t of(const std::string& name, size_t bytes) {
    std::lock_guard lock(mutex);
    auto found = by_name.find(name);
    return found != by_name.end() ? found->second : 1000 + static_cast<int64_t>(bytes / 8);
  }
  static Durations& get() {
    static auto& one = *new Durations;
    return one;
  }
};

// ---- tensors in another guise ----

inline Tensor like(const Tensor& tensor, Tensor other) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    other.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return other;
}

// The same bytes as the CPU sees them. Whoever launches work on it knows that the stream keeps the block.
inline Tensor on_host(const Tensor& tensor, void* data = nullptr) {
  const c10::Storage& storage = tensor.storage();
  if (data == nullptr && storage.nbytes() != 0) {
    data = storage.mutable_data();
  }
  c10::Storage alias(c10::Storage::use_byte_size_t(), storage.nbytes(), c10::DataPtr(data, c10::kCPU));
  Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      std::move(alias), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_storage_offset(tensor.storage_offset());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return like(tensor, host);
}

inline Tensor without_memory(const Tensor& tensor) {
  if (!is_ours(tensor) && tensor.dim() == 0) {
    return tensor;  // a number, which goes with tensors of any device
  }
  return like(tensor, at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta)));
}

inline Tensor made(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype, c10::Device device) {
  c10::impl::VirtualGuardImpl guard(kType);
  c10::Device before = guard.exchangeDevice(device);
  Tensor tensor = at::detail::empty_strided_generic(
      sizes, strides, &Allocator::get(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
  guard.setDevice(before);
  return tensor;
}

template <typename Change>
c10::IValue changed(const c10::IValue& value, c10::Device device, Change change) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? change(value.toTensor()) : value;
  }
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? change(tensor) : tensor);
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor && tensor->defined() ? std::optional(change(*tensor)) : tensor);
    }
    return list;
  }
  return value.isDevice() ? c10::IValue(device) : value;
}

template <typename Action>
void each_tensor(const c10::IValue& value, Action action) {
  changed(value, c10::kCPU, [&](const Tensor& tensor) {
    action(tensor);
    return tensor;
  });
}

// ---- calls ----

// A call of an op with tensors of the device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack* stack) : op_(op), schema_(op.schema()), stack_(stack) {
    arguments_ = torch::jit::pop(*stack, schema_.arguments().size());
    for (const c10::IValue& value : arguments_) {
      each_tensor(value, [&](const Tensor& tensor) {
        bytes_ += tensor.nbytes();
        if (is_ours(tensor) && device_ < 0) {
          device_ = tensor.device().index();
        }
      });
      if (value.isDevice() && value.toDevice().type() == kType && device_ < 0) {
        device_ = value.toDevice().has_index() ? value.toDevice().index() : current_device();
      }
    }
    TORCH_CHECK(device_ >= 0, schema_.name(), ": no tensor of the stand-in is among its arguments");
  }

  void run() {
    draw();
    Stack shapes;
    if (!shaped(shapes)) {
      return run_now();
    }
    Stack host = seen_by_host();
    Tensor workspace = packed(host);
    auto results = std::make_shared<std::vector<Tensor>>();
    for (size_t i = 0; i < shapes.size(); ++i) {
      torch::jit::push(*stack_, result(i, shapes[i], host, *results));
    }
    current_queue(device_).launch(
        [op = op_, host, results]() mutable {
          at::AutoDispatchBelowADInplaceOrView below;
          op.callBoxed(host);
          size_t next = 0;
          for (const c10::IValue& value : host) {
            each_tensor(value, [&](const Tensor& tensor) {
              if (next < results->size() && (*results)[next].defined()) {
                (*results)[next].copy_(tensor);
              }
              ++next;
            });
          }
        },
        Durations::get().of(schema_.name(), bytes_));
  }

 private:
  // Gives random ops the device's generator.
  void draw() {
    bool drawn = false;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (schema_.arguments()[i].type()->str().find("Generator") == std::string::npos) {
        continue;
      }
      at::Generator given = arguments_[i].isNone() ? default_generator(device_) : arguments_[i].toGenerator();
      auto* ours = dynamic_cast<Generator*>(given.unsafeGetGeneratorImpl());
      TORCH_CHECK(ours != nullptr, schema_.name(), ": expected a generator of the stand-in");
      generators_.emplace_back(i, ours->next());
      drawn = true;
    }
    TORCH_CHECK(
        drawn || !op_.hasTag(at::Tag::nondeterministic_seeded), schema_.name(), ": it cannot draw on the stand-in");
  }

  // The results without memory. False where they depend on data, or torch has no shape function, or it is an error:
  // the kernel then tells.
  bool shaped(Stack& shapes) {
    for (const auto& returned : schema_.returns()) {
      if (returned.type()->str().find("Tensor") == std::string::npos) {
        return false;
      }
    }
    for (const c10::IValue& value : arguments_) {
      shapes.push_back(changed(value, c10::kMeta, without_memory));
    }
    for (auto& [i, generator] : generators_) {
      shapes[i] = c10::IValue();
    }
    try {
      at::AutoDispatchBelowADInplaceOrView below;
      op_.callBoxed(shapes);
    } catch (const c10::Error&) {
      return false;
    } catch (const std::exception&) {
      return false;
    }
    return true;
  }

  // The arguments as the kernel sees them. Those on the CPU are read now.
  Stack seen_by_host() {
    Stack host;
    for (const c10::IValue& value : arguments_) {
      host.push_back(changed(value, c10::kCPU, [](const Tensor& tensor) {
        return is_ours(tensor) ? on_host(tensor) : like(tensor, tensor.clone());
      }));
    }
    for (auto& [i, generator] : generators_) {
      host[i] = generator;
    }
    return host;
  }

  // Workspace: products of matrices and convolutions work on packed copies of their operands.
  Tensor packed(Stack& host) {
    static const std::set<std::string> packing{
        "aten::mm", "aten::addmm", "aten::bmm", "aten::convolution", "aten::convolution_backward"};
    size_t bytes = 0;
    for (const c10::IValue& value : host) {
      bytes += packs(value) ? value.toTensor().storage().nbytes() : 0;
    }
    if (packing.count(schema_.name()) == 0 || bytes == 0) {
      return {};
    }
    c10::Device device(kType, static_cast<c10::DeviceIndex>(device_));
    Tensor workspace = made({static_cast<int64_t>(bytes)}, {1}, at::kByte, device);
    char* data = static_cast<char*>(workspace.mutable_data_ptr());
    for (size_t i = 0; i < host.size(); ++i) {
      const auto* alias = schema_.arguments()[i].alias_info();
      if (!packs(host[i]) || (alias != nullptr && alias->isWrite())) {
        continue;
      }
      Tensor from = host[i].toTensor();
      Tensor copy = on_host(from, data);
      size_t size = from.storage().nbytes();
      current_queue(device_).launch(
          [copy, from, size] { std::memcpy(copy.storage().mutable_data(), from.storage().data(), size); }, 0);
      data += size;
      host[i] = copy;
    }
    return workspace;
  }

  static bool packs(const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); }

  // The result at an index: an argument that is written, or a new tensor. Adds where the kernel's are copied to.
  c10::IValue result(size_t index, const c10::IValue& shape, Stack& host, std::vector<Tensor>& targets) {
    const auto* alias = schema_.returns()[index].alias_info();
    for (size_t i = 0; alias != nullptr && i < arguments_.size(); ++i) {
      const auto* other = schema_.arguments()[i].alias_info();
      if (other == nullptr || !other->isWrite() || other->beforeSets() != alias->beforeSets()) {
        continue;
      }
      if (schema_.arguments()[i].is_out() && arguments_[i].isTensor()) {
        Tensor out = arguments_[i].toTensor();
        if (out.sizes() != shape.toTensor().sizes()) {
          out.resize_(shape.toTensor().sizes());
          host[i] = on_host(out);
        }
      }
      each_tensor(arguments_[i], [&](const Tensor&) { targets.emplace_back(); });
      return arguments_[i];
    }
    TORCH_CHECK(alias == nullptr, schema_.name(), ": the stand-in has no view of this kind");
    c10::Device device(kType, static_cast<c10::DeviceIndex>(device_));
    return changed(shape, device, [&](const Tensor& tensor) {
      Tensor fresh = made(tensor.sizes(), tensor.strides(), tensor.scalar_type(), device);
      targets.push_back(on_host(fresh));
      return fresh;
    });
  }

  // Waits for the device, calls the kernel and copies its results.
  void run_now() {
    Queue& stream = current_queue(device_);
    stream.wait(stream.launched());
    Stack host = seen_by_host();
    {
      at::AutoDispatchBelowADInplaceOrView below;
      op_.callBoxed(host);
    }
    for (size_t i = 0; i < host.size(); ++i) {
      std::vector<Tensor> targets;
      Stack none(arguments_.size());
      c10::IValue found = result(i, host[i], none, targets);
      size_t next = 0;
      each_tensor(host[i], [&](const Tensor& tensor) {
        if (Tensor target = targets[next++]; target.defined()) {
          stream.launch([target, tensor] { target.copy_(tensor); }, 0);
        }
      });
      torch::jit::push(*stack_, found);
    }
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  Stack* stack_;
  std::vector<c10::IValue> arguments_;
  std::vector<std::pair<size_t, at::Generator>> generators_;
  int device_ = -1;
  size_t bytes_ = 0;
};

inline void fallback(const c10::OperatorHandle& op, Stack* stack) {
  Call(op, stack).run();
}

// ---- ops that need more than a kernel ----

inline c10::Device place(std::optional<c10::Device> device) {
  return {kType, static_cast<c10::DeviceIndex>(device && device->has_index() ? device->index() : current_device())};
}

inline Tensor empty_strided(
    c10::IntArrayRef sizes,
    c10::IntArrayRef strides,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>,
    std::optional<c10::Device> device,
    std::optional<bool>) {
  return made(sizes, strides, c10::dtype_or_default(dtype), place(device));
}

inline Tensor empty(
    c10::IntArrayRef sizes,
    std::optional<c10::ScalarType> dtype,
    std::optional<c10::Layout>,
    std::optional<c10::Device> device,
    std::optional<bool>,
    std::optional<c10::MemoryFormat> format) {
  Tensor shape = at::detail::empty_generic(
      sizes, c10::GetAllocator(c10::kMeta), c10::DispatchKeySet(c10::DispatchKey::Meta),
      c10::dtype_or_default(dtype), format);
  return made(shape.sizes(), shape.strides(), shape.scalar_type(), place(device));
}

inline void resize_bytes(const c10::Storage& storage, size_t bytes) {
  c10::impl::VirtualGuardImpl guard(kType);
  c10::Device before = guard.exchangeDevice(storage.device());
  c10::DataPtr data = storage.nbytes() == bytes ? c10::DataPtr() : Allocator::get().allocate(bytes);
  size_t kept = std::min(bytes, storage.nbytes());
  if (kept != 0) {
    const void* from = storage.data();
    current_queue(storage.device().index())
        .launch([to = data.get(), from, kept] { std::memcpy(to, from, kept); }, 0);
  }
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(bytes);
  guard.setDevice(before);
}

inline void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const {
  if (storage.nbytes() != bytes) {
    resize_bytes(storage, bytes);
  }
}

inline const Tensor& resize_(const Tensor& self, c10::IntArrayRef sizes, std::optional<c10::MemoryFormat>) {
  size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, self.itemsize(), self.storage_offset());
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (self.numel() != 0 && bytes > self.storage().nbytes()) {
    resize_bytes(self.storage(), bytes);
  }
  return self;
}

inline Tensor& set_storage_(
    Tensor& self, c10::Storage source, int64_t offset, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  TORCH_CHECK(
      strides.empty() ||
          at::detail::computeStorageNbytes(sizes, strides, self.itemsize(), offset) <= source.nbytes(),
      "set_ beyond the end of a storage of the stand-in");
  return at::native::set_storage_cpu_(self, std::move(source), offset, sizes, strides);
}

inline Tensor& set_nothing_(Tensor& self) {
  return set_storage_(
      self, c10::Storage(c10::Storage::use_byte_size_t(), 0, &Allocator::get(), true), 0, {0}, {1});
}

inline void copy_late(const Tensor& to, const Tensor& from, Queue& stream, size_t bytes) {
  stream.launch(
      [to, from]() mutable {
        at::AutoDispatchBelowADInplaceOrView below;
        to.copy_(from);
      },
      Durations::get().of("aten::copy_", bytes));
}

// Copies within a device, between devices, and from and to the CPU's memory.
inline Tensor copy_from(const Tensor& self, const Tensor& to, bool) {
  if (!is_ours(self)) {
    Queue& stream = current_queue(to.device().index());
    copy_late(on_host(to), self.clone(), stream, to.nbytes());
    return to;
  }
  Queue& stream = current_queue(self.device().index());
  if (!is_ours(to)) {
    copy_late(to, on_host(self), stream, to.nbytes());
    stream.wait(stream.launched());
    return to;
  }
  Queue& other = current_queue(to.device().index());
  Event::record(other).block(stream);
  copy_late(on_host(to), on_host(self), stream, to.nbytes());
  Event::record(stream).block(other);
  return to;
}

inline void record_stream(Tensor& self, c10::Stream stream) {
  Allocator::get().recordStream(self.storage().data_ptr(), stream);
}

inline at::Scalar local_scalar(const Tensor& self) {
  Queue& stream = current_queue(self.device().index());
  stream.wait(stream.launched());
  return on_host(self).item();
}

inline std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) {
    return {input.clone(), at::empty_like(input, at::kBool).fill_(true)};
  }
  Tensor mask = at::empty_like(input, at::kBool).bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0.0 : 1 / (1 - p)), mask};
}

inline void convolution(const c10::OperatorHandle&, Stack* stack) {
  fallback(c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", ""), stack);
}

inline void convolution_backward(const c10::OperatorHandle&, Stack* stack) {
  // The op of another name lacks the argument for the size of the bias, which is that of the output's channels.
  std::vector<c10::IValue> given = torch::jit::pop(*stack, 10);
  int64_t channels = given[0].toTensor().size(1);
  given.insert(given.begin() + 3, c10::IValue(c10::List<int64_t>({channels})));
  for (c10::IValue& value : given) {
    torch::jit::push(*stack, std::move(value));
  }
  fallback(c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", ""), stack);
}

}  // namespace standin
