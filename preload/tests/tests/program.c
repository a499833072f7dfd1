/* Uses the malloc family, locks, threads and libraries in many ways. */
#define _GNU_SOURCE
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
#define ROUNDS 4000
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
		switch (rand_r(&seed) % 8) {
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
		case 5:
			kept[n] = reallocarray(kept[n], 2, size);
			break;
		case 6:
			free(kept[n]);
			kept[n] = valloc(size);
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

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn, cleaned;

static void *take_turns(void *arg)
{
	for (int n = 0; n < 1000; n++) {
		pthread_mutex_lock(&mutex);
		while (turn % 2 != (intptr_t)arg)
			pthread_cond_wait(&cond, &mutex);
		turn++;
		pthread_cond_broadcast(&cond);
		pthread_mutex_unlock(&mutex);
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	}
	return NULL;
}

static void clean(void *unused)
{
	/* The thread has the mutex again. */
	cleaned = pthread_mutex_unlock(&mutex) == 0;
}

static void *wait_for_ever(void *arg)
{
	pthread_mutex_lock(&mutex);
	*(int *)arg = 1;
	pthread_cond_signal(&cond);
	pthread_cleanup_push(clean, NULL);
	for (;;)
		pthread_cond_wait(&cond, &mutex);
	pthread_cleanup_pop(1);
	return NULL;
}

/* Threads that take turns, and one that is cancelled while it waits. */
static int locks(void)
{
	pthread_t threads[2], waiter;
	int waits = 0, bad = 0;
	void *result;

	for (intptr_t n = 0; n < 2; n++)
		bad |= pthread_create(&threads[n], NULL, take_turns, (void *)n);
	for (int n = 0; n < 2; n++)
		bad |= pthread_join(threads[n], NULL);
	bad |= turn != 2000;
	pthread_create(&waiter, NULL, wait_for_ever, &waits);
	pthread_mutex_lock(&mutex);
	while (!waits)
		pthread_cond_wait(&cond, &mutex);
	pthread_mutex_unlock(&mutex);
	pthread_cancel(waiter);
	pthread_join(waiter, &result);
	return bad || result != PTHREAD_CANCELED || !cleaned;
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
	/* Fork while other threads are inside malloc. */
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
	printf("library %d\n", library && dlsym(library, "cos") && !dlclose(library));
	printf("locks %d\n", locks());
	fflush(stdout);
	for (int n = 0; n < THREADS; n++) {
		pthread_join(threads[n], &result);
		bad |= (intptr_t)result;
	}
	/* Errors are the same. */
	errno = 0;
	ptr = malloc(PTRDIFF_MAX);
	bad |= ptr || errno != ENOMEM;
	bad |= posix_memalign(&ptr, 3, 8) != EINVAL;
	free(NULL);
	bad |= malloc_usable_size(ptr = malloc(100)) < 100;
	free(ptr);
	/* A signal's default action kills a child, as without the library. */
	if (!fork()) {
		raise(SIGTERM);
		_exit(0);
	}
	wait(&status);
	bad |= !WIFSIGNALED(status);
	printf("threads %d\n", (int)bad);
	return (int)bad;
}
