// SPDX-License-Identifier: Apache-2.0
/// @file launch/requests.cuh  Memory and copies for a call over several ranks, whose messages are the host's.
#pragma once

#include "../device/runtime.cuh"
#include "../tensor/copy_elements.cuh"

namespace aft::inline AFT_ISA::cuda_impl {

inline void copy_elements(const element_block& to, const element_block& from, const call_stream& stream) {
  const index_t n = to.count();
  switch (to.size) {
    case 1: return stream.launch_each(copy_elements_kernel<1>, n, element_threads, to, from, n);
    case 2: return stream.launch_each(copy_elements_kernel<2>, n, element_threads, to, from, n);
    case 4: return stream.launch_each(copy_elements_kernel<4>, n, element_threads, to, from, n);
    default: return stream.launch_each(copy_elements_kernel<8>, n, element_threads, to, from, n);
  }
}

inline void serve(device_request& r, const call_stream& stream) {
  switch (r.what) {
    case device_action::begin:
      // To find out by waiting would end the capture.
      if (is_capturing(stream.get())) {
        stream.throw_on("cudaErrorStreamCaptureUnsupported (the stream is being captured)",
                        "waiting for the stream, as a call over several ranks does");
      }
      return;
    case device_action::take:
      return stream.throw_on(device_allocate(&r.device, r.bytes, stream.get()), "allocating memory");
    case device_action::give: return device_release(r.device, r.bytes, stream.get());
    case device_action::to_device:
      return stream.throw_on(device_write(r.device, r.host, r.bytes, stream.get()), "copying to the device");
    case device_action::to_host:
      return stream.throw_on(device_read(r.host, r.device, r.bytes, stream.get()), "copying to the host");
    case device_action::copy: return copy_elements(r.to, r.from, stream);
    case device_action::wait: return stream.throw_on(device_wait(stream.get()), "waiting for the stream");
  }
}

}  // namespace aft::inline AFT_ISA::cuda_impl
