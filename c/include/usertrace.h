/*
 * Events of programs in C and C++: declared here, and written by plain stores
 * into buffers that outlive the process.
 *
 *	USERTRACE_EVENT(shop, served, INFO, (u16, status), (u64, bytes), (str, path));
 *
 *	usertrace(shop, served, 200, n, "/index.html");
 *
 * An event is declared once in each file that writes it, or in a header: the
 * linker keeps one of each name in a program or library. If no trace wants the
 * event, its cost is one load and one branch, and its arguments are not
 * evaluated. Events may be written in signal handlers, constructors and
 * destructors, and in libraries that are loaded and unloaded by dlopen() and
 * dlclose().
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

/* Outcome of an event: the value of usertrace(). */
enum usertrace_outcome {
	/* No trace wants it. */
	USERTRACE_OFF = 0,
	/* All traces that want it have it. */
	USERTRACE_RECORDED = 1,
	/* A trace that wants it had no room, and counted the loss. */
	USERTRACE_LOST = 2,
};

/*
 * Gets this process its buffers, and follows changes of traces. If the process
 * has events, this happens before main() already. Returns 0 if the process can
 * be traced.
 */
int usertrace_init(void);

/*
 * Writes a text: the process's state and back end ("attached, kernel"), a limit
 * of the rings by RLIMIT_AS, or why it cannot be traced. The text is cut to the
 * given room, which includes its NUL. Returns the whole length.
 */
size_t usertrace_status(char *text, size_t room);

/* Tells readers to read the buffers now. Returns 0, or a negated errno. */
int usertrace_switch(void);

/* What this process wrote into its traces. */
struct usertrace_stats {
	uint32_t traces;
	/* Events whose metadata found no room. */
	uint32_t undescribed;
	uint64_t bytes;
	/* Events that were dropped. */
	uint64_t lost;
};
/* In C++, a function and a type may share a name, but -Wshadow warns of it. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
void usertrace_stats(struct usertrace_stats *stats);
#pragma GCC diagnostic pop

/*
 * Calls a function for each event that this process can write, until it returns
 * another value than 0. The description is metadata as in <linux/ltt.h>,
 * without the id. Returns the function's last value.
 */
int usertrace_each_event(int (*each)(const char *description, int enabled, void *data),
			 void *data);

/*
 * Returns the number of declared events that cannot be described: too long, or
 * with invalid characters in their names.
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
 * Declares an event; USERTRACE_EVENT0 is for events without fields. (Long
 * payloads have a function of their own, so that only that needs the stack for
 * them.)
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
		USERTRACE__OURS(usertrace_note_caller)( \
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

/* Whether a trace or a probe wants the event. */
#define usertrace_enabled(provider, name) \
	__builtin_expect(usertrace__mask_of(&USERTRACE__CALLSITE(provider, name)) != 0, 0)

/*
 * Writes an event. The value is an enum usertrace_outcome. (Recording the
 * event's address is a function of its own: across a call, arguments would not
 * stay in registers.)
 */
#define usertrace(provider, name, ...) \
	USERTRACE__WRITE(USERTRACE__JOIN(usertrace__mask_, __COUNTER__), \
			 USERTRACE__CALLSITE(provider, name), \
			 usertrace__write_##provider##___##name, \
			 usertrace__place_##provider##___##name, __VA_ARGS__)
/* The variable has a unique name, as an argument may be such a call as well (-Wshadow). */
#define USERTRACE__WRITE(mask, callsite, write, place, ...) \
	__extension__({ \
		const uint32_t mask = usertrace__mask_of(&callsite); \
		__builtin_expect(mask == 0, 1) ? USERTRACE__CAST(int, USERTRACE_OFF) : \
		__builtin_expect((mask & USERTRACE__PLACE) == 0, 1) ? write(__VA_ARGS__) : \
			usertrace__returned(place(usertrace__ip(), __VA_ARGS__)); \
	})
#define usertrace0(provider, name) \
	(!usertrace_enabled(provider, name) ? USERTRACE__CAST(int, USERTRACE_OFF) : \
	 (USERTRACE__HERE(&USERTRACE__CALLSITE(provider, name)), \
	  usertrace__write_##provider##___##name()))

extern struct usertrace_callsite *__start_usertrace_callsites[]
	__attribute__((weak, visibility("hidden")));
extern struct usertrace_callsite *__stop_usertrace_callsites[]
	__attribute__((weak, visibility("hidden")));

/* Runs before other constructors, and below after other destructors. */
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
