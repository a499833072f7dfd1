/*
 * The binary interface between programs that are instrumented for LTTng-UST and
 * libusertrace.so.1.
 */
#ifndef USERTRACE_LTTNG_ABI_H
#define USERTRACE_LTTNG_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "../abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A label of an enumeration. */
struct usertrace_lttng_label {
	const char *text;
	/* Bits of an unsigned number, unless it is negative. */
	long long first;
	long long last;
	uint8_t first_is_negative;
	uint8_t last_is_negative;
	/* The value follows that of the label before, as in CTF. */
	uint8_t is_automatic;
};

enum usertrace_lttng_kind {
	USERTRACE_LTTNG_INTEGER,
	USERTRACE_LTTNG_FLOAT,
	USERTRACE_LTTNG_STRING,
	USERTRACE_LTTNG_ENUM,
	USERTRACE_LTTNG_ARRAY,
	USERTRACE_LTTNG_SEQUENCE,
	USERTRACE_LTTNG_ARRAY_TEXT,
	USERTRACE_LTTNG_SEQUENCE_TEXT,
};

struct usertrace_lttng_field {
	const char *name;
	const struct usertrace_lttng_label *labels;
	/* Number of labels, or of an array's elements. */
	size_t count;
	/* An enum usertrace_lttng_kind. */
	uint8_t kind;
	/* Bytes and format of a number, or of an element. */
	uint8_t size;
	uint8_t is_signed;
	uint8_t is_hex;
	uint8_t is_network;
};

/* Events with the same fields. */
struct usertrace_lttng_class {
	const struct usertrace_lttng_field *fields;
	size_t count;
	/* Takes the callsite, and then the arguments of TP_ARGS. */
	void (*record)(void);
};

/* An event of a provider. Without a class, it only gives an event's log level. */
struct usertrace_lttng_probe {
	const char *provider;
	const char *name;
	const struct usertrace_lttng_class *event_class;
	int level;
};

/* A tracepoint. The library finds its probe, perhaps in another module. */
struct usertrace_lttng_tracepoint {
	struct usertrace_callsite callsite;
	/* The probe's function; NULL as long as there is none. */
	void (*record)(void);
	const char *provider;
	const char *name;
	/* Makes the linker require the provider. */
	const int *link;
};

/*
 * Registers the tracepoints and probes of a program or library, unless they are
 * registered. pin() keeps the module loaded; it is called if another module
 * uses its probes.
 */
void usertrace_lttng_register(struct usertrace_lttng_tracepoint **tracepoints,
			      struct usertrace_lttng_tracepoint **tracepoints_end,
			      const struct usertrace_lttng_probe **probes,
			      const struct usertrace_lttng_probe **probes_end, void (*pin)(void));

/* Unregisters them. */
void usertrace_lttng_unregister(struct usertrace_lttng_tracepoint **tracepoints,
				const struct usertrace_lttng_probe **probes);

#ifdef __cplusplus
}
#endif

#endif
