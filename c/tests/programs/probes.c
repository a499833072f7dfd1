/* Probes of a program in C and C++; prints the result of each function. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <usertrace.h>

USERTRACE_EVENT(shop, served, INFO, (u16, status), (str, path));
USERTRACE_EVENT(shop, closed, INFO, (u32, n));
USERTRACE_EVENT(other, event, INFO, (u8, n));

static int calls, depth;
static const char *const data = "data";

static void see(const struct usertrace_record *record, void *given)
{
	const unsigned char *payload = (const unsigned char *)record->payload;

	calls++;
	printf("%.*s: %zu of %zu bytes, %d %d, %s\n", (int)record->description_len,
	       record->description, record->payload_len, record->len, payload[0], payload[1],
	       (const char *)given);
}

/* A probe's own event does not call it again. */
static void recurse(const struct usertrace_record *record, void *unused)
{
	(void)record;
	(void)unused;
	depth++;
	usertrace(shop, closed, 2);
}

static void on_signal(int signo)
{
	printf("in a handler: %ld", usertrace_probe_connect("shop:cl?sed", "see"));
	printf(" %ld", usertrace_probe_activate("shop:cl?sed", "see"));
	usertrace(shop, closed, signo == SIGUSR1);
	printf("%ld", usertrace_probe_deactivate("shop:cl?sed", "see"));
	printf(" %ld\n", usertrace_probe_disconnect("shop:cl?sed", "see"));
}

static void mistakes(void)
{
	char name[32], longest[66];
	int n = 0;

	memset(longest, 'x', 65);
	longest[65] = 0;
	printf("names: %d %d %d %d\n", usertrace_probe_register("", see, NULL),
	       usertrace_probe_register("a b", see, NULL),
	       usertrace_probe_register("\xff", see, NULL),
	       usertrace_probe_register(longest, see, NULL));
	printf("twice: %d\n", usertrace_probe_register("see", see, NULL));
	printf("none: %ld %ld %ld %ld %d\n", usertrace_probe_connect("shop:*", "none"),
	       usertrace_probe_disconnect("shop:*", "none"),
	       usertrace_probe_activate("shop:*", "none"),
	       usertrace_probe_deactivate("shop:*", "none"), usertrace_probe_unregister("none"));
	printf("not connected: %ld %ld %ld\n", usertrace_probe_disconnect("shop:*", "see"),
	       usertrace_probe_activate("shop:*", "see"),
	       usertrace_probe_deactivate("shop:*", "see"));
	printf("patterns: %ld %ld\n", usertrace_probe_connect("", "see"),
	       usertrace_probe_connect("a b", "see"));
	/* With "see". */
	while (snprintf(name, sizeof(name), "more%d", n) && !usertrace_probe_register(name, see, NULL))
		n++;
	printf("full: %d %d\n", n, usertrace_probe_register("last", see, NULL));
	while (n--) {
		snprintf(name, sizeof(name), "more%d", n);
		if (usertrace_probe_unregister(name))
			printf("%s stays\n", name);
	}
}

int main(void)
{
	static char text[2000];

	setvbuf(stdout, NULL, _IOLBF, 1 << 16);
	printf("registered: %d\n", usertrace_probe_register("see", see, (void *)data));
	mistakes();
	printf("connected: %ld", usertrace_probe_connect("shop:*", "see"));
	printf(" %ld\n", usertrace_probe_connect("shop:*", "see"));
	usertrace(shop, served, 404, "/before");
	printf("activated: %ld\n", usertrace_probe_activate("shop:*", "see"));
	printf("%d\n", usertrace(shop, served, 0x0102, "/a"));
	memset(text, 'x', sizeof(text) - 1);
	printf("%d\n", usertrace(shop, served, 0x0304, text));
	usertrace(other, event, 1);
	printf("deactivated: %ld\n", usertrace_probe_deactivate("shop:*", "see"));
	usertrace(shop, served, 500, "/after");
	printf("disconnected: %ld", usertrace_probe_disconnect("shop:*", "see"));
	printf(" %ld\n", usertrace_probe_activate("shop:*", "see"));
	if (signal(SIGUSR1, on_signal) == SIG_ERR)
		return 1;
	raise(SIGUSR1);
	printf("unregistered: %d", usertrace_probe_unregister("see"));
	printf(" %d\n", usertrace_probe_unregister("see"));
	usertrace_probe_register("recurse", recurse, NULL);
	usertrace_probe_connect("shop:closed", "recurse");
	usertrace_probe_activate("shop:closed", "recurse");
	usertrace(shop, closed, 1);
	printf("%d calls, %d deep\n", calls, depth);
	return 0;
}
