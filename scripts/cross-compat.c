/*
 * A 32-bit program for the arm64 guest of `scripts/cross kernel`. It checks that the tracer's calls, whose numbers are
 * CALLS, do not exist for 32-bit programs. It needs no library.
 */

#define ENOSYS 38
#define NR_exit 1
#define NR_getpid 20

static long call(long number)
{
	register long r7 asm("r7") = number;
	register long r0 asm("r0") = 0;
	register long r1 asm("r1") = 0;
	register long r2 asm("r2") = 0;

	asm volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2) : "memory");
	return r0;
}

static void leave(long status)
{
	register long r7 asm("r7") = NR_exit;
	register long r0 asm("r0") = status;

	asm volatile("svc 0" : : "r"(r0), "r"(r7));
	__builtin_unreachable();
}

void _start(void)
{
	static const long calls[] = { CALLS };

	/* Other calls exist. */
	if (call(NR_getpid) <= 0)
		leave(2);
	for (unsigned int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (call(calls[i]) != -ENOSYS)
			leave(1);
	}
	leave(0);
}
