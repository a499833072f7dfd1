/*
 * Probes that print each event to the program's output. A probe that gets 1000 returns
 * only when the file USERTRACE_TEST_GO exists.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <usertrace/probe.h>

static void say(const struct usertrace_record *record, void *data)
{
	unsigned long long n = 0;
	char line[100];

	memcpy(&n, record->payload, sizeof(n));
	write(1, line, snprintf(line, sizeof(line), "%s %.*s %llu\n", (const char *)data, 13,
				record->description, n));
	while (n == 1000 && access(getenv("USERTRACE_TEST_GO"), F_OK))
		usleep(1000);
}

const struct usertrace_probe usertrace_probes[] = {
	{ "say", say, "said" },
	{ SECOND, say, "also" },
	{ 0, 0, 0 },
};
