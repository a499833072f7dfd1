/* Meaning of a provider's header outside of its passes. It is included again after them. */
#undef LTTNG_UST_TRACEPOINT_EVENT
#define LTTNG_UST_TRACEPOINT_EVENT(provider, name, args, fields) \
	USERTRACE_LTTNG__TRACEPOINT_EVENT(provider, name, USERTRACE_LTTNG__ALL(args))

#undef LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, args, fields)

#undef LTTNG_UST_TRACEPOINT_EVENT_INSTANCE
#define LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(class_provider, event_class, provider, name, args) \
	USERTRACE_LTTNG__TRACEPOINT_EVENT(provider, name, USERTRACE_LTTNG__ALL(args))

#include "nothing.h"
