/* Probes that say what they get on the program's output. */
#include <stdio.h>
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
}

const struct usertrace_probe usertrace_probes[] = {
	{ "say", say, "said" },
	{ SECOND, say, "also" },
	{ 0, 0, 0 },
};
