// SPDX-License-Identifier: Apache-2.0
#include "backends/simulated/context.hpp"

namespace lowtide::sim {

ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

ContextPtr Contexts::make_locked(CUcontext handle, int device, unsigned flags) {
  auto context = std::make_shared<Context>();
  context->handle = handle;
  context->device = device;
  context->flags = flags;
  context->legacy = std::make_shared<Stream>();
  context->legacy->context = context;
  context->legacy->is_legacy = true;
  context->streams.insert(context->legacy);
  contexts_.add_as(handle, context);
  return context;
}

ContextPtr Contexts::create(int device, unsigned flags) {
  const std::lock_guard lock(monitor_.mutex);
  return make_locked(contexts_.reserve(), device, flags);
}

ContextPtr Contexts::retain_primary(int device) {
  const std::lock_guard lock(monitor_.mutex);
  auto& primary = primary_[static_cast<std::size_t>(device)];
  // The handle of a device's primary context stays the same over releases and resets.
  if (primary.handle == nullptr) primary.handle = contexts_.reserve();
  auto context = contexts_.find(primary.handle);
  if (!context) {
    context = make_locked(primary.handle, device, primary.flags);
    context->primary = true;
  }
  ++primary.references;
  return context;
}

CUresult Contexts::release_primary(int device) {
  std::unique_lock lock(monitor_.mutex);
  auto& primary = primary_[static_cast<std::size_t>(device)];
  if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--primary.references > 0) return CUDA_SUCCESS;
  if (const auto context = contexts_.take(primary.handle)) destroy_locked(lock, context);
  return CUDA_SUCCESS;
}

CUresult Contexts::reset_primary(int device) {
  std::unique_lock lock(monitor_.mutex);
  auto& primary = primary_[static_cast<std::size_t>(device)];
  primary.references = 0;
  if (const auto context = contexts_.take(primary.handle)) destroy_locked(lock, context);
  return CUDA_SUCCESS;
}

void Contexts::primary_state(int device, unsigned* flags, int* active) {
  const std::lock_guard lock(monitor_.mutex);
  const auto& primary = primary_[static_cast<std::size_t>(device)];
  *flags = primary.flags;
  *active = contexts_.find(primary.handle) ? 1 : 0;
}

void Contexts::set_primary_flags(int device, unsigned flags) {
  const std::lock_guard lock(monitor_.mutex);
  auto& primary = primary_[static_cast<std::size_t>(device)];
  primary.flags = flags;
  if (const auto context = contexts_.find(primary.handle)) context->flags = flags;
}

CUresult Contexts::destroy(CUcontext handle) {
  std::unique_lock lock(monitor_.mutex);
  const auto context = contexts_.find(handle);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  contexts_.take(handle);
  destroy_locked(lock, context);
  auto& stack = this_thread().contexts;
  if (!stack.empty() && stack.back() == handle) stack.pop_back();
  return CUDA_SUCCESS;
}

void Contexts::destroy_locked(std::unique_lock<std::mutex>& lock, const ContextPtr& context) {
  on_destroy_locked(context);
  streams_.kill_locked(lock, context);
  memory_.drop_context(context->id());
}

ContextPtr Contexts::find(CUcontext handle) {
  const std::lock_guard lock(monitor_.mutex);
  return contexts_.find(handle);
}

CUresult Contexts::current(ContextPtr& out) {
  const auto& stack = this_thread().contexts;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  out = find(stack.back());
  return out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

std::uint64_t Contexts::count() {
  const std::lock_guard lock(monitor_.mutex);
  return contexts_.size();
}

}  // namespace lowtide::sim
