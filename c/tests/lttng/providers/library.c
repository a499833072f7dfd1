/* A library with its own copy of a provider that others have, too. */
#include "classes.h"

__attribute__((visibility("default"))) void write_event(void);

void write_event(void)
{
	lttng_ust_tracepoint(test_classes, first, NUMBER);
}
