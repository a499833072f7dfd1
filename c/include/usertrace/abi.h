/*
 * The binary interface of libusertrace.so.1, for the macros of headers.
 * Programs call the functions of <usertrace.h>.
 */
#ifndef USERTRACE_ABI_H
#define USERTRACE_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An event: the library's state in one cache line, and its metadata as in
 * <linux/ltt.h>, without the id. The initial value is zeros and the description.
 */
struct usertrace_callsite {
	uint64_t route;
	uint16_t ids[16];
	/* Other than 0 if a trace or probe wants the event. */
	uint32_t mask;
	uint8_t channels[16];
	const char *description;
	size_t description_len;
	uint64_t probes;
} __attribute__((aligned(64)));

/* A part of a payload. If data is NULL, it is zeros. */
struct usertrace_part {
	const void *data;
	size_t len;
};

/*
 * The section "usertrace_callsites" of each program and library has pointers to
 * its call sites.
 */
void usertrace_register(struct usertrace_callsite **start, struct usertrace_callsite **stop);
void usertrace_unregister(struct usertrace_callsite **start, struct usertrace_callsite **stop);

/* A bit of the mask: a trace wants the address of the event in the program. */
#define USERTRACE__PLACE 0x20000000

/*
 * The dynamic linker binds the functions that events call before the program runs: events call them
 * through the global offset table, not through the procedure linkage table. Lazy binding would save
 * all registers of the processor on the stack. If the first event is in a signal handler, its
 * alternate stack of SIGSTKSZ bytes may have no room for them. A call through the global offset
 * table also saves a jump.
 */
#if defined(__has_attribute)
#if __has_attribute(noplt)
#define USERTRACE__NOPLT __attribute__((noplt))
#endif
#endif
#if defined(USERTRACE__NOPLT)
#define USERTRACE__BOUND(function, symbol) function
#else
#define USERTRACE__NOPLT
#if defined(__x86_64__)
#define USERTRACE__FIND(address, symbol) \
	__asm__("movq " symbol "@GOTPCREL(%%rip), %0" : "=r"(address))
#elif defined(__aarch64__)
#define USERTRACE__FIND(address, symbol) \
	__asm__("adrp %0, :got:" symbol "\n\tldr %0, [%0, :got_lo12:" symbol "]" : "=r"(address))
#endif
#if defined(USERTRACE__FIND)
#define USERTRACE__BOUND(function, symbol) \
	(__extension__({ \
		__typeof__(&function) usertrace__address; \
		USERTRACE__FIND(usertrace__address, symbol); \
		usertrace__address; \
	}))
#else
#define USERTRACE__BOUND(function, symbol) function
#endif
#endif

#define USERTRACE__OURS(function) USERTRACE__BOUND(function, #function)

/* Sets the address of the event that follows. */
void usertrace_note(const struct usertrace_callsite *callsite, const void *place) USERTRACE__NOPLT;

/* The same, if the place is in the function that called the caller. */
void usertrace_note_caller(const struct usertrace_callsite *callsite,
			   const void *place) USERTRACE__NOPLT;

/* An address in the function that it is inlined into. */
__attribute__((always_inline, unused)) static inline const void *usertrace__ip(void)
{
	const void *ip;

#if defined(__x86_64__)
	__asm__("lea 0(%%rip), %0" : "=r"(ip));
#elif defined(__aarch64__)
	__asm__("adr %0, ." : "=r"(ip));
#else
	ip = 0;
#endif
	return ip;
}

/* Keeps the call that has this outcome from being the caller's last jump. */
__attribute__((always_inline, unused)) static inline int usertrace__returned(int outcome)
{
	__asm__ volatile("" : "+r"(outcome));
	return outcome;
}

__attribute__((always_inline, unused)) static inline uint32_t usertrace__mask_of(
	const struct usertrace_callsite *callsite)
{
	return __atomic_load_n(&callsite->mask, __ATOMIC_RELAXED);
}

#define USERTRACE__HERE(callsite) \
	((void)(__builtin_expect((usertrace__mask_of(callsite) & USERTRACE__PLACE) != 0, 0) && \
		(USERTRACE__OURS(usertrace_note)(callsite, usertrace__ip()), 1)))

/* Keeps the linker from dropping data that only its section refers to. */
#if defined(__has_attribute)
#if __has_attribute(retain)
#define USERTRACE__RETAIN __attribute__((retain))
#endif
#endif
#ifndef USERTRACE__RETAIN
#define USERTRACE__RETAIN
#endif

/* Keeps a sanitizer from padding the entries of the section. */
#if defined(__clang__)
#define USERTRACE__PLAIN __attribute__((no_sanitize("address")))
#else
#define USERTRACE__PLAIN
#endif

/*
 * Write payloads of a fixed number of words, padded with zeros. The callsite
 * comes last, so that the headers' functions pass their own arguments on in
 * place.
 */
int usertrace_record_0(const struct usertrace_callsite *callsite) USERTRACE__NOPLT;
int usertrace_record_1(uint64_t a, const struct usertrace_callsite *callsite) USERTRACE__NOPLT;
int usertrace_record_2(uint64_t a, uint64_t b, const struct usertrace_callsite *callsite)
	USERTRACE__NOPLT;
int usertrace_record_3(uint64_t a, uint64_t b, uint64_t c,
		       const struct usertrace_callsite *callsite) USERTRACE__NOPLT;
int usertrace_record_4(uint64_t a, uint64_t b, uint64_t c, uint64_t d,
		       const struct usertrace_callsite *callsite) USERTRACE__NOPLT;
int usertrace_record_5(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
		       const struct usertrace_callsite *callsite) USERTRACE__NOPLT;
int usertrace_record_words(const uint64_t *words, size_t count,
			   const struct usertrace_callsite *callsite) USERTRACE__NOPLT;

/* Writes a payload that consists of parts. */
int usertrace_record_parts(const struct usertrace_part *parts, size_t count,
			   const struct usertrace_callsite *callsite) USERTRACE__NOPLT;

#ifdef __cplusplus
}
#endif

#endif
