/* SPDX-License-Identifier: Apache-2.0 */
/* The program of calls.c on the host. */
#include <stdlib.h>
#include <string.h>

#include "call_memory.h"

void* take_memory(size_t bytes) {
  const size_t line = 64;
  char* const all = malloc(bytes + line);
  if (all == NULL) abort();
  return all + (line - (uintptr_t)all % line);
}

void write_memory(void* to, const void* from, size_t bytes) {
  memcpy(to, from, bytes);
}

void read_memory(void* to, const void* from, size_t bytes) {
  memcpy(to, from, bytes);
}

void* stream_of_calls(void) {
  return NULL;
}

int main(void) {
  return failed_calls() != 0;
}
