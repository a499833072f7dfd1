/* Last pass: the events, and their log levels, which may precede them. */
#include "nothing.h"

#undef USERTRACE_LTTNG__PROBE
#define USERTRACE_LTTNG__PROBE(variable, provider, name, event_class, level) \
	static const struct usertrace_lttng_probe usertrace_lttng_##variable = { \
		#provider, #name, event_class, level, \
	}; \
	__attribute__((section("usertrace_lttng_probes"), used)) USERTRACE__RETAIN \
	USERTRACE__PLAIN static const struct usertrace_lttng_probe \
		*usertrace_lttng_entry_##variable = &usertrace_lttng_##variable;

#undef LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, args, fields)

#undef LTTNG_UST_TRACEPOINT_EVENT_INSTANCE
#define LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(class_provider, class_name, provider, name, args) \
	USERTRACE_LTTNG__PROBE(probe_##provider##___##name, provider, name, \
			       &USERTRACE_LTTNG__CLASS(class_provider, class_name), \
			       LTTNG_UST_TRACEPOINT_LOGLEVEL_DEBUG_LINE)

#undef LTTNG_UST_TRACEPOINT_LOGLEVEL
#define LTTNG_UST_TRACEPOINT_LOGLEVEL(provider, name, level) \
	USERTRACE_LTTNG__PROBE(level_##provider##___##name, provider, name, NULL, level)
