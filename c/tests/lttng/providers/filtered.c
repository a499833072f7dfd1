/* Writes 400 events whose fields take many values. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "filtered.h"

int main(void)
{
	static const char *const paths[] = {
		"/api/users", "/api/items?id=1", "/static/site.css", "a*b", "--",
	};
	uint32_t state = 1;

	for (uint32_t n = 0; n < 400; n++) {
		/* A linear congruential generator: the same values in each run. */
		state = state * 1664525 + 1013904223;

		int16_t grid[3] = {n % 3, (int16_t)(state >> 20), -(int16_t)(state >> 24)};
		uint8_t bytes[3] = {(uint8_t)(state >> 8), 7, (uint8_t)(state >> 16)};

		lttng_ust_tracepoint(test_filtered, request, n, (int32_t)(state >> 27) - 16,
				     (uint64_t)(state >> 16) << (n % 40), paths[(state >> 12) % 5],
				     (double)((state >> 9) % 16) / 4, grid, bytes, n % 4);
	}
	return 0;
}
