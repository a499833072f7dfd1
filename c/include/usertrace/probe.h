/*
 * Probes: functions that get the records of events, and the control channel.
 * A library that is only loaded by "usertrace ctl PID load" needs nothing else.
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
	/* Its metadata as <linux/ltt.h> has it, without the id. No NUL follows. */
	const char *description;
	size_t description_len;
	/*
	 * The fields as the metadata says; up to 7 zeros may follow. Of a long
	 * payload it is the first 1024 bytes.
	 */
	const void *payload;
	size_t payload_len;
	/* How many bytes the whole payload has. */
	size_t len;
};

/*
 * It is called wherever events are: it may do what a signal handler may, and wait
 * for nobody. An event in a probe does not call that probe again.
 */
typedef void (*usertrace_probe_call)(const struct usertrace_record *record, void *data);

struct usertrace_probe {
	/* Letters, digits and _ . - */
	const char *name;
	usertrace_probe_call call;
	void *data;
};

/*
 * What a library that is loaded on command has: its probes, and one whose name is
 * NULL. In C++, extern "C".
 */
extern const struct usertrace_probe usertrace_probes[];

/* What the functions below say instead of a number of events. */
enum usertrace_probe_error {
	/* A name that none can have. */
	USERTRACE_PROBE_NAME = -1,
	/* There is a probe of that name, or the connection. */
	USERTRACE_PROBE_EXISTS = -2,
	/* There is no such probe, or connection. */
	USERTRACE_PROBE_NONE = -3,
	/* There is no room, or no memory. */
	USERTRACE_PROBE_FULL = -4,
	/* This thread is in the middle of such a change. */
	USERTRACE_PROBE_BUSY = -5,
};

/* Registers a probe, whose name is copied. 0, or an error. Not for signal handlers. */
int usertrace_probe_register(const char *name, usertrace_probe_call call, void *data);

/* Takes it out. Afterwards no other thread is in it: its library may be closed. */
int usertrace_probe_unregister(const char *name);

/*
 * Connects a probe to events, and has these call it; and undoes either. Events are
 * PROVIDER:NAME, in which * is any characters, and ? one; what undoes a connection
 * names them in the same way. The value is how many events there are now, or an
 * error. For signal handlers, too.
 */
long usertrace_probe_connect(const char *events, const char *probe);
long usertrace_probe_disconnect(const char *events, const char *probe);
long usertrace_probe_activate(const char *events, const char *probe);
long usertrace_probe_deactivate(const char *events, const char *probe);

/*
 * Opens the control channel ("usertrace ctl"), which USERTRACE_CONTROL does for
 * programs that do not: served by the handler of a signal, or, if that is 0, by a
 * thread. 0: it is open.
 */
int usertrace_control_start(int signal);

/*
 * Closes it; controllers that watch are told so. The handler of a signal stays, and
 * calls the one that was there before. 0: it is closed; else there was none, or this
 * thread is in the middle of serving it. Not for signal handlers.
 */
int usertrace_control_close(void);

/*
 * Does what a controller has asked for and a signal handler cannot do, which is to
 * load and unload libraries. Not for signal handlers.
 */
void usertrace_control_serve(void);

#ifdef __cplusplus
}
#endif

#endif
