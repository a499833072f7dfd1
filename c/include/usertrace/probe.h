/*
 * Probes, which are functions that get events, and the control channel. A
 * library that "usertrace ctl PID load" loads needs no other header.
 */
#ifndef USERTRACE_PROBE_H
#define USERTRACE_PROBE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One event, as it is written. */
struct usertrace_record {
	/* Its metadata as in <linux/ltt.h>, without the id and without a NUL. */
	const char *description;
	size_t description_len;
	/*
	 * The fields, as in the metadata; up to 7 zeros may follow. Of a long
	 * payload, the first 1024 bytes.
	 */
	const void *payload;
	size_t payload_len;
	/* Length of the whole payload in bytes. */
	size_t len;
};

/*
 * A probe runs wherever events are written: it must be async-signal-safe and
 * must not block. An event in a probe does not call that probe again.
 */
typedef void (*usertrace_probe_call)(const struct usertrace_record *record, void *data);

struct usertrace_probe {
	/* Letters, digits and _ . - */
	const char *name;
	usertrace_probe_call call;
	void *data;
};

/*
 * The probes of a library that is loaded on command, up to one whose name is
 * NULL. In C++, declare it extern "C".
 */
extern const struct usertrace_probe usertrace_probes[];

/* Errors of the functions below. */
enum usertrace_probe_error {
	/* The name or pattern is invalid. */
	USERTRACE_PROBE_NAME = -1,
	/* The probe or the connection exists. */
	USERTRACE_PROBE_EXISTS = -2,
	/* The probe or the connection does not exist. */
	USERTRACE_PROBE_NONE = -3,
	/* The table is full, or there is no memory. */
	USERTRACE_PROBE_FULL = -4,
	/* This thread is already making such a change. */
	USERTRACE_PROBE_BUSY = -5,
};

/* Registers a probe; copies its name. Returns 0, or an error. Not for signal handlers. */
int usertrace_probe_register(const char *name, usertrace_probe_call call, void *data);

/* Unregisters a probe. Afterwards no thread is in it: its library may be closed. */
int usertrace_probe_unregister(const char *name);

/*
 * Connect a probe to events, activate the connection, and undo either. EVENTS
 * is PROVIDER:NAME, in which * is any characters, and ? one; undoing takes the
 * same text. They return the number of present events, or an error. They may be
 * called in signal handlers.
 */
long usertrace_probe_connect(const char *events, const char *probe);
long usertrace_probe_disconnect(const char *events, const char *probe);
long usertrace_probe_activate(const char *events, const char *probe);
long usertrace_probe_deactivate(const char *events, const char *probe);

/*
 * Opens the control channel ("usertrace ctl"); USERTRACE_CONTROL does that for
 * other programs. The handler of the signal serves it or, if that is 0, a
 * thread. Returns 0 if it is open.
 */
int usertrace_control_start(int signal);

/*
 * Closes the control channel, and tells watching controllers. The signal's
 * handler stays, and calls the previous one. Returns 0 if it is closed;
 * otherwise there was none, or this thread is serving it. Not for signal
 * handlers.
 */
int usertrace_control_close(void);

/*
 * Executes a controller's requests that a signal handler cannot: loading and
 * unloading libraries. Not for signal handlers.
 */
void usertrace_control_serve(void);

#ifdef __cplusplus
}
#endif

#endif
