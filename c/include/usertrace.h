/*
 * Events of programs in C and C++: declared here, written by plain stores into
 * buffers that outlive the process.
 *
 *	USERTRACE_EVENT(shop, served, INFO, (u16, status), (u64, bytes), (str, path));
 *
 *	usertrace(shop, served, 200, n, "/index.html");
 *
 * An event is declared once in each file that writes it, or in a header: the
 * linker keeps one of each name in a program or library. Arguments are evaluated
 * only if some trace wants the event; as long as none does, that is one load and
 * one branch. Events may be written in signal handlers, constructors and
 * destructors, and in libraries that come and go by dlopen() and dlclose().
 *
 * Fields are (TYPE, NAME), up to 32:
 *
 *	u8 u16 u32 u64		unsigned, decimal
 *	x8 x16 x32 x64 ptr	unsigned, hexadecimal
 *	s8 s16 s32 s64		signed
 *	f32 f64 bool
 *	u16be x16be s16be ...	in network byte order; arguments in the machine's
 *	str			const char *, ends with NUL
 *	(text, NAME)		const char *, and a size_t: UTF-8 of that length
 *	(array, TYPE, NAME, 6)	a pointer to so many; the number in decimal
 *	(sequence, TYPE, NAME)	a pointer, and a size_t
 *	(enum, u8, NAME, "Idle=0,Busy=1..3")
 *				labels of letters, digits and _ . -
 *
 * Log levels are those of syslog and LTTng: EMERG ALERT CRIT ERR WARNING NOTICE
 * INFO DEBUG_SYSTEM DEBUG_PROGRAM DEBUG_PROCESS DEBUG_MODULE DEBUG_UNIT
 * DEBUG_FUNCTION DEBUG_LINE DEBUG.
 *
 * Link with -lusertrace (pkg-config usertrace). For C11 and C++11, and later
 * ones, of GCC and Clang.
 */
#ifndef USERTRACE_H
#define USERTRACE_H

#include "usertrace/abi.h"
#include "usertrace/context.h"
#include "usertrace/fields.h"
#include "usertrace/payload.h"
#include "usertrace/probe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What became of an event: the value of usertrace(). */
enum usertrace_outcome {
	/* No trace wants it. */
	USERTRACE_OFF = 0,
	/* Each trace that wants it has it. */
	USERTRACE_RECORDED = 1,
	/* One that wants it has no room for it, and counted that. */
	USERTRACE_LOST = 2,
};

/*
 * Gets this process its buffers, which is done before main() already where there
 * are events, and follows what happened to traces. 0: it can be traced.
 */
int usertrace_init(void);

/*
 * Says whether this process can be traced and what with ("attached, kernel"), and
 * whether RLIMIT_AS leaves less room for rings; if it cannot be traced, why. The text
 * is cut where there is no room for it and its NUL; the value is its whole length.
 */
size_t usertrace_status(char *text, size_t room);

/* Tells readers to look at the buffers now. 0, or a negated errno. */
int usertrace_switch(void);

/* What this process wrote into its traces. */
struct usertrace_stats {
	uint32_t traces;
	/* Kinds of events for whose metadata there was no room. */
	uint32_t undescribed;
	uint64_t bytes;
	/* Events that were dropped. */
	uint64_t lost;
};
/* In C++, a function may be called like a type, which -Wshadow takes for a mistake. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
void usertrace_stats(struct usertrace_stats *stats);
#pragma GCC diagnostic pop

/*
 * Calls a function for each event that this process can write, with its metadata
 * as in <linux/ltt.h>, without the id, until it says something else than 0.
 */
int usertrace_each_event(int (*each)(const char *description, int enabled, void *data),
			 void *data);

/* How many declarations there were that cannot be described: too long, or with a
 * name of other characters.
 */
size_t usertrace_bad_events(void);

