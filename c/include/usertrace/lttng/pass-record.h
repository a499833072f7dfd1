/* Third pass: the functions that write the events of classes. */
#include "nothing.h"

/* A field has at most one word, if it is a number, or else three parts. */
#undef LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, args, fields) \
	__attribute__((noinline)) static void USERTRACE_LTTNG__RECORD(provider, name)( \
		const struct usertrace_callsite *usertrace__callsite \
			USERTRACE_LTTNG__MORE(args)) \
	{ \
		enum { usertrace__max = USERTRACE_LTTNG__LENGTH(USERTRACE_LTTNG__FIELDS(provider, name)) }; \
		uint64_t usertrace__words[usertrace__max] = { 0 }; \
		struct usertrace_part usertrace__parts[3 * usertrace__max]; \
		struct usertrace_lttng__payload usertrace__payload = { \
			usertrace__words, 0, usertrace__parts, 0, \
		}; \
		fields \
		usertrace_lttng__record(usertrace__callsite, &usertrace__payload); \
	} \
	__attribute__((unused)) static const struct usertrace_lttng_class \
		USERTRACE_LTTNG__CLASS(provider, name) = { \
			USERTRACE_LTTNG__FIELDS(provider, name), \
			USERTRACE_LTTNG__LENGTH(USERTRACE_LTTNG__FIELDS(provider, name)) - 1, \
			(void (*)(void))USERTRACE_LTTNG__RECORD(provider, name), \
		};

/* The program chooses the arguments' names; ours begin with usertrace__. */
#undef USERTRACE_LTTNG__INTEGER
#define USERTRACE_LTTNG__INTEGER(type, item, src, hex, network) \
	{ \
		type usertrace__value = (type)(src); \
		usertrace_lttng__number(&usertrace__payload, &usertrace__value, \
					sizeof(usertrace__value)); \
	}
#undef USERTRACE_LTTNG__FLOAT
#define USERTRACE_LTTNG__FLOAT(type, item, src) USERTRACE_LTTNG__INTEGER(type, item, src, 0, 0)
#undef USERTRACE_LTTNG__STRING
#define USERTRACE_LTTNG__STRING(item, src) \
	usertrace_lttng__string(&usertrace__payload, (const char *)(src));
#undef USERTRACE_LTTNG__ENUM
#define USERTRACE_LTTNG__ENUM(provider, name, type, item, src) \
	USERTRACE_LTTNG__INTEGER(type, item, src, 0, 0)
#undef USERTRACE_LTTNG__ARRAY
#define USERTRACE_LTTNG__ARRAY(type, item, src, length, hex, network) \
	usertrace_lttng__part(&usertrace__payload, (const void *)(src), sizeof(type) * (length));
#undef USERTRACE_LTTNG__SEQUENCE
#define USERTRACE_LTTNG__SEQUENCE(type, item, src, length, hex, network) \
	{ \
		size_t usertrace__len = \
			usertrace_lttng__count(&usertrace__payload, (size_t)(length)); \
		usertrace_lttng__part(&usertrace__payload, (const void *)(src), \
				      sizeof(type) * usertrace__len); \
	}
#undef USERTRACE_LTTNG__ARRAY_TEXT
#define USERTRACE_LTTNG__ARRAY_TEXT(type, item, src, length) \
	usertrace_lttng__text(&usertrace__payload, (const char *)(src), length);
#undef USERTRACE_LTTNG__SEQUENCE_TEXT
#define USERTRACE_LTTNG__SEQUENCE_TEXT(type, item, src, length) \
	{ \
		size_t usertrace__len = \
			usertrace_lttng__count(&usertrace__payload, (size_t)(length)); \
		usertrace_lttng__text(&usertrace__payload, (const char *)(src), usertrace__len); \
	}
#undef USERTRACE_LTTNG__UNUSED
#define USERTRACE_LTTNG__UNUSED(src) \
	if (0) \
		(void)(src);
