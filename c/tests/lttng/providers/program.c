/* Writes every event, the same ones each time. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "fields.h"
#include "classes.h"

static const uint16_t SIZES[] = { 1, 2, 65535 };

#define REQUEST(name) lttng_ust_tracepoint(test_classes, name, "/" #name, 1, 2, SIZES)

static int evaluated;

int count(void)
{
	return ++evaluated;
}

static void all_fields(void)
{
	struct sample sample;

	memset(&sample, 0, sizeof(sample));
	sample.c = 'c';
	sample.sc = -1;
	sample.uc = 255;
	sample.s = -32768;
	sample.us = 65535;
	sample.i = -2;
	sample.ui = 4294967295U;
	sample.l = -3;
	sample.ul = 0xfedcba9876543210UL;
	sample.ll = -9223372036854775807LL - 1;
	sample.ull = 18446744073709551615ULL;
	sample.size = 4096;
	sample.b = true;
	sample.colour = BLUE;
	sample.pointer = (const void *)0x1234;
	sample.f = 1.5F;
	sample.d = -2.25;
	for (int16_t n = 0; n < 6; n++)
		sample.grid[n / 3][n % 3] = (int16_t)(n - 2);
	sample.addresses[0] = htonl(0x7f000001);
	sample.addresses[1] = htonl(7);
	sample.name = "name";
	memcpy(sample.code, "wxyz", 4);

	tracepoint(test_fields, none);
	tracepoint(test_fields, integers, &sample);
	tracepoint(test_fields, hexadecimal, &sample);
	tracepoint(test_fields, network, htons(80), htonl(0x7f000001), 0x0100000000000000ULL,
		   (int32_t)htonl((uint32_t)-2), 64);
	tracepoint(test_fields, floats, &sample);
	tracepoint(test_fields, strings, "na\303\257ve", NULL);
	tracepoint(test_fields, arrays, &sample);
	tracepoint(test_fields, sequences, &sample, 0);
	tracepoint(test_fields, sequences, &sample, 3);
	for (int value = -10; value < 9; value += 2)
		tracepoint(test_fields, enumerations, value);
#ifndef __cplusplus
	for (int value = -10; value < 3; value += 4)
		tracepoint(test_fields, negative, value);
#endif
	tracepoint(test_fields, instance, 1, "instance");
	tracepoint(test_fields, unwritten, &sample, 5);
	tracepoint(test_fields, ten, 1, 2, 3, 4, 5, 6, 7, 8, 9, "ten");
	if (tracepoint_enabled(test_fields, none))
		do_tracepoint(test_fields, none);
}

static void all_levels(void)
{
	REQUEST(emerg);
	REQUEST(alert);
	REQUEST(crit);
	REQUEST(err);
	REQUEST(warning);
	REQUEST(notice);
	REQUEST(info);
	REQUEST(debug_system);
	REQUEST(debug_program);
	REQUEST(debug_process);
	REQUEST(debug_module);
	REQUEST(debug_unit);
	REQUEST(debug_function);
	REQUEST(debug_line);
	REQUEST(debug);
	REQUEST(unsaid);
	lttng_ust_tracepoint(test_classes, first, count());
	lttng_ust_tracepoint(test_classes, second, -count());
	if (lttng_ust_tracepoint_enabled(test_classes, first))
		lttng_ust_do_tracepoint(test_classes, first, 77);
}

int main(void)
{
	all_fields();
	all_levels();
	all_messages();
	printf("%d\n", evaluated);
	return 0;
}
