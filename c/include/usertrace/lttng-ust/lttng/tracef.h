/* Events whose only field is a text: tracef("%d files", n). */
#ifndef USERTRACE_LTTNG_TRACEF_H
#define USERTRACE_LTTNG_TRACEF_H

#pragma GCC system_header

/* As LTTng-UST's header does. */
#include <lttng/tracepoint.h>

#include "../../../usertrace.h"
#include "../../lttng/message.h"

USERTRACE_EVENT(lttng_ust_tracef, event, DEBUG, (text, msg));

__attribute__((format(printf, 1, 0), noinline, unused)) static void
lttng_ust__vtracef(const char *format, va_list arguments)
{
	struct usertrace_lttng__message message;

	if (usertrace_lttng__format(&message, format, arguments))
		usertrace(lttng_ust_tracef, event, message.text, message.len);
	usertrace_lttng__free(&message);
}

__attribute__((format(printf, 1, 2), noinline, unused)) static void
lttng_ust__tracef(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	lttng_ust__vtracef(format, arguments);
	va_end(arguments);
}

#define lttng_ust_tracef(...) \
	do { \
		if (usertrace_enabled(lttng_ust_tracef, event)) { \
			USERTRACE__HERE(&USERTRACE__CALLSITE(lttng_ust_tracef, event)); \
			lttng_ust__tracef(__VA_ARGS__); \
		} \
	} while (0)

#define lttng_ust_vtracef(format, arguments) \
	do { \
		if (usertrace_enabled(lttng_ust_tracef, event)) { \
			USERTRACE__HERE(&USERTRACE__CALLSITE(lttng_ust_tracef, event)); \
			lttng_ust__vtracef(format, arguments); \
		} \
	} while (0)

#if LTTNG_UST_COMPAT_API(0)
#define tracef lttng_ust_tracef
#endif

#endif
