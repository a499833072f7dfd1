/* The events of the benchmark, as LTTng-UST declares them. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER usertrace_bench

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./provider.h"

#if !defined(USERTRACE_BENCH_PROVIDER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define USERTRACE_BENCH_PROVIDER_H

#include <stdint.h>
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(usertrace_bench, empty, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())

LTTNG_UST_TRACEPOINT_EVENT(
	usertrace_bench, number,
	LTTNG_UST_TP_ARGS(uint32_t, n),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(uint32_t, n, n)))

LTTNG_UST_TRACEPOINT_EVENT(
	usertrace_bench, numbers,
	LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b, uint64_t, c, uint64_t, d),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, a)
		lttng_ust_field_integer(uint64_t, b, b)
		lttng_ust_field_integer(uint64_t, c, c)
		lttng_ust_field_integer(uint64_t, d, d)))

LTTNG_UST_TRACEPOINT_EVENT(
	usertrace_bench, block,
	LTTNG_UST_TP_ARGS(const uint64_t *, words),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_array(uint64_t, words, words, 32)))

LTTNG_UST_TRACEPOINT_EVENT(
	usertrace_bench, text,
	LTTNG_UST_TP_ARGS(uint32_t, n, const char *, text),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint32_t, n, n)
		lttng_ust_field_string(text, text)))

/* Never enabled by any session of the benchmark but the one whose filter rejects it. */
LTTNG_UST_TRACEPOINT_EVENT(
	usertrace_bench, filtered,
	LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b, uint64_t, c, uint64_t, d),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, a)
		lttng_ust_field_integer(uint64_t, b, b)
		lttng_ust_field_integer(uint64_t, c, c)
		lttng_ust_field_integer(uint64_t, d, d)))

#endif

#include <lttng/tracepoint-event.h>
