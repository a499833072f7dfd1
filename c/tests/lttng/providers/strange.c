/* Events that cannot be written as declared, and large ones. */
#include <stdio.h>
#include <string.h>

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "strange.h"

#include <usertrace.h>

int main(void)
{
	char text[701];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	lttng_ust_tracepoint(test_strange, wide, 1);
	lttng_ust_tracepoint(test_strange, empty, text);
	lttng_ust_tracepoint(test_strange, narrow, 5);
	lttng_ust_tracepoint(test_strange, narrow, 255);
	lttng_ust_tracepoint(test_strange, labels, 1);
	lttng_ust_tracepoint(test_strange, many, 0);
	lttng_ust_tracepoint(test_strange, padded, text);
	printf("%zu bad events\n", usertrace_bad_events());
	return 0;
}
