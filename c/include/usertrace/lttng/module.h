/* Registers the tracepoints and probes of the program or library that includes this. */
#ifndef USERTRACE_LTTNG_MODULE_H
#define USERTRACE_LTTNG_MODULE_H

#include <dlfcn.h>

#include "abi.h"

extern struct usertrace_lttng_tracepoint *__start_usertrace_lttng_tracepoints[]
	__attribute__((weak, visibility("hidden")));
extern struct usertrace_lttng_tracepoint *__stop_usertrace_lttng_tracepoints[]
	__attribute__((weak, visibility("hidden")));
extern const struct usertrace_lttng_probe *__start_usertrace_lttng_probes[]
	__attribute__((weak, visibility("hidden")));
extern const struct usertrace_lttng_probe *__stop_usertrace_lttng_probes[]
	__attribute__((weak, visibility("hidden")));

/* Weak, so that static programs need no dynamic linker. */
static void *usertrace_lttng__dlopen(const char *file, int flags)
	__attribute__((weakref("dlopen")));
static void *usertrace_lttng__dlsym(void *library, const char *symbol)
	__attribute__((weakref("dlsym")));

/* Dl_info, which <dlfcn.h> declares in some modes of the compiler only. */
struct usertrace_lttng__place {
	const char *file;
	void *base;
	const char *symbol;
	void *address;
};
static int usertrace_lttng__dladdr(const void *address, struct usertrace_lttng__place *place)
	__attribute__((weakref("dladdr")));

__attribute__((unused)) static void usertrace_lttng__pin(void)
{
	struct usertrace_lttng__place place = { NULL, NULL, NULL, NULL };

	if (usertrace_lttng__dladdr && usertrace_lttng__dlopen &&
	    usertrace_lttng__dladdr(__start_usertrace_lttng_probes, &place) && place.file)
		usertrace_lttng__dlopen(place.file, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

#endif
