/* Contexts of events in C and C++. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <usertrace.h>

USERTRACE_EVENT(shop, served, INFO, (u16, status), (str, path));
USERTRACE_EVENT0(shop, closed, INFO);

static uint64_t request;

static uint64_t read_request(void)
{
	return request;
}

/* The address of both events is in this function, even if another one writes them. */
__attribute__((noinline)) static void serve(void)
{
	request = 17;
	usertrace(shop, served, 200, "/");
	request = 18;
	usertrace0(shop, closed);
}

int main(void)
{
	printf("%d %d %d %d\n", usertrace_context_define("request", read_request),
	       usertrace_context_define("no.name", read_request),
	       usertrace_context_define("", read_request),
	       usertrace_context_define("\xff", read_request));
	usertrace_context_renew();
	serve();
	printf("%lx %ld\n", (unsigned long)&serve, (long)syscall(SYS_gettid));
	return 0;
}
