/* Probes of both providers. */
#define TRACEPOINT_CREATE_PROBES
#include "fields.h"
#include "classes.h"
