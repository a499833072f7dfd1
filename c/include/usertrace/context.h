/*
 * Contexts: data that events have besides their fields, if a trace asks for it.
 */
#ifndef USERTRACE_CONTEXT_H
#define USERTRACE_CONTEXT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors of usertrace_context_define(). */
enum usertrace_context_error {
	/* The name is not 1 to 27 letters, digits and _. */
	USERTRACE_CONTEXT_NAME = -1,
	/* The process has the maximum, including those that traces ask for. */
	USERTRACE_CONTEXT_FULL = -2,
};

/*
 * Defines the context app.NAME. The function is called for each event of a
 * channel that asks for the context, in the event's thread, also in signal
 * handlers and inside of malloc(). So it must be async-signal-safe, and must
 * not write events. Its library is never unloaded again. Returns 0, or an enum
 * usertrace_context_error.
 */
int usertrace_context_define(const char *name, uint64_t (*read)(void));

/*
 * Makes threads query their names and namespaces again, which they otherwise do
 * once for each trace. May be called in signal handlers.
 */
void usertrace_context_renew(void);

#ifdef __cplusplus
}
#endif

#endif
