/*
 * Loops that write events with LTTng-UST, for the benchmark to call. Each writes `count` events, and the compiler must
 * not know what is in them.
 */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "provider.h"

#define HIDE(n) __asm__ volatile("" : "+r"(n))

void usertrace_bench_empty(uint64_t count)
{
	for (uint64_t n = 0; n < count; n++)
		lttng_ust_tracepoint(usertrace_bench, empty);
}

void usertrace_bench_number(uint64_t count)
{
	for (uint64_t n = 0; n < count; n++) {
		uint32_t value = (uint32_t)n;

		HIDE(value);
		lttng_ust_tracepoint(usertrace_bench, number, value);
	}
}

void usertrace_bench_numbers(uint64_t count)
{
	for (uint64_t n = 0; n < count; n++) {
		uint64_t value = n;

		HIDE(value);
		lttng_ust_tracepoint(usertrace_bench, numbers, value, value, value, value);
	}
}

void usertrace_bench_block(uint64_t count)
{
	uint64_t words[32] = {0};

	for (uint64_t n = 0; n < count; n++) {
		words[0] = n;
		lttng_ust_tracepoint(usertrace_bench, block, words);
	}
}

void usertrace_bench_text(uint64_t count)
{
	for (uint64_t n = 0; n < count; n++) {
		uint32_t value = (uint32_t)n;

		HIDE(value);
		lttng_ust_tracepoint(usertrace_bench, text, value, "twenty bytes of text");
	}
}

void usertrace_bench_filtered(uint64_t count)
{
	for (uint64_t n = 0; n < count; n++) {
		uint64_t value = n;

		HIDE(value);
		lttng_ust_tracepoint(usertrace_bench, filtered, value, value, value, value);
	}
}
