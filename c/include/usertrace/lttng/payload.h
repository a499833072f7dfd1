/* Assembles the payload of an event. */
#ifndef USERTRACE_LTTNG_PAYLOAD_H
#define USERTRACE_LTTNG_PAYLOAD_H

#include <string.h>

#include "../payload.h"

/* Numbers are copied to words, in order; other parts stay in place. */
struct usertrace_lttng__payload {
	uint64_t *words;
	size_t len;
	struct usertrace_part *parts;
	size_t count;
};

USERTRACE__INLINE void usertrace_lttng__part(struct usertrace_lttng__payload *payload,
					     const void *data, size_t len)
{
	payload->parts[payload->count].data = data;
	payload->parts[payload->count].len = len;
	payload->count++;
}

USERTRACE__INLINE void usertrace_lttng__number(struct usertrace_lttng__payload *payload,
					       const void *value, size_t size)
{
	char *at = (char *)payload->words + payload->len;
	struct usertrace_part *last = payload->parts + payload->count - 1;

	usertrace__memcpy(at, value, size);
	payload->len += size;
	if (payload->count && (const char *)last->data + last->len == at)
		last->len += size;
	else
		usertrace_lttng__part(payload, at, size);
}

USERTRACE__INLINE void usertrace_lttng__string(struct usertrace_lttng__payload *payload,
					       const char *text)
{
	if (!text)
		text = "(null)";
	usertrace_lttng__part(payload, text, usertrace__strlen(text) + 1);
}

/* Functions of the C library, see USERTRACE__BOUND. */
#ifdef __cplusplus
extern "C" {
#endif
extern void *usertrace_lttng__c_memchr(const void *bytes, int byte, size_t len) __asm__("memchr")
	USERTRACE__NOPLT;
#ifdef __cplusplus
}
#endif

/* Adds a text of a fixed number of bytes. Bytes after a NUL are not read. */
USERTRACE__INLINE void usertrace_lttng__text(struct usertrace_lttng__payload *payload,
					     const char *text, size_t len)
{
	const char *end;
	size_t used;

	/* Hide the array's size from the compiler: a shorter one is allowed. */
	__asm__("" : "+r"(text));
	end = len ? (const char *)USERTRACE__BOUND(usertrace_lttng__c_memchr, "memchr")(
			    text, 0, len) : NULL;
	used = end ? (size_t)(end - text) : len;
	usertrace_lttng__part(payload, text, used);
	usertrace_lttng__part(payload, NULL, len - used);
}

USERTRACE__INLINE uint32_t usertrace_lttng__count(struct usertrace_lttng__payload *payload,
						  size_t count)
{
	/* A sequence longer than a sub-buffer is lost in any case. */
	uint32_t written = count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;

	usertrace_lttng__number(payload, &written, sizeof(written));
	return written;
}

USERTRACE__INLINE void usertrace_lttng__record(const struct usertrace_callsite *callsite,
					       const struct usertrace_lttng__payload *payload)
{
	if (!payload->count ||
	    (payload->count == 1 && payload->parts[0].data == (const void *)payload->words))
		usertrace__record_len(callsite, payload->words, payload->len);
	else
		USERTRACE__OURS(usertrace_record_parts)(
			payload->parts, payload->count, callsite);
}

#endif