#define USERTRACE__LEVEL_EMERG "0"
#define USERTRACE__LEVEL_ALERT "1"
#define USERTRACE__LEVEL_CRIT "2"
#define USERTRACE__LEVEL_ERR "3"
#define USERTRACE__LEVEL_WARNING "4"
#define USERTRACE__LEVEL_NOTICE "5"
#define USERTRACE__LEVEL_INFO "6"
#define USERTRACE__LEVEL_DEBUG_SYSTEM "7"
#define USERTRACE__LEVEL_DEBUG_PROGRAM "8"
#define USERTRACE__LEVEL_DEBUG_PROCESS "9"
#define USERTRACE__LEVEL_DEBUG_MODULE "10"
#define USERTRACE__LEVEL_DEBUG_UNIT "11"
#define USERTRACE__LEVEL_DEBUG_FUNCTION "12"
#define USERTRACE__LEVEL_DEBUG_LINE "13"
#define USERTRACE__LEVEL_DEBUG "14"

#define USERTRACE__CALLSITE(provider, name) usertrace__callsite_##provider##___##name

/* Weak and hidden: one in each program or library, however many files have it. */
#define USERTRACE__DEFINE(provider, name, line) \
	__attribute__((weak, visibility("hidden"))) struct usertrace_callsite \
		USERTRACE__CALLSITE(provider, name) = { \
			0, { 0 }, 0, { 0 }, line, sizeof(line) - 1, 0, \
		}; \
	__attribute__((section("usertrace_callsites"), used)) USERTRACE__RETAIN USERTRACE__PLAIN \
	static struct usertrace_callsite *usertrace__entry_##provider##___##name = \
		&USERTRACE__CALLSITE(provider, name)

/*
 * Declares an event. Where events have no fields, USERTRACE_EVENT0. (What has no room in one piece
 * is a function of its own, so that only that has the stack for it.)
 */
#define USERTRACE_EVENT(provider, name, level, ...) \
	USERTRACE__DEFINE(provider, name, \
			  #provider ":" #name " " USERTRACE__LEVEL_##level " " \
			  USERTRACE__MAP(USERTRACE__LINE, USERTRACE__SEMICOLON, __VA_ARGS__)); \
	__attribute__((noinline, cold, unused)) static int usertrace__long_##provider##___##name( \
		USERTRACE__MAP(USERTRACE__PARAM, USERTRACE__COMMA, __VA_ARGS__)) \
	{ \
		struct usertrace_part usertrace__parts[USERTRACE__PARTS]; \
		uint64_t usertrace__scalars[USERTRACE__PARTS]; \
		struct usertrace__variable usertrace__payload = { \
			NULL, 0, true, usertrace__parts, usertrace__scalars, 0, \
		}; \
		USERTRACE__MAP(USERTRACE__PART, USERTRACE__NOTHING, __VA_ARGS__) \
		return USERTRACE__OURS(usertrace_record_parts)( \
			usertrace__parts, usertrace__payload.count, \
			&USERTRACE__CALLSITE(provider, name)); \
	} \
	__attribute__((noinline, unused)) static int usertrace__write_##provider##___##name( \
		USERTRACE__MAP(USERTRACE__PARAM, USERTRACE__COMMA, __VA_ARGS__)) \
	{ \
		if (USERTRACE__MAP(USERTRACE__FIXED, USERTRACE__AND, __VA_ARGS__)) { \
			struct usertrace__payload usertrace__payload; \
			usertrace__payload.len = 0; \
			USERTRACE__MAP(USERTRACE__PUSH, USERTRACE__NOTHING, __VA_ARGS__) \
			return usertrace__record(&USERTRACE__CALLSITE(provider, name), \
						 &usertrace__payload); \
		} else { \
			uint64_t usertrace__words[USERTRACE__ROOM / 8 + 1]; \
			struct usertrace__variable usertrace__payload = { \
				USERTRACE__CAST(char *, USERTRACE__CAST(void *, usertrace__words)), \
				USERTRACE__ROOM, false, NULL, NULL, 0, \
			}; \
			USERTRACE__MAP(USERTRACE__PART, USERTRACE__NOTHING, __VA_ARGS__) \
			if (!usertrace__payload.is_long) \
				return usertrace__record_piece( \
					&USERTRACE__CALLSITE(provider, name), \
					&usertrace__payload, usertrace__words); \
			return usertrace__long_##provider##___##name( \
				USERTRACE__MAP(USERTRACE__ARG, USERTRACE__COMMA, __VA_ARGS__)); \
		} \
	} \
	__attribute__((noinline, cold, unused)) static int usertrace__place_##provider##___##name( \
		const void *usertrace__place, \
		USERTRACE__MAP(USERTRACE__PARAM, USERTRACE__COMMA, __VA_ARGS__)) \
	{ \
		USERTRACE__OURS(usertrace_note)( \
			&USERTRACE__CALLSITE(provider, name), usertrace__place); \
		return usertrace__write_##provider##___##name( \
			USERTRACE__MAP(USERTRACE__ARG, USERTRACE__COMMA, __VA_ARGS__)); \
	} \
	struct usertrace_callsite

