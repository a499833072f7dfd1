/*
 * Fields of each kind, some of them with names that clash easily, for compilers with all warnings
 * on.
 */
#include <usertrace.h>

/* Variables of the program: fields below have the same names. */
extern int status, x;

USERTRACE_EVENT(strict, numbers, INFO, (u8, a), (x8, b), (s8, c), (u16, d), (x16, e), (s16, f),
		(u32, g), (x32, h), (s32, i), (u64, j), (x64, k), (s64, l), (f32, m), (f64, n),
		(bool, o), (ptr, p));
USERTRACE_EVENT(strict, network, INFO, (u16be, a), (x16be, b), (s16be, c), (u32be, d), (x32be, e),
		(s32be, f), (u64be, g), (x64be, h), (s64be, i));
USERTRACE_EVENT(strict, others, INFO, (text, a), (array, u8, b, 6), (sequence, u16, c),
		(enum, u8, d, "Idle=0,Busy=1..3"), (str, e), (s8, f), (bool, g), (f32, h),
		(s16be, i), (ptr, j));
USERTRACE_EVENT(strict, names, INFO, (sequence, u8, data), (u32, data_length), (text, status),
		(u8, _x), (u8, x), (u64, status_length), (u16, int), (str, class),
		(u8, usertrace__payload));
USERTRACE_EVENT(strict, one, INFO, (s32, n));
USERTRACE_EVENT0(strict, none, INFO);

int strict(unsigned long n, const uint8_t *six, const uint16_t *more);
int strict(unsigned long n, const uint8_t *six, const uint16_t *more)
{
	usertrace(strict, numbers, 1, 2, -3, 4, 5, -6, 7, 8, -9, n, 11, -12, 1.0f, 2.0, true, six);
	usertrace(strict, network, 1, 2, -3, 4, 5, -6, n, 8, -9);
	usertrace(strict, others, "abc", n, six, more, n, 2, "x", -1, true, 1.0f, -1, six);
	usertrace(strict, names, six, n, 4, "x", 1, 1, 2, n, 3, "c", 5);
	/* A call in the arguments of another. */
	usertrace(strict, one, usertrace(strict, one, usertrace0(strict, none)));
	if (usertrace_enabled(strict, none))
		return usertrace0(strict, none);
	return usertrace(strict, one, 1) == USERTRACE_LOST;
}
