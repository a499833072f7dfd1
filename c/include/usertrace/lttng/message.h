/* Formats texts of any length, as printf() does. */
#ifndef USERTRACE_LTTNG_MESSAGE_H
#define USERTRACE_LTTNG_MESSAGE_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct usertrace_lttng__message {
	const char *text;
	size_t len;
	char *allocated;
	char room[512];
};

/* Returns 0 on failure. The caller frees the message in either case. */
__attribute__((format(printf, 2, 0), unused)) static int
usertrace_lttng__format(struct usertrace_lttng__message *message, const char *format,
			va_list arguments)
{
	va_list again;
	int len;

	va_copy(again, arguments);
	message->allocated = NULL;
	message->text = message->room;
	len = vsnprintf(message->room, sizeof(message->room), format, arguments);
	if (len >= (int)sizeof(message->room)) {
		message->allocated = (char *)malloc((size_t)len + 1);
		message->text = message->allocated;
		len = message->allocated ?
			vsnprintf(message->allocated, (size_t)len + 1, format, again) : -1;
	}
	va_end(again);
	message->len = (size_t)len;
	return len >= 0;
}

__attribute__((unused)) static void
usertrace_lttng__free(struct usertrace_lttng__message *message)
{
	free(message->allocated);
}

#endif
