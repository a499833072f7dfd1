/* The place of an event in C, whose machine code code.rs reads. */
#include <usertrace.h>

USERTRACE_EVENT(bench, code, INFO, (u64, a), (u64, b), (u64, c), (u64, d));

void usertrace_bench_place(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	usertrace(bench, code, a, b, c, d);
}
