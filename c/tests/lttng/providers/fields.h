/* Every kind of field, in the older spelling. */
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER test_fields

#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "./fields.h"

#if !defined(TEST_FIELDS_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define TEST_FIELDS_H

#include <lttng/tracepoint.h>

#include "sample.h"

TRACEPOINT_EVENT(TRACEPOINT_PROVIDER, none, TP_ARGS(), TP_FIELDS())

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, integers,
	TP_ARGS(const struct sample *, sample),
	TP_FIELDS(
		ctf_integer(char, c, sample->c)
		ctf_integer(signed char, sc, sample->sc)
		ctf_integer(unsigned char, uc, sample->uc)
		ctf_integer(short, s, sample->s)
		ctf_integer(unsigned short, us, sample->us)
		ctf_integer(int, i, sample->i)
		ctf_integer(unsigned int, ui, sample->ui)
		ctf_integer(long, l, sample->l)
		ctf_integer(unsigned long, ul, sample->ul)
		ctf_integer(long long, ll, sample->ll)
		ctf_integer(unsigned long long, ull, sample->ull)
		ctf_integer(size_t, size, sample->size)
		ctf_integer(bool, b, sample->b)
		ctf_integer(enum colour, colour, sample->colour)
		ctf_integer(int, _underscore, sample->i + 1)
		ctf_integer(int, int, sample->i + 2)))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, hexadecimal,
	TP_ARGS(const struct sample *, sample),
	TP_FIELDS(
		ctf_integer_hex(signed char, sc, sample->sc)
		ctf_integer_hex(int, i, sample->i)
		ctf_integer_hex(unsigned long, ul, sample->ul)
		ctf_integer_hex(const void *, pointer, sample->pointer)))

/* Arguments are in network byte order. */
TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, network,
	TP_ARGS(uint16_t, port, uint32_t, address, uint64_t, cookie, int32_t, offset, uint8_t, ttl),
	TP_FIELDS(
		ctf_integer_network(uint16_t, port, port)
		ctf_integer_network_hex(uint32_t, address, address)
		ctf_integer_network(uint64_t, cookie, cookie)
		ctf_integer_network(int32_t, offset, offset)
		ctf_integer_network_hex(int32_t, offset_hex, offset)
		ctf_integer_network(uint8_t, ttl, ttl)))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, floats,
	TP_ARGS(const struct sample *, sample),
	TP_FIELDS(
		ctf_float(float, f, sample->f)
		ctf_float(double, d, sample->d)
		ctf_float(double, from_int, sample->i)))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, strings,
	TP_ARGS(const char *, text, const char *, none),
	TP_FIELDS(
		ctf_string(text, text)
		ctf_string(none, none)
		ctf_string(literal, "literal")
		ctf_string(empty, "")))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, arrays,
	TP_ARGS(const struct sample *, sample),
	TP_FIELDS(
		ctf_array(int16_t, grid, sample->grid, 6)
		ctf_array(int16_t, row, sample->grid[1], 3)
		ctf_array_hex(int16_t, grid_hex, sample->grid, 6)
		ctf_array_network(uint32_t, addresses, sample->addresses, 2)
		ctf_array_network_hex(uint32_t, addresses_hex, sample->addresses, 2)
		ctf_array(char, code, sample->code, 4)
		ctf_array_text(char, code_text, sample->code, 4)
		ctf_array_text(char, short_text, "ab", 8)))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, sequences,
	TP_ARGS(const struct sample *, sample, size_t, count),
	TP_FIELDS(
		ctf_sequence(int16_t, row, sample->grid[0], size_t, count)
		ctf_sequence_hex(int16_t, row_hex, sample->grid[1], uint8_t, count)
		ctf_sequence_network(uint32_t, addresses, sample->addresses, uint16_t, count % 3)
		ctf_sequence_network_hex(uint32_t, addresses_hex, sample->addresses, unsigned long, 1)
		ctf_sequence_text(char, code, sample->code, unsigned int, sizeof(sample->code))
		ctf_sequence_text(char, name, sample->name, size_t, count)))

TRACEPOINT_ENUM(
	test_fields, colour,
	TP_ENUM_VALUES(
		ctf_enum_value("red", RED)
		ctf_enum_auto("green")
		ctf_enum_range("some, \"others\"", 2, 6)
		ctf_enum_auto("blue = 7")
		ctf_enum_value("also blue", BLUE)))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, enumerations,
	TP_ARGS(int, value),
	TP_FIELDS(
		ctf_enum(test_fields, colour, int, as_int, value)
		ctf_enum(test_fields, colour, long long, as_long, value + 1)))

/* LTTng-UST's header does not compile this as C++. */
#ifndef __cplusplus
TRACEPOINT_ENUM(
	test_fields, sign,
	TP_ENUM_VALUES(
		ctf_enum_range("negative", -9, -1)
		ctf_enum_value("nothing", 0)))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, negative,
	TP_ARGS(int, value),
	TP_FIELDS(ctf_enum(test_fields, sign, int, value, value)))
#endif

TRACEPOINT_EVENT_CLASS(
	TRACEPOINT_PROVIDER, template,
	TP_ARGS(int, n, const char *, text),
	TP_FIELDS(ctf_integer(int, n, n) ctf_string(text, text)))
TRACEPOINT_EVENT_INSTANCE(TRACEPOINT_PROVIDER, template, instance,
			  TP_ARGS(int, n, const char *, text))
TRACEPOINT_LOGLEVEL(test_fields, instance, TRACE_CRIT)

/* Fields that are not written. */
TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, unwritten,
	TP_ARGS(const struct sample *, sample, int, unused),
	TP_FIELDS(
		ctf_unused(unused)
		ctf_unused_nowrite(unused)
		ctf_integer_nowrite(int, i, sample->i)
		ctf_float_nowrite(double, d, sample->d)
		ctf_array_nowrite(int16_t, a1, sample->grid, 6)
		ctf_array_nowrite_hex(int16_t, a2, sample->grid, 6)
		ctf_array_network_nowrite(int16_t, a3, sample->grid, 6)
		ctf_array_network_nowrite_hex(int16_t, a4, sample->grid, 6)
		ctf_array_text_nowrite(char, a5, sample->code, 4)
		ctf_integer(int, written, unused)
		ctf_sequence_nowrite(int16_t, s1, sample->grid, size_t, 6)
		ctf_sequence_nowrite_hex(int16_t, s2, sample->grid, size_t, 6)
		ctf_sequence_network_nowrite(int16_t, s3, sample->grid, size_t, 6)
		ctf_sequence_network_nowrite_hex(int16_t, s4, sample->grid, size_t, 6)
		ctf_sequence_text_nowrite(char, s5, sample->code, size_t, 4)
		ctf_string_nowrite(name, sample->name)
		ctf_enum_nowrite(test_fields, colour, int, colour, unused)))

TRACEPOINT_EVENT(
	TRACEPOINT_PROVIDER, ten,
	TP_ARGS(int, a, int, b, int, c, int, d, int, e, int, f, int, g, int, h, int, i, const char *, j),
	TP_FIELDS(
		ctf_integer(int, a, a) ctf_integer(int, b, b) ctf_integer(int, c, c)
		ctf_integer(int, d, d) ctf_integer(int, e, e) ctf_integer(int, f, f)
		ctf_integer(int, g, g) ctf_integer(int, h, h) ctf_integer(int, i, i)
		ctf_string(j, j)))

#endif

#include <lttng/tracepoint-event.h>
