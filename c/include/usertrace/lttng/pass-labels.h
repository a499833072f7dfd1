/* First pass: tables of the labels of enumerations, which end with an empty one. */
#include "nothing.h"

#undef LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, args, fields)
#undef LTTNG_UST_TRACEPOINT_EVENT_INSTANCE
#define LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(class_provider, event_class, provider, name, args)

#undef LTTNG_UST_TRACEPOINT_ENUM
#define LTTNG_UST_TRACEPOINT_ENUM(provider, name, values) \
	__attribute__((unused)) static const struct usertrace_lttng_label \
		USERTRACE_LTTNG__LABELS(provider, name)[] = { \
			values { NULL, 0, 0, 0, 0, 0 } \
		};

#undef USERTRACE_LTTNG__LABEL
#define USERTRACE_LTTNG__LABEL(text, first, last, is_automatic) \
	{ text, (long long)(first), (long long)(last), (first) < 0, (last) < 0, is_automatic },