#define USERTRACE_EVENT0(provider, name, level) \
	USERTRACE__DEFINE(provider, name, #provider ":" #name " " USERTRACE__LEVEL_##level); \
	__attribute__((unused)) static inline int usertrace__write_##provider##___##name(void) \
	{ \
		return USERTRACE__OURS(usertrace_record_0)( \
			&USERTRACE__CALLSITE(provider, name)); \
	} \
	struct usertrace_callsite

/* Some trace wants the event, or a probe. */
#define usertrace_enabled(provider, name) \
	__builtin_expect(usertrace__mask_of(&USERTRACE__CALLSITE(provider, name)) != 0, 0)

/*
 * Writes an event. Its value is an enum usertrace_outcome. (What says where it is,
 * is a function of its own: across a call in the middle, arguments that are in
 * registers would not stay there.)
 */
#define usertrace(provider, name, ...) \
	USERTRACE__WRITE(USERTRACE__JOIN(usertrace__mask_, __COUNTER__), \
			 USERTRACE__CALLSITE(provider, name), \
			 usertrace__write_##provider##___##name, \
			 usertrace__place_##provider##___##name, __VA_ARGS__)
/* The variable has another name each time: an argument may be such a call as well (-Wshadow). */
#define USERTRACE__WRITE(mask, callsite, write, place, ...) \
	__extension__({ \
		const uint32_t mask = usertrace__mask_of(&callsite); \
		__builtin_expect(mask == 0, 1) ? USERTRACE__CAST(int, USERTRACE_OFF) : \
		__builtin_expect((mask & USERTRACE__PLACE) == 0, 1) ? write(__VA_ARGS__) : \
			place(usertrace__ip(), __VA_ARGS__); \
	})
#define usertrace0(provider, name) \
	(!usertrace_enabled(provider, name) ? USERTRACE__CAST(int, USERTRACE_OFF) : \
	 (USERTRACE__HERE(&USERTRACE__CALLSITE(provider, name)), \
	  usertrace__write_##provider##___##name()))

extern struct usertrace_callsite *__start_usertrace_callsites[]
	__attribute__((weak, visibility("hidden")));
extern struct usertrace_callsite *__stop_usertrace_callsites[]
	__attribute__((weak, visibility("hidden")));

/* Before other constructors, and after other destructors. */
__attribute__((constructor(101), unused)) static void usertrace__come(void)
{
	if (&__start_usertrace_callsites[0] != &__stop_usertrace_callsites[0])
		usertrace_register(__start_usertrace_callsites, __stop_usertrace_callsites);
}

__attribute__((destructor(101), unused)) static void usertrace__go(void)
{
	if (&__start_usertrace_callsites[0] != &__stop_usertrace_callsites[0])
		usertrace_unregister(__start_usertrace_callsites, __stop_usertrace_callsites);
}

#ifdef __cplusplus
}
#endif

#endif
