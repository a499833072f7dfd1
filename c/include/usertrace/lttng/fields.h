/* The fields of TP_FIELDS(), in both spellings, by macros that each pass redefines. */
#ifndef USERTRACE_LTTNG_FIELDS_H
#define USERTRACE_LTTNG_FIELDS_H

#define LTTNG_UST_TP_FIELDS(...) __VA_ARGS__
#define LTTNG_UST_TP_ENUM_VALUES(...) __VA_ARGS__

#define lttng_ust_field_integer(type, item, src) USERTRACE_LTTNG__INTEGER(type, item, src, 0, 0)
#define lttng_ust_field_integer_hex(type, item, src) USERTRACE_LTTNG__INTEGER(type, item, src, 1, 0)
#define lttng_ust_field_integer_network(type, item, src) \
	USERTRACE_LTTNG__INTEGER(type, item, src, 0, 1)
#define lttng_ust_field_integer_network_hex(type, item, src) \
	USERTRACE_LTTNG__INTEGER(type, item, src, 1, 1)
#define lttng_ust_field_float(type, item, src) USERTRACE_LTTNG__FLOAT(type, item, src)
#define lttng_ust_field_array(type, item, src, length) \
	USERTRACE_LTTNG__ARRAY(type, item, src, length, 0, 0)
#define lttng_ust_field_array_hex(type, item, src, length) \
	USERTRACE_LTTNG__ARRAY(type, item, src, length, 1, 0)
#define lttng_ust_field_array_network(type, item, src, length) \
	USERTRACE_LTTNG__ARRAY(type, item, src, length, 0, 1)
#define lttng_ust_field_array_network_hex(type, item, src, length) \
	USERTRACE_LTTNG__ARRAY(type, item, src, length, 1, 1)
#define lttng_ust_field_array_text(type, item, src, length) \
	USERTRACE_LTTNG__ARRAY_TEXT(type, item, src, length)
#define lttng_ust_field_sequence(type, item, src, length_type, length) \
	USERTRACE_LTTNG__SEQUENCE(type, item, src, length, 0, 0)
#define lttng_ust_field_sequence_hex(type, item, src, length_type, length) \
	USERTRACE_LTTNG__SEQUENCE(type, item, src, length, 1, 0)
#define lttng_ust_field_sequence_network(type, item, src, length_type, length) \
	USERTRACE_LTTNG__SEQUENCE(type, item, src, length, 0, 1)
#define lttng_ust_field_sequence_network_hex(type, item, src, length_type, length) \
	USERTRACE_LTTNG__SEQUENCE(type, item, src, length, 1, 1)
#define lttng_ust_field_sequence_text(type, item, src, length_type, length) \
	USERTRACE_LTTNG__SEQUENCE_TEXT(type, item, src, length)
#define lttng_ust_field_string(item, src) USERTRACE_LTTNG__STRING(item, src)
#define lttng_ust_field_enum(provider, name, type, item, src) \
	USERTRACE_LTTNG__ENUM(provider, name, type, item, src)

/* These fields are not in traces. */
#define lttng_ust_field_unused(src) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_unused_nowrite(src) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_integer_nowrite(type, item, src) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_float_nowrite(type, item, src) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_array_nowrite(type, item, src, length) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_array_nowrite_hex(type, item, src, length) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_array_network_nowrite(type, item, src, length) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_array_network_nowrite_hex(type, item, src, length) \
	USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_array_text_nowrite(type, item, src, length) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_sequence_nowrite(type, item, src, length_type, length) \
	USERTRACE_LTTNG__UNUSED(src) USERTRACE_LTTNG__UNUSED(length)
#define lttng_ust_field_sequence_nowrite_hex(type, item, src, length_type, length) \
	USERTRACE_LTTNG__UNUSED(src) USERTRACE_LTTNG__UNUSED(length)
