/*
 * Contexts: what events say besides their fields, where a trace asks for it.
 */
#ifndef USERTRACE_CONTEXT_H
#define USERTRACE_CONTEXT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What usertrace_context_define() says instead of 0. */
enum usertrace_context_error {
	/* Not 1 to 27 letters, digits and _. */
	USERTRACE_CONTEXT_NAME = -1,
	/* The process has as many as there can be, with those that traces ask for. */
	USERTRACE_CONTEXT_FULL = -2,
};

/*
 * Defines the context app.NAME: the function is called for each event that goes to
 * a channel which asks for it, in the thread of the event, also in signal handlers
 * and inside of malloc(). So it may do what a signal handler may, and must not have
 * events. Its library is not unloaded any more. 0, or an enum
 * usertrace_context_error.
 */
int usertrace_context_define(const char *name, uint64_t (*read)(void));

/*
 * Has threads ask anew for their names and namespaces, which they do once for each
 * trace otherwise. May be called in signal handlers.
 */
void usertrace_context_renew(void);

#ifdef __cplusplus
}
#endif

#endif
