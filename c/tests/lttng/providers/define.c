/* The tracepoints of both providers. */
#define TRACEPOINT_DEFINE
#include "fields.h"
#include "classes.h"
