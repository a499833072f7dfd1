/* Assembles payloads. */
#ifndef USERTRACE_PAYLOAD_H
#define USERTRACE_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "abi.h"

#define USERTRACE__INLINE static inline __attribute__((always_inline, unused))

/*
 * A cast that -Wold-style-cast accepts in C++. With -Wuseless-cast, the types
 * must differ, so macros pass values of unknown type through one of the
 * functions below, whose parameter has a type.
 */
#ifdef __cplusplus
#define USERTRACE__CAST(type, value) static_cast<type>(value)
#else
#define USERTRACE__CAST(type, value) ((type)(value))
#endif

/* Maximum words of a payload that is passed in registers. */
#define USERTRACE__REGISTERS 5
/* Maximum words of a payload of constant length, with 32 fields. */
#define USERTRACE__WORDS 32
/* Maximum parts of 32 fields. */
#define USERTRACE__PARTS 64
/* Maximum bytes of a payload that is assembled on the stack. */
#define USERTRACE__ROOM 512

/*
 * A payload of constant length: words, filled from the low bits up. Of this and
 * the next structure, an event uses one; the compiler removes the other.
 */
struct usertrace__payload {
	uint64_t words[USERTRACE__WORDS + 1];
	size_t len;
};

/*
 * A payload of variable length. A short one is copied to one piece; a longer
 * one stays in parts. The memory belongs to the caller, so the members can be
 * in registers.
 */
struct usertrace__variable {
	/* End of the piece; NULL if the payload is in parts. */
	char *at;
	/* Bytes left in the piece. */
	size_t room;
	bool is_long;
	struct usertrace_part *parts;
	uint64_t *scalars;
	size_t count;
};

/*
 * Uses words, so that short payloads stay in registers. A word is stored as a
 * whole at its first byte: zeroing all of them before might become a call.
 */
USERTRACE__INLINE void usertrace__push(struct usertrace__payload *payload, uint64_t bits,
				       size_t size)
{
	size_t word = payload->len / 8, shift = payload->len % 8 * 8;

	if (shift)
		payload->words[word] |= bits << shift;
	else
		payload->words[word] = bits;
	if (shift + 8 * size > 64)
		payload->words[word + 1] = bits >> (64 - shift);
	payload->len += size;
}

/* Functions of the C library, see USERTRACE__BOUND. */
#ifdef __cplusplus
extern "C" {
#endif
extern void *usertrace__c_memcpy(void *to, const void *from, size_t len) __asm__("memcpy")
	USERTRACE__NOPLT;
extern size_t usertrace__c_strlen(const char *text) __asm__("strlen") USERTRACE__NOPLT;
#ifdef __cplusplus
}
#endif

USERTRACE__INLINE size_t usertrace__strlen(const char *text)
{
	if (__builtin_constant_p(__builtin_strlen(text)))
		return __builtin_strlen(text);
	return USERTRACE__BOUND(usertrace__c_strlen, "strlen")(text);
}

/* memcpy(), which is a call only if the compiler does not know the length. */
USERTRACE__INLINE void usertrace__memcpy(char *to, const void *from, size_t len)
{
	if (__builtin_constant_p(len))
		memcpy(to, from, len);
	else
		USERTRACE__BOUND(usertrace__c_memcpy, "memcpy")(to, from, len);
}

/* memcpy(); copies short texts without a call, in pieces that may overlap. */
static inline __attribute__((unused)) void usertrace__copy(char *to, const char *from, size_t len)
{
	/*
	 * Only len decides which branch runs. If GCC knows how long the text is, it warns of branches
	 * that never run for it (-Warray-bounds). So the asm hides where the pointer comes from.
	 */
	if (!__builtin_constant_p(len))
		__asm__("" : "+r"(from));
	if (len > 32) {
		usertrace__memcpy(to, from, len);
	} else if (len >= 16) {
		memcpy(to, from, 16);
		memcpy(to + len - 16, from + len - 16, 16);
	} else if (len >= 8) {
		memcpy(to, from, 8);
		memcpy(to + len - 8, from + len - 8, 8);
	} else if (len >= 4) {
		memcpy(to, from, 4);
		memcpy(to + len - 4, from + len - 4, 4);
	} else if (len) {
		to[0] = from[0];
		to[len / 2] = from[len / 2];
		to[len - 1] = from[len - 1];
	}
}

