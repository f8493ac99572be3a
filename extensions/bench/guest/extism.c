// The policy of the example `cheapest` as a plug-in of Extism: what it is given is copied from Extism's memory into the
// policy's buffer, and its answer back.
#include "../../examples/cheapest/policy.c"

#define EXTISM(name) __attribute__((import_module("extism:host/env"), import_name(name))) extern
EXTISM("input_length") uint64_t extism_input_length(void);
EXTISM("input_load_u8") uint8_t extism_input_load_u8(uint64_t at);
EXTISM("input_load_u64") uint64_t extism_input_load_u64(uint64_t at);
EXTISM("alloc") uint64_t extism_alloc(uint64_t n);
EXTISM("store_u8") void extism_store_u8(uint64_t at, uint8_t v);
EXTISM("store_u64") void extism_store_u64(uint64_t at, uint64_t v);
EXTISM("output_set") void extism_output_set(uint64_t at, uint64_t n);

__attribute__((export_name("decide"))) int32_t extism_decide(void) {
  uint64_t n = extism_input_length(), i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t v = extism_input_load_u64(i);
    __builtin_memcpy(laya_in + i, &v, 8);
  }
  for (; i < n; i++) laya_in[i] = (char)extism_input_load_u8(i);
  uint64_t answer = laya_run((uint32_t)n, decide), length = answer & 0xffffffff;
  const char *p = (const char *)(uintptr_t)(answer >> 32);
  uint64_t out = extism_alloc(length);
  for (i = 0; i + 8 <= length; i += 8) {
    uint64_t v;
    __builtin_memcpy(&v, p + i, 8);
    extism_store_u64(out + i, v);
  }
  for (; i < length; i++) extism_store_u8(out + i, (uint8_t)p[i]);
  extism_output_set(out, length);
  return 0;
}
