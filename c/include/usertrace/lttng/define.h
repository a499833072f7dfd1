/* Defines tracepoints. */
#ifndef USERTRACE_LTTNG_DEFINE_H
#define USERTRACE_LTTNG_DEFINE_H

#include "module.h"

#ifdef LTTNG_UST_TRACEPOINT_PROBE_DYNAMIC_LINKAGE
#define USERTRACE_LTTNG__LINK(provider) NULL
#else
#define USERTRACE_LTTNG__LINK(provider) &usertrace_lttng_provider_##provider
#endif

#define USERTRACE_LTTNG__DEFINE(provider, name) \
	extern int usertrace_lttng_provider_##provider USERTRACE_LTTNG__PROVIDER_VISIBILITY; \
	struct usertrace_lttng_tracepoint USERTRACE_LTTNG__TRACEPOINT(provider, name) \
		USERTRACE_LTTNG__TRACEPOINT_VISIBILITY = { \
			{ 0, { 0 }, 0, { 0 }, NULL, 0, 0 }, NULL, #provider, #name, \
			USERTRACE_LTTNG__LINK(provider), \
		}; \
	__attribute__((section("usertrace_lttng_tracepoints"), used)) USERTRACE__RETAIN \
	USERTRACE__PLAIN static struct usertrace_lttng_tracepoint \
		*usertrace_lttng_entry_##provider##___##name = \
			&USERTRACE_LTTNG__TRACEPOINT(provider, name);

/*
 * As with LTTng-UST, such a program need not be linked with the library. Then a
 * constructor loads the library, if there is one; otherwise nothing is traced.
 */
__attribute__((weakref("usertrace_lttng_register"))) static void
usertrace_lttng__register(struct usertrace_lttng_tracepoint **tracepoints,
			  struct usertrace_lttng_tracepoint **tracepoints_end,
			  const struct usertrace_lttng_probe **probes,
			  const struct usertrace_lttng_probe **probes_end, void (*pin)(void));
__attribute__((weakref("usertrace_lttng_unregister"))) static void
usertrace_lttng__unregister(struct usertrace_lttng_tracepoint **tracepoints,
			    const struct usertrace_lttng_probe **probes);

static __typeof__(&usertrace_lttng_unregister) usertrace_lttng__at_end;

__attribute__((constructor(101))) static void usertrace_lttng__tracepoints_come(void)
{
	__typeof__(&usertrace_lttng_register) at_start = usertrace_lttng__register;

	usertrace_lttng__at_end = usertrace_lttng__unregister;
	if (!at_start && usertrace_lttng__dlopen && usertrace_lttng__dlsym) {
		void *library = usertrace_lttng__dlopen("libusertrace.so.1", RTLD_NOW);

		if (!library)
			return;
		/* POSIX allows this conversion; ISO C does not have it. */
		*(void **)&at_start = usertrace_lttng__dlsym(library, "usertrace_lttng_register");
		*(void **)&usertrace_lttng__at_end =
			usertrace_lttng__dlsym(library, "usertrace_lttng_unregister");
	}
	if (at_start)
		at_start(__start_usertrace_lttng_tracepoints, __stop_usertrace_lttng_tracepoints,
			 __start_usertrace_lttng_probes, __stop_usertrace_lttng_probes,
			 usertrace_lttng__pin);
}

__attribute__((destructor(101))) static void usertrace_lttng__tracepoints_go(void)
{
	if (usertrace_lttng__at_end)
		usertrace_lttng__at_end(__start_usertrace_lttng_tracepoints,
					__start_usertrace_lttng_probes);
}

#endif
