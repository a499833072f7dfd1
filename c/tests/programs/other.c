/* A second file with the same events. */
#include "fields.h"

void other_file(void)
{
	usertrace(test, shared, -1);
}