#define lttng_ust_field_sequence_network_nowrite(type, item, src, length_type, length) \
	USERTRACE_LTTNG__UNUSED(src) USERTRACE_LTTNG__UNUSED(length)
#define lttng_ust_field_sequence_network_nowrite_hex(type, item, src, length_type, length) \
	USERTRACE_LTTNG__UNUSED(src) USERTRACE_LTTNG__UNUSED(length)
#define lttng_ust_field_sequence_text_nowrite(type, item, src, length_type, length) \
	USERTRACE_LTTNG__UNUSED(src) USERTRACE_LTTNG__UNUSED(length)
#define lttng_ust_field_string_nowrite(item, src) USERTRACE_LTTNG__UNUSED(src)
#define lttng_ust_field_enum_nowrite(provider, name, type, item, src) USERTRACE_LTTNG__UNUSED(src)

/* The arguments of TP_ENUM_VALUES(). */
#define lttng_ust_field_enum_value(text, value) USERTRACE_LTTNG__LABEL(text, value, value, 0)
#define lttng_ust_field_enum_range(text, first, last) USERTRACE_LTTNG__LABEL(text, first, last, 0)
#define lttng_ust_field_enum_auto(text) USERTRACE_LTTNG__LABEL(text, 0, 0, 1)

#if LTTNG_UST_COMPAT_API(0)
#define TP_FIELDS LTTNG_UST_TP_FIELDS
#define TP_ENUM_VALUES LTTNG_UST_TP_ENUM_VALUES
#define ctf_integer lttng_ust_field_integer
#define ctf_integer_hex lttng_ust_field_integer_hex
#define ctf_integer_network lttng_ust_field_integer_network
#define ctf_integer_network_hex lttng_ust_field_integer_network_hex
#define ctf_float lttng_ust_field_float
#define ctf_array lttng_ust_field_array
#define ctf_array_hex lttng_ust_field_array_hex
#define ctf_array_network lttng_ust_field_array_network
#define ctf_array_network_hex lttng_ust_field_array_network_hex
#define ctf_array_text lttng_ust_field_array_text
#define ctf_sequence lttng_ust_field_sequence
#define ctf_sequence_hex lttng_ust_field_sequence_hex
#define ctf_sequence_network lttng_ust_field_sequence_network
#define ctf_sequence_network_hex lttng_ust_field_sequence_network_hex
#define ctf_sequence_text lttng_ust_field_sequence_text
#define ctf_string lttng_ust_field_string
#define ctf_enum lttng_ust_field_enum
#define ctf_unused lttng_ust_field_unused
#define ctf_unused_nowrite lttng_ust_field_unused_nowrite
#define ctf_integer_nowrite lttng_ust_field_integer_nowrite
#define ctf_float_nowrite lttng_ust_field_float_nowrite
#define ctf_array_nowrite lttng_ust_field_array_nowrite
#define ctf_array_nowrite_hex lttng_ust_field_array_nowrite_hex
#define ctf_array_network_nowrite lttng_ust_field_array_network_nowrite
#define ctf_array_network_nowrite_hex lttng_ust_field_array_network_nowrite_hex
#define ctf_array_text_nowrite lttng_ust_field_array_text_nowrite
#define ctf_sequence_nowrite lttng_ust_field_sequence_nowrite
#define ctf_sequence_nowrite_hex lttng_ust_field_sequence_nowrite_hex
#define ctf_sequence_network_nowrite lttng_ust_field_sequence_network_nowrite
#define ctf_sequence_network_nowrite_hex lttng_ust_field_sequence_network_nowrite_hex
#define ctf_sequence_text_nowrite lttng_ust_field_sequence_text_nowrite
#define ctf_string_nowrite lttng_ust_field_string_nowrite
#define ctf_enum_nowrite lttng_ust_field_enum_nowrite
#define ctf_enum_value lttng_ust_field_enum_value
#define ctf_enum_range lttng_ust_field_enum_range
#define ctf_enum_auto lttng_ust_field_enum_auto
#endif

#endif
