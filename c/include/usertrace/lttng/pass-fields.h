/* Second pass: tables of the fields of classes, which end with an empty one. */
#include "nothing.h"

#undef LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define LTTNG_UST_TRACEPOINT_EVENT_CLASS(provider, name, args, fields) \
	static const struct usertrace_lttng_field USERTRACE_LTTNG__FIELDS(provider, name)[] = { \
		fields { NULL, NULL, 0, 0, 0, 0, 0, 0 } \
	};

#undef USERTRACE_LTTNG__FIELD
#define USERTRACE_LTTNG__FIELD(kind, type, item, labels, count, hex, network) \
	{ #item, labels, count, USERTRACE_LTTNG_##kind, sizeof(type), \
	  USERTRACE_LTTNG__IS_SIGNED(type), hex, network },

#undef USERTRACE_LTTNG__INTEGER
#define USERTRACE_LTTNG__INTEGER(type, item, src, hex, network) \
	USERTRACE_LTTNG__FIELD(INTEGER, type, item, NULL, 0, hex, network)
#undef USERTRACE_LTTNG__FLOAT
#define USERTRACE_LTTNG__FLOAT(type, item, src) \
	USERTRACE_LTTNG__FIELD(FLOAT, type, item, NULL, 0, 0, 0)
#undef USERTRACE_LTTNG__STRING
#define USERTRACE_LTTNG__STRING(item, src) USERTRACE_LTTNG__FIELD(STRING, char, item, NULL, 0, 0, 0)
#undef USERTRACE_LTTNG__ENUM
#define USERTRACE_LTTNG__ENUM(provider, name, type, item, src) \
	USERTRACE_LTTNG__FIELD(ENUM, type, item, USERTRACE_LTTNG__LABELS(provider, name), \
			       USERTRACE_LTTNG__LENGTH(USERTRACE_LTTNG__LABELS(provider, name)) - 1, \
			       0, 0)
#undef USERTRACE_LTTNG__ARRAY
#define USERTRACE_LTTNG__ARRAY(type, item, src, length, hex, network) \
	USERTRACE_LTTNG__FIELD(ARRAY, type, item, NULL, length, hex, network)
#undef USERTRACE_LTTNG__SEQUENCE
#define USERTRACE_LTTNG__SEQUENCE(type, item, src, length, hex, network) \
	USERTRACE_LTTNG__FIELD(SEQUENCE, type, item, NULL, 0, hex, network)
#undef USERTRACE_LTTNG__ARRAY_TEXT
#define USERTRACE_LTTNG__ARRAY_TEXT(type, item, src, length) \
	USERTRACE_LTTNG__FIELD(ARRAY_TEXT, type, item, NULL, length, 0, 0)
#undef USERTRACE_LTTNG__SEQUENCE_TEXT
#define USERTRACE_LTTNG__SEQUENCE_TEXT(type, item, src, length) \
	USERTRACE_LTTNG__FIELD(SEQUENCE_TEXT, type, item, NULL, 0, 0, 0)
#undef USERTRACE_LTTNG__UNUSED
#define USERTRACE_LTTNG__UNUSED(src)
