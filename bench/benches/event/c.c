/* The events of ours.rs, from C. */
#include <usertrace.h>

USERTRACE_EVENT(bench, c_numbers, INFO, (u64, a), (u64, b), (u64, c), (u64, d));
USERTRACE_EVENT(bench, c_text, INFO, (u32, n), (str, text));

/* Hides a number from the compiler, as black_box() does. */
static uint64_t hidden(uint64_t n)
{
	__asm__ volatile("" : "+r"(n));
	return n;
}

/* Likewise: the compiler must not compose a payload in advance. */
static const char *hidden_text(const char *text)
{
	__asm__ volatile("" : "+r"(text));
	return text;
}

void bench_c_numbers(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		uint64_t n = hidden(i);

		usertrace(bench, c_numbers, n, n, n, n);
	}
}

void bench_c_text(uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		usertrace(bench, c_text, hidden(i), hidden_text("twenty bytes of text"));
}
