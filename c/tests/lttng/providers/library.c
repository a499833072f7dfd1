/* A library with a provider of its own, which others have, too. */
#include "classes.h"

__attribute__((visibility("default"))) void write_event(void);

void write_event(void)
{
	lttng_ust_tracepoint(test_classes, first, NUMBER);
}
