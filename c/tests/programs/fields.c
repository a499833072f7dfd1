/* Every type of field, in C11 and C++17. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fields.h"

USERTRACE_EVENT(test, unsigned, EMERG, (u8, a), (u16, b), (u32, c), (u64, d));
USERTRACE_EVENT(test, signed, ALERT, (s8, a), (s16, b), (s32, c), (s64, d));
USERTRACE_EVENT(test, hexadecimal, CRIT, (x8, a), (x16, b), (x32, c), (x64, d), (ptr, e));
USERTRACE_EVENT(test, network, ERR, (u16be, a), (x32be, b), (s64be, c));
USERTRACE_EVENT(test, floating, WARNING, (f32, a), (f64, b), (bool, c));
USERTRACE_EVENT(test, texts, NOTICE, (str, a), (text, b), (str, c));
USERTRACE_EVENT(test, many, INFO, (array, u16, a, 3), (sequence, s32, b), (sequence, f64, c),
		(array, bool, d, 2));
USERTRACE_EVENT(test, enumeration, DEBUG, (enum, u8, a, "Idle=0,Busy=1..3"),
		(enum, s32, b, "Low=-5..-1,High=1"));
USERTRACE_EVENT(test, longest, INFO, (u64, a), (u64, b), (u64, c), (u64, d), (u64, e), (u64, f),
		(u64, g), (u8, h));
USERTRACE_EVENT(test, size, INFO, (str, text));

static int evaluated;

static int once(void)
{
	return ++evaluated;
}

static void on_signal(int signo)
{
	usertrace(test, shared, signo);
}

static int count(const char *description, int enabled, void *data)
{
	int *counts = (int *)data;

	if (!strncmp(description, "test:", 5))
		counts[enabled]++;
	return !strcmp(description, "test:nothing 4");
}

int main(int argc, char **argv)
{
	const uint16_t three[3] = { 1, 2, 65535 };
	const int32_t numbers[2] = { -1, 7 };
	const double halves[1] = { 0.5 };
	const bool flags[2] = { true, false };
	static char text[1 << 23];
	struct usertrace_stats stats;
	int counts[2] = { 0, 0 }, outcome;

	if (usertrace_init()) {
		usertrace_status(text, 12);
		printf("%s\n", text);
	}
	usertrace(test, unsigned, 255, 65535, 4294967295u, 18446744073709551615ull);
	usertrace(test, signed, -128, -32768, -2147483647 - 1, -9223372036854775807ll - 1);
	usertrace(test, hexadecimal, 0xf1, 0xf2, 0xf3, 0xf4, (void *)0xf5);
	usertrace(test, network, 80, 0x1020304, -2);
	usertrace(test, floating, 1.5, -2.25, true);
	usertrace(test, texts, "abc", "defgh", 3, (const char *)0);
	usertrace(test, many, three, numbers, 2, halves, 1, flags);
	usertrace(test, many, three, numbers, 0, (const double *)0, 0, flags);
	usertrace(test, enumeration, 2, -3);
	usertrace(test, longest, 1, 2, 3, 4, 5, 6, 7, 8);
	usertrace0(test, nothing);
	if (signal(SIGUSR1, on_signal) == SIG_ERR)
		return 1;
	raise(SIGUSR1);
	other_file();
	if (argc > 1)
		usertrace(test, size, argv[1]);
	outcome = usertrace(test, shared, once());
	memset(text, 'x', sizeof(text) - 1);
	printf("%d %d ", outcome, usertrace(test, size, text));
	printf("%d ", usertrace_each_event(count, counts));
	usertrace_stats(&stats);
	printf("%u %u %u %zu\n", stats.traces, stats.undescribed, (unsigned int)stats.lost,
	       usertrace_bad_events());
	printf("%d %d\n", evaluated, usertrace_switch());
	return 0;
}
