/*
 * Calls malloc with a larger size each time: the events of libusertrace_malloc.so are numbered by it.
 *
 * Usage: numbered FIRST COUNT MICROSECONDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long first, count, pause;

	if (argc != 4)
		return 2;
	first = atol(argv[1]);
	count = atol(argv[2]);
	pause = atol(argv[3]);
	for (long i = 0; i < count; i++) {
		void *volatile memory = malloc(first + i);

		if (!memory)
			return 1;
		free(memory);
		if (pause)
			usleep(pause);
	}
	printf("%ld\n", count);
	return 0;
}
