/* load PROVIDER ROUNDS: loads and unloads a provider while a thread writes its events. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "classes.h"

static int done;

static void *busy(void *unused)
{
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
		for (int n = 0; n < 10; n++)
			lttng_ust_tracepoint(test_classes, second, 7);
		usleep(10);
	}
	return unused;
}

int main(int argc, char **argv)
{
	int rounds = argc > 2 ? atoi(argv[2]) : 0, loaded = 0;
	pthread_t thread;

	if (pthread_create(&thread, NULL, busy, NULL))
		return 1;
	for (int n = 0; n < rounds; n++) {
		void *provider = dlopen(argv[1], RTLD_NOW);

		if (!provider) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		loaded++;
		usleep(100);
		dlclose(provider);
	}
	__atomic_store_n(&done, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	printf("%d\n", loaded);
	return 0;
}
