/* The data of the events. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum colour { RED, GREEN, BLUE = 7 };

struct sample {
	char c;
	signed char sc;
	unsigned char uc;
	short s;
	unsigned short us;
	int i;
	unsigned int ui;
	long l;
	unsigned long ul;
	long long ll;
	unsigned long long ull;
	size_t size;
	bool b;
	enum colour colour;
	const void *pointer;
	float f;
	double d;
	/* Two rows of three. */
	int16_t grid[2][3];
	uint32_t addresses[2];
	const char *name;
	char code[4];
};

/* How many arguments were evaluated. */
int count(void);
void all_messages(void);

#endif
