/* Makes the probes of providers. */
#ifndef USERTRACE_LTTNG_PROBES_H
#define USERTRACE_LTTNG_PROBES_H

#pragma GCC system_header

#include "fields.h"
#include "module.h"
#include "payload.h"

#ifdef __cplusplus
#include <type_traits>
#define USERTRACE_LTTNG__IS_SIGNED(type) std::is_signed<type>::value
#else
/* Excludes pointers, whose type class is 5 in GCC and Clang. */
#define USERTRACE_LTTNG__IS_SIGNED(type) \
	__builtin_choose_expr(__builtin_classify_type((type)0) == 5, 0, (type)-1 < (type)1)
#endif

#define USERTRACE_LTTNG__LABELS(provider, name) usertrace_lttng_labels_##provider##___##name
#define USERTRACE_LTTNG__FIELDS(provider, name) usertrace_lttng_fields_##provider##___##name
#define USERTRACE_LTTNG__RECORD(provider, name) usertrace_lttng_record_##provider##___##name
#define USERTRACE_LTTNG__CLASS(provider, name) usertrace_lttng_class_##provider##___##name
#define USERTRACE_LTTNG__LENGTH(array) (sizeof(array) / sizeof((array)[0]))

__attribute__((constructor(101))) static void usertrace_lttng__probes_come(void)
{
	usertrace_lttng_register(__start_usertrace_lttng_tracepoints,
				 __stop_usertrace_lttng_tracepoints, __start_usertrace_lttng_probes,
				 __stop_usertrace_lttng_probes, usertrace_lttng__pin);
}

__attribute__((destructor(101))) static void usertrace_lttng__probes_go(void)
{
	usertrace_lttng_unregister(__start_usertrace_lttng_tracepoints,
				   __start_usertrace_lttng_probes);
}

#endif

/* Passes define classes and instances; an event is one of each. */
#undef LTTNG_UST_TRACEPOINT_EVENT
#define LTTNG_UST_TRACEPOINT_EVENT(provider, name, args, fields) \
	LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, USERTRACE_LTTNG__ALL(args), \
					 USERTRACE_LTTNG__ALL(fields)) \
	LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(provider, name, provider, name, \
					    USERTRACE_LTTNG__ALL(args))
