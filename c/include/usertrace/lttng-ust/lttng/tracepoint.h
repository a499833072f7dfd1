/*
 * Tracepoints of programs that are instrumented for LTTng-UST up to 2.13: the
 * same macros, which write usertrace's events.
 *
 * As with LTTng-UST, <lttng/tracepoint-event.h> reads a provider's header
 * several times where LTTNG_UST_TRACEPOINT_CREATE_PROBES is defined. Elsewhere
 * the header declares tracepoints, and with LTTNG_UST_TRACEPOINT_DEFINE it
 * defines them.
 */
#ifndef USERTRACE_LTTNG_TRACEPOINT_H
#define USERTRACE_LTTNG_TRACEPOINT_H

/* No warnings, as in LTTng-UST's headers on a system's include path. */
#pragma GCC system_header

/* LTTng-UST's header includes this, too. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <lttng/ust-api-compat.h>

#include "../../lttng/abi.h"
#include "../../lttng/args.h"
#include "../../lttng/loglevel.h"

#if LTTNG_UST_COMPAT_API(0)
#if defined(TRACEPOINT_DEFINE) && !defined(LTTNG_UST_TRACEPOINT_DEFINE)
#define LTTNG_UST_TRACEPOINT_DEFINE
#endif
#if defined(TRACEPOINT_PROBE_DYNAMIC_LINKAGE) && \
	!defined(LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE)
#define LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
#endif
#endif

#define LTTNG_UST_TP_ARGS(...) __VA_ARGS__

#define USERTRACE_LTTNG__TRACEPOINT(provider, name) \
	usertrace_lttng_tracepoint_##provider##___##name

#define lttng_ust_tracepoint_enabled(provider, name) \
	__builtin_expect(__atomic_load_n(&USERTRACE_LTTNG__TRACEPOINT(provider, name).callsite.mask, \
					 __ATOMIC_RELAXED) != 0, 0)

#define lttng_ust_do_tracepoint(provider, name, ...) \
	usertrace_lttng_do_##provider##___##name(__VA_ARGS__)

#define lttng_ust_tracepoint(provider, name, ...) \
	do { \
		if (lttng_ust_tracepoint_enabled(provider, name)) \
			lttng_ust_do_tracepoint(provider, name, __VA_ARGS__); \
	} while (0)

/* Weak: programs whose providers are loaded later are not linked with the library. */
extern void usertrace_note(const struct usertrace_callsite *callsite, const void *place)
	__attribute__((weak));

/* Acquire pairs with the library's release store of the probe: its module is visible. */
#define USERTRACE_LTTNG__DECLARE(provider, name, ...) \
	extern struct usertrace_lttng_tracepoint USERTRACE_LTTNG__TRACEPOINT(provider, name) \
		USERTRACE_LTTNG__TRACEPOINT_VISIBILITY; \
	typedef void (*usertrace_lttng_record_of_##provider##___##name)( \
		const struct usertrace_callsite * USERTRACE_LTTNG__MORE(__VA_ARGS__)); \
	__attribute__((always_inline, unused)) static inline void \
		usertrace_lttng_do_##provider##___##name(USERTRACE_LTTNG__ONLY(__VA_ARGS__)) \
	{ \
		void (*usertrace__record)(void) = __atomic_load_n( \
			&USERTRACE_LTTNG__TRACEPOINT(provider, name).record, __ATOMIC_ACQUIRE); \
		if (usertrace_note) \
			USERTRACE__HERE(&USERTRACE_LTTNG__TRACEPOINT(provider, name).callsite); \
		if (usertrace__record) \
			((usertrace_lttng_record_of_##provider##___##name)usertrace__record)( \
				&USERTRACE_LTTNG__TRACEPOINT(provider, name).callsite \
				USERTRACE_LTTNG__NAMES(__VA_ARGS__)); \
	}

#ifdef LTTNG_UST_TRACEPOINT_DEFINE
#include "../../lttng/define.h"
#else
#define USERTRACE_LTTNG__DEFINE(provider, name)
#endif

#define USERTRACE_LTTNG__TRACEPOINT_EVENT(provider, name, args) \
	USERTRACE_LTTNG__DECLARE(provider, name, args) \
	USERTRACE_LTTNG__DEFINE(provider, name)

#include "../../lttng/declare.h"

#if LTTNG_UST_COMPAT_API(0)
#define TP_ARGS LTTNG_UST_TP_ARGS
#define TRACEPOINT_EVENT LTTNG_UST_TRACEPOINT_EVENT
#define TRACEPOINT_EVENT_CLASS LTTNG_UST_TRACEPOINT_EVENT_CLASS
#define TRACEPOINT_EVENT_INSTANCE(provider, event_class, name, args) \
	LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(provider, event_class, provider, name, \
					    USERTRACE_LTTNG__ALL(args))
#define TRACEPOINT_ENUM LTTNG_UST_TRACEPOINT_ENUM
#define TRACEPOINT_LOGLEVEL LTTNG_UST_TRACEPOINT_LOGLEVEL
#define TRACEPOINT_MODEL_EMF_URI LTTNG_UST_TRACEPOINT_MODEL_EMF_URI
/* A function-like macro, as some programs use the name for an event or a variable. */
#define tracepoint(...) lttng_ust_tracepoint(__VA_ARGS__)
#define do_tracepoint(...) lttng_ust_do_tracepoint(__VA_ARGS__)
#define tracepoint_enabled(...) lttng_ust_tracepoint_enabled(__VA_ARGS__)
#endif

#endif

/* Each provider's header may set the visibility of its tracepoints and of the provider. */
#undef USERTRACE_LTTNG__TRACEPOINT_VISIBILITY
#ifdef LTTNG_UST_TRACEPOINT_HIDDEN_DEFINITION
#define USERTRACE_LTTNG__TRACEPOINT_VISIBILITY __attribute__((visibility("hidden")))
#else
#define USERTRACE_LTTNG__TRACEPOINT_VISIBILITY __attribute__((visibility("default")))
#endif

#undef USERTRACE_LTTNG__PROVIDER_VISIBILITY
#ifdef LTTNG_UST_TRACEPOINT_PROVIDER_HIDDEN_DEFINITION
#define USERTRACE_LTTNG__PROVIDER_VISIBILITY __attribute__((visibility("hidden")))
#else
#define USERTRACE_LTTNG__PROVIDER_VISIBILITY __attribute__((visibility("default")))
#endif
