/* A provider of a program in C++, whose arguments are objects. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER test_objects

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./objects.h"

#if !defined(TEST_OBJECTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TEST_OBJECTS_H

#include <lttng/tracepoint.h>

#include <chrono>
#include <memory>
#include <string>

#define TEST_OBJECTS_ARGS \
	LTTNG_UST_TP_ARGS(std::shared_ptr<std::string>, shared, const std::chrono::nanoseconds &, time, \
			  std::string, label, const std::string &, text, bool, flag)

LTTNG_UST_TRACEPOINT_EVENT_CLASS(
	LTTNG_UST_TRACEPOINT_PROVIDER, request, TEST_OBJECTS_ARGS,
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_string(shared, shared ? shared->c_str() : "none")
		lttng_ust_field_float(double, time, static_cast<double>(time.count()))
		lttng_ust_field_string(label, label.c_str())
		lttng_ust_field_sequence_text(char, text, text.data(), size_t, text.size())
		lttng_ust_field_integer(bool, flag, flag)))
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(LTTNG_UST_TRACEPOINT_PROVIDER, request,
				    LTTNG_UST_TRACEPOINT_PROVIDER, begin, TEST_OBJECTS_ARGS)

#endif

#include <lttng/tracepoint-event.h>
