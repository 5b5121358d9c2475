// SPDX-License-Identifier: Apache-2.0
#include "errors.hpp"

#include <aft/core/errors.hpp>

#include <cstddef>
#include <cstring>
#include <exception>
#include <new>

namespace aft::c_interface {

namespace {

/// An array and no string: it takes no memory when there is none, and nothing has to be destroyed when a thread ends
/// after the library was unloaded. The longest text of a check names 8 extents and 8 strides of 20 digits each.
struct last_text {
  static constexpr std::size_t room = 1024;
  char value[room];

  void set(const char* from) noexcept {
    const std::size_t length = std::strlen(from);
    const std::size_t kept = length < room ? length : room - 1;
    std::memcpy(value, from, kept);
    value[kept] = '\0';
  }
};
thread_local last_text last{};

}  // namespace

int report() noexcept {
  try {
    throw;
  } catch (const shape_error& e) {
    last.set(e.what());
    return AFT_SHAPE_ERROR;
  } catch (const device_error& e) {
    last.set(e.what());
    return AFT_DEVICE_ERROR;
  } catch (const std::bad_alloc& e) {
    last.set(e.what());
    return AFT_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    last.set(e.what());
    return AFT_INTERNAL_ERROR;
  } catch (...) {
    last.set("an exception of an unknown type");
    return AFT_INTERNAL_ERROR;
  }
}

}  // namespace aft::c_interface

const char* aft_last_error(void) {
  return aft::c_interface::last.value;
}
