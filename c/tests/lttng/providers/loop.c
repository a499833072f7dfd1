/* Writes one event, and prints how often its argument was evaluated. */
#include <stdio.h>

#include "classes.h"

static int evaluated;

int count(void)
{
	return ++evaluated;
}

int main(void)
{
	lttng_ust_tracepoint(test_classes, first, count());
	printf("%d\n", evaluated);
	return 0;
}
