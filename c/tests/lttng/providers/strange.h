/* Events that cannot be written as declared, and large ones. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER test_strange

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./strange.h"

#if !defined(TEST_STRANGE_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TEST_STRANGE_H

#include <lttng/tracepoint.h>

#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(
	test_strange, wide, LTTNG_UST_TP_ARGS(int, n),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_float(long double, n, n)))

LTTNG_UST_TRACEPOINT_EVENT(
	test_strange, empty, LTTNG_UST_TP_ARGS(const char *, text),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_array(char, none, text, 0)))

LTTNG_UST_TRACEPOINT_ENUM(
	test_strange, narrow,
	LTTNG_UST_TP_ENUM_VALUES(
		lttng_ust_field_enum_range("low", -5, 5)
		lttng_ust_field_enum_range("high", 200, 1000)
		lttng_ust_field_enum_value("never", -1)))
LTTNG_UST_TRACEPOINT_EVENT(
	test_strange, narrow, LTTNG_UST_TP_ARGS(uint8_t, value),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_enum(test_strange, narrow, uint8_t, value, value)))

#define TEST_STRANGE_LABEL(n) \
	lttng_ust_field_enum_value("a label that takes as much room as this one does: " #n, n)
LTTNG_UST_TRACEPOINT_ENUM(
	test_strange, labels,
	LTTNG_UST_TP_ENUM_VALUES(
		TEST_STRANGE_LABEL(0)
		TEST_STRANGE_LABEL(1)
		TEST_STRANGE_LABEL(2)
		TEST_STRANGE_LABEL(3)
		TEST_STRANGE_LABEL(4)
		TEST_STRANGE_LABEL(5)
		TEST_STRANGE_LABEL(6)
		TEST_STRANGE_LABEL(7)
		TEST_STRANGE_LABEL(8)
		TEST_STRANGE_LABEL(9)
		TEST_STRANGE_LABEL(10)
		TEST_STRANGE_LABEL(11)
		TEST_STRANGE_LABEL(12)
		TEST_STRANGE_LABEL(13)
		TEST_STRANGE_LABEL(14)
		TEST_STRANGE_LABEL(15)
		TEST_STRANGE_LABEL(16)
		TEST_STRANGE_LABEL(17)
		TEST_STRANGE_LABEL(18)
		TEST_STRANGE_LABEL(19)
		TEST_STRANGE_LABEL(20)
		TEST_STRANGE_LABEL(21)
		TEST_STRANGE_LABEL(22)
		TEST_STRANGE_LABEL(23)
		TEST_STRANGE_LABEL(24)
		TEST_STRANGE_LABEL(25)
		TEST_STRANGE_LABEL(26)
		TEST_STRANGE_LABEL(27)
		TEST_STRANGE_LABEL(28)
		TEST_STRANGE_LABEL(29)
	))
LTTNG_UST_TRACEPOINT_EVENT(
	test_strange, labels, LTTNG_UST_TP_ARGS(int, value),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_enum(test_strange, labels, int, value, value)
		lttng_ust_field_integer(int, n, 7)))

/* More fields than arguments. */
LTTNG_UST_TRACEPOINT_EVENT(
	test_strange, many, LTTNG_UST_TP_ARGS(int, n),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(long, f0, n + 0)
		lttng_ust_field_integer(long, f1, n + 1)
		lttng_ust_field_integer(long, f2, n + 2)
		lttng_ust_field_integer(long, f3, n + 3)
		lttng_ust_field_integer(long, f4, n + 4)
		lttng_ust_field_integer(long, f5, n + 5)
		lttng_ust_field_integer(long, f6, n + 6)
		lttng_ust_field_integer(long, f7, n + 7)
		lttng_ust_field_integer(long, f8, n + 8)
		lttng_ust_field_integer(long, f9, n + 9)
		lttng_ust_field_integer(long, f10, n + 10)
		lttng_ust_field_integer(long, f11, n + 11)
		lttng_ust_field_integer(long, f12, n + 12)
		lttng_ust_field_integer(long, f13, n + 13)
		lttng_ust_field_integer(long, f14, n + 14)
		lttng_ust_field_integer(long, f15, n + 15)
		lttng_ust_field_integer(long, f16, n + 16)
		lttng_ust_field_integer(long, f17, n + 17)
		lttng_ust_field_integer(long, f18, n + 18)
		lttng_ust_field_integer(long, f19, n + 19)
		lttng_ust_field_integer(long, f20, n + 20)
		lttng_ust_field_integer(long, f21, n + 21)
		lttng_ust_field_integer(long, f22, n + 22)
		lttng_ust_field_integer(long, f23, n + 23)
		lttng_ust_field_integer(long, f24, n + 24)
		lttng_ust_field_integer(long, f25, n + 25)
		lttng_ust_field_integer(long, f26, n + 26)
		lttng_ust_field_integer(long, f27, n + 27)
		lttng_ust_field_integer(long, f28, n + 28)
		lttng_ust_field_integer(long, f29, n + 29)
		lttng_ust_field_integer(long, f30, n + 30)
		lttng_ust_field_integer(long, f31, n + 31)
		lttng_ust_field_integer(long, f32, n + 32)
		lttng_ust_field_integer(long, f33, n + 33)
		lttng_ust_field_integer(long, f34, n + 34)
		lttng_ust_field_integer(long, f35, n + 35)
		lttng_ust_field_integer(long, f36, n + 36)
		lttng_ust_field_integer(long, f37, n + 37)
		lttng_ust_field_integer(long, f38, n + 38)
		lttng_ust_field_integer(long, f39, n + 39)
		lttng_ust_field_integer(long, f40, n + 40)
		lttng_ust_field_integer(long, f41, n + 41)
		lttng_ust_field_integer(long, f42, n + 42)
		lttng_ust_field_integer(long, f43, n + 43)
		lttng_ust_field_integer(long, f44, n + 44)
		lttng_ust_field_integer(long, f45, n + 45)
		lttng_ust_field_integer(long, f46, n + 46)
		lttng_ust_field_integer(long, f47, n + 47)
		lttng_ust_field_integer(long, f48, n + 48)
		lttng_ust_field_integer(long, f49, n + 49)
		lttng_ust_field_integer(long, f50, n + 50)
		lttng_ust_field_integer(long, f51, n + 51)
		lttng_ust_field_integer(long, f52, n + 52)
		lttng_ust_field_integer(long, f53, n + 53)
		lttng_ust_field_integer(long, f54, n + 54)
		lttng_ust_field_integer(long, f55, n + 55)
		lttng_ust_field_integer(long, f56, n + 56)
		lttng_ust_field_integer(long, f57, n + 57)
		lttng_ust_field_integer(long, f58, n + 58)
		lttng_ust_field_integer(long, f59, n + 59)
		lttng_ust_field_integer(long, f60, n + 60)
		lttng_ust_field_integer(long, f61, n + 61)
		lttng_ust_field_integer(long, f62, n + 62)
		lttng_ust_field_integer(long, f63, n + 63)
		lttng_ust_field_integer(long, f64, n + 64)
		lttng_ust_field_integer(long, f65, n + 65)
		lttng_ust_field_integer(long, f66, n + 66)
		lttng_ust_field_integer(long, f67, n + 67)
		lttng_ust_field_integer(long, f68, n + 68)
		lttng_ust_field_integer(long, f69, n + 69)
	))

/* Texts that are shorter than declared. */
LTTNG_UST_TRACEPOINT_EVENT(
	test_strange, padded, LTTNG_UST_TP_ARGS(const char *, text),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_array_text(char, text, text, 2000)
		lttng_ust_field_sequence_text(char, rest, "r", size_t, 5000)
		lttng_ust_field_integer(int, n, 1)))

#endif

#include <lttng/tracepoint-event.h>
