/* An event with the kinds of fields that filters compare. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER test_filtered

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./filtered.h"

#if !defined(TEST_FILTERED_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TEST_FILTERED_H

#include <lttng/tracepoint.h>

#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(
	test_filtered, request,
	LTTNG_UST_TP_ARGS(uint32_t, n, int32_t, delta, uint64_t, size, const char *, path,
			  double, load, const int16_t *, grid, const uint8_t *, bytes, size_t, len),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint32_t, n, n)
		lttng_ust_field_integer(int32_t, delta, delta)
		lttng_ust_field_integer_hex(uint64_t, size, size)
		lttng_ust_field_integer_network(uint16_t, port, (uint16_t)((n << 8 | n >> 8) & 0xffff))
		lttng_ust_field_integer(uint8_t, status, n % 251)
		lttng_ust_field_string(path, path)
		lttng_ust_field_float(double, load, load)
		lttng_ust_field_float(float, half, load / 2)
		lttng_ust_field_array(int16_t, grid, grid, 3)
		lttng_ust_field_array_text(char, tag, path, 2)
		lttng_ust_field_sequence(uint8_t, bytes, bytes, size_t, len)))

#endif

#include <lttng/tracepoint-event.h>
