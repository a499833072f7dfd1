/* libraries ONE TWO: both write events, while one of them is loaded and unloaded. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*function)(void);

static void *load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return library;
}

static void write_event(void *library)
{
	function write_event;

	*(void **)&write_event = dlsym(library, "write_event");
	if (!write_event)
		exit(1);
	write_event();
}

int main(int argc, char **argv)
{
	void *one, *two;

	if (argc < 3)
		return 1;
	one = load(argv[1]);
	write_event(one);
	two = load(argv[2]);
	write_event(two);
	write_event(one);
	/* The first library: tracepoints without probes use those of the first module. */
	dlclose(one);
	write_event(two);
	/* It is really unloaded. */
	if (dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD))
		return 1;
	one = load(argv[1]);
	write_event(one);
	write_event(two);
	puts("done");
	return 0;
}