USERTRACE__INLINE void usertrace__bytes(struct usertrace__variable *payload, const void *data,
					size_t len)
{
	if (!payload->at) {
		payload->parts[payload->count].data = data;
		payload->parts[payload->count].len = len;
		payload->count++;
	} else if (len > payload->room) {
		payload->is_long = true;
	} else {
		usertrace__copy(payload->at, USERTRACE__CAST(const char *, data), len);
		payload->at += len;
		payload->room -= len;
	}
}

USERTRACE__INLINE void usertrace__scalar(struct usertrace__variable *payload, uint64_t bits,
					 size_t size)
{
	uint64_t *scalar = &payload->scalars[payload->count];

	if (!payload->at) {
		*scalar = bits;
		usertrace__bytes(payload, scalar, size);
	} else if (size > payload->room) {
		payload->is_long = true;
	} else {
		usertrace__memcpy(payload->at, &bits, size);
		payload->at += size;
		payload->room -= size;
	}
}

USERTRACE__INLINE void usertrace__sequence(struct usertrace__variable *payload, const void *data,
					   size_t count, size_t size)
{
	/* A sequence longer than a sub-buffer is lost in any case. */
	if (count > UINT32_MAX)
		count = UINT32_MAX;
	usertrace__scalar(payload, count, 4);
	usertrace__bytes(payload, data, count * size);
}

USERTRACE__INLINE void usertrace__str(struct usertrace__variable *payload, const char *text)
{
	if (!text)
		text = "(null)";
	usertrace__bytes(payload, text, usertrace__strlen(text) + 1);
}

/* Pads an assembled payload, and writes the event. */
USERTRACE__INLINE int usertrace__record_piece(const struct usertrace_callsite *callsite,
					      const struct usertrace__variable *payload,
					      const uint64_t *words)
{
	uint64_t zeros = 0;

	memcpy(payload->at, &zeros, 8);
	return USERTRACE__OURS(usertrace_record_words)(
		words, (USERTRACE__ROOM - payload->room + 7) / 8, callsite);
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

#define USERTRACE__SIGNED(bits) \
	USERTRACE__INLINE uint##bits##_t usertrace__s##bits(int##bits##_t value) \
	{ \
		return USERTRACE__CAST(uint##bits##_t, value); \
	}
USERTRACE__SIGNED(8)
USERTRACE__SIGNED(16)
USERTRACE__SIGNED(32)
USERTRACE__SIGNED(64)
#undef USERTRACE__SIGNED

/* Conversions to network byte order. */
#define USERTRACE__NETWORK(bits) \
	USERTRACE__INLINE uint##bits##_t usertrace__u##bits##be(uint##bits##_t value) \
	{ \
		return __builtin_bswap##bits(value); \
	} \
	USERTRACE__INLINE uint##bits##_t usertrace__s##bits##be(int##bits##_t value) \
	{ \
		return __builtin_bswap##bits(usertrace__s##bits(value)); \
	}
USERTRACE__NETWORK(16)
USERTRACE__NETWORK(32)
USERTRACE__NETWORK(64)
#undef USERTRACE__NETWORK

USERTRACE__INLINE uint64_t usertrace__bool(bool value)
{
	return value ? 1 : 0;
}

USERTRACE__INLINE uint64_t usertrace__ptr(const void *value)
{
#ifdef __cplusplus
	return reinterpret_cast<uintptr_t>(value);
#else
	return (uintptr_t)value;
#endif
}

/* Writes an event with a payload of len bytes, padded with zeros to words. */
USERTRACE__INLINE int usertrace__record_len(const struct usertrace_callsite *callsite,
					    const uint64_t *w, size_t len)
{
	switch ((len + 7) / 8) {
	case 0:
		return USERTRACE__OURS(usertrace_record_0)(callsite);
	case 1:
		return USERTRACE__OURS(usertrace_record_1)(w[0], callsite);
	case 2:
		return USERTRACE__OURS(usertrace_record_2)(w[0], w[1], callsite);
	case 3:
		return USERTRACE__OURS(usertrace_record_3)(w[0], w[1], w[2], callsite);
	case 4:
		return USERTRACE__OURS(usertrace_record_4)(w[0], w[1], w[2], w[3], callsite);
	case USERTRACE__REGISTERS:
		return USERTRACE__OURS(usertrace_record_5)(w[0], w[1], w[2], w[3], w[4], callsite);
	default:
		return USERTRACE__OURS(usertrace_record_words)(w, (len + 7) / 8, callsite);
	}
}

USERTRACE__INLINE int usertrace__record(const struct usertrace_callsite *callsite,
					const struct usertrace__payload *payload)
{
	return usertrace__record_len(callsite, payload->words, payload->len);
}

#endif
