/* Writes events of objects, and prints how often the shared one is still in use. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "objects.h"

int main()
{
	auto shared = std::make_shared<std::string>("shared");

	for (int n = 0; n < 3; n++) {
		lttng_ust_tracepoint(test_objects, begin, n == 2 ? nullptr : shared,
				     std::chrono::milliseconds(n), "label " + std::to_string(n),
				     std::string(n + 1, 'x'), n & 1);
	}
	printf("%ld\n", shared.use_count());
	return 0;
}
