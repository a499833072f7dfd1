/* How a payload is put together. */
#ifndef USERTRACE_PAYLOAD_H
#define USERTRACE_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"

#define USERTRACE__INLINE static inline __attribute__((always_inline, unused))

/* Words of a payload that is passed on in registers. */
#define USERTRACE__REGISTERS 5
/* Of one whose length is a constant: as many as 32 fields can have. */
#define USERTRACE__WORDS 32
/* As many as 32 fields can have. */
#define USERTRACE__PARTS 64

/*
 * Either words that grow from the low bits up, or parts. Only one of them is
 * used, and the compiler leaves the other one out.
 */
struct usertrace__payload {
	uint64_t words[USERTRACE__WORDS + 1];
	size_t len;
};

struct usertrace__parts {
	struct usertrace_part parts[USERTRACE__PARTS];
	uint64_t scalars[USERTRACE__PARTS];
	size_t count;
};

/* In words, so that short payloads stay in registers. */
USERTRACE__INLINE void usertrace__push(struct usertrace__payload *payload, uint64_t bits,
				       size_t size)
{
	size_t word = payload->len / 8, shift = payload->len % 8 * 8;

	payload->words[word] |= bits << shift;
	if (shift + 8 * size > 64)
		payload->words[word + 1] |= bits >> (64 - shift);
	payload->len += size;
}

USERTRACE__INLINE void usertrace__bytes(struct usertrace__parts *payload, const void *data,
					size_t len)
{
	payload->parts[payload->count].data = data;
	payload->parts[payload->count].len = len;
	payload->count++;
}

USERTRACE__INLINE void usertrace__scalar(struct usertrace__parts *payload, uint64_t bits,
					 size_t size)
{
	uint64_t *scalar = &payload->scalars[payload->count];

	*scalar = bits;
	usertrace__bytes(payload, scalar, size);
}

USERTRACE__INLINE void usertrace__sequence(struct usertrace__parts *payload, const void *data,
					   size_t count, size_t size)
{
	/* One that is longer than a sub-buffer is lost, whatever it is. */
	if (count > UINT32_MAX)
		count = UINT32_MAX;
	usertrace__scalar(payload, count, 4);
	usertrace__bytes(payload, data, count * size);
}

USERTRACE__INLINE void usertrace__str(struct usertrace__parts *payload, const char *text)
{
	if (!text)
		text = "(null)";
	usertrace__bytes(payload, text, strlen(text) + 1);
}

USERTRACE__INLINE uint64_t usertrace__f32(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

USERTRACE__INLINE uint64_t usertrace__f64(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "usertrace writes the bytes of little-endian machines"
#endif
#define usertrace__be16(value) __builtin_bswap16(value)
#define usertrace__be32(value) __builtin_bswap32(value)
#define usertrace__be64(value) __builtin_bswap64(value)

/* A payload of so many bytes, which is padded with zeros to words. */
USERTRACE__INLINE int usertrace__record_len(const struct usertrace_callsite *callsite,
					    const uint64_t *w, size_t len)
{
	switch ((len + 7) / 8) {
	case 0:
		return usertrace_record_0(callsite);
	case 1:
		return usertrace_record_1(callsite, w[0]);
	case 2:
		return usertrace_record_2(callsite, w[0], w[1]);
	case 3:
		return usertrace_record_3(callsite, w[0], w[1], w[2]);
	case 4:
		return usertrace_record_4(callsite, w[0], w[1], w[2], w[3]);
	case USERTRACE__REGISTERS:
		return usertrace_record_5(callsite, w[0], w[1], w[2], w[3], w[4]);
	default:
		return usertrace_record_words(callsite, w, (len + 7) / 8);
	}
}

USERTRACE__INLINE int usertrace__record(const struct usertrace_callsite *callsite,
					const struct usertrace__payload *payload)
{
	return usertrace__record_len(callsite, payload->words, payload->len);
}

#endif
