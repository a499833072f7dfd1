/* Classes, instances, log levels and enumerations, in the newer spelling. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER test_classes

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./classes.h"

#if !defined(TEST_CLASSES_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TEST_CLASSES_H

#include <lttng/tracepoint.h>

#include "sample.h"

LTTNG_UST_TRACEPOINT_ENUM(
	test_classes, state,
	LTTNG_UST_TP_ENUM_VALUES(
		lttng_ust_field_enum_auto("Idle")
		lttng_ust_field_enum_value("Busy", 1)
		lttng_ust_field_enum_range("Broken", 2, 255)))

LTTNG_UST_TRACEPOINT_EVENT_CLASS(
	test_classes, request,
	LTTNG_UST_TP_ARGS(const char *, path, uint8_t, state, size_t, len, const uint16_t *, sizes),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_string(path, path)
		lttng_ust_field_enum(test_classes, state, uint8_t, state, state)
		lttng_ust_field_integer(int, len, len)
		lttng_ust_field_sequence(uint16_t, sizes, sizes, size_t, len)))

#define TEST_CLASSES_REQUEST(name, level) \
	LTTNG_UST_TRACEPOINT_EVENT_INSTANCE( \
		test_classes, request, test_classes, name, \
		LTTNG_UST_TP_ARGS(const char *, path, uint8_t, state, size_t, len, const uint16_t *, sizes)) \
	LTTNG_UST_TRACEPOINT_LOGLEVEL(test_classes, name, LTTNG_UST_TRACEPOINT_LOGLEVEL_##level)

TEST_CLASSES_REQUEST(emerg, EMERG)
TEST_CLASSES_REQUEST(alert, ALERT)
TEST_CLASSES_REQUEST(crit, CRIT)
TEST_CLASSES_REQUEST(err, ERR)
TEST_CLASSES_REQUEST(warning, WARNING)
TEST_CLASSES_REQUEST(notice, NOTICE)
TEST_CLASSES_REQUEST(info, INFO)
TEST_CLASSES_REQUEST(debug_system, DEBUG_SYSTEM)
TEST_CLASSES_REQUEST(debug_program, DEBUG_PROGRAM)
TEST_CLASSES_REQUEST(debug_process, DEBUG_PROCESS)
TEST_CLASSES_REQUEST(debug_module, DEBUG_MODULE)
TEST_CLASSES_REQUEST(debug_unit, DEBUG_UNIT)
TEST_CLASSES_REQUEST(debug_function, DEBUG_FUNCTION)
TEST_CLASSES_REQUEST(debug_line, DEBUG_LINE)
TEST_CLASSES_REQUEST(debug, DEBUG)

LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(
	test_classes, request, test_classes, unsaid,
	LTTNG_UST_TP_ARGS(const char *, path, uint8_t, state, size_t, len, const uint16_t *, sizes))

/* An event is also a class. Its log level may come first. */
LTTNG_UST_TRACEPOINT_LOGLEVEL(test_classes, first, LTTNG_UST_TRACEPOINT_LOGLEVEL_WARNING)
LTTNG_UST_TRACEPOINT_EVENT(
	test_classes, first, LTTNG_UST_TP_ARGS(int, n),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(int, n, n)))
LTTNG_UST_TRACEPOINT_MODEL_EMF_URI(test_classes, first, "http://example.com/model")
LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(test_classes, first, test_classes, second,
				    LTTNG_UST_TP_ARGS(int, n))

#endif

#include <lttng/tracepoint-event.h>
