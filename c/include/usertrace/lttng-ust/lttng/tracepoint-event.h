/*
 * Reads a provider's header again, if its probes are to be made. It has no
 * include guard, as there may be several providers.
 */
#include <lttng/tracepoint.h>

#if LTTNG_UST_COMPAT_API(0)
#if defined(TRACEPOINT_CREATE_PROBES) && !defined(LTTNG_UST_TRACEPOINT_CREATE_PROBES)
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#endif
#endif

#ifdef LTTNG_UST_TRACEPOINT_CREATE_PROBES

/* The header includes this one once more in each pass. */
#undef LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ
#if LTTNG_UST_COMPAT_API(0)
#undef TRACEPOINT_CREATE_PROBES
#define TRACEPOINT_HEADER_MULTI_READ
#if defined(TRACEPOINT_INCLUDE) && !defined(LTTNG_UST_TRACEPOINT_INCLUDE)
#define LTTNG_UST_TRACEPOINT_INCLUDE TRACEPOINT_INCLUDE
#endif
#if defined(TRACEPOINT_PROVIDER) && !defined(LTTNG_UST_TRACEPOINT_PROVIDER)
#define LTTNG_UST_TRACEPOINT_PROVIDER TRACEPOINT_PROVIDER
#endif
#endif

#include "../../lttng/probes.h"

/* GCC does not warn of code from macros of system headers; Clang does. */
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wold-style-cast"
#endif

#include "../../lttng/pass-labels.h"
#include LTTNG_UST_TRACEPOINT_INCLUDE

#include "../../lttng/pass-fields.h"
#include LTTNG_UST_TRACEPOINT_INCLUDE

#include "../../lttng/pass-record.h"
#include LTTNG_UST_TRACEPOINT_INCLUDE

#include "../../lttng/pass-probes.h"
#include LTTNG_UST_TRACEPOINT_INCLUDE

#ifdef __clang__
#pragma clang diagnostic pop
#endif

/* The symbol by which tracepoints link their provider. */
int USERTRACE_LTTNG__JOIN(usertrace_lttng_provider_, LTTNG_UST_TRACEPOINT_PROVIDER)
	USERTRACE_LTTNG__PROVIDER_VISIBILITY;

#include "../../lttng/declare.h"

#undef LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#if LTTNG_UST_COMPAT_API(0)
#undef TRACEPOINT_HEADER_MULTI_READ
#undef TRACEPOINT_INCLUDE
#endif
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES

#endif
