/*
 * Events with their source location and a text, one for each log level:
 * tracelog(LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO, "%d files", n), or TRACE_INFO.
 */
#ifndef USERTRACE_LTTNG_TRACELOG_H
#define USERTRACE_LTTNG_TRACELOG_H

#pragma GCC system_header

/* As LTTng-UST's header does. */
#include <lttng/tracepoint.h>

#include "../../../usertrace.h"
#include "../../lttng/message.h"

#define USERTRACE_LTTNG__LOG_FIELDS (s32, line), (str, file), (str, func), (text, msg)
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG, EMERG,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT, ALERT,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT, CRIT,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR, ERR,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING, WARNING,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE, NOTICE,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO, INFO,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM, DEBUG_SYSTEM,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM, DEBUG_PROGRAM,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS, DEBUG_PROCESS,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE, DEBUG_MODULE,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT, DEBUG_UNIT,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION, DEBUG_FUNCTION,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE, DEBUG_LINE,
		USERTRACE_LTTNG__LOG_FIELDS);
USERTRACE_EVENT(lttng_ust_tracelog, LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG, DEBUG,
		USERTRACE_LTTNG__LOG_FIELDS);
#undef USERTRACE_LTTNG__LOG_FIELDS

#define USERTRACE_LTTNG__LOG_FUNCTIONS(level) \
	__attribute__((format(printf, 4, 0), noinline, unused)) static void \
	lttng_ust__vtracelog_##level(const char *file, int line, const char *function, \
				     const char *format, va_list arguments) \
	{ \
		struct usertrace_lttng__message message; \
		if (usertrace_lttng__format(&message, format, arguments)) \
			usertrace(lttng_ust_tracelog, level, line, file, function, message.text, \
				  message.len); \
		usertrace_lttng__free(&message); \
	} \
	__attribute__((format(printf, 4, 5), noinline, unused)) static void \
	lttng_ust__tracelog_##level(const char *file, int line, const char *function, \
				    const char *format, ...) \
	{ \
		va_list arguments; \
		va_start(arguments, format); \
		lttng_ust__vtracelog_##level(file, line, function, format, arguments); \
		va_end(arguments); \
	}
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_EMERG)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_ALERT)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_CRIT)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_NOTICE)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_SYSTEM)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROGRAM)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_PROCESS)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_MODULE)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_UNIT)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_FUNCTION)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE)
USERTRACE_LTTNG__LOG_FUNCTIONS(LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG)
#undef USERTRACE_LTTNG__LOG_FUNCTIONS

/* The level may be one of the older names, which are macros. */
#define lttng_ust_tracelog(level, ...) USERTRACE_LTTNG__LOG(level, tracelog_, __VA_ARGS__)
#define lttng_ust_vtracelog(level, format, arguments) \
	USERTRACE_LTTNG__LOG(level, vtracelog_, format, arguments)
#define USERTRACE_LTTNG__LOG(level, function, ...) \
	do { \
		if (usertrace_enabled(lttng_ust_tracelog, level)) { \
			USERTRACE__HERE(&USERTRACE__CALLSITE(lttng_ust_tracelog, level)); \
			lttng_ust__##function##level(__FILE__, __LINE__, __func__, __VA_ARGS__); \
		} \
	} while (0)

#if LTTNG_UST_COMPAT_API(0)
#define tracelog lttng_ust_tracelog
#endif

#endif
