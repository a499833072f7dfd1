/* Events that are only texts. A file that includes these headers can define nothing else. */
#include <stdarg.h>
#include <string.h>

#include <lttng/tracef.h>
#include <lttng/tracelog.h>

#include "sample.h"

__attribute__((format(printf, 1, 2))) static void messages(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	lttng_ust_vtracef(format, arguments);
	va_end(arguments);
	va_start(arguments, format);
	lttng_ust_vtracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG, format, arguments);
	va_end(arguments);
}

void all_messages(void)
{
	char longer[3001];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	tracef("no arguments");
	tracef("%d and %s", count(), "text");
	lttng_ust_tracef("%s", longer);
	lttng_ust_tracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG, "emergency %d", 0);
	lttng_ust_tracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE, "%s", longer);
	messages("%s %c", "arguments", 'c');
}
