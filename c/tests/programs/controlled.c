/* A program that opens its control channel itself, and executes its input. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <usertrace.h>

USERTRACE_EVENT(test, numbered, INFO, (u64, n));

static int calls;

static void count(const struct usertrace_record *record, void *unused)
{
	(void)record;
	(void)unused;
	calls++;
}

/* Until the rings are full, or so many are written. */
static int flood(void)
{
	for (int n = 0; n < 1000000; n++)
		if (usertrace(test, numbered, n) == USERTRACE_LOST)
			return 1;
	return 0;
}

int main(void)
{
	void *library = NULL;
	char line[4096];

	if (usertrace_probe_register("count", count, NULL))
		return 1;
	while (fgets(line, sizeof(line), stdin)) {
		char *word = strtok(line, " \n"), *rest = strtok(NULL, "\n");

		if (!strcmp(word, "start"))
			printf("%d\n", usertrace_control_start(atoi(rest)));
		else if (!strcmp(word, "close"))
			printf("%d\n", usertrace_control_close());
		else if (!strcmp(word, "serve"))
			printf("%d\n", (usertrace_control_serve(), 0));
		else if (!strcmp(word, "event"))
			printf("%d\n", usertrace(test, numbered, atoi(rest)));
		else if (!strcmp(word, "calls"))
			printf("%d\n", calls);
		else if (!strcmp(word, "flood"))
			printf("%d\n", flood());
		else if (!strcmp(word, "open"))
			printf("%d\n", !(library = dlopen(rest, RTLD_NOW)));
		else if (!strcmp(word, "shut"))
			printf("%d\n", dlclose(library));
		fflush(stdout);
	}
	return 0;
}
