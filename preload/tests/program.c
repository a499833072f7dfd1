/* Uses the malloc family in as many ways as a program does. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 20000
#define KEPT 64

static void *work(void *arg)
{
	unsigned int seed = (uintptr_t)arg;
	unsigned char *kept[KEPT] = { 0 };
	size_t sizes[KEPT] = { 0 };

	for (int round = 0; round < ROUNDS; round++) {
		int n = rand_r(&seed) % KEPT;
		size_t size = rand_r(&seed) % 3000 + 1;

		for (size_t i = 0; i < sizes[n]; i++)
			if (kept[n][i] != (unsigned char)n)
				return (void *)1;
		switch (rand_r(&seed) % 6) {
		case 0:
			kept[n] = realloc(kept[n], size);
			break;
		case 1:
			free(kept[n]);
			kept[n] = calloc(3, size);
			for (size_t i = 0; i < 3 * size; i++)
				if (kept[n][i])
					return (void *)1;
			break;
		case 2:
			free(kept[n]);
			if (posix_memalign((void **)&kept[n], 64, size) || (uintptr_t)kept[n] % 64)
				return (void *)1;
			break;
		case 3:
			free(kept[n]);
			kept[n] = aligned_alloc(128, size);
			break;
		case 4:
			free(kept[n]);
			kept[n] = memalign(256, size);
			break;
		default:
			free(kept[n]);
			kept[n] = malloc(size);
		}
		if (!kept[n])
			return (void *)1;
		memset(kept[n], n, size);
		sizes[n] = size;
	}
	for (int n = 0; n < KEPT; n++)
		free(kept[n]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	intptr_t bad = 0;
	void *result, *library, *ptr;
	int status;

	if (argc > 1) {
		puts("exec");
		return work((void *)9) != NULL;
	}
	for (intptr_t n = 0; n < THREADS; n++)
		pthread_create(&threads[n], NULL, work, (void *)(n + 1));
	/* Children while other threads are inside malloc. */
	for (int n = 0; n < 20; n++) {
		pid_t pid = fork();

		if (!pid)
			_exit(work((void *)7) != NULL);
		waitpid(pid, &status, 0);
		bad |= status;
	}
	printf("child %d\n", (int)bad);
	fflush(stdout);
	if (!fork())
		execl("/proc/self/exe", argv[0], "again", (char *)NULL);
	wait(&status);
	bad |= status;
	library = dlopen("libm.so.6", RTLD_NOW);
	printf("library %d\n", library && dlsym(library, "cos"));
	for (int n = 0; n < THREADS; n++) {
		pthread_join(threads[n], &result);
		bad |= (intptr_t)result;
	}
	/* What goes wrong goes wrong in the same way. */
	errno = 0;
	ptr = malloc(PTRDIFF_MAX);
	bad |= ptr || errno != ENOMEM;
	bad |= posix_memalign(&ptr, 3, 8) != EINVAL;
	free(NULL);
	bad |= malloc_usable_size(ptr = malloc(100)) < 100;
	free(ptr);
	/* A child that dies by a signal's default action, as without the library. */
	if (!fork()) {
		raise(SIGTERM);
		_exit(0);
	}
	wait(&status);
	bad |= !WIFSIGNALED(status);
	printf("threads %d\n", (int)bad);
	return (int)bad;
}
